"""Trace: named columns of numbers, one row per check; certificates as tables."""

from __future__ import annotations

import copy
import pickle
import sys

import numpy as np
import pytest

from cliquewise.certificate import Certificate
from cliquewise.errors import MissingDependencyError
from cliquewise.trace import COLUMNS, Trace


def test_columns_are_arrays_under_their_names_and_grow_past_the_first_block():
    trace = Trace(["seconds", "gap"])
    for k in range(100):
        trace.append(seconds=k, gap=1.0 / (k + 1))
    assert len(trace) == 100
    np.testing.assert_array_equal(trace.seconds, np.arange(100.0))
    np.testing.assert_array_equal(trace["gap"], 1.0 / np.arange(1, 101))
    assert trace[-1] == {"seconds": 99.0, "gap": 0.01}


def test_a_cell_that_a_row_leaves_out_is_nan():
    trace = Trace()
    trace.append(gap=1.0)
    assert trace.columns == COLUMNS
    assert np.isnan(trace.primal).all() and trace.gap.tolist() == [1.0]


def test_a_column_handed_out_does_not_change_the_trace():
    trace = Trace(["gap"])
    trace.append(gap=1.0)
    trace.gap[0] = 5.0
    assert trace.gap.tolist() == [1.0]


def test_wrong_names_are_errors_that_list_the_right_ones():
    trace = Trace(["gap"])
    with pytest.raises(ValueError, match="gapp"):
        trace.append(gapp=1.0)
    with pytest.raises(KeyError, match="gap"):
        trace.column("nothing")
    with pytest.raises(AttributeError, match="nothing"):
        _ = trace.nothing
    with pytest.raises(IndexError):
        _ = trace[0]
    with pytest.raises(ValueError, match="names"):
        Trace(["append"])
    with pytest.raises(ValueError, match="names"):
        Trace(["gap", "gap"])


def test_it_survives_pickling_and_copying():
    trace = Trace(["gap"])
    trace.append(gap=2.0)
    for other in (pickle.loads(pickle.dumps(trace)), copy.deepcopy(trace)):
        other.append(gap=1.0)
        assert other.gap.tolist() == [2.0, 1.0]
    assert len(trace) == 1


def test_a_frame_has_one_row_per_check():
    pytest.importorskip("pandas")
    trace = Trace(["seconds", "gap"])
    trace.append(seconds=1.0, gap=3.0)
    frame = trace.to_frame()
    assert list(frame.columns) == ["seconds", "gap"] and frame.gap.tolist() == [3.0]
    assert [row["gap"] for row in trace] == [3.0]


def test_it_prints_as_a_table_and_a_long_one_in_part():
    trace = Trace(["epochs", "gap"])
    trace.append(epochs=1.0, gap=0.125)
    assert str(trace) == "epochs    gap\n1       0.125" and repr(trace).startswith("<Trace")
    for epoch in range(2, 100):
        trace.append(epochs=epoch, gap=0.5)
    lines = str(trace).splitlines()
    assert len(lines) == 22 and lines[11].split() == ["...", "..."]
    assert lines[-1].split() == ["99", "0.5"]


def test_a_certificate_prints_as_a_table_and_is_read_back_from_its_repr():
    certificate = Certificate(2.0, 1.5, "exact")
    header, cells = (line.split() for line in str(certificate).splitlines())
    assert dict(zip(header, cells)) == {
        "primal": "2", "dual": "1.5", "gap": "0.25", "rounding": "0", "status": "exact"
    }  # fmt: skip
    assert eval(repr(certificate)) == certificate
    pytest.importorskip("pandas")
    assert certificate.to_frame().gap.tolist() == [0.25]


def test_without_pandas_a_frame_says_what_to_install(monkeypatch):
    monkeypatch.setitem(sys.modules, "pandas", None)
    for result in (Trace(["gap"]), Certificate(1.0)):
        with pytest.raises(MissingDependencyError, match="pip install pandas"):
            result.to_frame()
