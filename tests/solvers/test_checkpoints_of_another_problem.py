"""A checkpoint taken up under another C: the weights may be any, but no proof may be wrong."""

from __future__ import annotations

from functools import cache

import numpy as np
import pytest
from chain_problems import ChainRecipe

from cliquewise.certificate import Certificate
from cliquewise.problems.chain import ChainProblem
from cliquewise.solvers import Solver, get, registered
from cliquewise.solvers.run import run


@cache
def chains(C: float, loss: str) -> ChainProblem:
    base = ChainRecipe(7, examples=6, labels=3, values=True, weights=True).build()
    return ChainProblem(base.model, base.data, C, loss=loss)


@cache
def enclosure(C: float, loss: str) -> Certificate:
    """The optimum between two values, by a solver that computes all it says from its duals."""
    best = {"log": "sdca", "hinge": "bcfw", "smooth_hinge": "lbfgs"}[loss]
    return run(chains(C, loss), get(best), tol=1e-4, max_epochs=3000, random_state=0).certificate


CASES = [
    (solver(), loss)
    for loss in ("log", "hinge", "smooth_hinge")
    for solver in sorted(registered(), key=lambda s: s.name)
    if solver().refuses(chains(1.0, loss)) is None
]


@pytest.mark.parametrize("ends", [(0.05, 5.0), (5.0, 0.05)], ids=["weaker", "stronger"])
@pytest.mark.parametrize("case", CASES, ids=lambda case: f"{case[0].name}-{case[1]}")
def test_no_bound_of_the_old_problem_survives(
    case: tuple[Solver, str], ends: tuple[float, float]
) -> None:
    solver, loss = case
    old, new = (chains(C, loss) for C in ends)
    best, rng = enclosure(ends[1], loss), np.random.default_rng(0)
    state = run(old, solver, tol=0, max_epochs=30, random_state=0).state
    again = solver.unpack(new, solver.pack(state))
    for _ in range(3):
        proof = solver.certify(new, again)
        assert proof.dual <= best.primal + 1e-9
        assert proof.primal >= best.dual - 1e-9
        assert new.primal(solver.weights(new, again)) == pytest.approx(proof.primal)
        solver.step(new, again, rng)
