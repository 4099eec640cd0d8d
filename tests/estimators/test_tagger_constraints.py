"""Forbidden labels, clamped tokens, span schemes and labels that are only partly known."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.optimize import minimize
from tagging_cases import LABELS, all_labelings, graph_of, problem, tight

from cliquewise.errors import DataError, UnsupportedError
from cliquewise.models.label_schemes import scheme_masks

X, Y = problem(10)


def test_a_clamped_token_keeps_its_label_and_conditions_the_others():
    tagger = tight().fit(X, Y)
    x = [["w=0"], ["w=1"], ["w=2"]]
    allowed = [[None, "C", {"A", "B"}]]
    graph = graph_of(tagger, x)
    weights = {}
    for labels in all_labelings(tagger, 3):
        if labels[1] == "C" and labels[2] != "C":
            numbers = [LABELS.index(c) for c in labels]
            weights[tuple(labels)] = np.exp(graph.score(np.array(numbers)))
    total = sum(weights.values())
    assert tagger.predict([x], allowed)[0] == list(max(weights, key=weights.get))
    marginals = tagger.predict_marginals([x], allowed)[0]
    for t, k in itertools.product(range(3), range(3)):
        expected = sum(w for c, w in weights.items() if c[t] == LABELS[k]) / total
        assert marginals[t, k] == pytest.approx(expected, abs=1e-12)
    best = tagger.predict_top_k([x], 100, allowed)[0]
    assert len(best) == 6
    assert sum(p for p, _ in best) == pytest.approx(1)


def test_labels_forbidden_in_training_cost_nothing():
    """A token that can only be what it is teaches nothing: as if it were not there."""
    x = [[["a"]], [["b"]], [["a"]]]
    y = [["A"], ["B"], ["B"]]
    options = [[None], [None], [{"B"}]]
    clamped = tight(boundary_weights=False).fit(x, y, allowed=options)
    without = tight(boundary_weights=False).fit(x[:2], y[:2])
    np.testing.assert_allclose(clamped.coef_, without.coef_, atol=1e-4)


def test_integer_labels_may_be_clamped_without_a_set():
    tagger = tight().fit([[["a"], ["b"]]], [[1, 2]])
    assert tagger.predict([[["a"], ["b"]]], allowed=[[2, None]])[0][0] == 2


@pytest.mark.parametrize(
    ("allowed", "message"),
    [
        ([[{"A"}]], "sequences"),
        ([[{"A"}], [None]], "allowed: example 0 has 2 tokens but 1 labels"),
        ([[{"Z"}, None], None], "allowed: example 0, token 0: 'Z' is not a class"),
        ([[set(), None], None], "example 0, token 0: no label is allowed"),
    ],
)
def test_allowed_labels_that_make_no_sense_are_named(allowed, message):
    tagger = tight().fit([[["a"], ["b"]], [["a"]]], [["A", "B"], ["A"]])
    with pytest.raises(DataError, match=message):
        tagger.predict([[["a"], ["b"]], [["a"]]], allowed)


def test_a_training_label_outside_the_allowed_ones_is_an_error():
    with pytest.raises(DataError, match="example 0, token 0"):
        tight().fit([[["a"]], [["b"]]], [["A"], ["B"]], allowed=[[{"B"}], None])


@pytest.mark.parametrize("scheme", ["BIO", "BIOES"])
@pytest.mark.parametrize("solver", ["sdca", "lbfgs"])
def test_span_schemes_never_give_an_impossible_sequence(scheme, solver):
    legal = {
        "BIO": [["B-X", "I-X", "O"], ["O", "B-Y", "I-Y", "I-Y"], ["B-X", "B-X"]],
        "BIOES": [["B-X", "E-X", "O"], ["O", "B-Y", "I-Y", "E-Y"], ["S-X", "S-Y"]],
    }[scheme]
    rng = np.random.default_rng(0)
    x = [[[f"w={rng.integers(3)}"] for _ in tags] for tags in legal]
    tagger = tight(transitions=scheme, solver=solver, tol=1e-7).fit(x, legal)
    assert tagger.certificate_.gap <= 1e-7
    follow, first, last = scheme_masks(scheme, tagger.classes_)
    index = {c: i for i, c in enumerate(tagger.classes_)}
    new = [[[f"w={rng.integers(3)}"] for _ in range(5)] for _ in range(20)]
    for tags in [*tagger.predict(new), *(t for _, t in tagger.predict_top_k(new[:1], 40)[0])]:
        numbers = [index[t] for t in tags]
        assert first[numbers[0]] and last[numbers[-1]]
        assert all(follow[a, b] for a, b in itertools.pairwise(numbers))


def test_training_labels_that_break_the_scheme_are_named():
    with pytest.raises(DataError, match="example 0, token 2"):
        tight(transitions="BIO").fit([[["a"], ["b"], ["c"]]], [["B-X", "O", "I-X"]])


def test_a_mask_forbids_transitions():
    mask = np.array([[True, True, False], [True, True, True], [False, True, True]])
    x, y = [[["a"], ["b"], ["c"]]], [["A", "B", "C"]]
    tagger = tight(transitions=mask).fit(x, y)
    sequences = tagger.predict_top_k([[["a"], ["c"]]], 9)[0]
    assert len(sequences) == 7
    assert ["A", "C"] not in [tags for _, tags in sequences]
    with pytest.raises(DataError, match="shape"):
        tight(transitions=np.ones((2, 2))).fit(x, y)


def test_contradicting_constraints_at_prediction_are_an_error():
    tagger = tight(transitions="BIO").fit([[["a"], ["b"]], [["c"]]], [["B-X", "I-X"], ["O"]])
    with pytest.raises(DataError, match="sequence 0 has no possible labeling"):
        tagger.predict([[["a"], ["b"]]], allowed=[["O", "I-X"]])


# ---- labels that are not, or partly, known


def partial_objective(tagger, x, y, C, allowed=None):
    """The negative log-likelihood of all labelings that agree, by enumeration."""
    model, data = tagger.model_, tagger.encoder_.transform(x)
    if allowed is not None:
        rows = [[a is None or c in a for c in tagger.classes_] for tags in allowed for a in tags]
        data = data.with_labels(np.full(data.n_tokens, -1), np.array(rows), None)

    def value(w):
        total = 0.5 * w @ w / C
        for i, tags in enumerate(y):
            graph = model.graph(w, data, i)
            scores, agree = [], []
            for labels in itertools.product(range(model.n_labels), repeat=len(tags)):
                names = [tagger.classes_[k] for k in labels]
                scores.append(graph.score(np.array(labels)))
                agree.append(
                    all(
                        t is None or n == t or (isinstance(t, set) and n in t)
                        for n, t in zip(names, tags, strict=True)
                    )
                )
            scores, agree = np.array(scores), np.array(agree)
            total += np.logaddexp.reduce(scores) - np.logaddexp.reduce(scores[agree])
        return total / len(y)

    return value


def test_partial_labels_minimise_the_marginalised_loss():
    x = [[["a"], ["b"]], [["b"], ["a"]], [["a"]]]
    y = [["A", None], [{"B", "C"}, "A"], ["A"]]
    tagger = tight(C=2.0, tol=0, max_epochs=300).fit(x, y)
    assert tagger.solver_ == "lbfgs" and tagger.classes_ == ["A", "B", "C"]
    objective = partial_objective(tagger, x, y, 2.0)
    assert tagger.certificate_.primal == pytest.approx(objective(tagger.coef_), rel=1e-10)
    polished = minimize(objective, tagger.coef_)
    assert tagger.certificate_.primal <= polished.fun + 1e-6
    assert np.all(np.diff(tagger.trace_.primal) <= 1e-12)
    assert tagger.certificate_.status == "none"


BIO = ["B-X", "I-X", "O"]


@settings(max_examples=25, deadline=None)
@given(st.integers(0, 2**31), st.booleans())
def test_partial_labels_count_only_what_the_constraints_allow(seed, masked):
    rng = np.random.default_rng(seed)
    y, allowed = [], []
    for _ in range(3):
        true = ["O", "B-X", "I-X"][: rng.integers(1, 4)]
        y.append([[None, {t, "O"}, {t, "I-X"}, t][rng.integers(4)] for t in true])
        allowed.append([None if rng.integers(2) else {t, "B-X"} for t in true])
    x = [[[f"w{rng.integers(3)}"] for _ in tags] for tags in y]
    x.append([["w0"], ["w1"], ["w2"]])
    y.append(["B-X", "I-X", "O"])
    allowed.append([None] * 3)
    if not masked:
        allowed = None
    tagger = tight(transitions="BIO", C=5.0, tol=1e-9, max_epochs=20).fit(x, y, allowed=allowed)
    objective = partial_objective(tagger, x, y, 5.0, allowed)
    assert tagger.certificate_.primal == pytest.approx(objective(tagger.coef_), rel=1e-10)
    assert tagger.certificate_.primal >= 0


@pytest.mark.parametrize("C", [10.0, 1e4])
def test_partial_labels_cannot_begin_inside(C):
    x = [[["a"], ["b"], ["c"]], [["a"], ["c"]], [["b"]]]
    y = [["B-LOC", "I-LOC", "O"], [None, "O"], [None]]
    tagger = tight(transitions="BIO", C=C, max_epochs=50).fit(x, y)
    assert tagger.certificate_.primal >= 0


@pytest.mark.parametrize(
    ("y", "allowed"),
    [
        (["O", {"I-X", "I-Y"}, None, None, None], None),
        ([{"I-X", "I-Y"}, "O", None, None, None], None),
        ([None, None, None, None, None], [None, ["O"], ["I-X"], None, None]),
        ([{"O", "B-X"}, None, None, None, None], [["I-X"], None, None, None, None]),
    ],
)
def test_partial_labels_that_leave_no_labeling_are_an_error(y, allowed):
    x = [[["a"]] * 5, [["a"], ["b"], ["c"]], [["a"], ["b"]]]
    with pytest.raises(DataError, match=r"example 0, token \d.*no labeling"):
        tight(transitions="BIO").fit(
            x, [y, BIO, ["B-Y", "I-Y"]], allowed=allowed and [allowed, [None] * 3, [None] * 2]
        )


def test_a_partial_label_of_one_choice_is_a_label():
    known = tight().fit(X, Y)
    dressed = tight().fit(X, [[{t} for t in tags] for tags in Y])
    assert dressed.solver_ == "sdca"
    np.testing.assert_allclose(known.coef_, dressed.coef_, atol=1e-6)


def test_sdca_refuses_partial_labels_and_names_what_works():
    with pytest.raises(UnsupportedError, match="lbfgs"):
        tight(solver="sdca").fit(X, [[None, *tags[1:]] for tags in Y])
