"""The smoothed structured hinge loss of chains: values, gradients, and whole epochs of SVRG.

    loss_i(w) = max over u of  sum_y u_y psi_i(y; w) - mu omega(u),
    psi_i(y; w) = cost_i(y) + <w, F(x_i, y) - F(x_i, y_i)>

``k > 0`` labelings carry the distribution u of the l2 smoother (with ``mu = 0`` and ``k = 1``:
the hinge loss); ``k = 0`` stands for the entropy, with marginals by forward-backward. Either way
the gradient is that of node marginals (T, K) and summed edge marginals (K, K).

The direction of SVRG is dense, but fixed up to the example's own part:

    w <- (1 - a b) w + a b c - a (g_i(w) - g_i(anchor)),     b c = kappa z - mean gradient,

with ``b = lam + kappa``. So ``w = c + s v``, where ``c`` never changes, ``s`` is a number that
shrinks by ``1 - a b`` each time, and ``v`` changes on the example's own attributes alone.
"""

from __future__ import annotations

from collections import namedtuple

import numpy as np

from cliquewise._kernels import kernel
from cliquewise._kernels.chain.features import node_scores, transitions_of
from cliquewise._kernels.chain.smoothers import (
    clear_marginals,
    possible_table,
    smoothed_maximum,
    smoothing_room,
)
from cliquewise._kernels.chain.sums import longest
from cliquewise._kernels.common.simd import (
    LANES,
    add,
    fma,
    keep_bits,
    load,
    load_first,
    no_unroll,
    splat,
    store_first,
)

#: The distributions at the anchor: labelings (N, k) and their shares (n, k); or node (N, K) and
#: edge (n, K, K) marginals. The other two are empty.
Anchor = namedtuple("Anchor", ["labels", "shares", "nodes", "edges"])

#: Differences of shares that are rounding alone, and not worth a visit to the weights. The bound
#: of all rounding errors knows it (``backends/chain/smooth.py``).
ROUNDING = 1e-14


def no_anchor(n_labels: int) -> Anchor:
    """Allocate an anchor without distributions."""
    return Anchor(
        np.empty((0, 1), np.int32), np.empty((0, 1)), np.empty((0, n_labels)),
        np.empty((0, n_labels, n_labels)),
    )  # fmt: skip


@kernel(helper=True)
def _add(chains, first, last, delta, delta_edges, factor, other, out, sums):
    """Add ``factor`` times the features of ``delta`` to ``out``, and ``other`` times to ``sums``.

    Tokens without any difference are not touched; ``sums`` may be empty.
    """
    no_unroll()
    n_labels, edge_free = chains.allowed.shape[1], chains.edge_free
    indptr, indices, values, mask = chains.indptr, chains.indices, chains.values, chains.row_mask
    ones, masked = values.shape[0] == 0, mask.shape[0] > 0
    dense, two = chains.pair_start.shape[0] == 0, sums.shape[0] > 0
    none = splat(out.dtype.type(0))
    for t in range(last - first):
        some = False
        for j in range(n_labels):
            some = some or abs(delta[t, j]) > ROUNDING
        if not some:
            continue
        for e in range(indptr[first + t], indptr[first + t + 1]):
            row = np.int64(indices[e])
            x = 1.0 if ones else values[e]
            if dense:
                for j in range(0, n_labels, LANES):
                    d = load_first(delta, t * n_labels + j, n_labels - j, none)
                    if masked:
                        d = keep_bits(d, mask[row] >> np.uint64(j))
                    at = row * n_labels + j
                    store_first(out, at, n_labels - j, fma(splat(x * factor), d, load(out, at)))
                    if two:
                        y = fma(splat(x * other), d, load(sums, at))
                        store_first(sums, at, n_labels - j, y)
            else:
                for q in range(chains.pair_start[row], chains.pair_start[row + 1]):
                    d_one = x * delta[t, chains.pair_label[q]]
                    out[q] += factor * d_one
                    if two:
                        sums[q] += other * d_one
    if last - first > 1:
        for a in range(n_labels):
            for b in range(n_labels):
                if edge_free[a, b] and delta_edges[a, b] != 0.0:
                    at = chains.edge_start + a * n_labels + b
                    out[at] += factor * delta_edges[a, b]
                    if two:
                        sums[at] += other * delta_edges[a, b]


@kernel(helper=True)
def _less_truth(chains, first, last, p, p_edges):
    """Subtract the gold labeling from the marginals in place; return the expected cost."""
    no_unroll()
    cost = 0.0
    for t in range(last - first):
        truth = chains.labels[first + t]
        if chains.costs.shape[0] > 0:
            for j in range(p.shape[1]):
                cost += chains.costs[first + t, j] * p[t, j]
        else:
            cost += 1.0 - p[t, truth]
        p[t, truth] -= 1.0
        if t > 0:
            p_edges[chains.labels[first + t - 1], truth] -= 1.0
    return cost


@kernel(helper=True)
def _remember(anchor, room, i, first, last, k):
    """Store the distribution just found as that of the anchor."""
    no_unroll()
    n_labels = room.trans.shape[0]
    if k == 0:
        for t in range(last - first):
            for j in range(n_labels):
                anchor.nodes[first + t, j] = room.p[t, j]
        for a in range(n_labels):
            for b in range(n_labels):
                anchor.edges[i, a, b] = room.p_edges[a, b]
        return
    for b in range(k):
        anchor.shares[i, b] = room.best[b]
        if room.best[b] > 0.0:
            for t in range(last - first):
                anchor.labels[first + t, b] = room.labels[b, t]
    for b in range(k, anchor.shares.shape[1]):
        anchor.shares[i, b] = 0.0


@kernel(helper=True)
def _subtract_anchor(anchor, room, i, first, last, k):
    """Subtract the marginals at the anchor from those just found, in place."""
    no_unroll()
    n_labels, p, p_edges = room.trans.shape[0], room.p, room.p_edges
    if k == 0:
        for t in range(last - first):
            for j in range(n_labels):
                p[t, j] -= anchor.nodes[first + t, j]
        for a in range(n_labels):
            for b in range(n_labels):
                p_edges[a, b] -= anchor.edges[i, a, b]
        return
    for b in range(anchor.shares.shape[1]):
        share = anchor.shares[i, b]
        if share > 0.0:
            for t in range(last - first):
                label = anchor.labels[first + t, b]
                p[t, label] -= share
                if t > 0:
                    p_edges[anchor.labels[first + t - 1, b], label] -= share


@kernel(helper=True)
def _two_scores(chains, c, v, s, first, last, out):
    """Compute node scores under the weights ``c + s v``."""
    no_unroll()
    n_labels = chains.allowed.shape[1]
    indptr, indices, values = chains.indptr, chains.indices, chains.values
    ones = values.shape[0] == 0
    if chains.pair_start.shape[0] == 0:
        none = splat(c.dtype.type(0))
        for t in range(last - first):
            begin, end = indptr[first + t], indptr[first + t + 1]
            for j in range(0, n_labels, LANES):
                one = two = none
                for e in range(begin, end):
                    at = np.int64(indices[e]) * n_labels + j
                    if ones:
                        one, two = add(one, load(c, at)), add(two, load(v, at))
                    else:
                        x = splat(values[e])
                        one, two = fma(x, load(c, at), one), fma(x, load(v, at), two)
                store_first(out, t * n_labels + j, n_labels - j, fma(splat(s), two, one))
        return
    start, label = chains.pair_start, chains.pair_label
    for t in range(last - first):
        for j in range(n_labels):
            out[t, j] = 0.0
        for e in range(indptr[first + t], indptr[first + t + 1]):
            x = 1.0 if ones else values[e]
            for q in range(start[indices[e]], start[indices[e] + 1]):
                out[t, label[q]] += x * (c[q] + s * v[q])


@kernel
def smooth_losses(chains, w, mu, k, first_example, last_example, out):
    """Compute the smoothed hinge loss of every example."""
    no_unroll()
    room = smoothing_room(chains, k, w)
    possible_table(transitions_of(chains, w), chains.edge_allowed, room.trans)
    for i in range(first_example, last_example):
        first, last = chains.offsets[i], chains.offsets[i + 1]
        out[i] = 0.0
        if last > first:
            node_scores(chains, w, first, last, room.scores[: last - first])
            out[i] = smoothed_maximum(chains, first, last, mu, k, k, room)[0]


@kernel
def full_gradient(chains, w, mu, k, anchor, first_example, last_example, out):
    """Add the gradient of ``sum_i c_i loss_i`` to ``out``, and store its distributions.

    Parameters
    ----------
    anchor : Anchor
        Written, unless it is empty.

    Returns
    -------
    loss, cost, omega, calls, exact
        Sums over examples: of the losses, of the expected costs and of ``mu omega``, all
        weighted with c_i; of calls, and of those whose k labelings are exact.
    """
    no_unroll()
    room = smoothing_room(chains, k + 1 if k > 0 else 0, w)
    possible_table(transitions_of(chains, w), chains.edge_allowed, room.trans)
    none = out[:0]
    keep = anchor.shares.shape[0] > 0 or anchor.edges.shape[0] > 0
    ask = k if mu == 0.0 else k + 1
    loss, total_cost, total_omega, calls, enough = 0.0, 0.0, 0.0, 0, 0
    for i in range(first_example, last_example):
        first, last = chains.offsets[i], chains.offsets[i + 1]
        size, weight = last - first, chains.weights[i]
        if size == 0:
            continue
        node_scores(chains, w, first, last, room.scores[:size])
        value, omega, exact = smoothed_maximum(chains, first, last, mu, k, ask, room)
        if keep:
            _remember(anchor, room, i, first, last, k)
        loss += weight * value
        total_cost += weight * _less_truth(chains, first, last, room.p, room.p_edges)
        total_omega += weight * omega
        calls += 1
        enough += 1 if exact else 0
        if weight != 0.0:
            _add(chains, first, last, room.p, room.p_edges, weight, 0.0, out, none)
    return loss, total_cost, total_omega, calls, enough


@kernel(helper=True)
def _recall(anchor, i, first, last, p, p_edges):
    """Compute the marginals of the stored labelings."""
    no_unroll()
    clear_marginals(p, last - first, p_edges)
    for b in range(anchor.shares.shape[1]):
        share = anchor.shares[i, b]
        if share > 0.0:
            for t in range(last - first):
                label = anchor.labels[first + t, b]
                p[t, label] += share
                if t > 0:
                    p_edges[anchor.labels[first + t - 1, b], label] += share


@kernel
def kept_gradient(chains, anchor, first_example, last_example, out):
    """Add the gradient of the stored labelings to ``out`` without inference; return their cost."""
    no_unroll()
    n_labels, none, total = chains.allowed.shape[1], out[:0], 0.0
    p, p_edges = np.empty((longest(chains.offsets), n_labels)), np.empty((n_labels, n_labels))
    for i in range(first_example, last_example):
        first, last, weight = chains.offsets[i], chains.offsets[i + 1], chains.weights[i]
        if last == first or weight == 0.0:
            continue
        _recall(anchor, i, first, last, p, p_edges)
        total += weight * _less_truth(chains, first, last, p, p_edges)
        _add(chains, first, last, p, p_edges, weight, 0.0, out, none)
    return total


@kernel
def svrg_epoch(chains, c, v, sums, mu, k, anchor, order, step, shrink, renew):
    """Take SVRG steps on the examples of ``order``, from ``w = c + v``.

    Parameters
    ----------
    c, v : arrays
        The fixed part, and the one that changes.
    sums : array
        Takes ``S dv`` for every change, with S the sum of the scales before it; empty if the
        average is not wanted.
    anchor : Anchor
        From `full_gradient`, or from an epoch with ``renew``.
    step, shrink : float
        The learning rate a, and ``1 - a (lam + kappa)``.
    renew : bool
        Keep the labelings that are found as those of the next epoch's anchor.

    Returns
    -------
    (s, S, loss, omega, calls, exact)
        Afterwards ``w = c + s v``, and the sum of all iterates is ``len(order) c + S v - sums``.
        The rest are sums, as in `full_gradient`; a call is known to be exact if it needed less
        than k.
    """
    no_unroll()
    room = smoothing_room(chains, k, c)
    scale, total, loss, total_omega, calls, enough = 1.0, 0.0, 0.0, 0.0, 0, 0
    trans, fixed, moving = room.trans, transitions_of(chains, c), transitions_of(chains, v)
    for visit in range(order.shape[0]):
        i = order[visit]
        first, last = chains.offsets[i], chains.offsets[i + 1]
        size, weight = last - first, chains.weights[i]
        if size == 0 or weight == 0.0:
            scale *= shrink
            total += scale
            continue
        _two_scores(chains, c, v, scale, first, last, room.scores[:size])
        for a in range(trans.shape[0]):
            for b in range(trans.shape[0]):
                trans[a, b] = fixed[a, b] + scale * moving[a, b]
        possible_table(trans, chains.edge_allowed, trans)
        value, omega, _ = smoothed_maximum(chains, first, last, mu, k, k, room)
        loss, total_omega = loss + weight * value, total_omega + weight * omega
        calls, enough = calls + 1, enough + (mu == 0.0 or k == 0 or room.best[k - 1] == 0.0)
        _subtract_anchor(anchor, room, i, first, last, k)
        if renew:
            _remember(anchor, room, i, first, last, k)
        scale *= shrink
        factor = -step * weight / scale
        _add(chains, first, last, room.p, room.p_edges, factor, factor * total, v, sums)
        total += scale
    return scale, total, loss, total_omega, calls, enough
