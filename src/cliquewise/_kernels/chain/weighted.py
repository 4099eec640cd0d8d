"""Edge expectations of many chains, each with its own weight."""

from __future__ import annotations

from cliquewise._kernels import kernel
from cliquewise._kernels.chain.sums import (
    forward_backward,
    longest,
    prepare_transitions,
    transition_tables,
    workspace,
)
from cliquewise._kernels.common.simd import aligned_zeros


@kernel
def weighted_expectation(nodes, offsets, trans, weights, marginals, expectation):
    """expectation += sum over s of weights[s] times the edge marginals of chain s.

    For transitions of shape (1, K, K); the other arguments as in `batch_forward_backward`.
    ``marginals`` is overwritten, without the weights.
    """
    n_labels = nodes.shape[1]
    work = workspace(longest(offsets), n_labels, nodes)
    tables = transition_tables(n_labels, nodes)
    prepare_transitions(trans, tables)
    own = aligned_zeros(n_labels * n_labels, nodes).reshape(n_labels, n_labels)
    for s in range(offsets.shape[0] - 1):
        if weights[s] == 0:
            continue
        for i in range(n_labels):
            for j in range(n_labels):
                own[i, j] = 0
        first, last = offsets[s], offsets[s + 1]
        forward_backward(
            nodes[first:last], trans, tables, marginals[first:last], trans[:0], own, work
        )
        for i in range(n_labels):
            for j in range(n_labels):
                expectation[i, j] += weights[s] * own[i, j]
