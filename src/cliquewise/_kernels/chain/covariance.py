"""Entropies, expectations and covariances of chains, in float64.

A chain is a distribution ``p(y) = exp(<theta, y> - log Z)``. A *direction* ``v`` has the shape of
the scores ``theta`` and gives every labeling the number ``<v, y>``. With

    P_t(i | j)  probability of label i at t - 1, given label j at t and the scores up to t
    Q_t(j | i)  probability of label j at t, given label i at t - 1
    V_t(j)      expectation of the part of <v, y> up to t, given label j at t
    W_t(i)      expectation of the part of <v, y> after t, given label i at t

the derivatives of ``E <v, y>``, which are covariances, are

    node (t, j):     mu_t(j) (V_t(j) + W_t(j) - E)
    edge (t, i, j):  mu_t(i, j) (V_{t-1}(i) + v(i, j) + v_t(j) + W_t(j) - E)

They are the Hessian of log Z times ``v``, and thus the backward pass of marginals and entropies.

The entropy follows from the chain rule, ``H(y_T) + sum_t E H(P_t(. | y_t))``: every term is
nonnegative, so nothing cancels in long chains.

Both passes work in the linear domain, rescaled at every position, and are repeated in the log
domain where mass could be lost, by the criterion of ``sums``.
"""

import numpy as np

from cliquewise._kernels import kernel
from cliquewise._kernels.chain.sums import longest

#: Greatest beta / c for which the linear domain loses no mass, and the floor that is added to
#: beta. Their derivation for float64 is in `sums`.
LIMIT, FLOOR = 1e200, 1e-100


@kernel(helper=True)
def _multiply(vector, row, table, out):
    """out = vector[row] @ table."""
    n = table.shape[0]
    for j in range(n):
        out[j] = 0.0
    for i in range(n):
        x = vector[row, i]
        if x != 0.0:
            for j in range(n):
                out[j] += x * table[i, j]


@kernel(helper=True)
def _largest(trans, at):
    """Greatest entry of a table, or the least finite number if all are -inf."""
    n = trans.shape[1]
    high = np.finfo(np.float64).min
    for i in range(n):
        for j in range(n):
            high = max(high, trans[at, i, j])
    return high


@kernel(helper=True)
def _exponentiate(trans, at, direction, has_direction, tables):
    """Fill ``tables`` from one table of transitions; return the shift that was subtracted.

    tables: E = exp(trans - shift), its transpose, E * direction, and the transpose of that.
    """
    n = trans.shape[1]
    high = _largest(trans, at)
    for i in range(n):
        for j in range(n):
            value = np.exp(trans[at, i, j] - high)
            tables[0, i, j] = value
            tables[1, j, i] = value
            if has_direction:
                other = value * direction[at, i, j] if value > 0.0 else 0.0
                tables[2, i, j] = other
                tables[3, j, i] = other
    return high


@kernel(helper=True)
def _scaled_messages(nodes, trans, tables, alpha, psi, beta, scale, rows):
    """Fill alpha, psi, beta and the scales of one chain; return whether no mass was lost.

    Each alpha_t sums to 1, and so does alpha_t beta_t; psi are the exponentiated node scores.
    """
    length, n = nodes.shape
    shared = trans.shape[0] == 1
    for t in range(length):
        high = -np.inf
        for j in range(n):
            high = max(high, nodes[t, j])
        if not high > -np.inf:
            return False
        if t == 0:
            for j in range(n):
                rows[0, j] = 1.0
        else:
            if not shared:
                _exponentiate(trans, t - 1, trans, False, tables)
            _multiply(alpha, t - 1, tables[0], rows[0])
        c = 0.0
        for j in range(n):
            psi[t, j] = np.exp(nodes[t, j] - high)
            alpha[t, j] = rows[0, j] * psi[t, j]
            c += alpha[t, j]
        scale[t] = c
        if not c > 0.0:
            return False
        for j in range(n):
            alpha[t, j] /= c
    bound = 0.0
    for j in range(n):
        beta[length - 1, j] = 1.0
    for t in range(length - 1, -1, -1):
        for j in range(n):
            bound = max(bound, beta[t, j] / scale[t])
        if t > 0:
            if not shared:
                _exponentiate(trans, t - 1, trans, False, tables)
            for j in range(n):
                rows[1, j] = psi[t, j] * beta[t, j] / scale[t]
            _multiply(rows, 1, tables[1], rows[0])
            for i in range(n):
                beta[t - 1, i] = rows[0, i] + FLOOR
    return bound < LIMIT


@kernel(helper=True)
def _log_messages(nodes, trans, alpha, beta):
    """Log-domain alpha and beta of one chain, normalized; return whether it is feasible.

    logsumexp(alpha_t) = 0 and logsumexp(alpha_t + beta_t) = 0.
    """
    length, n = nodes.shape
    last = trans.shape[0] - 1
    for t in range(length):
        for j in range(n):
            total = 0.0
            if t > 0:
                at = min(t - 1, last)
                high = -np.inf
                for i in range(n):
                    high = max(high, alpha[t - 1, i] + trans[at, i, j])
                if high == -np.inf:
                    total = -np.inf
                else:
                    mass = 0.0
                    for i in range(n):
                        mass += np.exp(alpha[t - 1, i] + trans[at, i, j] - high)
                    total = high + np.log(mass)
            alpha[t, j] = total + nodes[t, j]
        if not _normalize(alpha, alpha, t, False):
            return False
    for j in range(n):
        beta[length - 1, j] = 0.0
    for t in range(length - 1, 0, -1):
        at = min(t - 1, last)
        for i in range(n):
            high = -np.inf
            for j in range(n):
                high = max(high, trans[at, i, j] + nodes[t, j] + beta[t, j])
            beta[t - 1, i] = -np.inf
            if high > -np.inf:
                mass = 0.0
                for j in range(n):
                    mass += np.exp(trans[at, i, j] + nodes[t, j] + beta[t, j] - high)
                beta[t - 1, i] = high + np.log(mass)
        _normalize(beta, alpha, t - 1, True)
    return True


@kernel(helper=True)
def _normalize(rows, weights, t, weighted):
    """Shift rows[t] so that the logsumexp (of its sum with the weights) is 0."""
    n = rows.shape[1]
    high = -np.inf
    for j in range(n):
        high = max(high, rows[t, j] + weights[t, j] if weighted else rows[t, j])
    if not high > -np.inf:
        return False
    mass = 0.0
    for j in range(n):
        mass += np.exp((rows[t, j] + weights[t, j] if weighted else rows[t, j]) - high)
    shift = high + np.log(mass)
    for j in range(n):
        rows[t, j] -= shift
    return True


# ---- entropy


@kernel(helper=True)
def _scaled_entropy(nodes, trans, tables, alpha, beta, rows):
    """Entropy by the chain rule, from `_scaled_messages`; ``tables[2]`` is E * trans."""
    length, n = nodes.shape
    shared = trans.shape[0] == 1
    total, high = 0.0, 0.0
    for t in range(length):
        if t > 0:
            if not shared:
                _exponentiate(trans, t - 1, trans, True, tables)
            for i in range(n):
                a = alpha[t - 1, i]
                rows[3, i] = a * np.log(a) if a > 0.0 else 0.0
            _multiply(alpha, t - 1, tables[0], rows[0])
            _multiply(rows, 3, tables[0], rows[1])
            _multiply(alpha, t - 1, tables[2], rows[2])
            if t == 1 or not shared:
                high = _largest(trans, t - 1)
            for j in range(n):
                mu = alpha[t, j] * beta[t, j]
                if mu > 0.0 and rows[0, j] > 0.0:
                    mean = (rows[1, j] + rows[2, j]) / rows[0, j]
                    total += mu * max(np.log(rows[0, j]) + high - mean, 0.0)
    for j in range(n):
        a = alpha[length - 1, j]
        if a > 0.0:
            total -= a * np.log(a)
    return total


@kernel(helper=True)
def _log_entropy(nodes, trans, alpha, beta):
    """Entropy by the chain rule, from `_log_messages`."""
    length, n = nodes.shape
    last = trans.shape[0] - 1
    total = 0.0
    for t in range(1, length):
        at = min(t - 1, last)
        for j in range(n):
            mu = np.exp(alpha[t, j] + beta[t, j])
            high = -np.inf
            for i in range(n):
                high = max(high, alpha[t - 1, i] + trans[at, i, j])
            if mu > 0.0 and high > -np.inf:
                mass, mean = 0.0, 0.0
                for i in range(n):
                    x = alpha[t - 1, i] + trans[at, i, j] - high
                    p = np.exp(x)
                    mass += p
                    mean += p * x if p > 0.0 else 0.0
                total += mu * max(np.log(mass) - mean / mass, 0.0)
    for j in range(n):
        a = np.exp(alpha[length - 1, j])
        if a > 0.0:
            total -= a * alpha[length - 1, j]
    return total


@kernel
def batch_entropy(nodes, offsets, trans, entropies):
    """Entropy of every chain, in nats; NaN where no labeling is feasible.

    Parameters
    ----------
    nodes : float64 array of shape (N, K)
        All chains, one after the other; chain s is ``offsets[s] : offsets[s + 1]``.
    offsets : int array of shape (S + 1,)
    trans : float64 array of shape (1, K, K) or (E, K, K)
        One shared table, or one per edge.
    entropies : float64 array of shape (S,)
        Overwritten.
    """
    size, n = longest(offsets), nodes.shape[1]
    alpha, psi, beta = np.empty((size, n)), np.empty((size, n)), np.empty((size, n))
    scale, rows = np.empty(size), np.empty((4, n))
    tables = np.empty((4, n, n))
    if trans.shape[0] == 1:
        _exponentiate(trans, 0, trans, True, tables)
    start = 0
    for s in range(offsets.shape[0] - 1):
        first, last = offsets[s], offsets[s + 1]
        stop = start + max(last - first - 1, 0)
        own = trans if trans.shape[0] == 1 else trans[start:stop]
        part = nodes[first:last]
        if trans.shape[0] != 1 and own.shape[0] == 1:
            _exponentiate(own, 0, own, True, tables)
        if last == first:
            entropies[s] = 0.0
        elif _scaled_messages(part, own, tables, alpha, psi, beta, scale, rows):
            entropies[s] = _scaled_entropy(part, own, tables, alpha, beta, rows)
        elif _log_messages(part, own, alpha, beta):
            entropies[s] = _log_entropy(part, own, alpha, beta)
        else:
            entropies[s] = np.nan
        start = stop


# ---- covariances


@kernel(helper=True)
def _scaled_covariances(
    trans, direction, edge_direction, tables, messages, scale, rows, sums, weight, out, edges
):  # fmt: skip
    """Expectation and covariances of one chain, from `_scaled_messages`.

    ``sums`` (2, K, K) collects the outer products of shared transitions; edge covariances are
    written (per edge) or added (shared) to ``edges``, unless it has no rows.
    """
    length, n = direction.shape
    shared, has_edge = trans.shape[0] == 1, edge_direction.shape[0] > 0
    alpha, psi, beta, values = messages[0], messages[1], messages[2], messages[3]
    for t in range(length):
        if t > 0:
            if not shared:
                _exponentiate(trans, t - 1, edge_direction, has_edge, tables)
            for i in range(n):
                rows[3, i] = alpha[t - 1, i] * values[t - 1, i]
            _multiply(alpha, t - 1, tables[0], rows[0])
            _multiply(rows, 3, tables[0], rows[1])
            if has_edge:
                _multiply(alpha, t - 1, tables[2], rows[2])
        for j in range(n):
            value = 0.0
            if t > 0 and rows[0, j] > 0.0:
                value = rows[1, j] + (rows[2, j] if has_edge else 0.0)
                value /= rows[0, j]
            values[t, j] = value + direction[t, j]
    mean = 0.0
    for j in range(n):
        mean += alpha[length - 1, j] * values[length - 1, j]
        rows[4, j] = 0.0
    want_edges = edges.shape[0] > 0
    if want_edges and shared:
        sums[:] = 0.0
    for t in range(length - 1, -1, -1):
        for j in range(n):
            mu = alpha[t, j] * beta[t, j]
            out[t, j] = weight * mu * (values[t, j] + rows[4, j] - mean)
        if t == 0:
            break
        if not shared:
            _exponentiate(trans, t - 1, edge_direction, has_edge, tables)
        for j in range(n):
            rows[0, j] = psi[t, j] * beta[t, j] / scale[t]
            rows[1, j] = rows[0, j] * (direction[t, j] + rows[4, j])
        if want_edges:
            for i in range(n):
                a = weight * alpha[t - 1, i]
                x = a * (values[t - 1, i] - mean)
                if shared:
                    for j in range(n):
                        sums[0, i, j] += x * rows[0, j] + a * rows[1, j]
                        sums[1, i, j] += a * rows[0, j]
                else:
                    for j in range(n):
                        edge = tables[0, i, j] * (x * rows[0, j] + a * rows[1, j])
                        edges[t - 1, i, j] = edge + (
                            tables[2, i, j] * a * rows[0, j] if has_edge else 0.0
                        )
        _multiply(rows, 0, tables[1], rows[2])
        _multiply(rows, 1, tables[1], rows[3])
        if has_edge:
            _multiply(rows, 0, tables[3], rows[5])
        for i in range(n):
            later = rows[3, i] + (rows[5, i] if has_edge else 0.0)
            rows[4, i] = later / rows[2, i] if rows[2, i] > 0.0 else 0.0
    if want_edges and shared:
        for i in range(n):
            for j in range(n):
                edges[0, i, j] += tables[0, i, j] * sums[0, i, j]
                if has_edge:
                    edges[0, i, j] += tables[2, i, j] * sums[1, i, j]
    return mean


@kernel(helper=True)
def _log_covariances(nodes, trans, direction, edge_direction, messages, rows, weight, out, edges):
    """Expectation and covariances of one chain, from `_log_messages`."""
    length, n = nodes.shape
    last, has_edge = trans.shape[0] - 1, edge_direction.shape[0] > 0
    alpha, beta, values = messages[0], messages[2], messages[3]
    for t in range(length):
        for j in range(n):
            value = 0.0
            if t > 0:
                at = min(t - 1, last)
                high, mass = -np.inf, 0.0
                for i in range(n):
                    high = max(high, alpha[t - 1, i] + trans[at, i, j])
                for i in range(n):
                    x = alpha[t - 1, i] + trans[at, i, j]
                    if x > -np.inf:
                        p = np.exp(x - high)
                        mass += p
                        edge = edge_direction[at, i, j] if has_edge else 0.0
                        value += p * (values[t - 1, i] + edge)
                value = value / mass if mass > 0.0 else 0.0
            values[t, j] = value + direction[t, j]
    mean = 0.0
    for j in range(n):
        a = np.exp(alpha[length - 1, j])
        mean += a * values[length - 1, j] if a > 0.0 else 0.0
        rows[4, j] = 0.0
    for t in range(length - 1, -1, -1):
        for j in range(n):
            mu = np.exp(alpha[t, j] + beta[t, j])
            out[t, j] = weight * mu * (values[t, j] + rows[4, j] - mean) if mu > 0.0 else 0.0
        if t == 0:
            break
        at = min(t - 1, last)
        total = -np.inf  # logsumexp of all edges: normalizes them
        for i in range(n):
            for j in range(n):
                x = alpha[t - 1, i] + trans[at, i, j] + nodes[t, j] + beta[t, j]
                total = max(total, x)
        mass = 0.0
        for i in range(n):
            for j in range(n):
                x = alpha[t - 1, i] + trans[at, i, j] + nodes[t, j] + beta[t, j]
                mass += np.exp(x - total)
        total += np.log(mass)
        for i in range(n):
            high, own, later = -np.inf, 0.0, 0.0
            for j in range(n):
                high = max(high, trans[at, i, j] + nodes[t, j] + beta[t, j])
            for j in range(n):
                x = trans[at, i, j] + nodes[t, j] + beta[t, j]
                mu = np.exp(alpha[t - 1, i] + x - total)
                value = direction[t, j] + rows[4, j]
                if has_edge and mu > 0.0:
                    value += edge_direction[at, i, j]
                if edges.shape[0] > 0:
                    edge = weight * mu * (values[t - 1, i] + value - mean) if mu > 0.0 else 0.0
                    if trans.shape[0] == 1:
                        edges[0, i, j] += edge
                    else:
                        edges[t - 1, i, j] = edge
                if x > -np.inf:
                    p = np.exp(x - high)
                    own += p
                    later += p * value if mu > 0.0 or not has_edge else 0.0
            rows[6, i] = later / own if own > 0.0 else 0.0
        for i in range(n):
            rows[4, i] = rows[6, i]
    return mean


@kernel
def batch_covariances(nodes, offsets, trans, direction, edge_direction, weights, means, out, edges):
    """Expectation of a direction, and its weighted covariances with all labels, of many chains.

    Parameters
    ----------
    nodes, offsets, trans
        As in `batch_entropy`.
    direction : float64 array of shape (N, K)
        Finite.
    edge_direction : float64 array of the shape of trans, or (0, K, K)
        Finite; none stands for zeros.
    weights : float64 array of shape (S,)
        Factors of the covariances of every chain.
    means : float64 array of shape (S,)
        Overwritten: the expectations (without weights). NaN where no labeling is feasible.
    out : float64 array of shape (N, K)
        Overwritten: covariances with the labels.
    edges : float64 array of shape (1, K, K), (S, K, K), (E, K, K) or (0, K, K)
        Zeros. Covariances with pairs of adjacent labels: summed over edges and chains, summed
        over the edges of every chain (both for shared transitions), or of every edge.
    """
    size, n = longest(offsets), nodes.shape[1]
    messages = np.empty((4, size, n))
    scale, rows = np.empty(size), np.empty((7, n))
    tables, sums = np.empty((4, n, n)), np.empty((2, n, n))
    shared, has_edge = trans.shape[0] == 1, edge_direction.shape[0] > 0
    if shared:
        _exponentiate(trans, 0, edge_direction, has_edge, tables)
    start = 0
    for s in range(offsets.shape[0] - 1):
        first, last = offsets[s], offsets[s + 1]
        stop = start + max(last - first - 1, 0)
        own, own_edge, own_edges = trans, edge_direction, edges
        if not shared:
            own = trans[start:stop]
            own_edge = edge_direction[start:stop] if has_edge else edge_direction
            own_edges = edges[start:stop] if edges.shape[0] > 0 else edges
        elif edges.shape[0] > 1:
            own_edges = edges[s : s + 1]
        start = stop
        part, own_direction, own_out = nodes[first:last], direction[first:last], out[first:last]
        if last == first:
            means[s] = 0.0
            continue
        if not shared and own.shape[0] == 1:
            _exponentiate(own, 0, own_edge, has_edge, tables)
        if _scaled_messages(part, own, tables, messages[0], messages[1], messages[2], scale, rows):
            means[s] = _scaled_covariances(
                own, own_direction, own_edge, tables, messages, scale, rows, sums, weights[s],
                own_out, own_edges,
            )  # fmt: skip
        elif _log_messages(part, own, messages[0], messages[2]):
            means[s] = _log_covariances(
                part, own, own_direction, own_edge, messages, rows, weights[s], own_out,
                own_edges,
            )  # fmt: skip
        else:
            means[s] = np.nan
            own_out[:] = 0.0
