"""Sequences: templates, solvers, input kinds."""

from __future__ import annotations

from benchmarks.defaults.rows import Row

ROWS: list[Row] = []
