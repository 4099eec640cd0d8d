"""What every benchmark needs: warm timing, a table, and a last line for machines."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterable, Sequence
from typing import Any

import numpy as np


def seconds(
    function: Callable[[], Any],
    repeats: int = 5,
    warm: bool = True,
    clock: Callable[[], float] = time.perf_counter,
) -> float:
    """Least time of several calls, after one that is not counted; wall time unless told.

    The least, not the mean: other processes only ever add time.
    """
    if warm:
        function()
    best = float("inf")
    for _ in range(repeats):
        start = clock()
        function()
        best = min(best, clock() - start)
    return best


def geometric_mean(ratios: Iterable[float]) -> float:
    """Geometric mean, the mean that suits ratios."""
    return float(np.exp(np.mean(np.log(list(ratios)))))


def print_table(title: str, columns: Sequence[str], rows: Iterable[Sequence[Any]]) -> None:
    """Print a table; numbers are rounded to three significant digits."""
    from rich.console import Console
    from rich.table import Table

    table = Table(title=title)
    for column in columns:
        table.add_column(column, justify="right")
    for row in rows:
        table.add_row(*(f"{cell:.3g}" if isinstance(cell, float) else str(cell) for cell in row))
    Console(width=100).print(table)


def print_json(result: dict[str, Any]) -> None:
    """Print the result as one line of JSON: call it last."""
    print(json.dumps(result))
