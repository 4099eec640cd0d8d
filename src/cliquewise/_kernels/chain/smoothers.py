"""The smoothed maximum over the labelings of one chain; see `chain.smooth` for the notation."""

from __future__ import annotations

from collections import namedtuple

import numpy as np

from cliquewise._kernels import kernel
from cliquewise._kernels.chain.decode import decode_workspace
from cliquewise._kernels.chain.features import cost_of
from cliquewise._kernels.chain.inference import infer, inference_room, truth_score
from cliquewise._kernels.chain.sums import longest
from cliquewise._kernels.chain.top_k import top_k_within
from cliquewise._kernels.common.simd import no_unroll
from cliquewise._kernels.common.simplex import project_simplex

#: Scratch of one oracle call; ``p`` and ``p_edges`` hold its answer.
Room = namedtuple(
    "Room",
    ["scores", "trans", "labels", "psi", "best", "p", "p_edges", "decode", "inference", "nothing"],
)  # fmt: skip


@kernel(helper=True)
def smoothing_room(chains, k, like):
    """Allocate scratch for any chain and ``k`` labelings."""
    length, n_labels = longest(chains.offsets), chains.allowed.shape[1]
    shape, square = (length, n_labels), (n_labels, n_labels)
    few = 1 if k > 0 else length  # the other kind of oracle needs little
    return Room(
        np.empty(shape), np.empty(square), np.empty((max(k, 1), length), np.int64),
        np.empty(max(k, 1)), np.empty(max(k, 1)), np.empty(shape), np.empty(square),
        decode_workspace(length if k > 0 else 1, n_labels, like),
        inference_room(few, n_labels, like), np.empty((0, n_labels), np.bool_),
    )  # fmt: skip


@kernel(helper=True)
def _add_cost(chains, first, last, s):
    """Add the costs to the scores; -inf where a label is not allowed."""
    no_unroll()
    n_labels = s.shape[1]
    for t in range(last - first):
        for j in range(n_labels):
            s[t, j] += cost_of(chains, first + t, j)
        if chains.allowed.shape[0] > 0:
            for j in range(n_labels):
                if not chains.allowed[first + t, j]:
                    s[t, j] = -np.inf


@kernel(helper=True)
def _excess(chains, first, size, s, trans, labels, b):
    """Return the score of labeling ``b`` less that of the gold one, as a sum over differences."""
    no_unroll()
    total = 0.0
    for t in range(size):
        new, truth = labels[b, t], chains.labels[first + t]
        if new != truth:
            total += s[t, new] - s[t, truth]
        if t > 0:
            before, true_before = labels[b, t - 1], chains.labels[first + t - 1]
            if new != truth or before != true_before:
                total += trans[before, new] - trans[true_before, truth]
    return total


@kernel(helper=True)
def clear_marginals(p, size, p_edges):
    no_unroll()
    n_labels = p.shape[1]
    for t in range(size):
        for j in range(n_labels):
            p[t, j] = 0.0
    for a in range(n_labels):
        for b in range(n_labels):
            p_edges[a, b] = 0.0


@kernel(helper=True)
def _top_k(chains, first, last, mu, k, ask, room):
    """Smooth with the l2 norm over the k best labelings; return (value, mu omega, exact).

    ``ask`` is k, or k + 1 where the test of exactness is wanted.
    """
    no_unroll()
    size = last - first
    s, trans, n_labels = room.scores[:size], room.trans, room.trans.shape[0]
    labels, psi = room.labels, room.psi
    # A labeling that is mu or more below the best gets no share.
    count = top_k_within(
        s, trans.reshape(1, n_labels, n_labels), labels[:ask, :size], room.best[:ask], room.decode,
        mu,
    )  # fmt: skip
    for b in range(count):
        psi[b] = _excess(chains, first, size, s, trans, labels, b)
    exact = count <= k
    if count > k:
        spread = 0.0
        for b in range(k):
            spread += psi[b] - psi[k]
        exact = mu <= spread
    count = min(count, k)
    u = room.best
    if mu > 0.0:
        for b in range(count):
            u[b] = psi[b] / mu
        project_simplex(u[:count], 1.0)
    else:
        for b in range(count):
            u[b] = 1.0 if b == 0 else 0.0
    for b in range(count, k):
        u[b] = 0.0
    clear_marginals(room.p, size, room.p_edges)
    mean, square = 0.0, 0.0
    for b in range(count):
        if u[b] > 0.0:
            mean += u[b] * psi[b]
            square += u[b] * u[b]
            for t in range(size):
                room.p[t, labels[b, t]] += u[b]
                if t > 0:
                    room.p_edges[labels[b, t - 1], labels[b, t]] += u[b]
    omega = 0.5 * mu * (square - 1.0)
    return mean - omega, omega, exact


@kernel(helper=True)
def _marginals(chains, first, last, mu, room):
    """Smooth with the entropy, by forward-backward at temperature mu; return as `_top_k`."""
    no_unroll()
    size, n_labels = last - first, room.trans.shape[0]
    s, trans, hot, hot_trans = room.scores, room.trans, room.inference.nodes, room.inference.edges
    truth = truth_score(chains, first, last, s, trans)
    for t in range(size):
        for j in range(n_labels):
            hot[t, j] = s[t, j] / mu
    for a in range(n_labels):
        for b in range(n_labels):
            hot_trans[a, b] = trans[a, b] / mu
            room.p_edges[a, b] = 0.0
    log_z = infer(
        hot[:size], hot_trans, room.nothing, room.nothing, room.inference, room.p[:size],
        room.p_edges,
    )  # fmt: skip
    value, mean = mu * log_z - truth, -truth
    for t in range(size):
        for j in range(n_labels):
            if room.p[t, j] > 0.0:
                mean += room.p[t, j] * s[t, j]
    for a in range(n_labels):
        for b in range(n_labels):
            if room.p_edges[a, b] > 0.0:
                mean += room.p_edges[a, b] * trans[a, b]
    return max(value, 0.0), mean - value, True


@kernel(helper=True)
def possible_table(trans, edge_allowed, out):
    """Return transition scores with -inf for forbidden transitions."""
    no_unroll()
    for a in range(trans.shape[0]):
        for b in range(trans.shape[0]):
            out[a, b] = trans[a, b]
            if edge_allowed.shape[0] > 0 and not edge_allowed[a, b]:
                out[a, b] = -np.inf


@kernel(helper=True)
def smoothed_maximum(chains, first, last, mu, k, ask, room):
    """The smoothed maximum for the scores in ``room``; its distribution in ``p``, ``p_edges``.

    Returns (value, mu omega, whether k were enough).
    """
    no_unroll()
    _add_cost(chains, first, last, room.scores[: last - first])
    if k > 0:
        return _top_k(chains, first, last, mu, k, ask, room)
    return _marginals(chains, first, last, mu, room)
