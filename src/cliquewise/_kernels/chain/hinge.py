"""The structured hinge loss of chains: values, subgradients, and passes of steps along them.

    loss_i(w) = max over y of  cost_i(y) + <w, F(x_i, y) - F(x_i, y_i)>

The cost is the number of wrong labels, or the sum of their costs (``chains.costs``).

A labeling is always compared with the truth: tokens on which both agree are not touched, so
that the work per labeling is that of its mistakes.
"""

from __future__ import annotations

from collections import namedtuple

import numpy as np

from cliquewise._kernels import kernel
from cliquewise._kernels.chain.decode import decode_workspace, viterbi
from cliquewise._kernels.chain.features import cost_of, node_scores, transitions_of
from cliquewise._kernels.chain.sparse import sparse_viterbi
from cliquewise._kernels.chain.sums import longest
from cliquewise._kernels.common.simd import no_unroll

#: Scratch for the search of labelings of great loss.
Search = namedtuple("Search", ["scores", "work", "labels", "masked"])


@kernel(helper=True)
def search_room(chains, like):
    """Allocate the scratch of `most_violating` for any chain."""
    length, n_labels = longest(chains.offsets), chains.allowed.shape[1]
    return Search(
        np.empty((length, n_labels), like.dtype), decode_workspace(length, n_labels, like),
        np.empty(length, np.int64), np.empty((n_labels, n_labels), like.dtype),
    )  # fmt: skip


@kernel(helper=True)
def possible_transitions(chains, w, masked):
    """Return (1, K, K) transition scores, with -inf for forbidden ones (in ``masked``)."""
    no_unroll()
    n_labels, trans = chains.allowed.shape[1], transitions_of(chains, w)
    if chains.edge_allowed.shape[0] == 0:
        return trans.reshape(1, n_labels, n_labels)
    for a in range(n_labels):
        for b in range(n_labels):
            masked[a, b] = trans[a, b] if chains.edge_allowed[a, b] else -np.inf
    return masked.reshape(1, n_labels, n_labels)


@kernel(helper=True)
def most_violating(chains, w, trans, links, first, last, unit, room):
    """The labeling of greatest loss plus score to ``room``; by how much it beats the truth.

    ``trans`` is from `possible_transitions`; costs are multiplied by ``unit``. ``links`` (None
    where labels are few) holds at least the nonzero transitions.
    """
    no_unroll()
    n_labels, labels = chains.allowed.shape[1], room.labels
    size = last - first
    s = room.scores[:size]
    node_scores(chains, w, first, last, s)
    for t in range(size):
        for j in range(n_labels):
            s[t, j] += unit * cost_of(chains, first + t, j)
        if chains.allowed.shape[0] > 0:
            for j in range(n_labels):
                if not chains.allowed[first + t, j]:
                    s[t, j] = -np.inf
    if links is None:
        viterbi(s, trans, labels[:size], room.work)
    else:
        sparse_viterbi(
            s, trans.reshape(n_labels * n_labels), links.start, links.count, links.label,
            links.value, links.top, labels[:size],
            room.work[: size * n_labels].reshape(size, n_labels),
        )  # fmt: skip
    excess = 0.0
    for t in range(size):
        new, truth = labels[t], chains.labels[first + t]
        if new != truth:
            excess += s[t, new] - s[t, truth]
        if t > 0:
            before, true_before = labels[t - 1], chains.labels[first + t - 1]
            if new != truth or before != true_before:
                excess += trans[0, before, new] - trans[0, true_before, truth]
    return excess


@kernel(helper=True)
def _find_pair(chains, attribute, label):
    """Return the index of the weight of an attribute and a label; -1 if there is none."""
    no_unroll()
    low, high = chains.pair_start[attribute], chains.pair_start[attribute + 1]
    end = high
    while low < high:
        middle = (low + high) // 2
        if chains.pair_label[middle] < label:
            low = middle + 1
        else:
            high = middle
    if low < end and chains.pair_label[low] == label:
        return low
    return np.int64(-1)


@kernel(helper=True)
def _token_score(chains, w, token, new, truth):
    """Return the score of a token's attributes with label ``new`` less that with ``truth``."""
    no_unroll()
    n_labels = chains.allowed.shape[1]
    begin, end = chains.indptr[token], chains.indptr[token + 1]
    indices, values = chains.indices, chains.values
    ones = values.shape[0] == 0
    total = 0.0
    if chains.pair_start.shape[0] == 0:
        for e in range(begin, end):
            row = np.int64(indices[e]) * n_labels
            difference = w[row + new] - w[row + truth]
            total += difference if ones else values[e] * difference
        return total
    for e in range(begin, end):
        x = 1.0 if ones else values[e]
        at = _find_pair(chains, indices[e], new)
        if at >= 0:
            total += x * w[at]
        at = _find_pair(chains, indices[e], truth)
        if at >= 0:
            total -= x * w[at]
    return total


@kernel(helper=True)
def _add_token(chains, token, new, truth, factor, out):
    """Do ``out += factor (attributes with new - with truth)``; return the change of ||out||^2."""
    no_unroll()
    n_labels = chains.allowed.shape[1]
    begin, end = chains.indptr[token], chains.indptr[token + 1]
    indices, values, mask = chains.indices, chains.values, chains.row_mask
    ones, one = values.shape[0] == 0, np.uint64(1)
    dense, masked = chains.pair_start.shape[0] == 0, mask.shape[0] > 0
    change = 0.0
    for e in range(begin, end):
        a = np.int64(indices[e])
        x = factor if ones else factor * values[e]
        if dense:
            at = a * n_labels + new
            if not masked or (mask[a] >> np.uint64(new)) & one:
                change += x * (2.0 * out[at] + x)
                out[at] += x
            at = a * n_labels + truth
            if not masked or (mask[a] >> np.uint64(truth)) & one:
                change -= x * (2.0 * out[at] - x)
                out[at] -= x
        else:
            at = _find_pair(chains, a, new)
            if at >= 0:
                change += x * (2.0 * out[at] + x)
                out[at] += x
            at = _find_pair(chains, a, truth)
            if at >= 0:
                change -= x * (2.0 * out[at] - x)
                out[at] -= x
    return change


@kernel(helper=True)
def segment_score(chains, w, first, last, labels, start, begin, size):
    """Return <w, F(y) - F(y_i)>, y being gold except at positions ``begin : begin + size``.

    There it is ``labels[start : start + size]``. The sequence is the tokens ``first : last``.
    """
    no_unroll()
    n_labels, edge_start = chains.allowed.shape[1], chains.edge_start
    total = 0.0
    before = true_before = chains.labels[first + begin - 1] if begin > 0 else -1
    for k in range(size + 1):
        token = first + begin + k
        if token == last:
            break
        truth = chains.labels[token]
        new = labels[start + k] if k < size else truth
        if new != truth:
            total += _token_score(chains, w, token, new, truth)
        if before >= 0 and (new != truth or before != true_before):
            total += w[edge_start + before * n_labels + new]
            total -= w[edge_start + true_before * n_labels + truth]
        before, true_before = new, truth
    return total


@kernel(helper=True)
def add_segment(chains, first, last, labels, start, begin, size, factor, out):
    """Add ``factor (F(y) - F(y_i))``, y as in `segment_score`; return the change of ||out||^2."""
    no_unroll()
    n_labels, edge_start = chains.allowed.shape[1], chains.edge_start
    edge_free = chains.edge_free
    change = 0.0
    before = true_before = chains.labels[first + begin - 1] if begin > 0 else -1
    for k in range(size + 1):
        token = first + begin + k
        if token == last:
            break
        truth = chains.labels[token]
        new = labels[start + k] if k < size else truth
        if new != truth:
            change += _add_token(chains, token, new, truth, factor, out)
        if before >= 0 and (new != truth or before != true_before):
            if edge_free[before, new]:
                at = edge_start + before * n_labels + new
                change += factor * (2.0 * out[at] + factor)
                out[at] += factor
            if edge_free[true_before, truth]:
                at = edge_start + true_before * n_labels + truth
                change -= factor * (2.0 * out[at] - factor)
                out[at] -= factor
        before, true_before = new, truth
    return change


@kernel(helper=True)
def clear_segment(chains, first, last, labels, start, begin, size, out):
    """Set the weights that `add_segment` may have changed to zero."""
    no_unroll()
    n_labels, edge_start = chains.allowed.shape[1], chains.edge_start
    dense = chains.pair_start.shape[0] == 0
    before = true_before = chains.labels[first + begin - 1] if begin > 0 else -1
    for k in range(size + 1):
        token = first + begin + k
        if token == last:
            break
        truth = chains.labels[token]
        new = labels[start + k] if k < size else truth
        if new != truth:
            for e in range(chains.indptr[token], chains.indptr[token + 1]):
                a = np.int64(chains.indices[e])
                if dense:
                    out[a * n_labels + new] = 0.0
                    out[a * n_labels + truth] = 0.0
                else:
                    for p in range(chains.pair_start[a], chains.pair_start[a + 1]):
                        out[p] = 0.0
        if before >= 0:
            out[edge_start + before * n_labels + new] = 0.0
            out[edge_start + true_before * n_labels + truth] = 0.0
        before, true_before = new, truth


@kernel(helper=True)
def cost_of_labels(chains, first, labels, start, size):
    """Return the cost of ``labels[start : start + size]`` at the tokens from ``first`` on."""
    no_unroll()
    total = 0.0
    for t in range(size):
        total += cost_of(chains, first + t, labels[start + t])
    return total


@kernel
def losses(chains, w, links, first_example, last_example, out):
    """Compute the structured hinge loss of every example."""
    no_unroll()
    room = search_room(chains, w)
    possible = possible_transitions(chains, w, room.masked)
    for i in range(first_example, last_example):
        first, last = chains.offsets[i], chains.offsets[i + 1]
        out[i] = 0.0
        if last > first:
            out[i] = max(most_violating(chains, w, possible, links, first, last, 1.0, room), 0.0)


@kernel
def subgradient(chains, w, links, first_example, last_example, out):
    """Add a subgradient of ``sum_i c_i loss_i`` to ``out``; returns the sum of the losses."""
    no_unroll()
    room = search_room(chains, w)
    possible = possible_transitions(chains, w, room.masked)
    total = 0.0
    for i in range(first_example, last_example):
        first, last = chains.offsets[i], chains.offsets[i + 1]
        if last > first:
            excess = most_violating(chains, w, possible, links, first, last, 1.0, room)
            if excess > 0.0:
                weight = chains.weights[i]
                total += weight * excess
                add_segment(chains, first, last, room.labels, 0, 0, last - first, weight, out)
    return total


@kernel
def pegasos(chains, z, sums, strength, order, visits, origin):
    """Take stochastic subgradient steps of length 1 / (lam s) at times s = origin + visits, ...

    With that length ``w = z n / s`` is kept by adding to ``z`` alone: no step ever scales the
    whole vector (at ``s = 0`` the weights are zero).

    Parameters
    ----------
    z : array
        ``strength * sum over visits of c_i (F_i - F(y))``; changed in place.
    sums : array
        Takes the number of visits before it times every change of ``z``, from which the
        average of all iterates follows; empty for no average.

    Returns
    -------
    (calls, mistakes)
        Viterbi passes, and the sum of ``c_i cost_i`` of the labelings found.
    """
    no_unroll()
    n, room = chains.offsets.shape[0] - 1, search_room(chains, z)
    calls, mistakes = 0, 0.0
    for step in range(order.shape[0]):
        i = order[step]
        before = visits + step
        first, last = chains.offsets[i], chains.offsets[i + 1]
        size, weight = last - first, chains.weights[i]
        if size == 0 or weight == 0.0:
            continue
        possible = possible_transitions(chains, z, room.masked)
        # Scores under z are those under w times s / n: the loss is scaled to match.
        unit = max(origin + before, 1.0) / n
        excess = most_violating(chains, z, possible, None, first, last, unit, room)
        calls += 1
        if excess > 0.0:
            mistakes += weight * cost_of_labels(chains, first, room.labels, 0, size)
            factor = -strength * weight
            add_segment(chains, first, last, room.labels, 0, 0, size, factor, z)
            if sums.shape[0] > 0:
                factor *= before
                add_segment(chains, first, last, room.labels, 0, 0, size, factor, sums)
    return calls, mistakes
