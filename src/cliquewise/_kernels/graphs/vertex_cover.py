"""Exact maximization by listing the labelings of a vertex cover.

Given the labels of a cover, all other variables are independent. The cover is split into an
outer and an inner part, so that the innermost loop runs over the labelings of the inner part
and vectorizes.
"""

import numpy as np

from cliquewise._kernels import kernel

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


@kernel
def entry(e, labels, edges, edge_offsets, cards):
    """Position in the tables of the entry that both ends' labels pick."""
    i, j = edges[e, 0], edges[e, 1]
    return edge_offsets[e] + labels[i] * cards[j] + labels[j]


@kernel
def tie(v, free, e, labels, edges, edge_offsets, tables, cards, out):
    """out[s] += table of edge ``e`` with ``free`` in state s and its other end ``v`` labeled."""
    for s in range(cards[free]):
        labels[free] = s
        out[s] += tables[entry(e, labels, edges, edge_offsets, cards)]


@kernel
def best_by_cover(
    outer,
    inner,
    rest,
    role,
    nodes,
    tables,
    cards,
    node_offsets,
    edges,
    edge_offsets,
    starts,
    links,
    rest_offsets,
    labels,
):
    """Fill ``labels`` with the best labeling; returns its score.

    ``role`` is 0, 1 or 2 for variables of the outer part, the inner part and the rest.
    """
    n_outer, n_inner = 1, 1
    for v in outer:
        n_outer *= cards[v]
    for v in inner:
        n_inner *= cards[v]
    largest = 1
    for v in range(len(cards)):
        largest = max(largest, cards[v])
    inner_score, acc = np.empty(n_inner), np.empty(n_inner)
    states = rest_offsets[-1]
    fields = np.empty((states, n_inner))
    field = np.empty(largest)
    crossing = 0
    for e in range(len(edges)):
        if role[edges[e, 0]] + role[edges[e, 1]] == 1:
            crossing += 1
    for b in range(n_inner):
        decode(b, inner, cards, labels)
        total = 0.0
        for v in inner:
            total += nodes[node_offsets[v] + labels[v]]
        for e in range(len(edges)):
            if role[edges[e, 0]] == 1 and role[edges[e, 1]] == 1:
                total += tables[entry(e, labels, edges, edge_offsets, cards)]
        inner_score[b] = total
        for r in range(len(rest)):
            v = rest[r]
            field[: cards[v]] = 0.0
            for at in range(starts[v], starts[v + 1]):
                e = links[at]
                u = edges[e, 0] + edges[e, 1] - v
                if role[u] == 1:
                    tie(u, v, e, labels, edges, edge_offsets, tables, cards, field)
            for s in range(cards[v]):
                fields[rest_offsets[r] + s, b] = field[s]
    best, best_outer, best_inner = -np.inf, 0, 0
    for a in range(n_outer):
        decode(a, outer, cards, labels)
        total = 0.0
        for v in outer:
            total += nodes[node_offsets[v] + labels[v]]
        for e in range(len(edges)):
            if role[edges[e, 0]] == 0 and role[edges[e, 1]] == 0:
                total += tables[entry(e, labels, edges, edge_offsets, cards)]
        if total == -np.inf:
            continue
        for b in range(n_inner):
            acc[b] = inner_score[b] + total
        if crossing:
            for b in range(n_inner):
                decode(b, inner, cards, labels)
                for e in range(len(edges)):
                    if role[edges[e, 0]] + role[edges[e, 1]] == 1:
                        acc[b] += tables[entry(e, labels, edges, edge_offsets, cards)]
        for r in range(len(rest)):
            v = rest[r]
            k = cards[v]
            for s in range(k):
                field[s] = nodes[node_offsets[v] + s]
            for at in range(starts[v], starts[v + 1]):
                e = links[at]
                u = edges[e, 0] + edges[e, 1] - v
                if role[u] == 0:
                    tie(u, v, e, labels, edges, edge_offsets, tables, cards, field)
            add_best(acc, field, fields[rest_offsets[r] : rest_offsets[r] + k], k)
        for b in range(n_inner):
            if acc[b] > best:
                best, best_outer, best_inner = acc[b], a, b
    if best == -np.inf:
        return best
    decode(best_outer, outer, cards, labels)
    decode(best_inner, inner, cards, labels)
    for v in rest:
        k = cards[v]
        for s in range(k):
            field[s] = nodes[node_offsets[v] + s]
        for at in range(starts[v], starts[v + 1]):
            e = links[at]
            tie(
                edges[e, 0] + edges[e, 1] - v,
                v,
                e,
                labels,
                edges,
                edge_offsets,
                tables,
                cards,
                field,
            )
        labels[v] = np.argmax(field[:k])
    return best
