"""Rounding: a dual value computed in float64, lowered until it is a bound in exact arithmetic.

Every dual value here is ``linear - lam / 2 ||w||^2``, where the weights are sums of features over
all examples. Two things are known of such a sum: the total size of its terms, and how often each
of them was rounded. Their product times the unit roundoff bounds the error of each weight
(``shift`` below), and with it the error of the penalty, ``lam (<|w|, shift> + 1/2 ||shift||^2)``:
it is of first order in the weights, and not in the norm of the data, which would be useless.

Marginals. Sum-product in the linear domain computes every potential once, so its marginals are
those of a distribution with slightly other potentials, up to relative errors of the products
(``depth``, the length of the chain). That distribution is a point of the dual, and its linear
part differs from the computed one by at most the error of the scores (`Problem.rounding_error`).
In the log domain this is not so: messages in both directions are rounded in proportion to the
*scores*, independently of each other: a score of magnitude z makes marginals wrong by ``eps z``,
and their product with weights by ``eps z^2``. `ScoreProfile` bounds these errors.
"""

from __future__ import annotations

from math import fsum
from typing import NamedTuple

import numpy as np

from cliquewise.ragged import Floats, Ints

#: Unit roundoff of float64.
UNIT = 2.0**-53
#: Roundings of an exponential or a logarithm (see ``_kernels/common/math.py``).
EXP = 4.0
#: Roundings of a sum over all examples: numpy's pairwise sums, and a few more.
SUM = 64.0
#: Numbers that are squared at a time.
CHUNK = 1 << 16


#: Scores up to this stay in the linear domain of chain kernels, whose range is 1e-308 to 1e308.
LOG_DOMAIN = 100.0
#: Roundings of a log-domain message per position, in units of the largest score: both
#: directions add a score, a transition and a maximum, each up to six times the largest score.
LOG_STEP = 40.0


class Bound(NamedTuple):
    """A lower bound of the objective, and the rounding errors that were subtracted from it."""

    value: float
    rounding: float = 0.0


class ScoreProfile(NamedTuple):
    """What bounds the errors of marginals by the weights; see the module.

    Attributes
    ----------
    length : float
        Positions of the longest chain of messages.
    entries : float
        Largest number of features in a score of one position.
    most, total : float arrays
        By row of weights: the largest ``|feature|``, and the sum of all, weighted.
    limit : float
        Scores up to this have marginals without further errors.
    """

    length: float
    entries: float
    most: Floats
    total: Floats
    limit: float = LOG_DOMAIN

    def roundings(self, largest: Floats) -> float:
        """Return the roundings of a marginal, from the largest weight of each row."""
        with np.errstate(over="ignore", invalid="ignore"):
            score = self.entries * float(np.max(np.nan_to_num(self.most * largest), initial=0.0))
        return float(log_roundings(np.array([score]), np.array([self.length]), self.limit)[0])

    def merged(self, other: ScoreProfile) -> ScoreProfile:
        """Return the profile of the examples of both."""
        return ScoreProfile(
            max(self.length, other.length), max(self.entries, other.entries),
            np.maximum(self.most, other.most), self.total + other.total,
            min(self.limit, other.limit),
        )  # fmt: skip


def log_roundings(largest: Floats, lengths: Floats | Ints, limit: float = LOG_DOMAIN) -> Floats:
    """Return the roundings of marginals in the log domain; zero for scores up to ``limit``."""
    with np.errstate(over="ignore"):
        return np.asarray(np.where(largest > limit, LOG_STEP * largest * lengths, 0.0))


def squared_norm(w: Floats) -> float:
    """Return ``||w||^2`` by pairwise sums; a plain sum of millions may lose nine digits."""
    parts = (w[at : at + CHUNK] for at in range(0, len(w), CHUNK))
    return fsum(float(np.square(part).sum()) for part in parts)


def lowered(
    linear: float, rounding_error: float, penalty: float, lam: float, largest: Floats, sizes: Floats
) -> Bound:
    """Return ``linear - penalty`` less an upper bound of its rounding error.

    Parameters
    ----------
    linear : float
        The part that does not depend on the weights: expected costs and entropies, per example.
    rounding_error : float
        Bound of the error of ``linear``.
    penalty : float
        ``lam / 2 ||w||^2``.
    lam : float
    largest, sizes : float arrays
        By row of weights: the largest ``|w|``, and the sum of the sizes of all terms of the row's
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
