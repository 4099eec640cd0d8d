"""Stochastic average gradient on chains: whole epochs in one call.

The last gradient of example ``i`` is ``c_i B (mu_i - truth)``, so that node marginals (T, K)
and summed edge marginals (K, K) are all that is stored of it; their sum over the examples is
the vector ``d``. A step asks for the marginals of one example, changes ``d`` by the
difference, and moves all weights by

    w <- (1 - a lam) w - (a / m) d,     m examples seen so far.

That touches only the rows of the example's own attributes (just in time). The weights are
``scale * v``; the shrinking changes ``scale`` alone, and row ``a`` of ``v`` still has to get
``-(moved - caught[a]) d`` since it was last read.

Constants of smoothness ``L_i`` come from the inequality ``f(w - g / L) <= f(w) - |g|^2 / 2L``,
tried at ever longer intervals while it keeps holding (Schmidt et al. 2015, SAG-NUS*); the
step is ``a = (1 / (max L + lam) + 1 / (mean L + lam)) / 2``.
"""

from __future__ import annotations

from collections import namedtuple

import numpy as np

from cliquewise._kernels import kernel
from cliquewise._kernels.chain.features import (
    add_features,
    mask_rows,
    n_attributes_of,
    node_scores,
    transitions_of,
)
from cliquewise._kernels.chain.inference import infer, inference_room, truth_score
from cliquewise._kernels.chain.sums import longest
from cliquewise._kernels.common.simd import (
    LANES,
    copy,
    fma,
    keep_bits,
    load,
    mul,
    splat,
    store_first,
)
from cliquewise._kernels.common.sum_tree import draw_leaf, rebuild_tree, set_leaf

#: Stored quantities of each example. ``smoothness`` is 0 until the first visit; ``sums`` and
#: ``maxima`` are binary trees over it; ``wait`` counts the visits left before it is tried again,
#: ``patience`` the length of that interval.
Memory = namedtuple(
    "Memory",
    ["mu", "mu_edges", "edge_row", "losses", "smoothness", "patience", "wait", "sums", "maxima"],
)

#: Scratch of a visit: scores and marginals; scores under the example's own gradient ``g`` (zero
#: between calls); scores along it, and space for marginals that are not used.
Room = namedtuple(
    "Room",
    ["scores", "trans", "p", "p_edges", "delta", "g", "slope", "slope_edges", "trial",
     "trial_edges", "nodes", "edges", "inference"],
)  # fmt: skip

#: Smoothness of what has no gradient at all.
NOTHING = 1e-12

#: A decrease below this share of the loss drowns in rounding and proves nothing.
ROUNDING = 1e-9


@kernel(helper=True)
def _make_room(chains, w):
    length, n_labels = longest(chains.offsets), chains.allowed.shape[1]
    shape, square = (length, n_labels), (n_labels, n_labels)
    return Room(
        np.empty(shape), np.empty(square), np.empty(shape), np.empty(square), np.empty(shape),
        np.zeros_like(w), np.empty(shape), np.empty(square), np.empty(shape), np.empty(square),
        np.empty(shape), np.empty(square), inference_room(length, n_labels, w),
    )  # fmt: skip


@kernel(helper=True)
def _set_maximum(tree, i, value):
    """Set one leaf of a binary tree of maxima."""
    node = i + tree.shape[0] // 2
    tree[node] = value
    node //= 2
    while node >= 1:
        tree[node] = max(tree[2 * node], tree[2 * node + 1])
        node //= 2


@kernel(helper=True)
def _catch_up(chains, a, owed, scale, d, v):
    """Set row ``a`` of ``v`` to ``scale (v - owed d)``, and to zero where it has no weight."""
    if chains.pair_start.shape[0] == 0:
        n_labels, masked = chains.allowed.shape[1], chains.row_mask.shape[0] > 0
        minus, factor = splat(v.dtype.type(-owed)), splat(v.dtype.type(scale))
        for j in range(0, n_labels, LANES):
            at = a * n_labels + j
            row = mul(factor, fma(minus, load(d, at), load(v, at)))
            if masked:
                row = keep_bits(row, chains.row_mask[a] >> j)
            store_first(v, at, n_labels - j, row)
    else:
        for p in range(chains.pair_start[a], chains.pair_start[a + 1]):
            v[p] = scale * (v[p] - owed * d[p])


@kernel(helper=True)
def _catch_up_edges(chains, owed, scale, d, v):
    for p in range(chains.edge_start, chains.edge_start + chains.edge_free.size):
        v[p] = scale * (v[p] - owed * d[p])


@kernel(helper=True)
def _catch_up_example(chains, first, last, moved, caught, d, v):
    """Bring all rows that an example reads up to date."""
    for e in range(chains.indptr[first], chains.indptr[last]):
        a = chains.indices[e]
        if caught[a] != moved:
            _catch_up(chains, a, moved - caught[a], 1.0, d, v)
            caught[a] = moved
    if last - first > 1:
        edges = caught.shape[0] - 1
        _catch_up_edges(chains, moved - caught[edges], 1.0, d, v)
        caught[edges] = moved


@kernel(helper=True)
def _pay_all(chains, moved, caught, scale, d, v):
    """Apply all pending updates, so ``v`` holds the weights."""
    n_attributes = caught.shape[0] - 1
    for a in range(n_attributes):
        _catch_up(chains, a, moved - caught[a], scale, d, v)
    _catch_up_edges(chains, moved - caught[n_attributes], scale, d, v)
    caught[:] = 0.0


@kernel(helper=True)
def _store_gradient(chains, memory, i, room, d):
    """Replace the stored marginals of example ``i`` by its new ones, and update ``d``."""
    first, last = chains.offsets[i], chains.offsets[i + 1]
    size, n_labels, weight = last - first, chains.allowed.shape[1], chains.weights[i]
    p, p_edges, delta = room.p, room.p_edges, room.delta
    for t in range(size):
        for j in range(n_labels):
            delta[t, j] = p[t, j] - memory.mu[first + t, j]
            memory.mu[first + t, j] = p[t, j]
    add_features(chains, first, last, delta[:size], weight, d)
    if size > 1:
        mu_edges, edges_of_d = memory.mu_edges[memory.edge_row[i]], transitions_of(chains, d)
        for a in range(n_labels):
            for b in range(n_labels):
                if chains.edge_free[a, b]:
                    edges_of_d[a, b] += weight * (p_edges[a, b] - mu_edges[a, b])
                mu_edges[a, b] = p_edges[a, b]


@kernel(helper=True)
def _clear(chains, first, last, g):
    """Set the rows of an example's attributes to zero."""
    n_labels = chains.allowed.shape[1]
    for e in range(chains.indptr[first], chains.indptr[last]):
        a = chains.indices[e]
        if chains.pair_start.shape[0] == 0:
            begin, end = a * n_labels, (a + 1) * n_labels
        else:
            begin, end = chains.pair_start[a], chains.pair_start[a + 1]
        for p in range(begin, end):
            g[p] = 0.0


@kernel(helper=True)
def _own_gradient(chains, first, last, room):
    """Compute scores under the gradient ``g = B (p - truth)`` of one loss; return ``|g|^2``.

    ``|B x|^2 = <x, B' B x>``: the scores under g give the norm, repeated attributes and all.
    """
    labels, n_labels = chains.labels[first:last], chains.allowed.shape[1]
    delta, slope, slope_edges, g = room.delta, room.slope, room.slope_edges, room.g
    size = last - first
    for t in range(size):
        for j in range(n_labels):
            delta[t, j] = room.p[t, j]
        delta[t, labels[t]] -= 1.0
    add_features(chains, first, last, delta[:size], 1.0, g)
    if chains.row_mask.shape[0] > 0:
        for e in range(chains.indptr[first], chains.indptr[last]):
            _catch_up(chains, chains.indices[e], 0.0, 1.0, g, g)
    node_scores(chains, g, first, last, slope[:size])
    _clear(chains, first, last, g)
    norm = 0.0
    for t in range(size):
        for j in range(n_labels):
            norm += delta[t, j] * slope[t, j]
    slope_edges[:] = 0.0
    if size > 1:
        copy(room.p_edges, slope_edges)
        for t in range(1, size):
            slope_edges[labels[t - 1], labels[t]] -= 1.0
        for a in range(n_labels):
            for b in range(n_labels):
                if not chains.edge_free[a, b]:
                    slope_edges[a, b] = 0.0
                norm += slope_edges[a, b] * slope_edges[a, b]
    return norm


@kernel(helper=True)
def _loss_along(chains, first, last, step, room):
    """Return the loss at ``w - step g``, from the scores under w and under g."""
    size, n_labels = last - first, chains.allowed.shape[1]
    for t in range(size):
        for j in range(n_labels):
            room.trial[t, j] = room.scores[t, j] - step * room.slope[t, j]
    for a in range(n_labels):
        for b in range(n_labels):
            room.trial_edges[a, b] = room.trans[a, b] - step * room.slope_edges[a, b]
    log_z = infer(
        room.trial[:size], room.trial_edges, chains.allowed[first:last], chains.edge_allowed,
        room.inference, room.nodes[:size], room.edges,
    )  # fmt: skip
    return log_z - truth_score(chains, first, last, room.trial, room.trial_edges)


@kernel(helper=True)
def _try_smoothness(chains, first, last, bound, loss, room):
    """Double the bound until the descent inequality holds; return (bound, number of trials)."""
    norm = _own_gradient(chains, first, last, room)
    calls = 0
    while calls < 60 and norm / (2.0 * bound) > ROUNDING * (1.0 + loss):
        value = _loss_along(chains, first, last, 1.0 / bound, room)
        calls += 1
        if value <= loss - norm / (2.0 * bound):
            break
        bound *= 2.0
    return bound, calls


@kernel(helper=True)
def _update_smoothness(chains, memory, i, seen, loss, room):
    """Find or check the smoothness of an example when it is due; return the number of trials.

    ``seen`` counts the examples that have one, this one included.
    """
    bound, trials = memory.smoothness[i], 0
    if bound == 0.0:
        bound = max(memory.sums[1] / (seen - 1) if seen > 1 else 1.0, NOTHING)
    if memory.wait[i] > 0:
        memory.wait[i] -= 1
    else:
        # Of the loss without its weight, which scales gradient and smoothness alike.
        first, last, weight = chains.offsets[i], chains.offsets[i + 1], chains.weights[i]
        own, trials = _try_smoothness(chains, first, last, bound / weight, loss, room)
        if trials <= 1:
            memory.patience[i] = min(2 * memory.patience[i] + 1, 63)
            memory.wait[i] = memory.patience[i]
            own *= 0.9 if trials == 1 else 1.0
        else:
            memory.patience[i] = 0
        bound = max(own * weight, NOTHING)
    if bound != memory.smoothness[i]:
        memory.smoothness[i] = bound
        set_leaf(memory.sums, i, bound)
        _set_maximum(memory.maxima, i, bound)
    return trials


@kernel
def epoch(chains, memory, w, d, lam, order, uniforms):
    """Visit examples, one step each; ``w``, ``d`` and ``memory`` change in place.

    Parameters
    ----------
    chains : Chains
    memory : Memory
    w, d : arrays
        Weights, and the sum of the stored gradients.
    lam : float
    order : int array
        Examples to visit; -1 to draw one in proportion to its smoothness.
    uniforms : array
        A number in [0, 1) for each such draw.

    Returns
    -------
    calls : int
        Inferences made.
    """
    n, n_labels, room = chains.offsets.shape[0] - 1, chains.allowed.shape[1], _make_room(chains, w)
    trans, edges_of_w = room.trans, transitions_of(chains, w)
    caught = np.zeros(n_attributes_of(chains) + 1)
    scale, moved, seen, calls = 1.0, 0.0, 0, 0
    rebuild_tree(memory.sums, memory.smoothness)
    for i in range(n):
        _set_maximum(memory.maxima, i, memory.smoothness[i])
        seen += memory.smoothness[i] > 0.0
    for visit in range(order.shape[0]):
        i = order[visit]
        if i < 0:
            i = draw_leaf(memory.sums, uniforms[visit], n)
        first, last = chains.offsets[i], chains.offsets[i + 1]
        size = last - first
        if size == 0 or chains.weights[i] == 0.0:
            continue
        _catch_up_example(chains, first, last, moved, caught, d, w)
        s = room.scores[:size]
        node_scores(chains, w, first, last, s)
        for t in range(size):
            for j in range(n_labels):
                s[t, j] *= scale
        for a in range(n_labels):
            for b in range(n_labels):
                trans[a, b] = scale * edges_of_w[a, b]
        log_z = infer(
            s, trans, chains.allowed[first:last], chains.edge_allowed, room.inference,
            room.p[:size], room.p_edges,
        )  # fmt: skip
        loss = log_z - truth_score(chains, first, last, s, trans)
        memory.losses[i] = loss
        _store_gradient(chains, memory, i, room, d)
        seen += memory.smoothness[i] == 0.0
        calls += 1 + _update_smoothness(chains, memory, i, seen, loss, room)

        mean = memory.sums[1] / seen
        step = 0.5 / (memory.maxima[1] + lam) + 0.5 / (mean + lam)
        step = min(step, 0.5 / lam)
        scale *= 1.0 - step * lam
        moved += step / (seen * scale)
        if scale < 1e-100:
            _pay_all(chains, moved, caught, scale, d, w)
            scale, moved = 1.0, 0.0
    _pay_all(chains, moved, caught, scale, d, w)
    mask_rows(chains, d, 0, chains.row_mask.shape[0])
    return calls
