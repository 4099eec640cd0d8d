"""Local search: ascent on any graph, simulated annealing on pairwise graphs."""

from collections import namedtuple

import numpy as np

from cliquewise._kernels import kernel
from cliquewise._kernels.common.simd import copy
from cliquewise._kernels.graphs.pairwise import most_states

#: Factors of any order: the scope of f is ``scopes[scope_offsets[f]:scope_offsets[f + 1]]`` with
#: those ``strides`` in its table, which begins at ``table_offsets[f]``. Variable v is in factors
#: ``members[starts[v]:starts[v + 1]]``, at those ``positions`` in ``scopes``.
Factors = namedtuple(
    "Factors",
    ["cards", "scopes", "scope_offsets", "strides", "table_offsets", "starts", "members",
     "positions"],
)  # fmt: skip


@kernel
def icm(labels, max_sweeps, factors, tables):
    """Set each variable to its best state given the others until nothing changes; in place.

    Forbidden entries are counted apart: fewer of them always wins, so that a start that
    breaks rules climbs out of them where it can. Returns the number of sweeps.
    """
    cards, scopes, scope_offsets, strides, table_offsets, starts, members, positions = factors
    n, largest = len(cards), most_states(cards)
    value, broken = np.empty(largest), np.empty(largest, dtype=np.int64)
    for sweep in range(max_sweeps):
        changed = False
        for v in range(n):
            k = cards[v]
            if k == 1:
                continue
            for x in range(k):
                value[x], broken[x] = 0.0, 0
            for at in range(starts[v], starts[v + 1]):
                f = members[at]
                base = table_offsets[f]
                for p in range(scope_offsets[f], scope_offsets[f + 1]):
                    if scopes[p] != v:
                        base += strides[p] * labels[scopes[p]]
                step = strides[positions[at]]
                for x in range(k):
                    entry = tables[base + x * step]
                    if entry == -np.inf:
                        broken[x] += 1
                    else:
                        value[x] += entry
            best = labels[v]
            for x in range(k):
                if broken[x] < broken[best] or (
                    broken[x] == broken[best] and value[x] > value[best]
                ):
                    best = x
            if best != labels[v]:
                labels[v] = best
                changed = True
        if not changed:
            return sweep + 1
    return max_sweeps


@kernel(inline=True)
def scramble(state):
    """Next state of a 64-bit xorshift generator."""
    state ^= state << np.uint64(13)
    state ^= state >> np.uint64(7)
    state ^= state << np.uint64(17)
    return state


@kernel(inline=True)
def unit(state):
    """A number in [0, 1)."""
    return np.float64(state >> np.uint64(11)) * 2.0**-53


@kernel
def anneal(heat, seed, labels, best_labels, best, graph):
    """Simulated annealing, one sweep per entry of ``heat``; returns the best score seen.

    ``belief`` holds every state's score given the neighbors, so that a refused proposal costs
    nothing but a comparison. All tables must be finite.
    """
    state = np.uint64(seed) * np.uint64(2654435769) + np.uint64(88172645463325252)
    cards, node_offsets, edges, edge_offsets, starts, _, links, nodes, tables = graph
    n, m = len(cards), len(edges)
    belief = nodes.copy()
    score = 0.0
    for e in range(m):
        i, j = edges[e, 0], edges[e, 1]
        base, width = edge_offsets[e], cards[j]
        for x in range(cards[i]):
            belief[node_offsets[i] + x] += tables[base + x * width + labels[j]]
        for y in range(width):
            belief[node_offsets[j] + y] += tables[base + labels[i] * width + y]
        score += tables[base + labels[i] * width + labels[j]]
    for v in range(n):
        score += nodes[node_offsets[v] + labels[v]]
    for sweep in range(len(heat)):
        temperature = heat[sweep]
        for v in range(n):
            k, o, old = cards[v], node_offsets[v], labels[v]
            if k == 1:
                continue
            if k == 2:
                new = 1 - old
            else:
                state = scramble(state)
                new = int(unit(state) * (k - 1))
                if new >= old:
                    new += 1
            gain = belief[o + new] - belief[o + old]
            if gain < 0.0:
                if gain < -40.0 * temperature:
                    continue
                state = scramble(state)
                if unit(state) >= np.exp(gain / temperature):
                    continue
            labels[v] = new
            score += gain
            for a in range(starts[v], starts[v + 1]):
                e = links[a]
                u = edges[e, 0] + edges[e, 1] - v
                to = node_offsets[u]
                if u < v:
                    base = edge_offsets[e]
                    for x in range(cards[u]):
                        at = base + x * k
                        belief[to + x] += tables[at + new] - tables[at + old]
                else:
                    gained = edge_offsets[e] + new * cards[u]
                    lost = edge_offsets[e] + old * cards[u]
                    for x in range(cards[u]):
                        belief[to + x] += tables[gained + x] - tables[lost + x]
        if score > best:
            best = score
            copy(labels, best_labels)
    return best
