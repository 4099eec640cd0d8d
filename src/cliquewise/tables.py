"""Results as tables: aligned text for ``print``, and pandas data frames."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from cliquewise.errors import MissingDependencyError


def text_table(header: Sequence[Any], rows: Iterable[Sequence[Any]]) -> str:
    """Return a text table: the first column is aligned to the left, the others to the right.

    Examples
    --------
    >>> print(text_table(["type", "f1"], [["NP", 0.5], ["VP", 1.0]]))
    type   f1
    NP    0.5
    VP      1
    """
    cells = [[_text(cell) for cell in row] for row in (header, *rows)]
    widths = [max(map(len, column)) for column in zip(*cells, strict=True)]
    lines = (
        "  ".join(
            cell.rjust(width) if i else cell.ljust(width)
            for i, (cell, width) in enumerate(zip(row, widths, strict=True))
        )
        for row in cells
    )
    return "\n".join(line.rstrip() for line in lines)


def frame(columns: Mapping[Any, Any], index: Sequence[Any] | None = None) -> Any:
    """Return a pandas DataFrame.

    Examples
    --------
    >>> frame({"f1": [0.5, 1.0]}, ["NP", "VP"]).shape
    (2, 1)
    """
    try:
        import pandas
    except ImportError as error:
        raise MissingDependencyError("to_frame needs pandas: pip install pandas") from error
    return pandas.DataFrame(dict(columns), index=index)


def _text(cell: Any) -> str:
    return f"{cell:.6g}" if isinstance(cell, float) else str(cell)
