"""Training without a penalty (C infinite): Corollaries 19 and 20 of casimir."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from chain_problems import ChainRecipe
from scipy.optimize import linprog

from cliquewise.data.graphs import GraphDataset
from cliquewise.errors import UnsupportedError
from cliquewise.models.candidates import CandidateSets
from cliquewise.models.pairwise import PairwiseModel
from cliquewise.problems.candidates import CandidateProblem
from cliquewise.problems.chain import ChainProblem
from cliquewise.problems.graph import GraphProblem
from cliquewise.solvers.casimir import GOLDEN, Casimir
from cliquewise.solvers.planner import choose
from cliquewise.solvers.registry import get, registered
from cliquewise.solvers.run import run


def candidates(seed: int, noise: float, n: int = 20, m: int = 4, d: int = 4) -> Any:
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(n, m, d))
    truth = (X @ rng.normal(size=d) + noise * rng.normal(size=(n, m))).argmax(axis=1)
    cost = rng.random((n, m))
    cost[np.arange(n), truth] = 0.0
    return CandidateProblem(CandidateSets.from_examples(list(X)), truth, cost.ravel(), np.inf)


def by_linear_programming(problem: Any) -> float:
    """Least mean hinge loss: one slack per example, one constraint per candidate."""
    n, d, rows, right = problem.n_examples, problem.dimension, [], []
    for i in range(n):
        psi, features = problem.top_k(np.zeros(d), i, 100)
        for r, value in enumerate(psi):
            row = np.zeros(d + n)
            features.add_to(row[:d], r)
            row[d + i] = -1.0
            rows.append(row)
            right.append(-value)
    goal = np.concatenate([np.zeros(d), np.full(n, 1.0 / n)])
    bounds = [(None, None)] * d + [(0, None)] * n
    found = linprog(goal, np.array(rows), right, bounds=bounds)
    assert found.status == 0
    return float(found.fun)


@pytest.mark.parametrize("seed", range(2))
@pytest.mark.parametrize(
    "solver",
    [
        Casimir(k=4),
        Casimir(smoothing="constant", mu=0.01, k=4),
        Casimir(inner="gradient", k=4),
        Casimir(kappa=0.5, warm_start="extrapolation", k=4),
    ],
    ids=["adaptive", "constant", "gradient test", "given kappa"],
)
def test_casimir_comes_to_the_optimum_of_the_linear_program(solver: Any, seed: int) -> None:
    problem = candidates(seed, noise=1.0)
    best = by_linear_programming(problem)
    fit = run(problem, solver, tol=0, max_epochs=300, random_state=seed)
    for row in fit.trace:
        assert 0.0 <= row["dual"] <= best <= row["primal"] + 1e-9
    assert fit.certificate.primal <= 1.1 * best


def test_separable_examples_are_separated_and_that_is_proved() -> None:
    problem = candidates(9, noise=0.0)
    fit = run(problem, choose(problem).solver, tol=1e-3, max_epochs=3000, random_state=0)
    assert fit.solver == "casimir" and fit.converged
    assert fit.certificate.primal == 0.0 == problem.primal(fit.weights)
    assert problem.certificate(fit.weights).gap == 0.0


def test_chains_and_graphs_do_without_a_penalty_too() -> None:
    finite = ChainRecipe(3, examples=6, labels=3).build()
    chains = ChainProblem(finite.model, finite.data, np.inf, loss="hinge")
    data = GraphDataset.from_examples([([[0.5], [-1.0]], [(0, 1)])], [[0, 1]])
    graphs = GraphProblem(PairwiseModel([2], 1), data, np.inf, loss="hinge")
    for problem in (chains, graphs):
        fit = run(problem, choose(problem).solver, tol=1e-2, max_epochs=500, random_state=0)
        assert fit.certificate.primal <= 0.05 * problem.primal(np.zeros(problem.dimension))
        assert fit.certificate.dual == 0.0


def test_every_other_solver_says_that_it_needs_a_penalty() -> None:
    problem = candidates(0, noise=1.0)
    others = [s() for s in registered(problem.kind) if s.name != "casimir"]
    assert {s.name for s in others} >= {"svrg", "bcfw"}
    for solver in others:
        if problem.loss in solver.capabilities.losses[problem.kind]:
            with pytest.raises(UnsupportedError, match=r"needs a penalty.*casimir"):
                choose(problem, solver)
    chains = ChainRecipe(3).build()
    likelihood = ChainProblem(chains.model, chains.data, np.inf)
    for name in ("sdca", "lbfgs", "sag"):
        with pytest.raises(UnsupportedError, match="none of the solvers"):
            choose(likelihood, name)
    with pytest.raises(UnsupportedError, match="no solver can minimize"):
        choose(likelihood)
    assert get("sdca").refuses(chains) is None


def test_the_smoothing_and_kappa_follow_corollary_20() -> None:
    problem, solver = candidates(1, noise=1.0), Casimir(mu=0.8, kappa=0.1)
    state, rng = solver.init(problem), np.random.default_rng(0)
    assert [round(solver._schedule(problem, state, k), 12) for k in (1, 2, 4)] == [0.8, 0.4, 0.2]
    assert [round(solver._kappa(problem, state, k), 12) for k in (1, 2, 3)] == [0.1, 0.2, 0.3]
    alphas = []
    for _ in range(6):
        solver.step(problem, state, rng)
        alphas.append(state.alpha)
    assert all(0 < a <= GOLDEN for a in alphas)
