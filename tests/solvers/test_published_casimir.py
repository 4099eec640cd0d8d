"""Casimir as published: every iterate equals that of a NumPy reference written from the paper."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from cliquewise.models.candidates import CandidateSets
from cliquewise.problems.candidates import CandidateProblem
from cliquewise.solvers.casimir import Casimir
from cliquewise.solvers.run import run

N, M, D, RATE, MU = 5, 3, 3, 0.05, 0.7


def data() -> tuple[Any, Any]:
    rng = np.random.default_rng(3)
    return rng.normal(size=(N, M, D)), rng.integers(0, M, N)


def projection(z: Any) -> Any:
    """The Euclidean projection on the simplex."""
    s = np.sort(z)[::-1]
    t = (np.cumsum(s) - 1) / np.arange(1, len(z) + 1)
    return np.maximum(z - t[np.flatnonzero(s > t)[-1]], 0)


def gradient(X: Any, y: int, w: Any, mu: float) -> Any:
    """The gradient of the l2-smoothed structured hinge loss (Lemma 7)."""
    psi = (X - X[y]) @ w + (np.arange(M) != y)
    return projection(psi / mu) @ (X - X[y])


def reference(C: float, variant: str, steps: int) -> list[Any]:
    """Algorithm 4, each subproblem solved by one epoch of SVRG from the prox center."""
    X, y = data()
    lam = 1 / (C * N)
    kappa = lam if variant == "adaptive" else max(1 / (RATE * N) - lam, 0)
    if variant == "constant" and kappa <= 3 * lam:
        kappa = lam
    rng, w, z, out = np.random.default_rng(0), np.zeros(D), np.zeros(D), []
    alpha = np.sqrt(lam / (lam + kappa))
    for k in range(1, steps + 1):
        mu = MU * (1 - np.sqrt(lam / (lam + kappa)) / 2) ** (k / 2)  # Corollary 18
        mu = MU if variant == "constant" else mu
        anchor = [gradient(X[i], y[i], z, mu) for i in range(N)]
        v, total = z.copy(), np.zeros(D)
        for i in rng.permutation(N):
            g = gradient(X[i], y[i], v, mu) - anchor[i] + np.mean(anchor, axis=0)
            v = v - RATE * (g + lam * v + kappa * (v - z))
            total += v
        new, strong = total / N, kappa + lam
        before = alpha
        roots = np.roots([strong, before**2 * strong - lam, -(before**2) * strong])  # Eq. 27
        alpha = float(max(roots.real))
        beta = before * (1 - before) * strong / (before**2 * strong + alpha * strong)  # Eq. 29
        z, w = new + beta * (new - w), new  # Eq. 28
        out.append(w)
    return out


@pytest.mark.parametrize("variant", ["adaptive", "constant"])
@pytest.mark.parametrize("C", [0.1, 2.0])
def test_first_twenty_iterates_equal_the_reference(C: float, variant: str) -> None:
    X, y = data()
    problem = CandidateProblem(CandidateSets.from_examples(X.tolist()), y, C=C)
    solver = Casimir.as_published(variant, learning_rate=RATE, mu=MU, k=M)
    state, rng = solver.init(problem), np.random.default_rng(0)
    for expected in reference(C, variant, 20):
        solver.step(problem, state, rng)
        np.testing.assert_allclose(solver.weights(problem, state), expected, rtol=0, atol=1e-9)


@pytest.mark.parametrize("C", [1.0, 100.0])
def test_smoothing_never_increases(C: float) -> None:
    rng = np.random.default_rng(0)
    X = (5 * rng.normal(size=(20, 4, 3))).tolist()
    problem = CandidateProblem(CandidateSets.from_examples(X), rng.integers(0, 4, 20), C=C)
    for solver in (Casimir(), Casimir(anchor="full"), Casimir(inner="gradient")):
        fit = run(problem, solver, tol=0, max_epochs=300, random_state=0)
        assert np.all(np.diff(fit.trace.mu) <= 0)


def test_variants_by_other_names_are_rejected() -> None:
    with pytest.raises(Exception, match="variant is adaptive or constant"):
        Casimir.as_published("plain", learning_rate=1.0)
