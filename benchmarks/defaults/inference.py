"""Inference: MAP and marginals of one graph."""

from __future__ import annotations

from benchmarks.defaults.rows import Row

ROWS: list[Row] = []
