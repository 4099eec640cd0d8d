"""MulticlassClassifier: the optimum of its regression, classes of all types, files."""

from __future__ import annotations

import pickle

import numpy as np
import pytest
from scipy.sparse import csr_matrix
from sklearn.datasets import load_iris, make_classification
from sklearn.linear_model import LogisticRegression

import cliquewise as cw
from cliquewise import MulticlassClassifier
from cliquewise.errors import DataError


@pytest.fixture(scope="module")
def data():
    return make_classification(
        120, 6, n_informative=4, n_classes=3, random_state=0, n_clusters_per_class=1
    )


@pytest.mark.parametrize("solver", ["sdca", "lbfgs"])
def test_optimum_matches_logistic_regression(data, solver):
    """With the intercept as one more feature, since ours is regularized, too."""
    X, y = data
    ours = MulticlassClassifier(C=0.5, tol=1e-9, solver=solver, max_epochs=5000).fit(X, y)
    theirs = LogisticRegression(C=0.5, fit_intercept=False, tol=1e-10, max_iter=10_000)
    theirs.fit(np.column_stack([X, np.ones(len(X))]), y)
    np.testing.assert_allclose(ours.coef_, theirs.coef_[:, :-1], atol=1e-3)
    np.testing.assert_allclose(ours.intercept_, theirs.coef_[:, -1], atol=1e-3)


def test_decision_function_of_two_classes_is_one_dimensional():
    X, y = load_iris(return_X_y=True)
    model = MulticlassClassifier(random_state=0).fit(X[:100], y[:100])
    margin = model.decision_function(X[:100])
    assert margin.shape == (100,)
    np.testing.assert_allclose(model.predict_proba(X[:100])[:, 1], 1 / (1 + np.exp(-margin)))


def test_probabilities_match_the_scores(data):
    X, y = data
    model = MulticlassClassifier(random_state=0).fit(X, y)
    scores = model.decision_function(X)
    np.testing.assert_allclose(scores, X @ model.coef_.T + model.intercept_, atol=1e-12)
    expected = np.exp(scores) / np.exp(scores).sum(axis=1, keepdims=True)
    np.testing.assert_allclose(model.predict_proba(X), expected, atol=1e-10)
    np.testing.assert_allclose(model.predict_log_proba(X), np.log(expected), atol=1e-10)


def test_sparse_and_dense_matrices_give_the_same_model(data):
    X, y = data
    dense = MulticlassClassifier(tol=1e-8, random_state=0).fit(X, y)
    sparse = MulticlassClassifier(tol=1e-8, random_state=0).fit(csr_matrix(X), y)
    np.testing.assert_allclose(dense.coef_, sparse.coef_, atol=1e-3)


@pytest.mark.parametrize("names", [["a", "b", "ü ç"], [3, 5, 7], [1.0, 2.0, 3.0]])
def test_saving_keeps_classes_and_probabilities(data, names, tmp_path):
    X, y = data
    model = MulticlassClassifier(random_state=0).fit(X, np.array(names)[y])
    model.save(tmp_path / "m.cw")
    for copy in (cw.load(tmp_path / "m.cw"), pickle.loads(pickle.dumps(model))):
        assert copy.classes_.tolist() == names
        np.testing.assert_array_equal(copy.predict_proba(X), model.predict_proba(X))
        np.testing.assert_array_equal(copy.predict(X), model.predict(X))
        assert copy.certificate_ == model.certificate_ and copy.n_features_in_ == 6


def test_class_weights_equal_sample_weights():
    X, y = load_iris(return_X_y=True)
    by_class = MulticlassClassifier(class_weight={0: 2.0}, tol=1e-8).fit(X, y)
    by_example = MulticlassClassifier(tol=1e-8).fit(X, y, np.where(y == 0, 2.0, 1.0))
    np.testing.assert_allclose(by_class.coef_, by_example.coef_, atol=1e-2)


def test_class_weights_are_keyed_by_class_name():
    X, y = load_iris(return_X_y=True)
    names = np.array(["a", "b", "c"])[y]
    by_name = MulticlassClassifier(class_weight={"a": 2.0}, random_state=0).fit(X, names)
    by_number = MulticlassClassifier(class_weight={0: 2.0}, random_state=0).fit(X, y)
    np.testing.assert_array_equal(by_name.coef_, by_number.coef_)


def test_object_arrays_may_hold_numbers_but_not_text():
    words = np.array([["a", 1.0], ["b", 2.0]], dtype=object)
    with pytest.raises(DataError, match=r"X must be numbers .*'a'.*OneHotEncoder"):
        MulticlassClassifier().fit(words, [0, 1])
    numbers = np.array([[0, 1.0], [1, 2.0]], dtype=object)
    assert MulticlassClassifier().fit(numbers, list("ab")).predict(numbers).tolist() == ["a", "b"]


def test_hinge_loss_is_the_crammer_singer_svm(data, tmp_path):
    from sklearn.svm import LinearSVC

    X, y = data
    ours = MulticlassClassifier(
        loss="hinge", C=0.5, tol=1e-5, max_epochs=5000, intercept=False, random_state=0
    ).fit(X, y)
    theirs = LinearSVC(
        C=0.5, multi_class="crammer_singer", fit_intercept=False, tol=1e-9, max_iter=100_000
    ).fit(X, y)
    np.testing.assert_allclose(ours.coef_, theirs.coef_, atol=1e-2)
    assert ours.certificate_.gap <= 1e-5
    assert not hasattr(ours, "predict_proba")
    ours.save(tmp_path / "m.cw")
    np.testing.assert_array_equal(cw.load(tmp_path / "m.cw").predict(X), ours.predict(X))
    ours.report(X, y, tmp_path / "r.html")


def test_probabilities_of_the_hinge_loss_are_refused_with_the_remedy(data):
    X, y = data
    with pytest.raises(AttributeError):
        MulticlassClassifier(loss="hinge", random_state=0).fit(X, y).predict_proba(X)
