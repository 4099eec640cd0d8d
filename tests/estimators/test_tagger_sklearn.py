"""scikit-learn's conventions: parameters, clones, pickles, cross-validation, searches."""

from __future__ import annotations

import pickle

import numpy as np
import pytest
from sklearn.base import clone
from sklearn.exceptions import NotFittedError
from sklearn.model_selection import GridSearchCV, KFold, cross_val_predict, cross_val_score
from tagging_cases import problem, tight

from cliquewise import SequenceTagger, metrics
from cliquewise.data import Columns
from cliquewise.solvers.sdca import SDCA

X, Y = problem(30, labels=["B-X", "I-X", "O"])


def test_sentences_taken_from_columns_are_columns_still():
    columns = Columns([["Anna", "sees", "Rome"], ["N", "V", "N"]], [0, 2, 3])
    y = [["A", "B"], ["A"]]
    whole = SequenceTagger(random_state=0).fit(columns, y)
    folds = SequenceTagger(random_state=0).fit([columns[0], columns[-1]], y)
    assert whole.coef_.tobytes() == folds.coef_.tobytes()
    assert folds.predict(columns[1:]) == whole.predict([columns[1]])


def test_parameters_are_kept_as_given_and_can_be_set():
    values = {
        "loss": "log", "C": 2, "solver": SDCA(sampling="cyclic"), "tol": 1e-2, "max_epochs": 7,
        "max_seconds": 3, "feature_pairs": "seen", "transitions": np.ones((3, 3)),
        "intercept": False, "boundary_weights": False, "template": "ner", "n_hash": 8,
        "min_count": 2,
        "class_weight": "balanced", "n_jobs": 2, "max_memory": 1, "checkpoint": "file",
        "checkpoint_seconds": 1, "resume": True, "gamma": 0.5, "smoother": "entropy",
        "random_state": 5, "verbose": 1, "forbidden_transitions": [("O", "I-X")], "device": "cpu",
        "dtype": "float32", "sequence_column": "sentence", "l1_ratio": 0.5, "cost": np.ones((2, 2)),
    }  # fmt: skip
    tagger = SequenceTagger(**values)
    assert set(tagger.get_params()) == set(values)
    for name, value in values.items():
        assert tagger.get_params()[name] is value
        assert getattr(clone(SequenceTagger()).set_params(**{name: value}), name) is value
    with pytest.raises(ValueError, match="Invalid parameter"):
        tagger.set_params(c=1)


def test_a_clone_is_not_fitted_and_trains_to_the_same():
    tagger = tight().fit(X, Y)
    copy = clone(tagger)
    with pytest.raises(NotFittedError):
        copy.predict(X)
    np.testing.assert_allclose(copy.fit(X, Y).coef_, tagger.coef_, atol=1e-4)


@pytest.mark.parametrize(
    "call", ["predict", "predict_marginals", "feature_names", "top_features", "save", "explain"]
)
def test_asking_before_training_is_an_error(call, tmp_path):
    arguments = {"feature_names": (), "top_features": (), "save": (tmp_path / "m",)}.get(call, (X,))
    with pytest.raises(NotFittedError):
        getattr(SequenceTagger(), call)(*arguments)


def test_a_pickle_predicts_the_same_and_carries_no_training_data():
    tagger = tight().fit(X * 10, Y * 10)
    content = pickle.dumps(tagger)
    copy = pickle.loads(content)
    assert copy.predict(X) == tagger.predict(X)
    np.testing.assert_array_equal(copy.predict_marginals(X)[0], tagger.predict_marginals(X)[0])
    assert len(content) < 20_000
    assert copy.certificate_ == tagger.certificate_


@pytest.mark.parametrize(
    "scorer",
    [metrics.token_accuracy_scorer, metrics.exact_match_scorer, metrics.span_f1_scorer, None],
)
def test_cross_validation_with_every_scorer(scorer):
    scores = cross_val_score(SequenceTagger(random_state=0), X, Y, cv=3, scoring=scorer)
    assert scores.shape == (3,) and np.all((scores >= 0) & (scores <= 1)) and scores.mean() > 0.2


def test_predictions_of_folds_are_joined_whatever_the_lengths():
    joined = cross_val_predict(SequenceTagger(random_state=0), X, Y, cv=KFold(3))
    assert [len(labels) for labels in joined] == [len(labels) for labels in Y]
    assert metrics.token_accuracy(Y, joined) > 0
    alike = SequenceTagger(random_state=0).fit(X, Y).predict([X[0], X[0]])
    assert np.asarray(alike).shape == (2, len(Y[0]))  # a table, as ever


def test_a_grid_search_chooses_and_refits():
    search = GridSearchCV(
        SequenceTagger(random_state=0),
        {"C": [1e-3, 1.0], "feature_pairs": ["all", "seen"]},
        scoring=metrics.token_accuracy_scorer,
        cv=KFold(3),
    ).fit(X, Y)
    assert search.best_params_["C"] == 1.0
    assert search.best_estimator_.classes_ == ["B-X", "I-X", "O"]
    assert len(search.predict(X)) == len(X)


def test_cross_validation_of_arrays_of_numbers():
    rng = np.random.default_rng(0)
    y = [rng.integers(0, 2, rng.integers(1, 5)).tolist() for _ in range(12)]
    data = [np.array(t)[:, None] + 0.1 * rng.standard_normal((len(t), 3)) for t in y]
    assert cross_val_score(SequenceTagger(C=100, random_state=0), data, y, cv=3).mean() > 0.9


def test_a_label_missing_from_a_fold_is_only_counted_as_wrong():
    data = [[["a"]], [["a"]], [["b"]], [["b"]]]
    y = [["common"], ["common"], ["common"], ["rare"]]
    scores = cross_val_score(SequenceTagger(random_state=0), data, y, cv=KFold(4))
    assert scores.tolist() == [1.0, 1.0, 1.0, 0.0] or scores[-1] == 0.0


def test_fitted_attributes_are_there():
    tagger = SequenceTagger(random_state=0).fit(X, Y)
    assert tagger.classes_ == ["B-X", "I-X", "O"]
    assert not hasattr(tagger, "n_features_in_")
    assert type(tagger.n_iter_) is int and tagger.n_iter_ >= tagger.trace_.epochs[-1] > 0
    assert tagger.solver_ == "sdca" and len(tagger.trace_) >= 1
    numeric = SequenceTagger().fit([np.eye(2)], [[0, 1]])
    assert numeric.n_features_in_ == 2


def test_the_text_of_an_estimator_names_what_differs_from_the_defaults():
    assert repr(SequenceTagger(C=2)) == "SequenceTagger(C=2)"
