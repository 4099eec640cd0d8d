"""Whatever form the features come in, the model is the same."""

from __future__ import annotations

import numpy as np
import pytest
from scipy.sparse import csr_array, csr_matrix
from tagging_cases import problem, same_predictions, tight

from cliquewise.data import Columns, Dataset, Template

X, Y = problem(10)
NAMES = sorted({a for x in X for token in x for a in token})
INDEX = {a: i for i, a in enumerate(NAMES)}


def dense(x):
    out = np.zeros((len(x), len(NAMES)))
    for t, token in enumerate(x):
        out[t, [INDEX[a] for a in token]] = 1
    return out


MATRICES = [dense(x) for x in X]
OFFSETS = np.cumsum([0, *map(len, X)])
KINDS = {
    "dicts of strings": [[dict(a.split("=") for a in token) for token in x] for x in X],
    "dicts of numbers": [[dict.fromkeys(token, 1.0) for token in x] for x in X],
    "dicts of booleans": [[dict.fromkeys(token, True) for token in x] for x in X],
    "pairs": [[[(a, 1.0) for a in token] for token in x] for x in X],
    "sets": [[set(token) for token in x] for x in X],
    "tuples": [tuple(tuple(token) for token in x) for x in X],
    "dense": MATRICES,
    "integers": [m.astype(np.int64) for m in MATRICES],
    "csr_matrix": [csr_matrix(m) for m in MATRICES],
    "csr_array": [csr_array(m) for m in MATRICES],
    "dataset": Dataset.from_matrix(np.concatenate(MATRICES), OFFSETS),
}


@pytest.fixture(scope="module")
def expected():
    return tight().fit(X, Y)


@pytest.mark.parametrize("kind", KINDS)
def test_every_kind_of_input_gives_the_same_model(kind, expected):
    tagger = tight().fit(KINDS[kind], Y)
    assert tagger.certificate_.primal == pytest.approx(expected.certificate_.primal, rel=1e-8)
    same_predictions(expected, tagger, X, KINDS[kind])
    assert tagger.predict(KINDS[kind]) == expected.predict(X)


def test_three_dimensional_arrays_are_sequences_of_equal_length():
    rng = np.random.default_rng(0)
    block = rng.standard_normal((6, 3, 4))
    y = rng.integers(0, 2, (6, 3))
    one, other = tight().fit(block, y), tight().fit(list(block), y.tolist())
    np.testing.assert_allclose(one.coef_, other.coef_, atol=1e-6)
    assert one.n_features_in_ == 4 and one.classes_ == [0, 1]


def test_a_template_over_columns_equals_the_attributes_written_out():
    words = [[[token[0], token[1]] for token in x] for x in X]
    template = Template.parse("U0:%x[0,0]\nU1:%x[0,1]\nB")
    flat = [row for x in words for row in x]
    columns = Columns([[r[j] for r in flat] for j in (0, 1)], OFFSETS)
    from_rows = tight(template=template).fit(words, Y)
    from_columns = tight(template=template).fit(columns, Y)
    plain = tight().fit(X, Y)
    np.testing.assert_allclose(from_rows.coef_, from_columns.coef_, atol=1e-6)
    same_predictions(plain, from_rows, X, words)


@pytest.mark.parametrize("width", [1, 2, 3, 4])
def test_the_names_template_adapts_to_the_columns(width):
    rows = [[["Rome", "NNP", "B-NP", "x"][:width], ["is", "VBZ", "B-VP", "x"][:width]]]
    tagger = tight(template="ner").fit(rows, [["B-LOC", "O"]])
    assert tagger.predict(rows) == [["B-LOC", "O"]]
    assert any(n.startswith("pos[0]=") for n in tagger.feature_names()) == (width > 1)


def test_hashing_with_room_for_all_gives_the_same_predictions():
    plain, hashed = tight().fit(X, Y), tight(n_hash=2**18).fit(X, Y)
    same_predictions(plain, hashed, X)


def test_seen_pairs_have_fewer_weights_and_their_own_optimum():
    every, seen = tight().fit(X, Y), tight(feature_pairs="seen").fit(X, Y)
    reference = tight(feature_pairs="seen", solver="lbfgs").fit(X, Y)
    assert len(seen.coef_) < len(every.coef_)
    assert seen.certificate_.primal == pytest.approx(reference.certificate_.primal, rel=1e-8)


def test_rare_attributes_are_left_out():
    X = [[["a", "once"], ["a"]], [["a"]]]
    tagger = tight(min_count=2).fit(X, [["x", "y"], ["y"]])
    assert tagger.feature_names() == ["a", "(intercept)", "(begin)", "(end)"]


def test_attributes_that_training_did_not_see_change_nothing():
    tagger = tight().fit(X, Y)
    more = [[[*token, "never seen"] for token in x] for x in X]
    same_predictions(tagger, tagger, X, more, atol=0)
