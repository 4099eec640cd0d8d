"""Dataset: flat arrays that refuse what no kernel could read."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.sparse import csr_matrix

from cliquewise.data import Dataset
from cliquewise.errors import DataError


def make(**changes):
    fields = {
        "offsets": [0, 2, 2, 3],
        "indptr": [0, 1, 3, 4],
        "indices": [0, 0, 1, 1],
        "values": [1.0, 2.0, 3.0, 4.0],
        "n_features": 2,
        "labels": [0, 1, -1],
        "weights": [1.0, 2.0, 3.0],
    }
    return Dataset(**{**fields, **changes})


def test_counts_and_matrix_describe_the_same_data():
    data = make()
    assert (len(data), data.n_tokens, data.lengths.tolist()) == (3, 3, [2, 0, 1])
    assert data.features().toarray().tolist() == [[1, 0], [2, 3], [0, 4]]
    assert data.memory_bytes == 8 * 4 + 8 * 4 + 4 * 4 + 8 * 4 + 4 * 3 + 8 * 3


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"offsets": [0, 2, 4]}, "offsets end at 4"),
        ({"offsets": [0, 3, 2, 3]}, "never decrease"),
        ({"indptr": [0, 1, 3, 9]}, "indptr ends at 9"),
        ({"indices": [0, 0, 2, 1]}, "example 0, token 1: feature number 2"),
        ({"indices": [0, 0, -1, 1]}, "example 0, token 1: feature number -1"),
        ({"values": [1.0, 2.0, 3.0, np.nan]}, "example 2, token 0: feature 1 is nan"),
        ({"values": [np.inf, 2.0, 3.0, 1.0]}, "example 0, token 0: feature 0 is inf"),
        ({"values": [1.0]}, "1 values for 4 indices"),
        ({"labels": [0, 1]}, "2 labels for 3 tokens"),
        ({"labels": [0, 1, -3]}, "example 2, token 0: label number -3"),
        ({"labels": [0.5, 1, 1]}, "labels must be a 1-D array of integers"),
        ({"allowed": np.ones((2, 2), bool)}, "one row for each of the 3 tokens"),
        ({"allowed": [[1, 1], [0, 0], [1, 1]]}, "example 0, token 1: no label is allowed"),
        ({"allowed": [[0, 1], [1, 1], [1, 1]]}, "example 0, token 0: its label 0 is not allowed"),
        ({"allowed": [[1], [1], [1]]}, "example 0, token 1: its label 1 is not allowed"),
        ({"weights": [1.0, -1.0, 0.0]}, "example 1: weight -1.0"),
        ({"weights": [1.0]}, "1 weights for 3 examples"),
    ],
)
def test_bad_arrays_are_refused_with_their_place(changes, message):
    with pytest.raises(DataError, match=message):
        make(**changes)


def test_subset_takes_examples_in_the_order_asked_for_and_twice():
    data = make(allowed=[[1, 0], [0, 1], [1, 1]]).subset([2, 0, 2, 1])
    assert data.offsets.tolist() == [0, 1, 3, 4, 4]
    assert data.features().toarray().tolist() == [[0, 4], [1, 0], [2, 3], [0, 4]]
    assert data.labels.tolist() == [-1, 0, 1, -1]
    assert data.allowed.tolist() == [[1, 1], [1, 0], [0, 1], [1, 1]]
    assert data.weights.tolist() == [3.0, 1.0, 3.0, 2.0]
    assert make().subset([True, False, False]).n_tokens == 2
    with pytest.raises(DataError, match=r"outside 0\.\.2"):
        make().subset([3])


def test_concat_fills_in_defaults_and_refuses_other_features():
    both = Dataset.concat([make(), make(values=None, weights=None)])
    assert both.values.tolist() == [1, 2, 3, 4, 1, 1, 1, 1]
    assert both.weights.tolist() == [1, 2, 3, 1, 1, 1]
    assert both.subset([3, 4, 5]).features().toarray().tolist() == [[1, 0], [1, 1], [0, 1]]
    with pytest.raises(DataError, match="different numbers of features"):
        Dataset.concat([make(), make(n_features=3)])
    with pytest.raises(DataError, match="some have none"):
        Dataset.concat([make(), make(labels=None)])


@given(st.lists(st.integers(0, 4), max_size=6), st.randoms(use_true_random=False))
@settings(max_examples=30, deadline=None)
def test_subset_of_all_parts_concatenated_is_the_whole(lengths, random):
    offsets = np.cumsum([0, *lengths])
    dense = np.array([[random.choice([0, 1, 2.5]) for _ in range(3)] for _ in range(offsets[-1])])
    data = Dataset.from_matrix(dense.reshape(-1, 3), offsets)
    cut = random.randint(0, len(lengths))
    order = np.arange(len(lengths))
    parts = [data.subset(order[:cut]), data.subset(order[cut:])]
    again = Dataset.concat(parts)
    assert np.array_equal(again.features().toarray(), dense.reshape(-1, 3))
    assert again.offsets.tolist() == offsets.tolist()


def test_repeated_entries_of_a_sparse_matrix_are_added_up():
    matrix = csr_matrix((np.array([1.0, 2.0, 5.0]), np.array([1, 1, 0]), np.array([0, 2, 3])))
    data = Dataset.from_matrix(matrix, [0, 2], labels=[0, 1])
    assert (data.indices.tolist(), data.values.tolist()) == ([1, 0], [3.0, 5.0])
    assert data.labels.tolist() == [0, 1]
