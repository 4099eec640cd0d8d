"""Intercepts without a penalty: the optimum, and a lower bound that holds at any weights."""

from __future__ import annotations

import numpy as np
import pytest
from scipy.optimize import approx_fprime, minimize
from sklearn.linear_model import LogisticRegression

import cliquewise as cw
from cliquewise.errors import UnsupportedError
from cliquewise.problems.label_graph import LabelGraphProblem, LabelsProblem
from cliquewise.solvers.run import run

PAIRS = np.array([[0, 1], [1, 2]])


def random_problem(seed, kind, loss="log", gamma=1.0, pairwise="table"):
    rng = np.random.default_rng(seed)
    n, d = int(rng.integers(8, 30)), 3
    X = rng.normal(size=(n, d)) * 10.0 ** rng.uniform(-1, 1, d) + rng.normal(size=d)
    rates = rng.choice([0.1, 0.5, 0.9], 3)
    Y = (rng.random((n, 3)) < rates).astype(int)
    C = 10.0 ** rng.uniform(-3, 2)
    weights = rng.choice([0.5, 1.0, 2.0], n)
    pairs = PAIRS if kind is LabelGraphProblem else np.empty((0, 2), int)
    return kind(X, Y, pairs, C, loss, gamma, True, pairwise, weights, penalize_intercept=False)


def optimum(problem):
    scale = 1.0 / problem.primal(np.zeros(problem.dimension))
    found = minimize(
        lambda w: tuple(scale * part for part in problem.primal_and_gradient(w)),
        np.zeros(problem.dimension), jac=True, method="L-BFGS-B",
        options={"maxiter": 20_000, "maxfun": 40_000, "ftol": 1e-15, "gtol": 1e-10},
    )  # fmt: skip
    return found.fun / scale, found.x


@pytest.mark.parametrize("kind", [LabelsProblem, LabelGraphProblem])
@pytest.mark.parametrize(("loss", "gamma"), [("log", 1.0), ("log", 0.3), ("softmax_margin", 0.7)])
def test_dual_is_below_the_optimum_at_any_weights(kind, loss, gamma):
    for seed in range(12):
        problem = random_problem(seed, kind, loss, gamma, ("table", "co-occurrence")[seed % 2])
        best, w = optimum(problem)
        rng = np.random.default_rng(seed)
        for size in (0.0, 1e-6, 1e-3, 0.1, 1.0, 10.0):
            certificate = problem.certificate(w + size * rng.normal(size=len(w)))
            assert certificate.dual <= best + 1e-12, (seed, size)
            assert certificate.primal >= best - 1e-7 * abs(best)
        assert problem.certificate(w).gap < 1e-3  # tight at the optimum


@pytest.mark.parametrize("kind", [LabelsProblem, LabelGraphProblem])
def test_gradient_without_penalty_on_intercepts_matches_finite_differences(kind):
    problem = random_problem(3, kind)
    w = np.random.default_rng(0).normal(size=problem.dimension)
    # weights of a label being on and off come in opposite pairs
    V, tables = problem.unpack(w)
    w = 0.5 * problem.pack(V, 2 * tables)
    _, gradient = problem.primal_and_gradient(w)
    found = approx_fprime(w, problem.primal, 1e-6)
    np.testing.assert_allclose(gradient, found, atol=1e-4 * np.abs(found).max())


@pytest.mark.parametrize("C", [1e-3, 1.0, 100.0])
def test_label_sets_without_pairs_are_the_logistic_regressions_of_scikit_learn(C):
    rng = np.random.default_rng(0)
    X = rng.normal(size=(400, 4))
    logits = X[:, :3] + [4.0, -2.0, 0.0]
    Y = (rng.random((400, 3)) < 1 / (1 + np.exp(-logits))).astype(int)
    ours = cw.MultiLabelClassifier(C=C, label_graph="none", tol=1e-8).fit(X, Y)
    assert not ours.intercept_is_penalized_ and ours.certificate_.gap <= 1e-8
    for label in range(3):
        theirs = LogisticRegression(C=2 * C, tol=1e-10, max_iter=10_000).fit(X, Y[:, label])
        np.testing.assert_allclose(ours.coef_[label], theirs.coef_[0], atol=1e-4)
        np.testing.assert_allclose(ours.intercept_[label], theirs.intercept_[0], atol=1e-4)


def test_strong_penalties_keep_the_base_rate():
    rng = np.random.default_rng(0)
    X, Y = rng.normal(size=(1000, 3)), np.zeros((1000, 1), dtype=int)
    Y[:990] = 1
    free = cw.MultiLabelClassifier(C=1e-3, label_graph="none", tol=1e-6).fit(X, Y)
    assert free.predict_proba(X).mean() == pytest.approx(0.99, abs=2e-3)
    penalized = cw.MultiLabelClassifier(
        C=1e-3, label_graph="none", penalize_intercept=True, tol=1e-6
    ).fit(X, Y)
    assert penalized.intercept_is_penalized_ and penalized.predict_proba(X).mean() < 0.8


def test_labels_that_never_vary_keep_a_finite_intercept():
    rng = np.random.default_rng(0)
    X, Y = rng.normal(size=(50, 2)), np.tile([1, 0, 1], (50, 1))
    Y[::2, 2] = 0
    for graph in ("none", [(0, 2), (1, 2)]):
        fitted = cw.MultiLabelClassifier(C=1.0, label_graph=graph, tol=1e-6).fit(X, Y)
        assert fitted.certificate_.gap <= 1e-6 and np.abs(fitted.intercept_).max() < 20


def test_newton_and_lbfgs_reach_the_same_optimum():
    problem = random_problem(5, LabelsProblem)
    graph = random_problem(5, LabelGraphProblem)
    graph = LabelGraphProblem(
        problem.X, problem.Y, [], problem.C, weights=problem.weights, penalize_intercept=False
    )
    one = run(problem, cw.solvers.Newton(), tol=1e-8, max_epochs=500)
    two = run(graph, cw.solvers.LBFGS(), tol=1e-7, max_epochs=2000)
    assert one.certificate.gap <= 1e-8
    assert two.certificate.primal == pytest.approx(one.certificate.primal, rel=1e-6)
    assert two.certificate.dual <= one.certificate.primal


def test_free_intercepts_with_an_l1_penalty_are_rejected():
    rng = np.random.default_rng(0)
    X, Y = rng.normal(size=(20, 2)), rng.integers(0, 2, (20, 2))
    assert cw.MultiLabelClassifier(C=1.0, l1_ratio=0.5).fit(X, Y).intercept_is_penalized_
    with pytest.raises(UnsupportedError, match="penalize_intercept=False"):
        cw.MultiLabelClassifier(C=1.0, l1_ratio=0.5, penalize_intercept=False).fit(X, Y)
    with pytest.raises(UnsupportedError, match="penalize_intercept=False"):
        cw.MultiLabelClassifier("hinge", C=1.0, label_graph="tree", penalize_intercept=False).fit(
            X, Y
        )
