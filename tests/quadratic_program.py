"""A small interior-point method for convex quadratic programs, in numpy alone.

References of tests need optima to many digits, also where a program is flat or degenerate: there
scipy's SLSQP stops short. Nothing here is taken on trust: whoever calls it evaluates a feasible
point of the program and of its dual, and both ends are then true whatever the precision.
"""

from __future__ import annotations

import numpy as np
from scipy.linalg import cho_factor, cho_solve


@np.errstate(all="ignore")  # at the very end multipliers may overflow; the best point is kept
def minimize_quadratic(
    P: np.ndarray, p: np.ndarray, A: np.ndarray, b: np.ndarray, start: np.ndarray
) -> tuple[np.ndarray, np.ndarray]:
    """Minimize ``z' P z / 2 + p' z`` where ``A z >= b``; the point and the multipliers of A.

    Mehrotra's predictor and corrector steps on the normal equations; the columns of A must be
    independent where P is singular.
    """
    z = start.astype(float)
    s = np.maximum(A @ z - b, 1.0)
    y = np.ones(len(b))
    best, least = (z, y), np.inf
    for _ in range(100):
        dual, primal = P @ z + p - A.T @ y, A @ z - b - s
        mu = float(s @ y) / max(len(b), 1)
        error = max(np.abs(dual).max(initial=0), np.abs(primal).max(initial=0), mu)
        if error < least:
            best, least = (z.copy(), y.copy()), error
        if error < 1e-13 or not error <= 1e6 * least:
            break
        matrix = P + (A.T * (y / s)) @ A
        matrix[np.diag_indices(len(z))] += 1e-15 * (1 + np.trace(matrix) / max(len(z), 1))
        try:
            factor = cho_factor(matrix)
        except np.linalg.LinAlgError:
            break
        target = -s * y
        for corrector in (False, True):
            dz = cho_solve(factor, -dual + A.T @ (target / s - y / s * primal))
            ds = A @ dz + primal
            dy = (target - y * ds) / s
            lengths = _longest(s, ds), _longest(y, dy)
            if not corrector:
                after = float((s + lengths[0] * ds) @ (y + lengths[1] * dy)) / max(len(b), 1)
                target = (after / mu) ** 3 * mu - s * y - ds * dy if mu > 0 else target
        length = 0.995 * min(lengths)
        z, s, y = z + length * dz, s + length * ds, y + length * dy
    return best


def _longest(x: np.ndarray, step: np.ndarray) -> float:
    """How far one may go so that no entry becomes negative, up to 1."""
    down = step < 0
    return float(np.min(-x[down] / step[down], initial=1.0))
