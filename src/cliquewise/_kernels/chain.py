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
The computed one stands for the true one because a floor (1e-100) is added to every
``beta_t``: more than the backward pass itself can lose in one step while the limit holds.
Where the limit is broken the sequence is done again in the log domain. Marginals
below the cutoff (1e-90), the noise of the floors, are returned as exact zeros.

With shared transitions that differ by less than 230 no check is needed: ``beta_t`` then
varies by less than 1e100, and ``c_t > 1e-100``.
"""

import numpy as np

from cliquewise._kernels import kernel
from cliquewise._kernels.chain_log import forward_backward_log, log_partition_log, zero_marginals
from cliquewise._kernels.math import exp_in_place, log_in_place
from cliquewise._kernels.simd import (
    LANES,
    add,
    add_outer_products,
    aligned_zeros,
    fma,
    keep_above,
    lane_max,
    lane_sum,
    load,
    load_first,
    maximum,
    mul,
    padded,
    splat,
    store,
    store_first,
    vector_matrix,
)


@kernel
def _limits(like):
    """(greatest beta / c, floor of beta, cutoff of marginals, safe spread of transitions)."""
    number = like.dtype.type
    if like.itemsize == 4:
        return number(1e18), number(1e-15), number(1e-12), number(20.0)
    return number(1e200), number(1e-100), number(1e-90), number(230.0)


@kernel
def workspace(length, n_labels, like):
    """Scratch for one chain of up to ``length`` positions, of the type of ``like``."""
    width = padded(n_labels)
    return aligned_zeros(2 * length * width + 4 * width + length + LANES, like)


@kernel
def transition_tables(n_labels, like):
    """Room for `prepare_transitions`: (4, W, W), zeros, of the type of ``like``."""
    width = padded(n_labels)
    return aligned_zeros(4 * width * width, like).reshape(4, width, width)


@kernel
def _exponentiate(trans, table, tables, transpose):
    """tables[0] = exp(trans[table] - shift), tables[1] its transpose; keeps shift and spread."""
    n_labels, width = trans.shape[1], tables.shape[1]
    start = table * n_labels * n_labels
    nothing = splat(trans.dtype.type(-np.inf))
    anything, minus = splat(trans.dtype.type(np.inf)), splat(trans.dtype.type(-1))
    high = low = nothing
    for i in range(n_labels):
        for j in range(0, n_labels, LANES):
            at, count = start + i * n_labels + j, n_labels - j
            high = maximum(load_first(trans, at, count, nothing), high)
            low = maximum(mul(load_first(trans, at, count, anything), minus), low)
    shift = max(lane_max(high), np.finfo(trans.dtype).min)
    shifts = splat(-shift)
    for i in range(n_labels):
        for j in range(0, width, LANES):
            row = load_first(trans, start + i * n_labels + j, n_labels - j, nothing)
            store(tables, i * width + j, add(row, shifts))
    exp_in_place(tables[0, :n_labels].reshape(n_labels * width))
    if transpose:
        for i in range(n_labels):
            for j in range(n_labels):
                tables[1, j, i] = tables[0, i, j]
    tables[3, 0, 0] = shift
    tables[3, 0, 1] = shift + lane_max(low)


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
        _exponentiate(trans, 0, tables, True)


@kernel
def _exponentiate_nodes(nodes, psi):
    """psi = exp(nodes - row maxima), padded with zeros; returns the sum of the maxima."""
    length, n_labels = nodes.shape
    width = padded(n_labels)
    nothing = splat(nodes.dtype.type(-np.inf))
    total = 0.0
    for t in range(length):
        high = nothing
        for j in range(0, width, LANES):
            row = load_first(nodes, t * n_labels + j, n_labels - j, nothing)
            store(psi, t * width + j, row)
            high = maximum(row, high)
        shift = lane_max(high)
        total += shift
        if not shift > -np.inf:
            return total
        shifts = splat(-shift)
        for j in range(t * width, (t + 1) * width, LANES):
            store(psi, j, add(load(psi, j), shifts))
    exp_in_place(psi)
    return total


@kernel
def _forward(trans, tables, psi, alpha, scale, n_labels):
    """Fill alpha and scale; returns the sum of transition shifts, NaN where mass vanished."""
    width = tables.shape[1]
    one = psi.dtype.type(1)
    shared = trans.shape[0] == 1
    matrix = tables[0]
    shift = 0.0
    for t in range(scale.shape[0]):
        at = t * width
        if t > 0:
            if not shared:
                _exponentiate(trans, t - 1, tables, False)
            shift += tables[3, 0, 0]
            vector_matrix(alpha, at - width, matrix, n_labels, alpha, at)
        else:
            for j in range(width):
                alpha[j] = one
        total = splat(psi.dtype.type(0))
        for j in range(at, at + width, LANES):
            product = mul(load(alpha, j), load(psi, j))
            store(alpha, j, product)
            total = add(total, product)
        scale[t] = lane_sum(total)
        if not scale[t] > 0:
            return np.nan
        inverse = splat(one / scale[t])
        for j in range(at, at + width, LANES):
            store(alpha, j, mul(load(alpha, j), inverse))
    return shift


@kernel
def _write_edges(tables, alpha, psi, at, cutoff, n_labels, out):
    """Marginals of the edge into the position whose row of psi starts at ``at``."""
    width = tables.shape[1]
    below = splat(cutoff)
    for i in range(n_labels):
        left = splat(alpha[at - width + i])
        for j in range(0, n_labels, LANES):
            edge = mul(mul(left, load(tables, i * width + j)), load(psi, at + j))
            store_first(out, i * n_labels + j, n_labels - j, keep_above(edge, below))


@kernel
def _backward(trans, tables, psi, alpha, scale, rows, marginals, edges):
    """Backward pass; psi becomes psi beta / c. Returns the greatest beta / c (see above).

    ``marginals`` and ``edges`` may have no rows, and are then not written.
    """
    width = tables.shape[1]
    n_labels = trans.shape[1]
    _, floor, cutoff, _ = _limits(psi)
    beta, floors, below = rows[:width], splat(floor), splat(cutoff)
    shared = trans.shape[0] == 1
    transposed = tables[1]
    bound = splat(floor)
    for j in range(width):
        beta[j] = 1
    for t in range(scale.shape[0] - 1, -1, -1):
        at = t * width
        inverse = splat(psi.dtype.type(1) / scale[t])
        if marginals.shape[0] > 0:
            for j in range(0, n_labels, LANES):
                node = keep_above(mul(load(alpha, at + j), load(beta, j)), below)
                store_first(marginals, t * n_labels + j, n_labels - j, node)
        for j in range(0, width, LANES):
            scaled = mul(load(beta, j), inverse)
            bound = maximum(scaled, bound)
            store(psi, at + j, mul(load(psi, at + j), scaled))
        if t > 0:
            if not shared:
                _exponentiate(trans, t - 1, tables, True)
            if edges.shape[0] > 0:
                _write_edges(tables, alpha, psi, at, cutoff, n_labels, edges[t - 1])
            vector_matrix(psi, at, transposed, n_labels, beta, 0)
            for j in range(0, width, LANES):
                store(beta, j, add(load(beta, j), floors))
    return lane_max(bound)


@kernel
def _add_expectation(tables, alpha, psi, length, n_labels, expectation):
    """expectation += sum over t of alpha_{t-1} (outer) psi_t, times the transitions."""
    width = tables.shape[1]
    sums = tables[2]
    none = splat(sums.dtype.type(0))
    for j in range(0, width * width, LANES):
        store(sums, j, none)
    left, right = alpha.reshape(length, width), psi.reshape(length, width)
    add_outer_products(left[:-1], right[1:], length - 1, n_labels, sums)
    for i in range(n_labels):
        for j in range(0, n_labels, LANES):
            at, count = i * n_labels + j, n_labels - j
            product = fma(
                load(sums, i * width + j),
                load(tables, i * width + j),
                load_first(expectation, at, count, none),
            )
            store_first(expectation, at, count, product)


@kernel
def _sum_of_logs(scale):
    log_in_place(scale)
    total = 0.0
    for t in range(scale.shape[0]):
        total += scale[t]
    return total


@kernel
def _split(work, length, width):
    size = length * width
    alpha, psi = work[:size], work[size : 2 * size]
    rows = work[2 * size : 2 * size + 4 * width]
    scale = work[2 * size + 4 * width : 2 * size + 4 * width + length]
    return alpha, psi, rows, scale


@kernel
def forward_backward(nodes, trans, tables, marginals, edges, expectation, work):
    """Log Z of one chain, its node marginals and, if wanted, its edge marginals.

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
        log Z; ``-inf`` where nothing is feasible, and then the marginals are zero.
    """
    length, n_labels = nodes.shape
    if length == 0:
        return 0.0
    alpha, psi, rows, scale = _split(work, length, tables.shape[1])
    shift = _exponentiate_nodes(nodes, psi)
    if shift == -np.inf:
        zero_marginals(marginals, edges)
        return -np.inf
    shift += _forward(trans, tables, psi, alpha, scale, n_labels)
    limit = _limits(psi)[0]
    bound = limit
    summed = expectation.shape[0] > 0 and length > 1
    if np.isfinite(shift) and not (summed and trans.shape[0] != 1):
        bound = _backward(trans, tables, psi, alpha, scale, rows, marginals, edges)
    if not bound < limit:
        return forward_backward_log(nodes, trans, marginals, edges, expectation, work)
    if summed:
        _add_expectation(tables, alpha, psi, length, n_labels, expectation)
    return shift + _sum_of_logs(scale)


@kernel
def log_partition(nodes, trans, tables, work):
    """Log Z of one chain; arguments as in `forward_backward`."""
    length, n_labels = nodes.shape
    if length == 0:
        return 0.0
    alpha, psi, rows, scale = _split(work, length, tables.shape[1])
    shift = _exponentiate_nodes(nodes, psi)
    if shift == -np.inf:
        return -np.inf
    shift += _forward(trans, tables, psi, alpha, scale, n_labels)
    if not np.isfinite(shift):
        return log_partition_log(nodes, trans, work)
    limit, _, _, safe = _limits(psi)
    if length > 1 and not (trans.shape[0] == 1 and tables[3, 0, 1] < safe):
        none = nodes[:0]
        bound = _backward(trans, tables, psi, alpha, scale, rows, none, trans[:0])
        if not bound < limit:
            return log_partition_log(nodes, trans, work)
    return shift + _sum_of_logs(scale)


@kernel
def longest(offsets):
    """Greatest difference of consecutive offsets."""
    length = 0
    for s in range(offsets.shape[0] - 1):
        length = max(length, offsets[s + 1] - offsets[s])
    return length


@kernel
def edge_rows(trans, start, length):
    """The transitions of one chain: the shared table, or its own ``length - 1`` tables."""
    if trans.shape[0] == 1:
        return trans
    return trans[start : start + max(length - 1, 0)]


@kernel
def batch_forward_backward(nodes, offsets, trans, marginals, edges, expectation, log_z):
    """`forward_backward` of many chains in one call.

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
    """`log_partition` of many chains in one call; see `batch_forward_backward`."""
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
