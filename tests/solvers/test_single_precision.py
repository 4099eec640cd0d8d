"""SDCA in float32: half the memory, and certificates that are as true as those in float64."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from chain_problems import ChainRecipe, Enumeration, chain_recipes, random_problem
from hypothesis import given, settings

import cliquewise as cw
from cliquewise.errors import DataError, UnsupportedError
from cliquewise.problems.chain import ChainProblem
from cliquewise.solvers.backends.chain import float32_duals
from cliquewise.solvers.backends.chain import parallel as threads
from cliquewise.solvers.run import run
from cliquewise.solvers.sdca import SDCA

SINGLE = SDCA(dtype="float32")


@settings(max_examples=40)
@given(recipe=chain_recipes(max_log_c=1))
def test_certificates_of_single_precision_are_true(recipe: ChainRecipe) -> None:
    problem = recipe.build()
    optimum = Enumeration(problem).optimum
    fit = run(problem, SINGLE, tol=1e-6, max_epochs=40, random_state=0)
    slack = 1e-10 * (1 + abs(optimum))
    for row in fit.trace:
        assert row["dual"] <= optimum + slack
        assert row["primal"] >= optimum - slack
    assert problem.primal(fit.weights) == pytest.approx(fit.certificate.primal, rel=1e-12)


@pytest.mark.parametrize("pairs", ["all", "seen"])
@pytest.mark.parametrize("jobs", [1, 3])
def test_single_precision_reaches_the_same_optimum(
    pairs: str, jobs: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(threads, "MIN_WORK", 1.0)
    monkeypatch.setattr(float32_duals, "SECTION_TOKENS", 100)  # several sections
    base = random_problem(1, 100, 5, 10, pairs=pairs)
    double = run(base, SDCA(), tol=1e-5, max_epochs=300, random_state=0)
    problem = ChainProblem(base.model, base.data, base.C, n_jobs=jobs)
    fit = run(problem, SINGLE, tol=1e-5, max_epochs=300, random_state=0)
    assert fit.converged
    assert fit.certificate.primal == pytest.approx(double.certificate.primal, rel=2e-5)


def test_the_hinge_loss_in_single_precision() -> None:
    base = random_problem(5, 60, 4, 6)
    problem = ChainProblem(base.model, base.data, 1.0, loss="hinge")
    double, fit = (
        run(problem, s, tol=1e-2, max_epochs=300, random_state=0) for s in (SDCA(), SINGLE)
    )
    assert fit.converged
    assert fit.certificate.primal == pytest.approx(double.certificate.primal, rel=2e-2)


def test_the_certificate_is_that_of_the_same_scores_in_double_precision() -> None:
    """Marginals and weights in float32 have no part in it."""
    problem, rng = random_problem(2, 60, 4, 8), np.random.default_rng(0)
    state = SINGLE.init(problem)
    for _ in range(3):
        SINGLE.step(problem, state, rng)
    arrays = state.duals.arrays
    arrays.mu[:] = arrays.mu_edges[:] = state.duals.w[:] = 7.0
    proof = SINGLE.certify(problem, state)
    other = SDCA().init(problem)
    other.duals.arrays.theta[:] = arrays.theta
    other.duals.arrays.theta_edges[:] = arrays.theta_edges
    other.duals.infer()
    assert proof.dual == pytest.approx(SDCA().certify(problem, other).dual, rel=1e-13)


def test_single_precision_takes_half_the_memory() -> None:
    problem = random_problem(2, 60, 4, 8)
    state, double = SINGLE.init(problem).duals, SDCA().init(problem).duals
    for name in ("theta", "theta_edges", "mu", "mu_edges"):
        assert 2 * getattr(state.arrays, name).nbytes == getattr(double.arrays, name).nbytes
    assert 2 * state.w.nbytes == double.w.nbytes
    assert SINGLE.memory(problem) == pytest.approx(SDCA().memory(problem) / 2)


def test_resumed_run_in_single_precision_converges(tmp_path: Path) -> None:
    problem = random_problem(6, 60, 4, 6)
    kept = {"checkpoint": tmp_path / "state", "checkpoint_seconds": 0.0, "random_state": 0}
    run(problem, SINGLE, tol=0, max_epochs=4, **kept)
    fit = run(problem, SINGLE, tol=1e-4, max_epochs=300, resume=True, **kept)
    whole = run(problem, SINGLE, tol=1e-4, max_epochs=300, random_state=0)
    assert fit.converged and fit.epochs <= 1.5 * whole.epochs
    np.testing.assert_allclose(fit.weights, whole.weights, rtol=0.01, atol=1e-3)
    with pytest.raises(DataError, match="checkpoint"):
        run(problem, SDCA(), tol=1e-4, resume=True, **kept)


X = [[["w=the"], ["w=dog"]], [["w=a"], ["w=cat"]], [["w=the"], ["w=cat"], ["w=sat"]]]
Y = [["D", "N"], ["D", "N"], ["D", "N", "V"]]


def test_a_tagger_in_single_precision_predicts_the_same() -> None:
    double, one = (
        cw.SequenceTagger(dtype=d, tol=1e-6, random_state=0).fit(X, Y)
        for d in ("float64", "float32")
    )
    assert one.predict(X) == double.predict(X) == Y
    assert one.coef_.dtype == np.float64
    np.testing.assert_allclose(one.coef_, double.coef_, atol=5e-3)
    assert one.certificate_.gap <= 1e-6


def test_what_single_precision_is_not_for_is_rejected() -> None:
    with pytest.raises(UnsupportedError, match='"float32" is supported only by solver="sdca"'):
        cw.SequenceTagger(dtype="float32", solver="lbfgs").fit(X, Y)
    with pytest.raises(DataError, match="dtype must be float64 or float32"):
        cw.SequenceTagger(dtype="half").fit(X, Y)
    problem = ChainRecipe(3, pairs=2).build()
    assert "attributes of token pairs" in str(SINGLE.refuses(problem))
