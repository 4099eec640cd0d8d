"""Matrices of every estimator come in one way: damaged ones are refused before a kernel runs."""

from __future__ import annotations

import numpy as np
import pytest
from scipy.sparse import coo_matrix, csc_matrix, csr_matrix

import cliquewise as cw
from cliquewise.data.dataset import Dataset
from cliquewise.data.graphs import GraphDataset
from cliquewise.data.matrices import LARGEST, checked_matrix
from cliquewise.errors import DataError

GOOD = np.array([[1.0, 0.0, 2.0], [0.0, 3.0, 0.0], [1.0, 1.0, 0.0], [0.5, 0.0, 1.0]])
EDGES = [(0, 1), (1, 2), (2, 3)]

#: What one 4 x 3 matrix means to each estimator: how to fit, and how to predict.
ESTIMATORS = {
    "SequenceTagger": (
        lambda m: cw.SequenceTagger(random_state=0).fit([GOOD, m], [list("abab")] * 2),
        lambda e, m: e.predict([m]),
    ),
    "GraphLabeler": (
        lambda m: cw.GraphLabeler(random_state=0).fit(
            [(GOOD, EDGES), (m, EDGES)], [list("abab")] * 2
        ),
        lambda e, m: e.predict([(m, EDGES)]),
    ),
    "GraphLabeler, edges": (
        lambda m: cw.GraphLabeler(random_state=0).fit(
            [(np.eye(5), [*EDGES, (3, 4)], m)], [list("ababa")]
        ),
        lambda e, m: e.predict([(np.eye(5), [*EDGES, (3, 4)], m)]),
    ),
    "MultiLabelClassifier": (
        lambda m: cw.MultiLabelClassifier(random_state=0).fit(m, np.eye(4, 2)),
        lambda e, m: e.predict(m),
    ),
    "MulticlassClassifier": (
        lambda m: cw.MulticlassClassifier(random_state=0).fit(m, list("abab")),
        lambda e, m: e.predict(m),
    ),
    "CandidateRanker": (
        lambda m: cw.CandidateRanker(random_state=0).fit([GOOD, m], [0, 1]),
        lambda e, m: e.predict([m]),
    ),
    "Matcher": (
        lambda m: cw.Matcher(random_state=0).fit([[m, m]], [[0, 1]]),
        lambda e, m: e.predict([[m, m]]),
    ),
}


def damaged(change):
    matrix = csr_matrix(GOOD)
    change(matrix)
    return matrix


def shorter_values(m):
    m.data = m.data[:-1]


DAMAGE = {
    "an index out of range": lambda: damaged(lambda m: m.indices.__setitem__(0, 10**6)),
    "a negative index": lambda: damaged(lambda m: m.indices.__setitem__(0, -(10**6))),
    "a decreasing indptr": lambda: damaged(lambda m: m.indptr.__setitem__(1, 5)),
    "an indptr that ends early": lambda: damaged(lambda m: m.indptr.__setitem__(-1, 5)),
    "an indptr that ends late": lambda: damaged(lambda m: m.indptr.__setitem__(-1, 10**6)),
    "an indptr that starts late": lambda: damaged(lambda m: m.indptr.__setitem__(0, 1)),
    "fewer values than indices": lambda: damaged(shorter_values),
    "complex values": lambda: csr_matrix(GOOD + 1j),
    "NaN": lambda: damaged(lambda m: m.data.__setitem__(0, np.nan)),
    "infinity": lambda: damaged(lambda m: m.data.__setitem__(0, -np.inf)),
    "squares that overflow": lambda: damaged(lambda m: m.data.__setitem__(0, 1e200)),
}


@pytest.mark.parametrize("what", DAMAGE)
@pytest.mark.parametrize("name", ESTIMATORS)
def test_a_damaged_sparse_matrix_is_refused_in_training(name, what):
    with pytest.raises(DataError):
        ESTIMATORS[name][0](DAMAGE[what]())


@pytest.fixture(scope="module")
def fitted():
    kept = {}

    def get(name):
        if name not in kept:
            kept[name] = ESTIMATORS[name][0](csr_matrix(GOOD))
        return kept[name]

    return get


@pytest.mark.parametrize("name", ESTIMATORS)
def test_a_damaged_matrix_is_refused_in_prediction(name, fitted):
    model, predict = fitted(name), ESTIMATORS[name][1]
    for make in DAMAGE.values():
        with pytest.raises(DataError):
            predict(model, make())
    dense = [GOOD + 1j, GOOD * np.nan, GOOD[:, :2], np.full((4, 3), "a"), np.full((4, 3), object())]
    for wrong in dense:
        # what scikit-learn itself refuses is a ValueError or a TypeError of its own
        with pytest.raises((ValueError, TypeError)):
            predict(model, wrong)
    with pytest.raises(DataError, match=r"feature 1 is 1e\+200"):
        predict(model, np.where(GOOD == 3.0, 1e200, GOOD))


@pytest.mark.parametrize("name", ESTIMATORS)
def test_entries_in_any_order_and_twice_mean_the_same(name, fitted):
    model, predict = fitted(name), ESTIMATORS[name][1]
    plain = csr_matrix(GOOD)
    twice = csr_matrix(
        (np.repeat(plain.data / 2, 2), np.repeat(plain.indices, 2), plain.indptr * 2), (4, 3)
    )
    turned = plain.copy()
    turned.indices[:2], turned.data[:2] = plain.indices[1::-1].copy(), plain.data[1::-1].copy()
    turned.has_sorted_indices = False
    expected = predict(model, plain)
    for other in (twice, turned, csc_matrix(GOOD), coo_matrix(GOOD), GOOD):
        np.testing.assert_equal(predict(model, other), expected)
    assert twice.nnz == 2 * plain.nnz  # the caller's matrix stays as it is


def test_an_overflow_names_the_feature():
    pandas = pytest.importorskip("pandas")
    frame = pandas.DataFrame(GOOD, columns=["width", "height", "weight"])
    frame.loc[2, "height"] = 1e200
    with pytest.raises(DataError, match="row 2: feature 'height' is 1e"):
        cw.MulticlassClassifier().fit(frame, list("abab"))
    with pytest.raises(DataError, match="example 0, token 1: attribute 'height' is -1e"):
        cw.SequenceTagger().fit([[{"height": 1.0}, {"height": -1e200}]], [["a", "b"]])
    with pytest.raises(DataError, match="example 0, token 0: attribute 'n' is inf"):
        cw.SequenceTagger().fit([[{"n": 10**400}]], [["a"]])
    with pytest.raises(DataError, match="example 1, node 0: feature 2"):
        cw.GraphLabeler().fit([(GOOD, EDGES), (GOOD * [1, 1, 2e100], EDGES)], [list("abab")] * 2)


def test_weights_and_costs_that_overflow_are_refused_too():
    with pytest.raises(DataError, match="sample_weight"):
        cw.MulticlassClassifier().fit(GOOD, list("abab"), sample_weight=[1.0, 1.0, 1.0, 1e200])
    with pytest.raises(DataError, match="costs"):
        cw.CandidateRanker().fit([GOOD], [[0.0, 1.0, 1.0, 1e200]])
    with pytest.raises(DataError, match="complex"):
        cw.SequenceTagger().fit(GOOD[None] + 1j, [list("abab")])


def test_the_largest_features_train():
    with np.errstate(over="raise", invalid="raise"):
        model = cw.MulticlassClassifier(C=1e-200, random_state=0).fit(
            GOOD * (LARGEST / 3), list("abab")
        )
    assert np.isfinite(model.certificate_.primal)


@pytest.mark.parametrize("kind", [csc_matrix, coo_matrix])
def test_other_formats_are_checked_before_scipy_converts_them(kind):
    matrix = kind(GOOD)
    (matrix.row if kind is coo_matrix else matrix.indices)[0] = 10**9
    with pytest.raises(DataError, match="1000000000"):
        checked_matrix(matrix)


def test_rows_may_be_objects_that_are_numbers_but_not_masked():
    assert checked_matrix(GOOD.astype(object)).dtype == np.float64
    with pytest.raises(DataError, match="masked"):
        checked_matrix(np.ma.masked_values(GOOD, 3.0))
    for wrong in ([1.0, 2.0], [[1.0], [1.0, 2.0]], [["a"]], [[None]], [[10**400]]):
        with pytest.raises(DataError):
            checked_matrix(wrong)


def test_a_dataset_made_by_hand_is_checked_too():
    with pytest.raises(DataError):
        Dataset.from_matrix(DAMAGE["an index out of range"](), [0, 4])
    good = GraphDataset.from_examples([(GOOD, EDGES)])
    with pytest.raises(DataError):
        GraphDataset(good.node_offsets, good.edge_offsets, good.edges, DAMAGE["a negative index"]())
    with pytest.raises(DataError, match="rows"):
        GraphDataset(
            good.node_offsets, good.edge_offsets, good.edges, good.features, rows=np.arange(4) + 9
        )
