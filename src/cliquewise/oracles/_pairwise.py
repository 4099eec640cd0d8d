"""A pairwise graph as flat arrays: one unary table per variable, one table per edge.

Several factors on one scope are added up, and the table of an edge has the smaller variable
on its first axis. Everything that depends on the topology alone is kept in the structure's
memo, so that a new set of numbers costs one scattered addition.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

import numpy as np

from cliquewise.errors import InfeasibleError
from cliquewise.graph.evidence import INFEASIBLE
from cliquewise.graph.factor_graph import FactorGraph
from cliquewise.graph.structure import Structure
from cliquewise.oracles.base import Question, Verdict
from cliquewise.ragged import Floats, Ints, gather, offsets_of


@dataclass(frozen=True)
class Topology:
    """Layout of the flat arrays of a pairwise graph.

    Attributes
    ----------
    cards : ndarray of int, shape (n,)
    node_offsets : ndarray of int, shape (n + 1,)
        Variable ``v`` has the entries ``node_offsets[v]:node_offsets[v + 1]``.
    edges : ndarray of int, shape (m, 2)
        Pairs ``i < j``, each once, sorted.
    edge_offsets : ndarray of int, shape (m + 1,)
        Table of edge ``e``: entry ``edge_offsets[e] + x_i * cards[j] + x_j``.
    starts, middles : ndarray of int, shape (n + 1,) and (n,)
        ``links[starts[v]:middles[v]]`` are the edges to smaller variables,
        ``links[middles[v]:starts[v + 1]]`` those to larger ones.
    links : ndarray of int, shape (2 m,)
    targets : ndarray of int
        Where each entry of the graph's tables goes: unaries first, then edge tables.
    """

    cards: Ints
    node_offsets: Ints
    edges: Ints
    edge_offsets: Ints
    starts: Ints
    middles: Ints
    links: Ints
    targets: Ints
    memo: dict[str, Any] = field(default_factory=dict)

    @property
    def n_nodes(self) -> int:
        """Number of variables."""
        return len(self.cards)

    @property
    def n_edges(self) -> int:
        """Number of edges."""
        return len(self.edges)


@dataclass(frozen=True)
class Pairwise:
    """A topology with its unary and edge tables."""

    topology: Topology
    nodes: Floats
    tables: Floats

    @cached_property
    def arrays(self) -> Any:
        """All arrays, for the kernels."""
        from cliquewise._kernels.graphs.pairwise import PairwiseGraph

        t = self.topology
        return PairwiseGraph(
            t.cards, t.node_offsets, t.edges, t.edge_offsets, t.starts, t.middles, t.links,
            self.nodes, self.tables,
        )  # fmt: skip

    @property
    def penalty(self) -> float:
        """A finite replacement for infinity that exceeds the sum of all other entries.

        With it in place of ``-inf``, the best labeling breaks a rule only if all do, and
        then scores below ``-penalty / 2``, which nothing else does.
        """
        finite = (a[np.isfinite(a)] for a in (self.nodes, self.tables))
        return 1.0 + 2.0 * sum(float(np.abs(a).sum()) for a in finite)


def topology(structure: Structure) -> Topology:
    """Return the layout of a pairwise structure, computed once."""
    return structure.once(_topology)


def compile_pairwise(graph: FactorGraph) -> Pairwise:
    """Merge the factors of a pairwise graph per variable and per edge.

    Raises
    ------
    InfeasibleError
        If every state of some variable is forbidden.
    """
    t = topology(graph.structure)
    n_unary = int(t.node_offsets[-1])
    flat = np.bincount(
        t.targets, weights=graph.tables, minlength=n_unary + int(t.edge_offsets[-1])
    ).astype(np.float64, copy=False)
    nodes, tables = flat[:n_unary], flat[n_unary:]
    if t.n_nodes and np.maximum.reduceat(nodes, t.node_offsets[:-1]).min() == -np.inf:
        raise InfeasibleError(INFEASIBLE)
    return Pairwise(t, nodes, tables)


def _topology(s: Structure) -> Topology:
    n, edges, cards = s.n_variables, s.edges, s.cardinalities
    m = len(edges)
    sizes = cards[edges[:, 0]] * cards[edges[:, 1]]
    edge_offsets = offsets_of(sizes)
    ends = np.concatenate([edges[:, 1], edges[:, 0]])
    others = np.concatenate([edges[:, 0], edges[:, 1]])
    order = np.lexsort((others, ends))
    links = np.concatenate([np.arange(m), np.arange(m)])[order]
    starts = offsets_of(np.bincount(ends, minlength=n))
    middles = starts[:-1] + np.bincount(edges[:, 1], minlength=n)
    return Topology(
        cards,
        s.node_offsets,
        np.ascontiguousarray(edges),
        edge_offsets,
        starts,
        middles.astype(np.int64),
        links.astype(np.int64),
        _targets(s, edge_offsets),
    )


def _targets(s: Structure, edge_offsets: Ints) -> Ints:
    """Return the position of every table entry among the unaries and edge tables."""
    targets = np.empty(int(s.table_offsets[-1]), dtype=np.int64)
    for order in (1, 2):
        members = np.flatnonzero(s.orders == order)
        if not len(members):
            continue
        sizes = np.diff(s.table_offsets)[members]
        owner = np.repeat(np.arange(len(members)), sizes)
        entries, starts = gather(s.table_offsets, members)
        local = np.arange(len(entries)) - starts[owner]
        scopes = s.scopes[s.scope_offsets[members][:, None] + np.arange(order)]
        if order == 1:
            targets[entries] = s.node_offsets[scopes[:, 0]][owner] + local
            continue
        low, high = scopes.min(axis=1), scopes.max(axis=1)
        codes = s.edges[:, 0] * s.n_variables + s.edges[:, 1]
        edge = np.searchsorted(codes, low * s.n_variables + high)
        width = s.cardinalities[scopes[:, 1]][owner]
        first, second = local // width, local % width
        swapped = (scopes[:, 0] > scopes[:, 1])[owner]
        local = np.where(swapped, second * s.cardinalities[scopes[:, 0]][owner] + first, local)
        targets[entries] = s.node_offsets[-1] + edge_offsets[edge][owner] + local
    return targets


def require_pairwise(structure: Structure, question: Question) -> Verdict | None:
    """Return a rejection if some factor has three or more variables, else None."""
    if structure.is_pairwise:
        return None
    others = "toulbar2, milp and icm" if question == "map" else "junction-tree, mini-buckets"
    return Verdict.reject(
        f"works on pairwise graphs, and this one has a factor of {structure.max_order} "
        f"variables ({others} take factors of any order)"
    )


def table_bound(graph: FactorGraph) -> float:
    """Return the sum of the largest entries of all tables: no labeling scores higher.

    Raises
    ------
    InfeasibleError
        If some table forbids everything.
    """
    s = graph.structure
    if s.n_factors == 0:
        return 0.0
    bound = float(np.maximum.reduceat(graph.tables, s.table_offsets[:-1]).sum())
    if bound == -np.inf:
        raise InfeasibleError(INFEASIBLE)
    return bound
