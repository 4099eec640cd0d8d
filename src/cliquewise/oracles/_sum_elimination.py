"""Sum out some variables exactly; the others remain in a smaller graph.

Whatever the order, a connected part of the variables that are summed out leaves one table, over
all the others that it touches. So each part is a problem of its own, with copies of those
others, and a good order of it is found as that of any graph in which the copies are tied
together: a tree of cliques can be rooted at any clique, here at the copies, which come last then.
"""

from __future__ import annotations

import heapq
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy.sparse.csgraph import connected_components

from cliquewise._kernels.graphs import junction_tree as passes
from cliquewise.graph.factor_graph import FactorGraph
from cliquewise.graph.structure import MAX_ENTRIES, Structure
from cliquewise.oracles.junction_tree import (
    EliminationOrder,
    analyze_order,
    compile_order,
    elimination_oracle,
    search_budget,
)
from cliquewise.ragged import Floats, Ints, gather, offsets_of

Mask = NDArray[np.bool_]


class Parts(NamedTuple):
    """The connected components of the variables to sum out, with their factors.

    Attributes
    ----------
    sums : ndarray of int
        The variables to sum out; local number ``i`` is ``sums[i]``.
    part : ndarray of int
        The part of each.
    kept : ndarray of int
        The others that parts touch, once for each part, part by part; local numbers follow on.
    bounds : ndarray of int
        Part ``p`` touches ``kept[bounds[p]:bounds[p + 1]]``.
    factors : ndarray of int
        The factors that have a variable to sum out.
    structure : Structure
        These factors, in local numbers.
    """

    sums: Ints
    part: Ints
    kept: Ints
    bounds: Ints
    factors: Ints
    structure: Structure

    @classmethod
    def of(cls, structure: Structure, is_kept: Mask) -> Parts:
        """Find the components of the variables that are not kept."""
        s, n = structure, structure.n_variables
        sums = np.flatnonzero(~is_kept)
        count, part = 0, np.empty(0, dtype=np.int64)
        if len(sums):
            count, part = connected_components(s.adjacency[sums][:, sums], directed=False)
        local = np.full(n, -1, dtype=np.int64)
        local[sums] = np.arange(len(sums))
        owner = np.repeat(np.arange(s.n_factors), s.orders)
        summed = ~is_kept[s.scopes]
        part_of_factor = np.full(s.n_factors, -1, dtype=np.int64)
        part_of_factor[owner[summed]] = part[local[s.scopes[summed]]]
        factors = np.flatnonzero(part_of_factor >= 0)
        here = part_of_factor[owner] >= 0
        scopes, part_of_place, summed = s.scopes[here], part_of_factor[owner[here]], summed[here]
        codes = part_of_place * n + scopes
        touched = np.unique(codes[~summed])
        numbers = np.where(summed, local[scopes], len(sums) + np.searchsorted(touched, codes))
        kept = touched % n if n else touched
        return cls(
            sums, part.astype(np.int64), kept,
            np.searchsorted(touched, np.arange(count + 1) * n),
            factors,
            Structure.from_arrays(
                s.cardinalities[np.concatenate([sums, kept])], numbers,
                offsets_of(s.orders[factors]),
            ),
        )  # fmt: skip


class SumPlan(NamedTuple):
    """An order in which all variables to sum out come first, and its cost."""

    parts: Parts
    order: EliminationOrder
    operations: float
    memory: float


def plan_sums(structure: Structure, is_kept: Mask, seconds: float) -> SumPlan | None:
    """Return the best of several orders; None where all tables are far too large."""
    parts = Parts.of(structure, is_kept)
    s, k = parts.structure, len(parts.sums)
    logs = np.append(0.0, np.cumsum(np.log(structure.cardinalities[parts.kept].astype(float))))
    logs = np.diff(logs[parts.bounds])
    if np.exp(np.minimum(logs, 100.0)).sum() + float(s.table_offsets[-1]) > MAX_ENTRIES:
        return None
    tied = Structure.from_arrays(
        s.cardinalities,
        np.concatenate([s.scopes, k + np.arange(len(parts.kept))]),
        np.concatenate([s.scope_offsets, s.scope_offsets[-1] + parts.bounds[1:]]),
    )
    free = elimination_oracle().best_order(tied, search_budget(seconds))
    if not free.is_complete:
        return None
    order = _rooted(free, np.arange(s.n_variables) >= k)
    last = analyze_order(s, order, free.log_size)
    tables, seps = last.clique_sizes[:k], last.sep_sizes[:k]
    leaving = seps[last.parent[:k] >= k].sum()
    entries = tables.max(initial=0.0) + seps.sum() + leaving + s.table_offsets[-1]
    return SumPlan(parts, last, float(tables.sum()), 8.0 * float(entries))


def _rooted(order: EliminationOrder, last: Mask) -> Ints:
    """Reorder the same cliques so the variables ``last`` come at the end.

    Maximum cardinality search backwards: it makes a perfect order of a chordal graph from any
    clique, and the last of each part are one.
    """
    n = len(last)
    neighbors: list[list[int]] = [[] for _ in range(n)]
    lower = np.repeat(order.order, np.diff(order.sep_offsets))
    for v, u in zip(lower.tolist(), order.order[order.seps].tolist(), strict=True):
        neighbors[v].append(u)
        neighbors[u].append(v)
    seen, count = [False] * n, [0] * n
    waiting = [(not late, 0, v) for v, late in enumerate(last.tolist())]
    heapq.heapify(waiting)
    walk = []
    while waiting:
        _, known, v = heapq.heappop(waiting)
        if seen[v] or -known != count[v]:
            continue
        seen[v] = True
        walk.append(v)
        for u in neighbors[v]:
            if not seen[u]:
                count[u] += 1
                heapq.heappush(waiting, (not last[u], -count[u], u))
    return np.array(walk[::-1], dtype=np.int64)


def sum_out(graph: FactorGraph, is_kept: Mask, plan: SumPlan) -> tuple[FactorGraph, float]:
    """Return the graph of the kept variables, renumbered, and a constant to add."""
    s, k, parts = graph.structure, len(plan.parts.sums), plan.parts
    wiring = compile_order(parts.structure, plan.order)
    tables = graph.tables[gather(s.table_offsets, parts.factors)[0]]
    messages = np.empty(int(wiring.sep_sizes[:k].sum()))
    work = np.empty(int(wiring.clique_sizes[:k].max(initial=0)))
    first = wiring._replace(order=wiring.order[:k])
    constant = passes.upward_sum(first, tables, messages, work, np.zeros(k, dtype=np.int64), False)
    renumber = np.cumsum(is_kept) - 1
    others = np.setdiff1d(np.arange(s.n_factors), parts.factors)
    scopes = [renumber[s.scope(f)] for f in others.tolist()]
    found: list[Floats] = [graph.tables[gather(s.table_offsets, others)[0]]]
    for b in np.flatnonzero(wiring.parent[:k] >= k).tolist():
        places = wiring.seps[wiring.sep_offsets[b] : wiring.sep_offsets[b + 1]]
        scopes.append(renumber[parts.kept[wiring.order[places] - k]])
        start = int(wiring.message_offsets[b])
        found.append(messages[start : start + int(wiring.sep_sizes[b])])
    structure = Structure.from_arrays(
        s.cardinalities[is_kept],
        np.concatenate([np.empty(0, dtype=np.int64), *scopes]),
        offsets_of([len(scope) for scope in scopes]),
    )
    return FactorGraph.from_structure(structure, np.concatenate(found)), float(constant)
