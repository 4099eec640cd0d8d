"""One optimum: what all solvers of the structural hinge loss find on the same small problems.

Asked for is a relative gap of 2e-5; the optimum of the generic solver (scipy, on the dual quadratic
program over the local polytope) must then be met to 1e-4, and no certificate, first or last, may
exclude it. ``idal`` solves a smoothed problem, whose optimum is off by at most gamma per clique:
at gamma = 1e-6 that is far below 1e-4.

====================  ===========  ==================  ========================
solver                chains       trees and loops     all labels interact
====================  ===========  ==================  ========================
gdmm on chains        all 3 steps  --                  --
gdmm on graphs        all 3 steps  all 3 steps         all 3 steps
gdmm of label sets    --           --                  3 searches of ``bgcd``
bcfw on chains        yes          --                  --
bcfw on graphs        yes          a lower bound       a lower bound
idal, gamma = 1e-6    yes          yes                 yes
scipy                 yes          yes                 yes
====================  ===========  ==================  ========================

``bcfw`` on graphs asks for the best labeling, not for that of the relaxation. The two are the same
on chains; on loops its optimum is the smaller one, so that there only the order is tested, and
equality where the graph has no loop. ``gdmm`` of label sets has the step ``bgcd`` alone: the
others visit every pair of labels, which is what ``gdmm`` on graphs does.
"""

from __future__ import annotations

from functools import cache
from typing import Any

import numpy as np
import pytest
from relaxed_program import reference_bracket
from test_cliquewise import small_problem as small_graphs
from test_gdmm_multilabel import small_problem as small_label_sets

import cliquewise as cw
from cliquewise.data.graphs import GraphDataset
from cliquewise.models.pairwise import PairwiseModel
from cliquewise.problems.graph import GraphProblem
from cliquewise.solvers.backends.graph.factors import RULES
from cliquewise.solvers.bcfw import BCFW
from cliquewise.solvers.gdmm import GDMM
from cliquewise.solvers.idal import IDAL
from cliquewise.solvers.run import run

TOL, GAMMA = 2e-5, 1e-6
SEARCHES = ("sublinear", "full", "sampled")


@cache
def chains(seed: int) -> tuple[list[Any], list[Any], float]:
    """Sequences of one to four tokens, with two or three labels, as lists of nodes and edges."""
    rng = np.random.default_rng(seed)
    labels, d = int(rng.integers(2, 4)), int(rng.integers(1, 4))
    X, y = [], []
    for i in range(int(rng.integers(2, 4))):
        length = int(rng.integers(1, 5)) if i else 4
        chain = np.arange(length) % labels if i == 0 else rng.integers(0, labels, length)
        X.append((rng.normal(size=(length, d)), [(t, t + 1) for t in range(length - 1)]))
        y.append(chain)
    return X, y, float(10 ** rng.uniform(-1.5, 0.3))


def on_chains(seed: int, solver: Any) -> Any:
    """The tagger without weights for first and last tokens, which the graphs do not have."""
    X, y, C = chains(seed)
    tagger = cw.SequenceTagger(
        loss="hinge", C=C, solver=solver, boundary_weights=False, tol=TOL, max_epochs=3000,
        random_state=seed,
    )  # fmt: skip
    return tagger.fit([x for x, _ in X], [labels.tolist() for labels in y])


def as_graphs(seed: int, loss: str = "hinge") -> GraphProblem:
    X, y, C = chains(seed)
    n_labels = 1 + max(int(labels.max()) for labels in y)
    model = PairwiseModel([n_labels], X[0][0].shape[1])
    return GraphProblem(model, GraphDataset.from_examples(X, y), C, loss, gamma=GAMMA)


def smoothed(problem: GraphProblem) -> GraphProblem:
    return GraphProblem(problem.model, problem.data, problem.C, "softmax_margin", gamma=GAMMA)


def check(trace: Any, proof: Any, best: tuple[float, float], where: Any, off: float = 0.0) -> None:
    """The optimum lies in ``best``; ``off`` is what smoothing may change."""
    low, high = best
    slack = 1e-6 * max(abs(high), 1.0) + off
    assert np.all(trace.primal >= low - slack), where
    assert np.all(trace.dual <= high + slack), where
    assert proof.primal == pytest.approx(low, rel=1e-4, abs=1e-5), where
    assert proof.dual == pytest.approx(low, rel=1e-4, abs=1e-5), where


def check_solvers_of_graphs(problem: GraphProblem, best: tuple[float, float], where: Any) -> Any:
    """Three steps of gdmm, and idal; returns what bcfw proves."""
    for step in RULES:
        fit = run(problem, GDMM(step), tol=TOL, max_epochs=3000, random_state=0)
        check(fit.trace, fit.certificate, best, (where, step))
    fit = run(smoothed(problem), IDAL(), tol=TOL, max_epochs=3000, random_state=0)
    check(fit.trace, fit.certificate, best, (where, "idal"), GAMMA * problem.n_cliques)
    return run(problem, BCFW(), tol=TOL, max_epochs=1000, random_state=0)


@pytest.mark.parametrize("seed", range(6))
def test_on_chains_the_solvers_of_chains_and_of_graphs_agree(seed):
    problem = as_graphs(seed)
    best = reference_bracket(problem)
    bcfw = check_solvers_of_graphs(problem, best, seed)
    check(bcfw.trace, bcfw.certificate, best, (seed, "bcfw on graphs"))
    for solver in (*(cw.solvers.GDMM(step_rule=step) for step in RULES), "bcfw"):
        tagger = on_chains(seed, solver)
        check(tagger.trace_, tagger.certificate_, best, (seed, solver))


@pytest.mark.parametrize("seed", range(8))
def test_on_trees_and_loops_the_solvers_of_the_relaxation_agree(seed):
    problem = small_graphs(seed, loss="hinge", entropy="gini")
    best = reference_bracket(problem)
    bcfw = check_solvers_of_graphs(problem, best, seed)
    assert bcfw.certificate.dual <= best[1] + 1e-6


@pytest.mark.parametrize("seed", range(8))
def test_where_all_labels_interact_the_active_sets_and_the_listed_pairs_agree(seed):
    problem = small_label_sets(seed)
    graphs = problem.as_graphs()
    best = reference_bracket(graphs)
    for search in SEARCHES:
        fit = run(problem, GDMM(factor_search=search), tol=TOL, max_epochs=3000, random_state=seed)
        check(fit.trace, fit.certificate, best, (seed, search))
    bcfw = check_solvers_of_graphs(graphs, best, seed)
    assert bcfw.certificate.dual <= best[1] + 1e-6
    if problem.n_labels < 3:
        check(bcfw.trace, bcfw.certificate, best, (seed, "bcfw"))
