"""Exact Viterbi where most transitions weigh exactly zero.

For a target label the best predecessor is the best of the nonzero entries of its column, or the
best label of all whose entry is zero: nearly always the best of all labels. So a position costs
O(K) plus the nonzero entries of those rows that can beat it, not K^2.
"""

from collections import namedtuple

import numpy as np

from cliquewise._kernels import kernel

#: Label pairs by row whose transition may be nonzero: row ``i`` has the ``count[i]`` entries from
#: ``start[i]`` on, with space up to ``start[i + 1]``; ``value`` and its greatest, ``top``, are what
#: `read_links` found; ``full`` is 1 if there was no space for a pair.
Links = namedtuple("Links", ["start", "count", "label", "value", "top", "full"])

#: How many of the best predecessors are tried before all of them are.
LEADERS = 16


@kernel(helper=True)
def _leaders(alpha, n_labels, leaders):
    """The labels of greatest alpha, best first; how many."""
    size = 0
    for i in range(n_labels):
        a = alpha[i]
        if size == LEADERS and not a > alpha[leaders[size - 1]]:
            continue
        if size < LEADERS:
            size += 1
        at = size - 1
        while at > 0 and a > alpha[leaders[at - 1]]:
            leaders[at] = leaders[at - 1]
            at -= 1
        leaders[at] = i
    return size


@kernel(helper=True)
def _best_zero(values, n_labels, j, alpha, leaders, size):
    """Greatest alpha of the labels whose entry with ``j`` is zero."""
    for r in range(size):
        if values[leaders[r] * n_labels + j] == 0.0:
            return alpha[leaders[r]]
    high = -np.inf
    if size < n_labels:
        for i in range(n_labels):
            if alpha[i] > high and values[i * n_labels + j] == 0.0:
                high = alpha[i]
    return high


@kernel(helper=True)
def best_predecessors(values, start, count, label, value, top, n_labels, alpha, best, leaders):
    """best[j] = max over i of alpha[i] + v(i, j), for all j; how many entries were read.

    ``values`` is the table (K * K), the lists hold at least its nonzero entries by row, ``top``
    bounds those of a row from above.
    """
    size = _leaders(alpha, n_labels, leaders)
    first = leaders[0]
    high = alpha[first]
    for k in range(n_labels):
        best[k] = high
    lowest = high
    for e in range(start[first], start[first] + count[first]):
        if value[e] != 0.0:
            j = np.int64(label[e])
            best[j] = _best_zero(values, n_labels, j, alpha, leaders, size)
            lowest = min(lowest, best[j])
    read = count[first]
    for i in range(n_labels):
        a = alpha[i]
        if a + top[i] > lowest:
            read += count[i]
            for e in range(start[i], start[i] + count[i]):
                j = np.int64(label[e])
                if a + value[e] > best[j]:
                    best[j] = a + value[e]
    return read


@kernel(helper=True)
def add_link(links, i, j):
    """Put a pair into the lists, once."""
    end = links.start[i] + links.count[i]
    for e in range(links.start[i], end):
        if links.label[e] == j:
            return
    if end == links.start[i + 1]:
        links.full[0] = 1
        return
    links.label[end] = j
    links.count[i] += 1


@kernel(helper=True)
def read_links(links, trans):
    """The values of all listed pairs from a (1, K, K) table."""
    for i in range(links.count.shape[0]):
        high = links.top.dtype.type(-np.inf)
        for e in range(links.start[i], links.start[i] + links.count[i]):
            links.value[e] = trans[0, i, links.label[e]]
            high = max(high, links.value[e])
        links.top[i] = high


@kernel
def sparse_viterbi(nodes, values, start, count, label, value, top, labels, work):
    """As `decode.viterbi`, with the transitions of `best_predecessors`.

    ``work`` has one row per position. Predecessors are searched again on the way back.
    """
    length, n_labels = nodes.shape
    best, leaders = np.zeros(n_labels), np.zeros(LEADERS, np.int64)
    for t in range(length):
        if t > 0:
            best_predecessors(
                values, start, count, label, value, top, n_labels, work[t - 1], best, leaders
            )
        high = -np.inf
        for j in range(n_labels):
            work[t, j] = best[j] + nodes[t, j]
            high = max(high, work[t, j])
        if not high > -np.inf:
            for u in range(length):
                labels[u] = 0
            return -np.inf
        for j in range(n_labels):
            work[t, j] -= high
    total = 0.0
    for t in range(length - 1, -1, -1):
        high = -np.inf
        for i in range(n_labels):
            score = work[t, i]
            if t + 1 < length:
                score += values[i * n_labels + labels[t + 1]]
            if score > high:
                high = score
                labels[t] = i
        total += nodes[t, labels[t]]
        if t + 1 < length:
            total += values[labels[t] * n_labels + labels[t + 1]]
    return total


@kernel
def batch_sparse_viterbi(nodes, offsets, values, start, count, label, value, top, labels, scores):
    """`sparse_viterbi` of many chains."""
    longest = 0
    for s in range(offsets.shape[0] - 1):
        longest = max(longest, offsets[s + 1] - offsets[s])
    work = np.zeros((longest, nodes.shape[1]))
    for s in range(offsets.shape[0] - 1):
        first, last = offsets[s], offsets[s + 1]
        scores[s] = sparse_viterbi(
            nodes[first:last], values, start, count, label, value, top, labels[first:last], work
        )
