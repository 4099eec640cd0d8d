"""Weights of examples on graphs: a weight of two is the example twice, a weight of zero is none."""

from __future__ import annotations

import numpy as np
import pytest

import cliquewise as cw
from cliquewise.data.graphs import GraphDataset
from cliquewise.errors import DataError
from cliquewise.models.pairwise import PairwiseModel
from cliquewise.problems.graph import GraphProblem
from cliquewise.solvers.planner import choose
from cliquewise.solvers.run import run

WEIGHTS = np.array([2.0, 1.0, 0.0, 3.0])


def rings(seed: int, edge_features: bool):
    rng = np.random.default_rng(seed)
    ring = [(0, 1), (1, 2), (2, 3), (0, 3)]
    y = [rng.integers(0, 2, 4) for _ in WEIGHTS]
    X = []
    for labels in y:
        x = np.eye(2)[labels] + rng.normal(size=(4, 2))
        X.append((x, ring, rng.normal(size=(4, 1))) if edge_features else (x, ring))
    return X, y


def problems(loss: str, entropy: str, edge_features: bool):
    """The weighted problem, and the one in which examples are repeated."""
    X, y = rings(1, edge_features)
    times = np.repeat(np.arange(len(X)), WEIGHTS.astype(int))
    model = PairwiseModel([2], 2, int(edge_features))
    given = {"C": 0.4, "loss": loss, "gamma": 0.7, "entropy": entropy}
    one = GraphProblem(model, GraphDataset.from_examples(X, y), weights=WEIGHTS, **given)
    many = GraphDataset.from_examples([X[i] for i in times], [y[i] for i in times])
    return one, GraphProblem(model, many, **given)


CASES = [
    ("idal", "log", "gini"),
    ("idal", "log", "gini-otrw"),
    ("idal", "softmax_margin", "gini"),
    ("lbfgs", "log", "gini"),
    ("sdca", "log", "gini"),
    ("sdca", "softmax_margin", "gini"),
    ("bcfw", "hinge", "gini"),
]


@pytest.mark.parametrize("edge_features", [False, True])
@pytest.mark.parametrize(("solver", "loss", "entropy"), CASES)
def test_a_weight_is_a_number_of_copies(solver, loss, entropy, edge_features):
    totals, weights = [], []
    for problem in problems(loss, entropy, edge_features):
        fit = run(
            problem, choose(problem, solver).solver, tol=1e-6, max_epochs=3000, random_state=0
        )
        assert fit.certificate.gap <= 1e-5
        # Values are per example: the totals are what agrees.
        totals.append(fit.certificate.primal * problem.n_examples)
        assert fit.certificate.dual * problem.n_examples <= totals[0] + 1e-9
        weights.append(fit.weights)
    assert totals[0] == pytest.approx(totals[1], rel=2e-5)
    np.testing.assert_allclose(weights[0], weights[1], atol=2e-2)


def test_subgradient_steps_count_weights_too():
    values = []
    for problem in problems("hinge", "gini", False):
        fit = run(
            problem,
            choose(problem, "subgradient").solver,
            tol=1e-2,
            max_epochs=1000,
            random_state=0,
        )
        assert fit.converged
        values.append(fit.certificate.primal * problem.n_examples)
    assert values[0] == pytest.approx(values[1], rel=2e-2)


def test_exact_values_and_gradients_of_weighted_problems_are_sums_over_copies():
    one, many = problems("softmax_margin", "gini", True)
    w = np.random.default_rng(0).normal(size=one.dimension)
    a, b = one.primal_and_gradient(w), many.primal_and_gradient(w)
    assert a[0] * one.n_examples == pytest.approx(b[0] * many.n_examples)
    np.testing.assert_allclose(a[1] * one.n_examples, b[1] * many.n_examples, atol=1e-9)


@pytest.mark.parametrize("weights", [[1.0], [1, 1, 1, -1], [1, 1, 1, np.nan]])
def test_weights_that_make_no_sense_are_rejected(weights):
    X, y = rings(1, False)
    with pytest.raises(DataError, match="weights"):
        GraphProblem(PairwiseModel([2], 2), GraphDataset.from_examples(X, y), weights=weights)


def test_estimators_take_sample_weight_and_class_weight():
    X, y = rings(2, False)
    times = np.repeat(np.arange(len(X)), WEIGHTS.astype(int))
    options = {"C": 0.5, "tol": 1e-6, "random_state": 0}
    weighted = cw.GraphLabeler(**options).fit(X, y, sample_weight=WEIGHTS)
    copies = cw.GraphLabeler(**options).fit([X[i] for i in times], [y[i] for i in times])
    np.testing.assert_allclose(weighted.coef_, copies.coef_, atol=2e-2)
    # The mean class weight of an example's nodes is its weight.
    rare = {0: 1.0, 1: 5.0}
    by_class = cw.GraphLabeler(class_weight=rare, **options).fit(X, y)
    means = [1.0 + 4.0 * np.mean(labels) for labels in y]
    by_example = cw.GraphLabeler(**options).fit(X, y, sample_weight=means)
    np.testing.assert_array_equal(by_class.coef_, by_example.coef_)
    with pytest.raises(DataError, match="sample_weight"):
        cw.GraphLabeler().fit(X, y, sample_weight=[1.0])


def test_rows_of_a_multilabel_table_have_weights():
    rng = np.random.default_rng(0)
    X = rng.normal(size=(30, 2))
    Y = (X[:, [0, 0, 1]] + rng.normal(size=(30, 3)) > 0).astype(int)
    count = rng.integers(0, 3, 30)
    options = {"C": 0.5, "tol": 1e-6, "random_state": 0}
    weighted = cw.MultiLabelClassifier(**options).fit(X, Y, sample_weight=count)
    copies = cw.MultiLabelClassifier(**options).fit(
        np.repeat(X, count, axis=0), np.repeat(Y, count, axis=0)
    )
    np.testing.assert_allclose(weighted.coef_, copies.coef_, atol=2e-2)
