"""Dual values of GDMM: edges rounded to agree with their tokens, sparsely.

Tokens keep their masses. An edge's table has its rows scaled down to the left token's masses,
then its columns to the right one's; what is missing is filled from the corner of the true
pair on, label by label (the north-west corner rule). The result lies in the local polytope, which
is the marginal polytope of a chain: its dual value is a true lower bound.
"""

import numpy as np

from cliquewise._kernels import kernel
from cliquewise._kernels.gdmm.lists import MASS, PAIR_MASS


@kernel(helper=True)
def _column_sums(pairs, edge, scaled, sums, size):
    for q in range(size):
        sums[q] = 0.0
    for k in range(pairs.count[edge]):
        sums[pairs.right[pairs.start[edge] + k]] += scaled[k]


@kernel(helper=True)
def _shrink(support, pairs, edge, scaled, missing_left, missing_right):
    """Scale rows and columns down to the tokens' masses; compute the missing mass of both sides."""
    lhs, r = support.start[edge - 1], support.start[edge]
    n_left, n_right = support.count[edge - 1], support.count[edge]
    for p in range(n_left):
        missing_left[p] = 0.0
    for k in range(pairs.count[edge]):
        at = pairs.start[edge] + k
        scaled[k] = max(pairs.cell[at, PAIR_MASS], 0.0)
        missing_left[pairs.left[at]] += scaled[k]
    for k in range(pairs.count[edge]):
        p = pairs.left[pairs.start[edge] + k]
        if missing_left[p] > support.cell[lhs + p, MASS]:
            scaled[k] *= support.cell[lhs + p, MASS] / missing_left[p]
    _column_sums(pairs, edge, scaled, missing_right, n_right)
    for k in range(pairs.count[edge]):
        q = pairs.right[pairs.start[edge] + k]
        if missing_right[q] > support.cell[r + q, MASS]:
            scaled[k] *= support.cell[r + q, MASS] / missing_right[q]
    for p in range(n_left):
        missing_left[p] = support.cell[lhs + p, MASS]
    for q in range(n_right):
        missing_right[q] = support.cell[r + q, MASS]
    for k in range(pairs.count[edge]):
        at = pairs.start[edge] + k
        missing_left[pairs.left[at]] -= scaled[k]
        missing_right[pairs.right[at]] -= scaled[k]


@kernel(helper=True)
def _subtract(target, free, at, mass):
    if free[at] == 1:
        target[at] -= mass


@kernel
def repaired_pairs(chains, table, support, pairs, masses, n_labels, target):
    """``target`` (K * K, zeros) = the transition weights of the repaired duals."""
    most_labels, most_pairs = 0, 0
    for t in range(support.count.shape[0]):
        most_labels = max(most_labels, support.count[t])
        most_pairs = max(most_pairs, pairs.count[t])
    scaled = np.zeros(most_pairs + 1)
    missing_left, missing_right = np.zeros(most_labels + 1), np.zeros(most_labels + 1)
    for s in range(chains.offsets.shape[0] - 1):
        for t in range(chains.offsets[s] + 1, chains.offsets[s + 1]):
            lhs, r = support.start[t - 1], support.start[t]
            _shrink(support, pairs, t, scaled, missing_left, missing_right)
            true = np.int64(chains.labels[t - 1]) * n_labels + chains.labels[t]
            _subtract(target, table.free, true, -masses[s])
            for k in range(pairs.count[t]):
                at = pairs.start[t] + k
                i = np.int64(support.label[lhs + pairs.left[at]])
                j = support.label[r + pairs.right[at]]
                _subtract(target, table.free, i * n_labels + j, scaled[k])
            p, q = 0, 0
            while p < support.count[t - 1] and q < support.count[t]:
                mass = min(missing_left[p], missing_right[q])
                if mass > 0:
                    i = np.int64(support.label[lhs + p])
                    j = support.label[r + q]
                    _subtract(target, table.free, i * n_labels + j, mass)
                    missing_left[p] -= mass
                    missing_right[q] -= mass
                if missing_left[p] <= missing_right[q]:
                    p += 1
                else:
                    q += 1


@kernel
def wrong_mass(support):
    """Sum of the masses of wrong labels: the linear part of the dual."""
    total = 0.0
    for t in range(support.count.shape[0]):
        for p in range(support.start[t] + 1, support.start[t] + support.count[t]):
            total += support.cell[p, MASS]
    return total
