"""SDCA's blocks on chains that lie on disk: the dual distributions lie there, too.

One part of the examples is in memory at a time. Parts are drawn anew in every pass, of chunks that
lie together: with the same examples together in every pass, what all share (an intercept,
transitions) is found slowly. On generated sentences (``benchmarks/shards.py``, 15 parts) the gap
falls ten times in a pass with parts drawn anew, as with examples in any order, and twice with
parts that stay. What a certificate adds up is added up part by part, so that it is as exact as
ever.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import ClassVar

import numpy as np

from cliquewise.errors import DataError
from cliquewise.problems.rounding import UNIT, Bound
from cliquewise.problems.shards import ShardedChainProblem
from cliquewise.ragged import Floats, Ints
from cliquewise.solvers.array_checks import number_of
from cliquewise.solvers.backends.chain.dual_store import DualStore
from cliquewise.solvers.backends.chain.duals import ChainDuals, Totals
from cliquewise.solvers.base import Arrays
from cliquewise.solvers.sampling import Order


@dataclass
class ShardWalk(Order):
    """Which chunks come next, and which of their examples, numbered as they are read."""

    cuts: Ints = field(default_factory=lambda: np.zeros(1, dtype=np.int64))
    parts: int = 1
    chunks: Ints = field(default_factory=lambda: np.empty(0, dtype=np.int64))  # under way
    left: list[Ints] = field(default_factory=list)  # still to come in this pass

    def next(
        self,
        n: int,
        max_step_examples: int,
        rng: np.random.Generator,
        sampling: str = "permuted",
        uniform_share: float = 0.2,
        gaps: Floats | None = None,
    ) -> Ints:
        """As many visits to the next part as it has examples, or fewer where gaps are small."""
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
            # At most once: the gap of an example is small right after its visit, which nothing
            # knows before the next one. Drawn again and again, few would take half of the visits.
            mean = float(gaps.mean())
            share = uniform_share + (1 - uniform_share) * gaps[examples] / mean if mean else 1.0
            order = order[(rng.random(count) < share)[order]]
        self.visits += len(order)
        return order

    def ends_pass(self, n: int, count: int) -> bool:
        """Whether all parts had their turn."""
        return not self.left

    is_due = ends_pass


class ShardedDuals:
    """Dual distributions of all sequences in files, and the weights they give."""

    draws: ClassVar[bool] = False
    resume_paths: ClassVar[tuple[str, ...]] = ()

    def __init__(self, problem: ShardedChainProblem, start: float, gamma: float, by_gap: bool):
        self.problem, self.start, self.gamma = problem, start, gamma
        self.w = problem.form.zeros()
        self.store = DualStore(problem)
        self.seen: list[Totals] = []  # of the parts of the pass under way, or of all
        self.ready = problem.resume and self.store.found
        self.walk = ShardWalk(cuts=problem.chunks_at, parts=len(problem))

    def order(self) -> Order:
        """The order of visits of a run."""
        return self.walk

    @staticmethod
    def memory(problem: ShardedChainProblem) -> float:
        """The largest part (its features are completed), and some weight vectors."""
        return 3.0 * problem.part_bytes + 8.0 * 4 * problem.form.size

    @property
    def gaps(self) -> Floats:
        """What each example's gap was when it was last visited."""
        return self.store.gaps()

    def _open(self, part: int, w: Floats) -> ChainDuals:
        problem = self.problem.open(part)
        return ChainDuals.over(problem, self.store.part(part), w, self.gamma)

    # ---- from elsewhere

    def continue_from(self, warm: ShardedDuals) -> None:
        """Those on disk are taken as they are."""
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
        """Marginals from the scores, whatever an interrupted visit left behind."""
        for part in range(len(self.problem)):
            self._open(part, self.w).infer()
        self.ready = True

    def _begin(self) -> None:
        """Distributions close to the truth."""
        if self.ready:
            self.infer()
            return
        self.store.begin()
        for part in range(len(self.problem)):
            self._open(part, self.w).begin(self.start)
        self.ready = True

    # ---- the algorithm's questions

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
        pass  # one thread, whose steps never fall

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
        # Transitions are added up within each sequence first; the sums of parts at the end.
        additions = problem.features.counts + len(problem)
        additions[problem.model.n_attributes] = n + 2.0 * problem.longest + len(problem)
        weight_error_scale = problem.weight_error_scale_for(wrong, additions) + problem.C * more
        return problem.bound(linear, self.gamma * self.w, rounding_error, weight_error_scale)

    def primal(self, w: Floats) -> tuple[float, bool]:
        problem, w = self.problem, self.problem.penalty.shrunk(w)
        return problem.penalized(w, problem.total_loss(w)), True

    def unpacked(self, w: Floats) -> Floats:
        return self.problem.form.unpack(self.problem.penalty.shrunk(w))
