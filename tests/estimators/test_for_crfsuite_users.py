"""What those find who come from CRFsuite and sklearn-crfsuite: its names, or their translation."""

from __future__ import annotations

import inspect
import itertools

import numpy as np
import pytest
from sklearn.base import clone
from tagging_cases import problem

import cliquewise as cw
from cliquewise import SequenceTagger
from cliquewise.errors import ArgumentNameError, DataError, ParameterError

X, Y = problem(8)


@pytest.fixture(scope="module")
def tagger():
    return SequenceTagger(random_state=0).fit(X, Y)


@pytest.mark.parametrize(
    ("parameters", "translation"),
    [
        ({"c2": 0.1}, "c2 -> C=5,"),
        ({"c2": 0}, "c2 -> C=1 / (2 c2); a model without a penalty"),
        ({"c1": 2.0}, "c1 -> C=0.25, l1_ratio=0.5, which"),
        ({"c1": 0.1, "c2": 0.1}, "c2 -> C=3.33333, l1_ratio=0.333333, which are 1 / (c1 + 2 c2)"),
        ({"c1": 4, "c2": 0}, "c1 -> C=0.25, l1_ratio=1, which"),
        ({"algorithm": "lbfgs"}, 'algorithm -> solver="lbfgs"'),
        ({"algorithm": "ap"}, 'algorithm -> loss="hinge"'),
        ({"algorithm": 7}, "algorithm -> solver=...; CRFsuite's algorithms are lbfgs, l2sgd, ap"),
        ({"max_iterations": 50}, "max_iterations -> max_epochs=50"),
        ({"all_possible_transitions": True}, 'transitions="all"'),
        ({"all_possible_states": False}, 'feature_pairs="seen"'),
        ({"min_freq": 2}, "min_count=2"),
    ],
)
def test_names_of_crfsuite_are_errors_that_translate_them(parameters, translation):
    with pytest.raises(ArgumentNameError) as caught:
        SequenceTagger(C=1.0, **parameters)
    assert translation in str(caught.value)
    assert isinstance(caught.value, TypeError) and isinstance(caught.value, ValueError)


def test_all_names_are_translated_at_once_and_others_stay_plain_type_errors():
    with pytest.raises(ArgumentNameError, match=r"(?s)c1 ->.*c2 ->"):
        SequenceTagger(c1=0.1, c2=0.1)
    with pytest.raises(TypeError, match="unexpected keyword argument 'nope'"):
        SequenceTagger(nope=1)


@pytest.mark.parametrize(
    ("name", "advice"),
    [("lbfgs", 'solver="lbfgs"'), ("sdca", 'solver="sdca"'), ("ap", 'loss="hinge"')],
)
def test_a_solver_given_as_the_loss_is_an_error_that_names_the_right_parameter(name, advice):
    with pytest.raises(ParameterError) as caught:
        SequenceTagger(name).fit(X, Y)
    assert advice in str(caught.value) and "loss must be log" in str(caught.value)


def test_searches_and_slips_of_the_pen_are_told_the_right_name():
    from sklearn.model_selection import GridSearchCV

    search = GridSearchCV(SequenceTagger(), {"c1": [0.1], "c2": [0.1]}, cv=2)
    with pytest.raises(ArgumentNameError, match=r"C=3\.33333, l1_ratio=0\.333333"):
        search.fit(X, Y)
    for wrong in (
        lambda: SequenceTagger(l1_ration=0.1),
        lambda: SequenceTagger().set_params(l1ratio=1),
    ):
        with pytest.raises(ArgumentNameError, match="did you mean l1_ratio"):
            wrong()


def test_scikit_learn_still_reads_the_parameters():
    assert "C" in inspect.signature(SequenceTagger).parameters
    assert clone(SequenceTagger(C=3.0)).get_params()["C"] == 3.0


def test_weights_are_dicts_as_in_sklearn_crfsuite(tagger):
    for label, features in tagger.top_features(n=1000).items():
        own = {name: w for (name, y), w in tagger.state_features_.items() if y == label}
        assert own == dict(features) and "(intercept)" in own
    trans = tagger.model_.transitions(tagger.coef_)
    index = {c: i for i, c in enumerate(tagger.classes_)}
    assert len(tagger.transition_features_) == 9
    for (a, b), weight in tagger.transition_features_.items():
        assert weight == trans[index[a], index[b]]


def test_seen_weights_alone_are_in_the_dicts():
    seen = SequenceTagger(feature_pairs="seen", transitions="seen", random_state=0).fit(X, Y)
    pairs = {(name, tag) for x, y in zip(X, Y) for t, tag in zip(x, y) for name in t}
    attributes = {key for key in seen.state_features_ if not key[0].startswith("(")}
    assert attributes <= pairs
    steps = {step for y in Y for step in itertools.pairwise(y)}
    assert set(seen.transition_features_) == steps


def test_single_sequences_and_marginals_as_dicts(tagger):
    assert tagger.predict_single(X[0]) == tagger.predict(X)[0]
    arrays, dicts = tagger.predict_marginals(X), tagger.predict_marginals(X, as_dicts=True)
    for array, tokens in zip(arrays, dicts, strict=True):
        assert [list(t) for t in tokens] == [tagger.classes_] * len(array)
        np.testing.assert_array_equal([list(t.values()) for t in tokens], array)
    assert tagger.predict_marginals_single(X[0])[0].keys() == set(tagger.classes_)
    with pytest.raises(DataError, match="cannot be combined"):
        tagger.predict_marginals(X, pairwise=True, as_dicts=True)


def test_top_weights_by_sign(tagger):
    likely, unlikely = tagger.top_transitions(sign=1), tagger.top_transitions(sign=-1)
    assert all(w > 0 for *_, w in likely) and all(w < 0 for *_, w in unlikely)
    assert sorted(likely, key=lambda t: -t[2]) == likely
    assert sorted(unlikely, key=lambda t: t[2]) == unlikely
    zero = [t for t in tagger.top_transitions() if t[2] == 0]
    assert len(likely) + len(unlikely) + len(zero) == 9
    assert all(w < 0 for _, w in tagger.top_features("A", sign=-1)["A"])
    with pytest.raises(DataError, match="sign must be 1"):
        tagger.top_transitions(sign="+")


def test_forbidden_transitions_are_pairs_of_labels(tmp_path):
    x, y = [[["a"], ["b"], ["c"]]], [["A", "B", "A"]]
    mask = np.array([[True, True], [True, False]])
    forbidden = [("B", "B")]
    by_pairs = SequenceTagger(forbidden_transitions=forbidden, random_state=0).fit(x, y)
    by_mask = SequenceTagger(transitions=mask, random_state=0).fit(x, y)
    np.testing.assert_array_equal(by_pairs.coef_, by_mask.coef_)
    assert by_pairs.predict(x, allowed=[[["B"], None, None]])[0][:2] == ["B", "A"]
    assert set(by_pairs.transition_features_) == {("A", "A"), ("A", "B"), ("B", "A")}
    by_pairs.save(tmp_path / "m.cw")
    assert cw.load(tmp_path / "m.cw").predict(x) == by_pairs.predict(x)
    for wrong, message in (([("B", "Z")], "'Z'; the labels are"), (["B"], "pairs")):
        with pytest.raises(DataError, match=message):
            SequenceTagger(forbidden_transitions=wrong).fit(x, y)
