"""Which example comes next."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import numpy as np

from cliquewise.ragged import Floats, Ints
from cliquewise.solvers.array_checks import MOST, check, check_order

#: Ways to draw; solvers say which of them they take.
SAMPLINGS = ("gap", "permuted", "uniform", "cyclic")
#: Stands for an example that a kernel draws by itself, in proportion to the gaps of the moment.
DRAW = -1


@dataclass
class Order:
    """The order of the pass under way, and how many visits there were."""

    visits: int = 0
    order: Ints = field(default_factory=lambda: np.empty(0, dtype=np.int64))

    @classmethod
    def unpacked(cls, visits: float, order: Any, n: int) -> Order:
        """Back from the numbers of a checkpoint."""
        check(0 <= visits <= MOST and visits == int(visits), "its counts are not in range")
        check_order(order, n)
        return cls(int(visits), order)

    def count(self, n: int, max_step_examples: int) -> int:
        """Examples of the next step: equal parts of a pass that do not reach beyond its end."""
        parts = -(-n // max(min(max_step_examples, n), 1))
        return min(-(-n // parts), n - self.visits % n)

    def is_whole(self, n: int) -> bool:
        """Whether the visits make whole passes."""
        return self.visits % n == 0

    def ends_pass(self, n: int, count: int) -> bool:
        """Whether the last ``count`` visits ended a pass."""
        return self.visits % n < count

    def is_due(self, n: int, count: int) -> bool:
        """Whether the gap may be estimated now; a certificate may follow."""
        return True

    def next(
        self,
        n: int,
        max_step_examples: int,
        rng: np.random.Generator,
        sampling: str = "permuted",
        uniform_share: float = 0.2,
        gaps: Floats | None = None,
    ) -> Ints:
        """The examples of the next step; see :meth:`draw`."""
        return self.draw(n, self.count(n, max_step_examples), rng, sampling, uniform_share, gaps)

    def draw(
        self,
        n: int,
        count: int,
        rng: np.random.Generator,
        sampling: str = "permuted",
        uniform_share: float = 0.2,
        gaps: Floats | None = None,
    ) -> Ints:
        """The examples of the next ``count`` visits, which are counted.

        With ``sampling="gap"``, after one pass over all, a share is drawn uniformly and the rest
        in proportion to ``gaps``, or left to the kernel (`DRAW`) if there are none.
        """
        before = self.visits
        self.visits += count
        if sampling == "uniform":
            return rng.integers(0, n, count)
        if sampling == "cyclic":
            return (before + np.arange(count)) % n
        if sampling == "gap" and before >= n:
            order = rng.integers(0, n, count)
            chosen = rng.random(count) >= uniform_share
            order[chosen] = DRAW if gaps is None else _in_proportion(gaps, int(chosen.sum()), rng)
            return order
        parts, at = [], before % n
        while count > 0:
            if at == 0 or len(self.order) != n:
                self.order = rng.permutation(n)
            parts.append(self.order[at : at + count])
            count -= len(parts[-1])
            at = (at + len(parts[-1])) % n
        return np.concatenate(parts)


def _in_proportion(gaps: Floats, count: int, rng: np.random.Generator) -> Ints:
    """Places drawn in proportion to the gaps; uniformly where all of them are zero."""
    total = np.cumsum(gaps)
    if not total[-1] > 0:
        return rng.integers(0, len(gaps), count)
    drawn = np.searchsorted(total, rng.random(count) * total[-1], "right")
    return np.asarray(np.minimum(drawn, len(gaps) - 1))
