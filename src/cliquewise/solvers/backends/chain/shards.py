"""SDCA on chains on disk: the dual distributions are on disk as well.

One part of the examples is in memory at a time. Each epoch composes its parts at random, of chunks
that are contiguous on disk. With the same parts in every epoch, weights that all examples share
(intercept, transitions) would converge slowly: on generated sentences (``benchmarks/shards.py``, 15
parts) the gap falls by a factor of ten per epoch with random parts, as with examples in any
order, and by a factor of two with fixed parts. Certificates add up the sums of all parts, so they
are as exact as in memory.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import ClassVar, Self

import numpy as np

from cliquewise.errors import DataError
from cliquewise.problems.rounding import UNIT, Bound
from cliquewise.problems.shards import ShardedChainProblem
from cliquewise.ragged import Floats, Ints
from cliquewise.solvers.array_checks import number_of
from cliquewise.solvers.backends.base import DualSettings
from cliquewise.solvers.backends.chain.dual_store import DualStore
from cliquewise.solvers.backends.chain.duals import ChainDuals, Totals
from cliquewise.solvers.base import Arrays
from cliquewise.solvers.sampling import Order


@dataclass
class ShardWalk(Order):
    """Visiting order on disk: shuffled chunks, then shuffled examples of the chunks in memory."""

    cuts: Ints = field(default_factory=lambda: np.zeros(1, dtype=np.int64))
    parts: int = 1
    chunks: Ints = field(default_factory=lambda: np.empty(0, dtype=np.int64))  # that are in memory
    left: list[Ints] = field(default_factory=list)  # parts of this epoch that are still to come

    def next(
        self,
        n: int,
        max_step_examples: int,
        rng: np.random.Generator,
        sampling: str = "permuted",
        uniform_share: float = 0.2,
        gaps: Floats | None = None,
    ) -> Ints:
        """Return as many visits to the next part as it has examples, or fewer if gaps are small."""
        if not self.left:
            chunks = np.arange(len(self.cuts) - 1)
            if sampling != "cyclic":
                chunks = rng.permutation(chunks)
            self.left = np.array_split(chunks, self.parts)[::-1]
        self.chunks = self.left.pop()
        ranges = zip(self.cuts[self.chunks].tolist(), self.cuts[self.chunks + 1].tolist())
        examples = np.concatenate([np.arange(a, b) for a, b in ranges])
        is_first, count = self.visits < n, len(examples)
        if sampling == "uniform":
            order = rng.integers(0, count, count)
        elif sampling == "cyclic":
            order = np.arange(count)
        else:
            order = rng.permutation(count)
        if sampling == "gap" and not is_first and gaps is not None:
            # At most once each: the stored gap of an example is only updated by its next visit,
            # so with replacement a few examples would take half of the visits.
            mean = float(gaps.mean())
            share = uniform_share + (1 - uniform_share) * gaps[examples] / mean if mean else 1.0
            order = order[(rng.random(count) < share)[order]]
        self.visits += len(order)
        return order

    def ends_epoch(self, n: int, count: int) -> bool:
        """Whether all parts were visited."""
        return not self.left

    is_due = ends_epoch


class ShardedDuals:
    """Dual distributions of all sequences in files, and their weights in memory."""

    samples_by_gap: ClassVar[bool] = False

    def __init__(self, problem: ShardedChainProblem, settings: DualSettings):
        self.problem, self.start, self.gamma = problem, settings.start, settings.gamma
        self.w = problem.form.zeros()
        self.store = DualStore(problem)
        self.seen: list[Totals] = []  # of the parts visited in this epoch, or of all
        self.ready = problem.resume and self.store.found
        self.walk = ShardWalk(cuts=problem.chunks_at, parts=len(problem))

    def order(self) -> Order:
        """Return the order of visits of a run."""
        return self.walk

    @classmethod
    def memory(cls, problem: ShardedChainProblem, settings: DualSettings) -> float:
        """Return the bytes of the largest part with its features, and of some weight vectors."""
        return 3.0 * problem.part_bytes + 8.0 * 4 * problem.form.size

    @property
    def gaps(self) -> Floats:
        """The gap of each example when it was last visited."""
        return self.store.gaps()

    def _open(self, part: int, w: Floats) -> ChainDuals:
        problem = self.problem.open(part)
        return ChainDuals.over(problem, self.store.part(part), w, self.gamma)

    # ---- warm starts and checkpoints

    def continue_from(self, warm: Self) -> None:
        """Use the distributions on disk."""
        if warm.store.folder != self.store.folder or not self.store.found:
            raise DataError("a warm start needs the same folder of shards")
        self.ready = True
        if self.problem.loss == "hinge":
            self.gamma = warm.gamma

    def pack(self) -> Arrays:
        return {"gamma": np.array([self.gamma])}

    def unpack(self, arrays: Arrays) -> None:
        self.infer()
        if self.problem.loss == "hinge":
            self.gamma = number_of(arrays, "gamma")

    def infer(self) -> None:
        """Compute marginals from the scores; an interrupted visit may leave inconsistent ones."""
        for part in range(len(self.problem)):
            self._open(part, self.w).infer()
        self.ready = True

    def _begin(self) -> None:
        """Set the distributions close to the truth, unless there are some on disk."""
        if self.ready:
            self.infer()
            return
        self.store.begin()
        for part in range(len(self.problem)):
            self._open(part, self.w).begin(self.start)
        self.ready = True

    # ---- steps

    def refresh(self) -> None:
        if not self.seen:
            self._begin()
        self.seen, self.w[:] = [], 0.0
        for part in range(len(self.problem)):
            duals = self._open(part, self.problem.form.zeros())
            duals.refresh()
            self.w += duals.w
            self.seen.append(duals.totals())

    def visit(self, order: Ints, uniforms: Floats, step: float) -> int:
        ranges, problem = self.problem.ranges(self.walk.chunks), self.problem
        if len(self.walk.left) == len(problem) - 1:
            self.seen = []
        duals = ChainDuals.over(
            problem.gather(self.walk.chunks), self.store.read(ranges), self.w, self.gamma
        )
        calls = duals.visit(order, uniforms, step)
        self.store.write(ranges, duals.arrays)
        self.seen.append(duals.totals())
        return calls

    def _total(self) -> Totals:
        return Totals(*(float(x) for x in np.sum(self.seen, axis=0)))

    def gap(self) -> float:
        return self.gamma * self._total().gaps / self.problem.n_examples

    def dual(self) -> tuple[float, float]:
        problem, total, n = self.problem, self._total(), max(self.problem.n_examples, 1)
        penalty = problem.penalty.conjugate(self.w, self.gamma)
        if problem.loss == "log":
            return total.entropy / n - penalty, 0.0
        return total.cost / n - penalty, total.entropy / n

    def watch(self, dual: float) -> None:
        pass  # one thread: the dual value does not decrease

    def bound(self) -> Bound:
        problem, n = self.problem, max(self.problem.n_examples, 1)
        entropy = rounding_error = wrong = cost = deepest = 0.0
        more = np.zeros(len(problem.features.deep))
        for part in range(len(problem)):
            duals = self._open(part, self.w)
            own, depths = duals.problem, duals._depths()
            total = duals.totals(depths)
            entropy, rounding_error = entropy + total.entropy, rounding_error + total.rounding_error
            wrong, cost = wrong + total.wrong, cost + total.cost
            deepest = max(deepest, float(depths.max(initial=0.0)))
            if np.any(depths > own.sequence_depths):
                more += np.maximum(own.feature_sizes(depths).deep - own.features.deep, 0.0)
        linear, rounding_error = entropy / n, rounding_error / n
        if problem.loss != "log":
            depth = problem.cache.n_tokens + deepest
            linear, rounding_error = cost / n, UNIT * depth * cost / n
        # Transitions are added up within each sequence first, and the sums of parts at the end.
        additions = problem.features.counts + len(problem)
        additions[problem.model.n_attributes] = n + 2.0 * problem.longest + len(problem)
        weight_error_scale = problem.weight_error_scale_for(wrong, additions) + problem.C * more
        return problem.bound(linear, self.gamma * self.w, rounding_error, weight_error_scale)

    def primal(self, w: Floats) -> tuple[float, bool]:
        problem, w = self.problem, self.problem.penalty.shrunk(w)
        return problem.upper_bound(w, problem.penalized(w, problem.total_loss(w)))

    def unpacked(self, w: Floats) -> Floats:
        return self.problem.form.unpack(self.problem.penalty.shrunk(w))
