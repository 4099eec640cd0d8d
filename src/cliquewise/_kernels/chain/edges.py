"""Chains whose transitions depend on attributes of the token pair (CRF++'s ``B01:%x[0,0]``).

An edge attribute has one weight per pair of labels: it is an emission with K^2 "labels" at
the later token of the pair. The weights follow the K x K transitions in the weight vector.
"""

from __future__ import annotations

import numpy as np

from cliquewise._kernels import kernel
from cliquewise._kernels.chain.features import add_features, node_scores, transitions_of
from cliquewise._kernels.chain.inference import forbid, labels_are_known
from cliquewise._kernels.chain.sums import (
    forward_backward,
    log_partition,
    longest,
    prepare_transitions,
    transition_tables,
    workspace,
)
from cliquewise._kernels.common.simd import copy


@kernel
def edge_tables(chains, edge_chains, w, first_example, last_example, out):
    """Transition scores of every edge of some examples, -inf where not allowed; one (K, K) each."""
    n_labels, edge_allowed = chains.allowed.shape[1], chains.edge_allowed
    trans = transitions_of(chains, w).ravel()
    weights = w[chains.edge_start + trans.size :]
    rows = np.empty((longest(edge_chains.offsets), trans.size), w.dtype)
    at = 0
    for i in range(first_example, last_example):
        first, last = edge_chains.offsets[i], edge_chains.offsets[i + 1]
        if last - first < 2:
            continue
        node_scores(edge_chains, weights, first, last, rows[: last - first])
        for t in range(1, last - first):
            for a in range(n_labels):
                for b in range(n_labels):
                    k = a * n_labels + b
                    out[at, a, b] = rows[t, k] + trans[k]
                    if edge_allowed.shape[0] > 0 and not edge_allowed[a, b]:
                        out[at, a, b] = -np.inf
            at += 1


@kernel(helper=True)
def _infer(nodes, trans, allowed, masked, tables, marginals, edges, work):
    for t in range(nodes.shape[0]):
        for j in range(nodes.shape[1]):
            keep = allowed.shape[0] == 0 or allowed[t, j]
            masked[t, j] = nodes[t, j] if keep else -np.inf
    prepare_transitions(trans, tables)
    none = nodes[:0]
    return forward_backward(masked[: nodes.shape[0]], trans, tables, marginals, edges, none, work)


@kernel
def losses(chains, edge_chains, w, first_example, last_example, out):
    """As ``chain.gradient.losses``, with edge attributes."""
    n_labels, length = chains.allowed.shape[1], longest(chains.offsets)
    scores, masked = np.empty((length, n_labels), w.dtype), np.empty((length, n_labels), w.dtype)
    trans, tables = np.empty((length, n_labels, n_labels), w.dtype), transition_tables(n_labels, w)
    work = workspace(length, n_labels, w)
    for i in range(first_example, last_example):
        first, last = chains.offsets[i], chains.offsets[i + 1]
        size = last - first
        out[i] = 0.0
        if size == 0:
            continue
        node_scores(chains, w, first, last, scores[:size])
        edge_tables(chains, edge_chains, w, i, i + 1, trans)
        for t in range(size):
            y = chains.labels[first + t]
            out[i] -= scores[t, y]
            if t > 0:
                out[i] -= trans[t - 1, chains.labels[first + t - 1], y]
        nodes, own = scores[:size], trans[: size - 1]
        if chains.allowed.shape[0] > 0:
            forbid(nodes, chains.allowed[first:last], masked[:size])
            nodes = masked[:size]
        prepare_transitions(own, tables)
        out[i] += log_partition(nodes, own, tables, work)


@kernel
def gradient(chains, edge_chains, partial, w, first_example, last_example, out):
    """As ``chain.gradient.gradient``, with edge attributes."""
    n_labels, length, number = chains.allowed.shape[1], longest(chains.offsets), w.dtype
    square = n_labels * n_labels
    shape, tables_shape = (length, n_labels), (length, n_labels, n_labels)
    scores, masked = np.empty(shape, number), np.empty(shape, number)
    p, target = np.empty(shape, number), np.empty(shape, number)
    trans, edges = np.empty(tables_shape, number), np.empty(tables_shape, number)
    goal, delta = np.empty(tables_shape, number), np.zeros((length, square), number)
    work = workspace(length, n_labels, w)
    tables = transition_tables(n_labels, w)
    out_trans = transitions_of(chains, out).ravel()
    out_weights = out[chains.edge_start + square :]
    total = 0.0
    for i in range(first_example, last_example):
        first, last = chains.offsets[i], chains.offsets[i + 1]
        size = last - first
        if size == 0:
            continue
        weight = chains.weights[i]
        s, links = scores[:size], size - 1
        node_scores(chains, w, first, last, s)
        edge_tables(chains, edge_chains, w, i, i + 1, trans)
        own = trans[:links]
        log_z = _infer(
            s, own, chains.allowed[first:last], masked, tables, p[:size], edges[:links], work
        )
        if labels_are_known(chains, first, last):
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
        add_features(chains, first, last, p[:size], weight, out)
        for t in range(links):
            row = edges[t].ravel()
            copy(row, delta[t + 1])
            for k in range(square):
                if chains.edge_free.ravel()[k]:
                    out_trans[k] += weight * row[k]
        if links > 0:
            for k in range(square):
                delta[0, k] = 0.0
            add_features(edge_chains, first, last, delta[:size], weight, out_weights)
    return total
