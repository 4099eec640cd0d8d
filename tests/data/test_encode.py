"""FeatureEncoder: python-crfsuite's attributes, arrays and matrices; and hostile input."""

import json
import pickle
import subprocess
import sys

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from scipy.sparse import csc_matrix, csr_matrix

from cliquewise.data import Dataset, FeatureEncoder, item_cache
from cliquewise.data.flatten import flatten_token
from cliquewise.errors import DataError

names = st.text(max_size=4)
nested = st.recursive(
    names | st.booleans() | st.floats(-10, 10) | st.lists(names, max_size=3) | st.sets(names),
    lambda inner: st.dictionaries(names, inner, max_size=3),
    max_leaves=5,
)


def as_dicts(encoder, data):
    """The features of each token by name, as python-crfsuite's ItemSequence shows them."""
    values = np.ones(len(data.indices)) if data.values is None else data.values
    return [
        {encoder.vocabulary[j]: v for j, v in zip(data.indices[a:b], values[a:b], strict=True)}
        for a, b in zip(data.indptr[:-1], data.indptr[1:], strict=True)
    ]


@given(st.lists(st.dictionaries(names, nested, max_size=4), max_size=4))
@settings(max_examples=100, deadline=None)
def test_dicts_give_the_attributes_that_python_crfsuite_makes(tokens):
    pycrfsuite = pytest.importorskip("pycrfsuite")
    flat = [flatten_token(token) for token in tokens]
    if any(len(set(n)) < len(n) or any("\0" in s for s in n) for n, _ in flat):
        return  # items() shows one of several equal names, and cuts names at a zero byte
    encoder = FeatureEncoder()
    ours = as_dicts(encoder, encoder.fit_transform([tokens]))
    assert ours == pycrfsuite.ItemSequence(tokens).items()


plain = names | st.booleans() | st.integers(-3, 3) | st.floats(-10, 10)
tables = st.dictionaries(names, plain, max_size=4)
entries = st.lists(names | st.tuples(names, st.floats(-2, 2) | st.sampled_from([0, 1, True])))


@given(st.lists(st.lists(tables, max_size=3) | st.lists(entries, max_size=3), max_size=4))
@example([[{"a": 0.5, "b": 2}], [{"a": "x"}]])
@example([[{"a": "\x1f", "b": "x"}, {"a": "\x1e"}], [{"a": True, "b": "\x02"}], [{"a": ""}]])
@example([[{"a": "\x03", "b": False}, {"b": "x"}], [{"\x1f": "x", "b": "x"}, {"b": "\x02x"}]])
@example([[[("a", 0.5)]], [["a", ("a", 2)]]])
@settings(max_examples=150, deadline=None)
def test_items_that_were_seen_before_mean_what_they_meant(X):
    """Again and again, in any company, an item of a token is the attribute that it is alone."""
    encoder = FeatureEncoder().fit([[["a", "b"], [("a:x", 2.0)], {"": 1, "b": "x"}]])
    many = [X * 400] if sum(map(len, X)) < 5 else []  # more than one block of tokens
    for part in (X, X[::-1], *([x] for x in X), *many):
        data = encoder.transform(part)
        seen = as_dicts(encoder, data)
        for token, found in zip((t for x in part for t in x), seen, strict=True):
            wanted: dict = {}
            for name, value in zip(*flatten_token(token), strict=True):
                if name in encoder.vocabulary:
                    wanted[name] = wanted.get(name, 0.0) + value
            for one in (found, wanted):  # an attribute that is 0 is as good as none
                for name in [name for name, value in one.items() if value == 0.0]:
                    del one[name]
            assert found == pytest.approx(wanted)


def test_item_cache_is_cleared_at_its_limit(monkeypatch):
    monkeypatch.setattr(item_cache, "LIMIT", 100)
    encoder = FeatureEncoder().fit([[{"a": "0"}]])
    for start in range(0, 2000, 50):
        X = [[{"a": str(start + k), "b": k / 7} for k in range(50)]]
        assert len(encoder.transform(X).indices) == (start == 0)
    assert len(encoder._known_attributes().pairs) <= 200


@pytest.mark.parametrize("token", [{("a", 1.0): 0.5}, {"a": 10**400}, [("a", 1.0, 2)], {"a": (1,)}])
def test_an_item_that_is_no_attribute_is_refused_with_its_place(token):
    encoder = FeatureEncoder().fit([[{"a": 1.0}]])
    with pytest.raises(DataError, match="example 1, token 0"):
        encoder.transform([[type(token)()], [token]])


@given(st.lists(st.lists(st.lists(st.text(max_size=5), max_size=6), max_size=5), max_size=4))
@example([[["\x1f", "\x1e", ""], [], [""]], []])
@example([[["a\x1eb", "a", "b", "a\x1fb"]]])
@settings(max_examples=150, deadline=None)
def test_strings_are_numbered_like_a_dictionary_would(X):
    encoder = FeatureEncoder()
    data = encoder.fit_transform(X)
    index = {name: j for j, name in enumerate(encoder.vocabulary)}
    tokens = [token for sequence in X for token in sequence]
    expected = np.zeros((len(tokens), len(index)))
    for t, token in enumerate(tokens):
        for name in token:
            expected[t, index[name]] += 1
    again = encoder.transform(X)
    for found in (data, again):
        assert np.array_equal(found.features().toarray(), expected)
        assert found.lengths.tolist() == [len(sequence) for sequence in X]
    assert all(len(set(data.indices[a:b])) == b - a for a, b in zip(data.indptr, data.indptr[1:]))


def test_the_order_of_the_vocabulary_is_the_order_of_first_sight():
    encoder = FeatureEncoder()
    encoder.fit([[["z", "a"]], [["m", "z"]]])
    assert encoder.vocabulary == ["z", "a", "m"]


def test_lists_sets_tuples_pairs_and_dicts_may_be_mixed():
    encoder = FeatureEncoder()
    data = encoder.fit_transform([[["a"], {"a"}, ("a",), [("a", 2.0), "b"], {"a": 3, b"b": True}]])
    assert data.features().toarray().tolist() == [[1, 0], [1, 0], [1, 0], [2, 1], [3, 1]]


def test_attributes_never_seen_are_left_out_and_repeated_ones_added_up():
    encoder = FeatureEncoder()
    encoder.fit([[["a", "b"]]])
    data = encoder.transform([[["b", "new", "b"], ["new"]]])
    assert data.indptr.tolist() == [0, 1, 1]
    assert data.values.tolist() == [2.0]


def test_many_tokens_cross_the_borders_of_blocks_unharmed():
    X = [[[f"w{(i * j) % 97}" for j in range(i % 5)] for i in range(1500)] for _ in range(3)]
    encoder = FeatureEncoder()
    fitted, again = encoder.fit_transform(X), encoder.transform(X)
    assert np.array_equal(fitted.indices, again.indices)
    assert np.array_equal(fitted.indptr, again.indptr)
    shown = as_dicts(encoder, again)
    assert all(set(shown[t]) == set(X[0][t]) for t in range(1500))


def test_min_count_leaves_out_rare_attributes():
    encoder = FeatureEncoder(min_count=2)
    data = encoder.fit_transform([[["a", "b"], ["a", "c"]], [["c"]]])
    assert encoder.vocabulary == ["a", "c"]
    assert data.indices.tolist() == [0, 0, 1, 1]
    assert data.n_features == 2


def test_hashing_needs_no_vocabulary_and_is_the_same_in_another_process():
    X = [[["w=Rome", "é", "日本"], ["w=."]]]
    encoder = FeatureEncoder(n_hash=1000)
    data = encoder.fit_transform(X)
    assert encoder.vocabulary is None
    assert data.n_features == encoder.n_features == 1000
    code = (
        "from cliquewise.data import FeatureEncoder as F;"
        f"print(F(n_hash=1000).fit_transform({X!r}).indices.tolist())"
    )
    other = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert json.loads(other.stdout) == data.indices.tolist()
    assert len(set(data.indices)) == 4


def test_hashing_spreads_similar_names_evenly():
    X = [[[f"w[{k}]={i}" for k in range(10)] for i in range(2000)]]
    data = FeatureEncoder(n_hash=128).fit_transform(X)
    counts = np.bincount(data.indices, minlength=128)
    assert counts.min() > 100
    assert counts.max() < 200


@pytest.mark.parametrize("make", [np.asarray, csr_matrix, csc_matrix])
def test_arrays_and_sparse_matrices_become_the_same_dataset(make):
    rows = [np.array([[0, 1.0], [2, 0], [0, 0]]), np.empty((0, 2)), np.array([[3.0, 4.0]])]
    encoder = FeatureEncoder()
    data = encoder.fit_transform([make(x) for x in rows])
    assert data.offsets.tolist() == [0, 3, 3, 4]
    assert np.array_equal(data.features().toarray(), np.vstack(rows))
    again = encoder.transform([csr_matrix(x) for x in rows])
    assert np.array_equal(again.features().toarray(), np.vstack(rows))


def test_a_3d_array_is_as_good_as_a_list_and_zeros_and_ones_need_no_values():
    X = np.arange(12).reshape(2, 2, 3) % 2
    data = FeatureEncoder().fit_transform(X)
    assert data.values is None
    assert data.offsets.tolist() == [0, 2, 4]
    assert np.array_equal(data.features().toarray(), X.reshape(4, 3))


def test_many_small_sparse_matrices_are_stacked_like_scipy_does():
    rng = np.random.default_rng(0)
    dense = [rng.integers(0, 2, (n, 7)) * rng.random((n, 7)) for n in (3, 0, 1, 4)]
    data = FeatureEncoder().fit_transform([csr_matrix(x) for x in dense])
    assert np.allclose(data.features().toarray(), np.vstack(dense))


def test_a_dataset_passes_if_its_features_are_as_many():
    data = Dataset.from_matrix(np.eye(2), [0, 2], labels=[0, 1])
    encoder = FeatureEncoder().fit(data)
    assert encoder.transform(data).labels is None
    with pytest.raises(DataError, match="3 features, but fitting saw 2"):
        encoder.transform(Dataset.from_matrix(np.eye(3), [0, 3]))


def test_state_goes_through_json_and_pickle():
    encoder = FeatureEncoder(min_count=1).fit([[["é", "a b"]]])
    for copy in (
        FeatureEncoder.from_state(json.loads(json.dumps(encoder.to_state()))),
        pickle.loads(pickle.dumps(encoder)),
    ):
        assert copy.transform([[["a b"]]]).indices.tolist() == [1]


@pytest.mark.parametrize(
    ("X", "message"),
    [
        ([[["a"]], [["a"], "word"]], "example 1, token 1: the token is the string 'word'"),
        ([[["a"]], [[3]]], "example 1, token 0: an attribute must be a string, not int"),
        ([[{"a": None}]], "example 0, token 0: attribute 'a' has a value of type NoneType"),
        ([[{"a": ("x", "y")}]], "value of type tuple"),
        ([[{"a": float("nan")}]], "example 0, token 0: attribute 'a' is nan"),
        ([[["a"]], [["b"], [("b", float("inf"))]]], "example 1, token 1: attribute 'b' is inf"),
        ([[["a", ["b"]]]], "an attribute must be a string, not list"),
        ([[7]], "a token cannot be a int"),
        ([[{"a": b"\xff"}]], "is not UTF-8"),
        ("text", "X must be a list of sequences, not str"),
        ([{"a": 1}], "example 0: a sequence is a list of tokens"),
        (np.zeros((2, 3)), "X is an array of shape"),
        ([np.zeros(3)], "example 0 has shape"),
        ([np.zeros((1, 3)), np.zeros((1, 4))], "example 1 has 4 features; 3 were expected"),
        ([np.zeros((2, 1)), np.array([[1.0], [np.nan]])], "example 1, token 1: feature 0 is nan"),
        ([csr_matrix([[np.inf]])], "example 0, token 0: feature 0 is inf"),
        ([np.array([[1j]])], "a sequence of numbers"),
        (csr_matrix(np.eye(2)), "X is one sparse matrix"),
        ([np.zeros((1, 1)), [["a"]]], "example 1 is named attributes"),
    ],
)
def test_hostile_input_is_refused_with_its_place(X, message):
    with pytest.raises(DataError, match=message):
        FeatureEncoder().fit(X)


def test_another_kind_at_transform_is_rejected():
    with pytest.raises(DataError, match="the sequences are numbers"):
        FeatureEncoder().fit([[["a"]]]).transform([np.zeros((1, 1))])
    with pytest.raises(DataError, match="the sequences are named attributes"):
        FeatureEncoder().fit([np.zeros((1, 1))]).transform([[["a"]]])
    with pytest.raises(DataError, match="not fitted"):
        FeatureEncoder().transform([])
    with pytest.raises(DataError, match="n_hash=0"):
        FeatureEncoder(n_hash=0)


def test_nothing_at_all_is_a_dataset_of_nothing():
    for X in ([], [[]], [[[]]]):
        data = FeatureEncoder().fit_transform(X)
        assert data.n_features == 0
        assert len(data) == len(X)


def test_a_lone_surrogate_is_an_attribute_like_any_other():
    encoder = FeatureEncoder().fit([[["\ud800", "a"]]])
    assert encoder.transform([[["\ud800"]]]).indices.tolist() == [0]


def test_a_token_of_a_hundred_thousand_attributes_is_quick():
    token = [str(i % 70_000) for i in range(100_000)]
    data = FeatureEncoder().fit_transform([[token]])
    assert len(data.indices) == 70_000
    assert data.values.sum() == 100_000


def test_sets_are_read_in_sorted_order_whatever_the_hash_seed():
    names = [f"n{i:02}" for i in range(50)]
    token = set(names)
    for tokens in ([token], [frozenset(token)], [token, ["n00"]], [[*names], token]):
        encoder = FeatureEncoder()
        encoder.fit_transform([tokens])
        assert encoder.vocabulary == names
    encoder = FeatureEncoder()
    encoder.fit_transform([[{"in": token}, token]])
    assert encoder.vocabulary == [f"in:{n}" for n in names] + names
