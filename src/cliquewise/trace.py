"""Trace: the progress of an iterative method, one row per check."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

import numpy as np
from numpy.typing import NDArray

from cliquewise.tables import frame, text_table

#: Largest number of rows that ``print`` shows.
MOST_ROWS = 20

#: The columns of training; other methods have other columns.
COLUMNS = ("seconds", "epochs", "oracle_calls", "primal", "dual", "gap")


class Trace:
    """Rows of numbers with named columns, for plots, tables, progress bars and stopping rules.

    ``trace["gap"]`` and ``trace.gap`` return a column as a NumPy array. Missing cells are NaN.

    Parameters
    ----------
    columns : iterable of str, default=COLUMNS

    Examples
    --------
    >>> trace = Trace(["seconds", "gap"])
    >>> trace.append(seconds=0.5, gap=2.0)
    >>> trace.append(seconds=1.0, gap=1.0)
    >>> len(trace), trace.gap
    (2, array([2., 1.]))
    """

    def __init__(self, columns: Iterable[str] = COLUMNS):
        self.columns = tuple(columns)
        taken = [c for c in self.columns if hasattr(type(self), c) or not c.isidentifier()]
        if taken or len(set(self.columns)) != len(self.columns):
            raise ValueError(
                f"columns need unique names that are not attributes of Trace: {self.columns}"
            )
        self._cells = np.empty((16, len(self.columns)))
        self._length = 0

    def append(self, **row: float) -> None:
        """Add a row; missing columns are NaN.

        Examples
        --------
        >>> trace = Trace()
        >>> trace.append(seconds=1.0, gap=0.1)
        >>> trace[-1]["gap"]
        0.1
        """
        unknown = set(row) - set(self.columns)
        if unknown:
            raise ValueError(f"unknown columns {sorted(unknown)}; they are {self.columns}")
        if self._length == len(self._cells):
            self._cells = np.concatenate([self._cells, np.empty_like(self._cells)])
        self._cells[self._length] = [row.get(c, np.nan) for c in self.columns]
        self._length += 1

    def column(self, name: str) -> NDArray[np.float64]:
        """Return all values of a column.

        Examples
        --------
        >>> Trace(["gap"]).column("gap")
        array([], dtype=float64)
        """
        if name not in self.columns:
            raise KeyError(f"no column {name!r}; they are {self.columns}")
        return self._cells[: self._length, self.columns.index(name)].copy()

    def __getattr__(self, name: str) -> NDArray[np.float64]:
        # Called only for missing attributes; copy and pickle call it before __init__.
        if name.startswith("_") or name == "columns" or name not in self.columns:
            raise AttributeError(f"{type(self).__name__!r} has no attribute or column {name!r}")
        return self.column(name)

    def __getitem__(self, key: str | int) -> Any:
        if isinstance(key, str):
            return self.column(key)
        i = key + self._length if key < 0 else key
        if not 0 <= i < self._length:
            raise IndexError(f"row {key} is out of range for {self._length} rows")
        return dict(zip(self.columns, self._cells[i].tolist(), strict=True))

    def __len__(self) -> int:
        return self._length

    def __iter__(self) -> Iterator[dict[str, float]]:
        return (self[i] for i in range(len(self)))

    def to_frame(self) -> Any:
        """Return a pandas DataFrame.

        Examples
        --------
        >>> Trace(["gap"]).to_frame().shape
        (0, 1)
        """
        return frame({name: self.column(name) for name in self.columns})

    def __repr__(self) -> str:
        return f"<Trace: {len(self)} rows of {', '.join(self.columns)}>"

    def _repr_html_(self) -> str:
        """Draw the gap, or the bounds, over seconds, epochs or rows."""
        from cliquewise.report.notebook import curve, escaped

        measures = ("gap", "lower", "upper", "primal", "dual")
        shown = [name for name in measures if name in self.columns] or list(self.columns[-1:])
        lines = shown[:1] if shown[0] == "gap" else shown
        columns = {name: self.column(name).tolist() for name in self.columns}
        known = ("seconds", "epochs")  # the times of models from files are NaN
        steps = [c for c in known if c in self.columns and np.isfinite(self.column(c)).all()]
        step = steps[0] if steps else "rows"
        columns.setdefault("rows", list(map(float, range(len(self)))))
        return f"{curve(columns, lines, step)}<br><small>{escaped(repr(self))}</small>"

    def __str__(self) -> str:
        """Return a table of all rows, or of the first and last ones if there are many."""
        rows: list[list[Any]] = [list(row.values()) for row in self]
        if len(rows) > MOST_ROWS:
            half = MOST_ROWS // 2
            rows = [*rows[:half], ["..."] * len(self.columns), *rows[-half:]]
        return text_table(self.columns, rows)
