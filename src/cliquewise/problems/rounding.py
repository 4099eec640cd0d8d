"""Rounding: a dual value computed in float64, lowered until it is a bound in exact arithmetic.

Every dual value here is ``linear - lam / 2 ||w||^2``, where the weights are sums of features over
all examples. Two things are known of such a sum: how large its summands are together, and how often
each of them was rounded on its way into it. Their product times the unit roundoff bounds by how
much each weight may be wrong (``shift`` below), and with it the penalty is wrong by at most
``lam (<|w|, shift> + 1/2 ||shift||^2)``: of first order in the weights themselves, and not
in the norm of the data, which would be useless.

Marginals of a chain or tree are products of positive numbers: their error is relative, too, with
the length of the chain as the number of roundings.
"""

from __future__ import annotations

from math import fsum
from typing import NamedTuple

import numpy as np

from cliquewise.ragged import Floats

#: Unit roundoff of float64.
UNIT = 2.0**-53
#: Roundings of an exponential or a logarithm (see ``_kernels/common/math.py``).
EXP = 4.0
#: Roundings of a sum over all examples: numpy adds in pairs, and a few more.
SUM = 64.0
#: Numbers squared at a time.
CHUNK = 1 << 16


class Bound(NamedTuple):
    """A lower bound of the objective, and how much of it was given up to rounding."""

    value: float
    rounding: float = 0.0


def squared_norm(w: Floats) -> float:
    """``||w||^2``, in pairs: a plain sum over millions of weights may lose nine digits."""
    parts = (w[at : at + CHUNK] for at in range(0, len(w), CHUNK))
    return fsum(float(np.square(part).sum()) for part in parts)


def lowered(
    linear: float, rounding_error: float, penalty: float, lam: float, largest: Floats, sizes: Floats
) -> Bound:
    """``linear - penalty``, less all that rounding may have added to it.

    Parameters
    ----------
    linear : float
        What does not depend on the weights: expected costs and entropies, per example.
    doubt : float
        By how much ``linear`` may be wrong.
    penalty : float
        ``lam / 2 ||w||^2``.
    lam : float
    largest, sizes : float arrays
        By row of weights: the largest ``|w|``, and the sum of all summands of the row's
        weights, each times its number of roundings.

    Examples
    --------
    >>> bound = lowered(2.0, 0.0, 1.0, 1.0, np.array([1.0]), np.array([1e6]))
    >>> 1.0 - 2e-10 < bound.value < 1.0 - 1e-10
    True
    """
    shift = UNIT * sizes
    with np.errstate(over="ignore", invalid="ignore"):
        first, second = float(largest @ shift), 0.5 * float(shift @ shift)
    rounding = rounding_error + lam * (first + second) + SUM * UNIT * (abs(linear) + penalty)
    if not np.isfinite(linear - penalty - rounding):
        return Bound(-np.inf, np.inf)
    return Bound(linear - penalty - rounding, rounding)
