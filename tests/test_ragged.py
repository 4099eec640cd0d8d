"""Ragged: views of one flat array."""

from __future__ import annotations

import pickle

import numpy as np
import pytest

from cliquewise.graph.structure import Structure
from cliquewise.ragged import Ragged, first_best, gather, offsets_of, owner_of


@pytest.fixture
def rows() -> Ragged:
    return Ragged(np.arange(6.0), np.array([0, 2, 2, 6]))


def test_rows_are_views_of_the_flat_array(rows: Ragged) -> None:
    assert [r.tolist() for r in rows] == [[0.0, 1.0], [], [2.0, 3.0, 4.0, 5.0]]
    assert np.shares_memory(rows[2], rows.flat)


def test_negative_indices_and_slices_work_as_in_a_list(rows: Ragged) -> None:
    assert rows[-1].tolist() == [2.0, 3.0, 4.0, 5.0]
    assert rows[-3].tolist() == [0.0, 1.0]
    assert [len(r) for r in rows[::-1]] == [4, 0, 2]
    assert rows[5:] == []


@pytest.mark.parametrize("index", [3, -4, 100])
def test_an_index_out_of_range_is_an_index_error_that_names_it(rows: Ragged, index: int) -> None:
    with pytest.raises(IndexError, match=str(index)):
        rows[index]


def test_shapes_come_from_the_structure() -> None:
    structure = Structure([2, 3], [(0,), (1, 0)])
    tables = Ragged(np.arange(8.0), structure.table_offsets, structure.shape)
    assert tables[1].shape == (3, 2)
    assert tables[1][2, 1] == 7.0


def test_equal_rows_stack_into_one_array() -> None:
    rows = Ragged(np.arange(6.0), np.array([0, 3, 6]))
    assert np.array_equal(np.asarray(rows), [[0, 1, 2], [3, 4, 5]])
    assert np.asarray(rows, dtype=np.float32).dtype == np.float32


def test_unequal_rows_refuse_to_stack(rows: Ragged) -> None:
    with pytest.raises(ValueError, match="different sizes"):
        np.asarray(rows)


def test_the_text_shows_six_rows_and_counts_the_rest() -> None:
    assert repr(Ragged(np.zeros(8), np.arange(9))).endswith("2 more]")
    assert repr(Ragged(np.zeros(0), np.array([0]))) == "[]"


def test_pickling_keeps_rows_and_shapes() -> None:
    structure = Structure([2, 3], [(1, 0)])
    tables = Ragged(np.arange(6.0), structure.table_offsets, structure.shape)
    again = pickle.loads(pickle.dumps(tables))
    assert np.array_equal(again[0], tables[0])


def test_offsets_hold_every_size_and_start_at_zero() -> None:
    assert offsets_of([]).tolist() == [0]
    for sizes in ([2, 0, 3], np.array([2.0, 0.0, 3.0]), np.array([2, 0, 3], dtype=np.int32)):
        found = offsets_of(sizes)
        assert found.tolist() == [0, 2, 2, 5] and found.dtype == np.int64


def test_the_owner_of_an_entry_is_never_an_empty_stretch() -> None:
    offsets = np.array([0, 2, 2, 5])
    assert [owner_of(offsets, at) for at in range(5)] == [(0, 0), (0, 1), (2, 0), (2, 1), (2, 2)]


def test_gathered_stretches_come_in_the_order_asked_for() -> None:
    offsets = np.array([0, 2, 2, 5])
    entries, new = gather(offsets, np.array([2, 1, 0, 2]))
    assert entries.tolist() == [2, 3, 4, 0, 1, 2, 3, 4]
    assert new.tolist() == [0, 3, 3, 5, 8]


def test_the_first_of_equal_maxima_is_found_in_every_stretch() -> None:
    rng = np.random.default_rng(0)
    sizes = rng.integers(1, 6, 50)
    offsets = offsets_of(sizes)
    flat = rng.integers(0, 3, offsets[-1]).astype(float)
    flat[flat == 0] = -np.inf
    expected = [int(np.argmax(part)) for part in np.split(flat, offsets[1:-1])]
    assert first_best(flat, offsets).tolist() == expected
    assert first_best(np.empty(0), offsets_of([])).tolist() == []
