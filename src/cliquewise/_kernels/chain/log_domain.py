"""Sum-product on chains in the log domain: slow, and right for scores of any size.

`cliquewise._kernels.chain.sums` falls back on these where its scaled passes could lose mass.
Every row is shifted so that its maximum is 0: over a long chain of large scores the messages
would otherwise grow until their differences are rounded away.

All messages are rows of W numbers in one 1-d array (K rounded up to whole vectors, and
``-inf`` past K), and named by the place where their row starts.

Large scores leave few terms of a sum that matter: those below `FAINT` of the greatest are less
than its last bit, even thousands of them, and get no exponential.
"""

import numpy as np

from cliquewise._kernels import kernel
from cliquewise._kernels.common.math import fast_exp, fast_log
from cliquewise._kernels.common.simd import (
    LANES,
    add,
    any_above,
    lane_max,
    lane_sum,
    load,
    load_first,
    maximum,
    mul,
    no_unroll,
    padded,
    splat,
    spread,
    store,
    store_first,
)

#: Logarithms of terms that do not change a sum (1e-20), and of marginals set to zero (1e-90).
FAINT, NONE = -46.0, -207.0


@kernel
def zero_marginals(marginals, edges):
    """No feasible labeling: every marginal is zero."""
    none = splat(marginals.dtype.type(0))
    for at in range(0, marginals.size, LANES):
        store_first(marginals, at, marginals.size - at, none)
    for at in range(0, edges.size, LANES):
        store_first(edges, at, edges.size - at, none)


@kernel(helper=True)
def _sum(work, row, width):
    """Return (high, total) with logsumexp = high + log(total); total is 0 if all are -inf."""
    no_unroll()
    highs = splat(work.dtype.type(np.finfo(work.dtype).min))
    for j in range(row, row + width, LANES):
        highs = maximum(load(work, j), highs)
    high = lane_max(highs)
    total = splat(work.dtype.type(0))
    faint = splat(work.dtype.type(FAINT))
    for j in range(row, row + width, LANES):
        x = add(load(work, j), splat(-high))
        if any_above(x, faint):
            total = add(total, fast_exp(x))
    return high, lane_sum(total)


@kernel(helper=True)
def _add_scores(work, row, scores, at, n_labels, out):
    """Row ``out`` = row ``row`` + the scores from ``at`` on, shifted to maximum 0; the shift."""
    no_unroll()
    width = padded(n_labels)
    nothing = splat(work.dtype.type(-np.inf))
    highs = nothing
    for j in range(0, width, LANES):
        x = add(load(work, row + j), load_first(scores, at + j, n_labels - j, nothing))
        store(work, out + j, x)
        highs = maximum(x, highs)
    high = lane_max(highs)
    if high > -np.inf:
        for j in range(out, out + width, LANES):
            store(work, j, add(load(work, j), splat(-high)))
    return high


@kernel(helper=True)
def _step(work, source, trans, begin, n_labels, target):
    """target[j] = logsumexp over i of source[i] + the K x K table that begins at ``begin``."""
    no_unroll()
    nothing, faint = splat(work.dtype.type(-np.inf)), splat(work.dtype.type(FAINT))
    minus = splat(work.dtype.type(-1))
    for j in range(0, n_labels, LANES):
        start, count = begin + j, n_labels - j
        high = splat(work.dtype.type(np.finfo(work.dtype).min))
        for i in range(n_labels):
            row = load_first(trans, start + i * n_labels, count, nothing)
            high = maximum(add(row, spread(work, source + i)), high)
        total = splat(work.dtype.type(0))
        shift = mul(high, minus)
        for i in range(n_labels):
            row = load_first(trans, start + i * n_labels, count, nothing)
            # Added up as above: in another order large numbers would round to more than 0.
            x = add(add(row, spread(work, source + i)), shift)
            if any_above(x, faint):
                total = add(total, fast_exp(x))
        # No term: the logarithm of zero.
        store(work, target + j, add(high, fast_log(total)))


@kernel
def forward_log(nodes, trans, work):
    """Fill alpha, the first T rows of work, each with maximum 0; returns log Z."""
    length, n_labels = nodes.shape
    width = padded(n_labels)
    shared = trans.shape[0] == 1
    total = 0.0
    for t in range(length):
        at = t * width
        if t == 0:
            for j in range(width):
                work[j] = 0
        else:
            table = 0 if shared else (t - 1) * n_labels * n_labels
            _step(work, at - width, trans, table, n_labels, at)
        shift = _add_scores(work, at, nodes, t * n_labels, n_labels, at)
        if not shift > -np.inf:
            # The sum is -inf, or NaN if there is one: the maximum passes it over.
            total = 0.0
            for j in range(at, at + n_labels):
                total += work[j]
            return total
        total += shift
    high, mass = _sum(work, (length - 1) * width, width)
    return total + high + fast_log(mass)


@kernel(helper=True)
def _write_softmax(work, a, b, row, n_labels, marginals, t):
    """marginals[t] = softmax(a + b)."""
    no_unroll()
    width = padded(n_labels)
    for j in range(0, width, LANES):
        store(work, row + j, add(load(work, a + j), load(work, b + j)))
    high, total = _sum(work, row, width)
    shift, scale = splat(-high), splat(work.dtype.type(1) / total)
    for j in range(0, n_labels, LANES):
        x = mul(fast_exp(add(load(work, row + j), shift)), scale)
        store_first(marginals, t * n_labels + j, n_labels - j, x)


@kernel(helper=True)
def _transpose(trans, table, tables):
    """The transpose of one table into the scratch part of ``tables``; returns where it begins.

    Sums along its columns go lane by lane, where those along rows would need every lane of a row.
    """
    n_labels = trans.shape[1]
    flat, begin = tables.ravel(), 2 * tables.shape[1] * tables.shape[2]
    for i in range(n_labels):
        for j in range(n_labels):
            flat[begin + j * n_labels + i] = trans[table, i, j]
    return begin


@kernel(helper=True)
def _visit_edges(work, left, right, beta, row, trans, table, edges, t, expectation):
    """Edge marginals, softmax of left[i] + trans[i, j] + right[j]: set edges[t], add expectation.

    ``beta`` has summed them over j already.
    """
    no_unroll()
    n_labels = trans.shape[1]
    none, no = splat(work.dtype.type(0)), splat(work.dtype.type(NONE))
    for j in range(0, padded(n_labels), LANES):
        store(work, row + j, add(load(work, left + j), load(work, beta + j)))
    high, total = _sum(work, row, padded(n_labels))
    scale = splat(work.dtype.type(1) / total)
    for i in range(n_labels):
        shift = splat(work[left + i] - high)
        for j in range(0, n_labels, LANES):
            at, count = i * n_labels + j, n_labels - j
            x = load_first(trans, table * n_labels * n_labels + at, count, none)
            x = add(add(x, load(work, right + j)), shift)
            seen = any_above(x, no)
            x = mul(fast_exp(x), scale) if seen else none
            if edges.shape[0] > 0:
                store_first(edges, t * n_labels * n_labels + at, count, x)
            if seen and expectation.shape[0] > 0:
                y = add(load_first(expectation, at, count, none), x)
                store_first(expectation, at, count, y)


@kernel
def forward_backward_log(nodes, trans, tables, marginals, edges, expectation, work):
    """Same as `chain.forward_backward`; of ``tables`` only the scratch is used."""
    length, n_labels = nodes.shape
    log_z = forward_log(nodes, trans, work)
    if not log_z > -np.inf:
        zero_marginals(marginals, edges)
        return log_z
    width = padded(n_labels)
    beta, right, row = length * width, (length + 1) * width, (length + 2) * width
    shared = trans.shape[0] == 1
    wanted = edges.shape[0] > 0 or expectation.shape[0] > 0
    begin = 0
    for j in range(beta, beta + width):
        work[j] = 0
    for t in range(length - 1, -1, -1):
        at = t * width
        if marginals.shape[0] > 0:
            _write_softmax(work, at, beta, row, n_labels, marginals, t)
        if t > 0:
            table = 0 if shared else t - 1
            _add_scores(work, beta, nodes, t * n_labels, n_labels, right)
            if t == length - 1 or not shared:
                begin = _transpose(trans, table, tables)
            _step(work, right, tables, begin, n_labels, beta)
            if wanted:
                _visit_edges(
                    work, at - width, right, beta, row, trans, table, edges, t - 1, expectation
                )
    return log_z


@kernel
def log_partition_log(nodes, trans, work):
    """Same as `chain.log_partition`, without tables."""
    return forward_log(nodes, trans, work)
