"""Label sets: which pairs, which solver."""

from __future__ import annotations

from benchmarks.defaults.rows import Row

ROWS: list[Row] = []
