"""Vertex cover: exact MAP where few variables, once labeled, leave the others independent.

A restricted Boltzmann machine is the model case: given one layer, the states of the other
are independent. Elimination needs the same number of operations, but its tables are large
and its loops short; here the innermost loop is long and nothing is stored.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from cliquewise.graph.factor_graph import FactorGraph
from cliquewise.graph.structure import Structure
from cliquewise.oracles._pairwise import Topology, compile_pairwise, require_pairwise, topology
from cliquewise.oracles.base import Limits, Oracle, Question, Verdict
from cliquewise.oracles.registry import register
from cliquewise.oracles.results import MapResult, proved_map
from cliquewise.ragged import Ints, offsets_of

#: More additions than this are refused (about ten seconds).
MAX_OPERATIONS = 3e10
#: Additions per second.
PACE = 3e9
#: Labelings of the inner part: its table of fields should stay in the cache.
INNER = 1024


@dataclass(frozen=True)
class Cover:
    """A vertex cover in two parts, the variables outside it, and the cost of enumeration."""

    outer: Ints
    inner: Ints
    rest: Ints
    role: Ints
    rest_offsets: Ints
    operations: float


@register
class VertexCover(Oracle):
    """Enumeration of the labelings of a small vertex cover; the others are independent."""

    name = "vertex-cover"
    provides: ClassVar[frozenset[Question]] = frozenset({"map"})
    rank = 35
    only_adds = True

    def consider(self, graph: FactorGraph, question: Question, limits: Limits) -> Verdict:
        """Count the additions; nothing is stored."""
        s = graph.structure
        if rejection := require_pairwise(s, question):
            return rejection
        work = cover_of(s).operations
        if work > MAX_OPERATIONS:
            return Verdict.reject(
                f"needs {work:.2g} additions, more than {MAX_OPERATIONS:.2g}: it found no small "
                "set of variables that touches every edge"
            )
        return Verdict.accept(cover_seconds(s), 16.0 * s.table_offsets[-1])

    def map(self, graph: FactorGraph) -> MapResult:
        """Enumerate the labelings of the cover.

        Examples
        --------
        >>> g = FactorGraph([2, 2], [((0, 1), [[0.0, 1.0], [2.0, 0.0]])])
        >>> g.map("vertex-cover").labels
        array([1, 0])
        """
        from cliquewise._kernels.graphs.vertex_cover import Parts, best_by_cover

        p, c = compile_pairwise(graph), cover_of(graph.structure)
        labels = np.zeros(p.topology.n_nodes, dtype=np.int64)
        parts = Parts(c.outer, c.inner, c.rest, c.role, c.rest_offsets)
        best_by_cover(parts, p.arrays, labels)
        return proved_map(graph, labels, self.name)


def cover_seconds(structure: Structure) -> float:
    """Return the estimated time of one answer."""
    return 5e-5 + cover_of(structure).operations / PACE


def cover_of(structure: Structure) -> Cover:
    """Return a vertex cover with few labelings, found once per structure.

    Examples
    --------
    >>> cover_of(Structure([2, 2, 2], [(0, 1), (1, 2)])).rest
    array([0, 2])
    """
    return structure.once(_find)


def _find(structure: Structure) -> Cover:
    t = topology(structure)
    chosen = _greedy(t)
    logs = np.log(t.cards)
    in_cover = np.zeros(t.n_nodes, dtype=bool)
    in_cover[chosen] = True
    rest = np.flatnonzero(~in_cover)
    # The largest inner part that fits; at least one variable, where there is one.
    inner: list[int] = []
    size = 1
    for v in chosen:
        if size * int(t.cards[v]) > INNER and inner:
            break
        inner.append(v)
        size *= int(t.cards[v])
    outer = np.array(chosen[len(inner) :], dtype=np.int64)
    role = np.full(t.n_nodes, 2, dtype=np.int64)
    role[inner], role[outer] = 1, 0
    states = int(t.cards[rest].sum())
    crossing = int(np.sum(role[t.edges].sum(axis=1) == 1)) if t.n_edges else 0
    labelings = float(np.exp(min(logs[chosen].sum(), 700.0))) if chosen else 1.0
    offsets = offsets_of(t.cards[rest])
    return Cover(
        outer, np.array(inner, dtype=np.int64), rest.astype(np.int64), role, offsets,
        labelings * (states + 10.0 * crossing + 1.0) + float(t.n_edges),
    )  # fmt: skip


def _greedy(t: Topology) -> list[int]:
    """Take the variable with the most open edges per bit until none is open, then thin out."""
    degree = np.bincount(t.edges.ravel(), minlength=t.n_nodes).astype(float)
    price = np.maximum(np.log(t.cards), 1e-9)
    limit = math.log(MAX_OPERATIONS)
    if t.n_edges * float(price.min(initial=0.0)) > limit * degree.max(initial=1.0):
        return list(range(t.n_nodes))  # no variable covers more edges than the largest degree

    def neighbors(v: int) -> Ints:
        return np.asarray(t.edges[t.links[t.starts[v] : t.starts[v + 1]]].sum(axis=1) - v)

    taken = np.zeros(t.n_nodes, dtype=bool)
    chosen: list[int] = []
    bits = 0.0
    while degree.max(initial=0.0) > 0 and bits < limit:
        v = int(np.argmax(degree / price))
        chosen.append(v)
        taken[v] = True
        bits += float(price[v])
        others = neighbors(v)
        degree[others[~taken[others]]] -= 1.0
        degree[v] = 0.0
    if degree.max(initial=0.0) > 0:  # too many already: all of them, to state the price
        return list(range(t.n_nodes))
    for v in list(chosen):
        if taken[neighbors(v)].all():
            taken[v] = False
            chosen.remove(v)
    return chosen
