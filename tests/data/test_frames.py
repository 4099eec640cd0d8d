"""Data frames, long tables and arrays of objects as sequences."""

import numpy as np
import pytest

from cliquewise.data import FeatureEncoder, Labels, split_table
from cliquewise.data.conversion import SequenceEncoder
from cliquewise.errors import DataError

LISTS = [[["a", "b"], ["b", "c"]], [["a", "a"], ["c", "b"]]]


def same(one, other):
    for name in ("offsets", "indptr", "indices", "values"):
        np.testing.assert_array_equal(getattr(one, name), getattr(other, name))


def of_objects(values):
    """A 1-D array whose items are whatever they are."""
    array = np.empty(len(values), dtype=object)
    array[:] = values
    return array


@pytest.mark.parametrize(
    "form",
    [
        np.array(LISTS),
        np.array(LISTS, dtype=object),
        [np.array(x, dtype=object) for x in LISTS],
        [np.array(x) for x in LISTS],
        [of_objects(x) for x in LISTS],
        of_objects(LISTS),
    ],
    ids=["strings", "objects", "2-D objects", "2-D strings", "arrays of lists", "array of all"],
)
def test_arrays_of_strings_and_objects_are_lists(form):
    same(FeatureEncoder().fit_transform(form), FeatureEncoder().fit_transform(LISTS))


def test_an_array_of_dicts_and_one_of_numbers_as_objects_work():
    dicts = np.array([[{"w": "a"}, {"w": "b"}]], dtype=object)
    same(FeatureEncoder().fit_transform(dicts), FeatureEncoder().fit_transform(dicts.tolist()))
    numbers = np.array([[1, 2.5], [0, True]], dtype=object)
    encoder = FeatureEncoder()
    same(encoder.fit_transform([numbers]), encoder.fit_transform([numbers.astype(float)]))
    assert encoder.kind == "numbers"


def test_an_array_of_words_is_refused_and_told_what_a_token_is():
    with pytest.raises(DataError, match=r"give a list of attributes, \['the'\]"):
        FeatureEncoder().fit_transform([np.array(["the", "dog"])])


def test_a_frame_per_sequence_is_a_list_of_dicts():
    pandas = pytest.importorskip("pandas")
    frames = [
        pandas.DataFrame({"word": ["a", "b"], "length": [1, 2.5], "upper": [True, False]}),
        pandas.DataFrame({"word": ["b"], "length": [1], "upper": [True]}, index=[7]),
    ]
    dicts = [
        [{"word": "a", "length": 1, "upper": 1}, {"word": "b", "length": 2.5, "upper": 0}],
        [{"word": "b", "length": 1, "upper": 1}],
    ]
    encoder = FeatureEncoder()
    same(encoder.fit_transform(frames), FeatureEncoder().fit_transform(dicts))
    assert encoder.vocabulary == ["word:a", "length", "upper", "word:b"]
    numbers = pandas.DataFrame(np.eye(2))  # whose columns have numbers for names
    assert FeatureEncoder().fit_transform([numbers]).n_features == 2
    with pytest.raises(DataError, match=r"example 0, token 1: attribute 'x' is nan"):
        FeatureEncoder().fit_transform([pandas.DataFrame({"x": [1.0, np.nan]})])


def test_a_frame_per_sequence_works_with_a_template():
    pandas = pytest.importorskip("pandas")
    rows = [[["Rome", "NNP"], ["is", "VB"]]]
    frames = [pandas.DataFrame(rows[0], columns=["word", "pos"])]
    expected = SequenceEncoder("chunking").fit_transform(rows)
    same(SequenceEncoder("chunking").fit_transform(frames), expected)
    same(SequenceEncoder("chunking").fit_transform([np.array(rows[0], dtype=object)]), expected)
    with pytest.raises(DataError, match="one data frame"):
        SequenceEncoder("chunking").fit_transform(frames[0])


def test_one_long_frame_is_refused_and_told_how_to_split_it():
    pandas = pytest.importorskip("pandas")
    table = pandas.DataFrame({"sentence": [1, 1, 2], "word": ["a", "b", "a"], "tag": list("XYX")})
    with pytest.raises(DataError, match="split_table"):
        FeatureEncoder().fit_transform(table)
    with pytest.raises(DataError, match="split_table"):
        Labels.fit(table.tag)
    X, y = split_table(table, by="sentence", label="tag")
    assert X == [[{"word": "a"}, {"word": "b"}], [{"word": "a"}]] and y == [["X", "Y"], ["X"]]
    assert Labels.fit([table.tag]).classes == ["X", "Y"]  # a Series per sequence


def test_empty_cells_continue_a_sequence_and_columns_can_be_chosen():
    table = {"id": ["s1", None, float("nan"), "s2"], "w": list("abcd"), "p": [1, 2, 3, 4]}
    X, y = split_table(table, by="id", features=["p"])
    assert X == [[{"p": 1}, {"p": 2}, {"p": 3}], [{"p": 4}]] and y is None
    assert split_table({"id": [1, 1]}, by="id") == ([[{}, {}]], None)


def test_rows_of_a_sequence_may_be_anywhere():
    X, y = split_table({"id": [2, 1, 2], "w": list("abc"), "t": list("XYZ")}, by="id", label="t")
    assert X == [[{"w": "a"}, {"w": "c"}], [{"w": "b"}]] and y == [["X", "Z"], ["Y"]]


@pytest.mark.parametrize(
    ("table", "message"),
    [
        ({"id": [None, 2], "w": list("ab")}, "row 0: the first cell of column 'id' is empty"),
        ({"w": list("ab")}, "no column 'id'; it has w"),
        ({"id": [1, 2], "w": ["a"]}, "equally long"),
        ([1, 2], "a data frame or a dict of columns, not list"),
    ],
)
def test_tables_that_cannot_be_split_say_why(table, message):
    with pytest.raises(DataError, match=message):
        split_table(table, by="id")
