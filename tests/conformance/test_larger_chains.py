"""Solvers of chains on larger and harder problems, against each other, and on partial labels.

Such chains cannot be listed; ``test_solvers.py`` has the small ones.
"""

from __future__ import annotations

from functools import cache
from typing import Any

import numpy as np
import pytest
from chain_problems import ChainRecipe, random_problem

from cliquewise.errors import UnsupportedError
from cliquewise.models.chain import ChainModel
from cliquewise.problems.chain import ChainProblem
from cliquewise.solvers import Solver, get, registered
from cliquewise.solvers.planner import choose
from cliquewise.solvers.run import Fit, run

SOLVERS = [s() for s in registered("chain") if "log" in s.capabilities.losses["chain"]]
every_solver = pytest.mark.parametrize("solver", SOLVERS, ids=lambda s: s.name)
LIMIT = 40_000


def solve(problem: ChainProblem, solver: Solver, **options: Any) -> Fit:
    return run(problem, solver, **{"max_epochs": LIMIT, "random_state": 0, **options})


def check_row(primal: float, dual: float, optimum: float) -> None:
    slack = 1e-10 * (1 + abs(optimum))
    assert dual <= optimum + slack
    assert primal >= optimum - slack
    assert primal - dual >= -slack


# ---- labels that are not known


@every_solver
def test_unknown_labels_are_solved_or_refused_with_a_sentence(solver: Solver) -> None:
    data = ChainRecipe(5, examples=4).build().data
    labels = data.labels.copy()
    labels[0] = -1
    partial = np.zeros((data.n_tokens, 3), dtype=bool)
    partial[np.arange(data.n_tokens), np.maximum(labels, 0)] = True
    partial[0] = True
    hidden = data.with_labels(labels)
    problem = ChainProblem(ChainModel.build(hidden, 3), hidden, partial=partial)
    reason = solver.refuses(problem)
    if reason is None:
        fit = solve(problem, solver, max_epochs=300)
        assert fit.certificate.dual == -np.inf
        assert fit.certificate.status == "none"
        return
    with pytest.raises(UnsupportedError) as error:
        choose(problem, solver)
    assert solver.name in str(error.value) and reason in str(error.value)
    assert "these do: lbfgs" in str(error.value)


# ---- larger and harder problems


LARGER = [(5, 40, "all"), (12, 20, "seen"), (30, 15, "seen"), (30, 10, "all")]


@pytest.mark.medium
@pytest.mark.parametrize(("k", "longest", "pairs"), LARGER)
def test_all_solvers_agree_on_larger_problems(k: int, longest: int, pairs: str) -> None:
    problem = random_problem(k, 60, k, longest, pairs=pairs, C=0.3)
    fits = [solve(problem, s, tol=1e-9) for s in SOLVERS]
    best_dual = max(fit.certificate.dual for fit in fits)
    for fit in fits:
        assert fit.converged
        assert fit.certificate.primal == pytest.approx(best_dual, rel=1e-8)
        for row in fit.trace:
            assert row["primal"] >= best_dual * (1 - 1e-12)


HARD = {
    "large C": {"n": 20, "k": 4, "longest": 8, "C": 1e4},
    "large features": {"n": 20, "k": 4, "longest": 8, "scale": 1e3},
    "one label": {"n": 20, "k": 1, "longest": 8},
    "300 labels": {"n": 15, "k": 300, "longest": 4},
    "70 labels, seen pairs": {"n": 15, "k": 70, "longest": 6, "pairs": "seen"},
}


@cache
def hard_optimum(case: str) -> float:
    problem = random_problem(1, **HARD[case])
    return solve(problem, get("lbfgs"), tol=1e-10, max_epochs=3000).certificate.primal


@pytest.mark.medium
@pytest.mark.filterwarnings("error")
@every_solver
@pytest.mark.parametrize("case", HARD)
def test_hard_problems_give_finite_answers_and_true_certificates(solver: Solver, case: str) -> None:
    problem = random_problem(1, **HARD[case])
    fit = solve(problem, solver, tol=1e-6, max_epochs=300)
    assert np.isfinite(fit.weights).all()
    start = problem.primal(np.zeros(problem.dimension))
    for row in fit.trace:
        check_row(row["primal"], row["dual"], hard_optimum(case))
    assert fit.certificate.primal <= start * (1 + 1e-9)


@pytest.mark.medium
@every_solver
@pytest.mark.parametrize("case", ["one label", "300 labels", "70 labels, seen pairs"])
def test_many_labels_or_one_are_solved_to_the_end(solver: Solver, case: str) -> None:
    fit = solve(random_problem(1, **HARD[case]), solver, tol=1e-6, max_epochs=2000)
    assert fit.converged
