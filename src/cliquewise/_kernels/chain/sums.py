"""Sum-product on chains: log Z, node and edge marginals.

Scores are logarithms: ``nodes`` of shape (T, K), and ``trans`` of shape (1, K, K), shared by
all positions, or (T - 1, K, K), one table per position; ``-inf`` forbids. The work is done
in the linear domain, rescaled at every position, with every exponential taken once.

Why the answer is right
-----------------------
Let ``alpha_t`` sum to one, ``c_t`` be its scale before that, and ``beta_t`` be scaled so that
``sum alpha_t beta_t = 1``. Numbers below ``tiny`` (2e-308) vanish, in ``exp`` or in a product.
What vanishes at position t has at most the share ``3 K tiny max(beta_t) / c_t`` of all mass, so
nothing is lost that matters if the *true* ``max(beta_t) / c_t`` stays below a limit (1e200).
The computed value can replace the true one because a floor (1e-100) is added to every
``beta_t``: more than the backward pass itself can lose in one step while the limit holds.
Where the limit is broken the sequence is done again in the log domain. Marginals
below the cutoff (1e-90), the noise of the floors, are returned as exact zeros.

With shared transitions that differ by less than 230 no check is needed: ``beta_t`` then
varies by less than 1e100, and ``c_t > 1e-100``.
"""

import numpy as np

from cliquewise._kernels import kernel
from cliquewise._kernels.chain.log_domain import (
    forward_backward_log,
    log_partition_log,
    zero_marginals,
)
from cliquewise._kernels.common.math import fast_exp, fast_log
from cliquewise._kernels.common.simd import (
    LANES,
    add,
    aligned_zeros,
    fma,
    keep_above,
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
    sum_outer_products,
    vector_matrix,
)

#: Where `prepare_transitions` stores two numbers: in this table, in its first row.
NUMBERS, SHIFT, SPREAD = 3, 0, 1


@kernel(inline=True)
def _limits(like):
    """Return limit of beta / c, floor of beta, cutoff of marginals, safe spread of transitions."""
    number = like.dtype.type
    if like.itemsize == 4:
        return number(1e18), number(1e-15), number(1e-12), number(20.0)
    return number(1e200), number(1e-100), number(1e-90), number(230.0)


@kernel(inline=True)
def workspace(length, n_labels, like):
    """Allocate scratch for one chain of up to ``length`` positions, of the type of ``like``."""
    width = padded(n_labels)
    return aligned_zeros(2 * length * width + 4 * width + length + LANES, like)


@kernel(inline=True)
def transition_tables(n_labels, like):
    """Allocate tables for `prepare_transitions`: (4, W, W), of the type of ``like``."""
    width = padded(n_labels)
    return aligned_zeros(4 * width * width, like).reshape(4, width, width)


@kernel(helper=True)
def _exponentiate(trans, table, tables):
    """Compute ``tables[0] = exp(trans[table] - shift)``; store the shift and the spread."""
    no_unroll()
    n_labels, width = trans.shape[1], tables.shape[1]
    start = table * n_labels * n_labels
    nothing = splat(trans.dtype.type(-np.inf))
    anything, minus = splat(trans.dtype.type(np.inf)), splat(trans.dtype.type(-1))
    # Not below the least number: a table of -inf alone shall become zeros, not NaN.
    high, low = splat(trans.dtype.type(np.finfo(trans.dtype).min)), nothing
    for i in range(n_labels):
        for j in range(0, n_labels, LANES):
            at, count = start + i * n_labels + j, n_labels - j
            high = maximum(load_first(trans, at, count, nothing), high)
            low = maximum(mul(load_first(trans, at, count, anything), minus), low)
    shift = lane_max(high)
    shifts = splat(-shift)
    for i in range(n_labels):
        for j in range(0, width, LANES):
            row = load_first(trans, start + i * n_labels + j, n_labels - j, nothing)
            store(tables, i * width + j, fast_exp(add(row, shifts)))
    tables[NUMBERS, 0, SHIFT] = shift
    tables[NUMBERS, 0, SPREAD] = shift + lane_max(low)


@kernel(inline=True)
def _transpose(tables, n_labels):
    """Write the transpose of ``tables[0]`` to ``tables[1]``."""
    for i in range(n_labels):
        for j in range(n_labels):
            tables[1, j, i] = tables[0, i, j]


@kernel
def prepare_transitions(trans, tables):
    """Exponentiate shared transitions once for many chains.

    Parameters
    ----------
    trans : array of shape (1, K, K) or (T - 1, K, K)
        With one table per position this does nothing (unless T is 2).
    tables : array of shape (4, W, W), from `transition_tables`
        Overwritten: the exponentials, their transpose, scratch, and two numbers.
    """
    if trans.shape[0] == 1:
        _exponentiate(trans, np.intp(0), tables)
        _transpose(tables, trans.shape[1])


@kernel(helper=True)
def _exponentiate_nodes(nodes, work, psi):
    """Compute ``psi = exp(nodes - row maxima)``, padded; return the sum of the maxima."""
    no_unroll()
    length, n_labels = nodes.shape
    width = padded(n_labels)
    nothing = splat(nodes.dtype.type(-np.inf))
    total = 0.0
    for t in range(length):
        high = nothing
        for j in range(0, n_labels, LANES):
            high = maximum(load_first(nodes, t * n_labels + j, n_labels - j, nothing), high)
        shift = lane_max(high)
        total += shift
        if not shift > -np.inf:
            return total
        shifts = splat(-shift)
        for j in range(0, width, LANES):
            row = load_first(nodes, t * n_labels + j, n_labels - j, nothing)
            store(work, psi + t * width + j, fast_exp(add(row, shifts)))
    return total


@kernel(helper=True)
def _forward(trans, tables, work, psi, scale, length):
    """Compute forward variables; return the sum of transition shifts, NaN where mass vanished.

    alpha_t(j) = psi_t(j) sum over i of alpha_{t-1}(i) A(i, j) / c_t, where c_t makes the sum 1
    """
    no_unroll()
    n_labels, width = trans.shape[1], tables.shape[1]
    one = work.dtype.type(1)
    shared = trans.shape[0] == 1
    shift = 0.0
    for t in range(length):
        at = t * width
        if t > 0:
            if not shared:
                _exponentiate(trans, t - 1, tables)
            shift += tables[NUMBERS, 0, SHIFT]
            vector_matrix(work, at - width, tables, np.intp(0), n_labels, at)
        else:
            for j in range(0, width, LANES):
                store(work, j, splat(one))
        total = splat(work.dtype.type(0))
        for j in range(at, at + width, LANES):
            product = mul(load(work, j), load(work, psi + j))
            store(work, j, product)
            total = add(total, product)
        c = lane_sum(total)
        work[scale + t] = c
        if not c > 0:
            return np.nan
        inverse = splat(one / c)
        for j in range(at, at + width, LANES):
            store(work, j, mul(load(work, j), inverse))
    return shift


@kernel(helper=True)
def _write_edges(tables, work, alpha, psi, cutoff, edges, row):
    """Write the marginals of one edge: alpha_t(i) A(i, j) psi_{t+1}(j) beta_{t+1}(j) / c_{t+1}."""
    no_unroll()
    width, n_labels = tables.shape[1], edges.shape[1]
    below = splat(cutoff)
    for i in range(n_labels):
        left = spread(work, alpha + i)
        for j in range(0, n_labels, LANES):
            edge = mul(mul(left, load(tables, i * width + j)), load(work, psi + j))
            out = (row * n_labels + i) * n_labels + j
            store_first(edges, out, n_labels - j, keep_above(edge, below))


@kernel(helper=True)
def _backward(trans, tables, work, psi, beta, scale, marginals, edges, length):
    """Compute the backward variables and marginals; return the greatest beta / c (see above).

    beta_t(i) = sum over j of A(i, j) psi_{t+1}(j) beta_{t+1}(j) / c_{t+1}
    p_t(i) = alpha_t(i) beta_t(i)

    ``psi`` becomes psi beta / c, from which `_write_edges` and `_add_expectation` follow.

    ``marginals`` and ``edges`` may have no rows, and are then not written.
    """
    no_unroll()
    n_labels, width = trans.shape[1], tables.shape[1]
    one = work.dtype.type(1)
    _, floor, cutoff, _ = _limits(work)
    floors, below = splat(floor), splat(cutoff)
    shared = trans.shape[0] == 1
    bound = floors
    for j in range(0, width, LANES):
        store(work, beta + j, splat(one))
    for t in range(length - 1, -1, -1):
        at = t * width
        inverse = splat(one / work[scale + t])
        if marginals.shape[0] > 0:
            for j in range(0, n_labels, LANES):
                node = keep_above(mul(load(work, at + j), load(work, beta + j)), below)
                store_first(marginals, t * n_labels + j, n_labels - j, node)
        for j in range(0, width, LANES):
            scaled = mul(load(work, beta + j), inverse)
            bound = maximum(scaled, bound)
            store(work, psi + at + j, mul(load(work, psi + at + j), scaled))
        if t > 0:
            if not shared:
                _exponentiate(trans, t - 1, tables)
                _transpose(tables, n_labels)
            if edges.shape[0] > 0:
                _write_edges(tables, work, at - width, psi + at, cutoff, edges, t - 1)
            vector_matrix(work, psi + at, tables, np.intp(1), n_labels, beta)
            for j in range(beta, beta + width, LANES):
                store(work, j, add(load(work, j), floors))
    return lane_max(bound)


@kernel(helper=True)
def _add_expectation(tables, work, psi, length, expectation):
    """Add the sum over t of ``alpha_{t-1} (outer) psi_t``, times the transitions."""
    no_unroll()
    width, n_labels = tables.shape[1], expectation.shape[0]
    none = splat(work.dtype.type(0))
    sum_outer_products(work, 0, psi + width, length - 1, n_labels, tables, 2)
    for i in range(n_labels):
        for j in range(0, n_labels, LANES):
            at, count = i * n_labels + j, n_labels - j
            product = fma(
                load(tables, (2 * width + i) * width + j),
                load(tables, i * width + j),
                load_first(expectation, at, count, none),
            )
            store_first(expectation, at, count, product)


@kernel(helper=True)
def _sum_of_logs(work, start, n):
    no_unroll()
    one = splat(work.dtype.type(1))
    total = 0.0
    for t in range(0, n, LANES):
        total += lane_sum(fast_log(load_first(work, start + t, n - t, one)))
    return total


@kernel
def forward_backward(nodes, trans, tables, marginals, edges, expectation, work):
    """Compute log Z of one chain, its node marginals and, on request, its edge marginals.

    Parameters
    ----------
    nodes : array of shape (T, K)
        Log-scores; T = 0 gives log Z = 0.
    trans : array of shape (1, K, K) or (T - 1, K, K)
        Log-scores of (label at t, label at t + 1).
    tables : array of shape (4, W, W)
        From `transition_tables`, filled by `prepare_transitions`.
    marginals : array of shape (T, K)
        Overwritten.
    edges : array of shape (T - 1, K, K) or (0, K, K)
        Overwritten; with no rows it is not computed.
    expectation : array of shape (K, K) or (0, K)
        The sum of the edge marginals is *added* to it; with no rows it is not computed.
        (Meant for shared transitions; with one table per position it takes the slow way.)
    work : array, 1-d
        From `workspace`, for this length or a longer one.

    Returns
    -------
    float
        log Z; ``-inf`` if no labeling is feasible; the marginals are then zero.
    """
    length = nodes.shape[0]
    if length == 0:
        return 0.0
    summed = expectation.shape[0] > 0 and length > 1
    log_z = np.nan
    if not (summed and trans.shape[0] != 1):
        log_z = scaled_passes(nodes, trans, tables, marginals, edges, work)
    if log_z == -np.inf:
        zero_marginals(marginals, edges)
        return log_z
    if np.isnan(log_z):
        return forward_backward_log(nodes, trans, tables, marginals, edges, expectation, work)
    if summed:
        _add_expectation(tables, work, length * tables.shape[1], length, expectation)
    return log_z


@kernel(helper=True)
def scaled_passes(nodes, trans, tables, marginals, edges, work):
    """Compute log Z and marginals with rescaling; return NaN where that could lose mass.

    Arguments as in `forward_backward`, of at least one position. ``work`` can then be passed
    to `edge_marginals`.
    """
    length, width = nodes.shape[0], tables.shape[1]
    # The parts of work: alpha from 0 on, then these.
    psi = length * width
    beta, scale = 2 * psi, 2 * psi + width
    shift = _exponentiate_nodes(nodes, work, psi)
    if shift == -np.inf:
        return -np.inf
    shift += _forward(trans, tables, work, psi, scale, length)
    if not np.isfinite(shift):
        return np.nan
    bound = _backward(trans, tables, work, psi, beta, scale, marginals, edges, length)
    if not bound < _limits(work)[0]:
        return np.nan
    return shift + _sum_of_logs(work, scale, length)


@kernel(helper=True)
def edge_marginals(trans, tables, work, length, t, edges):
    """Write the marginals of the edge from t to t + 1 to ``edges[0]``, after `scaled_passes`."""
    width = tables.shape[1]
    if trans.shape[0] != 1:
        _exponentiate(trans, t, tables)
    after = (length + t + 1) * width
    _write_edges(tables, work, t * width, after, _limits(work)[2], edges, 0)


@kernel
def log_partition(nodes, trans, tables, work):
    """Return log Z of one chain; arguments as in `forward_backward`."""
    length, width = nodes.shape[0], tables.shape[1]
    if length == 0:
        return 0.0
    psi = length * width
    beta, scale = 2 * psi, 2 * psi + width
    shift = _exponentiate_nodes(nodes, work, psi)
    if shift == -np.inf:
        return -np.inf
    shift += _forward(trans, tables, work, psi, scale, length)
    if not np.isfinite(shift):
        return log_partition_log(nodes, trans, work)
    limit, _, _, safe = _limits(work)
    if length > 1 and not (trans.shape[0] == 1 and tables[NUMBERS, 0, SPREAD] < safe):
        bound = _backward(trans, tables, work, psi, beta, scale, nodes[:0], trans[:0], length)
        if not bound < limit:
            return log_partition_log(nodes, trans, work)
    return shift + _sum_of_logs(work, scale, length)


@kernel(inline=True)
def longest(offsets):
    """Return the greatest difference of consecutive offsets."""
    length = 0
    for s in range(offsets.shape[0] - 1):
        length = max(length, offsets[s + 1] - offsets[s])
    return length


@kernel(inline=True)
def edge_rows(trans, start, length):
    """Return the transitions of one chain: the shared table, or its ``length - 1`` tables."""
    if trans.shape[0] == 1:
        return trans
    return trans[start : start + max(length - 1, 0)]


@kernel
def batch_forward_backward(nodes, offsets, trans, marginals, edges, expectation, log_z):
    """Run `forward_backward` on many chains in one call.

    Parameters
    ----------
    nodes, marginals : arrays of shape (N, K)
        All chains, one after the other; chain s is ``offsets[s] : offsets[s + 1]``.
    trans : array of shape (1, K, K) or (E, K, K)
        E is the number of edges, the sum of ``max(length - 1, 0)``.
    edges, expectation : arrays
        As in `forward_backward`; ``edges`` has E rows or none.
    """
    n_labels = nodes.shape[1]
    work = workspace(longest(offsets), n_labels, nodes)
    tables = transition_tables(n_labels, nodes)
    prepare_transitions(trans, tables)
    start = 0
    for s in range(offsets.shape[0] - 1):
        first, last = offsets[s], offsets[s + 1]
        own = edge_rows(trans, start, last - first)
        stop = start + max(last - first - 1, 0)
        if trans.shape[0] != 1:
            prepare_transitions(own, tables)
        log_z[s] = forward_backward(
            nodes[first:last],
            own,
            tables,
            marginals[first:last],
            edges[start:stop],
            expectation,
            work,
        )
        start = stop


@kernel
def batch_log_partition(nodes, offsets, trans, log_z):
    """Run `log_partition` on many chains in one call; see `batch_forward_backward`."""
    n_labels = nodes.shape[1]
    work = workspace(longest(offsets), n_labels, nodes)
    tables = transition_tables(n_labels, nodes)
    prepare_transitions(trans, tables)
    start = 0
    for s in range(offsets.shape[0] - 1):
        first, last = offsets[s], offsets[s + 1]
        own = edge_rows(trans, start, last - first)
        if trans.shape[0] != 1:
            prepare_transitions(own, tables)
        log_z[s] = log_partition(nodes[first:last], own, tables, work)
        start += max(last - first - 1, 0)
