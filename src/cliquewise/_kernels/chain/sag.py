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
from cliquewise._kernels.chain.features import add_features, mask_rows, node_scores
from cliquewise._kernels.chain.sdca import infer
from cliquewise._kernels.chain.sums import longest, transition_tables, workspace
from cliquewise._kernels.common.simd import LANES, fma, keep_bits, load, mul, splat, store_first
from cliquewise._kernels.common.sum_tree import draw_leaf, rebuild_tree, set_leaf

#: What is remembered of each example. ``smoothness`` is 0 until the first visit; ``sums`` and
#: ``maxima`` are binary trees over it; ``wait`` counts the visits left before it is tried again,
#: ``patience`` the length of that interval.
Memory = namedtuple(
    "Memory",
    ["mu", "mu_edges", "edge_row", "losses", "smoothness", "patience", "wait", "sums", "maxima"],
)

#: Scratch for one inference: masked scores, tables, and room for answers that are not wanted.
Room = namedtuple(
    "Room", ["masked", "masked_edges", "tables", "work", "trial", "trial_edges", "nodes", "edges"]
)

#: Smoothness of what has no gradient at all.
NOTHING = 1e-12

#: A decrease below this share of the loss drowns in rounding and proves nothing.
ROUNDING = 1e-9


@kernel
def _set_maximum(tree, i, value):
    """Change one leaf of a binary tree of maxima."""
    node = i + tree.shape[0] // 2
    tree[node] = value
    node //= 2
    while node >= 1:
        tree[node] = max(tree[2 * node], tree[2 * node + 1])
        node //= 2


@kernel
def _catch_up(chains, a, owed, scale, n_labels, d, v):
    """Row ``a`` of ``v`` becomes ``scale (v - owed d)``, zero where it has no weight."""
    if chains.pair_start.shape[0] == 0:
        minus, factor = splat(v.dtype.type(-owed)), splat(v.dtype.type(scale))
        masked = chains.row_mask.shape[0] > 0
        for j in range(0, n_labels, LANES):
            at = a * n_labels + j
            row = mul(factor, fma(minus, load(d, at), load(v, at)))
            if masked:
                row = keep_bits(row, chains.row_mask[a] >> j)
            store_first(v, at, n_labels - j, row)
    else:
        for p in range(chains.pair_start[a], chains.pair_start[a + 1]):
            v[p] = scale * (v[p] - owed * d[p])


@kernel
def _catch_up_edges(owed, scale, edge_start, n_labels, d, v):
    for p in range(edge_start, edge_start + n_labels * n_labels):
        v[p] = scale * (v[p] - owed * d[p])


@kernel
def _catch_up_example(chains, first, last, moved, caught, edge_start, n_labels, d, v):
    """Bring all rows that an example reads up to date."""
    for e in range(chains.indptr[first], chains.indptr[last]):
        a = chains.indices[e]
        if caught[a] != moved:
            _catch_up(chains, a, moved - caught[a], 1.0, n_labels, d, v)
            caught[a] = moved
    if last - first > 1:
        edges = caught.shape[0] - 1
        _catch_up_edges(moved - caught[edges], 1.0, edge_start, n_labels, d, v)
        caught[edges] = moved


@kernel
def _pay_all(chains, moved, caught, scale, edge_start, n_labels, d, v):
    """Make ``v`` the weights themselves; nothing is owed any more."""
    n_attributes = caught.shape[0] - 1
    for a in range(n_attributes):
        _catch_up(chains, a, moved - caught[a], scale, n_labels, d, v)
    _catch_up_edges(moved - caught[n_attributes], scale, edge_start, n_labels, d, v)
    caught[:] = 0.0


@kernel
def _truth(labels, nodes, edges):
    """Score of a labeling."""
    total = 0.0
    for t in range(labels.shape[0]):
        total += nodes[t, labels[t]]
        if t > 0:
            total += edges[labels[t - 1], labels[t]]
    return total


@kernel
def _store_gradient(chains, memory, i, p, p_edges, edge_free, delta, d, edges_of_d):
    """Replace what is stored of example ``i`` by its new marginals; ``d`` follows."""
    first, last = chains.offsets[i], chains.offsets[i + 1]
    size, n_labels, weight = last - first, p.shape[1], chains.weights[i]
    for t in range(size):
        for j in range(n_labels):
            delta[t, j] = p[t, j] - memory.mu[first + t, j]
            memory.mu[first + t, j] = p[t, j]
    add_features(chains, first, last, delta[:size], weight, n_labels, d)
    if size > 1:
        mu_edges = memory.mu_edges[memory.edge_row[i]]
        for a in range(n_labels):
            for b in range(n_labels):
                if edge_free[a, b]:
                    edges_of_d[a, b] += weight * (p_edges[a, b] - mu_edges[a, b])
                mu_edges[a, b] = p_edges[a, b]


@kernel
def _clear(chains, first, last, n_labels, g):
    """Set the rows of an example's attributes to zero."""
    for e in range(chains.indptr[first], chains.indptr[last]):
        a = chains.indices[e]
        if chains.pair_start.shape[0] == 0:
            begin, end = a * n_labels, (a + 1) * n_labels
        else:
            begin, end = chains.pair_start[a], chains.pair_start[a + 1]
        for p in range(begin, end):
            g[p] = 0.0


@kernel
def _own_gradient(chains, first, last, p, p_edges, edge_free, delta, g, slope, slope_edges):
    """Scores under the gradient ``g = B (p - truth)`` of one loss; returns ``|g|^2``.

    ``|B x|^2 = <x, B' B x>``: the scores under g give the norm, repeated attributes and all.
    ``g`` is zero before and after.
    """
    labels, n_labels = chains.labels[first:last], p.shape[1]
    size = last - first
    for t in range(size):
        for j in range(n_labels):
            delta[t, j] = p[t, j]
        delta[t, labels[t]] -= 1.0
    add_features(chains, first, last, delta[:size], 1.0, n_labels, g)
    if chains.row_mask.shape[0] > 0:
        for e in range(chains.indptr[first], chains.indptr[last]):
            _catch_up(chains, chains.indices[e], 0.0, 1.0, n_labels, g, g)
    node_scores(chains, g, first, last, n_labels, slope[:size])
    _clear(chains, first, last, n_labels, g)
    norm = 0.0
    for t in range(size):
        for j in range(n_labels):
            norm += delta[t, j] * slope[t, j]
    slope_edges[:] = 0.0
    if size > 1:
        slope_edges[:] = p_edges
        for t in range(1, size):
            slope_edges[labels[t - 1], labels[t]] -= 1.0
        for a in range(n_labels):
            for b in range(n_labels):
                if not edge_free[a, b]:
                    slope_edges[a, b] = 0.0
                norm += slope_edges[a, b] * slope_edges[a, b]
    return norm


@kernel
def _loss_along(s, trans, slope, slope_edges, step, labels, allowed, edge_allowed, room):
    """Loss at ``w - step g``, from the scores under w and under g."""
    size, n_labels = s.shape
    for t in range(size):
        for j in range(n_labels):
            room.trial[t, j] = s[t, j] - step * slope[t, j]
    for a in range(n_labels):
        for b in range(n_labels):
            room.trial_edges[a, b] = trans[a, b] - step * slope_edges[a, b]
    log_z = infer(
        room.trial[:size], room.trial_edges, allowed, edge_allowed, room.masked,
        room.masked_edges, room.tables, room.nodes[:size], room.edges, room.work,
    )  # fmt: skip
    return log_z - _truth(labels, room.trial[:size], room.trial_edges)


@kernel
def _try_smoothness(bound, norm, loss, s, trans, slope, slope_edges, labels, allowed,
                    edge_allowed, room):  # fmt: skip
    """(the bound, doubled until the descent inequality holds; the number of trials made)."""
    calls = 0
    while calls < 60 and norm / (2.0 * bound) > ROUNDING * (1.0 + loss):
        value = _loss_along(
            s, trans, slope, slope_edges, 1.0 / bound, labels, allowed, edge_allowed, room
        )
        calls += 1
        if value <= loss - norm / (2.0 * bound):
            break
        bound *= 2.0
    return bound, calls


@kernel
def epoch(chains, memory, w, d, edge_start, edge_free, edge_allowed, lam, order, uniforms):
    """Visit examples, one step each; ``w``, ``d`` and ``memory`` change in place.

    Parameters
    ----------
    chains : Chains
    memory : Memory
    w, d : arrays
        Weights, and the sum of the stored gradients.
    edge_start : int
        Where the K x K transitions begin in both.
    edge_free, edge_allowed : bool arrays
        Transitions that carry a weight; those that are possible.
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
    n_labels = edge_free.shape[0]
    n, pairs = chains.offsets.shape[0] - 1, chains.pair_start.shape[0]
    length = longest(chains.offsets)
    shape, square = (length, n_labels), (n_labels, n_labels)
    room = Room(
        np.empty(shape), np.empty(square), transition_tables(n_labels, w),
        workspace(length, n_labels, w), np.empty(shape), np.empty(square), np.empty(shape),
        np.empty(square),
    )  # fmt: skip
    scores, p, delta, slope = np.empty(shape), np.empty(shape), np.empty(shape), np.empty(shape)
    trans, p_edges, slope_edges = np.empty(square), np.empty(square), np.empty(square)
    g = np.zeros_like(w)
    edges_of_w = w[edge_start : edge_start + n_labels * n_labels].reshape(square)
    edges_of_d = d[edge_start : edge_start + n_labels * n_labels].reshape(square)
    caught = np.zeros((edge_start // n_labels if pairs == 0 else pairs - 1) + 1)
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
        size, weight = last - first, chains.weights[i]
        if size == 0 or weight == 0.0:
            continue
        _catch_up_example(chains, first, last, moved, caught, edge_start, n_labels, d, w)
        allowed, labels = chains.allowed[first:last], chains.labels[first:last]
        s = scores[:size]
        node_scores(chains, w, first, last, n_labels, s)
        for t in range(size):
            for j in range(n_labels):
                s[t, j] *= scale
        for a in range(n_labels):
            for b in range(n_labels):
                trans[a, b] = scale * edges_of_w[a, b]
        log_z = infer(
            s, trans, allowed, edge_allowed, room.masked, room.masked_edges, room.tables,
            p[:size], p_edges, room.work,
        )  # fmt: skip
        calls += 1
        loss = log_z - _truth(labels, s, trans)
        memory.losses[i] = loss
        _store_gradient(chains, memory, i, p, p_edges, edge_free, delta, d, edges_of_d)

        bound = memory.smoothness[i]
        if bound == 0.0:
            bound = max(memory.sums[1] / seen if seen > 0 else 1.0, NOTHING)
            seen += 1
        if memory.wait[i] > 0:
            memory.wait[i] -= 1
        else:
            norm = _own_gradient(
                chains, first, last, p, p_edges, edge_free, delta, g, slope, slope_edges
            )
            # Of the loss without its weight, which scales gradient and smoothness alike.
            own, trials = _try_smoothness(
                bound / weight, norm, loss, s, trans, slope, slope_edges, labels, allowed,
                edge_allowed, room,
            )  # fmt: skip
            calls += trials
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

        mean = memory.sums[1] / seen
        step = 0.5 / (memory.maxima[1] + lam) + 0.5 / (mean + lam)
        step = min(step, 0.5 / lam)
        scale *= 1.0 - step * lam
        moved += step / (seen * scale)
        if scale < 1e-100:
            _pay_all(chains, moved, caught, scale, edge_start, n_labels, d, w)
            scale, moved = 1.0, 0.0
    _pay_all(chains, moved, caught, scale, edge_start, n_labels, d, w)
    mask_rows(chains, n_labels, d)
    return calls
