"""Sequential tree-reweighted message passing (Kolmogorov 2006), as maximization.

One message per edge is kept: after a forward pass it points to the larger variable, after a
backward pass to the smaller one. The bound collected in a backward pass holds for any
messages whatsoever, so rounding cannot make it wrong by more than its own size.
"""

from collections import namedtuple

import numpy as np

from cliquewise._kernels import kernel
from cliquewise._kernels.common.simd import copy
from cliquewise._kernels.graphs.pairwise import most_states

#: One message per edge, of the size of its wider end.
Messages = namedtuple("Messages", ["offsets", "values"])

# Comparisons never see NaN (forbidden states are skipped before anything is subtracted), and
# saying so lets the maxima vectorize. Infinities keep their meaning.
NO_NAN = {"nnan", "nsz"}


@kernel(fastmath=NO_NAN)
def push_rows(source, table, out, ka, kb):
    """out[b] = max over a of source[a] + table[a, b]."""
    for b in range(kb):
        out[b] = -np.inf
    for a in range(ka):
        value = source[a]
        if value == -np.inf:
            continue
        row = table[a * kb : a * kb + kb]
        for b in range(kb):
            out[b] = max(out[b], value + row[b])


@kernel(fastmath=NO_NAN)
def push_columns(source, table, out, ka, kb):
    """out[a] = max over b of source[b] + table[a, b]."""
    for a in range(ka):
        row = table[a * kb : a * kb + kb]
        best = -np.inf
        for b in range(kb):
            best = max(best, source[b] + row[b])
        out[a] = best


@kernel
def decide(v, forward, labels, belief, graph, messages):
    """Label ``v`` given the labels of the neighbors already visited; returns what it adds."""
    k, edges, edge_offsets = graph.cards[v], graph.edges, graph.edge_offsets
    begin, middle, end = graph.starts[v], graph.middles[v], graph.starts[v + 1]
    first, last = (begin, middle) if forward else (middle, end)
    for x in range(k):
        belief[x] = graph.nodes[graph.node_offsets[v] + x]
    for at in range(first, last):
        e = graph.links[at]
        if forward:
            base, step = edge_offsets[e] + labels[edges[e, 0]] * k, 1
        else:
            step = graph.cards[edges[e, 1]]
            base = edge_offsets[e] + labels[edges[e, 1]]
        for x in range(k):
            belief[x] += graph.tables[base + x * step]
    first, last = (middle, end) if forward else (begin, middle)
    best, best_value, alone = 0, -np.inf, -np.inf
    for x in range(k):
        value = belief[x]
        for at in range(first, last):
            value += messages.values[messages.offsets[graph.links[at]] + x]
        if value > best_value:
            best, best_value, alone = x, value, belief[x]
    labels[v] = best
    return alone


@kernel
def one_pass(forward, labels, belief, source, graph, messages):
    """Visit all variables once; returns (bound, score of the labels decided on the way).

    The bound is -inf if some variable has no possible state left.
    """
    cards, nodes, links = graph.cards, graph.nodes, graph.links
    n = len(cards)
    bound, score = 0.0, 0.0
    for visit in range(n):
        v = visit if forward else n - 1 - visit
        k, offset = cards[v], graph.node_offsets[v]
        begin, middle, end = graph.starts[v], graph.middles[v], graph.starts[v + 1]
        score += decide(v, forward, labels, belief, graph, messages)
        top = -np.inf
        for x in range(k):
            value = nodes[offset + x]
            for at in range(begin, end):
                value += messages.values[messages.offsets[links[at]] + x]
            belief[x] = value
            if value == -np.inf:
                nodes[offset + x] = -np.inf  # arc consistency: this state is impossible
            top = max(top, value)
        if top == -np.inf:
            return -np.inf, -np.inf
        bound += top
        share = 1.0 / max(middle - begin, end - middle, 1)
        first, last = (middle, end) if forward else (begin, middle)
        for at in range(first, last):
            e = links[at]
            message = messages.values[messages.offsets[e] : messages.offsets[e + 1]]
            table = graph.tables[graph.edge_offsets[e] : graph.edge_offsets[e + 1]]
            for x in range(k):
                if belief[x] == -np.inf:
                    source[x] = -np.inf
                else:
                    source[x] = share * (belief[x] - top) - message[x]
            ka, kb = cards[graph.edges[e, 0]], cards[graph.edges[e, 1]]
            if forward:
                push_rows(source, table, message, ka, kb)
                size = kb
            else:
                push_columns(source, table, message, ka, kb)
                size = ka
            peak = -np.inf
            for x in range(size):
                peak = max(peak, message[x])
            if peak == -np.inf:
                return -np.inf, -np.inf
            bound += peak
            for x in range(size):
                message[x] -= peak
    return bound, score


@kernel
def trw_s(iterations, tolerance, best, best_labels, bounds, scores, graph, messages):
    """Up to ``iterations`` forward and backward passes; returns how many were made.

    ``best`` is (score, bound) and is updated, as are ``best_labels``, ``messages`` and the
    graph's ``nodes`` (states found impossible become -inf). ``bounds`` and ``scores`` receive one
    value per iteration. Returns -1 if no labeling is possible.
    """
    largest = most_states(graph.cards)
    belief, source = np.empty(largest), np.empty(largest)
    labels = np.zeros(len(graph.cards), dtype=np.int64)
    for iteration in range(iterations):
        for forward in (True, False):
            bound, score = one_pass(forward, labels, belief, source, graph, messages)
            if bound == -np.inf:
                return -1
            if score > best[0]:
                best[0] = score
                copy(labels, best_labels)
        bounds[iteration] = bound
        scores[iteration] = best[0]
        best[1] = min(best[1], bound)
        if best[1] - best[0] <= tolerance:
            return iteration + 1
    return iterations
