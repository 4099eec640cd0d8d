"""BCFW: block-coordinate Frank-Wolfe for structural support vector machines, with a duality gap.

Lacoste-Julien et al. 2013, with the gap sampling and the pairwise and away steps of Osokin
et al. 2016 and the cached passes of Shah et al. 2015. See ``_kernels/chain/bcfw.py``.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, ClassVar

import numpy as np

from cliquewise.certificate import Certificate
from cliquewise.errors import DataError
from cliquewise.graph.factor_graph import Floats
from cliquewise.graph.structure import Ints
from cliquewise.problems.chain import ChainProblem
from cliquewise.solvers.base import Info, Solver, register

#: Arrays of the pool with one entry per segment.
PER_SEGMENT = ("next", "start", "begin", "length", "alpha", "norm", "idle")


@dataclass
class Combinations:
    """Convex combinations of labelings, one per example, and the weights they give."""

    pool: Any  # the segments, the kernels' named tuple
    chains: Any  # the data it is about
    w: Floats  # packed, as all weight vectors here
    direction: Floats  # scratch of the kernels, zero between calls
    average: Floats  # of the weights after every step; empty if not wanted
    steps: int
    visits: int
    dual: float = 0.0
    averaged: bool = False  # whether the average is the better one of the two
    order: Ints = field(default_factory=lambda: np.empty(0, dtype=np.int64))


@register
@dataclass(frozen=True)
class BCFW(Solver):
    """Block-coordinate Frank-Wolfe.

    Parameters
    ----------
    step_rule : {"segments", "fw"}, default="segments"
        Which way an example's combination of labelings moves: single runs of wrong labels up,
        down (away) or against each other (pairwise), or all towards the best labeling at once.
        ``fw`` is the algorithm of 2013, which needs many more passes for a small gap.
    sampling : {"permuted", "gap", "uniform", "cyclic"}, default="permuted"
        Which example comes next: in reshuffled passes; with probability ``1 - uniform_share`` in
        proportion to its last seen gap (after one pass over all); at random; or in order.
        Gaps say less here than elsewhere, since cached passes lower them in between.
    uniform_share : float, default=0.2
        Share of uniform draws with ``sampling="gap"``.
    cached_passes : int, default=10
        After each pass at most so many passes that ask for no new labeling and improve the
        weights of those at hand; they end as soon as they bring less than a tenth of it.
    inner_rounds : int, default=2
        Rounds over an example's segments per visit, at most.
    max_segments : int, default=200
        Segments kept per example, at most; beyond it the lightest is given up.
    average : bool, default=True
        Keep a weighted average of the weights, too, and return it where its objective is lower.

    Examples
    --------
    >>> from cliquewise.data.dataset import Dataset
    >>> from cliquewise.models.chain import ChainModel
    >>> from cliquewise.problems.chain import ChainProblem
    >>> from cliquewise.solvers.run import run
    >>> data = Dataset([0, 2, 3], [0, 1, 3, 4], [0, 0, 1, 1], None, 2, labels=[0, 1, 1])
    >>> problem = ChainProblem(ChainModel.build(data, 2), data, loss="hinge")
    >>> bool(run(problem, BCFW(), tol=1e-6, random_state=0).converged)
    True
    """

    name: ClassVar[str] = "bcfw"
    losses: ClassVar[frozenset[str]] = frozenset({"hinge"})
    step_rule: str = "segments"
    sampling: str = "permuted"
    uniform_share: float = 0.2
    cached_passes: int = 10
    inner_rounds: int = 2
    max_segments: int = 200
    average: bool = True

    def __post_init__(self) -> None:
        if self.step_rule not in ("segments", "fw"):
            raise DataError(f"step_rule is segments or fw, not {self.step_rule!r}")
        if self.sampling not in ("gap", "permuted", "uniform", "cyclic"):
            raise DataError(f"sampling is gap, permuted, uniform or cyclic, not {self.sampling!r}")
        if not 0 <= self.uniform_share <= 1:
            raise DataError(f"uniform_share = {self.uniform_share}; it must be in [0, 1]")
        for name, least in (("cached_passes", 0), ("inner_rounds", 1), ("max_segments", 1)):
            if getattr(self, name) < least:
                raise DataError(f"{name} = {getattr(self, name)}; it must be at least {least}")

    def memory(self, problem: Any) -> float:
        """Three weight vectors, and about one wrong segment of five labels per token."""
        tokens, n = problem.data.n_tokens, problem.n_examples
        return float(8.0 * 3 * problem.form.size + 76.0 * tokens + 100.0 * (n + 1))

    # ---- state

    def _empty(self, problem: ChainProblem, n_segments: int, n_labels: int) -> Any:
        from cliquewise._kernels.chain.segments import Segments

        n = problem.n_examples
        leaves = 1 << max(n - 1, 1).bit_length() if self.sampling == "gap" else 0
        whole = [np.zeros(n_segments, dtype=np.int64) for _ in range(5)]
        return Segments(
            np.full(n, -1, dtype=np.int64), whole[0], whole[1], whole[2], whole[3],
            np.zeros(n_segments), np.zeros(n_segments), whole[4],
            np.zeros(n_labels, dtype=np.int32), np.zeros(2, dtype=np.int64),
            problem.data.lengths.astype(np.float64), np.zeros(2 * leaves),
        )  # fmt: skip

    def init(self, problem: ChainProblem, warm: Combinations | None = None) -> Combinations:
        """The truth alone, or the combinations of ``warm`` for the examples it has."""
        if not isinstance(warm, Combinations) or not _continues(warm, problem):
            return self._with_weights(problem, self._empty(problem, 0, 0), 0)
        segments, labels = warm.pool.used.tolist()
        pool = self._empty(problem, segments, labels)
        known = len(warm.pool.head)
        pool.head[:known], pool.gaps[:known] = warm.pool.head, warm.pool.gaps
        for name in PER_SEGMENT:
            getattr(pool, name)[:] = getattr(warm.pool, name)[:segments]
        pool.labels[:], pool.used[:] = warm.pool.labels[:labels], warm.pool.used
        return self._with_weights(problem, pool, warm.visits)

    def _with_weights(self, problem: ChainProblem, pool: Any, visits: int) -> Combinations:
        from cliquewise._kernels.common.sum_tree import rebuild_tree

        if len(pool.tree):
            rebuild_tree(pool.tree, pool.gaps)
        form = problem.form
        average = form.zeros() if self.average else np.empty(0)
        state = Combinations(pool, form.chains, form.zeros(), form.zeros(), average, 0, visits)
        self._refresh(problem, state)
        return state

    def _refresh(self, problem: ChainProblem, state: Combinations) -> None:
        """The weights and the dual value from the labelings afresh."""
        from cliquewise._kernels.chain.segments import weights_of_segments

        total = weights_of_segments(state.chains, state.pool, problem.C, state.w)
        norm = float(state.w @ state.w)
        state.dual = total / max(problem.n_examples, 1) - 0.5 * problem.lam * norm

    # ---- one step

    def _order(self, n: int, state: Combinations, count: int, rng: np.random.Generator) -> Ints:
        """The examples of the next visits; -1 for one to be drawn by its gap."""
        if self.sampling == "uniform":
            return rng.integers(0, n, count)
        if self.sampling == "cyclic":
            return (state.visits + np.arange(count)) % n
        if self.sampling == "gap" and state.visits >= n:
            order = rng.integers(0, n, count)
            order[rng.random(count) >= self.uniform_share] = -1
            return order
        at = state.visits % n
        if at == 0 or len(state.order) != n:
            state.order = rng.permutation(n)
        return state.order[at : at + count]

    def _visit(
        self, problem: ChainProblem, state: Combinations, order: Ints, uniforms: Floats,
        exact: bool,
    ) -> tuple[int, float]:  # fmt: skip
        """Visits in the given order, with a larger pool whenever it is full; (calls, rise)."""
        from cliquewise._kernels.chain import bcfw as chain_max_margin

        calls, rise = 0, 0.0
        while len(order):
            done, asked, gained = chain_max_margin.epoch(
                state.chains, state.pool, state.w, state.direction, problem.C, order, uniforms,
                exact, self.step_rule == "segments", self.max_segments, self.inner_rounds,
            )  # fmt: skip
            calls, rise = calls + asked, rise + gained
            order, uniforms = order[done:], uniforms[done:]
            if len(order):
                state.pool = _grown(state.pool, int(problem.data.lengths.max()))
        return calls, rise

    def step(
        self, problem: ChainProblem, state: Combinations, rng: np.random.Generator
    ) -> tuple[Combinations, Info]:
        """Visit a pass of examples, or as many as keep one call below about two seconds."""
        n = problem.n_examples
        if n == 0:
            return state, Info(1.0, 0, 0.0)
        work = problem.data.n_tokens * problem.model.n_labels**2
        pieces = min(n, 1 + int(work // 400_000_000))
        count = min(-(-n // pieces), n - state.visits % n)
        order = self._order(n, state, count, rng)
        calls, rise = self._visit(problem, state, order, rng.random(count), True)
        state.dual += rise / n
        for _ in range(self.cached_passes):
            _, more = self._visit(problem, state, rng.permutation(n), np.empty(n), False)
            state.dual += more / n
            if more < 0.1 * rise:
                break
        state.visits += count
        state.steps += 1
        state.averaged = False
        if self.average:
            state.average += 2.0 / (state.steps + 1) * (state.w - state.average)
        estimate = np.nan
        if state.visits >= n:
            gap = float(state.pool.gaps.sum()) / n
            estimate = gap / max(abs(state.dual + gap), 1e-12)
        return state, Info(count / n, calls, estimate)

    # ---- what it proves

    def certify(self, problem: ChainProblem, state: Combinations) -> Certificate:
        """Exact primal and dual values in float64, of the better of weights and average."""
        self._refresh(problem, state)
        primal = problem.packed_primal(state.w)
        state.averaged = False
        if self.average and state.steps > 1:
            other = problem.packed_primal(state.average)
            state.averaged = other < primal
            primal = min(primal, other)
        return Certificate(primal, state.dual, "exact")

    def weights(self, problem: ChainProblem, state: Combinations) -> Floats:
        """Weights of the dual point, or their average if that was certified."""
        return problem.form.unpack(state.average if state.averaged else state.w)

    def pack(self, state: Combinations) -> dict[str, np.ndarray[Any, Any]]:
        """The labelings and their weights, and the average."""
        pool = state.pool
        arrays = {name: getattr(pool, name)[: pool.used[0]] for name in PER_SEGMENT}
        return {
            **arrays, "head": pool.head, "labels": pool.labels[: pool.used[1]],
            "gaps": pool.gaps, "offsets": state.chains.offsets, "average": state.average,
            "counts": np.array([state.steps, state.visits]),
        }  # fmt: skip

    def unpack(
        self, problem: ChainProblem, arrays: dict[str, np.ndarray[Any, Any]]
    ) -> Combinations:
        """Back from :meth:`pack`."""
        if not np.array_equal(arrays["offsets"], problem.data.offsets) or (
            arrays["labels"].max(initial=0) >= problem.model.n_labels
        ):
            raise DataError("the checkpoint is of other data: its arrays have other shapes")
        pool = self._empty(problem, len(arrays["alpha"]), len(arrays["labels"]))
        for name in (*PER_SEGMENT, "head", "labels", "gaps"):
            getattr(pool, name)[:] = arrays[name]
        pool.used[:] = len(arrays["alpha"]), len(arrays["labels"])
        steps, visits = arrays["counts"].tolist()
        state = self._with_weights(problem, pool, visits)
        if self.average and len(arrays["average"]) == len(state.average):
            state.average[:], state.steps = arrays["average"], steps
        return state


def _grown(pool: Any, longest: int) -> Any:
    """The same segments in a pool with room for more (half as many again)."""

    def longer(array: Any, more: int) -> Any:
        return np.concatenate([array, np.zeros(more, dtype=array.dtype)])

    more = len(pool.next) // 2 + len(pool.head) + 2 * longest
    new = {name: longer(getattr(pool, name), more) for name in PER_SEGMENT}
    labels = longer(pool.labels, len(pool.labels) // 2 + 4 * len(pool.head) + 16 * longest)
    return pool._replace(**new, labels=labels)


def _continues(warm: Combinations, problem: ChainProblem) -> bool:
    """Whether the old labelings are those of the first examples, and all still possible."""
    old, new = warm.chains, problem.chains
    n, tokens = len(old.offsets), len(old.labels)
    same = (
        np.array_equal(old.offsets, new.offsets[:n])
        and np.array_equal(old.labels, new.labels[:tokens])
        and warm.pool.labels.max(initial=0) < problem.model.n_labels
    )
    if not same:
        raise DataError("a warm start needs the same labels and at least the same examples")
    return bool(
        np.array_equal(old.allowed, new.allowed[:tokens])
        and np.array_equal(old.edge_allowed, new.edge_allowed)
    )
