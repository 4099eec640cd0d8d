"""Sum-product on chains in the log domain: slow, and right for scores of any size.

`cliquewise._kernels.chain` falls back on these where its scaled passes could lose mass.
Every row is shifted so that its maximum is 0: over a long chain of large scores the messages
would otherwise grow until their differences are rounded away.
"""

import numpy as np

from cliquewise._kernels import kernel
from cliquewise._kernels.math import fast_exp, fast_log


@kernel
def zero_marginals(marginals, edges):
    """No feasible labelling: every marginal is zero."""
    for t in range(marginals.shape[0]):
        for j in range(marginals.shape[1]):
            marginals[t, j] = 0
    for t in range(edges.shape[0]):
        for i in range(edges.shape[1]):
            for j in range(edges.shape[2]):
                edges[t, i, j] = 0


@kernel
def _shift_row(row):
    """Subtract the maximum of a row and return it (a row of -inf stays)."""
    high = row[0]
    for j in range(1, row.shape[0]):
        high = max(high, row[j])
    if high > -np.inf:
        for j in range(row.shape[0]):
            row[j] -= high
    return high


@kernel
def _combine(high, total):
    """high + log(total), or -inf where no term was feasible."""
    return high + fast_log(total) if high > -np.inf else high


@kernel
def _step(source, scores, high, target):
    """target[j] = logsumexp over i of source[i] + scores[i, j]."""
    n_labels = source.shape[0]
    for j in range(n_labels):
        high[j] = -np.inf
        target[j] = 0
    for i in range(n_labels):
        for j in range(n_labels):
            high[j] = max(high[j], source[i] + scores[i, j])
    for i in range(n_labels):
        # An infeasible column has high = -inf; its NaN terms are never used.
        for j in range(n_labels):
            target[j] += fast_exp(source[i] + scores[i, j] - high[j])
    for j in range(n_labels):
        target[j] = _combine(high[j], target[j])


@kernel
def forward_log(nodes, trans, alpha, high):
    """Fill alpha (T, K), every row with maximum 0; returns log Z."""
    length, n_labels = nodes.shape
    shared = trans.shape[0] == 1
    total = 0.0
    for t in range(length):
        if t == 0:
            alpha[0] = nodes[0]
        else:
            _step(alpha[t - 1], trans[0 if shared else t - 1], high, alpha[t])
            for j in range(n_labels):
                alpha[t, j] += nodes[t, j]
        shift = _shift_row(alpha[t])
        if not shift > -np.inf:
            return shift
        total += shift
    last = nodes.dtype.type(0)
    for j in range(n_labels):
        last += fast_exp(alpha[length - 1, j])
    return total + fast_log(last)


@kernel
def _write_softmax(a, b, out):
    """out = softmax(a + b)."""
    n_labels = a.shape[0]
    for j in range(n_labels):
        out[j] = a[j] + b[j]
    _shift_row(out)
    total = a.dtype.type(0)
    for j in range(n_labels):
        out[j] = fast_exp(out[j])
        total += out[j]
    for j in range(n_labels):
        out[j] /= total


@kernel
def _visit_edges(left, scores, right, out, expectation):
    """Edge marginals, softmax of left[i] + scores[i, j] + right[j]: set out, add expectation."""
    n_labels = left.shape[0]
    high = left.dtype.type(-np.inf)
    for i in range(n_labels):
        for j in range(n_labels):
            high = max(high, left[i] + scores[i, j] + right[j])
    total = left.dtype.type(0)
    for i in range(n_labels):
        for j in range(n_labels):
            total += fast_exp(left[i] + scores[i, j] + right[j] - high)
    for i in range(n_labels):
        for j in range(n_labels):
            share = fast_exp(left[i] + scores[i, j] + right[j] - high) / total
            if out.shape[0] > 0:
                out[0, i, j] = share
            if expectation.shape[0] > 0:
                expectation[i, j] += share


@kernel
def _step_back(source, scores, target):
    """target[i] = logsumexp over j of scores[i, j] + source[j]."""
    n_labels = source.shape[0]
    for i in range(n_labels):
        high = source.dtype.type(-np.inf)
        for j in range(n_labels):
            high = max(high, scores[i, j] + source[j])
        total = source.dtype.type(0)
        for j in range(n_labels):
            total += fast_exp(scores[i, j] + source[j] - high)
        target[i] = _combine(high, total)


@kernel
def forward_backward_log(nodes, trans, marginals, edges, expectation, work):
    """Same as `chain.forward_backward`, without tables."""
    length, n_labels = nodes.shape
    size = length * n_labels
    alpha = work[:size].reshape(length, n_labels)
    rows = work[size : size + 3 * n_labels].reshape(3, n_labels)
    beta, right, high = rows[0], rows[1], rows[2]
    log_z = forward_log(nodes, trans, alpha, high)
    if not log_z > -np.inf:
        zero_marginals(marginals, edges)
        return log_z
    shared = trans.shape[0] == 1
    wanted = edges.shape[0] > 0 or expectation.shape[0] > 0
    for j in range(n_labels):
        beta[j] = 0
    for t in range(length - 1, -1, -1):
        if marginals.shape[0] > 0:
            _write_softmax(alpha[t], beta, marginals[t])
        if t > 0:
            scores = trans[0 if shared else t - 1]
            for j in range(n_labels):
                right[j] = beta[j] + nodes[t, j]
            _shift_row(right)
            if wanted:
                _visit_edges(alpha[t - 1], scores, right, edges[t - 1 : t], expectation)
            _step_back(right, scores, beta)
            _shift_row(beta)
    return log_z


@kernel
def log_partition_log(nodes, trans, work):
    """Same as `chain.log_partition`, without tables."""
    length, n_labels = nodes.shape
    size = length * n_labels
    alpha = work[:size].reshape(length, n_labels)
    return forward_log(nodes, trans, alpha, work[size : size + n_labels])
