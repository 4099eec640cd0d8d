"""Graph cuts: exact on submodular two-state graphs, moves for many states, roof duality."""

from __future__ import annotations

import math
from typing import ClassVar

import numpy as np

from cliquewise._kernels import clock
from cliquewise.errors import InfeasibleError, UnsupportedError
from cliquewise.graph.evidence import INFEASIBLE
from cliquewise.graph.factor_graph import FactorGraph
from cliquewise.graph.structure import Structure
from cliquewise.oracles._cuts import fuse, ising, minimum_cut, pair_score, roof_dual
from cliquewise.oracles._pairwise import (
    Pairwise,
    compile_pairwise,
    require_pairwise,
    table_bound,
)
from cliquewise.oracles._rescaling import PLAIN, RescaledGraph
from cliquewise.oracles.base import ESTIMATE, Limits, Oracle, Question, Verdict
from cliquewise.oracles.registry import register
from cliquewise.oracles.results import MapResult, MaxMarginalResult, map_result, proved_map
from cliquewise.oracles.trw_s import first_labels
from cliquewise.ragged import Ints, Ragged

#: Max-marginals need one flow per variable: more work than this (arcs x variables) is refused.
MAX_WORK = 2e10
#: Seconds of a flow per arc, on grids.
PER_ARC = 5e-7


@register
class GraphCut(Oracle):
    """Minimum cut: exact on pairwise graphs of two states whose edges are all attractive."""

    name = "graph-cut"
    provides: ClassVar[frozenset[Question]] = frozenset({"map", "max_marginals"})
    rank = 40
    is_fastest = True

    def consider(self, graph: FactorGraph, question: Question, limits: Limits) -> Verdict:
        """Reject graphs that are not submodular, naming an edge; count the arcs otherwise."""
        s = graph.structure
        if rejection := require_pairwise(s, question):
            return rejection
        if not s.is_binary:
            return Verdict.reject(
                "works on variables of two states "
                "(expansion takes any number of states, trw-s and portfolio give a bound too)"
            )
        flows = s.n_variables if question == "max_marginals" else 1
        size = float(s.n_variables + 2 * len(s.edges))
        if flows * size > MAX_WORK:
            return Verdict.reject(
                f"would need one flow per variable, about {flows * size:.1g} steps"
            )
        if reason := _not_submodular(graph):
            return Verdict.reject(reason).for_tables()
        return Verdict.accept(flow_seconds(s, flows), 100.0 * size).for_tables()

    def map(self, graph: FactorGraph) -> MapResult:
        """Return the labeling of a minimum cut.

        Examples
        --------
        >>> attract = [[1.0, 0.0], [0.0, 1.0]]
        >>> ring = [((i, (i + 1) % 3), attract) for i in range(3)]
        >>> g = FactorGraph([2] * 3, [((0,), [0.0, 0.5]), *ring])
        >>> g.map("graph-cut").labels
        array([1, 1, 1])
        """
        pairwise = compile_pairwise(graph)
        first, second = _both(pairwise)
        cut = minimum_cut(ising(pairwise, first, second, pairwise.penalty))
        labels = np.where(cut.labels == 0, first, second)
        return proved_map(graph, labels, self.name)

    def max_marginals(self, graph: FactorGraph) -> MaxMarginalResult:
        """Compute one flow per variable, each from the residual network of the optimum.

        Examples
        --------
        >>> g = FactorGraph([2, 2], [((0, 1), [[2.0, 0.0], [0.0, 1.0]])])
        >>> g.max_marginals("graph-cut").nodes[1]
        array([2., 1.])
        """
        from cliquewise._kernels.graphs.maxflow import cut_max_marginals

        pairwise = compile_pairwise(graph)
        t, penalty = pairwise.topology, pairwise.penalty
        first, second = _both(pairwise)
        problem = ising(pairwise, first, second, penalty)
        cut = minimum_cut(problem)
        best = np.where(cut.labels == 0, first, second)
        score = float(graph.score(best))
        if score == -np.inf:
            raise InfeasibleError(INFEASIBLE)
        loss = np.empty(t.n_nodes)
        force = 1.0 + float(np.abs(problem.linear).sum() + 2 * problem.coupling.sum())
        cut_max_marginals(*cut.network, cut.residual, cut.terminal, cut.labels, force, loss)
        other = score - np.maximum(loss, 0.0)
        other[other < -penalty / 2] = -np.inf
        flat = np.empty(int(t.node_offsets[-1]))
        pick = t.node_offsets[:-1]
        flat[pick + second] = np.where(cut.labels == 1, score, other)
        flat[pick + first] = np.where((cut.labels == 0) | (first == second), score, other)
        nodes = Ragged(flat, t.node_offsets)
        return MaxMarginalResult(nodes, score, True, self.name, graph.rounding)


def flow_seconds(structure: Structure, flows: int = 1) -> float:
    """Return the estimated time of so many maximum flows."""
    return 1e-4 + flows * PER_ARC * float(structure.n_variables + 2 * len(structure.edges))


def _not_submodular(graph: FactorGraph) -> str | None:
    """Return a reason that names an edge which is not submodular, or None."""
    try:
        pairwise = compile_pairwise(graph)
    except InfeasibleError:
        return None
    coupling = ising(pairwise, *_both(pairwise), pairwise.penalty).coupling
    if (coupling >= 0.0).all():
        return None
    i, j = pairwise.topology.edges[int(np.argmin(coupling))]
    return (
        f"needs attractive (submodular) edges, t00 + t11 >= t01 + t10, but the edge of "
        f"variables {i} and {j} falls short by {-2 * coupling.min():.3g} "
        "(portfolio and trw-s give a labeling and a bound, toulbar2 and milp are exact)"
    )


@register
class Expansion(Oracle):
    """Expansion or swap moves, each the best of exponentially many changes, by a cut."""

    name = "expansion"
    provides: ClassVar[frozenset[Question]] = frozenset({"map"})
    exact = False
    guarantee = ESTIMATE
    rank = 80

    def consider(self, graph: FactorGraph, question: Question, limits: Limits) -> Verdict:
        """Accept pairwise graphs; every move is one flow, in a few sweeps over the labels."""
        s = graph.structure
        if rejection := require_pairwise(s, question):
            return rejection
        size = float(s.n_variables + 2 * len(s.edges))
        return Verdict.accept(flow_seconds(s, 5 * s.max_cardinality), 100.0 * size)

    def map(
        self,
        graph: FactorGraph,
        moves: str = "expansion",
        init: Ints | None = None,
        max_sweeps: int = 20,
        seconds: float = math.inf,
    ) -> MapResult:
        """Repeat moves until none improves the score.

        Parameters
        ----------
        graph : FactorGraph
        moves : {"expansion", "swap"}, default="expansion"
            Let one label spread over any variables, or two labels trade places. On edges that
            are not metric a move is made of the part that roof duality settles; the score
            never falls.
        init : array-like of int, optional
            Labeling to start from; the best state of each variable by default.
        max_sweeps : int, default=20
            Rounds over all labels (or pairs of labels).
        seconds : float, default=inf

        Examples
        --------
        >>> import numpy as np
        >>> from cliquewise.graph.builders import grid
        >>> g = grid(np.random.default_rng(0).normal(size=(4, 4, 3)), np.eye(3), np.eye(3))
        >>> bool(np.isclose(g.map("expansion").score, g.map("junction-tree").score))
        True
        """
        if moves not in ("expansion", "swap"):
            raise UnsupportedError(f"moves={moves!r}; the moves are: expansion, swap")
        pairwise = compile_pairwise(graph)
        start = first_labels(pairwise) if init is None else np.asarray(init, dtype=np.int64)
        graph.score(start)  # says what is wrong with a bad start
        labels, sweeps = move(pairwise, start, moves, max_sweeps, seconds)
        score = float(graph.score(labels))
        bound = max(table_bound(graph), score)
        return map_result(graph, labels, bound, self.name, {"sweeps": sweeps}, score == bound)


def move(
    pairwise: Pairwise,
    labels: Ints,
    moves: str = "expansion",
    max_sweeps: int = 20,
    seconds: float = math.inf,
) -> tuple[Ints, int]:
    """Make moves until a whole round improves nothing; return the labels and the rounds."""
    t, penalty = pairwise.topology, pairwise.penalty
    deadline = clock.now() + seconds
    k = int(t.cards.max(initial=1))
    steps = [(a,) for a in range(k)] if moves == "expansion" else _pairs(k)
    best = pair_score(pairwise, labels, penalty)
    unchanged, sweep = 0, 0
    for sweep in range(1, max_sweeps + 1):
        for step in steps:
            if clock.now() >= deadline:
                return labels, sweep
            first, second = _offer(labels, t.cards, step)
            proposal = fuse(pairwise, first, second, labels, penalty)
            score = pair_score(pairwise, proposal, penalty)
            unchanged += 1
            if score > best:
                labels, best, unchanged = proposal, score, 0
            if unchanged >= len(steps):
                return labels, sweep
    return labels, sweep


def _pairs(k: int) -> list[tuple[int, ...]]:
    return [(a, b) for a in range(k) for b in range(a + 1, k)]


def _offer(labels: Ints, cards: Ints, step: tuple[int, ...]) -> tuple[Ints, Ints]:
    """Return the two labels between which a move lets each variable choose."""
    if len(step) == 1:
        return labels, np.where(step[0] < cards, step[0], labels)
    a, b = step
    takes_part = ((labels == a) | (labels == b)) & (b < cards)
    return np.where(takes_part, a, labels), np.where(takes_part, b, labels)


def qpbo(graph: FactorGraph) -> tuple[Ints, float]:
    """Roof duality on a pairwise graph of two states.

    Parameters
    ----------
    graph : FactorGraph

    Returns
    -------
    labels : ndarray of int
        States that every best labeling has; -1 where unknown.
    upper_bound : float
        No labeling scores higher, but for ``graph.rounding`` (the roof dual; exact if the graph
        is submodular).

    Examples
    --------
    >>> g = FactorGraph([2, 2], [((0,), [0.0, 3.0]), ((0, 1), [[0.0, 1.0], [1.0, 0.0]])])
    >>> qpbo(g)
    (array([1, 0]), 4.0)
    """
    if not (graph.structure.is_pairwise and graph.structure.is_binary):
        raise UnsupportedError("roof duality needs a pairwise graph of variables of two states")
    if graph.largest <= PLAIN:
        return roof_duality(compile_pairwise(graph))
    rescaled = RescaledGraph.of(graph).narrowed("map")
    labels, bound = roof_duality(compile_pairwise(rescaled.graph))
    return labels, rescaled.restored(bound, rescaled.graph.rounding / rescaled.scale)


def roof_duality(pairwise: Pairwise) -> tuple[Ints, float]:
    """As :func:`qpbo`, on flat arrays."""
    first, second = _both(pairwise)
    open_labels, energy = roof_dual(ising(pairwise, first, second, pairwise.penalty))
    labels = np.where(open_labels == 0, first, np.where(open_labels == 1, second, -1))
    labels[pairwise.topology.cards == 1] = 0
    return labels, -energy


def _both(pairwise: Pairwise) -> tuple[Ints, Ints]:
    """Return labels 0 and 1; twice label 0 for a variable with one state."""
    cards = pairwise.topology.cards
    return np.zeros_like(cards), np.minimum(1, cards - 1)


__all__ = ["Expansion", "GraphCut", "move", "qpbo", "roof_duality"]
