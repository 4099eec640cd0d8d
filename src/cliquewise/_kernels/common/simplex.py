"""Euclidean projection on the simplex."""

import numpy as np

from cliquewise._kernels import kernel


@kernel
def simplex_threshold(values, radius):
    """Maximum m of the values, and the tau with ``sum(max(values - m - tau, 0)) = radius``.

    Michelot's method: drop the entries that cannot be active, and repeat. It needs neither
    sorting nor memory. A round that drops few of many entries needs gaps that grow like
    factorials from round to round, so that in floating point the rounds stay a handful.
    Working with differences to the maximum keeps all digits for values of any size.
    """
    n = values.shape[0]
    high = values[0]
    for i in range(1, n):
        high = max(high, values[i])
    # Entries at or below max - radius are never active.
    tau = -values.dtype.type(radius)
    active = -1
    while True:
        total = values.dtype.type(0)
        count = 0
        for i in range(n):
            below = values[i] - high
            if below > tau:
                total += below
                count += 1
        if count == active:
            return high, tau
        active = count
        tau = max((total - values.dtype.type(radius)) / values.dtype.type(count), tau)


@kernel
def project_simplex(values, radius):
    """Replace ``values`` by the nearest point with entries >= 0 that sum to ``radius``.

    Parameters
    ----------
    values : array of shape (k,), k >= 1
        Finite, or ``-inf`` for entries that must be zero (not all of them).
    radius : float
        The sum; with 0 or less the result is zero.

    Returns
    -------
    float
        The threshold tau: the result is ``max(values - tau, 0)``.
    """
    n = values.shape[0]
    if not radius > 0:
        for i in range(n):
            values[i] = 0
        return np.inf
    high, tau = simplex_threshold(values, radius)
    for i in range(n):
        values[i] = max((values[i] - high) - tau, values.dtype.type(0))
    return float(high + tau)
