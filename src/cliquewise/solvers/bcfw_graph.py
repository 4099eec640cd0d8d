"""BCFW on graphs: convex combinations of the labelings that a MAP method finds.

Block-coordinate Frank-Wolfe (Lacoste-Julien et al. 2013) with the pairwise steps and the cached
passes of Osokin et al. 2016: a visit asks for one labeling, then all labelings at hand exchange
weight until none of them gains. See ``_kernels/cliques/labelings.py``.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, ClassVar

import numpy as np

from cliquewise.certificate import Certificate
from cliquewise.errors import DataError
from cliquewise.graph.factor_graph import Floats
from cliquewise.graph.structure import Ints
from cliquewise.problems.graph import GraphProblem
from cliquewise.solvers._max_margin import (
    MaxMargin,
    augmented_scores,
    most_states,
    ranges_of,
)
from cliquewise.solvers.base import Info, register

#: Labelings per example that there is room for at the start.
ROOM = 8
#: Examples visited in one step, at most.
PIECE = 256


@dataclass
class GraphCombinations:
    """Convex combinations of labelings, one per example, and the weights they give."""

    pool: Any  # the kernels' named tuple
    w: Floats
    scratch: Floats  # of the kernels, zero between calls
    scores: Floats
    gaps: Floats
    dual: float = 0.0
    visits: int = 0
    fresh: int = 0  # labelings found in the pass under way
    order: Ints = field(default_factory=lambda: np.empty(0, dtype=np.int64))


@register
@dataclass(frozen=True)
class GraphBCFW(MaxMargin):
    """Block-coordinate Frank-Wolfe through MAP calls; users call it ``bcfw``.

    Parameters
    ----------
    map_method : str, default="auto"
        Any method of :meth:`FactorGraph.map`. Only exact ones give a gap that goes to zero.
    map_options : mapping, optional
        Passed to the method.
    sampling : {"permuted", "gap", "uniform"}, default="permuted"
        Which example comes next: in reshuffled passes; with probability ``1 - uniform_share`` in
        proportion to its last seen gap (after one pass over all); or at random.
    uniform_share : float, default=0.2
        Share of uniform draws with ``sampling="gap"``.
    cached_passes : int, default=10
        After each pass at most so many that only re-weigh the labelings at hand; they end as
        soon as one brings less than a tenth of the pass.
    max_labelings : int, default=100
        Kept per example, at most; beyond it the lightest is given up.

    Examples
    --------
    >>> from cliquewise.data.graphs import GraphDataset
    >>> from cliquewise.models.pairwise import PairwiseModel
    >>> from cliquewise.solvers.run import run
    >>> data = GraphDataset.from_examples([([[0.5], [-1.0]], [(0, 1)])], [[0, 1]])
    >>> problem = GraphProblem(PairwiseModel([2], 1), data, loss="hinge")
    >>> bool(run(problem, GraphBCFW(), tol=1e-6, random_state=0).converged)
    True
    """

    name: ClassVar[str] = "bcfw_graph"
    sampling: str = "permuted"
    uniform_share: float = 0.2
    cached_passes: int = 10
    max_labelings: int = 100

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.sampling not in ("permuted", "gap", "uniform"):
            raise DataError(f"sampling is permuted, gap or uniform, not {self.sampling!r}")
        if not 0 <= self.uniform_share <= 1:
            raise DataError(f"uniform_share = {self.uniform_share}; it must be in [0, 1]")
        for name, least in (("cached_passes", 0), ("max_labelings", 2)):
            if getattr(self, name) < least:
                raise DataError(f"{name} = {getattr(self, name)}; it must be at least {least}")

    def memory(self, problem: GraphProblem) -> float:
        """Weights, labelings and their products, with room for eight labelings."""
        n, room = problem.n_examples, min(ROOM, self.max_labelings)
        labels = 4.0 * problem.data.n_nodes * room
        return labels + 8.0 * (n * (room**2 + 2 * room + 3) + 2 * problem.dimension + n)

    # ---- state

    def init(
        self, problem: GraphProblem, warm: GraphCombinations | None = None
    ) -> GraphCombinations:
        """The truth alone, or the combinations of ``warm``."""
        if isinstance(warm, GraphCombinations):
            pool = warm.pool
            if not _fits(problem, pool.labels, pool.count):
                raise DataError("a warm start needs the same graphs")
            return self._from_labelings(problem, pool.labels, pool.count, pool.alpha, warm.visits)
        labels = np.asarray(problem.data.labels, dtype=np.int32)[:, None]
        n = problem.n_examples
        return self._from_labelings(problem, labels, np.ones(n, dtype=np.int64), np.ones((n, 1)), 0)

    def _from_labelings(
        self, problem: GraphProblem, labels: Any, count: Ints, alpha: Floats, visits: int
    ) -> GraphCombinations:
        """Costs and products are computed again: they are those of this problem."""
        from cliquewise._kernels.cliques.labelings import Labelings, insert

        n, room = problem.n_examples, max(min(ROOM, self.max_labelings), alpha.shape[1])
        pool = Labelings(
            np.zeros((problem.data.n_nodes, room), dtype=np.int32),
            np.zeros(n, dtype=np.int64),
            np.zeros((n, room)),
            np.zeros((n, room)),
            np.zeros((n, room, room)),
        )
        state = GraphCombinations(
            pool, np.zeros(problem.dimension), np.zeros(problem.dimension),
            np.empty(most_states(problem)), np.full(n, np.inf), visits=visits,
        )  # fmt: skip
        g, ranges, starts = problem.cliques, ranges_of(problem), problem.data.node_offsets
        for i in range(n):
            mine = labels[starts[i] : starts[i + 1]].astype(np.int64)
            for a in range(int(count[i])):
                one = np.ascontiguousarray(mine[:, a])
                insert(g, ranges, pool, i, one, state.scratch, state.scores)
                # Set at once: a labeling without weight would make room for the next.
                pool.alpha[i, a] = alpha[i, a]
        self._refresh(problem, state)
        return state

    def _refresh(self, problem: GraphProblem, state: GraphCombinations) -> None:
        """The weights and the dual value from the labelings afresh."""
        from cliquewise._kernels.cliques.labelings import weights_of_labelings

        total = weights_of_labelings(
            problem.cliques, ranges_of(problem), state.pool, problem.C, state.w
        )
        norm = float(state.w @ state.w)
        state.dual = total / max(problem.n_examples, 1) - 0.5 * problem.lam * norm

    # ---- one step

    def _order(
        self, n: int, state: GraphCombinations, count: int, rng: np.random.Generator
    ) -> Ints:
        """The examples of the next visits."""
        if self.sampling == "uniform":
            return rng.integers(0, n, count)
        if self.sampling == "gap" and state.visits >= n:
            order = rng.integers(0, n, count)
            total = np.cumsum(state.gaps)
            if total[-1] > 0:
                drawn = rng.random(count) >= self.uniform_share
                places = rng.random(int(drawn.sum())) * total[-1]
                order[drawn] = np.minimum(np.searchsorted(total, places, "right"), n - 1)
            return order
        at = state.visits % n
        if at == 0 or len(state.order) != n:
            state.order = rng.permutation(n)
        return state.order[at : at + count]

    def step(
        self, problem: GraphProblem, state: GraphCombinations, rng: np.random.Generator
    ) -> tuple[GraphCombinations, Info]:
        """Visit a pass of examples, in pieces if there are many; then re-weigh all labelings."""
        from cliquewise._kernels.cliques.labelings import improve

        n = problem.n_examples
        if n == 0:
            return state, Info(1.0, 0, 0.0)
        count = min(PIECE, n - state.visits % n)
        if state.visits % n == 0:
            state.fresh = 0
        rise = sum(self._visit(problem, state, int(i)) for i in self._order(n, state, count, rng))
        state.visits += count
        g, ranges, first = problem.cliques, ranges_of(problem), rise
        for _ in range(self.cached_passes if state.visits % n == 0 else 0):
            more = improve(
                g, ranges, state.pool, state.w, problem.C, rng.permutation(n), ROOM, state.scores
            )
            rise += more
            if more <= 0.1 * first:
                break
        state.dual += rise / n
        gap = float(state.gaps.sum()) / n
        estimate = gap / max(abs(state.dual + gap), 1e-12) if np.isfinite(gap) else np.nan
        idle = state.fresh == 0 and rise <= 1e-13 * n * max(abs(state.dual), 1e-12)
        finished = idle and self.sampling == "permuted" and state.visits % n == 0
        return state, Info(count / n, count, estimate, None, finished)

    def _visit(self, problem: GraphProblem, state: GraphCombinations, i: int) -> float:
        """One MAP call, then exchanges among the labelings of this example; the rise."""
        from cliquewise._kernels.cliques.labelings import improve, insert, value_in_use

        g, ranges = problem.cliques, ranges_of(problem)
        plain, tables = augmented_scores(problem, state.w, i, state.scores)
        best = self._ask(problem, i, tables)
        state.gaps[i] = max(best.bound - value_in_use(g, ranges, state.pool, i, plain), 0.0)
        labels = np.ascontiguousarray(best.labels, dtype=np.int64)
        found = insert(g, ranges, state.pool, i, labels, state.scratch, state.scores)
        while found < 0:
            self._make_room(problem, state, i)
            found = insert(g, ranges, state.pool, i, labels, state.scratch, state.scores)
        state.fresh += int(found)
        order = np.array([i])
        return float(
            improve(g, ranges, state.pool, state.w, problem.C, order, 10 * ROOM, state.scores)
        )

    def _make_room(self, problem: GraphProblem, state: GraphCombinations, i: int) -> None:
        """Double the room for labelings; at the limit give the lightest of the example up."""
        from cliquewise._kernels.cliques.labelings import add_labeling

        pool, room = state.pool, state.pool.alpha.shape[1]
        more = min(2 * room, self.max_labelings) - room
        if more > 0:
            wide = ((0, 0), (0, more))
            state.pool = pool._replace(
                labels=np.pad(pool.labels, wide), alpha=np.pad(pool.alpha, wide),
                cost=np.pad(pool.cost, wide), gram=np.pad(pool.gram, (*wide, (0, more))),
            )  # fmt: skip
            return
        # Its weight goes to the truth, and the dual may fall a little.
        worst = 1 + int(np.argmin(pool.alpha[i, 1:]))
        share = float(pool.alpha[i, worst])
        for slot, scale in ((worst, problem.C * share), (0, -problem.C * share)):
            add_labeling(problem.cliques, ranges_of(problem), pool.labels, slot, i, scale, state.w)
        pool.alpha[i, 0] += share
        pool.alpha[i, worst] = 0.0

    # ---- what it proves

    def certify(self, problem: GraphProblem, state: GraphCombinations) -> Certificate:
        """The MAP bounds of all examples against the value of the combinations."""
        self._refresh(problem, state)
        primal, exact = self._primal(problem, state.w)
        return Certificate(primal, state.dual, "exact" if exact else "bound")

    def weights(self, problem: GraphProblem, state: GraphCombinations) -> Floats:
        """Weights of the dual point."""
        return state.w

    def pack(self, state: GraphCombinations) -> dict[str, np.ndarray[Any, Any]]:
        """The labelings and their weights; the rest follows from them."""
        pool = state.pool
        return {
            "labels": pool.labels, "count": pool.count, "alpha": pool.alpha,
            "visits": np.array([state.visits]),
        }  # fmt: skip

    def unpack(
        self, problem: GraphProblem, arrays: dict[str, np.ndarray[Any, Any]]
    ) -> GraphCombinations:
        """Back from :meth:`pack`."""
        labels, count, alpha = arrays["labels"], arrays["count"], arrays["alpha"]
        if not _fits(problem, labels, count) or alpha.shape != (len(count), labels.shape[1]):
            raise DataError("the checkpoint is of other data: its arrays have other shapes")
        return self._from_labelings(problem, labels, count, alpha, int(arrays["visits"][0]))


def _fits(problem: GraphProblem, labels: Any, count: Ints) -> bool:
    """Whether labelings are those of the problem's graphs, the truth first."""
    if labels.shape[0] != problem.data.n_nodes or len(count) != problem.n_examples:
        return False
    cards = np.asarray(problem.model.cardinalities)[problem.data.node_types]
    inside = (labels >= 0).all() and (labels < cards[:, None]).all()
    return bool(inside and np.array_equal(labels[:, 0], np.asarray(problem.data.labels)))
