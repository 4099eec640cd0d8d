"""Chains whose transitions depend on attributes of the token pair (CRF++'s ``B01:%x[0,0]``).

An edge attribute has one weight per pair of labels: it is an emission with K^2 "labels" at
the later token of the pair. The weights follow the K x K transitions in the weight vector.
"""

from __future__ import annotations

import numpy as np

from cliquewise._kernels import kernel
from cliquewise._kernels.chain.features import add_features, node_scores
from cliquewise._kernels.chain.sums import (
    forward_backward,
    longest,
    prepare_transitions,
    transition_tables,
    workspace,
)
from cliquewise._kernels.common.simd import copy


@kernel
def edge_tables(edge_chains, w, edge_start, edge_allowed, n_labels, first_example, last_example,
                out):  # fmt: skip
    """Transition scores of every edge of some examples, -inf where not allowed; one (K, K) each."""
    square = n_labels * n_labels
    trans, weights = w[edge_start : edge_start + square], w[edge_start + square :]
    rows = np.empty((longest(edge_chains.offsets), square), w.dtype)
    at = 0
    for i in range(first_example, last_example):
        first, last = edge_chains.offsets[i], edge_chains.offsets[i + 1]
        if last - first < 2:
            continue
        node_scores(edge_chains, weights, first, last, square, rows[: last - first])
        for t in range(1, last - first):
            for a in range(n_labels):
                for b in range(n_labels):
                    k = a * n_labels + b
                    out[at, a, b] = rows[t, k] + trans[k]
                    if edge_allowed.shape[0] > 0 and not edge_allowed[a, b]:
                        out[at, a, b] = -np.inf
            at += 1


@kernel
def _infer(nodes, trans, allowed, masked, tables, marginals, edges, work):
    for t in range(nodes.shape[0]):
        for j in range(nodes.shape[1]):
            keep = allowed.shape[0] == 0 or allowed[t, j]
            masked[t, j] = nodes[t, j] if keep else -np.inf
    prepare_transitions(trans, tables)
    none = nodes[:0]
    return forward_backward(masked[: nodes.shape[0]], trans, tables, marginals, edges, none, work)


@kernel
def gradient(chains, edge_chains, partial, w, edge_start, edge_free, edge_allowed, first_example,
             last_example, out):  # fmt: skip
    """As ``chain_gradient.gradient``, with edge attributes."""
    n_labels = edge_free.shape[0]
    square = n_labels * n_labels
    length = longest(chains.offsets)
    scores, masked = np.empty((length, n_labels), w.dtype), np.empty((length, n_labels), w.dtype)
    p, target = np.empty((length, n_labels), w.dtype), np.empty((length, n_labels), w.dtype)
    trans = np.empty((length, n_labels, n_labels), w.dtype)
    edges = np.empty((length, n_labels, n_labels), w.dtype)
    goal = np.empty((length, n_labels, n_labels), w.dtype)
    delta = np.zeros((length, square), w.dtype)
    work = workspace(length, n_labels, w)
    tables = transition_tables(n_labels, w)
    out_trans, out_weights = out[edge_start : edge_start + square], out[edge_start + square :]
    total = 0.0
    for i in range(first_example, last_example):
        first, last = chains.offsets[i], chains.offsets[i + 1]
        size = last - first
        if size == 0:
            continue
        weight = chains.weights[i]
        s, links = scores[:size], size - 1
        node_scores(chains, w, first, last, n_labels, s)
        edge_tables(edge_chains, w, edge_start, edge_allowed, n_labels, i, i + 1, trans)
        own = trans[:links]
        log_z = _infer(
            s, own, chains.allowed[first:last], masked, tables, p[:size], edges[:links], work
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
                    truth += own[t - 1, before, y]
                    edges[t - 1, before, y] -= 1.0
        else:
            truth = _infer(
                s, own, partial[first:last], masked, tables, target[:size], goal[:links], work
            )
            for t in range(size):
                for j in range(n_labels):
                    p[t, j] -= target[t, j]
            for t in range(links):
                for a in range(n_labels):
                    for b in range(n_labels):
                        edges[t, a, b] -= goal[t, a, b]
        total += weight * (log_z - truth)
        add_features(chains, first, last, p[:size], weight, n_labels, out)
        for t in range(links):
            row = edges[t].ravel()
            copy(row, delta[t + 1])
            for k in range(square):
                if edge_free.ravel()[k]:
                    out_trans[k] += weight * row[k]
        if links > 0:
            for k in range(square):
                delta[0, k] = 0.0
            add_features(edge_chains, first, last, delta[:size], weight, square, out_weights)
    return total
