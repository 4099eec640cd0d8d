"""A fit that raises leaves the estimator as it was: weights, labels and certificate of one run."""

from __future__ import annotations

import warnings

import numpy as np
import pytest
from sklearn.exceptions import ConvergenceWarning, NotFittedError

import cliquewise as cw

RNG = np.random.default_rng(0)
GRAPHS = [([[2.0], [1.5], [-1.0]], [(0, 1), (1, 2)]), ([[-2.0], [3.0]], [(0, 1)])]
ROWS, WIDE = RNG.normal(size=(6, 2)), RNG.normal(size=(6, 3))
SETS = [[1, 0, 1], [0, 1, 0], [1, 1, 0], [0, 0, 1], [1, 0, 0], [0, 1, 1]]
#: Two problems that differ in labels, and in features where they can.
CASES = {
    "SequenceTagger": (
        ([[["a"], ["b"]], [["b"]]], [["A", "B"], ["B"]]),
        ([[["c"], ["b"]], [["a"]]], [["Z", "X"], ["Y"]]),
    ),
    "GraphLabeler": (
        (GRAPHS, [["in", "in", "out"], ["out", "in"]]),
        (GRAPHS, [["c", "c", "b"], ["a", "b"]]),
    ),
    "MultiLabelClassifier": ((ROWS, SETS), (WIDE, [[*row, 1 - row[0]] for row in SETS])),
    "MulticlassClassifier": ((ROWS, list("abcabc")), (WIDE, list("xyzzyx"))),
    "Matcher": (
        ([RNG.normal(size=(2, 3, 2))], [[1, 0]]),
        ([RNG.normal(size=(3, 2, 4))], [[1, -1, 0]]),
    ),
    "CandidateRanker": (
        ([RNG.normal(size=(3, 2))], [1]),
        ([RNG.normal(size=(3, 4))] * 2, [1, 0]),
    ),
}


def plain(predicted):
    return [np.asarray(one).tolist() for one in predicted]


@pytest.mark.parametrize("kind", CASES)
def test_a_fit_that_raises_leaves_the_model_of_before(kind, tmp_path):
    (X, y), (other, labels) = CASES[kind]
    model = getattr(cw, kind)(random_state=0, C=1.0).fit(X, y)
    predicted, before = plain(model.predict(X)), dict(model.__dict__)
    model.set_params(max_epochs=1, tol=0.0)
    with warnings.catch_warnings(), pytest.raises(ConvergenceWarning):
        warnings.simplefilter("error")
        model.fit(other, labels)
    assert model.__dict__.keys() == before.keys()
    changed = {name for name in before if model.__dict__[name] is not before[name]}
    assert changed == {"max_epochs", "tol"}
    assert plain(model.predict(X)) == predicted
    model.save(tmp_path / "model.cw")
    assert plain(cw.load(tmp_path / "model.cw").predict(X)) == predicted


@pytest.mark.parametrize("kind", CASES)
def test_a_first_fit_that_raises_leaves_no_half_of_a_model(kind):
    X, y = CASES[kind][0]
    model = getattr(cw, kind)(random_state=0, C=1.0, max_epochs=1, tol=0.0)
    names = set(model.__dict__)
    with warnings.catch_warnings(), pytest.raises(ConvergenceWarning):
        warnings.simplefilter("error")
        model.fit(X, y)
    assert set(model.__dict__) == names
    with pytest.raises(NotFittedError):
        model.predict(X)
