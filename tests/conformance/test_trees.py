"""Likelihoods of drawn forests and of small junction trees, held against lists of all labelings."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from solver_problems import Listed, Recipe, _listed_graph
from test_solvers import check_trace, check_weights

import cliquewise as cw
from cliquewise.data.graphs import GraphDataset
from cliquewise.graph.factor_graph import FactorGraph
from cliquewise.models.pairwise import PairwiseModel
from cliquewise.problems.graph import GraphProblem
from cliquewise.solvers import Solver, registered
from cliquewise.solvers.run import run

#: Those that minimize the likelihood itself, not a relaxation of it.
EXACT = [s() for s in registered("graph")
         if "log" in s.capabilities.losses["graph"] and not s.capabilities.no_penalty
         and "graph" not in s.capabilities.relaxed_on and s.name != "owlqn"]  # fmt: skip
every_exact = pytest.mark.parametrize("solver", EXACT, ids=lambda s: f"tree-log-{s.name}")


def examples(rng: np.random.Generator, n: int, largest: int, cycles: bool = False) -> Any:
    """Forests, or graphs with cycles, of nodes with 2 and nodes with 3 labels."""
    X, y = [], []
    for _ in range(n):
        size = int(rng.integers(1, largest + 1))
        name = rng.permutation(size)
        edges = [(name[rng.integers(0, v)], name[v]) for v in range(1, size) if rng.random() < 0.8]
        if cycles:
            edges = [(u, v) for v in range(size) for u in range(v) if rng.random() < 0.8]
        edges = [edge[::-1] if rng.random() < 0.5 else edge for edge in edges]
        types = rng.integers(0, 2, size)
        labels = rng.integers(0, 2 + types)
        X.append((rng.normal(size=(size, 2)) + labels[:, None],
                  np.array(edges, dtype=int).reshape(-1, 2), None, types))  # fmt: skip
        y.append(labels)
    return X, y


def problem_of(X: Any, y: Any, rng: np.random.Generator, **options: Any) -> GraphProblem:
    weights = rng.choice([0.0, 0.5, 1.0, 2.0], len(X))
    data = GraphDataset.from_examples(X, y)
    return GraphProblem(PairwiseModel([2, 3], 2), data, weights=weights, **options)


@settings(max_examples=25)
@given(seed=st.integers(0, 2**31), gamma=st.sampled_from([1.0, 0.3]))
def test_marginals_of_forests_are_those_of_all_labelings(seed: int, gamma: float) -> None:
    rng = np.random.default_rng(seed)
    problem = problem_of(*examples(rng, 4, 6), rng, gamma=gamma)
    assert problem.forest is not None
    scores = 10.0 ** rng.uniform(-1, 2.5) * rng.normal(size=int(problem.cliques.offsets[-1]))
    mu, values = problem.inference(scores)
    for i, heat in enumerate(problem.temperatures):
        at = problem.entries(i)
        for tables, found, value in ((scores[at], *problem.marginals(i, scores[at])),
                                     (scores[at] / (heat or 1), mu[at], None)):  # fmt: skip
            exact = FactorGraph.from_structure(problem.structures[i], tables).marginals(
                "brute-force"
            )
            np.testing.assert_allclose(found, exact.factors.flat, atol=1e-9)
            wanted = exact.log_z if value is not None else heat * exact.log_z
            got = value if value is not None else values[i]
            assert got == pytest.approx(wanted, rel=1e-10, abs=1e-10)


@every_exact
@settings(max_examples=4)
@given(seed=st.integers(0, 2**31), cycles=st.booleans())
def test_the_likelihood_of_trees_and_junction_trees_is_minimized(
    solver: Solver, seed: int, cycles: bool
) -> None:
    rng = np.random.default_rng(seed)
    problem = problem_of(*examples(rng, 4, 4, cycles), rng, C=10.0 ** rng.uniform(-1, 0.5))
    reference: Listed = _listed_graph(problem, Recipe(seed))
    fit = run(problem, solver, tol=1e-6, max_epochs=3000, random_state=0)
    check_trace(fit, reference)
    check_weights(fit.weights, fit.certificate, reference)
    assert fit.certificate.status == "exact"
    low, high = reference.bracket
    assert fit.certificate.primal <= high + 1e-5 * (1e-3 + high)
    assert fit.certificate.dual >= low - 1e-5 * (1e-3 + low)


def test_a_labeler_of_trees_is_exact_without_being_asked() -> None:
    rng = np.random.default_rng(0)
    for largest in (2, 9):  # however cheap their cliques are
        X, y = examples(rng, 12, largest)
        labeler = cw.GraphLabeler(random_state=0).fit(X, y)
        assert labeler.certificate_.status == "exact" and labeler.certificate_.gap <= 1e-3
        assert not labeler.relaxed_
        exact = labeler.graph(X[0]).marginals("brute-force").nodes.flat
        np.testing.assert_allclose(
            np.concatenate(labeler.predict_marginals(X)[0]), exact, atol=1e-9
        )


def test_a_cycle_is_no_forest() -> None:
    for edges, is_one in (
        ([(0, 1), (2, 1)], True),
        ([(0, 1), (1, 2), (2, 0)], False),
        ([], True),
    ):
        rows = np.array(edges, dtype=int).reshape(-1, 2)
        data = GraphDataset.from_examples([(np.ones((3, 2)), rows)] * 2, [[0, 1, 0]] * 2)
        assert (GraphProblem(PairwiseModel([2], 2), data).forest is not None) == is_one
