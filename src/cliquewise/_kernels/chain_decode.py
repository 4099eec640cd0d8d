"""Best labellings of chains, the K best, and samples. Arguments are as in `chain`.

Messages are shifted at every position so that their maximum is 0: the sums of a long chain
would round away the differences that decide.
"""

import numpy as np

from cliquewise._kernels import kernel
from cliquewise._kernels.chain import edge_rows, longest
from cliquewise._kernels.chain_log import forward_log
from cliquewise._kernels.math import fast_exp
from cliquewise._kernels.simd import (
    LANES,
    add,
    aligned_zeros,
    lane_max,
    load,
    load_first,
    maximum,
    padded,
    splat,
    store,
)


@kernel
def decode_workspace(length, n_labels, like):
    """Scratch of `viterbi` for up to ``length`` positions, of the type of ``like``."""
    return aligned_zeros(length * padded(n_labels), like)


@kernel
def path_score(nodes, trans, labels):
    """Score of one labelling."""
    shared = trans.shape[0] == 1
    total = 0.0
    for t in range(nodes.shape[0]):
        total += nodes[t, labels[t]]
        if t > 0:
            total += trans[0 if shared else t - 1, labels[t - 1], labels[t]]
    return total


@kernel
def _best_predecessors(best, at, trans, table, n_labels):
    """Row ``at`` of best = max over i of the row before + trans[table, i]."""
    width = padded(n_labels)
    before = at - width
    nothing = splat(best.dtype.type(-np.inf))
    for j in range(0, width, LANES):
        start, count = table * n_labels * n_labels + j, n_labels - j
        even = odd = nothing
        for i in range(0, n_labels - 1, 2):
            row = load_first(trans, start + i * n_labels, count, nothing)
            even = maximum(add(splat(best[before + i]), row), even)
            row = load_first(trans, start + (i + 1) * n_labels, count, nothing)
            odd = maximum(add(splat(best[before + i + 1]), row), odd)
        if n_labels % 2 == 1:
            i = n_labels - 1
            row = load_first(trans, start + i * n_labels, count, nothing)
            even = maximum(add(splat(best[before + i]), row), even)
        store(best, at + j, maximum(even, odd))


@kernel
def _add_nodes(best, at, nodes, t):
    """Add the scores of position t to its row, and shift the row's maximum to 0."""
    n_labels = nodes.shape[1]
    width = padded(n_labels)
    nothing = splat(nodes.dtype.type(-np.inf))
    high = nothing
    for j in range(0, width, LANES):
        row = load_first(nodes, t * n_labels + j, n_labels - j, nothing)
        if t > 0:
            row = add(row, load(best, at + j))
        store(best, at + j, row)
        high = maximum(row, high)
    shift = lane_max(high)
    if shift > -np.inf:
        for j in range(at, at + width, LANES):
            store(best, j, add(load(best, j), splat(-shift)))
    return shift


@kernel
def viterbi(nodes, trans, labels, work):
    """Best labelling of one chain; of equal ones, the one with the least last label.

    Parameters
    ----------
    nodes, trans : arrays
        Log-scores of shape (T, K), and (1, K, K) or (T - 1, K, K).
    labels : int array of shape (T,)
        Overwritten; zeros where nothing is feasible.
    work : array
        From `decode_workspace`.

    Returns
    -------
    float
        Its score, ``-inf`` where nothing is feasible.
    """
    length, n_labels = nodes.shape
    width = padded(n_labels)
    shared = trans.shape[0] == 1
    for t in range(length):
        if t > 0:
            _best_predecessors(work, t * width, trans, 0 if shared else t - 1, n_labels)
        if not _add_nodes(work, t * width, nodes, t) > -np.inf:
            labels[:length] = 0
            return -np.inf
    # Predecessors are searched again on the way back: K steps per position, not K^2 pointers.
    for t in range(length - 1, -1, -1):
        high = -np.inf
        for i in range(n_labels):
            score = work[t * width + i]
            if t + 1 < length:
                score += trans[0 if shared else t, i, labels[t + 1]]
            if score > high:
                high = score
                labels[t] = i
    return path_score(nodes, trans, labels)


@kernel
def _insert(scores, origins, count, score, origin):
    """Insert into a list sorted from the best down, which may drop its last; new count."""
    k = scores.shape[0]
    if count == k:
        if not score > scores[k - 1]:
            return count
        at = k - 1
    else:
        at = count
        count += 1
    while at > 0 and scores[at - 1] < score:
        scores[at] = scores[at - 1]
        origins[at] = origins[at - 1]
        at -= 1
    scores[at] = score
    origins[at] = origin
    return count


@kernel
def _extend_lists(scores, counts, row, target, target_origins, target_counts):
    """For every label, the k best of all predecessors' lists; row[i, j] is the transition."""
    n_labels, k = scores.shape
    for j in range(n_labels):
        own, own_origins = target[j], target_origins[j]
        count = 0
        for i in range(n_labels):
            for r in range(counts[i]):
                score = scores[i, r] + row[i, j]
                # Lists are sorted: once one is too low, so are all that follow.
                if not score > -np.inf or (count == k and score <= own[k - 1]):
                    break
                count = _insert(own, own_origins, count, score, i * k + r)
        target_counts[j] = count


@kernel
def top_k_viterbi(nodes, trans, labels, scores):
    """The k best labellings of one chain, best first, all different.

    Parameters
    ----------
    nodes, trans : arrays
        Log-scores of shape (T, K), and (1, K, K) or (T - 1, K, K).
    labels : int array of shape (k, T)
    scores : array of shape (k,)
        Rows past the returned count are left as they are.

    Returns
    -------
    int
        How many there are: k, or fewer if fewer are feasible.
    """
    length, n_labels = nodes.shape
    k = scores.shape[0]
    if length == 0 or k == 0:
        scores[:1] = 0
        return min(k, 1)
    shared = trans.shape[0] == 1
    origins = np.zeros((length, n_labels, k), np.int64)
    lists = np.zeros((2, n_labels, k), nodes.dtype)
    counts = np.zeros((2, n_labels), np.int64)
    total = 0.0
    for t in range(length):
        now, before = t % 2, (t + 1) % 2
        if t == 0:
            counts[now] = 1
        else:
            row = trans[0 if shared else t - 1]
            _extend_lists(lists[before], counts[before], row, lists[now], origins[t], counts[now])
        total += _add_to_lists(lists[now], counts[now], nodes[t])
    last = (length - 1) % 2
    best = np.empty(k, nodes.dtype)
    ends = np.empty(k, np.int64)
    count = 0
    for j in range(n_labels):
        for r in range(counts[last, j]):
            count = _insert(best, ends, count, lists[last, j, r], j * k + r)
    for b in range(count):
        scores[b] = best[b] + total
        state = ends[b]
        for t in range(length - 1, -1, -1):
            label, rank = state // k, state % k
            labels[b, t] = label
            state = origins[t, label, rank]
    return count


@kernel
def _add_to_lists(scores, counts, row):
    """Add a node's scores, drop the infeasible, and shift the maximum to 0."""
    high = -np.inf
    for j in range(row.shape[0]):
        if not row[j] > -np.inf:
            counts[j] = 0
        for r in range(counts[j]):
            scores[j, r] += row[j]
            high = max(high, scores[j, r])
    if not high > -np.inf:
        return 0.0
    for j in range(row.shape[0]):
        for r in range(counts[j]):
            scores[j, r] -= high
    return high


@kernel
def _draw(weights, uniform):
    """Index drawn with probability proportional to weights."""
    total = 0.0
    for i in range(weights.shape[0]):
        total += weights[i]
    threshold = uniform * total
    running = 0.0
    chosen = 0
    for i in range(weights.shape[0]):
        # Never an index of weight zero, not even if rounding leaves the end short.
        if weights[i] > 0:
            chosen = i
            running += weights[i]
            if running > threshold:
                break
    return chosen


@kernel
def sample(nodes, trans, uniforms, labels):
    """Independent exact draws from one chain; the same uniforms give the same draws.

    Parameters
    ----------
    nodes, trans : arrays
        Log-scores of shape (T, K), and (1, K, K) or (T - 1, K, K).
    uniforms : array of shape (n, T)
        Random numbers in [0, 1).
    labels : int array of shape (n, T)
        Overwritten; zeros where nothing is feasible.

    Returns
    -------
    float
        log Z, ``-inf`` where nothing is feasible.
    """
    length, n_labels = nodes.shape
    if length == 0:
        return 0.0
    shared = trans.shape[0] == 1
    width = padded(n_labels)
    alpha = decode_workspace(length, n_labels, nodes)
    weights = np.empty(n_labels, nodes.dtype)
    log_z = forward_log(nodes, trans, alpha)
    if not log_z > -np.inf:
        labels[:] = 0
        return log_z
    for n in range(labels.shape[0]):
        for t in range(length - 1, -1, -1):
            high = -np.inf
            for i in range(n_labels):
                weights[i] = alpha[t * width + i]
                if t + 1 < length:
                    weights[i] += trans[0 if shared else t, i, labels[n, t + 1]]
                high = max(high, weights[i])
            for i in range(n_labels):
                weights[i] = fast_exp(weights[i] - nodes.dtype.type(high))
            labels[n, t] = _draw(weights, uniforms[n, t])
    return log_z


@kernel
def batch_viterbi(nodes, offsets, trans, labels, scores):
    """`viterbi` of many chains: labels (N,), scores (n,); see `batch_forward_backward`."""
    work = decode_workspace(longest(offsets), nodes.shape[1], nodes)
    start = 0
    for s in range(offsets.shape[0] - 1):
        first, last = offsets[s], offsets[s + 1]
        own = edge_rows(trans, start, last - first)
        scores[s] = viterbi(nodes[first:last], own, labels[first:last], work)
        start += max(last - first - 1, 0)


@kernel
def batch_top_k(nodes, offsets, trans, labels, scores, counts):
    """`top_k_viterbi` of many chains: labels (k, N), scores (n, k), counts (n,)."""
    start = 0
    for s in range(offsets.shape[0] - 1):
        first, last = offsets[s], offsets[s + 1]
        own = edge_rows(trans, start, last - first)
        counts[s] = top_k_viterbi(nodes[first:last], own, labels[:, first:last], scores[s])
        start += max(last - first - 1, 0)
