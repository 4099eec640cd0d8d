"""SVRG and Casimir on problems that answer for one example at a time."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from cliquewise.candidate_problem import CandidateProblem
from cliquewise.errors import UnsupportedError
from cliquewise.losses import L2
from cliquewise.models.candidates import CandidateSets
from cliquewise.solvers._smooth import ExampleBackend
from cliquewise.solvers.base import choose
from cliquewise.solvers.casimir import Casimir
from cliquewise.solvers.run import Fit, run
from cliquewise.solvers.svrg import SVRG


def candidates(seed: int, n: int = 40, m: int = 8, d: int = 6, C: float = 1.0) -> CandidateProblem:
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(n, m, d))
    truth = (X @ rng.normal(size=d) + 0.5 * rng.normal(size=(n, m))).argmax(axis=1)
    cost = rng.random((n, m))
    cost[np.arange(n), truth] = 0.0
    return CandidateProblem(CandidateSets.from_examples(list(X)), truth, cost.ravel(), C)


def solve(problem: Any, solver: Any, **options: Any) -> Fit:
    return run(problem, solver, **{"tol": 1e-2, "max_epochs": 1000, "random_state": 0, **options})


@pytest.mark.parametrize("solver", [SVRG(mu=0.02, k=8), Casimir(k=8), Casimir(k=3)])
def test_gap_closes_and_every_bound_is_true(solver: Any) -> None:
    problem = candidates(0)
    best = solve(problem, choose(problem), tol=1e-6, max_epochs=3000).certificate
    fit = solve(problem, solver)
    assert fit.converged
    for row in fit.trace:
        assert row["dual"] <= best.primal + 1e-9 and row["primal"] >= best.dual - 1e-9
    assert problem.primal(fit.weights) == pytest.approx(fit.certificate.primal)


def test_full_gradient_is_that_of_the_smoothed_losses() -> None:
    problem, rng = candidates(1), np.random.default_rng(1)
    w, d = rng.normal(size=(2, problem.dimension))
    backend, h = ExampleBackend(problem, "l2", 8), 1e-6
    found = backend.full_gradient(w, 0.5)
    listed = [L2().value(problem.top_k(w, i, 8)[0], 0.5) for i in range(problem.n_examples)]
    assert found.loss == pytest.approx(np.mean(listed)) == backend.smooth_loss(w, 0.5)
    rise = backend.smooth_loss(w + h * d, 0.5) - backend.smooth_loss(w - h * d, 0.5)
    assert rise / (2 * h) == pytest.approx(found.gradient @ d, abs=1e-6)
    assert found.exact == 1.0 and ExampleBackend(problem, "l2", 2).full_gradient(w, 9.0).exact < 1


def test_entropy_is_refused_where_there_are_no_marginals() -> None:
    with pytest.raises(UnsupportedError, match=r"entropy.*l2"):
        choose(candidates(2), SVRG(smoother="entropy"))


def test_state_survives_its_packing() -> None:
    problem, solver = candidates(3), Casimir()
    fit = solve(problem, solver, max_epochs=5, tol=0)
    again = solver.unpack(problem, solver.pack(fit.state))
    a, b = (solve(problem, solver, warm=s, max_epochs=4, tol=0) for s in (fit.state, again))
    assert np.isfinite(a.weights).all() and a.weights.shape == b.weights.shape
