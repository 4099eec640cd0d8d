"""MultiLabelClassifier: learning dependent labels, prediction, files, bad input."""

from __future__ import annotations

import warnings
from itertools import product

import numpy as np
import pytest
from scipy.sparse import csr_matrix
from scipy.special import logsumexp

import cliquewise as cw
from cliquewise.data.label_sets import LabelSets
from cliquewise.errors import CliquewiseError
from cliquewise.models.label_sets import label_pairs, mutual_information


def rows(n: int, seed: int = 0):
    """Label 1 follows the features; label 2 is its copy, label 3 its opposite; 0 never comes."""
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(n, 3))
    y = (X[:, 0] + 0.3 * rng.normal(size=n) > 0).astype(int)
    return X, np.stack([0 * y, y, y, 1 - y], axis=1)


@pytest.mark.parametrize("loss", ["log", "softmax_margin", "hinge"])
def test_dependent_labels_are_predicted_together(loss):
    X, Y = rows(100)
    tol = 3e-2 if loss == "hinge" else 1e-3
    classifier = cw.MultiLabelClassifier(loss, C=1.0, tol=tol, random_state=0).fit(X, Y)
    assert classifier.certificate_.gap <= tol
    assert classifier.certificate_.status == ("bound" if loss == "hinge" else "exact")
    each = classifier.predict(rows(60, 1)[0])  # label by label
    assert np.mean(each[:, 1] == each[:, 2]) > 0.9
    found = each if loss == "hinge" else classifier.predict(rows(60, 1)[0], "junction-tree")
    assert np.mean(found[:, 1] == found[:, 2]) > 0.97
    assert np.mean(found[:, 1] != found[:, 3]) > 0.97
    assert not found[:, 0].any()
    assert classifier.score(*rows(60, 1)) > 0.8


def test_relaxed_training_is_close_to_exact_training():
    X, Y = rows(40)
    options = {"C": 0.5, "label_graph": "complete", "random_state": 0}
    relaxed = cw.MultiLabelClassifier(**options).fit(X, Y)
    assert relaxed.certificate_.status == "bound" and relaxed.solver_ == "idal"
    exact = cw.MultiLabelClassifier(solver="lbfgs", **options).fit(X, Y)
    also = cw.MultiLabelClassifier(solver="sdca", **options).fit(X, Y)
    assert exact.certificate_.status == "exact"
    assert also.certificate_.primal == pytest.approx(exact.certificate_.primal, rel=2e-3)
    agree = relaxed.predict(X) == exact.predict(X)
    assert agree.mean() > 0.9
    p = exact.predict_proba(X)
    assert p.shape == (40, 4) and p.min() >= 0 and p.max() <= 1


def test_methods_of_prediction_agree_where_all_are_exact():
    X, Y = rows(30)
    classifier = cw.MultiLabelClassifier(label_graph="complete", random_state=0).fit(X, Y)
    exact = classifier.predict(X, "junction-tree")
    assert np.array_equal(exact, classifier.predict(X, "brute-force"))
    assert np.mean(exact == classifier.predict(X, "relaxed")) > 0.9


def test_labels_without_a_label_graph_are_independent():
    X, Y = rows(50)
    both = cw.MultiLabelClassifier(label_graph="none", tol=1e-6, random_state=0).fit(X, Y)
    alone = cw.MultiLabelClassifier(label_graph="none", tol=1e-6, random_state=0).fit(X, Y[:, [1]])
    np.testing.assert_allclose(both.unary(1), alone.unary(0), atol=1e-2)


def test_a_given_label_graph_has_tables_for_its_pairs_only():
    X, Y = rows(30)
    classifier = cw.MultiLabelClassifier(label_graph=[(3, 1)], random_state=0).fit(X, Y)
    np.testing.assert_array_equal(classifier.table(3, 1), classifier.table(1, 3).T)
    with pytest.raises(CliquewiseError, match="no table"):
        classifier.table(0, 1)


def test_sparse_input_and_a_saved_model_give_the_same_answers(tmp_path):
    X, Y = rows(30)
    one = cw.MultiLabelClassifier(random_state=0).fit(X, Y)
    two = cw.MultiLabelClassifier(random_state=0).fit(csr_matrix(X), csr_matrix(Y))
    assert np.array_equal(one.coef_, two.coef_)
    one.save(tmp_path / "m.cw")
    assert np.array_equal(cw.load(tmp_path / "m.cw").predict(X), one.predict(X))


def test_co_occurrence_learns_the_same_dependence_by_every_solver():
    X, Y = rows(60)
    found = {}
    for solver in ("gdmm", "idal", cw.solvers.GDMM("bcfw")):
        classifier = cw.MultiLabelClassifier(
            "hinge", C=0.3, pairs="co-occurrence", solver=solver, tol=1e-2, random_state=0
        )
        classifier.fit(X, Y)
        found[str(solver)] = classifier
        assert not classifier.table(1, 2)[0].any() and not classifier.table(1, 2)[1, 0]
        assert np.mean(classifier.predict(X)[:, 1] == classifier.predict(X)[:, 2]) > 0.97
    assert [c.solver_ for c in found.values()] == ["gdmm", "idal", "gdmm"]
    values = [c.certificate_.primal for c in found.values()]
    assert max(values) <= 1.02 * min(values)
    weights = [c.table(1, 3)[1, 1] for c in found.values()]
    assert max(weights) < 0 and np.ptp(weights) < 0.1


def test_sparse_beliefs_are_those_of_the_listed_pairs(tmp_path):
    X, Y = rows(40)
    classifier = cw.MultiLabelClassifier(
        "hinge", C=0.3, pairs="co-occurrence", solver="gdmm", tol=1e-2, random_state=0
    ).fit(X, Y)
    classifier.save(tmp_path / "m.cw")
    again = cw.load(tmp_path / "m.cw")
    assert np.array_equal(again.predict(X), classifier.predict(X))
    exact = classifier.predict(X, "junction-tree")
    assert np.mean(exact == classifier.predict(X)) > 0.95


def test_gdmm_trains_hundreds_of_labels_without_listing_pairs():
    rng = np.random.default_rng(0)
    topic = rng.integers(0, 100, 40)
    X = csr_matrix((np.ones(40), (np.arange(40), topic)), shape=(40, 100))
    Y = np.zeros((40, 300), dtype=int)
    Y[np.arange(40), topic] = Y[np.arange(40), 100 + topic] = 1  # twins; 200 labels hardly come
    classifier = cw.MultiLabelClassifier(
        "hinge", C=2.0, pairs="co-occurrence", solver="gdmm", tol=0.2, random_state=0
    ).fit(X, Y)
    assert classifier.certificate_.gap <= 0.2
    assert np.mean(classifier.predict(X) == Y) > 0.999
    visited = classifier.trace_.oracle_calls[-1] / (40 * classifier.n_iter_)
    assert visited < 0.05 * 300 * 299 / 2


def test_one_label_and_one_row_work():
    classifier = cw.MultiLabelClassifier(random_state=0).fit([[1.0]], [[1]])
    assert classifier.predict([[1.0]]).tolist() == [[1]]
    assert classifier.predict([[1.0], [2.0]]).shape == (2, 1)


X2, Y2 = [[0.0], [1.0]], [[0, 1], [1, 0]]
BAD = {
    "NaN": ([[0.0], [np.nan]], Y2, {}, "contains NaN"),
    "flat Y": (X2, [0, 1], {}, r"of shape \(2,\)"),
    "other values": (X2, [[0, 2], [1, 0]], {}, "only 0 and 1"),
    "strings": (X2, np.array([["0", "1"], ["1", "0"]]), {}, "only 0 and 1"),
    "unequal rows": (X2, [[0, 1]], {}, "X has 2 rows and y has 1"),
    "pair out of range": (X2, Y2, {"label_graph": [(0, 2)]}, "out of 0..1"),
    "self pair": (X2, Y2, {"label_graph": [(1, 1)]}, "different labels"),
    "pair twice": (X2, Y2, {"label_graph": [(0, 1), (1, 0)]}, "a pair twice"),
    "unknown graph": (X2, Y2, {"label_graph": "star"}, "not 'star'"),
    "negative C": (X2, Y2, {"C": -1.0}, "C must be a number"),
    "unknown pairs": (X2, Y2, {"pairs": "both"}, "not 'both'"),
}


@pytest.mark.parametrize("name", BAD)
def test_bad_input_is_a_clear_error(name):
    X, Y, params, words = BAD[name]
    with pytest.raises(ValueError, match=words):
        cw.MultiLabelClassifier(random_state=0, **params).fit(X, Y)


def test_label_tree_maximizes_mutual_information():
    rng = np.random.default_rng(0)
    first = rng.integers(0, 2, 400)
    flipped = [np.where(rng.random(400) < p, 1 - first, first) for p in (0.05, 0.2)]
    Y = np.stack([first, flipped[0], flipped[1], rng.integers(0, 2, 400)], axis=1)
    tree = label_pairs(4, "tree", Y)
    assert len(tree) == 3
    assert {(0, 1), (0, 2)} <= set(map(tuple, tree.tolist()))
    assert label_pairs(4, 1, Y).tolist() == [[0, 1]]
    assert len(label_pairs(4, 99, Y)) == 6
    assert len(label_pairs(4, 0, Y)) == 0


def test_mutual_information_matches_scikit_learn():
    from sklearn.metrics import mutual_info_score

    rng = np.random.default_rng(1)
    Y = (rng.random((50, 5)) < [0.0, 0.1, 0.5, 0.9, 1.0]).astype(float)
    ours = mutual_information(Y)
    for i in range(5):
        for j in range(5):
            assert ours[i, j] == pytest.approx(mutual_info_score(Y[:, i], Y[:, j]), abs=1e-12)


@pytest.mark.parametrize("graph", ["tree", 2])
def test_sparse_label_graphs_train_predict_save_and_load(graph, tmp_path):
    X, Y = rows(60)
    classifier = cw.MultiLabelClassifier(label_graph=graph, random_state=0).fit(X, Y)
    assert classifier.certificate_.gap <= 1e-3
    classifier.save(tmp_path / "m.cw")
    assert np.array_equal(cw.load(tmp_path / "m.cw").predict(X), classifier.predict(X))
    classifier.max_memory = 1e-5  # a few rows at a time
    assert np.mean(classifier.predict(X) == cw.load(tmp_path / "m.cw").predict(X)) > 0.99
    assert classifier.predict_proba(X).shape == Y.shape


@pytest.mark.parametrize("graph", ["no such", -1, 0.5])
def test_invalid_label_graphs_raise_an_error(graph):
    with pytest.raises(CliquewiseError, match="label_graph"):
        cw.MultiLabelClassifier(label_graph=graph).fit(*rows(20))


def test_complete_graph_over_hundreds_of_labels_raises_an_error_with_a_remedy():
    X, Y = np.zeros((5000, 1)), np.zeros((5000, 300), dtype=int)
    with pytest.raises(CliquewiseError, match=r'44850 pairs.*GiB.*label_graph="tree"'):
        cw.MultiLabelClassifier(C=1.0, label_graph="complete").fit(X, Y)


NAMES = ["calm", "happy", "quiet", "sad"]


def named(Y, kind=list):
    return [kind(NAMES[i] for i in np.flatnonzero(row)) for row in Y]


def test_lists_of_names_equal_a_matrix_with_sorted_columns(tmp_path):
    X, Y = rows(40)
    Y[0, 0] = 1  # every name occurs
    options = {"C": 0.5, "label_graph": "complete", "random_state": 0}
    by_matrix = cw.MultiLabelClassifier(**options).fit(X, Y)
    by_names = cw.MultiLabelClassifier(**options).fit(X, named(Y))
    np.testing.assert_array_equal(by_names.coef_, by_matrix.coef_)
    assert by_names.label_names_ == NAMES and by_matrix.label_names_ is None
    assert by_names.predict(X) == named(by_matrix.predict(X))
    assert by_names.score(X, named(Y, set)) == by_matrix.score(X, Y) == by_names.score(X, Y)
    np.testing.assert_array_equal(by_names.table("sad", "happy"), by_matrix.table(3, 1))
    np.testing.assert_array_equal(by_names.unary("happy"), by_matrix.unary(1))
    by_names.save(tmp_path / "m.cw")
    again = cw.load(tmp_path / "m.cw")
    assert again.predict(X) == by_names.predict(X) and again.label_names_ == NAMES
    with pytest.raises(CliquewiseError, match="'angry' is no label; they are calm, happy"):
        by_names.table("angry", "sad")
    with pytest.raises(CliquewiseError, match="labels have no names here"):
        by_matrix.unary("sad")
    assert by_names.score(X[:1], [["angry"]]) == 0.0  # a name never seen is only wrong


@pytest.mark.parametrize("form", ["sets", "tuples", "array of lists", "series"])
def test_label_names_may_be_in_any_collection(form):
    _, Y = rows(10)
    lists = named(Y)
    if form == "series":
        y = pytest.importorskip("pandas").Series(lists)
    elif form == "array of lists":
        y = np.empty(len(lists), dtype=object)
        y[:] = lists
    else:
        y = named(Y, {"sets": set, "tuples": tuple}[form])
    labels, matrix = LabelSets.fit(y)
    assert labels.names == ("happy", "quiet", "sad")
    np.testing.assert_array_equal(matrix, Y[:, 1:])
    assert labels.decode(matrix) == lists


def test_data_frame_columns_are_label_names():
    pandas = pytest.importorskip("pandas")
    _, Y = rows(10)
    labels, matrix = LabelSets.fit(pandas.DataFrame(Y, columns=NAMES))
    assert labels.names == tuple(NAMES) and labels.decode(matrix) is matrix
    np.testing.assert_array_equal(LabelSets.fit(Y.astype(object))[1], Y)


@pytest.mark.parametrize(
    ("y", "message"),
    [
        (["sad", "happy"], r"y\[0\] is the string 'sad'.*\['sad'\]"),
        ([["sad"], [1]], r"y\[1\] has the label 1; names of labels are strings"),
        ([[1], [0, 2]], "names of the labels of every row, as strings"),
        ([[0, 2], [1, 0]], "only 0 and 1"),
        ([[], []], "names of the labels of every row"),
    ],
)
def test_invalid_label_sets_raise_an_error_that_describes_the_format(y, message):
    with pytest.raises(CliquewiseError, match=message):
        cw.MultiLabelClassifier().fit(np.eye(2), y)


def enumerated_objective(classifier, X, Y):
    """The smoothed log loss of the trained weights, with log Z from a list of all labelings."""
    n_labels, gamma = Y.shape[1], classifier.gamma
    labelings = np.array(list(product([0, 1], repeat=n_labels)))
    columns = np.hstack([X, np.ones((len(X), 1))])
    scores = np.zeros((len(X), len(labelings)))
    for label in range(n_labels):
        scores += (columns @ classifier.unary(label))[:, labelings[:, label]]
    for i, j in classifier.label_graph_:
        scores += classifier.table(i, j)[labelings[:, i], labelings[:, j]]
    gold = (Y[:, None] == labelings).all(axis=2)
    losses = gamma * logsumexp(scores / gamma, axis=1) - scores[gold]
    squares = classifier.weights_ @ classifier.weights_
    for label in range(n_labels):  # the penalty leaves out intercepts of labels that vary
        if not classifier.intercept_is_penalized_ and 0 < Y[:, label].mean() < 1:
            squares -= np.square(classifier.unary(label)[-1]).sum()
    return losses.mean() + squares / (2 * classifier.C * len(X))


@pytest.mark.parametrize("seed", [171, *range(30)])  # 171: messages underflow that decide later
def test_primal_at_a_low_temperature_equals_the_enumerated_objective(seed):
    rng = np.random.default_rng(seed)
    n_labels, n_rows = int(rng.integers(3, 7)), int(rng.integers(10, 60))
    d = int(rng.integers(1, 6))
    X = rng.normal(size=(n_rows, d)) * 10 ** rng.uniform(-0.5, 1)
    W = rng.normal(size=(d, n_labels))
    noise = rng.uniform(0, 1) * rng.normal(size=(n_rows, n_labels))
    Y = (X @ W / np.abs(X).mean() + noise > 0).astype(int)
    Y[:, 1] ^= Y[:, 0]
    Y[:, -1] ^= Y[:, 1]
    pairs = [(i, j) for i in range(n_labels) for j in range(i) if rng.random() < 0.6]
    classifier = cw.MultiLabelClassifier(
        C=10 ** rng.uniform(1, 4),
        gamma=10 ** rng.uniform(-3, -1),
        label_graph=pairs or [(0, 1)],
        max_epochs=int(rng.integers(2, 300)),
        random_state=0,
        n_jobs=1,
    )
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        classifier.fit(X, Y)
    objective = enumerated_objective(classifier, X, Y)
    assert classifier.certificate_.primal == pytest.approx(objective, rel=1e-9)
