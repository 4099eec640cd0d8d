"""Marginals of chains with forbidden labels and transitions, and the score of the truth."""

from __future__ import annotations

from collections import namedtuple

import numpy as np

from cliquewise._kernels import kernel
from cliquewise._kernels.chain.sums import (
    forward_backward,
    prepare_transitions,
    transition_tables,
    workspace,
)

#: Scratch of `infer`.
Inference = namedtuple("Inference", ["nodes", "edges", "tables", "work"])


@kernel(inline=True)
def forbid(scores, allowed, out):
    """Copy scores, with -inf where a label is not allowed."""
    for t in range(scores.shape[0]):
        for j in range(scores.shape[1]):
            out[t, j] = scores[t, j] if allowed[t, j] else -np.inf


@kernel(inline=True)
def inference_room(length, n_labels, like):
    """Allocate scratch for chains of up to ``length`` positions, of the type of ``like``."""
    return Inference(
        np.empty((length, n_labels), like.dtype), np.empty((n_labels, n_labels), like.dtype),
        transition_tables(n_labels, like), workspace(length, n_labels, like),
    )  # fmt: skip


@kernel(helper=True)
def infer(nodes, edges, allowed, edge_allowed, room, marginals, expectation):
    """Compute log Z and marginals of a chain with forbidden labels and transitions."""
    if edge_allowed.shape[0] > 0:
        forbid(edges, edge_allowed, room.edges)
        edges = room.edges
    if allowed.shape[0] > 0:
        forbid(nodes, allowed, room.nodes[: nodes.shape[0]])
        nodes = room.nodes[: nodes.shape[0]]
    trans = edges.reshape(1, edges.shape[0], edges.shape[1])
    if nodes.shape[0] > 1:
        prepare_transitions(trans, room.tables)
        expectation[:] = 0.0
    none = trans[:0]
    return forward_backward(nodes, trans, room.tables, marginals, none, expectation, room.work)


@kernel(inline=True)
def truth_score(chains, first, last, scores, trans):
    """Return the score of the gold labeling of a chain."""
    total = 0.0
    for t in range(last - first):
        label = chains.labels[first + t]
        total += scores[t, label]
        if t > 0:
            total += trans[chains.labels[first + t - 1], label]
    return total


@kernel(helper=True)
def labels_are_known(chains, first, last):
    """Return whether all labels of a chain are known."""
    known = True
    for t in range(first, last):
        known = known and chains.labels[t] >= 0
    return known
