"""Smoothers: smooth stand-ins for the maximum in the structured hinge loss.

    h(z) = max over u in the simplex of <z, u> - mu omega(u)

``omega`` is minus the entropy (log-sum-exp), or ``(||u||^2 - 1) / 2`` (a projection on the
simplex, which is sparse), or nothing (the maximum itself). The gradient is the maximizer ``u``:
a distribution over the outputs. See Section 2.3 of casimir.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np

from cliquewise.errors import DataError, UnsupportedError
from cliquewise.ragged import Floats


@dataclass(frozen=True)
class Smoother:
    """Base of the smoothers of a maximum over listed scores.

    Attributes
    ----------
    name : str
        What users write as ``smoother=``.
    """

    name: ClassVar[str]

    def gradient(self, scores: Any, mu: float) -> Floats:
        """The distribution that attains the smoothed maximum.

        Parameters
        ----------
        scores : array of shape (m,), m >= 1
        mu : float
            Amount of smoothing; 0 gives the first greatest score all of the mass.
        """
        z = _checked(scores, mu)
        if mu == 0:
            u = np.zeros(len(z))
            u[np.argmax(z)] = 1.0
            return u
        return self._gradient(z, mu)

    def value(self, scores: Any, mu: float) -> float:
        """The smoothed maximum, ``<scores, u> - mu omega(u)`` at :meth:`gradient`."""
        z = _checked(scores, mu)
        u = self.gradient(z, mu)
        high = float(z.max())
        return high + float(u @ (z - high)) - mu * self.omega(u)

    def omega(self, u: Floats) -> float:
        """What the smoothed maximum is penalized by; never positive on the simplex."""
        raise NotImplementedError

    def _gradient(self, z: Floats, mu: float) -> Floats:
        raise NotImplementedError


class Entropy(Smoother):
    """Minus the Shannon entropy: the smoothed maximum is a log-sum-exp.

    Examples
    --------
    >>> round(Entropy().value([0.0, 0.0], 1.0), 4)  # log 2
    0.6931
    """

    name: ClassVar[str] = "entropy"

    def _gradient(self, z: Floats, mu: float) -> Floats:
        u = np.exp((z - z.max()) / mu)
        return np.asarray(u / u.sum())

    def value(self, scores: Any, mu: float) -> float:
        z = _checked(scores, mu)
        if mu == 0:
            return float(z.max())
        return float(z.max() + mu * np.log(np.exp((z - z.max()) / mu).sum()))

    def omega(self, u: Floats) -> float:
        some = u[u > 0]
        return float(some @ np.log(some))

    value.__doc__ = Smoother.value.__doc__
    omega.__doc__ = Smoother.omega.__doc__


class L2(Smoother):
    """``(||u||^2 - 1) / 2``: the distribution is a projection, and zero for most outputs.

    Examples
    --------
    >>> L2().gradient([3.0, 2.5, 0.0], 1.0)
    array([0.75, 0.25, 0.  ])
    >>> L2().is_exact([3.0, 2.5], 0.0, 1.0)  # were two outputs of three enough?
    True
    """

    name: ClassVar[str] = "l2"

    def _gradient(self, z: Floats, mu: float) -> Floats:
        below = np.sort((z - z.max()) / mu)[::-1]
        sums = (np.cumsum(below) - 1.0) / np.arange(1, len(z) + 1)
        threshold = sums[np.flatnonzero(below > sums)[-1]]
        return np.asarray(np.maximum((z - z.max()) / mu - threshold, 0.0))

    def is_exact(self, best: Any, following: float, mu: float) -> bool:
        """Return whether the K best scores give the same result as all scores (Proposition 4).

        Parameters
        ----------
        best : array
            The K greatest scores.
        following : float
            The next one; ``-inf`` if there is none.
        mu : float
        """
        z = _checked(best, mu)
        return bool(mu <= np.sum(z - following))

    def omega(self, u: Floats) -> float:
        return 0.5 * (float(u @ u) - 1.0)

    omega.__doc__ = Smoother.omega.__doc__


class NoSmoother(Smoother):
    """The maximum itself, whatever ``mu``.

    Examples
    --------
    >>> NoSmoother().value([1.0, 3.0], 5.0)
    3.0
    """

    name: ClassVar[str] = "none"

    def _gradient(self, z: Floats, mu: float) -> Floats:
        return self.gradient(z, 0.0)

    def omega(self, u: Floats) -> float:
        return 0.0

    omega.__doc__ = Smoother.omega.__doc__


SMOOTHERS: dict[str, Smoother] = {s.name: s for s in (Entropy(), L2(), NoSmoother())}


def get_smoother(name: str | Smoother) -> Smoother:
    """A smoother by its name, or itself.

    Examples
    --------
    >>> get_smoother("l2").name
    'l2'
    """
    if isinstance(name, Smoother):
        return name
    if name not in SMOOTHERS:
        raise UnsupportedError(
            f"unknown smoother {name!r}; the smoothers are: {', '.join(SMOOTHERS)}"
        )
    return SMOOTHERS[name]


def _checked(scores: Any, mu: float) -> Floats:
    z = np.asarray(scores, dtype=np.float64)
    if z.ndim != 1 or len(z) == 0:
        raise DataError("a maximum needs at least one score, in a one-dimensional array")
    if not (np.isfinite(mu) and mu >= 0):
        raise DataError(f"mu = {mu}; the amount of smoothing must be a number >= 0")
    if not np.isfinite(z).all():
        raise DataError("scores must be finite; leave impossible outputs out")
    return z
