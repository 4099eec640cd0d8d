"""Linear scores of chains, and their adjoint: from weights to node scores and back.

A weight vector holds the emission weights first and the K x K transitions from ``edge_start``
on; those of attributes of token pairs, if any, follow them. The
weights of attribute ``a`` are either one per label (``pair_start`` is empty; row ``a`` is
``w[a K : (a + 1) K]``, of which ``row_mask`` may fix some at zero) or one for each label seen
with it (``w[pair_start[a] : ...]``, of the labels ``pair_label[pair_start[a] : ...]``). Vectors
are padded by `LANES` numbers at their end, so that the last row may be read in whole registers.
"""

from __future__ import annotations

from collections import namedtuple

import numpy as np

from cliquewise._kernels import REASSOCIATE, kernel
from cliquewise._kernels.common.simd import (
    LANES,
    add,
    clamp,
    fma,
    keep_bits,
    lane_sum,
    load,
    load_first,
    mul,
    padded,
    prefetch,
    splat,
    store,
    store_first,
    sub,
)

#: Labeled sequences with sparse attributes; empty arrays stand for what does not occur
#: (``values``: all ones; ``allowed``: everything; ``pair_start``: one weight per label;
#: ``row_mask``: all of them free. Bit ``j`` of ``row_mask[a]`` frees the weight of label ``j``;
#: ``edge_free`` says which transitions carry a weight, ``edge_allowed`` which are possible).
#: Scores are those of the weights moved towards zero by ``threshold``: 0 but where an L1 penalty
#: has its weights made from their dual points as they are read. ``costs`` (N, K) is what labels
#: cost at tokens, 0 where they are true; without it a wrong label costs 1.
#: ``pair_start`` to ``threshold`` describe the weights and not the data. There are
#: ``allowed.shape[1]`` labels.
Chains = namedtuple(
    "Chains",
    ["offsets", "indptr", "indices", "values", "labels", "weights", "allowed",
     "pair_start", "pair_label", "row_mask", "edge_start", "edge_free", "edge_allowed",
     "threshold", "costs"],
)  # fmt: skip


@kernel(inline=True)
def cost_of(chains, token, label):
    """Return the cost of a label at a token."""
    if chains.costs.shape[0] > 0:
        return chains.costs[token, label]
    return 0.0 if label == chains.labels[token] else 1.0


@kernel(inline=True)
def transitions_of(chains, w):
    """Return the (K, K) transitions of a weight vector, as a view."""
    n_labels, start = chains.allowed.shape[1], chains.edge_start
    return w[start : start + n_labels * n_labels].reshape(n_labels, n_labels)


@kernel(inline=True)
def shrunk(x, threshold):
    """Soft-threshold ``x``: move it towards zero by the threshold, at most to zero."""
    return x - min(max(x, -threshold), threshold)


@kernel(helper=True)
def shrunk_transitions(chains, w, out):
    """Write the transition weights after soft-thresholding to ``out``."""
    transitions, threshold = transitions_of(chains, w).ravel(), w.dtype.type(chains.threshold)
    for k in range(transitions.size):
        out[k] = shrunk(transitions[k], threshold)


@kernel(inline=True)
def n_attributes_of(chains):
    """Return the number of attributes."""
    if chains.pair_start.shape[0] == 0:
        return chains.edge_start // chains.allowed.shape[1]
    return chains.pair_start.shape[0] - 1


@kernel(inline=True)
def mask_rows(chains, w, begin, end):
    """Set the weights of the attributes ``begin : end`` that are not free to zero."""
    n_labels = chains.allowed.shape[1]
    for a in range(begin, min(end, chains.row_mask.shape[0])):
        for j in range(0, n_labels, LANES):
            row = keep_bits(load(w, a * n_labels + j), chains.row_mask[a] >> j)
            store_first(w, a * n_labels + j, n_labels - j, row)


#: Tokens ahead whose rows are fetched. Rows lie all over the memory, and the processor itself does
#: not look as far as the next token.
AHEAD = 2


@kernel(inline=True)
def _fetch_rows(chains, w, begin, end):
    """Prefetch the weight rows of the attributes of the tokens ``begin : end``."""
    n_labels = chains.allowed.shape[1]
    for e in range(chains.indptr[begin], chains.indptr[end]):
        row = chains.indices[e] * n_labels
        for j in range(0, n_labels, LANES):
            prefetch(w, row + j)


@kernel
def node_scores(chains, w, first, last, out):
    """out[t] = sum of the weight rows of the attributes of token ``first + t``."""
    n_labels = chains.allowed.shape[1]
    indptr, indices, values = chains.indptr, chains.indices, chains.values
    ones, threshold = values.shape[0] == 0, w.dtype.type(chains.threshold)
    if chains.pair_start.shape[0] == 0:
        none, limit = splat(w.dtype.type(0)), splat(threshold)
        _fetch_rows(chains, w, first, min(first + AHEAD, last))
        for t in range(last - first):
            _fetch_rows(chains, w, min(first + t + AHEAD, last), min(first + t + AHEAD + 1, last))
            begin, end = indptr[first + t], indptr[first + t + 1]
            for j in range(0, n_labels, LANES):
                total = none
                if threshold > 0:
                    for e in range(begin, end):
                        x = splat(w.dtype.type(1) if ones else w.dtype.type(values[e]))
                        row = load(w, indices[e] * n_labels + j)
                        total = fma(x, sub(row, clamp(row, limit)), total)
                elif ones:
                    for e in range(begin, end):
                        total = add(total, load(w, indices[e] * n_labels + j))
                else:
                    for e in range(begin, end):
                        x = splat(w.dtype.type(values[e]))
                        total = fma(x, load(w, indices[e] * n_labels + j), total)
                store_first(out, t * n_labels + j, n_labels - j, total)
        return
    start, label = chains.pair_start, chains.pair_label
    for t in range(last - first):
        for j in range(n_labels):
            out[t, j] = 0
        for e in range(indptr[first + t], indptr[first + t + 1]):
            x = w.dtype.type(1) if ones else w.dtype.type(values[e])
            a = indices[e]
            for p in range(start[a], start[a + 1]):
                out[t, label[p]] += x * shrunk(w[p], threshold)


@kernel(helper=True)
def add_features(chains, first, last, delta, factor, out):
    """out += factor * sum over tokens of (attributes of the token) (outer) delta[t]."""
    add_rows(chains, first, last, delta, factor, out, 0, n_attributes_of(chains))


@kernel(helper=True)
def add_rows(chains, first, last, delta, factor, out, begin, end):
    """Do `add_features` for the attributes ``begin : end`` only, the share of one thread."""
    n_labels = chains.allowed.shape[1]
    indptr, indices, values = chains.indptr, chains.indices, chains.values
    ones = values.shape[0] == 0
    none = splat(out.dtype.type(0))
    dense = chains.pair_start.shape[0] == 0
    start, label = chains.pair_start, chains.pair_label
    for t in range(last - first):
        for e in range(indptr[first + t], indptr[first + t + 1]):
            a = indices[e]
            if not begin <= a < end:
                continue
            x = factor if ones else out.dtype.type(factor * values[e])
            if dense:
                row = a * n_labels
                for j in range(0, n_labels, LANES):
                    d = load_first(delta, t * n_labels + j, n_labels - j, none)
                    y = fma(splat(x), d, load(out, row + j))
                    store_first(out, row + j, n_labels - j, y)
            else:
                for p in range(start[a], start[a + 1]):
                    out[p] += x * delta[t, label[p]]


@kernel
def largest_weights(chains, w, out):
    """out[a] = the largest ``|w|`` of attribute ``a``; the last number is that of transitions."""
    n_labels, rows = chains.allowed.shape[1], chains.pair_start.shape[0] == 0
    last = out.shape[0] - 1
    for a in range(last):
        begin = a * n_labels if rows else chains.pair_start[a]
        end = begin + n_labels if rows else chains.pair_start[a + 1]
        most = 0.0
        for p in range(begin, end):
            most = max(most, abs(w[p]))
        out[a] = most
    out[last] = 0.0
    for p in range(chains.edge_start, chains.edge_start + n_labels * n_labels):
        out[last] = max(out[last], abs(w[p]))


@kernel
def feature_sizes(chains, mass, depths, begin, end, out):
    """Compute sums of the values' sizes for each of the attributes ``begin : end``.

    Their sum times the tokens' masses, and that times their depths; the largest; their number.
    """
    ones = chains.values.shape[0] == 0
    for t in range(mass.shape[0]):
        for e in range(chains.indptr[t], chains.indptr[t + 1]):
            a, x = chains.indices[e], 1.0 if ones else abs(chains.values[e])
            if not begin <= a < end:
                continue
            # The four are one row, so that an attribute costs one line of cache.
            row = out[a]
            row[0] += mass[t] * x
            row[1] += mass[t] * depths[t] * x
            row[2] = max(row[2], x)
            row[3] += 1.0


@kernel
def accumulate_features(chains, first, last, delta, out):
    """out += sum over tokens of (attributes of the token) (outer) delta[t]."""
    add_features(chains, first, last, delta, 1.0, out)


@kernel(inline=True)
def most_features(chains):
    """Return the maxima over chains of (distinct attributes, their number of weights)."""
    most_rows, most_weights = 0, 0
    for i in range(chains.offsets.shape[0] - 1):
        begin = chains.indptr[chains.offsets[i]]
        end = chains.indptr[chains.offsets[i + 1]]
        most_rows = max(most_rows, end - begin)
        weights = 0
        if chains.pair_start.shape[0] == 0:
            weights = (end - begin) * padded(chains.allowed.shape[1])
        else:
            for e in range(begin, end):
                a = chains.indices[e]
                weights += chains.pair_start[a + 1] - chains.pair_start[a]
        most_weights = max(most_weights, weights)
    return most_rows, most_weights + LANES


#: A feature vector of one chain without its zeros. Row ``r`` is that of attribute ``rows[r]``; it
#: begins at ``vector[starts[r]]``. ``places`` says the same of every entry of the data, which
#: are read in order, where ``slots``, by attribute, would be read at random.
Compact = namedtuple("Compact", ["slots", "rows", "starts", "places", "vector"])


@kernel(inline=True)
def compact_room(chains, like):
    """Allocate the compact feature vector of any chain."""
    most_rows, most_weights = most_features(chains)
    return Compact(
        np.full(n_attributes_of(chains), -1, np.int32), np.empty(most_rows, np.int32),
        np.empty(most_rows, np.int32), np.empty(most_rows, np.int32),
        np.empty(most_weights, like.dtype),
    )  # fmt: skip


@kernel(helper=True)
def assign_slots(chains, first, last, compact):
    """Give each distinct attribute of a chain a place in a compact vector; return (count, length).

    ``slots`` is -1 everywhere before and after.
    """
    slots, rows, starts, places = compact.slots, compact.rows, compact.starts, compact.places
    width = padded(chains.allowed.shape[1])
    dense = chains.pair_start.shape[0] == 0
    count, used = 0, 0
    begin = chains.indptr[first]
    for e in range(begin, chains.indptr[last]):
        a = chains.indices[e]
        if slots[a] < 0:
            slots[a] = used
            rows[count] = a
            starts[count] = used
            count += 1
            used += width if dense else chains.pair_start[a + 1] - chains.pair_start[a]
        places[e - begin] = slots[a]
    for r in range(count):
        slots[rows[r]] = -1
    return count, used


@kernel(fastmath=REASSOCIATE, helper=True)
def compact_features(chains, first, last, delta, compact, count, used):
    """Write the feature vector of ``delta`` to ``compact.vector``; return its squared norm.

    Attributes repeat within a chain, so the norm is that of the sum, not a sum of norms.
    """
    n_labels, places, vector = chains.allowed.shape[1], compact.places, compact.vector
    indptr, indices, values = chains.indptr, chains.indices, chains.values
    ones = values.shape[0] == 0
    number = vector.dtype.type
    none = splat(number(0))
    dense = chains.pair_start.shape[0] == 0
    start, label = chains.pair_start, chains.pair_label
    for i in range(used):
        vector[i] = 0
    begin = indptr[first]
    for t in range(last - first):
        if dense:
            for j in range(0, n_labels, LANES):
                d = load_first(delta, t * n_labels + j, n_labels - j, none)
                for e in range(indptr[first + t], indptr[first + t + 1]):
                    at = places[e - begin] + j
                    if ones:
                        store(vector, at, add(d, load(vector, at)))
                    else:
                        store(vector, at, fma(splat(number(values[e])), d, load(vector, at)))
        else:
            for e in range(indptr[first + t], indptr[first + t + 1]):
                x = number(1) if ones else number(values[e])
                a = indices[e]
                shift = places[e - begin] - start[a]
                for p in range(start[a], start[a + 1]):
                    vector[p + shift] += x * delta[t, label[p]]
    for r in range(count if chains.row_mask.shape[0] > 0 else 0):
        bits, at = chains.row_mask[compact.rows[r]], compact.starts[r]
        for j in range(0, n_labels, LANES):
            store(vector, at + j, keep_bits(load(vector, at + j), bits >> j))
    if dense:
        squares = none
        for i in range(0, used, LANES):
            v = load(vector, i)
            squares = fma(v, v, squares)
        return lane_sum(squares)
    norm = number(0)
    for i in range(used):
        norm += vector[i] * vector[i]
    return norm


@kernel(helper=True)
def add_compact(chains, compact, count, factor, w):
    """w += factor * the compact feature vector."""
    n_labels = chains.allowed.shape[1]
    rows, starts, vector = compact.rows, compact.starts, compact.vector
    if chains.pair_start.shape[0] == 0:
        c = splat(w.dtype.type(factor))
        for r in range(count):
            a = rows[r]
            row, at = a * n_labels, starts[r]
            for j in range(0, n_labels, LANES):
                y = fma(c, load(vector, at + j), load(w, row + j))
                store_first(w, row + j, n_labels - j, y)
        return
    start = chains.pair_start
    for r in range(count):
        a = rows[r]
        shift = starts[r] - start[a]
        for p in range(start[a], start[a + 1]):
            w[p] += factor * vector[p + shift]


@kernel(helper=True)
def shrunk_bend(chains, compact, count, factor, w):
    """Return the second-order change of ``||.||^2`` of the soft-thresholded weights by a step.

    The step adds factor times the compact feature vector. Without a threshold it gains the squared
    norm of what is added; where weights stay at zero it gains nothing.
    """
    n_labels = chains.allowed.shape[1]
    rows, starts, vector = compact.rows, compact.starts, compact.vector
    c, threshold = w.dtype.type(factor), w.dtype.type(chains.threshold)
    if chains.pair_start.shape[0] == 0:
        total, limit, many = splat(w.dtype.type(0)), splat(threshold), splat(c)
        for r in range(count):
            row, at = rows[r] * n_labels, starts[r]
            for j in range(0, n_labels, LANES):
                v, d = load(w, row + j), mul(many, load(vector, at + j))
                held = clamp(v, limit)
                less = sub(held, clamp(add(v, d), limit))
                moved, over = add(d, less), sub(v, held)
                total = fma(moved, moved, fma(add(over, over), less, total))
        return lane_sum(total)
    gained, start = w.dtype.type(0), chains.pair_start
    for r in range(count):
        a = rows[r]
        for p in range(start[a], start[a + 1]):
            gained += bend_of(w[p], c * vector[p + starts[r] - start[a]], threshold)
    return gained


@kernel(inline=True)
def bend_of(v, d, threshold):
    """Return `shrunk_bend` of one number ``v`` to which ``d`` is added."""
    held = min(max(v, -threshold), threshold)
    less = held - min(max(v + d, -threshold), threshold)
    return (d + less) ** 2 + 2 * (v - held) * less
