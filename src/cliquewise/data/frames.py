"""Data frames (pandas, polars) as sequences: one per sequence, or one long table of all.

Neither library is imported: a frame is what has columns with names.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from cliquewise.errors import DataError


def is_frame(x: Any) -> bool:
    """Whether something is a data frame."""
    return hasattr(x, "columns") and hasattr(x, "dtypes")


def frame_rows(frame: Any) -> list[dict[str, Any]]:
    """The rows of a frame, each a dict of column to value.

    Examples
    --------
    >>> import pandas
    >>> frame_rows(pandas.DataFrame({"word": ["a", "b"], "length": [1, 1]}))
    [{'word': 'a', 'length': 1}, {'word': 'b', 'length': 1}]
    """
    return _rows(_cells(frame))


def split_table(
    table: Any, by: str, label: str | None = None, features: Sequence[str] | None = None
) -> tuple[list[list[dict[str, Any]]], list[list[Any]] | None]:
    """One long table of tokens, with a column that says of which sequence each is, as sequences.

    Parameters
    ----------
    table : pandas or polars DataFrame, or dict of column to list
        One row per token, those of a sequence one after the other.
    by : str
        The column that tells the sequences apart. A cell that is empty (None or NaN) continues the
        sequence above it.
    label : str, optional
        The column with the labels.
    features : sequence of str, optional
        The columns to keep; by default all others.

    Returns
    -------
    X : list of lists of dicts
        Per token, its columns.
    y : list of lists, or None
        The labels, if there is a column of them.

    Examples
    --------
    >>> X, y = split_table(
    ...     {"sentence": [1, 1, 2], "word": ["it", "rains", "so"], "tag": ["P", "V", "R"]},
    ...     by="sentence", label="tag",
    ... )
    >>> X[1], y
    ([{'word': 'so'}], [['P', 'V'], ['R']])
    """
    cells = _cells(table)
    special = [by] if label is None else [by, label]
    kept = [name for name in cells if name not in special] if features is None else list(features)
    missing = [name for name in (*special, *kept) if name not in cells]
    if missing:
        raise DataError(f"the table has no column {missing[0]!r}; it has {', '.join(cells)}")
    starts = _starts(cells[by], by)
    ends = [*starts[1:], len(cells[by])]
    rows = _rows({name: cells[name] for name in kept}, len(cells[by]))
    X = [rows[a:b] for a, b in zip(starts, ends, strict=True)]
    if label is None:
        return X, None
    return X, [cells[label][a:b] for a, b in zip(starts, ends, strict=True)]


def _starts(ids: list[Any], by: str) -> list[int]:
    """The rows at which a sequence begins; one that comes back is an error."""
    starts: list[int] = []
    seen: dict[Any, int] = {}
    current: Any = None
    for row, own in enumerate(ids):
        if own is None or own != own:
            if not starts:
                raise DataError(f"row {row}: the first cell of column {by!r} is empty")
            continue
        if starts and own == current:
            continue
        if own in seen:
            raise DataError(
                f"row {row}: {by} {own!r} comes back; it began in row {seen[own]} and others "
                f"followed. Sort the table by {by!r} first, or make its values unique"
            )
        seen[own], current = row, own
        starts.append(row)
    return starts


def _cells(table: Any) -> dict[str, list[Any]]:
    """The columns of a table as lists of plain values."""
    if is_frame(table):
        names = list(table.columns)
    elif isinstance(table, Mapping):
        names = list(table)
    else:
        raise DataError(f"a table is a data frame or a dict of columns, not {type(table).__name__}")
    columns = {str(name): np.asarray(table[name]) for name in names}
    if len(columns) != len(names) or any(c.ndim != 1 for c in columns.values()):
        raise DataError("a table has one column per name, each with one value per row")
    if len({len(c) for c in columns.values()}) > 1:
        raise DataError("the columns of a table are equally long")
    return {name: column.tolist() for name, column in columns.items()}


def _rows(cells: dict[str, list[Any]], length: int = 0) -> list[dict[str, Any]]:
    if not cells:
        return [{} for _ in range(length)]
    return [dict(zip(cells, row, strict=True)) for row in zip(*cells.values(), strict=True)]
