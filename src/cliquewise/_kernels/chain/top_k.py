"""The K best labelings of a chain: one Viterbi pass, then deviations from what was found.

The best scores of all beginnings (`forward_max`) say exactly what a labeling costs that
deviates from a known one: read from the end, it agrees with its parent after some position,
takes another label there, and the best beginning for that label. Each labeling but the first
has one such parent, so that a labeling, once found, is searched for deviations before its own
only. Pass and search cost O(T K^2 + k T K), where lists of k per label cost O(k T K^2).
"""

import numpy as np

from cliquewise._kernels import kernel
from cliquewise._kernels.chain.decode import decode_workspace, forward_max, path_score
from cliquewise._kernels.chain.sums import edge_rows, longest
from cliquewise._kernels.common.simd import padded


@kernel(helper=True)
def _offer(gaps, deviations, filled, gap, parent, position, label):
    """Insert a deviation into the list, sorted by gap, which may drop its last; new count."""
    k = gaps.shape[0]
    if filled == k:
        if not gap < gaps[k - 1]:
            return filled
        at = k - 1
    else:
        at = filled
        filled += 1
    while gaps[at - 1] > gap:
        gaps[at] = gaps[at - 1]
        for f in range(3):
            deviations[at, f] = deviations[at - 1, f]
        at -= 1
    gaps[at] = gap
    deviations[at, 0], deviations[at, 1], deviations[at, 2] = parent, position, label
    return filled


@kernel(helper=True)
def _expand(work, trans, b, row, gaps, deviations, filled, labels, limit):
    """Complete labeling ``b`` on the way to the front, and offer what deviates from it there."""
    length, n_labels, k = labels.shape[1], row.shape[0], gaps.shape[0]
    width = padded(n_labels)
    shared = trans.shape[0] == 1
    parent, position = deviations[b, 0], deviations[b, 1]
    for t in range(position + 1, length):
        labels[b, t] = labels[parent, t]
    if position < length:
        labels[b, position] = deviations[b, 2]
    for t in range(position - 1, -1, -1):
        start, high = t * width, -np.inf
        if t + 1 < length:
            table, after = (0 if shared else t), labels[b, t + 1]
            for i in range(n_labels):
                score = work[start + i] + trans[table, i, after]
                row[i] = score
                if score > high:
                    high = score
        else:
            for i in range(n_labels):
                row[i] = work[start + i]
                if row[i] > high:
                    high = row[i]
        # Only what would enter the list is looked at again; -inf never does.
        floor = high if k == b + 1 else high - (limit - gaps[b])
        if filled == k and k > b + 1:
            floor = max(floor, high - (gaps[k - 1] - gaps[b]))
        best = -1
        for i in range(n_labels):
            if best < 0 and row[i] == high:
                best = i
            elif row[i] > floor:
                gap = gaps[b] + (high - row[i])
                filled = _offer(gaps, deviations, filled, gap, b, t, i)
        labels[b, t] = max(best, 0)
    return filled


@kernel
def top_k_viterbi(nodes, trans, labels, scores, work):
    """The k best labelings of one chain, best first, all different; see `top_k_within`."""
    return top_k_within(nodes, trans, labels, scores, work, np.inf)


@kernel(helper=True)
def top_k_within(nodes, trans, labels, scores, work, limit):
    """Those of the k best labelings of one chain that are less than ``limit`` below the best.

    Parameters
    ----------
    nodes, trans : arrays
        Log-scores of shape (T, K), and (1, K, K) or (T - 1, K, K).
    labels : int array of shape (k, T)
    scores : array of shape (k,)
        Rows past the returned count are free.
    work : array
        From `decode_workspace`, for at least T positions.

    Returns
    -------
    int
        How many there are: k, or fewer if fewer are feasible and within the limit.
    """
    length, n_labels = nodes.shape
    k = scores.shape[0]
    if length == 0 or k == 0:
        scores[:1] = 0
        return min(k, 1)
    if not forward_max(nodes, trans, work):
        return 0
    # Entry b of the list becomes labeling b; those after it are the best deviations so far.
    gaps = np.zeros(k)
    deviations = np.zeros((k, 3), np.int64)
    row = np.empty(n_labels, nodes.dtype)
    deviations[0, 1] = length
    filled, b = 1, 0
    while b < filled:
        filled = _expand(work, trans, b, row, gaps, deviations, filled, labels, limit)
        b += 1
    best = path_score(nodes, trans, labels[0])
    for b in range(filled):
        scores[b] = best - gaps[b]
    return filled


@kernel
def batch_top_k(nodes, offsets, trans, labels, scores, counts):
    """`top_k_viterbi` of many chains: labels (k, N), scores (n, k), counts (n,)."""
    work = decode_workspace(longest(offsets), nodes.shape[1], nodes)
    start = 0
    for s in range(offsets.shape[0] - 1):
        first, last = offsets[s], offsets[s + 1]
        own = edge_rows(trans, start, last - first)
        counts[s] = top_k_viterbi(nodes[first:last], own, labels[:, first:last], scores[s], work)
        start += max(last - first - 1, 0)
