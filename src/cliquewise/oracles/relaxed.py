"""Inference on the local polytope with a Gini entropy: what cliquewise training optimizes.

The kernels of training with the scores held fixed: multipliers make the cliques of each graph
agree, and the gap between the messages' bound and the repaired beliefs says when.
"""

from __future__ import annotations

from typing import Any, ClassVar, NamedTuple

import numpy as np

from cliquewise.errors import DataError, PrecisionError
from cliquewise.graph.factor_graph import FactorGraph
from cliquewise.graph.oriented_trees import gini_curvatures
from cliquewise.graph.sizes import LARGEST, largest_finite
from cliquewise.oracles._pairwise import compile_pairwise, require_pairwise
from cliquewise.oracles.base import Limits, Oracle, Question, Verdict
from cliquewise.oracles.registry import register
from cliquewise.oracles.results import MapResult, MarginalResult, map_result
from cliquewise.ragged import Floats, Ints, first_best, offsets_of

#: Sweeps between two looks at the gap.
SWEEPS = 8


class RelaxedBeliefs(NamedTuple):
    """Beliefs in the local polytope of all graphs together, and what is known of their maximum.

    Attributes
    ----------
    nodes, edges : flat arrays over the states of all nodes, and of all edges
    value, bound : float
        ``<scores, mu> + gamma H(mu)`` of these beliefs; no others have more than the bound.
    gap : float
        Their difference, relative to the sum of the absolute scores.
    """

    nodes: Floats
    edges: Floats
    value: float
    bound: float
    gap: float


def relaxed_beliefs(
    scores: Floats,
    cards: Ints,
    edges: Ints,
    node_offsets: Ints,
    edge_offsets: Ints,
    *,
    gamma: float = 1.0,
    entropy: str = "gini",
    epsilon: float = 0.9,
    tol: float = 1e-3,
    max_sweeps: int = 400,
    random_state: Any = 0,
) -> RelaxedBeliefs:
    """Beliefs that maximize ``<scores, mu> + gamma H(mu)`` on the local polytope of many graphs.

    Parameters
    ----------
    scores : float array
        Of all states of all nodes, then of all edges, whose tables have ``edges[:, 0]`` first.
    cards : int array (n_nodes)
        States of every node of all graphs.
    edges : int array (n_edges, 2)
    node_offsets, edge_offsets : int arrays (n_graphs + 1)
        Where the nodes and the edges of each graph begin.
    gamma : float, default=1.0
        Weight of the entropy; 0 is the linear programming relaxation of MAP.
    entropy : {"gini", "gini-otrw"}, default="gini"
    epsilon : float, default=0.9
        Share of the nodes' entropies that "gini-otrw" takes off (Appendix C of idal).
    tol : float, default=1e-3
        Stop at this relative gap of all graphs together.
    max_sweeps : int, default=400

    Examples
    --------
    >>> two = np.array([2, 2]), np.array([[0, 1]]), np.array([0, 2]), np.array([0, 1])
    >>> relaxed_beliefs(np.array([2.0, -2, -2, 2, 0, 0, 0, 0]), *two).nodes.round(2)
    array([0.99, 0.01, 0.01, 0.99])
    """
    from cliquewise._kernels.cliques.ascent import PROXIMAL, MultiplierStep, Terms, sweep
    from cliquewise._kernels.cliques.local_polytope import entropy as entropy_of
    from cliquewise._kernels.cliques.local_polytope import repair, upper_bound

    if not (np.isfinite(gamma) and gamma >= 0):
        raise DataError(f"gamma = {gamma}; it must not be negative")
    if max_sweeps < 1:
        raise DataError(f"max_sweeps = {max_sweeps}; it must be at least 1")
    largest = largest_finite(scores)
    if not largest * len(scores) <= LARGEST:
        raise PrecisionError(
            f"scores up to {largest:.3g} leave the range of float64 when they are added up: scale "
            "the features, or train with more regularization"
        )
    curvature, slack = gini_curvatures(cards, edges, node_offsets, edge_offsets, entropy, epsilon)
    terms = Terms(curvature, slack, 0.0, float(gamma))
    g, rho = _cliques(cards, edges), _balance(cards, scores, curvature, gamma)
    x, tour, steps = _start(g, terms, rho, scores, node_offsets, edge_offsets)
    first = float(scores[g.offsets[:-1]].sum())  # the bound of the kernel is relative to it
    scale = max(float(np.abs(scores).sum()), 1e-12)
    rng = np.random.default_rng(random_state)
    mu, gaps, none = np.empty_like(x.mu), np.empty(len(steps)), np.empty(0)
    value, bound = -np.inf, np.inf
    for done in range(1, max_sweeps + 1):
        # Multipliers move first, so that the messages of a look belong to its beliefs.
        move = MultiplierStep(0.0 if done == 1 else 1.0 / rho, 0.0, none)
        seed = rng.integers(0, 2**63, 1, dtype=np.uint64)
        sweep(g, terms, x, rho, steps, PROXIMAL, gaps, tour, 1.0, move, seed)
        if done % SWEEPS == 0 or done == max_sweeps:
            bound = first + float(upper_bound(g, terms, x, rho)[0])
            repair(g, x.mu, mu)
            value = float(scores @ mu) + gamma * float(entropy_of(g, terms, mu))
            if bound - value <= tol * scale:
                break
    states = int(g.offsets[len(cards)])
    return RelaxedBeliefs(mu[:states], mu[states:], value, bound, (bound - value) / scale)


def _start(
    g: Any, terms: Any, rho: float, scores: Floats, node_offsets: Ints, edge_offsets: Ints
) -> tuple[Any, Any, Floats]:
    """Uniform beliefs and no messages, the tour of a pass, and the length of each clique's step."""
    from cliquewise._kernels.cliques.ascent import (
        Point,
        Tour,
        cliques_by_example,
        lipschitz,
        multipliers,
    )

    sizes, n_nodes = np.diff(g.offsets), len(g.degree)
    messages = int(g.degree.astype(np.int64) @ sizes[:n_nodes])
    x = Point(
        np.repeat(1.0 / sizes, sizes),
        np.zeros(messages),
        np.zeros(int(g.offsets[n_nodes])),
        np.array(scores, dtype=np.float64),
    )
    steps, order = np.empty(len(sizes)), np.empty(len(sizes), dtype=np.int64)
    lipschitz(g, terms, rho, np.zeros(len(sizes)), steps)
    multipliers(g, x, rho, 0.0, 0.0, np.empty(0))
    cliques_by_example(n_nodes, node_offsets, edge_offsets, order)
    n = len(node_offsets) - 1
    tour = Tour(node_offsets, edge_offsets, np.arange(n), order, np.zeros(n, dtype=np.int64))
    return x, tour, steps


def _cliques(cards: Ints, edges: Ints) -> Any:
    """The kernels' view of graphs whose weights are their scores: every clique has its own."""
    from cliquewise._kernels.cliques.features import Cliques

    sizes = np.concatenate([cards, cards[edges[:, 0]] * cards[edges[:, 1]]])
    n, offsets = len(sizes), offsets_of(sizes)
    return Cliques(
        offsets=offsets,
        type=np.arange(n, dtype=np.int32),
        row=np.zeros(n, dtype=np.int64),
        indptr=np.array([0, 1]),
        indices=np.zeros(1, dtype=np.int64),
        values=np.ones(1),
        base=offsets[:-1],
        params=sizes,
        tie_start=np.zeros(n, dtype=np.int64),
        plain=np.ones(n, dtype=bool),
        tie=np.empty(0, dtype=np.int32),
        left=np.ascontiguousarray(edges[:, 0]),
        right=np.ascontiguousarray(edges[:, 1]),
        message=offsets_of(cards[edges].sum(axis=1))[:-1],
        degree=np.bincount(edges.ravel(), minlength=len(cards)).astype(np.float64),
        truth=np.zeros(n, dtype=np.int64),
        cost=np.empty(0),
    )


def _balance(cards: Ints, scores: Floats, curvature: Floats, gamma: float) -> float:
    """Balance the penalty with the entropy; without one, with the size of the scores."""
    if not len(cards):
        return 1.0
    size = max(2.0 * gamma * float(curvature.mean()), float(np.abs(scores).mean()), 1e-3)
    return float(cards.max()) / size


@register
class Relaxed(Oracle):
    """The local polytope with a Gini entropy, by dual ascent clique by clique: as in training."""

    name = "relaxed"
    provides: ClassVar[frozenset[Question]] = frozenset({"map", "marginals"})
    exact = False
    rank = 95

    def consider(self, graph: FactorGraph, question: Question, limits: Limits) -> Verdict:
        """Assume a hundred sweeps over all tables."""
        s = graph.structure
        if rejection := require_pairwise(s, question):
            return rejection
        if not np.isfinite(graph.tables).all():
            reason = "needs finite log-potentials, and some combinations are forbidden here"
            return Verdict.reject(reason).for_tables()
        entries = float(s.table_offsets[-1])
        return Verdict.accept(1e-3 + 3e-6 * entries, 40.0 * entries).for_tables()

    def map(
        self,
        graph: FactorGraph,
        tol: float = 1e-6,
        max_sweeps: int = 400,
        random_state: Any = 0,
    ) -> MapResult:
        """Each variable's most believed state by the linear programming relaxation.

        Parameters
        ----------
        graph : FactorGraph
        tol : float, default=1e-6
            Stop at this gap of the relaxation, relative to the sum of the absolute scores.
        max_sweeps : int, default=400

        Returns
        -------
        MapResult
            ``exact`` where the labeling attains the messages' bound; ``info`` has the relaxed
            ``value`` and its ``gap``.

        Examples
        --------
        >>> g = FactorGraph([2, 2], [((0,), [0.0, 1.0]), ((0, 1), [[1.0, 0.0], [0.0, 1.0]])])
        >>> g.map("relaxed").labels
        array([1, 1])
        """
        found = self._beliefs(
            graph, gamma=0.0, tol=tol, max_sweeps=max_sweeps, random_state=random_state
        )
        labels = first_best(found.nodes, graph.structure.node_offsets)
        info = {"value": found.value, "gap": found.gap}
        return map_result(graph, labels, found.bound, self.name, info)

    def marginals(
        self,
        graph: FactorGraph,
        gamma: float = 1.0,
        entropy: str = "gini",
        epsilon: float = 0.9,
        tol: float = 1e-3,
        max_sweeps: int = 400,
        random_state: Any = 0,
    ) -> MarginalResult:
        """Beliefs of a Gini entropy. They are not probabilities of the graph's distribution.

        They maximize ``<scores, mu> + gamma H(mu)`` on the local polytope, as the training of
        ``idal`` does; many are exactly zero. ``log_z`` is the lower bound that the beliefs of
        the single variables prove (mean field); the upper one is a bound of the best score
        plus the logarithm of the number of labelings.

        Parameters
        ----------
        graph : FactorGraph
        gamma : float, default=1.0
            Weight of the entropy.
        entropy : {"gini", "gini-otrw"}, default="gini"
        epsilon : float, default=0.9
            Share of the nodes' entropies that "gini-otrw" takes off (Appendix C of idal).
        tol : float, default=1e-3
            Stop at this gap, relative to the sum of the absolute scores.
        max_sweeps : int, default=400

        Returns
        -------
        MarginalResult
            Never ``exact``; ``info`` has the relaxed ``value``, its ``bound`` and the ``gap``.

        Examples
        --------
        >>> FactorGraph([2], [((0,), [0.0, 1.0])]).marginals("relaxed").nodes[0]
        array([0.25, 0.75])
        """
        found = self._beliefs(
            graph, gamma=gamma, entropy=entropy, epsilon=epsilon, tol=tol, max_sweeps=max_sweeps,
            random_state=random_state,
        )  # fmt: skip
        s, both = graph.structure, np.concatenate([found.nodes, found.edges])
        # At a labeling the entropy is zero, so that no score exceeds the bound.
        upper = found.bound + float(np.log(s.cardinalities).sum())
        lower = min(_mean_field(graph, found.nodes), upper)
        info = {"value": found.value, "bound": found.bound, "gap": found.gap}
        factors = both[compile_pairwise(graph).topology.targets]
        return MarginalResult.from_flat(
            graph, found.nodes, factors, lower, self.name, (lower, upper), info=info
        )

    @staticmethod
    def _beliefs(graph: FactorGraph, **options: Any) -> RelaxedBeliefs:
        flat = compile_pairwise(graph)
        t, n_graphs = flat.topology, int(graph.n_variables > 0)
        scores = np.concatenate([flat.nodes, flat.tables])
        ends = np.array([[0, t.n_nodes], [0, t.n_edges]])[:, : n_graphs + 1]
        return relaxed_beliefs(scores, t.cards, t.edges, ends[0], ends[1], **options)


def _mean_field(graph: FactorGraph, beliefs: Floats) -> float:
    """Mean score and entropy of independent variables: a lower bound of log Z."""
    flat = compile_pairwise(graph)
    t = flat.topology
    chances = beliefs[beliefs > 0]
    total = float(flat.nodes @ beliefs) - float(chances @ np.log(chances))
    for e, (i, j) in enumerate(t.edges.tolist()):
        left, right = (beliefs[t.node_offsets[v] : t.node_offsets[v + 1]] for v in (i, j))
        table = flat.tables[t.edge_offsets[e] : t.edge_offsets[e + 1]]
        total += float(left @ table.reshape(len(left), len(right)) @ right)
    return total
