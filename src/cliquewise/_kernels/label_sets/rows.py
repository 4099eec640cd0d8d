"""Exact inference for many rows that share one label graph, and products with sparse features."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from cliquewise._kernels import REASSOCIATE, kernel
from cliquewise._kernels.graphs.junction_tree import best_labels, upward_max

#: Rows in a block: a table entry fills four 64-byte lines, enough for loops to vectorize.
BLOCK = 32
#: Table entries below this may have lost digits. Far above the least normal float64 (2.2e-308), so
#: that the rounding of factors slightly above one does not matter.
UNDERFLOW = 1e-290


@kernel(fastmath=REASSOCIATE)
def scores(indptr, indices, values, V, out):
    """Compute ``out = X V`` for the rows of a sparse matrix X."""
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
    """Add ``X' R`` to ``out``."""
    k = R.shape[1]
    for i in range(len(indptr) - 1):
        row = R[i]
        for at in range(indptr[i], indptr[i + 1]):
            x, v = values[at], out[indices[at]]
            for j in range(k):
                v[j] += x * row[j]


@kernel
def best_rows(plan, tables, first, on, labels):
    """Find the MAP labeling of every row."""
    messages, work = np.empty(int(plan.sep_sizes.sum())), np.empty(plan.clique_sizes.max())
    for i in range(len(on)):
        for j in range(on.shape[1]):
            tables[first[j] + 1] = on[i, j]  # relative to being off
        upward_max(plan, tables, messages, work)
        found = best_labels(plan, tables, messages)
        for j in range(on.shape[1]):
            labels[i, j] = found[j]


# ---- marginals of blocks of rows


class EliminationTree(NamedTuple):
    """Buckets of an elimination: the operands whose product is the table of each."""

    order: Any  # the label that each bucket eliminates
    start: Any  # first entry of each bucket's table (2 x separator, off before on), and the end
    message: Any  # first entry of each bucket's message, and the end
    ops: Any  # first operand of each bucket, and the end
    source: Any  # of each operand: a pair, or -1 - (the bucket that sends a message)
    maps: Any  # by operand and table entry: the entry of the operand that multiplies it
    map_start: Any  # first element of each operand in ``maps``


@kernel(fastmath=REASSOCIATE)
def _upward(tree, b, off, on, pairs, tables, messages, log_z, least):
    """Compute the table of bucket ``b`` and its message, scaled to a maximum of one.

    table(x_b, x_S) = psi(x_b) prod over pairs psi(x_b, x_j) prod over children c message_c(x_Sc)
    message(x_S)    = sum over x_b table(x_b, x_S)

    ``least`` becomes the smallest entry of any table so far.
    """
    first, size = tree.start[b], tree.start[b + 1] - tree.start[b]
    width, rows = size // 2, off.shape[0]
    for e in range(size):
        table, unary = tables[first + e], off if e < width else on
        factor = 1.0
        for r in range(rows):
            table[r] = unary[r]
        for o in range(tree.ops[b], tree.ops[b + 1]):
            at = tree.maps[tree.map_start[o] + e]
            if tree.source[o] >= 0:
                factor *= pairs[tree.source[o], at]
            else:
                child = messages[tree.message[-1 - tree.source[o]] + at]
                for r in range(rows):
                    table[r] *= child[r]
        for r in range(rows):
            table[r] *= factor
            least[r] = min(least[r], table[r])
    m = tree.message[b]
    scale = np.zeros(rows)
    for s in range(width):
        message, left, right = messages[m + s], tables[first + s], tables[first + width + s]
        for r in range(rows):
            message[r] = left[r] + right[r]
            scale[r] = max(scale[r], message[r])
    for r in range(rows):
        log_z[r] += np.log(scale[r])
        scale[r] = 1.0 / max(scale[r], UNDERFLOW)
    for e in range(size):
        for r in range(rows):
            tables[first + e, r] *= scale[r]
    for s in range(width):
        for r in range(rows):
            messages[m + s, r] *= scale[r]


@kernel(fastmath=REASSOCIATE)
def _downward(tree, b, tables, messages, shares, c, on_marginals, sums):
    """Turn the table of bucket ``b`` into its joint distribution, and add up its marginals.

    p(x_b, x_S) = table(x_b, x_S) p(x_S) / message(x_S)

    ``shares`` holds p(x_S) of every bucket, in the places of its message.
    """
    first, size = tree.start[b], tree.start[b + 1] - tree.start[b]
    width, rows, m = size // 2, c.shape[0], tree.message[b]
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
                on_marginals[r] += table[r]
        for o in range(tree.ops[b], tree.ops[b + 1]):
            at = tree.maps[tree.map_start[o] + e]
            if tree.source[o] >= 0:
                total = 0.0
                for r in range(rows):
                    total += c[r] * table[r]
                sums[tree.source[o], at] += total
            else:
                child = shares[tree.message[-1 - tree.source[o]] + at]
                for r in range(rows):
                    child[r] += table[r]


@kernel
def _log_domain_row(tree, log_pairs, on, c, tables, messages, shares, on_marginals, sums):
    """Do one row with logarithms in place of products; returns log Z.

    As `_upward` and `_downward`, except that tables and messages are logarithms, and
    p(x_b, x_S) = p(x_S) exp(table(x_b, x_S) - message(x_S)).
    """
    log_z, buckets = 0.0, len(tree.order)
    for b in range(buckets):
        first, m = tree.start[b], tree.message[b]
        width = tree.message[b + 1] - m
        for e in range(2 * width):
            value = on[tree.order[b]] if e >= width else 0.0
            for o in range(tree.ops[b], tree.ops[b + 1]):
                at = tree.maps[tree.map_start[o] + e]
                if tree.source[o] >= 0:
                    value += log_pairs[tree.source[o], at]
                else:
                    value += messages[tree.message[-1 - tree.source[o]] + at]
            tables[first + e] = value
        top = -np.inf
        for s in range(width):
            low, high = tables[first + s], tables[first + width + s]
            low, high = min(low, high), max(low, high)
            message = high + np.log1p(np.exp(low - high)) if high > -np.inf else high
            messages[m + s] = message
            top = max(top, message)
        log_z += top
        if not np.isfinite(top):
            return np.nan
        for s in range(width):
            messages[m + s] -= top
            tables[first + s] -= top
            tables[first + width + s] -= top
    shares[:] = 0.0
    for b in range(buckets - 1, -1, -1):
        first, m, label = tree.start[b], tree.message[b], tree.order[b]
        width = tree.message[b + 1] - m
        if width == 1:
            shares[m] = 1.0
        on_marginals[label] = 0.0
        for e in range(2 * width):
            s = m + e % width
            p = shares[s] * np.exp(tables[first + e] - messages[s]) if shares[s] > 0.0 else 0.0
            if e >= width:
                on_marginals[label] += p
            for o in range(tree.ops[b], tree.ops[b + 1]):
                at = tree.maps[tree.map_start[o] + e]
                if tree.source[o] >= 0:
                    sums[tree.source[o], at] += c * p
                else:
                    shares[tree.message[-1 - tree.source[o]] + at] += p
    return log_z


@kernel
def marginal_rows(tree, log_pairs, on, c, log_z, on_marginals, sums):
    """Compute log Z and the marginals of every row, and weighted sums of pair marginals.

    The rows of a block are done together, with products of exponentials. A row in which a product
    underflows is done again with logarithms.

    Why the answer is right
    -----------------------
    Exponentials and messages are scaled to at most one. So if an entry of a table is at least
    `UNDERFLOW`, no partial product on the way to it was smaller, and it has a small relative error.
    If that holds for all entries, sums and messages have small relative errors, and so has log Z's
    exponential. Downward, p(x_S) may underflow. That is an absolute error below 1e-300 of a
    probability, which ``table / message <= 1`` does not increase.

    A test of the largest entry of a message, instead of all, would not be enough: a small entry
    may decide once it has met the tables of later buckets.

    Parameters
    ----------
    tree : EliminationTree
    log_pairs : array of shape (n_pairs, 4)
        Scores of pairs, the largest of each being 0.
    on : array of shape (n, n_labels)
        Scores of labels that are on, relative to being off.
    c : array of shape (n,)
        Weights of rows in ``sums``.
    log_z : array of shape (n,)
        Filled; NaN if it is not finite.
    on_marginals : array of shape (n, n_labels)
        Filled with the probabilities that labels are on.
    sums : array of shape (n_pairs, 4)
        The weighted sums of pair marginals are added, except those of rows whose log Z is NaN.
    """
    n, k = on.shape
    buckets = len(tree.order)
    tables = np.empty((tree.start[buckets], BLOCK))
    messages = np.empty((tree.message[buckets], BLOCK))
    shares, weight, z = np.zeros((len(messages), BLOCK)), np.empty(BLOCK), np.empty(BLOCK)
    off_e, on_e, marginal = np.empty((k, BLOCK)), np.empty((k, BLOCK)), np.zeros((k, BLOCK))
    least, pairs = np.empty(BLOCK), np.exp(log_pairs)
    for first in range(0, n, BLOCK):
        for r in range(BLOCK):
            i = min(first + r, n - 1)  # the last row fills up the last block, with weight zero
            weight[r], z[r], least[r] = c[i] if first + r < n else 0.0, 0.0, 1.0
            for j in range(k):
                score = on[i, j]
                if not np.isfinite(score):  # no NaN shall get into ``sums``
                    score, least[r] = 0.0, 0.0
                top = max(score, 0.0)
                z[r] += top
                off_e[j, r], on_e[j, r] = np.exp(-top), np.exp(score - top)
        for b in range(buckets):
            label = tree.order[b]
            _upward(tree, b, off_e[label], on_e[label], pairs, tables, messages, z, least)
        for r in range(BLOCK):
            if not (least[r] >= UNDERFLOW and np.isfinite(z[r])):
                z[r], weight[r] = np.nan, 0.0
            if first + r < n:
                log_z[first + r] = z[r]
        shares[:] = 0.0
        marginal[:] = 0.0
        for b in range(buckets - 1, -1, -1):
            m = tree.message[b]
            if tree.message[b + 1] - m == 1:
                shares[m] = 1.0
            _downward(tree, b, tables, messages, shares, weight, marginal[tree.order[b]], sums)
        for r in range(min(BLOCK, n - first)):
            for j in range(k):
                on_marginals[first + r, j] = marginal[j, r]
    for i in range(n):
        if np.isnan(log_z[i]):
            log_z[i] = _log_domain_row(
                tree, log_pairs, on[i], c[i], tables[:, 0].copy(), messages[:, 0].copy(),
                shares[:, 0].copy(), on_marginals[i], sums,
            )  # fmt: skip
