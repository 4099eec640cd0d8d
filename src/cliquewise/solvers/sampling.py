"""The order in which examples are visited."""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np

from cliquewise.ragged import Floats, Ints
from cliquewise.solvers.array_checks import MAX_COUNT, check, check_order, checked
from cliquewise.solvers.base import Arrays

#: Sampling schemes; each solver accepts some of them.
SAMPLINGS = ("gap", "permuted", "uniform", "cyclic")
#: Stands for an example that the kernel samples itself, in proportion to the current gaps.
BY_GAP = -1


@dataclass
class Order:
    """The order of the current epoch, and the number of visits so far."""

    visits: int = 0
    order: Ints = field(default_factory=lambda: np.empty(0, dtype=np.int64))

    @classmethod
    def from_arrays(cls, arrays: Arrays, visits: float, n: int) -> Order:
        """Return the order in the arrays of a checkpoint; older ones have none."""
        check(0 <= visits <= MAX_COUNT and visits == int(visits), "its counts are not in range")
        if "order" not in arrays:
            return cls(int(visits))
        order = checked(arrays, "order", (None,), np.int64)
        check_order(order, n)
        return cls(int(visits), order)

    def count(self, n: int, max_step_examples: int) -> int:
        """Return the size of the next step: an epoch is divided into equal parts."""
        parts = -(-n // max(min(max_step_examples, n), 1))
        return min(-(-n // parts), n - self.visits % n)

    def is_whole(self, n: int) -> bool:
        """Whether the visits so far are whole epochs."""
        return self.visits % n == 0

    def ends_epoch(self, n: int, count: int) -> bool:
        """Whether the last ``count`` visits completed an epoch."""
        return self.visits % n < count

    def is_due(self, n: int, count: int) -> bool:
        """Whether the gap can be estimated now."""
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
        """Return the examples of the next step; see :meth:`sample`."""
        return self.sample(n, self.count(n, max_step_examples), rng, sampling, uniform_share, gaps)

    def sample(
        self,
        n: int,
        count: int,
        rng: np.random.Generator,
        sampling: str = "permuted",
        uniform_share: float = 0.2,
        gaps: Floats | None = None,
    ) -> Ints:
        """Return the examples of the next ``count`` visits, and count them.

        With ``sampling="gap"``, after one epoch, a share is sampled uniformly and the rest in
        proportion to ``gaps``, or by the kernel (`BY_GAP`) if ``gaps`` is None.
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
            order[chosen] = BY_GAP if gaps is None else _in_proportion(gaps, int(chosen.sum()), rng)
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
    """Return random positions in proportion to the gaps; uniform if all are zero."""
    total = np.cumsum(gaps)
    if not total[-1] > 0:
        return rng.integers(0, len(gaps), count)
    sampled = np.searchsorted(total, rng.random(count) * total[-1], "right")
    return np.asarray(np.minimum(sampled, len(gaps) - 1))
