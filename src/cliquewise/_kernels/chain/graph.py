"""Between the tables of a factor graph of paths and the arrays of the chain kernels.

Every factor has a row of the wiring: ``target[f]`` is the position of its variable, or the number
of its edge; ``kind[f]`` says which, and whether its table lies across (the later variable first).
"""

from __future__ import annotations

import numpy as np

from cliquewise._kernels import kernel

NODE, EDGE, EDGE_ACROSS = 0, 1, 2


@kernel
def assemble(tables, starts, kind, target, nodes, trans):
    """Add up all factors: nodes (N, K) and trans (E, K, K) are overwritten.

    Returns whether all tables of ``trans`` are equal.
    """
    n_labels = nodes.shape[1]
    nodes[:] = 0.0
    trans[:] = 0.0
    for f in range(len(kind)):
        at, to = starts[f], target[f]
        if kind[f] == NODE:
            for i in range(n_labels):
                nodes[to, i] += tables[at + i]
            continue
        for i in range(n_labels):
            for j in range(n_labels):
                if kind[f] == EDGE:
                    trans[to, i, j] += tables[at + i * n_labels + j]
                else:
                    trans[to, j, i] += tables[at + i * n_labels + j]
    for e in range(1, len(trans)):
        for i in range(n_labels):
            for j in range(n_labels):
                if trans[e, i, j] != trans[0, i, j]:
                    return False
    return True


@kernel
def _normalize(row):
    total = 0.0
    for i in range(row.shape[0]):
        total += row[i]
    scale = 1.0 / total
    for i in range(row.shape[0]):
        row[i] *= scale


@kernel
def distribute(marginals, edges, path, starts, kind, target, nodes, factors):
    """Write the marginals of positions and edges to those of variables and factors.

    They are normalized on the way: over many thousand positions rounding errors add up.
    """
    n_labels = marginals.shape[1]
    size = n_labels * n_labels
    flat = edges.reshape(len(edges), size)
    for t in range(len(marginals)):
        _normalize(marginals[t])
        nodes[path[t] * n_labels : (path[t] + 1) * n_labels] = marginals[t]
    for e in range(len(flat)):
        _normalize(flat[e])
    for f in range(len(kind)):
        at, to = starts[f], target[f]
        if kind[f] == NODE:
            factors[at : at + n_labels] = marginals[to]
        elif kind[f] == EDGE:
            factors[at : at + size] = flat[to]
        else:
            for i in range(n_labels):
                for j in range(n_labels):
                    factors[at + i * n_labels + j] = edges[to, j, i]


@kernel
def _shift_to_zero(row):
    """Subtract the maximum of a row and return it (a row of -inf stays)."""
    high = row.max()
    if high > -np.inf:
        row -= high
    return high


@kernel
def _max_marginals(nodes, trans, shared, out):
    """Best score of one chain; out[t, j] is what label j at t costs against it (0 or less)."""
    length, n_labels = nodes.shape
    total = 0.0
    for t in range(length):
        row = out[t]
        row[:] = 0.0
        if t > 0:
            table = trans[0 if shared else t - 1]
            row[:] = -np.inf
            for i in range(n_labels):
                before = out[t - 1, i]
                for j in range(n_labels):
                    row[j] = max(row[j], before + table[i, j])
        for j in range(n_labels):
            row[j] += nodes[t, j]
        high = _shift_to_zero(row)
        if not high > -np.inf:
            return high
        total += high
    back, right = np.zeros(n_labels), np.zeros(n_labels)
    for t in range(length - 1, -1, -1):
        if t + 1 < length:
            table = trans[0 if shared else t]
            for i in range(n_labels):
                right[i] = back[i] + nodes[t + 1, i]
            for i in range(n_labels):
                back[i] = -np.inf
                for j in range(n_labels):
                    back[i] = max(back[i], table[i, j] + right[j])
            _shift_to_zero(back)
        for j in range(n_labels):
            out[t, j] += back[j]
        _shift_to_zero(out[t])
    return total


@kernel
def max_marginals(nodes, offsets, trans, path, out):
    """Best score of all chains together; out[path[t] K + j], the best with label j at t."""
    n_labels = nodes.shape[1]
    shared = len(trans) == 1
    losses = np.empty_like(nodes)
    total, start = 0.0, 0
    for s in range(len(offsets) - 1):
        first, last = offsets[s], offsets[s + 1]
        own = trans if shared else trans[start : start + last - first - 1]
        total += _max_marginals(nodes[first:last], own, shared, losses[first:last])
        start += last - first - 1
        if not total > -np.inf:
            return total
    for t in range(len(nodes)):
        for j in range(n_labels):
            out[path[t] * n_labels + j] = total + losses[t, j]
    return total
