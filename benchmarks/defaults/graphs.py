"""Graphs: training and prediction on grids."""

from __future__ import annotations

from benchmarks.defaults.rows import Row

ROWS: list[Row] = []
