"""Losses and gradients of chains, for solvers that work on the weights."""

from __future__ import annotations

import numpy as np

from cliquewise._kernels import kernel
from cliquewise._kernels.chain.features import add_features, node_scores
from cliquewise._kernels.chain.sdca import infer
from cliquewise._kernels.chain.sums import longest, transition_tables, workspace


@kernel
def gradient(chains, partial, w, edge_start, edge_free, edge_allowed, first_example,
             last_example, out):  # fmt: skip
    """Add the gradient of ``sum_i c_i loss_i`` to ``out``; returns the sum of the losses.

    Where labels are unknown (-1) the loss is that of the set of labelings that ``partial``
    permits: its log partition stands in for the score of the truth.
    """
    n_labels = edge_free.shape[0]
    length = longest(chains.offsets)
    shape, square = (length, n_labels), (n_labels, n_labels)
    scores, p, target, masked = (
        np.empty(shape, w.dtype), np.empty(shape, w.dtype), np.empty(shape, w.dtype),
        np.empty(shape, w.dtype),
    )  # fmt: skip
    p_edges, target_edges, masked_edges = (
        np.empty(square, w.dtype), np.empty(square, w.dtype), np.empty(square, w.dtype)
    )  # fmt: skip
    work = workspace(length, n_labels, w)
    tables = transition_tables(n_labels, w)
    trans = w[edge_start : edge_start + n_labels * n_labels].reshape(n_labels, n_labels)
    out_edges = out[edge_start : edge_start + n_labels * n_labels].reshape(n_labels, n_labels)
    total = 0.0
    for i in range(first_example, last_example):
        first, last = chains.offsets[i], chains.offsets[i + 1]
        size = last - first
        if size == 0:
            continue
        weight = chains.weights[i]
        allowed = chains.allowed[first:last]
        s = scores[:size]
        node_scores(chains, w, first, last, n_labels, s)
        log_z = infer(
            s, trans, allowed, edge_allowed, masked, masked_edges, tables, p[:size], p_edges, work
        )
        known = True
        for t in range(first, last):
            known = known and chains.labels[t] >= 0
        if known:
            truth = 0.0
            for t in range(size):
                y = chains.labels[first + t]
                truth += s[t, y]
                p[t, y] -= 1.0
                if t > 0:
                    before = chains.labels[first + t - 1]
                    truth += trans[before, y]
                    p_edges[before, y] -= 1.0
        else:
            truth = infer(
                s, trans, partial[first:last], edge_allowed, masked, masked_edges, tables,
                target[:size], target_edges, work,
            )  # fmt: skip
            for t in range(size):
                for j in range(n_labels):
                    p[t, j] -= target[t, j]
            if size > 1:
                for a in range(n_labels):
                    for b in range(n_labels):
                        p_edges[a, b] -= target_edges[a, b]
        total += weight * (log_z - truth)
        add_features(chains, first, last, p[:size], weight, n_labels, out)
        if size > 1:
            for a in range(n_labels):
                for b in range(n_labels):
                    if edge_free[a, b]:
                        out_edges[a, b] += weight * p_edges[a, b]
    return total
