"""Sequential tree-reweighted message passing (Kolmogorov 2006), as maximization.

One message per edge is kept: after a forward pass it points to the larger variable, after a
backward pass to the smaller one. The bound collected in a backward pass holds for any
messages whatsoever, so rounding cannot make it wrong by more than its own size.
"""

import numpy as np

from cliquewise._kernels import kernel

# Comparisons never see NaN (forbidden states are skipped before anything is subtracted), and
# saying so lets the maxima vectorize. Infinities keep their meaning.
NO_NAN = {"nnan", "nsz"}


@kernel(fastmath=NO_NAN)
def push_rows(source, table, out, ka, kb):
    """out[b] = max over a of source[a] + table[a, b]."""
    out[:kb] = -np.inf
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
def decide(
    v,
    forward,
    labels,
    belief,
    nodes,
    node_offsets,
    edges,
    edge_offsets,
    tables,
    message_offsets,
    messages,
    cards,
    links,
    begin,
    middle,
    end,
):
    """Label ``v`` given the labels of the neighbors already visited; returns what it adds."""
    k = cards[v]
    first, last = (begin, middle) if forward else (middle, end)
    for x in range(k):
        belief[x] = nodes[node_offsets[v] + x]
    for at in range(first, last):
        e = links[at]
        if forward:
            base, step = edge_offsets[e] + labels[edges[e, 0]] * k, 1
        else:
            step = cards[edges[e, 1]]
            base = edge_offsets[e] + labels[edges[e, 1]]
        for x in range(k):
            belief[x] += tables[base + x * step]
    first, last = (middle, end) if forward else (begin, middle)
    best, best_value, alone = 0, -np.inf, -np.inf
    for x in range(k):
        value = belief[x]
        for at in range(first, last):
            value += messages[message_offsets[links[at]] + x]
        if value > best_value:
            best, best_value, alone = x, value, belief[x]
    labels[v] = best
    return alone


@kernel
def one_pass(
    forward,
    labels,
    nodes,
    node_offsets,
    edges,
    edge_offsets,
    tables,
    message_offsets,
    messages,
    cards,
    starts,
    middles,
    links,
    belief,
    source,
):
    """Visit all variables once; returns (bound, score of the labels decided on the way).

    The bound is -inf if some variable has no possible state left.
    """
    n = len(cards)
    bound, score = 0.0, 0.0
    for visit in range(n):
        v = visit if forward else n - 1 - visit
        k, offset = cards[v], node_offsets[v]
        begin, middle, end = starts[v], middles[v], starts[v + 1]
        score += decide(
            v,
            forward,
            labels,
            belief,
            nodes,
            node_offsets,
            edges,
            edge_offsets,
            tables,
            message_offsets,
            messages,
            cards,
            links,
            begin,
            middle,
            end,
        )
        top = -np.inf
        for x in range(k):
            value = nodes[offset + x]
            for at in range(begin, end):
                value += messages[message_offsets[links[at]] + x]
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
            message = messages[message_offsets[e] : message_offsets[e + 1]]
            table = tables[edge_offsets[e] : edge_offsets[e + 1]]
            for x in range(k):
                if belief[x] == -np.inf:
                    source[x] = -np.inf
                else:
                    source[x] = share * (belief[x] - top) - message[x]
            ka, kb = cards[edges[e, 0]], cards[edges[e, 1]]
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
def trw_s(
    iterations,
    tolerance,
    state,
    best_labels,
    bounds,
    scores,
    nodes,
    node_offsets,
    edges,
    edge_offsets,
    tables,
    message_offsets,
    messages,
    cards,
    starts,
    middles,
    links,
):
    """Up to ``iterations`` forward and backward passes; returns how many were made.

    ``state`` is (best score, best bound) and is updated, as are ``best_labels``, ``messages``
    and ``nodes`` (states found impossible become -inf). ``bounds`` and ``scores`` receive one
    value per iteration. Returns -1 if no labeling is possible.
    """
    n = len(cards)
    largest = 1
    for v in range(n):
        largest = max(largest, cards[v])
    belief, source = np.empty(largest), np.empty(largest)
    labels = np.zeros(n, dtype=np.int64)
    for iteration in range(iterations):
        for forward in (True, False):
            bound, score = one_pass(
                forward,
                labels,
                nodes,
                node_offsets,
                edges,
                edge_offsets,
                tables,
                message_offsets,
                messages,
                cards,
                starts,
                middles,
                links,
                belief,
                source,
            )
            if bound == -np.inf:
                return -1
            if score > state[0]:
                state[0] = score
                best_labels[:] = labels
        bounds[iteration] = bound
        scores[iteration] = state[0]
        state[1] = min(state[1], bound)
        if state[1] - state[0] <= tolerance:
            return iteration + 1
    return iterations
