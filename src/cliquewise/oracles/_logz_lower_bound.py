"""Lower bounds of log Z that stay finite where entries are forbidden.

Variables are eliminated exactly as long as the tables stay small. Where one would need a table
that is too large, Jensen's inequality takes its place: for every distribution q of the variable

    log sum exp f  >=  sum q (f - log q),

which is linear, so that each table is averaged by itself. With q at one state this fixes the
variable there, and the bound is a sum over the labelings that agree with it: finite if one of them
is possible. With wider q it is a mean field whose parts are eliminated exactly. States outside of
q, and what they forbid, only lower the sum; averages of tables that forbid something with q
forbid it for good, which is a lower bound too.
"""

from __future__ import annotations

import numpy as np

from cliquewise._kernels import clock
from cliquewise.graph.factor_graph import FactorGraph
from cliquewise.oracles._mini_buckets import Function, TooLate, _joined, _power_sum
from cliquewise.ragged import Floats, Ints


def sum_below(
    graph: FactorGraph, order: Ints, max_entries: float, nodes: Floats, labels: Ints | None,
    deadline: float,
) -> float:  # fmt: skip
    """Eliminate in ``order``, with averages where tables would be larger than ``max_entries``.

    ``nodes`` has the distributions (a flat array of the states of all variables). Given
    ``labels``, states of q that would forbid that labeling are left out of it.
    """
    cards, offsets = graph.cardinalities, graph.structure.node_offsets
    place = np.empty(len(order), dtype=np.int64)
    place[order] = np.arange(len(order))
    buckets: list[list[Function]] = [[] for _ in order]
    total = 0.0

    def put(scope: tuple[int, ...], table: Floats) -> float:
        if not scope:
            return float(table)
        buckets[place[scope[0]]].append(Function(scope, table))
        return 0.0

    for scope, table in graph.factors:
        axes = sorted(range(len(scope)), key=lambda a: place[scope[a]])
        total += put(tuple(scope[a] for a in axes), table.transpose(axes))
    for at, v in enumerate(order.tolist()):
        if clock.now() > deadline:
            raise TooLate
        found, buckets[at] = buckets[at], []
        if not found:
            total += float(np.log(cards[v]))
        elif len(found) == 1 or _size(found, cards) <= max_entries:
            joined = _joined(found, place, cards)
            total += put(joined.scope[1:], _power_sum(joined.table, 1.0))
        else:
            q = _allowed(nodes[offsets[v] : offsets[v + 1]], found, labels, v)
            states = np.flatnonzero(q > 0)
            total -= float(q[states] @ np.log(q[states]))
            for f in found:
                total += put(f.scope[1:], np.tensordot(q[states], f.table[states], 1))
    return total


def _size(functions: list[Function], cards: Ints) -> float:
    """Return the number of entries of the product of some functions."""
    variables = list({v for f in functions for v in f.scope})
    return float(np.prod(cards[variables].astype(float)))


def _allowed(q: Floats, found: list[Function], labels: Ints | None, v: int) -> Floats:
    """Restrict a distribution to the states that no table forbids, given the labeling."""
    if labels is None:
        return q
    possible = np.ones(len(q), dtype=bool)
    for f in found:
        possible &= f.table[(slice(None), *(labels[u] for u in f.scope[1:]))] > -np.inf
    kept = np.where(possible, q, 0.0)
    if kept[labels[v]] <= 0.0:
        kept = np.zeros(len(q))
        kept[labels[v]] = 1.0
    return np.asarray(kept / kept.sum())
