"""Rows over one graph of labels: products with sparse features, and exact inference row by row."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from cliquewise._kernels import REASSOCIATE, kernel
from cliquewise._kernels.graphs.junction_tree import best_labels, upward_max

#: Rows that are done together.
BLOCK = 32


@kernel(fastmath=REASSOCIATE)
def scores(indptr, indices, values, V, out):
    """out = X V."""
    k = V.shape[1]
    for i in range(len(indptr) - 1):
        row = out[i]
        for j in range(k):
            row[j] = 0.0
        for at in range(indptr[i], indptr[i + 1]):
            x, v = values[at], V[indices[at]]
            for j in range(k):
                row[j] += x * v[j]


@kernel(fastmath=REASSOCIATE)
def adjoint(indptr, indices, values, R, out):
    """out += X' R."""
    k = R.shape[1]
    for i in range(len(indptr) - 1):
        row = R[i]
        for at in range(indptr[i], indptr[i + 1]):
            x, v = values[at], out[indices[at]]
            for j in range(k):
                v[j] += x * row[j]


@kernel
def best_rows(plan, tables, first, on, labels):
    """The best labels of every row."""
    messages, work = np.empty(int(plan.sep_sizes.sum())), np.empty(plan.clique_sizes.max())
    for i in range(len(on)):
        for j in range(on.shape[1]):
            tables[first[j] + 1] = on[i, j]  # relative to being off
        upward_max(plan, tables, messages, work)
        found = best_labels(plan, tables, messages)
        for j in range(on.shape[1]):
            labels[i, j] = found[j]


# ---- marginals, many rows at a time: numbers of all rows of a block lie side by side


class Wiring(NamedTuple):
    """Buckets of an elimination: which tables they are products of."""

    order: Any  # the label that each bucket eliminates
    start: Any  # of its table in the arena, and the end of the last: 2 x separator, on after off
    message: Any  # of its message, likewise
    ops: Any  # its operands begin here
    source: Any  # a pair, or -1 - bucket of a message
    maps: Any  # of every operand and entry of the bucket's table, by operand: what it is times
    map_start: Any


@kernel(fastmath=REASSOCIATE)
def _up(wiring, b, off, on, pairs, tables, messages, log_z):
    """Bucket ``b``: the product of its operands, its sum over the label, scaled to at most one."""
    first, size = wiring.start[b], wiring.start[b + 1] - wiring.start[b]
    width, rows = size // 2, off.shape[0]
    for e in range(size):
        table, own = tables[first + e], off if e < width else on
        scale = 1.0
        for r in range(rows):
            table[r] = own[r]
        for o in range(wiring.ops[b], wiring.ops[b + 1]):
            at = wiring.maps[wiring.map_start[o] + e]
            if wiring.source[o] >= 0:
                scale *= pairs[wiring.source[o], at]
            else:
                other = messages[wiring.message[-1 - wiring.source[o]] + at]
                for r in range(rows):
                    table[r] *= other[r]
        for r in range(rows):
            table[r] *= scale
    m = wiring.message[b]
    top = np.zeros(rows)
    for s in range(width):
        message, left, right = messages[m + s], tables[first + s], tables[first + width + s]
        for r in range(rows):
            message[r] = left[r] + right[r]
            top[r] = max(top[r], message[r])
    for r in range(rows):
        # A row whose numbers leave the range of float64 is marked, and done elsewhere.
        log_z[r] = log_z[r] + np.log(top[r]) if top[r] > 1e-250 else np.nan
        top[r] = 1.0 / max(top[r], 1e-300)
    for e in range(size):
        for r in range(rows):
            tables[first + e, r] *= top[r]
    for s in range(width):
        for r in range(rows):
            messages[m + s, r] *= top[r]


@kernel(fastmath=REASSOCIATE)
def _down(wiring, b, tables, messages, shares, c, chance, sums):
    """Bucket ``b``: its joint distribution, from that of its separator; what children need."""
    first, size = wiring.start[b], wiring.start[b + 1] - wiring.start[b]
    width, rows, m = size // 2, c.shape[0], wiring.message[b]
    for s in range(width):
        share, message = shares[m + s], messages[m + s]
        for r in range(rows):
            share[r] = share[r] / message[r] if message[r] > 0.0 else 0.0
    for e in range(size):
        table, share = tables[first + e], shares[m + e % width]
        for r in range(rows):
            table[r] *= share[r]
        if e >= width:
            for r in range(rows):
                chance[r] += table[r]
        for o in range(wiring.ops[b], wiring.ops[b + 1]):
            at = wiring.maps[wiring.map_start[o] + e]
            if wiring.source[o] >= 0:
                total = 0.0
                for r in range(rows):
                    total += c[r] * table[r]
                sums[wiring.source[o], at] += total
            else:
                other = shares[wiring.message[-1 - wiring.source[o]] + at]
                for r in range(rows):
                    other[r] += table[r]


@kernel
def marginal_rows(wiring, pairs, on, c, log_z, chances, sums):
    """Of every row log Z and the labels' chances; weighted sums of the pairs' marginals.

    ``pairs`` are exponentials. The sums leave out rows whose log Z is NaN.
    """
    n, k = on.shape
    buckets = len(wiring.order)
    tables = np.empty((wiring.start[buckets], BLOCK))
    messages = np.empty((wiring.message[buckets], BLOCK))
    shares, weight, z = np.zeros((len(messages), BLOCK)), np.empty(BLOCK), np.empty(BLOCK)
    off_e, on_e, chance = np.empty((k, BLOCK)), np.empty((k, BLOCK)), np.zeros((k, BLOCK))
    for first in range(0, n, BLOCK):
        for r in range(BLOCK):
            i = min(first + r, n - 1)  # the last row fills up the last block, without weight
            weight[r], z[r] = c[i] if first + r < n else 0.0, 0.0
            for j in range(k):
                top = max(on[i, j], 0.0)
                z[r] += top
                off_e[j, r], on_e[j, r] = np.exp(-top), np.exp(on[i, j] - top)
        for b in range(buckets):
            _up(wiring, b, off_e[wiring.order[b]], on_e[wiring.order[b]], pairs, tables,
                messages, z)  # fmt: skip
        for r in range(BLOCK):
            weight[r] = weight[r] if z[r] == z[r] else 0.0
            if first + r < n:
                log_z[first + r] = z[r]
        shares[:] = 0.0
        chance[:] = 0.0
        for b in range(buckets - 1, -1, -1):
            m = wiring.message[b]
            if wiring.message[b + 1] - m == 1:
                shares[m] = 1.0
            _down(wiring, b, tables, messages, shares, weight, chance[wiring.order[b]], sums)
        for r in range(min(BLOCK, n - first)):
            for j in range(k):
                chances[first + r, j] = chance[j, r]
