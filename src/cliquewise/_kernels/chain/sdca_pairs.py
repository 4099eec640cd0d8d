"""`sdca` for chains whose transitions depend on attributes of the token pair.

The dual distribution of an example has one transition table per edge in place of one for all,
scores and marginals alike: ``theta_edges`` and ``mu_edges`` have a row for every edge, and
``edge_row`` says where those of an example begin. All else is as in `sdca`: the path, the line
search, the test that the dual objective does not fall.
"""

from __future__ import annotations

from collections import namedtuple

import numpy as np

from cliquewise._kernels import kernel
from cliquewise._kernels.chain.features import (
    add_compact,
    add_features,
    assign_slots,
    compact_features,
    compact_room,
    mask_rows,
    node_scores,
    shrunk,
    transitions_of,
)
from cliquewise._kernels.chain.inference import forbid
from cliquewise._kernels.chain.sdca import blend, dot_difference, step_length, term_sizes
from cliquewise._kernels.chain.sums import (
    forward_backward,
    longest,
    prepare_transitions,
    transition_tables,
    workspace,
)
from cliquewise._kernels.chain.threads import draw_member, exchange, exchange_when_due, keep_gap
from cliquewise._kernels.common.simd import copy

#: A distribution over the labelings of one chain: flat, those of edges one after the other.
Point = namedtuple("Point", ["nodes", "edges", "mu", "mu_edges"])

#: Scratch: scores and marginals under the weights, those of the point that is tried, what differs
#: (edges at their later token), its sum over edges, what inference needs, features of both kinds.
Room = namedtuple(
    "Room", ["model", "tried", "delta", "delta_edges", "total", "masked", "trans", "tables", "work",
             "tokens", "pairs"],
)  # fmt: skip


@kernel(helper=True)
def _point(length, n_labels, like):
    nodes, edges = length * n_labels, length * n_labels * n_labels
    return Point(
        np.zeros(nodes, like.dtype), np.zeros(edges, like.dtype), np.zeros(nodes, like.dtype),
        np.zeros(edges, like.dtype),
    )  # fmt: skip


@kernel(helper=True)
def _make_room(chains, pairs, like):
    length, k = longest(chains.offsets), chains.allowed.shape[1]
    return Room(
        _point(length, k, like), _point(length, k, like), np.empty((length, k), like.dtype),
        np.zeros((length, k * k), like.dtype), np.empty(k * k, like.dtype),
        np.empty((length, k), like.dtype), np.empty((length, k, k), like.dtype),
        transition_tables(k, like), workspace(length, k, like),
        compact_room(chains, like), compact_room(pairs, like),
    )  # fmt: skip


@kernel(helper=True)
def _dual_point(chains, duals, i):
    """Return the part of one example in the duals."""
    first, last, row = chains.offsets[i], chains.offsets[i + 1], duals.edge_row[i]
    links = slice(row, row + last - first - 1)
    return Point(
        duals.theta[first:last].ravel(), duals.theta_edges[links].ravel(),
        duals.mu[first:last].ravel(), duals.mu_edges[links].ravel(),
    )  # fmt: skip


@kernel(helper=True)
def _infer(chains, first, last, nodes, edges, room, mu, mu_edges):
    """Compute log Z and marginals of a chain from flat scores, into flat arrays."""
    size, k = last - first, chains.allowed.shape[1]
    shown, trans = nodes[: size * k].reshape(size, k), room.trans[: size - 1]
    copy(edges[: trans.size], trans.ravel())
    if chains.edge_allowed.shape[0] > 0:
        for t in range(size - 1):
            forbid(edges[t * k * k : (t + 1) * k * k].reshape(k, k), chains.edge_allowed, trans[t])
    if chains.allowed.shape[0] > 0:
        forbid(shown, chains.allowed[first:last], room.masked[:size])
        shown = room.masked[:size]
    prepare_transitions(trans, room.tables)
    return forward_backward(
        shown, trans, room.tables, mu[: size * k].reshape(size, k),
        mu_edges[: trans.size].reshape(size - 1, k, k), shown[:0], room.work,
    )  # fmt: skip


@kernel(helper=True)
def _score(chains, pairs, w, first, last, point, start):
    """Compute the scores of a chain under the weights."""
    size, k = last - first, chains.allowed.shape[1]
    square = k * k
    node_scores(chains, w, first, last, point.nodes[: size * k].reshape(size, k))
    trans = transitions_of(chains, w).ravel()
    rows = point.edges[: (size - 1) * square].reshape(size - 1, square)
    node_scores(pairs, w[start:], first + 1, last, rows)
    threshold = w.dtype.type(chains.threshold)
    for t in range(size - 1):
        for j in range(square):
            rows[t, j] += shrunk(trans[j], threshold)


@kernel(helper=True)
def _sum_edges(chains, delta_edges, size, total):
    """total = sum of the rows of all edges, where transitions have weights; its squared norm."""
    norm = 0.0
    for j in range(total.size):
        total[j] = 0.0
    for t in range(1, size):
        for j in range(total.size):
            total[j] += delta_edges[t, j]
    for j in range(total.size):
        if not chains.edge_free.ravel()[j]:
            total[j] = 0.0
        norm += total[j] * total[j]
    return norm


@kernel(helper=True)
def _change(chains, pairs, first, last, new, old, room, slots):
    """Squared norm of the features of ``new`` less those of ``old``; they stay in ``room``."""
    size, square = last - first, room.total.size
    delta = room.delta.ravel()
    for j in range(old.mu.size):
        delta[j] = new.mu[j] - old.mu[j]
    rows = room.delta_edges.ravel()
    for j in range(old.mu_edges.size):
        rows[square + j] = new.mu_edges[j] - old.mu_edges[j]
    norm = _sum_edges(chains, room.delta_edges, size, room.total)
    norm += compact_features(
        chains, first, last, room.delta[:size], room.tokens, slots[0], slots[1]
    )
    return norm + compact_features(
        pairs, first, last, room.delta_edges[:size], room.pairs, slots[2], slots[3]
    )


@kernel(helper=True)
def _dots(model, dual, first, second):
    """Return <model - dual, marginals> for the marginals of two points."""
    a, b = dot_difference(model.nodes, dual.nodes, first.mu, second.mu)
    c, d = dot_difference(model.edges, dual.edges, first.mu_edges, second.mu_edges)
    return a + c, b + d


@kernel(helper=True)
def _accept(chains, w, dual, room, slots, pull):
    """Accept the trial point as the dual variable, and update the weights."""
    copy(room.tried.nodes[: dual.nodes.size], dual.nodes)
    copy(room.tried.edges[: dual.edges.size], dual.edges)
    copy(room.tried.mu[: dual.mu.size], dual.mu)
    copy(room.tried.mu_edges[: dual.mu_edges.size], dual.mu_edges)
    add_compact(chains, room.tokens, slots[0], -pull, w)
    trans = transitions_of(chains, w).ravel()
    for j in range(trans.size):
        trans[j] -= pull * room.total[j]


@kernel(helper=True)
def _visit(chains, pairs, duals, i, w, strength, fixed_step, room, part):
    """Take one dual ascent step; return the number of inferences."""
    first, last, weight = chains.offsets[i], chains.offsets[i + 1], chains.weights[i]
    dual, model, tried, pull = _dual_point(chains, duals, i), room.model, room.tried, 0.0
    _score(chains, pairs, w, first, last, model, part.pairs)
    top = _infer(chains, first, last, model.nodes, model.edges, room, model.mu, model.mu_edges)
    at_mu, at_p = _dots(model, dual, dual, model)
    gap, v = max(top - duals.log_z[i] - at_mu, 0.0), at_p - at_mu
    keep_gap(duals, part, i, weight * gap)
    if weight == 0.0 or not v > 1e-14 * (1.0 + abs(top)):
        return 1
    pull = weight * strength
    of_tokens = assign_slots(chains, first, last, room.tokens)
    of_pairs = assign_slots(pairs, first, last, room.pairs)
    slots = (of_tokens[0], of_tokens[1], of_pairs[0], of_pairs[1])
    eta, grow = fixed_step, 0.0
    if fixed_step == 0.0:
        kappa = pull * _change(chains, pairs, first, last, model, dual, room, slots) / v
        eta, grow = step_length(kappa, v / gap - 1.0 if gap > 0.0 else 1.0), 4.0
    for attempt in range(40):
        blend(dual.nodes, model.nodes, eta, tried.nodes)
        blend(dual.edges, model.edges, eta, tried.edges)
        log_z = _infer(
            chains, first, last, tried.nodes, tried.edges, room, tried.mu, tried.mu_edges
        )
        q = pull * _change(chains, pairs, first, last, tried, dual, room, slots)
        at_new, _ = _dots(model, dual, tried, tried)
        rise = (1.0 - eta) * at_new - at_mu + log_z - duals.log_z[i] - 0.5 * q
        risen = rise >= -1e-13 * (1.0 + abs(log_z))
        longer = grow > 0.0 and eta < 0.25 and q < 0.1 * (1.0 - eta) * (at_new - at_mu)
        if fixed_step > 0.0 or (risen and not longer):
            _accept(chains, w, dual, room, slots, pull)
            add_compact(pairs, room.pairs, slots[2], -pull, w[part.pairs :])
            duals.log_z[i] = log_z
            return attempt + 2
        if not risen:
            grow = 0.0
        eta *= grow if risen else 0.5
    return 41


@kernel
def epoch(chains, pairs, duals, w, strength, order, uniforms, fixed_step, part):
    """Do an epoch as `sdca.epoch`, for a likelihood with attributes of token pairs, ``pairs``."""
    room, calls = _make_room(chains, pairs, w), 0
    for step in range(order.shape[0]):
        i = order[step]
        exchange_when_due(part, w, step)
        if i < 0:
            i = draw_member(duals, part, uniforms[step], chains.offsets.shape[0] - 1)
        if chains.offsets[i] < chains.offsets[i + 1]:
            calls += _visit(chains, pairs, duals, i, w, strength, fixed_step, room, part)
    if part.every > 0:
        exchange(part, w, 0)
    return calls


@kernel
def infer_all(chains, pairs, duals):
    """Compute marginals and log partitions of all dual variables from their scores."""
    room = _make_room(chains, pairs, duals.theta)
    for i in range(chains.offsets.shape[0] - 1):
        first, last = chains.offsets[i], chains.offsets[i + 1]
        if first < last:
            dual = _dual_point(chains, duals, i)
            duals.log_z[i] = _infer(
                chains, first, last, dual.nodes, dual.edges, room, dual.mu, dual.mu_edges
            )


@kernel
def weights_of_duals(chains, pairs, duals, strength, w):
    """Recompute ``w = strength * sum_i c_i (F_i - B mu_i)``."""
    room, k = _make_room(chains, pairs, w), chains.allowed.shape[1]
    w[:] = 0.0
    trans = transitions_of(chains, w).ravel()
    own = w[chains.edge_start + trans.size :]
    for i in range(chains.offsets.shape[0] - 1):
        first, last, row = chains.offsets[i], chains.offsets[i + 1], duals.edge_row[i]
        factor = strength * chains.weights[i]
        for t in range(last - first):
            label = chains.labels[first + t]
            for j in range(k):
                room.delta[t, j] = (1.0 if j == label else 0.0) - duals.mu[first + t, j]
            if t > 0:
                edge, true = duals.mu_edges[row + t - 1].ravel(), chains.labels[first + t - 1]
                for j in range(trans.size):
                    right = 1.0 if j == true * k + label else 0.0
                    room.delta_edges[t, j] = right - edge[j]
        size = last - first
        add_features(chains, first, last, room.delta[:size], factor, w)
        add_features(pairs, first, last, room.delta_edges[:size], factor, own)
        # One addition per sequence and not per token: the fewer, the better the bound.
        _sum_edges(chains, room.delta_edges, size, room.total)
        for j in range(trans.size if size > 1 else 0):
            trans[j] += factor * room.total[j]
    mask_rows(chains, w, 0, chains.row_mask.shape[0])


@kernel
def entropies(chains, duals, out, sizes, largest):
    """Compute entropies of dual distributions, the size of their terms, and the largest scores."""
    square = chains.allowed.shape[1] ** 2
    for i in range(chains.offsets.shape[0] - 1):
        dual = _dual_point(chains, duals, i)
        total, size, most = term_sizes(dual.nodes, dual.mu)
        for start in range(0, dual.edges.size, square):
            edge = slice(start, start + square)
            x, y, z = term_sizes(dual.edges[edge], dual.mu_edges[edge])
            total, size, most = total + x, size + y, max(most, z)
        out[i] = duals.log_z[i] - total
        sizes[i] = abs(duals.log_z[i]) + size
        largest[i] = most
