"""Penalty: the elastic net, its conjugate, and the weights that a point of the dual stands for.

    R(w) = lam (rho ||w||_1 + (1 - rho) / 2 ||w||^2),       rho = l1_ratio

The dual of ``R(w) + 1/n sum_i c_i loss_i(w)`` is ``linear(mu) - R*(G)``, where ``linear`` are the
expected costs and entropies of the dual distributions, and ``G = 1/n sum_i c_i (F_i - B mu_i)``.
Everything here is about ``v = G / (lam scale)``, with ``scale = 1 - rho``: then the weights are v,
SHRUNK, each number moved towards zero by ``threshold = rho / (1 - rho)``, and the conjugate is
``lam (1 - rho) / 2`` times their squared norm. Without an L1 part these are the weights
themselves; without an L2 part (rho = 1, scale = 1) R* is zero where no |v| exceeds 1, and infinite
elsewhere.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from cliquewise.problems.rounding import UNIT, squared_norm
from cliquewise.ragged import Floats


@dataclass(frozen=True)
class Penalty:
    """``lam (l1_ratio ||w||_1 + (1 - l1_ratio) / 2 ||w||^2)``.

    Examples
    --------
    >>> penalty = Penalty(2.0, 0.5)
    >>> penalty.value(np.array([3.0, -1.0]))
    9.0
    >>> penalty.shrunk(np.array([3.0, -1.0, 0.5]))
    array([2., 0., 0.])
    """

    lam: float
    l1_ratio: float = 0.0

    @property
    def ridge(self) -> float:
        """Weight of the half squared norm."""
        return self.lam * (1.0 - self.l1_ratio)

    @property
    def l1(self) -> float:
        """Weight of the L1 norm."""
        return self.lam * self.l1_ratio

    @property
    def scale(self) -> float:
        """What v is divided by, beside lam."""
        return 1.0 - self.l1_ratio if self.l1_ratio < 1 else 1.0

    @property
    def threshold(self) -> float:
        """Numbers of v up to this size stand for weights of zero."""
        return self.l1_ratio / self.scale

    def value(self, w: Floats) -> float:
        """The penalty."""
        square = 0.5 * self.ridge * float(w @ w)
        return square + self.l1 * float(np.abs(w).sum()) if self.l1_ratio else square

    def shrunk(self, v: Floats, gamma: float = 1.0) -> Floats:
        """The weights that ``gamma v`` stands for, over gamma; v itself without an L1 part."""
        if self.l1_ratio == 0:
            return v
        limit = self.threshold / gamma
        return v - np.clip(v, -limit, limit)

    def conjugate(self, v: Floats, gamma: float = 1.0) -> float:
        """R* of ``gamma v``, if there is an L2 part."""
        w = self.shrunk(v, gamma)
        w = w if gamma == 1.0 else gamma * w  # whose square may be too large by itself
        return 0.5 * self.ridge * float(w @ w)

    # ---- mixtures with the truth

    def share(self, gain: float, v: Floats, largest: Floats, shift: Floats) -> float:
        """How much of a dual point to mix with the truth for the best bound.

        ``s`` times its distributions and ``1 - s`` times the truth are a point of the dual, too.
        Its vector is ``s v``, and its linear part is at least ``s`` times as far above that of
        the truth: entropies are concave. Without an L2 part a point proves nothing before it is
        scaled until no number exceeds 1.

        Parameters
        ----------
        gain : float
            The linear part, less that of the truth.
        v : array
            In the form that passes over the data work on.
        largest, shift : arrays
            By row of weights: the largest ``|v|``, and by how much these may be wrong.
        """
        if self.ridge == 0:
            most = float(np.max(largest + shift, initial=0.0)) * (1.0 + 8.0 * UNIT)
            return min(1.0, 1.0 / most) if most > 0 else 1.0
        sizes = np.abs(v)
        sizes = sizes[sizes > self.threshold]

        # The bound's slope in s falls, and ever faster, so that Newton's steps from 1 stay on the
        # side where it is negative. Any share is a true one.
        share = 1.0
        for _ in range(30):
            own = sizes[share * sizes > self.threshold]
            bend = self.ridge * float(own @ own)
            slope = gain - share * bend + self.ridge * self.threshold * float(own.sum())
            if not slope < -1e-12 * abs(gain) or bend == 0:
                break
            share += slope / bend
        return max(share, 0.0)

    def square(self, w: Floats) -> float:
        """``R*`` from shrunk weights, added up with care: what a bound is made with."""
        return 0.5 * self.ridge * squared_norm(w)
