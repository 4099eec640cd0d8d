"""What the Tab key shows: names that users want, and no others."""

from __future__ import annotations

import cliquewise as cw
from cliquewise.solvers.registry import registered


def test_the_solvers_are_shown_by_their_class_names():
    shown = dir(cw.solvers)
    assert {solver.__name__ for solver in registered()} <= set(shown)
    assert all(getattr(cw.solvers, name) is not None for name in shown)
    assert "SDCA" in shown and "base" not in shown


def test_the_package_and_its_data_show_what_can_be_used():
    assert {"SequenceTagger", "solvers", "metrics"} <= set(dir(cw))
    assert "split_table" in dir(cw.data) and all(hasattr(cw.data, name) for name in dir(cw.data))
