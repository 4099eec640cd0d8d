"""The objective of a problem from a list of all outputs, in extended precision.

    P(w) = lam (rho ||w||_1 + (1 - rho) / 2 ||w||^2) + 1/n sum_i c_i f(costs_i + rows_i w),
    lam = 1 / (C n),    rho = l1_ratio

No code is shared with the library. Any weights whatever give an upper bound of the optimum, P(w),
so that a dual value above the least of them is false beyond doubt; how near these weights are to
the optimum decides only how small a lie is seen.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, NamedTuple

import numpy as np
from quadratic_program import minimize_quadratic
from scipy.optimize import minimize
from scipy.special import softmax

Long = np.longdouble
EPS = float(np.finfo(Long).eps)
PRECISE = {"ftol": 1e-14, "gtol": 1e-12, "maxiter": 300}


class Outputs(NamedTuple):
    """Cost and features, less those of the truth, of every output of an example.

    ``agreeing`` are those that agree with labels that are known in part; then the losses are
    not convex, and the features are not less those of a truth.
    """

    weight: float
    costs: np.ndarray
    rows: np.ndarray
    agreeing: np.ndarray | None = None


class Value(NamedTuple):
    """A number and a bound of its rounding error."""

    value: Any
    error: Any


@dataclass
class Objective:
    """Losses: ``smoother`` is none, entropy or l2 (of the ``top`` best outputs)."""

    C: float
    dimension: int
    examples: list[Outputs]
    smoother: str = "none"
    gamma: float = 1.0
    top: int | None = None
    l1_ratio: float = 0.0
    best: Value = field(init=False)

    def __post_init__(self) -> None:
        self.n = max(len(self.examples), 1)
        self.best = self.value(np.zeros(self.dimension))

    @property
    def is_convex(self) -> bool:
        """Whether every output is known."""
        return all(one.agreeing is None for one in self.examples)

    def try_weights(self, w: Any) -> Value:
        """The objective there; the least one so far is kept as ``best``."""
        found = self.value(w)
        if found.value + found.error < self.best.value + self.best.error:
            self.best = found
        return found

    def value(self, w: Any) -> Value:
        """The objective, and what rounding may have done to it."""
        w = np.asarray(w, dtype=Long)
        rho, strength = Long(self.l1_ratio), Long(self.C) * self.n
        total = ((1 - rho) * (w @ w) / 2 + rho * np.abs(w).sum()) / strength
        size = abs(total)
        for one in self.examples:
            if one.weight == 0:
                continue
            psi = one.costs + one.rows @ w
            loss = self._loss(psi)
            if one.agreeing is not None:
                loss = loss - self._loss(psi[one.agreeing])
            total += one.weight * loss / self.n
            terms = np.abs(one.rows) @ np.abs(w) + np.abs(one.costs)
            size += one.weight * (terms.max() + 50 * self.gamma) / self.n
        return Value(total, 100 * EPS * size)

    def _loss(self, psi: np.ndarray) -> Any:
        high = psi.max()
        if self.smoother == "none":
            return high
        z = np.sort(((psi - high) / self.gamma)[::-1])[::-1][: self.top]
        if self.smoother == "entropy":
            return high + self.gamma * np.log(np.exp(z).sum())
        u = _projected(z)
        return high + self.gamma * (u @ z - (u @ u - 1) / 2)

    # ---- a point near the optimum

    def minimize(self) -> None:
        """Look for weights that are nearly best; nothing depends on whether they are."""
        scale = max((float(np.abs(o.rows).max(initial=0)) for o in self.examples), default=0.0)
        used = [o for o in self.examples if o.weight > 0]
        if scale == 0 or not used or not self.is_convex or not self.dimension:
            return
        with np.errstate(all="ignore"):
            lam = 1 / (float(self.C) * self.n) / scale / scale
            if not 1e-200 < lam < 1e200:
                return
            rows = [(o.rows / scale).astype(float) for o in used]
            costs = [o.costs.astype(float) for o in used]
            share = np.array([o.weight for o in used]) / self.n
            try:
                method = {"none": self._program, "entropy": self._newton, "l2": self._descent}
                if self.l1_ratio:
                    lam = lam * (1 - self.l1_ratio), lam * scale * self.l1_ratio
                    method = {"none": self._split_program}
                w = method.get(self.smoother, self._split_descent)(lam, rows, costs, share)
            except (np.linalg.LinAlgError, ValueError):
                return
            if np.all(np.isfinite(w / scale)):
                self.try_weights(w / scale)

    def _program(self, lam: float, rows: Any, costs: Any, share: np.ndarray) -> np.ndarray:
        d, n = self.dimension, len(rows)
        owner = np.repeat(np.arange(n), [len(c) for c in costs])
        P, p = np.diag([lam] * d + [0.0] * n), np.concatenate([np.zeros(d), share])
        A = np.hstack([-np.concatenate(rows), np.eye(n)[owner]])
        start = np.concatenate([np.zeros(d), [c.max() for c in costs]])
        return minimize_quadratic(P, p, A, np.concatenate(costs), start)[0][:d]

    def _split_program(self, lam: Any, rows: Any, costs: Any, share: np.ndarray) -> np.ndarray:
        """With an L1 norm weights are differences of two numbers that are not negative."""
        d, n = self.dimension, len(rows)
        owner = np.repeat(np.arange(n), [len(c) for c in costs])
        P = np.diag([lam[0]] * (2 * d) + [0.0] * n)
        p = np.concatenate([np.full(2 * d, lam[1]), share])
        R = np.concatenate(rows)
        A = np.vstack([np.hstack([-R, R, np.eye(n)[owner]]), np.eye(2 * d, 2 * d + n)])
        b = np.concatenate([*costs, np.zeros(2 * d)])
        start = np.concatenate([np.ones(2 * d), [c.max() for c in costs]])
        z = np.maximum(minimize_quadratic(P, p, A, b, start)[0], 0.0)
        return z[:d] - z[d : 2 * d]

    def _newton(self, lam: float, rows: Any, costs: Any, share: np.ndarray) -> np.ndarray:
        g, w, here = self.gamma, np.zeros(self.dimension), np.inf
        old, step, length = w, w, 1.0
        for _ in range(60):
            gradient, hessian, value = lam * w, lam * np.eye(len(w)), 0.5 * lam * w @ w
            for c, cost, R in zip(share, costs, rows, strict=True):
                psi = (cost + R @ w) / g
                q = softmax(psi)
                mean = q @ R
                gradient = gradient + c * mean
                hessian += c / g * ((R.T * q) @ R - np.outer(mean, mean))
                value += c * g * (psi.max() + np.log(np.exp(psi - psi.max()).sum()))
            if value > here - 1e-15 * abs(here):
                if length < 1e-3:
                    return old
                length /= 2
            else:
                old, here, length = w, value, 1.0
                step = np.linalg.solve(hessian, gradient)
            w = old - length * step
        return old

    def _both(
        self, lam: float, rows: Any, costs: Any, share: np.ndarray, w: np.ndarray
    ) -> tuple[float, np.ndarray]:
        """The objective but for an L1 norm, and its gradient."""
        value, gradient = 0.5 * lam * w @ w, lam * w
        for c, cost, R in zip(share, costs, rows, strict=True):
            psi = (cost + R @ w) / self.gamma
            chosen = np.argsort(-psi, kind="stable")[: self.top]
            if self.smoother == "entropy":
                chosen, u = np.arange(len(psi)), softmax(psi)
                value += c * self.gamma * (psi.max() + np.log(np.exp(psi - psi.max()).sum()))
            else:
                u = _projected(psi[chosen] - psi.max())
                value += c * self.gamma * (u @ psi[chosen] - (u @ u - 1) / 2)
            gradient = gradient + c * (u @ R[chosen])
        return value, gradient

    def _descent(self, lam: float, *given: Any) -> np.ndarray:
        return minimize(lambda w: self._both(lam, *given, w), np.zeros(self.dimension), jac=True,
                        method="L-BFGS-B", options=PRECISE).x  # fmt: skip

    def _split_descent(self, lam: Any, *given: Any) -> np.ndarray:
        d = self.dimension

        def both(z: np.ndarray) -> tuple[float, np.ndarray]:
            value, gradient = self._both(lam[0], *given, z[:d] - z[d:])
            return value + lam[1] * z.sum(), lam[1] + np.concatenate([gradient, -gradient])

        z = minimize(both, np.zeros(2 * d), jac=True, method="L-BFGS-B", options=PRECISE,
                     bounds=[(0, None)] * (2 * d)).x  # fmt: skip
        return z[:d] - z[d:]


def _projected(z: np.ndarray) -> np.ndarray:
    """The nearest distribution."""
    falling = np.sort(z)[::-1]
    sums = (np.cumsum(falling) - 1) / np.arange(1, len(z) + 1)
    return np.maximum(z - sums[np.flatnonzero(falling > sums)[-1]], 0)
