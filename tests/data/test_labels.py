"""Labels: any hashable class, unknown and partial labels, lengths that do not fit."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from cliquewise.data import Labels
from cliquewise.errors import DataError


def offsets_of(y):
    return np.cumsum([0, *map(len, y)])


@given(st.lists(st.lists(st.text(max_size=3) | st.integers(), max_size=4), max_size=4))
def test_decoding_undoes_encoding_for_strings_and_integers(y):
    labels = Labels.fit(y)
    numbers, allowed = labels.encode(y, offsets_of(y))
    assert allowed is None
    assert labels.decode(numbers, offsets_of(y)) == y


def test_classes_are_sorted_where_they_can_be():
    assert Labels.fit([["b", "a c", "a"]]).classes == ["a", "a c", "b"]
    assert Labels.fit([np.array([3, 1])]).classes == [1, 3]
    assert Labels.fit(np.array([[3, 1], [2, 1]])).classes == [1, 2, 3]
    assert Labels.fit([["b", 1, "a"]]).classes == ["b", 1, "a"]
    assert type(Labels.fit([np.array([3, 1])]).classes[0]) is int


def test_numpy_labels_and_python_labels_are_the_same():
    labels = Labels.fit([[1, 2]])
    assert labels.encode([np.array([2, 1])], [0, 2])[0].tolist() == [1, 0]


def test_unknown_and_partial_labels_become_a_mask():
    y = [["A", None], [{"A", "B"}, ("C",), frozenset(["B", "C"])]]
    labels = Labels.fit(y)
    assert labels.classes == ["A", "B", "C"]
    numbers, allowed = labels.encode(y, [0, 2, 5])
    assert numbers.tolist() == [0, -1, -1, 2, -1]
    assert allowed.astype(int).tolist() == [[1, 1, 1], [1, 1, 1], [1, 1, 0], [1, 1, 1], [0, 1, 1]]
    assert labels.decode(numbers, [0, 2, 5]) == [["A", None], [None, "C", None]]


def test_none_alone_needs_no_mask():
    numbers, allowed = Labels(["A"]).encode([["A", None]], [0, 2])
    assert (numbers.tolist(), allowed) == ([0, -1], None)


def test_a_label_never_seen_is_an_error_or_minus_one():
    labels = Labels(["A", "B"])
    with pytest.raises(DataError, match="example 1, token 0: the label 'Z' is not a class"):
        labels.encode([["A"], ["Z"]], [0, 1, 2])
    assert labels.encode([["A"], ["Z"]], [0, 1, 2], unknown=-1)[0].tolist() == [0, -1]
    with pytest.raises(DataError, match="'Z' is not a class"):
        labels.encode([[{"A", "Z"}]], [0, 1])
    with pytest.raises(DataError, match="no label is allowed"):
        labels.encode([[set()]], [0, 1])


@pytest.mark.parametrize(
    ("y", "message"),
    [
        ([["A"]], "y has 1 sequences, X has 2"),
        ([["A"], ["A"]], "example 1 has 2 tokens but 1 labels"),
        (["A", "AB"], "example 0: its labels must be a list"),
        ("AB", "y must be a list of sequences"),
        ([["A"], 3], "example 1: its labels must be a list"),
    ],
)
def test_labels_that_do_not_fit_are_refused_with_the_example(y, message):
    with pytest.raises(DataError, match=message):
        Labels(["A"]).encode(y, [0, 1, 3])


def test_a_list_is_no_label():
    for use in (Labels.fit, lambda y: Labels(["A"]).encode(y, [0, 2])):
        with pytest.raises(DataError, match="a label cannot be a list"):
            use([["A", ["B"]]])


def test_nan_is_no_label_and_a_class_is_named_once():
    with pytest.raises(DataError, match="NaN"):
        Labels.fit([[float("nan")]])
    with pytest.raises(DataError, match="twice"):
        Labels(["A", "A"])


def test_classes_of_sets_that_cannot_be_sorted_have_one_order():
    mixed = {1, "a", 2, "b", 3, "c", 4, "d"}
    assert Labels.fit([[mixed]]).classes == sorted(mixed, key=repr)
