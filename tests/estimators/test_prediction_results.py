"""Results of prediction: best labelings, scores, bounds, flags, and marginals of the model."""

from __future__ import annotations

import warnings
from dataclasses import replace

import numpy as np
import pytest
from sklearn.datasets import make_multilabel_classification
from sklearn.model_selection import cross_val_predict
from sklearn.utils import get_tags

import cliquewise as cw
from cliquewise.data.graphs import GraphDataset
from cliquewise.errors import DataError, InexactWarning, UnsupportedError
from cliquewise.models.pairwise import PairwiseModel


def grid_edges(height: int, width: int) -> np.ndarray:
    nodes = np.arange(height * width).reshape(height, width)
    right = np.stack([nodes[:, :-1].ravel(), nodes[:, 1:].ravel()], axis=1)
    down = np.stack([nodes[:-1].ravel(), nodes[1:].ravel()], axis=1)
    return np.concatenate([right, down])


def fitted_with_weights(data: GraphDataset, model: PairwiseModel, weights) -> cw.GraphLabeler:
    """A labeler whose weights are replaced after training on one node."""
    n = sum(model.cardinalities[:1])
    width = model.n_features
    labeler = cw.GraphLabeler("hinge", pairwise=model.pairwise, intercept=False, tol=1.0)
    labeler.fit([(np.eye(n, width), [(0, 1)])], [np.arange(n)])
    labeler.predictor_ = replace(labeler.predictor_, model=model, weights=weights)
    return labeler


# ---- labelings


def test_predict_never_scores_below_any_method_called_by_name():
    rng = np.random.default_rng(0)
    unproven = 0
    for trial in range(25):
        size, k = int(rng.integers(9, 15)), int(rng.integers(2, 5))
        edges = grid_edges(size, size)
        data = GraphDataset.from_examples([(rng.normal(size=(size * size, k)), edges)])
        model = PairwiseModel([k], k, pairwise="table", intercept=False)
        weights = np.concatenate([np.eye(k).ravel(), rng.normal(size=k * k)])
        labeler = fitted_with_weights(data, model, weights)
        graph = next(labeler.predictor_.graphs(data))
        result = labeler.map(data)[0]
        score = float(graph.score(labeler.predict(data)[0]))
        assert result.score == pytest.approx(score, abs=1e-9)
        assert result.bound >= result.score
        for method in ("trw-s", "expansion", "relaxed", "icm"):
            assert score >= graph.map(method).score - 1e-9, (trial, method)
        unproven += not result.exact
    assert unproven > 0  # the comparison is trivial where every labeling is proven


def test_prediction_without_a_proof_does_not_solve_the_relaxation(monkeypatch):
    from cliquewise.oracles.relaxed import Relaxed

    def refuse(*_, **__):
        raise AssertionError("the relaxation was solved")

    monkeypatch.setattr(Relaxed, "_beliefs", staticmethod(refuse))
    rng = np.random.default_rng(2)
    edges = grid_edges(14, 14)
    signs = rng.choice([-3.0, 3.0], (len(edges), 1))  # frustrated cycles
    data = GraphDataset.from_examples([(rng.normal(size=(196, 3)), edges, signs)])
    model = PairwiseModel([3], 3, 1, pairwise="potts", intercept=False)
    weights = np.concatenate([np.eye(3).ravel(), [1.0]])
    labeler = fitted_with_weights(data, model, weights)
    labeler.predictor_ = replace(labeler.predictor_, relaxed=True)
    result = labeler.map(data)[0]
    assert not result.exact and result.gap > 0


def test_map_results_hold_against_enumeration():
    rng = np.random.default_rng(1)
    X = [(rng.normal(size=(6, 2)), grid_edges(2, 3)) for _ in range(8)]
    y = [rng.integers(0, 3, 6) for _ in X]
    labeler = cw.GraphLabeler(C=2.0, gamma=0.5, tol=1e-2, random_state=0).fit(X, y)
    for x, result in zip(X, labeler.map(X), strict=True):
        best = labeler.graph(x).map("brute-force")
        assert result.exact and result.gap == pytest.approx(0.0, abs=1e-9)
        assert result.score == pytest.approx(best.score * labeler.gamma, abs=1e-9)
        np.testing.assert_array_equal(result.labels, best.labels)


# ---- marginals


def test_default_marginals_are_those_of_the_model_after_relaxed_training():
    rng = np.random.default_rng(0)
    X = [(rng.normal(size=(144, 2)), grid_edges(12, 12))]
    y = [(X[0][0][:, 0] + 0.5 * rng.normal(size=144) > 0).astype(int)]
    labeler = cw.GraphLabeler(C=1.0, solver="idal", tol=1e-2, random_state=0).fit(X, y)
    assert labeler.relaxed_
    result = labeler.marginals(X)[0]
    assert result.exact
    exact = labeler.graph(X[0]).marginals("junction-tree").nodes.flat
    np.testing.assert_allclose(result.probabilities.ravel(), exact, atol=1e-9)
    np.testing.assert_array_equal(labeler.predict_marginals(X)[0], result.probabilities)
    relaxed = labeler.marginals(X, "relaxed")[0]
    assert not relaxed.exact and relaxed.method == "relaxed"
    assert np.abs(relaxed.probabilities - result.probabilities).max() > 1e-3


def test_approximate_marginals_are_flagged_and_warned_about():
    rng = np.random.default_rng(0)
    size = 40
    data = GraphDataset.from_examples([(rng.normal(size=(size**2, 2)), grid_edges(size, size))])
    model = PairwiseModel([2], 2, pairwise="potts", intercept=False)
    labeler = fitted_with_weights(data, model, np.concatenate([np.eye(2).ravel(), [0.3]]))
    labeler.predictor_ = replace(labeler.predictor_, loss="log")
    result = labeler.marginals(data)[0]
    low, high = result.log_z_bounds
    assert not result.exact and low <= result.log_z <= high and high - low < 50.0
    with pytest.warns(InexactWarning, match="1 of 1 examples are approximate"):
        labeler.predict_marginals(data)


def test_marginals_of_structural_svms_need_the_relaxation_by_name():
    X = [(np.eye(2), [(0, 1)])] * 2
    for solver in ("bcfw", "relaxed_lbfgs"):
        labeler = cw.GraphLabeler("hinge", solver=solver, tol=0.5, random_state=0).fit(
            X, [[0, 1]] * 2
        )
        with pytest.raises(UnsupportedError, match="no probabilities"):
            labeler.predict_marginals(X)
        assert labeler.predict_marginals(X, "relaxed")[0].shape == (2, 2)


# ---- unlabeled nodes


def partly_labeled():
    rng = np.random.default_rng(3)
    X = [(rng.normal(size=(5, 2)), [(0, 1), (1, 2), (2, 3), (3, 4)]) for _ in range(12)]
    y = [(x[:, 0] > 0).astype(int) for x, _ in X]
    hidden = [np.arange(5) == i % 5 for i in range(12)]
    return X, y, hidden


def test_all_marks_of_unlabeled_nodes_train_the_same_model():
    X, y, hidden = partly_labeled()
    pairs = list(zip(y, hidden, strict=True))
    forms = {
        "None": ([np.where(b, None, a).tolist() for a, b in pairs], {}),
        "NaN": ([np.where(b, np.nan, a) for a, b in pairs], {}),
        "masked": ([np.ma.array(a, mask=b) for a, b in pairs], {}),
        "-1": ([np.where(b, -1, a) for a, b in pairs], {"ignore_label": -1}),
    }  # fmt: skip
    fitted = {
        name: cw.GraphLabeler(C=1.0, tol=1e-6, **options).fit(X, labels)
        for name, (labels, options) in forms.items()
    }
    for name, labeler in fitted.items():
        assert labeler.classes_ == [0, 1], name
        np.testing.assert_array_equal(labeler.coef_, fitted["None"].coef_)
    subgraphs = GraphDataset.from_examples(X).induced(~np.concatenate(hidden))
    labeled = [a[~b] for a, b in pairs]
    alone = cw.GraphLabeler(C=1.0, tol=1e-6).fit(subgraphs, labeled)
    np.testing.assert_array_equal(alone.coef_, fitted["None"].coef_)
    right = [np.mean(p[~h] == a[~h]) for p, a, h in zip(alone.predict(X), y, hidden, strict=True)]
    assert fitted["None"].score(X, forms["None"][0]) == pytest.approx(np.mean(right))


def test_minus_one_without_ignore_label_is_never_silently_a_class():
    X, y, hidden = partly_labeled()
    labels = [np.where(h, -1, a) for a, h in zip(y, hidden, strict=True)]
    with pytest.warns(UserWarning, match="ignore_label=-1"):
        labeler = cw.GraphLabeler().fit(X, labels)
    assert labeler.classes_ == [-1, 0, 1]
    with warnings.catch_warnings():
        warnings.simplefilter("error")  # -1 and 1 are common classes
        cw.GraphLabeler().fit(X, [2 * a - 1 for a in y])


def test_weights_of_unlabeled_nodes_are_ignored():
    X, y, hidden = partly_labeled()
    labels = [np.ma.array(a, mask=h) for a, h in zip(y, hidden, strict=True)]
    options = {"loss": "hinge", "C": 1.0, "random_state": 0}
    ones = [np.ones(5) for _ in y]
    large = [np.where(h, 100.0, 1.0) for h in hidden]
    one = cw.GraphLabeler(**options).fit(X, labels, node_weight=ones)
    two = cw.GraphLabeler(**options).fit(X, labels, node_weight=large)
    np.testing.assert_array_equal(one.coef_, two.coef_)
    with pytest.raises(DataError, match="node_weight"):
        cw.GraphLabeler(**options).fit(X, labels, node_weight=ones[:3])


# ---- label sets and matchings


def label_sets(n=120):
    X, Y = make_multilabel_classification(n, 6, n_classes=4, random_state=0)
    return (X - X.mean(axis=0)) / X.std(axis=0), Y


@pytest.mark.parametrize("graph", ["none", "tree"])
def test_label_set_results_hold_against_enumeration(graph):
    X, Y = label_sets(40)
    classifier = cw.MultiLabelClassifier(C=1.0, label_graph=graph, gamma=0.7).fit(X, Y)
    best, found = classifier.map(X), classifier.marginals(X)
    assert best.exact.all() and found.exact.all()
    np.testing.assert_array_equal(best.labels, classifier.predict(X, "junction-tree"))
    by_row, brute = classifier.map(X, "brute-force"), classifier.marginals(X, "brute-force")
    np.testing.assert_allclose(best.score, by_row.score, atol=1e-9)
    np.testing.assert_allclose(best.bound, by_row.score, atol=1e-9)
    np.testing.assert_allclose(found.probabilities, brute.probabilities, atol=1e-9)
    np.testing.assert_allclose(found.log_z, brute.log_z, atol=1e-9)


def test_relaxed_probabilities_of_label_sets_are_flagged():
    X, Y = label_sets(30)
    classifier = cw.MultiLabelClassifier(
        "hinge", C=0.1, label_graph="complete", tol=0.2, random_state=0
    ).fit(X, Y)
    with pytest.warns(InexactWarning, match="30 of 30"):
        p = classifier.predict_proba(X)
    result = classifier.marginals(X)
    assert result.method == "relaxed" and not result.exact.any()
    np.testing.assert_array_equal(result.probabilities, p)


def test_matchings_have_scores_and_proofs():
    rng = np.random.default_rng(0)
    X = [rng.normal(size=(3, 4, 2)) for _ in range(6)]
    y = [np.argmax(x[..., 0], axis=1) for x in X]
    y = [np.where(np.bincount(c, minlength=4)[c] > 1, -1, c) for c in y]
    matcher = cw.Matcher(C=1.0, tol=0.1, random_state=0).fit(X, y)
    for result, columns, scores in zip(
        matcher.map(X), matcher.predict(X), matcher.decision_function(X), strict=True
    ):
        np.testing.assert_array_equal(result.labels, columns)
        chosen = [scores[i, j] for i, j in enumerate(columns) if j >= 0]
        assert result.score == pytest.approx(sum(chosen))
        assert result.exact and result.bound == result.score


# ---- conventions of scikit-learn for label sets


@pytest.mark.parametrize("method", ["predict_proba", "decision_function", "predict"])
def test_cross_val_predict_works_on_label_sets(method):
    X, Y = label_sets()
    classifier = cw.MultiLabelClassifier(C=1.0, label_graph="none")
    found = cross_val_predict(classifier, X, Y, cv=3, method=method)
    assert found.shape == Y.shape


def test_coefficients_of_label_sets_have_the_shape_of_scikit_learn():
    X, Y = label_sets()
    classifier = cw.MultiLabelClassifier(C=1.0, label_graph="none").fit(X, Y)
    assert classifier.coef_.shape == (4, 6) and classifier.intercept_.shape == (4,)
    scores = X @ classifier.coef_.T + classifier.intercept_
    np.testing.assert_allclose(classifier.decision_function(X), scores, atol=1e-8)
    np.testing.assert_array_equal(classifier.classes_, np.arange(4))
    tags = get_tags(classifier)
    assert tags.classifier_tags.multi_label and not tags.classifier_tags.multi_class


def test_decisions_of_structural_svms_have_the_sign_of_their_predictions():
    X, Y = label_sets(40)
    classifier = cw.MultiLabelClassifier("hinge", C=0.3, label_graph="tree", tol=0.2).fit(X, Y)
    decision = classifier.decision_function(X)
    np.testing.assert_array_equal(decision > 0, classifier.predict(X) == 1)


# ---- calibration


def test_calibration_is_off_unless_requested_and_named():
    X, Y = label_sets(600)
    plain = cw.MultiLabelClassifier(random_state=0).fit(X, Y)
    assert plain.calibration_ == (1.0, 0.0, 1.0)
    p = plain.predict_proba(X)
    odds = plain.threshold_ / (1 - plain.threshold_)
    z = plain.decision_function(X) + np.log(odds)
    np.testing.assert_allclose(p, 1 / (1 + np.exp(-z)), atol=1e-9)
    calibrated = cw.MultiLabelClassifier(calibrate=True, random_state=0).fit(X, Y)
    assert calibrated.calibration_ != (1.0, 0.0, 1.0)
    np.testing.assert_array_equal(plain.weights_, calibrated.weights_)
    assert plain.certificate_ == calibrated.certificate_  # of the weights, not the calibration
