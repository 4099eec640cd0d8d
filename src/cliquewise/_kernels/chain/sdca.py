"""Stochastic dual coordinate ascent on chains: whole epochs in one call.

The dual variable of example ``i`` is a distribution over its labelings. It is kept as a chain
model with scores ``theta_i``: nodes (T, K) and ONE transition table (K, K) for all positions,
in addition to its marginals (node marginals, summed edge marginals) and its log partition ``A_i``.
A step moves along ``theta + eta (s - theta)``, where ``s`` are the scores under the present
weights (the path of exponentiated gradients, Collins et al. 2008), and not along the
mixture ``mu + eta (p - mu)`` of sdca_crf. Both paths have the same ends and the same tangent
at the optimum, and every point of either is a dual feasible distribution. The gains:

* memory ``2 (N K + n K^2)`` numbers instead of ``N K^2``;
* not one logarithm or exponential per edge. With ``delta = s - theta``,

      block gap   g = KL(alpha || p_w) = A(s) - A(theta) - <delta, mu>
      v = <delta, p - mu> = KL(alpha || p_w) + KL(p_w || alpha)

  and so is the change of the dual objective.

Line search: with ``kappa = c ||B (p - mu)||^2 / (lam n v)`` the stationary point satisfies
``1 - eta = kappa r(eta)``, where r is the share of the way from mu to p that is covered at
eta, and the mean of r over [0, 1] is exactly ``g / v``. A power ``r = eta^a`` with that mean
(``a = v / g - 1``) gives eta by a few scalar Newton steps. The step is then accepted only
if the dual objective, evaluated exactly, does not fall; it is halved otherwise.

An elastic net (``chains.threshold`` above 0) has the same dual with the half squared norm of the
SHRUNK vector, each number moved towards zero by the threshold (Shalev-Shwartz and Zhang 2014). What
is called ``w`` here is the vector before that: it is shrunk wherever scores are made, and what a
step costs is measured where weights leave or reach zero, too: most stay there and cost nothing.

With a margin ``1 / gamma`` and weights divided by gamma the same steps maximize the dual of the
structured hinge loss smoothed by gamma times the entropy; with gamma 1 that is the softmax margin.
"""

from __future__ import annotations

from collections import namedtuple

import numpy as np

from cliquewise._kernels import REASSOCIATE, kernel
from cliquewise._kernels.chain.features import (
    add_compact,
    add_rows,
    assign_slots,
    bend_of,
    compact_features,
    compact_room,
    mask_rows,
    node_scores,
    shrunk_bend,
    shrunk_transitions,
    transitions_of,
)
from cliquewise._kernels.chain.inference import infer, inference_room
from cliquewise._kernels.chain.sums import longest
from cliquewise._kernels.chain.threads import draw_member, exchange, exchange_when_due, keep_gap
from cliquewise._kernels.common.simd import copy

#: Dual state of all examples: see the head of this file.
Duals = namedtuple(
    "Duals", ["theta", "theta_edges", "mu", "mu_edges", "log_z", "gaps", "tree", "edge_row"]
)


@kernel(fastmath=REASSOCIATE, helper=True)
def dot_difference(a, b, c, d):
    """(<a - b, c>, <a - b, d>) over the length of ``b``."""
    x, y = 0.0, 0.0
    for i in range(b.size):
        delta = a[i] - b[i]
        x += delta * c[i]
        y += delta * d[i]
    return x, y


@kernel(inline=True)
def _subtract(a, b, out):
    """out = a - b over the length of ``b``."""
    for i in range(b.size):
        out[i] = a[i] - b[i]


@kernel(fastmath=REASSOCIATE, helper=True)
def _free_difference(a, b, free, out):
    """out = (a - b) where ``free`` is 1, over the length of ``b``; returns its squared norm."""
    for i in range(b.size):
        out[i] = (a[i] - b[i]) * free[i]
    # A sum in a loop that writes would be vectorized or not by where the arrays happen to lie
    # in memory, and its last bit with it: the same seed must give the same bits.
    norm = 0.0
    for i in range(b.size):
        norm += out[i] * out[i]
    return norm


@kernel(helper=True)
def blend(a, b, share, out):
    """out = a + share (b - a) over the length of ``a``."""
    share = out.dtype.type(share)
    for i in range(a.size):
        out[i] = a[i] + share * (b[i] - a[i])


@kernel(helper=True)
def step_length(kappa, a):
    """Root of 1 - eta = kappa eta^a in [0, 1]; the left side falls, the right side rises.

    A power is a poor model of r far below its mean: the root is never trusted that far.
    """
    low, high, a = 0.0, 1.0, min(max(a, 0.2), 20.0)
    eta = 1.0 / (1.0 + kappa)
    least = 0.5 * eta
    for _ in range(30):
        power = kappa * eta**a
        value = 1.0 - eta - power
        if value > 0.0:
            low = eta
        else:
            high = eta
        slope = -1.0 - a * power / eta
        new = eta - value / slope
        if not low < new < high:
            new = 0.5 * (low + high)
        if abs(new - eta) < 1e-4 * eta:
            return max(new, least)
        eta = new
    return max(eta, least)


@kernel(inline=True)
def _noise(w):
    """Return the rounding error of the dual objective in a visit, relative to log partitions."""
    return 1e-13 if w.itemsize == 8 else 1e-6


@kernel(inline=True)
def _add_margin(chains, first, last, margin, scores):
    """Add ``margin`` times the costs to the scores, or subtract it from those of gold labels."""
    if chains.costs.shape[0] > 0:
        for t in range(last - first):
            for j in range(scores.shape[1]):
                scores[t, j] += margin * chains.costs[first + t, j]
        return
    for t in range(last - first):
        scores[t, chains.labels[first + t]] -= margin


@kernel
def wrong_mass(chains, mu):
    """Compute expected number and cost of wrong labels: sum_i c_i <cost_i, mu_i>."""
    total, cost = 0.0, 0.0
    for i in range(chains.offsets.shape[0] - 1):
        wrong, paid = 0.0, 0.0
        for t in range(chains.offsets[i], chains.offsets[i + 1]):
            right = chains.labels[t]
            for j in range(mu.shape[1]):
                if j != right:
                    wrong += mu[t, j]
                    if chains.costs.shape[0] > 0:
                        paid += chains.costs[t, j] * mu[t, j]
        total += chains.weights[i] * wrong
        cost += chains.weights[i] * paid
    return total, cost if chains.costs.shape[0] > 0 else total


#: Scratch of an epoch: scores and marginals under the weights; the point of the dual that is
#: tried; by how much its marginals differ from those at hand, and the features of that.
Room = namedtuple(
    "Room",
    ["scores", "trans", "p", "p_edges", "theta", "theta_edges", "mu", "mu_edges", "delta",
     "delta_edges", "free", "inference", "compact"],
)  # fmt: skip

#: The part of one example in `Duals`, as flat arrays; those of edges are empty without any.
Block = namedtuple("Block", ["first", "last", "theta", "theta_edges", "mu", "mu_edges"])


@kernel(inline=True)
def make_room(chains, like):
    length, n_labels = longest(chains.offsets), chains.allowed.shape[1]
    nodes, shape, square = length * n_labels, (n_labels, n_labels), n_labels * n_labels
    free = np.zeros(square, like.dtype)
    for k in range(square):
        free[k] = 1.0 if chains.edge_free.ravel()[k] else 0.0
    return Room(
        np.empty(nodes, like.dtype), np.zeros(shape, like.dtype),
        np.empty(nodes, like.dtype), np.zeros(shape, like.dtype),
        np.empty(nodes, like.dtype), np.zeros(shape, like.dtype),
        np.empty(nodes, like.dtype), np.zeros(shape, like.dtype),
        np.empty(nodes, like.dtype), np.zeros(square, like.dtype),
        free, inference_room(length, n_labels, like), compact_room(chains, like),
    )  # fmt: skip


@kernel(inline=True)
def block_of(chains, duals, i):
    first, last, row = chains.offsets[i], chains.offsets[i + 1], duals.edge_row[i]
    edges = slice(row, row + 1) if last - first > 1 else slice(0, 0)
    return Block(
        first, last, duals.theta[first:last].ravel(), duals.theta_edges[edges].ravel(),
        duals.mu[first:last].ravel(), duals.mu_edges[edges].ravel(),
    )  # fmt: skip


@kernel(inline=True)
def _infer_block(chains, block, nodes, edges, room, mu, mu_edges):
    """Run `infer` on flat nodes."""
    shape = block.last - block.first, edges.shape[0]
    cells = block.mu.size
    return infer(
        nodes[:cells].reshape(shape), edges, chains.allowed[block.first : block.last],
        chains.edge_allowed, room.inference, mu[:cells].reshape(shape), mu_edges,
    )  # fmt: skip


@kernel(helper=True)
def _change(chains, block, mu, mu_edges, room, count, used, w, pull):
    """Return the second-order decrease of the dual objective by the step to ``mu``.

    That is pull times the squared norm of its features less those of the block, which stay in
    ``room``; or, where weights are shrunk, what of it moves them.
    """
    _subtract(mu, block.mu, room.delta)
    table = room.delta[: block.mu.size].reshape(block.last - block.first, mu_edges.shape[0])
    norm = compact_features(chains, block.first, block.last, table, room.compact, count, used)
    norm += _free_difference(mu_edges.ravel(), block.mu_edges, room.free, room.delta_edges)
    if chains.threshold > 0.0:
        bend = shrunk_bend(chains, room.compact, count, -pull, w)
        threshold, trans = w.dtype.type(chains.threshold), transitions_of(chains, w).ravel()
        for k in range(block.mu_edges.size):
            bend += bend_of(trans[k], -pull * room.delta_edges[k], threshold)
        return bend / pull
    return pull * norm


@kernel(helper=True)
def ascend(chains, duals, i, block, w, room, count, used, at_mu, eta, pull, grow):
    """Take the step ``eta``, or a shorter or longer one; return the number of inferences.

    It is halved until the dual does not fall; before that, if it is far too short, it grows by the
    factor ``grow`` (0: never). A negative ``grow`` accepts the step without a check.
    """
    trans, s = room.trans.ravel(), room.scores
    for attempt in range(40):
        blend(block.theta, s, eta, room.theta)
        blend(block.theta_edges, trans, eta, room.theta_edges.ravel())
        log_z = _infer_block(
            chains, block, room.theta, room.theta_edges, room, room.mu, room.mu_edges
        )
        q = _change(chains, block, room.mu, room.mu_edges, room, count, used, w, pull)
        at_new, _ = dot_difference(s, block.theta, room.mu, room.mu)
        edges = room.mu_edges.ravel()
        x, _ = dot_difference(trans, block.theta_edges, edges, edges)
        rise = (1.0 - eta) * (at_new + x) - at_mu + log_z - duals.log_z[i] - 0.5 * q
        risen = rise >= -_noise(w) * (1.0 + abs(log_z))
        short = q < 0.1 * (1.0 - eta) * (at_new + x - at_mu) and eta < 0.25
        if (risen and not (short and grow > 0.0)) or grow < 0.0:
            copy(room.theta[: block.theta.size], block.theta)
            copy(room.mu[: block.mu.size], block.mu)
            duals.log_z[i] = log_z
            add_compact(chains, room.compact, count, -pull, w)
            if block.mu_edges.size > 0:
                copy(room.theta_edges.ravel(), block.theta_edges)
                copy(room.mu_edges.ravel(), block.mu_edges)
                own = transitions_of(chains, w).ravel()
                for k in range(own.size):
                    own[k] -= pull * room.delta_edges[k]
            return attempt + 1
        if risen:
            eta *= grow
        else:
            grow = 0.0
            eta *= 0.5
    return 40


@kernel
def epoch(chains, duals, w, strength, margin, order, uniforms, fixed_step, part):
    """Visit examples, one dual ascent step each.

    Parameters
    ----------
    chains : Chains
    duals : Duals
        Changed in place.
    w : array
        Weights ``strength * sum_i c_i (F_i - B mu_i)``, before they are shrunk; changed in place.
    strength : float
        1 / (lam n), where lam weights the half squared norm.
    margin : float
        What costs are multiplied by and added to the scores; 0 for a likelihood.
    order : int array
        Examples to visit; -1 to draw one by its last seen gap.
    uniforms : array
        A number in [0, 1) for each such draw.
    fixed_step : float
        Step length; 0 for the line search.
    part : Part
        What of all this one of several threads does.

    Returns
    -------
    calls : int
        Inferences made.
    """
    n, room = chains.offsets.shape[0] - 1, make_room(chains, w)
    trans = room.trans
    calls = 0
    for step in range(order.shape[0]):
        i = order[step]
        exchange_when_due(part, w, step)
        if i < 0:
            i = draw_member(duals, part, uniforms[step], n)
        block = block_of(chains, duals, i)
        first, last, cells = block.first, block.last, block.mu.size
        if first == last:
            continue
        weight = chains.weights[i]
        pull = weight * strength
        s = room.scores[:cells].reshape(last - first, trans.shape[0])
        node_scores(chains, w, first, last, s)
        shrunk_transitions(chains, w, trans.ravel())
        if margin != 0.0:
            _add_margin(chains, first, last, margin, s)
        log_z = _infer_block(chains, block, room.scores, trans, room, room.p, room.p_edges)
        calls += 1
        at_mu, at_p = dot_difference(room.scores, block.theta, block.mu, room.p)
        x, y = dot_difference(
            trans.ravel(), block.theta_edges, block.mu_edges, room.p_edges.ravel()
        )
        at_mu, at_p = at_mu + x, at_p + y
        gap = max(log_z - duals.log_z[i] - at_mu, 0.0)
        v = at_p - at_mu
        keep_gap(duals, part, i, weight * gap)
        if not v > 0.1 * _noise(w) * (1.0 + abs(log_z)) or weight == 0.0:
            continue
        count, used = assign_slots(chains, first, last, room.compact)
        eta, grow = fixed_step, -1.0
        if fixed_step == 0.0:
            grow = 4.0
            q = _change(chains, block, room.p, room.p_edges, room, count, used, w, pull)
            kappa = q / v
            eta = step_length(kappa, v / gap - 1.0 if gap > 0.0 else 1.0)
        calls += ascend(chains, duals, i, block, w, room, count, used, at_mu, eta, pull, grow)
    if part.every > 0:
        exchange(part, w, 0)
    return calls


@kernel
def infer_all(chains, duals):
    """Marginals and log partitions of all dual variables from their scores."""
    n_labels = chains.allowed.shape[1]
    room = inference_room(longest(chains.offsets), n_labels, duals.theta)
    edges = np.zeros((n_labels, n_labels), duals.theta.dtype)
    expectation = np.zeros_like(edges)
    for i in range(chains.offsets.shape[0] - 1):
        first, last, row = chains.offsets[i], chains.offsets[i + 1], duals.edge_row[i]
        if last - first > 1:
            copy(duals.theta_edges[row], edges)
        duals.log_z[i] = infer(
            duals.theta[first:last], edges, chains.allowed[first:last], chains.edge_allowed, room,
            duals.mu[first:last], expectation,
        )  # fmt: skip
        if last - first > 1:
            copy(expectation, duals.mu_edges[row])


@kernel
def weights_of_duals(chains, duals, strength, w, begin, end):
    """w += strength * sum_i c_i (F_i - B mu_i).

    Those of the attributes ``begin : end``, for one of several threads; whose attributes begin
    with the first has the transitions, too.
    """
    n_labels = chains.allowed.shape[1]
    delta = np.empty((longest(chains.offsets), n_labels), w.dtype)
    edges = np.empty((n_labels, n_labels), w.dtype)
    trans = transitions_of(chains, w)
    for i in range(chains.offsets.shape[0] - 1):
        first, last = chains.offsets[i], chains.offsets[i + 1]
        size = last - first
        if size == 0:
            continue
        factor = strength * chains.weights[i]
        for t in range(size):
            for j in range(n_labels):
                delta[t, j] = -duals.mu[first + t, j]
            delta[t, chains.labels[first + t]] += 1.0
        add_rows(chains, first, last, delta[:size], factor, w, begin, end)
        if size > 1 and begin == 0:
            # One addition per sequence and not per token: the fewer, the better the bound.
            copy(duals.mu_edges[duals.edge_row[i]], edges)
            for t in range(first + 1, last):
                edges[chains.labels[t - 1], chains.labels[t]] -= 1.0
            for a in range(n_labels):
                for b in range(n_labels):
                    trans[a, b] -= factor * edges[a, b]
    for a in range(n_labels if begin == 0 else 0):
        for b in range(n_labels):
            if not chains.edge_free[a, b]:
                trans[a, b] = 0.0
    mask_rows(chains, w, begin, end)


@kernel(fastmath=REASSOCIATE, helper=True)
def _product(theta, mu):
    """(<theta, mu>, <|theta|, mu>)."""
    total, size = 0.0, 0.0
    for k in range(theta.size):
        term = theta[k] * mu[k]
        total += term
        size += abs(term)
    return total, size


@kernel(helper=True)
def term_sizes(theta, mu):
    """`_product`, and the largest |theta|."""
    total, size = _product(theta, mu)
    most = 0.0
    for k in range(theta.size):
        most = max(most, abs(theta[k]))
    return total, size, most


@kernel
def largest_scores(chains, duals, out):
    """out[i] = the largest |theta| of example i."""
    for i in range(chains.offsets.shape[0] - 1):
        most = 0.0
        for t in range(chains.offsets[i], chains.offsets[i + 1]):
            for j in range(duals.theta.shape[1]):
                most = max(most, abs(duals.theta[t, j]))
        if chains.offsets[i + 1] - chains.offsets[i] > 1:
            for score in duals.theta_edges[duals.edge_row[i]].ravel():
                most = max(most, abs(score))
        out[i] = most


@kernel
def entropies(chains, duals, out, sizes):
    """Entropy of every dual distribution, A(theta) - <theta, mu>, and the size of its terms."""
    for i in range(chains.offsets.shape[0] - 1):
        first, last = chains.offsets[i], chains.offsets[i + 1]
        total, size = _product(duals.theta[first:last].ravel(), duals.mu[first:last].ravel())
        if last - first > 1:
            row = duals.edge_row[i]
            x, y = _product(duals.theta_edges[row].ravel(), duals.mu_edges[row].ravel())
            total, size = total + x, size + y
        out[i] = duals.log_z[i] - total
        sizes[i] = abs(duals.log_z[i]) + size
