"""Stochastic dual coordinate ascent on chains: whole epochs in one call.

The dual variable of example ``i`` is a distribution over its labelings. It is kept as a chain
model with scores ``theta_i``: nodes (T, K) and ONE transition table (K, K) for all positions,
beside its marginals (node marginals, summed edge marginals) and its log partition ``A_i``.
A step moves along ``theta + eta (s - theta)``, where ``s`` are the scores under the present
weights (the path of exponentiated gradients, Collins et al. 2008), and not along the
mixture ``mu + eta (p - mu)`` of sdca_crf. Both paths have the same ends and the same tangent
at the optimum, and every point of either is a dual feasible distribution. What is won:

* memory ``2 (N K + n K^2)`` numbers instead of ``N K^2``;
* not one logarithm or exponential per edge. With ``delta = s - theta``,

      block gap   g = KL(alpha || p_w) = A(s) - A(theta) - <delta, mu>
      v = <delta, p - mu> = KL(alpha || p_w) + KL(p_w || alpha)

  and the change of the dual objective is a difference of such terms, too.

Line search: with ``kappa = c ||B (p - mu)||^2 / (lam n v)`` the stationary point satisfies
``1 - eta = kappa r(eta)``, where r is the share of the way from mu to p that is covered at
eta, and the mean of r over [0, 1] is exactly ``g / v``. A power ``r = eta^a`` with that mean
(``a = v / g - 1``) gives eta by a few scalar Newton steps. The step is then accepted only
if the dual objective, evaluated exactly, does not fall; it is halved otherwise.

With a margin ``1 / gamma`` and weights divided by gamma the same steps maximize the dual of the
structured hinge loss smoothed by gamma times the entropy.
"""

from __future__ import annotations

from collections import namedtuple

import numpy as np

from cliquewise._kernels import REASSOCIATE, kernel
from cliquewise._kernels.chain.features import (
    add_compact,
    add_features,
    assign_slots,
    compact_features,
    mask_rows,
    most_features,
    node_scores,
)
from cliquewise._kernels.chain.sums import (
    forward_backward,
    log_partition,
    longest,
    prepare_transitions,
    transition_tables,
    workspace,
)
from cliquewise._kernels.common.simd import copy
from cliquewise._kernels.common.sum_tree import draw_leaf, set_leaf

#: Dual state of all examples: see the head of this file.
Duals = namedtuple(
    "Duals", ["theta", "theta_edges", "mu", "mu_edges", "log_z", "gaps", "tree", "edge_row"]
)


@kernel(fastmath=REASSOCIATE, helper=True)
def _dot_difference(a, b, c, d):
    """(<a - b, c>, <a - b, d>) over the length of ``b``."""
    x, y = 0.0, 0.0
    for i in range(b.size):
        delta = a[i] - b[i]
        x += delta * c[i]
        y += delta * d[i]
    return x, y


@kernel(helper=True)
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
def _blend(a, b, share, out):
    """out = a + share (b - a) over the length of ``a``."""
    for i in range(a.size):
        out[i] = a[i] + share * (b[i] - a[i])


@kernel(helper=True)
def _step_length(kappa, a):
    """Root of 1 - eta = kappa eta^a in [0, 1]; the left side falls, the right side rises."""
    low, high = 0.0, 1.0
    eta = 1.0 / (1.0 + kappa)
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
            return new
        eta = new
    return eta


@kernel(helper=True)
def _forbid(scores, allowed, out):
    """Copy with -inf where a label is not allowed."""
    for t in range(scores.shape[0]):
        for j in range(scores.shape[1]):
            out[t, j] = scores[t, j] if allowed[t, j] else -np.inf


@kernel(helper=True)
def infer(nodes, edges, allowed, edge_allowed, masked_nodes, masked_edges, tables,
           marginals, expectation, work):  # fmt: skip
    """Log partition and marginals of a chain with forbidden labels and transitions."""
    if edge_allowed.shape[0] > 0:
        _forbid(edges, edge_allowed, masked_edges)
        edges = masked_edges
    if allowed.shape[0] > 0:
        _forbid(nodes, allowed, masked_nodes[: nodes.shape[0]])
        nodes = masked_nodes[: nodes.shape[0]]
    trans = edges.reshape(1, edges.shape[0], edges.shape[1])
    if nodes.shape[0] > 1:
        prepare_transitions(trans, tables)
        expectation[:] = 0.0
    return forward_backward(nodes, trans, tables, marginals, trans[:0], expectation, work)


@kernel(helper=True)
def _lower_truth(chains, first, last, margin, scores):
    """Take ``margin`` off the true labels' scores: a wrong label then costs that much."""
    for t in range(last - first):
        scores[t, chains.labels[first + t]] -= margin


@kernel
def wrong_mass(chains, mu):
    """Expected number of wrong labels, weighted: sum_i c_i <cost_i, mu_i>."""
    total = 0.0
    for i in range(chains.offsets.shape[0] - 1):
        wrong = 0.0
        for t in range(chains.offsets[i], chains.offsets[i + 1]):
            right = chains.labels[t]
            for j in range(mu.shape[1]):
                if j != right:
                    wrong += mu[t, j]
        total += chains.weights[i] * wrong
    return total


@kernel
def epoch(chains, duals, w, edge_start, edge_free, edge_allowed, strength, margin, order, uniforms,
          fixed_step):  # fmt: skip
    """Visit examples, one dual ascent step each.

    Parameters
    ----------
    chains : Chains
    duals : Duals
        Changed in place.
    w : array
        Weights ``strength * sum_i c_i (F_i - B mu_i)``, changed in place.
    edge_start : int
        Where the K x K transitions begin in ``w``.
    edge_free : bool array of shape (K, K)
        Which transitions carry a weight.
    edge_allowed : bool array of shape (K, K) or (0, K)
        Which transitions are possible.
    strength : float
        1 / (lam n).
    margin : float
        By how much a wrong label's score is raised over the true one's; 0 for a likelihood.
    order : int array
        Examples to visit; -1 to draw one by its last seen gap.
    uniforms : array
        A number in [0, 1) for each such draw.
    fixed_step : float
        Step length; 0 for the line search.

    Returns
    -------
    (calls, halvings, total_gap)
        Inferences made, steps that had to be halved, and the sum of ``c_i g_i`` as seen.
    """
    n_labels = edge_free.shape[0]
    n = chains.offsets.shape[0] - 1
    n_attributes = (
        edge_start // n_labels
        if chains.pair_start.shape[0] == 0
        else chains.pair_start.shape[0] - 1
    )
    length = longest(chains.offsets)
    room = length * n_labels
    scores, p, delta = np.empty(room, w.dtype), np.empty(room, w.dtype), np.empty(room, w.dtype)
    theta_new, mu_new = np.empty(room, w.dtype), np.empty(room, w.dtype)
    masked = np.empty((length, n_labels), w.dtype)
    p_edges, masked_edges = np.zeros(edge_free.shape, w.dtype), np.zeros(edge_free.shape, w.dtype)
    edges_new, mu_edges_new = np.zeros(edge_free.shape, w.dtype), np.zeros(edge_free.shape, w.dtype)
    delta_edges, free = np.zeros(edge_free.size, w.dtype), np.zeros(edge_free.size, w.dtype)
    for k in range(free.size):
        free[k] = 1.0 if edge_free.ravel()[k] else 0.0
    work = workspace(length, n_labels, w)
    tables = transition_tables(n_labels, w)
    most_rows, most_weights = most_features(chains, n_labels)
    slots = np.full(n_attributes, -1, dtype=np.int32)
    rows = np.empty(most_rows, dtype=np.int32)
    starts, places = np.empty(most_rows, dtype=np.int32), np.empty(most_rows, dtype=np.int32)
    compact = np.empty(most_weights, w.dtype)
    trans = w[edge_start : edge_start + edge_free.size]
    trans_table = trans.reshape(n_labels, n_labels)
    calls, halvings, total_gap = 0, 0, 0.0
    for step in range(order.shape[0]):
        i = order[step]
        if i < 0:
            i = draw_leaf(duals.tree, uniforms[step], n)
        first, last = chains.offsets[i], chains.offsets[i + 1]
        size = last - first
        if size == 0:
            continue
        weight = chains.weights[i]
        pull = weight * strength
        cells = size * n_labels
        edge_row = duals.edge_row[i]
        linked = size > 1
        allowed = chains.allowed[first:last]
        theta, mu = duals.theta[first:last].ravel(), duals.mu[first:last].ravel()
        theta_edges = duals.theta_edges[edge_row].ravel() if linked else trans[:0]
        mu_edges = duals.mu_edges[edge_row].ravel() if linked else trans[:0]
        s = scores[:cells]
        s_table = s.reshape(size, n_labels)
        node_scores(chains, w, first, last, n_labels, s_table)
        if margin != 0.0:
            _lower_truth(chains, first, last, margin, s_table)
        log_z = infer(
            s_table, trans_table, allowed, edge_allowed, masked, masked_edges, tables,
            p[:cells].reshape(size, n_labels), p_edges, work,
        )  # fmt: skip
        calls += 1
        at_mu, at_p = _dot_difference(s, theta, mu, p)
        x, y = _dot_difference(trans, theta_edges, mu_edges, p_edges.ravel())
        at_mu, at_p = at_mu + x, at_p + y
        gap = max(log_z - duals.log_z[i] - at_mu, 0.0)
        v = at_p - at_mu
        duals.gaps[i] = weight * gap
        if duals.tree.shape[0] > 0:
            set_leaf(duals.tree, i, weight * gap)
        total_gap += weight * gap
        if not v > 1e-14 * (1.0 + abs(log_z)) or weight == 0.0:
            continue
        count, used = assign_slots(chains, first, last, n_labels, slots, rows, starts, places)
        d_table = delta[:cells].reshape(size, n_labels)
        eta = fixed_step
        if fixed_step == 0.0:
            _subtract(p, mu, delta)
            q = compact_features(
                chains, first, last, d_table, n_labels, rows, starts, count, places, used, compact
            )
            q += _free_difference(p_edges.ravel(), mu_edges, free, delta_edges)
            ratio = v / gap - 1.0 if gap > 0.0 else 1.0
            kappa = pull * q / v
            eta = _step_length(kappa, min(max(ratio, 0.2), 20.0))
            # A power is a poor model of r far below its mean: never trust it that far.
            eta = max(eta, 0.5 / (1.0 + kappa))
        grow = 4.0 if fixed_step == 0.0 else 0.0
        for _attempt in range(40):
            _blend(theta, s, eta, theta_new)
            _blend(theta_edges, trans, eta, edges_new.ravel())
            new_log_z = infer(
                theta_new[:cells].reshape(size, n_labels), edges_new, allowed, edge_allowed, masked,
                masked_edges, tables, mu_new[:cells].reshape(size, n_labels), mu_edges_new, work,
            )  # fmt: skip
            calls += 1
            _subtract(mu_new, mu, delta)
            q = compact_features(
                chains, first, last, d_table, n_labels, rows, starts, count, places, used, compact
            )
            q += _free_difference(mu_edges_new.ravel(), mu_edges, free, delta_edges)
            at_new, _ = _dot_difference(s, theta, mu_new, mu_new)
            x, _ = _dot_difference(trans, theta_edges, mu_edges_new.ravel(), mu_edges_new.ravel())
            rise = (1.0 - eta) * (at_new + x) - at_mu + new_log_z - duals.log_z[i] - 0.5 * pull * q
            risen = rise >= -1e-13 * (1.0 + abs(new_log_z))
            short = pull * q < 0.1 * (1.0 - eta) * (at_new + x - at_mu) and eta < 0.25
            if (risen and not (short and grow > 0.0)) or fixed_step > 0.0:
                copy(theta_new[:cells], theta)
                copy(mu_new[:cells], mu)
                duals.log_z[i] = new_log_z
                add_compact(chains, rows, starts, count, compact, -pull, n_labels, w)
                if linked:
                    copy(edges_new.ravel(), theta_edges)
                    copy(mu_edges_new.ravel(), mu_edges)
                    for k in range(trans.size):
                        trans[k] -= pull * delta_edges[k]
                break
            if risen:
                eta *= grow
            else:
                halvings += 1
                grow = 0.0
                eta *= 0.5
    return calls, halvings, total_gap


@kernel
def start(chains, duals, edge_allowed, n_labels, score):
    """Dual variables close to the truth: ``score`` on the true labels, zero elsewhere."""
    length = longest(chains.offsets)
    work = workspace(length, n_labels, duals.theta)
    tables = transition_tables(n_labels, duals.theta)
    masked = np.empty((length, n_labels), duals.theta.dtype)
    masked_edges = np.empty((n_labels, n_labels), duals.theta.dtype)
    none, expectation = np.zeros_like(masked_edges), np.zeros_like(masked_edges)
    for i in range(chains.offsets.shape[0] - 1):
        first, last = chains.offsets[i], chains.offsets[i + 1]
        duals.theta[first:last] = 0.0
        for t in range(first, last):
            duals.theta[t, chains.labels[t]] = score
        duals.log_z[i] = infer(
            duals.theta[first:last], none, chains.allowed[first:last], edge_allowed, masked,
            masked_edges, tables, duals.mu[first:last], expectation, work,
        )  # fmt: skip
        if last - first > 1:
            duals.theta_edges[duals.edge_row[i]] = 0.0
            copy(expectation, duals.mu_edges[duals.edge_row[i]])


@kernel
def weights_of_duals(chains, duals, edge_start, edge_free, strength, w):
    """w = strength * sum_i c_i (F_i - B mu_i), afresh."""
    n_labels = edge_free.shape[0]
    w[:] = 0.0
    delta = np.empty((longest(chains.offsets), n_labels), w.dtype)
    trans = w[edge_start : edge_start + n_labels * n_labels].reshape(n_labels, n_labels)
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
        add_features(chains, first, last, delta[:size], factor, n_labels, w)
        for t in range(first + 1, last):
            trans[chains.labels[t - 1], chains.labels[t]] += factor
        if size > 1:
            edges = duals.mu_edges[duals.edge_row[i]]
            for a in range(n_labels):
                for b in range(n_labels):
                    trans[a, b] -= factor * edges[a, b]
    for a in range(n_labels):
        for b in range(n_labels):
            if not edge_free[a, b]:
                trans[a, b] = 0.0
    mask_rows(chains, n_labels, w)


@kernel(fastmath=REASSOCIATE)
def entropies(chains, duals, out):
    """Entropy of every dual distribution: A(theta) - <theta, mu>."""
    for i in range(chains.offsets.shape[0] - 1):
        total = 0.0
        theta = duals.theta[chains.offsets[i] : chains.offsets[i + 1]].ravel()
        mu = duals.mu[chains.offsets[i] : chains.offsets[i + 1]].ravel()
        for k in range(theta.size):
            total += theta[k] * mu[k]
        if chains.offsets[i + 1] - chains.offsets[i] > 1:
            theta = duals.theta_edges[duals.edge_row[i]].ravel()
            mu = duals.mu_edges[duals.edge_row[i]].ravel()
            for k in range(theta.size):
                total += theta[k] * mu[k]
        out[i] = duals.log_z[i] - total


@kernel
def losses(chains, w, edge_start, edge_allowed, n_labels, first_example, last_example, out):
    """Negative log-likelihood of every example (forward passes only)."""
    length = longest(chains.offsets)
    scores = np.empty((length, n_labels), w.dtype)
    masked = np.empty((length, n_labels), w.dtype)
    masked_edges = np.empty((n_labels, n_labels), w.dtype)
    work = workspace(length, n_labels, w)
    tables = transition_tables(n_labels, w)
    trans = w[edge_start : edge_start + n_labels * n_labels].reshape(n_labels, n_labels)
    possible = trans
    if edge_allowed.shape[0] > 0:
        _forbid(trans, edge_allowed, masked_edges)
        possible = masked_edges
    shared = possible.reshape(1, n_labels, n_labels)
    prepare_transitions(shared, tables)
    for i in range(first_example, last_example):
        first, last = chains.offsets[i], chains.offsets[i + 1]
        if first == last:
            out[i] = 0.0
            continue
        s = scores[: last - first]
        node_scores(chains, w, first, last, n_labels, s)
        truth = 0.0
        for t in range(last - first):
            truth += s[t, chains.labels[first + t]]
            if t > 0:
                truth += trans[chains.labels[first + t - 1], chains.labels[first + t]]
        nodes = s
        if chains.allowed.shape[0] > 0:
            _forbid(s, chains.allowed[first:last], masked[: last - first])
            nodes = masked[: last - first]
        out[i] = log_partition(nodes, shared, tables, work) - truth
