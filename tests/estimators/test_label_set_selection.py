"""What MultiLabelClassifier does on its own: independent labels, the choice of C and of pairs."""

from __future__ import annotations

import numpy as np
import pytest
from scipy.sparse import csr_matrix, random_array
from sklearn.linear_model import LogisticRegression
from sklearn.metrics import f1_score

import cliquewise as cw
from cliquewise.errors import CliquewiseError
from cliquewise.estimators.label_set_selection import best_threshold, strongest_pairs


def independent_rows(n: int, n_labels: int, seed: int = 0):
    """Labels that depend on the features alone."""
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(n, 5))
    scores = X @ rng.normal(size=(5, n_labels)) + rng.normal(size=n_labels)
    return X, (rng.random((n, n_labels)) < 1 / (1 + np.exp(-scores))).astype(int)


def topics(n: int, n_labels: int = 20, seed: int = 0):
    """Words of a few topics per row, as shares: sparse, and small numbers."""
    rng = np.random.default_rng(seed)
    Y = (rng.random((n, n_labels)) < 2.0 / n_labels).astype(int)
    words = random_array((n_labels, 200), density=0.1, rng=rng).toarray() + 0.02
    counts = rng.poisson(3.0 * (Y @ words) + 0.05)
    return csr_matrix(counts / np.maximum(np.linalg.norm(counts, axis=1, keepdims=True), 1)), Y


@pytest.mark.parametrize("sparse", [False, True])
def test_independent_labels_equal_logistic_regressions(sparse):
    X, Y = independent_rows(80, 70)
    weights = np.random.default_rng(1).random(80)
    X = csr_matrix(X * (np.abs(X) > 0.7)) if sparse else X
    own = cw.MultiLabelClassifier(C=0.8, label_graph="none", tol=1e-8, n_jobs=1)
    own.fit(X, Y, weights)
    assert own.solver_ == "newton" and own.certificate_.status == "exact"
    assert own.certificate_.gap <= 1e-8 and own.label_graph_ == []
    dense = X.toarray() if sparse else X
    for label in (0, 17, 69):
        # Being on and off share the penalty: twice the C of one vector of weights.
        one = LogisticRegression(C=1.6, tol=1e-10, max_iter=10_000)
        one.fit(dense, Y[:, label], weights)
        np.testing.assert_allclose(own.coef_[label], one.coef_[0], atol=1e-3)
        np.testing.assert_allclose(own.intercept_[label], one.intercept_[0], atol=1e-3)
        expected = one.predict_proba(dense)[:, 1]
        np.testing.assert_allclose(own.predict_proba(X)[:, label], expected, atol=1e-4)
    threads = cw.MultiLabelClassifier(C=0.8, label_graph="none", tol=1e-8, n_jobs=2)
    np.testing.assert_array_equal(threads.fit(X, Y, weights).coef_, own.coef_)


@pytest.mark.parametrize("seed", [0, 1])
def test_independent_labels_get_no_pairs(seed):
    classifier = cw.MultiLabelClassifier().fit(*independent_rows(300, 6, seed))
    assert classifier.label_graph_ == [] and classifier.solver_ == "newton"
    assert "no pairs" in classifier.selection_.description


def test_dependent_labels_get_a_table(tmp_path):
    rng = np.random.default_rng(0)
    X, Y = independent_rows(600, 4)
    Y[:, 3] = np.where(rng.random(600) < 0.1, 1 - Y[:, 1], Y[:, 1])
    names = [[f"label {j}" for j in np.flatnonzero(row)] for row in Y]
    classifier = cw.MultiLabelClassifier().fit(X[:400], names[:400])
    assert classifier.label_graph_ == [("label 1", "label 3")]
    assert "1 pairs change the loss on held-out rows from" in classifier.selection_.description
    assert classifier.table("label 1", "label 3")[1, 1] > 0
    assert classifier.certificate_.status == "exact" and classifier.certificate_.gap <= 1e-3
    words = classifier.selection_.description.split()
    assert float(words[-1]) < float(words[-3]) - 0.1  # "... from 2.1 to 1.7"
    sets = classifier.predict(X[400:], "junction-tree")
    assert sets == classifier.predict(X[400:], "brute-force")  # one by one
    classifier.save(tmp_path / "m.cw")
    again = cw.load(tmp_path / "m.cw")
    for name in ("label_graph_", "calibration_", "threshold_", "C_"):
        assert getattr(again, name) == getattr(classifier, name)
    np.testing.assert_array_equal(again.predict_proba(X), classifier.predict_proba(X))


def test_sparse_features_select_a_weak_penalty_and_find_rare_labels():
    X, Y = topics(900)
    classifier = cw.MultiLabelClassifier().fit(X[:500], Y[:500])
    assert classifier.C_ > 1 and f"C = {classifier.C_:g}" in classifier.selection_.description
    plain = cw.MultiLabelClassifier(C=1.0, label_graph="none").fit(X[:500], Y[:500])
    assert plain.calibration_ == (1.0, 0.0, 1.0) and plain.threshold_ == 0.5
    found = {
        name: f1_score(Y[500:], c.predict(X[500:]), average="micro")
        for name, c in (("auto", classifier), ("plain", plain))
    }
    assert found["auto"] > found["plain"] + 0.1
    at_threshold = classifier.predict_proba(X) > classifier.threshold_
    np.testing.assert_array_equal(classifier.predict(X), at_threshold)


def test_few_rows_select_nothing():
    X, Y = independent_rows(10, 3)
    classifier = cw.MultiLabelClassifier().fit(X, Y)
    assert classifier.C_ == 1.0 and classifier.label_graph_ == []
    assert "10 rows are too few" in classifier.selection_.description


def test_label_graph_accepts_names():
    X, Y = independent_rows(40, 3)
    names = [["abc"[j] for j in np.flatnonzero(row)] for row in Y]
    named = cw.MultiLabelClassifier(C=1.0, label_graph=[("c", "a")]).fit(X, names)
    numbered = cw.MultiLabelClassifier(C=1.0, label_graph=[(0, 2)]).fit(X, names)
    assert named.label_graph_ == [("a", "c")]
    np.testing.assert_array_equal(named.coef_, numbered.coef_)
    with pytest.raises(CliquewiseError, match="'z' is no label; they are a, b, c"):
        cw.MultiLabelClassifier(C=1.0, label_graph=[("a", "z")]).fit(X, names)
    with pytest.raises(CliquewiseError, match="labels have no names here"):
        cw.MultiLabelClassifier(C=1.0, label_graph=[("a", "c")]).fit(X, Y)


def test_candidate_pairs_keep_exact_inference_cheap():
    rng = np.random.default_rng(0)
    common = rng.normal(size=(2000, 1))  # all labels depend on it: every pair seems to gain
    chances = np.full((2000, 12), 0.5)
    Y = (rng.normal(size=(2000, 12)) < common).astype(float)
    pairs = strongest_pairs(Y, chances, np.ones(2000))
    assert 11 < len(pairs) < 66
    unrelated = rng.integers(0, 2, (2000, 12)).astype(float)
    assert len(strongest_pairs(unrelated, chances, np.ones(2000))) == 0


def test_selected_threshold_loses_no_accuracy_beyond_noise():
    rng = np.random.default_rng(0)
    cuts = []
    for n in (200, 5000):
        chances = rng.beta(0.3, 2.0, (n, 10))
        Y = rng.random(chances.shape) < chances
        cuts.append(best_threshold(Y, chances, np.ones(n)))
        wrong, least = (np.mean((chances > c) != Y) for c in (cuts[-1], 0.5))
        assert wrong < 1.03 * least
    assert 0.2 < cuts[0] < cuts[1] < 0.54  # the more rows, the less is noise
