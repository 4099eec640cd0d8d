"""Best labelings of chains, and samples. Arguments are as in `chain`.

Messages are shifted at every position so that their maximum is 0: the sums of a long chain
would round away the differences that decide.
"""

import numpy as np

from cliquewise._kernels import kernel
from cliquewise._kernels.chain.log_domain import forward_log
from cliquewise._kernels.chain.sums import edge_rows, longest
from cliquewise._kernels.common.math import fast_exp
from cliquewise._kernels.common.simd import (
    LANES,
    add,
    aligned_zeros,
    fma,
    lane_max,
    load,
    load_first,
    maximum,
    padded,
    splat,
    store,
    store_first,
)


@kernel(inline=True)
def decode_workspace(length, n_labels, like):
    """Allocate scratch of `viterbi` for up to ``length`` positions, of the type of ``like``."""
    return aligned_zeros(length * padded(n_labels), like)


@kernel
def path_score(nodes, trans, labels):
    """Return the score of one labeling."""
    shared = trans.shape[0] == 1
    total = 0.0
    for t in range(nodes.shape[0]):
        total += nodes[t, labels[t]]
        if t > 0:
            total += trans[0 if shared else t - 1, labels[t - 1], labels[t]]
    return total


@kernel
def _best_predecessors(best, at, trans, table, n_labels):
    """Compute ``best[t, j] = max over i of best[t - 1, i] + trans[table, i, j]`` in row ``at``."""
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
def forward_max(nodes, trans, work):
    """Compute the best score up to each position and label, in rows of ``work``.

    Every row is shifted so that its maximum is 0. Returns whether any labeling is feasible.
    """
    length, n_labels = nodes.shape
    width = padded(n_labels)
    shared = trans.shape[0] == 1
    for t in range(length):
        if t > 0:
            _best_predecessors(work, t * width, trans, 0 if shared else t - 1, n_labels)
        if not _add_nodes(work, t * width, nodes, t) > -np.inf:
            return False
    return True


@kernel
def viterbi(nodes, trans, labels, work):
    """Find the MAP labeling of one chain; break ties in favor of the smallest last label.

    Parameters
    ----------
    nodes, trans : arrays
        Log-scores of shape (T, K), and (1, K, K) or (T - 1, K, K).
    labels : int array of shape (T,)
        Overwritten; zeros if no labeling is feasible.
    work : array
        From `decode_workspace`.

    Returns
    -------
    float
        Its score, ``-inf`` if no labeling is feasible.
    """
    length, n_labels = nodes.shape
    width = padded(n_labels)
    shared = trans.shape[0] == 1
    if not forward_max(nodes, trans, work):
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
def _draw(weights, uniform):
    """Return a random index with probability proportional to the weights."""
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
    """Draw independent exact samples of one chain; the same uniforms give the same samples.

    Parameters
    ----------
    nodes, trans : arrays
        Log-scores of shape (T, K), and (1, K, K) or (T - 1, K, K).
    uniforms : array of shape (n, T)
        Random numbers in [0, 1).
    labels : int array of shape (n, T)
        Overwritten; zeros if no labeling is feasible.

    Returns
    -------
    float
        log Z, ``-inf`` if no labeling is feasible.
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
    """Run `viterbi` on many chains: labels (N,), scores (n,); see `batch_forward_backward`."""
    work = decode_workspace(longest(offsets), nodes.shape[1], nodes)
    start = 0
    for s in range(offsets.shape[0] - 1):
        first, last = offsets[s], offsets[s + 1]
        own = edge_rows(trans, start, last - first)
        scores[s] = viterbi(nodes[first:last], own, labels[first:last], work)
        start += max(last - first - 1, 0)


@kernel
def tag(offsets, sizes, indices, values, w, constants, trans, first_example, last_example, labels):
    """Run `viterbi` on many chains, computing scores from their attributes.

    Parameters
    ----------
    offsets, sizes, indices, values : arrays
        Tokens of each chain; how many attributes each token has, which these are (those below 0
        count for nothing), and their values (none if all are 1).
    w : array
        A row of K weights per attribute, and something behind the last row.
    constants : array (3, K padded)
        Scores of every, of the first and of the last token of a chain.
    trans : array (1, K, K)
    first_example, last_example : int
        Which chains.
    labels : int array
        Of all tokens; those of the chains are overwritten.

    Returns
    -------
    int
        The first chain without a feasible labeling; -1 if there is none.
    """
    n_labels, width = trans.shape[1], constants.shape[1]
    length = longest(offsets[first_example : last_example + 1])
    nodes, work = np.empty((length, n_labels), w.dtype), decode_workspace(length, n_labels, w)
    ones = values.shape[0] == 0
    begin = 0
    for t in range(offsets[first_example]):
        begin += sizes[t]
    for i in range(first_example, last_example):
        first, last = offsets[i], offsets[i + 1]
        for t in range(first, last):
            end = begin + sizes[t]
            for j in range(0, n_labels, LANES):
                total = load(constants, j)
                for e in range(begin, end):
                    a = indices[e]
                    if a >= 0 and ones:
                        total = add(total, load(w, a * n_labels + j))
                    elif a >= 0:
                        total = fma(splat(values[e]), load(w, a * n_labels + j), total)
                if t == first:
                    total = add(total, load(constants, width + j))
                if t == last - 1:
                    total = add(total, load(constants, 2 * width + j))
                store_first(nodes, (t - first) * n_labels + j, n_labels - j, total)
            begin = end
        size = last - first
        if size > 0 and not viterbi(nodes[:size], trans, labels[first:last], work) > -np.inf:
            return i
    return -1
