"""``max_memory`` binds every solver: what a run takes is about what was estimated before."""

from __future__ import annotations

import tracemalloc
from typing import Any

import numpy as np
import pytest
from chain_problems import random_problem
from scipy.sparse import csr_matrix

import cliquewise as cw
from cliquewise.errors import UnsupportedError
from cliquewise.models.candidates import CandidateSets
from cliquewise.problems.candidates import CandidateProblem
from cliquewise.problems.chain import ChainProblem
from cliquewise.problems.label_sets import MultiLabelProblem
from cliquewise.solvers import registered
from cliquewise.solvers.planner import choose
from cliquewise.solvers.run import run


def chains(loss: str) -> Any:
    base = random_problem(0, 300, 8, 15, n_features=1500)
    return ChainProblem(base.model, base.data, 1.0, loss=loss)


def candidates(loss: str) -> Any:
    rng = np.random.default_rng(0)
    lists = [rng.normal(size=(10, 60)) for _ in range(200)]
    truth = rng.integers(0, 10, len(lists)).tolist()
    return CandidateProblem(CandidateSets.from_examples(lists, 60), truth, None, 1.0, loss)


def label_sets(loss: str) -> Any:
    rng = np.random.default_rng(0)
    labels = (rng.random((200, 30)) < 0.15).astype(int)
    return MultiLabelProblem(csr_matrix(rng.normal(size=(200, 40))), labels, 1.0, True)


MAKERS = {"chain": chains, "candidates": candidates, "label_sets": label_sets}
CASES = [
    (kind, loss, solver)
    for kind in MAKERS
    for solver in registered(kind)
    for loss in sorted(solver.capabilities.losses[kind])
]


@pytest.mark.medium
@pytest.mark.parametrize(("kind", "loss", "solver"), CASES, ids=lambda x: getattr(x, "name", x))
def test_a_run_takes_about_the_memory_that_was_estimated(kind: str, loss: str, solver: Any) -> None:
    problem = MAKERS[kind](loss)
    if solver().refuses(problem) is not None:
        return
    options = {"tol": -np.inf, "random_state": 0}
    run(problem, solver(), max_epochs=1, **options)  # what is compiled or cached is there now
    tracemalloc.start()
    run(problem, solver(), max_epochs=6, **options)
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    # Beside arrays there are some objects.
    assert peak <= 1.6 * solver().memory(problem) + 200_000


def test_a_named_solver_and_auto_and_what_it_falls_back_to_keep_to_the_limit() -> None:
    problem = chains("log")
    needed = {s.name: s().memory(problem) for s in registered("chain")}
    small = 1.01 * needed["sdca"]
    assert needed["lbfgs"] > small
    choice = choose(problem, "auto", max_memory=small)
    assert choice.solver.name == "sdca" and choice.fallback is None
    assert choose(problem, "auto").fallback.name == "lbfgs"
    for name in needed:
        with pytest.raises(UnsupportedError):
            choose(problem, name, max_memory=1000)
    with pytest.raises(UnsupportedError, match="max_memory"):
        cw.SequenceTagger("hinge", solver="bcfw", max_memory=1e-6).fit([[["a"]]], [["A"]])
