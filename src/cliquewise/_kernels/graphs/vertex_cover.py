"""Exact maximization by listing the labelings of a vertex cover.

Given the labels of a cover, all other variables are independent. The cover is split into an
outer and an inner part, so that the innermost loop runs over the labelings of the inner part
and vectorizes.
"""

from collections import namedtuple

import numpy as np

from cliquewise._kernels import kernel
from cliquewise._kernels.graphs.pairwise import most_states

#: Variables of the outer and inner part and the rest, the ``role`` of each (as below), and where
#: the states of each of the rest begin if they stand in a row.
Parts = namedtuple("Parts", ["outer", "inner", "rest", "role", "rest_offsets"])
OUTER, INNER, REST = range(3)

# No NaN can occur (+inf is refused before, and -inf is never subtracted).
NO_NAN = {"nnan", "nsz"}


@kernel(fastmath=NO_NAN)
def add_best(acc, shifts, rows, k):
    """acc[b] += max over s of shifts[s] + rows[s, b]."""
    if k == 2:
        first, second = shifts[0], shifts[1]
        row0, row1 = rows[0], rows[1]
        for b in range(len(acc)):
            acc[b] += max(first + row0[b], second + row1[b])
        return
    for b in range(len(acc)):
        best = -np.inf
        for s in range(k):
            best = max(best, shifts[s] + rows[s, b])
        acc[b] += best


@kernel
def decode(index, members, cards, labels):
    """Write the labels of ``members`` for one number of their joint labeling."""
    for at in range(len(members) - 1, -1, -1):
        v = members[at]
        labels[v] = index % cards[v]
        index //= cards[v]


@kernel(helper=True)
def entry(e, labels, graph):
    """The score of edge ``e`` at the labels of its ends."""
    i, j = graph.edges[e, 0], graph.edges[e, 1]
    return graph.tables[graph.edge_offsets[e] + labels[i] * graph.cards[j] + labels[j]]


@kernel(helper=True)
def own_score(part, members, role, labels, graph):
    """Score of the variables of a part and of the edges inside it."""
    edges, total = graph.edges, 0.0
    for v in members:
        total += graph.nodes[graph.node_offsets[v] + labels[v]]
    for e in range(len(edges)):
        if role[edges[e, 0]] == part and role[edges[e, 1]] == part:
            total += entry(e, labels, graph)
    return total


@kernel(helper=True)
def add_ties(v, part, role, labels, graph, field):
    """field[s] += scores of the edges from ``v`` in state s to a part (REST: to both others)."""
    for at in range(graph.starts[v], graph.starts[v + 1]):
        e = graph.links[at]
        if part == REST or role[graph.edges[e, 0] + graph.edges[e, 1] - v] == part:
            for s in range(graph.cards[v]):
                labels[v] = s
                field[s] += entry(e, labels, graph)


@kernel(helper=True)
def own_field(v, part, role, labels, graph, field):
    """Scores of the states of ``v`` with its edges to a part."""
    for s in range(graph.cards[v]):
        field[s] = graph.nodes[graph.node_offsets[v] + s]
    add_ties(v, part, role, labels, graph, field)


@kernel(helper=True)
def crossing_edges(role, edges):
    """The edges between the outer and the inner part."""
    found, count = np.empty(len(edges), np.int64), 0
    for e in range(len(edges)):
        if role[edges[e, 0]] + role[edges[e, 1]] == OUTER + INNER:
            found[count] = e
            count += 1
    return found[:count]


@kernel
def best_by_cover(parts, graph, labels):
    """Fill ``labels`` with the best labeling; returns its score."""
    outer, inner, rest, role, rest_offsets = parts
    cards = graph.cards
    n_outer, n_inner = 1, 1
    for v in outer:
        n_outer *= cards[v]
    for v in inner:
        n_inner *= cards[v]
    inner_score, acc = np.empty(n_inner), np.empty(n_inner)
    fields, field = np.empty((rest_offsets[-1], n_inner)), np.empty(most_states(cards))
    crossing = crossing_edges(role, graph.edges)
    for b in range(n_inner):
        decode(b, inner, cards, labels)
        inner_score[b] = own_score(INNER, inner, role, labels, graph)
        for r in range(len(rest)):
            v = rest[r]
            for s in range(cards[v]):
                field[s] = 0.0
            add_ties(v, INNER, role, labels, graph, field)
            for s in range(cards[v]):
                fields[rest_offsets[r] + s, b] = field[s]
    best, best_outer, best_inner = -np.inf, 0, 0
    for a in range(n_outer):
        decode(a, outer, cards, labels)
        total = own_score(OUTER, outer, role, labels, graph)
        if total == -np.inf:
            continue
        for b in range(n_inner):
            acc[b] = inner_score[b] + total
        if len(crossing):
            for b in range(n_inner):
                decode(b, inner, cards, labels)
                for e in crossing:
                    acc[b] += entry(e, labels, graph)
        for r in range(len(rest)):
            v = rest[r]
            own_field(v, OUTER, role, labels, graph, field)
            add_best(acc, field, fields[rest_offsets[r] : rest_offsets[r] + cards[v]], cards[v])
        for b in range(n_inner):
            if acc[b] > best:
                best, best_outer, best_inner = acc[b], a, b
    if best == -np.inf:
        return best
    decode(best_outer, outer, cards, labels)
    decode(best_inner, inner, cards, labels)
    for v in rest:
        own_field(v, REST, role, labels, graph, field)
        labels[v] = np.argmax(field[: cards[v]])
    return best
