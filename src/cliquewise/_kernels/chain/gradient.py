"""Losses and gradients of chains, for solvers that work on the weights."""

from __future__ import annotations

import numpy as np

from cliquewise._kernels import kernel
from cliquewise._kernels.chain.features import add_features, node_scores, transitions_of
from cliquewise._kernels.chain.inference import (
    forbid,
    infer,
    inference_room,
    labels_are_known,
    truth_score,
)
from cliquewise._kernels.chain.sums import log_partition, longest, prepare_transitions


@kernel
def losses(chains, w, first_example, last_example, out):
    """Negative log-likelihood of every example (forward passes only)."""
    length, n_labels = longest(chains.offsets), chains.allowed.shape[1]
    scores = np.empty((length, n_labels), w.dtype)
    room = inference_room(length, n_labels, w)
    trans = transitions_of(chains, w)
    possible = trans
    if chains.edge_allowed.shape[0] > 0:
        forbid(trans, chains.edge_allowed, room.edges)
        possible = room.edges
    shared = possible.reshape(1, n_labels, n_labels)
    prepare_transitions(shared, room.tables)
    for i in range(first_example, last_example):
        first, last = chains.offsets[i], chains.offsets[i + 1]
        if first == last:
            out[i] = 0.0
            continue
        s = scores[: last - first]
        node_scores(chains, w, first, last, s)
        truth = truth_score(chains, first, last, s, trans)
        nodes = s
        if chains.allowed.shape[0] > 0:
            forbid(s, chains.allowed[first:last], room.nodes[: last - first])
            nodes = room.nodes[: last - first]
        out[i] = log_partition(nodes, shared, room.tables, room.work) - truth


@kernel
def gradient(chains, partial, w, first_example, last_example, out):
    """Add the gradient of ``sum_i c_i loss_i`` to ``out``; returns the sum of the losses.

    Where labels are unknown (-1) the loss is that of the set of labelings that ``partial``
    permits: its log partition stands in for the score of the truth.
    """
    length, n_labels, number = longest(chains.offsets), chains.allowed.shape[1], w.dtype
    shape, square = (length, n_labels), (n_labels, n_labels)
    scores, p, target = np.empty(shape, number), np.empty(shape, number), np.empty(shape, number)
    p_edges, target_edges = np.empty(square, number), np.empty(square, number)
    room = inference_room(length, n_labels, w)
    trans, out_edges = transitions_of(chains, w), transitions_of(chains, out)
    possible = chains.edge_allowed
    total = 0.0
    for i in range(first_example, last_example):
        first, last = chains.offsets[i], chains.offsets[i + 1]
        size = last - first
        if size == 0:
            continue
        weight = chains.weights[i]
        s, allowed = scores[:size], chains.allowed[first:last]
        node_scores(chains, w, first, last, s)
        log_z = infer(s, trans, allowed, possible, room, p[:size], p_edges)
        if labels_are_known(chains, first, last):
            truth = truth_score(chains, first, last, s, trans)
            for t in range(size):
                y = chains.labels[first + t]
                p[t, y] -= 1.0
                if t > 0:
                    p_edges[chains.labels[first + t - 1], y] -= 1.0
        else:
            allowed = partial[first:last]
            truth = infer(s, trans, allowed, possible, room, target[:size], target_edges)
            for t in range(size):
                for j in range(n_labels):
                    p[t, j] -= target[t, j]
            if size > 1:
                for a in range(n_labels):
                    for b in range(n_labels):
                        p_edges[a, b] -= target_edges[a, b]
        total += weight * (log_z - truth)
        add_features(chains, first, last, p[:size], weight, out)
        if size > 1:
            for a in range(n_labels):
                for b in range(n_labels):
                    if chains.edge_free[a, b]:
                        out_edges[a, b] += weight * p_edges[a, b]
    return total
