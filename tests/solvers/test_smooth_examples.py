"""SVRG and Casimir on problems that answer for one example at a time."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from cliquewise.errors import UnsupportedError
from cliquewise.models.candidates import CandidateSets
from cliquewise.problems.candidates import CandidateProblem
from cliquewise.problems.examples import ExampleProblem
from cliquewise.smoothers import L2
from cliquewise.solvers.backends.base import SmoothingSettings
from cliquewise.solvers.backends.examples import ExampleSmoothing
from cliquewise.solvers.casimir import Casimir
from cliquewise.solvers.iterates import NUMBERS
from cliquewise.solvers.planner import choose
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


@pytest.mark.parametrize(
    "solver", [SVRG(mu=0.02, k=8), Casimir(k=8), Casimir(k=3), Casimir(smoother="entropy")]
)
def test_gap_closes_and_every_bound_is_true(solver: Any) -> None:
    problem = candidates(0)
    best = solve(problem, choose(problem).solver, tol=1e-6, max_epochs=3000).certificate
    fit = solve(problem, solver)
    assert fit.converged
    for row in fit.trace:
        assert row["dual"] <= best.primal + 1e-9 and row["primal"] >= best.dual - 1e-9
    assert problem.primal(fit.weights) == pytest.approx(fit.certificate.primal)


def test_full_gradient_is_that_of_the_smoothed_losses() -> None:
    problem, rng = candidates(1), np.random.default_rng(1)
    w, d = rng.normal(size=(2, problem.dimension))
    backend, h = ExampleSmoothing(problem, SmoothingSettings("l2", 8)), 1e-6
    found = backend.full_gradient(w, 0.5)
    listed = [L2().value(problem.top_k(w, i, 8)[0], 0.5) for i in range(problem.n_examples)]
    assert found.loss == pytest.approx(np.mean(listed)) == backend.smooth_loss(w, 0.5)
    rise = backend.smooth_loss(w + h * d, 0.5) - backend.smooth_loss(w - h * d, 0.5)
    assert rise / (2 * h) == pytest.approx(found.gradient @ d, abs=1e-6)
    assert (
        found.exact == 1.0
        and ExampleSmoothing(problem, SmoothingSettings("l2", 2)).full_gradient(w, 9.0).exact < 1
    )


def test_entropy_is_refused_where_there_are_no_marginals() -> None:
    with pytest.raises(UnsupportedError, match=r"entropy.*l2"):
        choose(without_marginals(candidates(2)), SVRG(smoother="entropy"))


def without_marginals(inner: CandidateProblem) -> ExampleProblem:
    """A problem of one's own."""

    class Own(ExampleProblem):
        def top_k(self, w: Any, i: int, k: int) -> Any:
            return inner.top_k(w, i, k)

    return Own(inner.n_examples, inner.dimension)


def test_a_problem_of_ones_own_is_driven_through_its_top_k_alone() -> None:
    inner = candidates(4)
    own = without_marginals(inner)
    assert own.kind == "examples"
    ours, theirs = (solve(p, Casimir(), max_epochs=20, tol=0) for p in (own, inner))
    assert ours.certificate.primal == pytest.approx(theirs.certificate.primal, rel=1e-9)


def test_a_checkpoint_of_another_penalty_brings_its_weights_but_none_of_its_proofs() -> None:
    solver, weak, strong = Casimir(), candidates(3, C=10.0), candidates(3, C=0.01)
    best = {p.C: solve(p, choose(p).solver, tol=1e-7).certificate for p in (weak, strong)}
    for one, other in ((weak, strong), (strong, weak)):
        packed = solver.pack(solve(one, solver, max_epochs=60, tol=0).state)
        state = solver.unpack(other, packed)
        proof = solver.certify(other, state)
        assert proof.dual <= best[other.C].primal + 1e-9
        assert best[other.C].dual - 1e-9 <= proof.primal
        assert proof.primal == pytest.approx(other.primal(solver.weights(other, state)))
    kept = solver.unpack(one, packed)
    assert kept.dual == packed["numbers"][1 + NUMBERS.index("dual")] > 0


def test_state_survives_its_packing() -> None:
    problem, solver = candidates(3), Casimir()
    fit = solve(problem, solver, max_epochs=5, tol=0)
    again = solver.unpack(problem, solver.pack(fit.state))
    a, b = (solve(problem, solver, warm=s, max_epochs=4, tol=0) for s in (fit.state, again))
    assert np.isfinite(a.weights).all() and a.weights.shape == b.weights.shape
