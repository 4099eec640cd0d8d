"""Chains: forward-backward and Viterbi on paths of variables with equally many states."""

from __future__ import annotations

from typing import Any, ClassVar, NamedTuple

import numpy as np

from cliquewise._kernels.chain import decode as chain_decode
from cliquewise._kernels.chain import graph as chain_graph
from cliquewise._kernels.chain import sums as kernels
from cliquewise._kernels.chain import top_k as chain_top_k
from cliquewise.errors import InfeasibleError, TooLargeError
from cliquewise.graph.evidence import INFEASIBLE
from cliquewise.graph.factor_graph import FactorGraph
from cliquewise.graph.structure import Structure
from cliquewise.oracles.base import QUESTIONS, Cost, Oracle, over_limits, register
from cliquewise.oracles.results import MapResult, MarginalResult, MaxMarginalResult
from cliquewise.ragged import Floats, Ints, Ragged


class Wiring(NamedTuple):
    """Which factor adds to which position or edge; compiled once per structure."""

    path: Ints
    offsets: Ints
    starts: Ints
    kind: Ints
    target: Ints
    gaps: Ints
    n_labels: int

    @property
    def n_edges(self) -> int:
        """Number of edges of all paths together."""
        return len(self.path) - (len(self.offsets) - 1)


class Scores(NamedTuple):
    """The arrays that the chain kernels take."""

    wiring: Wiring
    nodes: Floats
    trans: Floats


def compile_wiring(structure: Structure) -> Wiring:
    """Number positions and edges along the paths, and send each factor to its place."""
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
    return Wiring(path.astype(np.int64), offsets, starts, kind, target, cuts - 1, n_labels)


@register
class Chain(Oracle):
    """Exact on chains, and disjoint unions of chains, of variables with equally many states."""

    name = "chain"
    provides: ClassVar[frozenset[str]] = frozenset(QUESTIONS)
    rank = 10
    is_quickest = True
    only_adds = True
    has_limits = True

    def refuses(self, structure: Structure, want: str = "map") -> str | None:
        """Refuse branches, cycles, factors of three variables, and unequal cardinalities."""
        if not structure.is_pairwise:
            return f"needs factors of at most two variables; one here has {structure.max_order}"
        if structure.path is None:
            return "needs a chain (or several): no cycle, and at most two neighbors each"
        cards = structure.cardinalities
        if len(cards) and cards.min() != cards.max():
            return (
                "needs variables with equally many states; "
                f"here they have from {cards.min()} to {cards.max()}"
            )
        return None

    def too_large(
        self, structure: Structure, want: str, options: dict[str, Any]
    ) -> TooLargeError | None:
        """The refusal that states memory and operations, if they exceed the limits."""
        memory, operations = self._size(structure, want, options)
        return over_limits(want, memory, operations, options)

    def cost(self, structure: Structure, want: str = "map") -> Cost:
        """Linear in the entries of the tables."""
        memory, operations = self._size(structure, want, {})
        return Cost(2e-5 + 2e-9 * operations, memory)

    @staticmethod
    def _size(structure: Structure, want: str, options: dict[str, Any]) -> tuple[float, float]:
        """Bytes, and entries of the tables of all edges."""
        n = structure.n_variables
        k = float(structure.cardinalities[0]) if n else 1.0
        edges, width = float(len(structure.edges)), max(8.0, 8 * np.ceil(k / 8))
        # Tables of all edges and one padded set of four, then what the question keeps.
        entries = edges * k * k + 4 * width * width + 4 * n * width
        if want == "marginals":
            entries += edges * k * k + float(structure.table_offsets[-1])
        elif want == "top_k":
            labelings = np.exp(min(n * np.log(k), 40.0))
            entries += (n + 8.0) * min(float(options.get("k", 1)), labelings)
        return 8.0 * entries, edges * k * k

    def _scores(
        self, graph: FactorGraph, want: str, options: dict[str, Any], **asked: Any
    ) -> Scores:
        self.check_limits(graph.structure, want, options, **asked)
        w = graph.structure.once(compile_wiring)
        nodes = np.empty((len(w.path), w.n_labels))
        trans = np.empty((w.n_edges, w.n_labels, w.n_labels))
        equal = chain_graph.assemble(graph.tables, w.starts, w.kind, w.target, nodes, trans)
        return Scores(w, nodes, trans[:1] if equal else trans)

    @staticmethod
    def _concatenated(scores: Scores) -> Floats:
        """Transitions of all paths as one, with tables of zeros between them."""
        w = scores.wiring
        if len(w.gaps) == 0:
            return scores.trans
        trans = np.zeros((len(w.path) - 1, w.n_labels, w.n_labels))
        has_edge = np.ones(len(trans), dtype=bool)
        has_edge[w.gaps] = False
        trans[has_edge] = scores.trans
        return trans

    # ---- the questions

    def map(self, graph: FactorGraph, **options: Any) -> MapResult:
        """Viterbi."""
        w, nodes, trans = self._scores(graph, "map", options)
        along = np.zeros(len(nodes), dtype=np.int64)
        chain_decode.batch_viterbi(nodes, w.offsets, trans, along, np.empty(len(w.offsets) - 1))
        labels = np.empty_like(along)
        labels[w.path] = along
        return self.best(graph, labels)

    def marginals(self, graph: FactorGraph, **options: Any) -> MarginalResult:
        """Forward-backward."""
        w, nodes, trans = self._scores(graph, "marginals", options)
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

    def max_marginals(self, graph: FactorGraph, **options: Any) -> MaxMarginalResult:
        """Viterbi forward and backward."""
        w, nodes, trans = self._scores(graph, "max_marginals", options)
        flat = np.empty(nodes.size)
        best = chain_graph.max_marginals(nodes, w.offsets, trans, w.path, flat)
        if best == -np.inf:
            raise InfeasibleError(INFEASIBLE)
        tables = Ragged(flat, graph.structure.node_offsets)
        return MaxMarginalResult(tables, best, True, self.name, graph.rounding)

    def top_k(self, graph: FactorGraph, k: int, **options: Any) -> list[MapResult]:
        """Viterbi, and the best deviations from what it finds."""
        scores = self._scores(graph, "top_k", options, k=k)
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
        results = [self.best(graph, row) for row in labels[:found]]
        return sorted(results, key=lambda result: -result.score)

    def sample(self, graph: FactorGraph, n: int, rng: np.random.Generator, **options: Any) -> Ints:
        """Forward, and draws on the way back."""
        scores = self._scores(graph, "sample", options)
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
