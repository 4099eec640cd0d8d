"""BCFW on chains: combinations of labelings, stored as segments of wrong labels.

See ``_kernels/chain/bcfw.py``.
"""

from __future__ import annotations

from typing import Any, ClassVar, Self

import numpy as np

from cliquewise.errors import DataError
from cliquewise.models.sparse_transitions import links_of_pairs, may_be_sparse
from cliquewise.problems.chain import WORK, ChainProblem
from cliquewise.problems.rounding import SUM, UNIT, Bound
from cliquewise.ragged import Floats, Ints, stretches
from cliquewise.solvers.array_checks import MAX_COUNT, check, checked, owners
from cliquewise.solvers.backends.base import CombinationSettings, Defaults
from cliquewise.solvers.base import Arrays

#: Arrays of the pool with one entry per segment.
PER_SEGMENT = ("next", "start", "begin", "length", "alpha", "norm", "idle")


class ChainSegments:
    """Convex combinations of labelings, one per sequence, and their weights."""

    samples_by_gap: ClassVar[bool] = True
    defaults: ClassVar[Defaults] = Defaults(
        cached_passes=10, inner_rounds=2, max_outputs=200, average=True
    )

    def __init__(self, problem: ChainProblem, settings: CombinationSettings):
        self.problem, self.form, self.settings = problem, problem.form, settings
        self.leaves = _leaves(problem.n_examples) if settings.by_gap else 0
        self.pool = self._empty(0, 0)
        self.w, self.direction = self.form.zeros(), self.form.zeros()
        self.links: Any = None  # label pairs that have a transition weight, if they are few
        self.wrong = self.cost = 0.0  # weighted expected number of wrong labels, and their cost

    @classmethod
    def memory(cls, problem: ChainProblem, settings: CombinationSettings) -> float:
        """Return the bytes of five weight vectors, and of eight segments per token, twice."""
        data = problem.data
        segments = np.minimum(8 * data.lengths + 4, settings.max_outputs).sum()
        return float(40.0 * problem.form.size + 140.0 * segments + 100.0 * (len(data) + 1))

    def _empty(self, n_segments: int, n_labels: int) -> Any:
        from cliquewise._kernels.chain.segments import Segments

        whole = [np.zeros(n_segments, dtype=np.int64) for _ in range(5)]
        return Segments(
            np.full(self.problem.n_examples, -1, dtype=np.int64),
            whole[0], whole[1], whole[2], whole[3], np.zeros(n_segments), np.zeros(n_segments),
            whole[4], np.zeros(n_labels, dtype=np.int32), np.zeros(2, dtype=np.int64),
            self.problem.data.lengths.astype(np.float64), np.zeros(2 * self.leaves),
        )  # fmt: skip

    @property
    def gaps(self) -> Floats:
        """The gap of each example when it was last visited."""
        return self.pool.gaps  # type: ignore[no-any-return]

    @property
    def unproven(self) -> float:
        """Zero: the oracle is exact."""
        return 0.0

    # ---- warm starts and checkpoints

    def continue_from(self, warm: Self) -> None:
        old, new = warm.form.chains, self.form.chains
        n, tokens = len(old.offsets), len(old.labels)
        same = (
            np.array_equal(old.offsets, new.offsets[:n])
            and np.array_equal(old.labels, new.labels[:tokens])
            and warm.pool.labels.max(initial=0) < self.problem.model.n_labels
        )
        if not same:
            raise DataError("a warm start needs the same labels and at least the same examples")
        possible = np.array_equal(old.allowed, new.allowed[:tokens]) and np.array_equal(
            old.edge_allowed, new.edge_allowed
        )
        if possible:
            self.unpack(warm.pack(), first=n - 1)

    def pack(self) -> Arrays:
        pool = self.pool
        arrays = {name: getattr(pool, name)[: pool.used[0]] for name in PER_SEGMENT}
        return {
            **arrays, "head": pool.head, "labels": pool.labels[: pool.used[1]],
            "gaps": pool.gaps, "offsets": self.form.chains.offsets,
        }  # fmt: skip

    def unpack(self, arrays: Arrays, first: int | None = None) -> None:
        """Take the variables of the ``first`` examples, or of all."""
        data = self.problem.data
        n = len(data) if first is None else first
        offsets = checked(arrays, "offsets", (n + 1,), np.int64)
        check(np.array_equal(offsets, data.offsets[: n + 1]), "its arrays have other shapes")
        size = len(arrays.get("alpha", ()))
        most = self.problem.model.n_labels - 1
        labels = checked(arrays, "labels", (None,), np.int32, 0, most)
        pool = self._empty(size, len(labels))
        for name in PER_SEGMENT:
            target = getattr(pool, name)
            low = -1 if name == "next" else 0
            target[:] = checked(arrays, name, (size,), target.dtype, low, MAX_COUNT)
        pool.labels[:], pool.used[:] = labels, (size, len(labels))
        pool.head[:n] = checked(arrays, "head", (n,), np.int64)
        pool.gaps[:n] = checked(arrays, "gaps", (n,), low=0.0)
        self._check_segments(pool)
        self.pool = pool

    def _check_segments(self, pool: Any) -> None:
        """Raise an error for segments outside their sequences, or with labels impossible there."""
        chains, owner = self.form.chains, owners(pool.head, pool.next)
        kept = np.flatnonzero(owner >= 0)
        counts = np.bincount(owner[kept], minlength=1)
        check(counts <= self.settings.max_outputs, "it has more segments than max_outputs")
        begin, length = pool.begin[kept], pool.length[kept]
        first, last = chains.offsets[owner[kept]], chains.offsets[owner[kept] + 1]
        check((length >= 1) & (begin + length <= last - first), "its segments lie outside")
        check(pool.start[kept] + length <= len(pool.labels), "its segments lie outside")
        at, token = stretches(pool.start[kept], length), stretches(first + begin, length)
        labels, truth = pool.labels[at], chains.labels
        check(labels != truth[token], "its segments are of other labels")
        if len(chains.allowed):
            check(chains.allowed[token, labels], "its segments are not allowed")
        if len(chains.edge_allowed):
            left, right = self._pairs(pool, kept, owner[kept])
            check(chains.edge_allowed[left, right], "its segments are not allowed")

    def _pairs(self, pool: Any, kept: Ints, owner: Ints) -> tuple[Ints, Ints]:
        """Return the adjacent labels of the segments ``kept``, with their true neighbors."""
        chains = self.form.chains
        begin, length, truth = pool.begin[kept], pool.length[kept], chains.labels
        first, last = chains.offsets[owner], chains.offsets[owner + 1]
        labels, ends = pool.labels[stretches(pool.start[kept], length)], np.cumsum(length)
        before, after = first + begin - 1, first + begin + length
        inner = np.setdiff1d(np.arange(len(labels)), ends - length)
        left, right = before >= first, after < last
        return (
            np.concatenate([labels[inner - 1], truth[before[left]], labels[(ends - 1)[right]]]),
            np.concatenate([labels[inner], labels[(ends - length)[left]], truth[after[right]]]),
        )

    def _link(self) -> None:
        """List the label pairs of the truth and of the segments."""
        if not may_be_sparse(self.problem.model):
            return
        pool, at = self.pool, self.problem.data.followers
        owner = owners(pool.head, pool.next[: pool.used[0]])
        kept = np.flatnonzero(owner >= 0)
        left, right = self._pairs(pool, kept, owner[kept])
        truth = self.form.chains.labels
        self.links = links_of_pairs(
            np.concatenate([truth[at - 1], left]), np.concatenate([truth[at], right]),
            self.problem.model.n_labels, self.w,
        )  # fmt: skip

    @property
    def max_step_examples(self) -> int:
        """Number of sequences whose visits take about two seconds."""
        if self.links is None:
            return self.problem.max_step_examples
        chains, n = self.form.chains, self.problem.n_examples
        per_label = 8 * len(chains.labels) + len(chains.indices) // 4
        work = self.problem.model.n_labels * per_label + n * int(self.links.count.sum())
        return -(-n // (1 + work // WORK))

    # ---- steps

    def refresh(self) -> float:
        from cliquewise._kernels.chain.segments import weights_of_segments
        from cliquewise._kernels.common.sum_tree import rebuild_tree

        if len(self.pool.tree):
            rebuild_tree(self.pool.tree, self.pool.gaps)
        self.wrong, self.cost = weights_of_segments(
            self.form.chains, self.pool, self.problem.C, self.w
        )
        self._link()
        return self.cost / max(self.problem.n_examples, 1)

    def bound(self) -> Bound:
        problem, pool, n = self.problem, self.pool, max(self.problem.n_examples, 1)
        used = int(pool.used[0])
        # A segment is added with its own labels and the true ones; it has one more edge than
        # tokens.
        total = 2.0 * float(pool.length[:used].sum() + used)
        rounding_error = UNIT * (total + SUM) * self.cost / n
        weight_error_scale = problem.weight_error_scale_for(
            self.wrong, problem.additions(2.0 * self.settings.max_outputs, total)
        )
        return problem.bound(self.cost / n, self.w, rounding_error, weight_error_scale)

    def visit(self, order: Ints, uniforms: Floats) -> tuple[int, float]:
        return self._epoch(order, uniforms, True)

    def cached_pass(self, order: Ints) -> float:
        return self._epoch(order, np.empty(len(order)), False)[1]

    def _epoch(self, order: Ints, uniforms: Floats, exact: bool) -> tuple[int, float]:
        """Make visits in the given order; enlarge the pool whenever it is full."""
        from cliquewise._kernels.chain.bcfw import epoch

        calls, rise = 0, 0.0
        while len(order):
            done, asked, gained = epoch(
                self.form.chains, self.pool, self.links, self.w, self.direction, self.problem.C,
                order, uniforms, exact, self.settings.segments, self.settings.max_outputs,
                self.settings.inner_rounds,
            )  # fmt: skip
            calls, rise = calls + asked, rise + gained
            order, uniforms = order[done:], uniforms[done:]
            if self.links is not None and self.links.full[0]:
                self._link()
            elif len(order):
                self.pool = _grown(self.pool, int(self.problem.data.lengths.max()))
        return calls, rise

    def end_epoch(self) -> bool:
        return False

    def primal(self, w: Floats) -> tuple[float, bool]:
        return self.problem.upper_bound(w, self.problem.packed_primal(w))

    def unpacked(self, w: Floats) -> Floats:
        return self.form.unpack(w)


def _leaves(n: int) -> int:
    return 1 << max(n - 1, 1).bit_length()


def _grown(pool: Any, longest: int) -> Any:
    """Return the same segments in a pool that is half as large again."""

    def longer(array: Any, more: int) -> Any:
        return np.concatenate([array, np.zeros(more, dtype=array.dtype)])

    more = len(pool.next) // 2 + len(pool.head) + 2 * longest
    new = {name: longer(getattr(pool, name), more) for name in PER_SEGMENT}
    labels = longer(pool.labels, len(pool.labels) // 2 + 4 * len(pool.head) + 16 * longest)
    return pool._replace(**new, labels=labels)
