"""Chains: forward-backward and Viterbi on paths of variables with equally many states."""

from __future__ import annotations

from typing import ClassVar, NamedTuple

import numpy as np

from cliquewise._kernels.chain import decode as chain_decode
from cliquewise._kernels.chain import graph as chain_graph
from cliquewise._kernels.chain import sums as kernels
from cliquewise._kernels.chain import top_k as chain_top_k
from cliquewise.errors import InfeasibleError
from cliquewise.graph.evidence import INFEASIBLE
from cliquewise.graph.factor_graph import FactorGraph
from cliquewise.graph.structure import Structure
from cliquewise.oracles.base import NO_LIMITS, QUESTIONS, Cost, Limits, Oracle, Question, Verdict
from cliquewise.oracles.registry import register
from cliquewise.oracles.results import MapResult, MarginalResult, MaxMarginalResult, proved_map
from cliquewise.ragged import Floats, Ints, Ragged


class Layout(NamedTuple):
    """The position or edge that each factor contributes to; computed once per structure."""

    path: Ints
    offsets: Ints
    starts: Ints
    kind: Ints
    target: Ints
    gaps: Ints
    n_labels: int

    @property
    def n_edges(self) -> int:
        """Total number of edges of all paths."""
        return len(self.path) - (len(self.offsets) - 1)


class Scores(NamedTuple):
    """Scores in the layout of the chain kernels."""

    layout: Layout
    nodes: Floats
    trans: Floats


def chain_layout(structure: Structure) -> Layout:
    """Number the positions and edges along the paths, and assign each factor to one."""
    path = structure.path
    assert path is not None
    n = len(path)
    part = structure.components[1][path]
    cuts = np.flatnonzero(np.diff(part)) + 1
    offsets = np.concatenate(([0], cuts, [n] if n else [])).astype(np.int64)
    position = np.empty(n, dtype=np.int64)
    position[path] = np.arange(n)
    # Of the n - 1 steps along the concatenated paths, those from path to path have no edge.
    edge_of_step = np.arange(n) - np.searchsorted(cuts, np.arange(n), side="right")
    pair = np.flatnonzero(structure.orders == 2)
    first = structure.scope_offsets[:-1]
    own = position[structure.scopes[first]] if len(structure.orders) else first
    kind = np.full(structure.n_factors, chain_graph.NODE, dtype=np.int64)
    target = own.astype(np.int64)
    other = position[structure.scopes[first[pair] + 1]]
    kind[pair] = np.where(other > own[pair], chain_graph.EDGE, chain_graph.EDGE_ACROSS)
    target[pair] = edge_of_step[np.minimum(own[pair], other)]
    n_labels = int(structure.cardinalities[0]) if n else 1
    starts = structure.table_offsets[:-1].copy()
    return Layout(path.astype(np.int64), offsets, starts, kind, target, cuts - 1, n_labels)


@register
class Chain(Oracle):
    """Exact on chains, and disjoint unions of chains, of variables with equally many states."""

    name = "chain"
    provides: ClassVar[frozenset[Question]] = frozenset(QUESTIONS)
    rank = 10
    is_fastest = True
    only_adds = True

    def consider(self, graph: FactorGraph, question: Question, limits: Limits) -> Verdict:
        """Estimate a cost linear in the table entries, for paths with equal cardinalities."""
        s = graph.structure
        if not s.is_pairwise:
            return Verdict.reject(
                f"needs factors of at most two variables; one here has {s.max_order}"
            )
        if s.path is None:
            return Verdict.reject(
                "needs a chain (or several): no cycle, and at most two neighbors each"
            )
        cards = s.cardinalities
        if len(cards) and cards.min() != cards.max():
            return Verdict.reject(
                "needs variables with equally many states; "
                f"here they have from {cards.min()} to {cards.max()}"
            )
        cost = _cost(s, question, limits.k)
        excess = limits.excess(question, cost)
        return Verdict.accept(*cost) if excess is None else Verdict.too_large(excess, cost)

    def _scores(self, graph: FactorGraph, question: Question, limits: Limits) -> Scores:
        self.require(graph, question, limits)
        w = graph.structure.once(chain_layout)
        nodes = np.empty((len(w.path), w.n_labels))
        trans = np.empty((w.n_edges, w.n_labels, w.n_labels))
        equal = chain_graph.assemble(graph.tables, w.starts, w.kind, w.target, nodes, trans)
        return Scores(w, nodes, trans[:1] if equal else trans)

    @staticmethod
    def _concatenated(scores: Scores) -> Floats:
        """Return the transitions of all paths in one array, with zeros between the paths."""
        w = scores.layout
        if len(w.gaps) == 0:
            return scores.trans
        trans = np.zeros((len(w.path) - 1, w.n_labels, w.n_labels))
        has_edge = np.ones(len(trans), dtype=bool)
        has_edge[w.gaps] = False
        trans[has_edge] = scores.trans
        return trans

    # ---- the questions

    def map(self, graph: FactorGraph, limits: Limits = NO_LIMITS) -> MapResult:
        """Run the Viterbi algorithm."""
        w, nodes, trans = self._scores(graph, "map", limits)
        along = np.zeros(len(nodes), dtype=np.int64)
        chain_decode.batch_viterbi(nodes, w.offsets, trans, along, np.empty(len(w.offsets) - 1))
        labels = np.empty_like(along)
        labels[w.path] = along
        return proved_map(graph, labels, self.name)

    def marginals(self, graph: FactorGraph, limits: Limits = NO_LIMITS) -> MarginalResult:
        """Run the forward-backward algorithm."""
        w, nodes, trans = self._scores(graph, "marginals", limits)
        along, edges = np.empty_like(nodes), np.empty((w.n_edges, w.n_labels, w.n_labels))
        logs = np.empty(len(w.offsets) - 1)
        no_expectation = np.empty((0, w.n_labels))
        kernels.batch_forward_backward(nodes, w.offsets, trans, along, edges, no_expectation, logs)
        log_z = float(logs.sum())
        if log_z == -np.inf:
            raise InfeasibleError(INFEASIBLE)
        s = graph.structure
        flat, factors = np.empty(nodes.size), np.empty(int(s.table_offsets[-1]))
        chain_graph.distribute(along, edges, w.path, w.starts, w.kind, w.target, flat, factors)
        return MarginalResult.from_flat(graph, flat, factors, log_z, self.name)

    def max_marginals(self, graph: FactorGraph, limits: Limits = NO_LIMITS) -> MaxMarginalResult:
        """Run the Viterbi recursion in both directions."""
        w, nodes, trans = self._scores(graph, "max_marginals", limits)
        flat = np.empty(nodes.size)
        best = chain_graph.max_marginals(nodes, w.offsets, trans, w.path, flat)
        if best == -np.inf:
            raise InfeasibleError(INFEASIBLE)
        tables = Ragged(flat, graph.structure.node_offsets)
        return MaxMarginalResult(tables, best, True, self.name, graph.rounding)

    def top_k(self, graph: FactorGraph, k: int, limits: Limits = NO_LIMITS) -> list[MapResult]:
        """Run the Viterbi algorithm, then list the best deviations from its path."""
        scores = self._scores(graph, "top_k", limits._replace(k=k))
        w, nodes, _ = scores
        log_count = len(nodes) * np.log(w.n_labels)
        most = k if log_count > 40 else min(k, round(np.exp(log_count)))
        along = np.zeros((most, len(nodes)), dtype=np.int64)
        trans, work = self._concatenated(scores), chain_decode.decode_workspace(*nodes.shape, nodes)
        found = chain_top_k.top_k_viterbi(nodes, trans, along, np.zeros(most), work)
        if found == 0:
            raise InfeasibleError(INFEASIBLE)
        labels = np.empty_like(along)
        labels[:, w.path] = along
        results = [proved_map(graph, row, self.name) for row in labels[:found]]
        return sorted(results, key=lambda result: -result.score)

    def sample(
        self, graph: FactorGraph, n: int, rng: np.random.Generator, limits: Limits = NO_LIMITS
    ) -> Ints:
        """Run the forward recursion, then sample backwards."""
        scores = self._scores(graph, "sample", limits)
        w, nodes, _ = scores
        trans = self._concatenated(scores)
        labels = np.empty((n, len(nodes)), dtype=np.int64)
        block = max(1, 4_000_000 // max(len(nodes), 1))
        for first in range(0, max(n, 1), block):
            part = np.zeros((min(block, n - first), len(nodes)), dtype=np.int64)
            log_z = chain_decode.sample(nodes, trans, rng.random(part.shape), part)
            if log_z == -np.inf:
                raise InfeasibleError(INFEASIBLE)
            labels[first : first + block, w.path] = part
        return labels


def _cost(structure: Structure, question: Question, k: int) -> Cost:
    """Return the estimated cost; operations are the table entries of all edges."""
    n = structure.n_variables
    states = float(structure.cardinalities[0]) if n else 1.0
    edges, width = float(len(structure.edges)), max(8.0, 8 * np.ceil(states / 8))
    operations = edges * states * states
    # Tables of all edges and one padded set of four, then the arrays of the question.
    entries = operations + 4 * width * width + 4 * n * width
    if question == "marginals":
        entries += operations + float(structure.table_offsets[-1])
    elif question == "top_k":
        labelings = np.exp(min(n * np.log(states), 40.0))
        entries += (n + 8.0) * min(float(k), labelings)
    return Cost(2e-5 + 2e-9 * operations, 8.0 * entries, operations)
