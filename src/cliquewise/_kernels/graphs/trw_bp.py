"""Tree-reweighted sum-product on a pairwise graph (Wainwright, Jaakkola and Willsky 2005).

Two messages per edge, as logarithms: ``low`` points to the smaller variable, ``high`` to the
larger one.
"""

from collections import namedtuple

import numpy as np

from cliquewise._kernels import kernel
from cliquewise._kernels.common.simd import copy
from cliquewise._kernels.graphs.pairwise import most_states

#: Messages of all edges, where each begins, and every state's own score + sum of rho * message.
Messages = namedtuple("Messages", ["low", "high", "low_offsets", "high_offsets", "belief"])


@kernel
def log_sum(values, k):
    """Return the log-sum-exp of the first k values."""
    top = values[:k].max()
    if top == -np.inf:
        return -np.inf
    total = 0.0
    for s in range(k):
        total += np.exp(values[s] - top)
    return top + np.log(total)


@kernel(inline=True)
def send(e, upwards, rho, damping, graph, messages, source, work, fresh):
    """Update one message of edge ``e``; return its largest change (of logarithms, centered)."""
    cards, belief = graph.cards, messages.belief
    i, j = graph.edges[e, 0], graph.edges[e, 1]
    a, b = (i, j) if upwards else (j, i)
    ka, kb = cards[a], cards[b]
    stride_a = cards[j] if upwards else 1
    stride_b = 1 if upwards else cards[j]
    low_at, high_at = messages.low_offsets[e], messages.high_offsets[e]
    back, back_at = (messages.low, low_at) if upwards else (messages.high, high_at)
    out, out_at = (messages.high, high_at) if upwards else (messages.low, low_at)
    base = graph.edge_offsets[e]
    for s in range(ka):
        value = belief[graph.node_offsets[a] + s]
        source[s] = value - back[back_at + s] if value > -np.inf else -np.inf
    top = -np.inf
    for t in range(kb):
        for s in range(ka):
            work[s] = source[s] + graph.tables[base + s * stride_a + t * stride_b] / rho
        fresh[t] = log_sum(work, ka)
        top = max(top, fresh[t])
    change = 0.0
    o = graph.node_offsets[b]
    for t in range(kb):
        old = out[out_at + t]
        new = fresh[t] - top if top > -np.inf else -np.inf
        if old > -np.inf and new > -np.inf:
            new = damping * old + (1.0 - damping) * new
            change = max(change, abs(new - old))
            belief[o + t] += rho * (new - old)
        elif old > -np.inf:
            change = np.inf
            belief[o + t] = -np.inf
        out[out_at + t] = new
    return change


@kernel
def sweep(count, tolerance, rho, damping, graph, messages, changes):
    """Do up to ``count`` sweeps over all edges, forward and back; return how many were done."""
    largest = most_states(graph.cards)
    source, work, fresh = np.empty(largest), np.empty(largest), np.empty(largest)
    m = len(graph.edges)
    for made in range(count):
        change = 0.0
        for turn in range(2 * m):
            upwards = turn < m
            e = turn if upwards else 2 * m - 1 - turn
            one = send(e, upwards, rho[e], damping, graph, messages, source, work, fresh)
            change = max(change, one)
        changes[made] = change
        if change <= tolerance:
            return made + 1
    return count


@kernel
def refresh(rho, graph, messages):
    """Recompute ``belief`` from the messages, so rounding errors do not accumulate."""
    belief, cards, node_offsets = messages.belief, graph.cards, graph.node_offsets
    copy(graph.nodes, belief)
    for e in range(len(graph.edges)):
        i, j = graph.edges[e, 0], graph.edges[e, 1]
        for s in range(cards[i]):
            belief[node_offsets[i] + s] += rho[e] * messages.low[messages.low_offsets[e] + s]
        for s in range(cards[j]):
            belief[node_offsets[j] + s] += rho[e] * messages.high[messages.high_offsets[e] + s]


@kernel
def beliefs(rho, graph, messages, x):
    """Compute normalized pseudo-marginals of variables and edges; return False if one is zero."""
    cards, node_offsets, belief = graph.cards, graph.node_offsets, messages.belief
    shift = node_offsets[-1]
    for v in range(len(cards)):
        o, k = node_offsets[v], cards[v]
        total = log_sum(belief[o:], k)
        if total == -np.inf:
            return False
        for s in range(k):
            x[o + s] = np.exp(belief[o + s] - total)
    for e in range(len(graph.edges)):
        i, j = graph.edges[e, 0], graph.edges[e, 1]
        base, kj = graph.edge_offsets[e], cards[j]
        low, high = messages.low_offsets[e], messages.high_offsets[e]
        for s in range(cards[i]):
            at_i = belief[node_offsets[i] + s]
            at_i = at_i - messages.low[low + s] if at_i > -np.inf else -np.inf
            for t in range(kj):
                at_j = belief[node_offsets[j] + t]
                at_j = at_j - messages.high[high + t] if at_j > -np.inf else -np.inf
                at = base + s * kj + t
                x[shift + at] = at_i + at_j + graph.tables[at] / rho[e]
        size = cards[i] * kj
        total = log_sum(x[shift + base :], size)
        if total == -np.inf:
            return False
        for k in range(size):
            x[shift + base + k] = np.exp(x[shift + base + k] - total)
    return True


@kernel
def repair(x, graph):
    """Make edge tables consistent with the variables' marginals, in place.

    Rows are scaled down to the marginal of the first variable, then columns to that of the
    second, and what is missing is added as a product.
    """
    cards, node_offsets, edges = graph.cards, graph.node_offsets, graph.edges
    shift = node_offsets[-1]
    for v in range(len(cards)):
        total = 0.0
        for k in range(node_offsets[v], node_offsets[v + 1]):
            x[k] = max(x[k], 0.0)
            total += x[k]
        for k in range(node_offsets[v], node_offsets[v + 1]):
            x[k] /= total
    largest = most_states(cards)
    rows, columns = np.empty(largest), np.empty(largest)
    for e in range(len(edges)):
        i, j = edges[e, 0], edges[e, 1]
        ki, kj = cards[i], cards[j]
        oi, oj, base = node_offsets[i], node_offsets[j], shift + graph.edge_offsets[e]
        for s in range(ki):
            total = 0.0
            for t in range(kj):
                x[base + s * kj + t] = max(x[base + s * kj + t], 0.0)
                total += x[base + s * kj + t]
            factor = x[oi + s] / total if total > x[oi + s] else 1.0
            for t in range(kj):
                x[base + s * kj + t] *= factor
        for t in range(kj):
            total = 0.0
            for s in range(ki):
                total += x[base + s * kj + t]
            factor = x[oj + t] / total if total > x[oj + t] else 1.0
            columns[t] = x[oj + t]
            for s in range(ki):
                x[base + s * kj + t] *= factor
                columns[t] -= x[base + s * kj + t]
            columns[t] = max(columns[t], 0.0)
        missing = 0.0
        for s in range(ki):
            rows[s] = x[oi + s]
            for t in range(kj):
                rows[s] -= x[base + s * kj + t]
            rows[s] = max(rows[s], 0.0)
            missing += rows[s]
        if missing > 0.0:
            for s in range(ki):
                for t in range(kj):
                    x[base + s * kj + t] += rows[s] * columns[t] / missing
