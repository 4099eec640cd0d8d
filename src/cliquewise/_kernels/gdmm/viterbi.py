"""Exact Viterbi where most transitions weigh exactly zero, and losses by it.

For a target label the best predecessor is the best of the nonzero entries of its column, or the
best label of all whose entry is zero: nearly always the best of all labels. So a position costs
O(K) plus the nonzero entries of those rows that can beat it, not K^2.
"""

import numpy as np

from cliquewise._kernels import kernel
from cliquewise._kernels.common.simd import padded
from cliquewise._kernels.gdmm.rows import score_all

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


@kernel
def sparse_losses(chains, rows, table, n_labels, first, last, out):
    """Structured hinge losses of examples ``first`` to ``last``; the cost in about nanoseconds."""
    alpha, best, scores = np.zeros(n_labels), np.zeros(n_labels), np.zeros(padded(n_labels))
    leaders = np.zeros(LEADERS, np.int64)
    masked = chains.allowed.shape[0] > 0
    work = 0
    for s in range(first, last):
        begin, end = chains.offsets[s], chains.offsets[s + 1]
        total, truth = 0.0, 0.0
        for t in range(begin, end):
            work += score_all(chains, rows, t, n_labels, scores)
            y = np.int64(chains.labels[t])
            truth += scores[y]
            if t == begin:
                for j in range(n_labels):
                    best[j] = 0.0
            else:
                before = np.int64(chains.labels[t - 1])
                truth += table.values[before * n_labels + y]
                work += best_predecessors(
                    table.values, table.start, table.count, table.label, table.value, table.top,
                    n_labels, alpha, best, leaders,
                ) + 20 * n_labels  # fmt: skip
            high = -np.inf
            scores[y] -= 1.0
            for j in range(n_labels):
                alpha[j] = best[j] + scores[j] + 1.0
            if masked:
                for j in range(n_labels):
                    if not chains.allowed[t, j]:
                        alpha[j] = -np.inf
            for j in range(n_labels):
                high = max(high, alpha[j])
            for j in range(n_labels):
                alpha[j] -= high
            total += high
        out[s] = max(total - truth, 0.0)
    return work


@kernel
def sparse_viterbi(nodes, values, start, count, label, value, top, labels, work):
    """As `chain_decode.viterbi`, with the transitions of `best_predecessors`.

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
