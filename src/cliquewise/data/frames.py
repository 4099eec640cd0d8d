"""Convert tables (pandas, polars, pyarrow, dicts of columns) to sequences, and answers to tables.

One row per token with a column that tells the sequences apart; or one row per sequence whose
columns hold lists. Frames are read by way of narwhals, which comes with scikit-learn; none of the
libraries is imported for a table of another.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from itertools import chain, pairwise
from typing import Any

import numpy as np

from cliquewise.data.column_values import as_narwhals, plain_cells
from cliquewise.data.columns import Columns
from cliquewise.errors import DataError
from cliquewise.ragged import Ints, offsets_of

#: Types that are never tables.
_PLAIN = (list, tuple, str, bytes, np.ndarray)


def is_frame(x: Any) -> bool:
    """Return whether ``x`` is a data frame."""
    kind = type(x)  # not of itself: lazy frames would look for them
    return hasattr(kind, "columns") and hasattr(kind, "dtypes")


def is_table(x: Any) -> bool:
    """Return whether ``x`` is a data frame or a pyarrow table."""
    return is_frame(x) or (hasattr(x, "column_names") and hasattr(x, "to_pylist"))


def frame_rows(frame: Any) -> list[dict[str, Any]]:
    """Return the rows of a frame as dicts of column to value.

    Examples
    --------
    >>> import pandas
    >>> frame_rows(pandas.DataFrame({"word": ["a", "b"], "length": [1, 1]}))
    [{'word': 'a', 'length': 1}, {'word': 'b', 'length': 1}]
    """
    names = list(frame.columns) if is_frame(frame) else list(frame.column_names)
    columns = {str(name): np.asarray(frame[name]) for name in names}
    if len(columns) != len(names) or any(c.ndim != 1 for c in columns.values()):
        raise DataError("a table has one column per name, each with one value per row")
    return _rows({name: column.tolist() for name, column in columns.items()})


def split_table(
    table: Any, by: str, label: str | None = None, features: Sequence[str] | None = None
) -> tuple[list[list[dict[str, Any]]], list[list[Any]] | None]:
    """Split a table with one row per token into sequences, by the values of a column.

    ``SequenceTagger(sequence_column=...)`` takes such tables as they are, and answers with columns.

    Parameters
    ----------
    table : pandas, polars or pyarrow table, or dict of column to list
        One row per token. Sequences are in the order of their first rows, and tokens in that of
        theirs, wherever they are.
    by : str
        The column that tells the sequences apart. A cell that is empty (None, NaN or "") continues
        the sequence above it.
    label : str, optional
        The column with the labels; an empty cell is a label that is not known, None.
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
    known = Table.of(table)
    if known is None:
        raise DataError(f"a table is a data frame or a dict of columns, not {type(table).__name__}")
    layout = Layout.of(known, by, features, label)
    X = layout.sequences(_rows(layout.cells(), len(known)))
    return X, None if label is None else layout.labels(label, "label")


class Table:
    """Named columns of any data frame library.

    Parameters
    ----------
    columns : mapping of name to column
    frame : narwhals DataFrame, optional
        The table, if it is one of a library: answers are of the same.
    """

    def __init__(self, columns: Mapping[Any, Any], frame: Any = None):
        self._columns = {str(name): column for name, column in columns.items()}
        if len(self._columns) != len(columns):
            raise DataError("a table has one column per name, each with one value per row")
        self._frame = frame
        self._cells: dict[str, list[Any]] = {}
        odd = [name for name, column in self._columns.items() if not _is_column(column)]
        if odd:
            raise DataError(f"column {odd[0]!r} of the table is no list or array of values")
        lengths = {len(column) for column in self._columns.values()}
        if len(lengths) > 1:
            raise DataError("the columns of a table are equally long")
        self._length = lengths.pop() if lengths else 0

    @classmethod
    def of(cls, x: Any) -> Table | None:
        """Return ``x`` as a table; None if it is not one."""
        if isinstance(x, _PLAIN) or hasattr(x, "tocsr"):  # one kind of sparse matrix is a dict
            return None
        if isinstance(x, Mapping):
            return cls(x)
        if is_table(x):
            frame = as_narwhals(x)
            return cls({name: frame.get_column(name) for name in frame.columns}, frame)
        names = getattr(x, "column_names", None)  # of Hugging Face's datasets
        if isinstance(names, list):
            return cls({name: list(x[name]) for name in names})
        return None

    def __len__(self) -> int:
        return self._length

    @property
    def names(self) -> list[str]:
        """Names of the columns."""
        return list(self._columns)

    def cells(self, name: str) -> list[Any]:
        """Return the values of a column, None for empty cells."""
        if name not in self._columns:
            raise DataError(
                f"the table has no column {name!r}; it has {', '.join(self.names)}"
                + self._where_else(name)
            )
        if name not in self._cells:
            self._cells[name] = plain_cells(self._columns[name])
        return self._cells[name]

    def _where_else(self, name: str) -> str:
        """Return a hint if the missing column is the pandas index."""
        index = None if self._frame is None else getattr(self._frame.to_native(), "index", None)
        if name in (getattr(index, "names", None) or ()):
            return "; it is the index, which table.reset_index() makes a column of"
        return ""

    @property
    def is_pandas(self) -> bool:
        """Whether the rows have an index."""
        return self._frame is not None and hasattr(self._frame.to_native(), "index")

    def column(self, values: list[Any], name: str) -> Any:
        """Return values of all rows as a column of the same library (a list, for dicts)."""
        if self._frame is None:
            return values
        import narwhals.stable.v1 as nw

        backend = nw.get_native_namespace(self._frame)
        return self._aligned(nw.new_series(name, values, backend=backend))

    def frame(self, columns: dict[str, Any], same_rows: bool) -> Any:
        """Return a table of the same library (a dict, for dicts)."""
        if self._frame is None:
            return {n: c.tolist() if isinstance(c, np.ndarray) else c for n, c in columns.items()}
        import narwhals.stable.v1 as nw

        made = nw.from_dict(columns, backend=nw.get_native_namespace(self._frame))
        return self._aligned(made) if same_rows else made.to_native()

    def _aligned(self, made: Any) -> Any:
        """Return a column or table with this table's index, if its library has one."""
        import narwhals.stable.v1 as nw

        native, index = made.to_native(), nw.maybe_get_index(self._frame)
        if index is not None:
            native.index = index
        return native


@dataclass(frozen=True)
class TableSchema:
    """Columns of the table that a model was trained on.

    Parameters
    ----------
    columns : list of str
        Names of the columns that describe tokens.
    label : str, optional
        Name of the column of the labels.
    kinds : dict of str to {"text", "other"}
        The kind of values in each column.
    """

    columns: list[str]
    label: str | None = None
    kinds: dict[str, str] = field(default_factory=dict)


@dataclass(frozen=True, eq=False)
class Layout:
    """Assignment of the rows of a table to sequences.

    Attributes
    ----------
    table : Table
    columns : list of str
        Those that describe tokens.
    offsets : int array (n_sequences + 1)
    ids : list
        What tells the sequences apart: cells, or numbers of rows.
    order : int array (n_rows), or None
        The rows of all sequences, one after the other; None where a row is a sequence.
    """

    table: Table
    columns: list[str]
    offsets: Ints
    ids: list[Any]
    order: Ints | None

    @classmethod
    def of(
        cls,
        table: Table,
        by: str | None,
        columns: Sequence[str] | None = None,
        *others: str | None,
    ) -> Layout:
        """Read the column ``by``, or lists where there is none; ``others`` describe no tokens."""
        if _is_column(by):
            raise DataError(
                f"by is the name of a column of the table, not the {type(by).__name__} itself"
            )
        special = [name for name in (by, *others) if name is not None]
        for name in (*special, *(columns or ())):
            table.cells(name)
        if columns is None:
            columns = [name for name in table.names if name not in special]
            if by is None:
                columns = [name for name in columns if _holds_lists(table.cells(name))]
        if by is not None:
            order, offsets, ids = _groups(table.cells(by), by)
            return cls(table, list(columns), offsets, ids, order)
        if not columns and len(table):
            raise DataError(
                "a table with a row per sequence needs columns of lists; where a row is a token, "
                "name the column that identifies the sequence: "
                'SequenceTagger(sequence_column="sentence"), or '
                'cliquewise.data.split_table(table, by="sentence", label="tag")'
            )
        offsets = offsets_of(_lengths(table, columns))
        return cls(table, list(columns), offsets, list(range(len(table))), None)

    def sequences(self, values: list[Any]) -> list[list[Any]]:
        """Split values, one per row or per token, into sequences."""
        flat, bounds = self._in_order(values), self.offsets.tolist()
        return [flat[a:b] for a, b in pairwise(bounds)]

    def _in_order(self, values: list[Any]) -> list[Any]:
        """Return the values of rows, grouped by sequence."""
        if self.order is None or bool(np.all(self.order[1:] > self.order[:-1])):
            return values
        return [values[row] for row in self.order.tolist()]

    def scattered(self, sequences: Sequence[Any]) -> list[Any]:
        """Return the values of sequences as one value per row: the inverse of :meth:`sequences`."""
        if self.order is None:
            return [list(s) for s in sequences]
        out: list[Any] = [None] * len(self.order)
        for row, value in zip(self.order.tolist(), chain.from_iterable(sequences), strict=True):
            out[row] = value
        return out

    def cells(self) -> dict[str, list[Any]]:
        """The columns of tokens: one value per row, or all lists joined."""
        found = {name: self.table.cells(name) for name in self.columns}
        if self.order is None:
            found = {n: list(chain.from_iterable(c or () for c in v)) for n, v in found.items()}
        for name, values in found.items():
            if None in values:
                place = "row" if self.order is not None else "token"
                hint = " (pandas takes words such as NA and null for empty cells: read_csv(..., "
                hint = f"{hint}keep_default_na=False) keeps them)" if self.table.is_pandas else ""
                raise DataError(
                    f"{place} {values.index(None)}: column {name!r} is empty; fill it, or leave "
                    f"the column out{hint}"
                )
        return found

    def kinds(self) -> dict[str, str]:
        """Return the kind of each column, "text" or "other"; columns that are both are left out."""
        found = {name: {v is str for v in map(type, c)} for name, c in self.cells().items()}
        return {
            n: "text" if min(is_text) else "other"
            for n, is_text in found.items()
            if len(is_text) == 1
        }

    def tokens(self, as_text: bool | None = None) -> tuple[Any, bool]:
        """Return columns of text or sequences of dicts; by default the former if all is text."""
        cells = self.cells()
        if as_text is None:
            as_text = bool(cells) and all({str}.issuperset(map(type, c)) for c in cells.values())
        if not as_text:
            return self.sequences(_rows(cells, int(self.offsets[-1]))), False
        for name, values in cells.items():
            if not {str}.issuperset(map(type, values)):
                odd = next((v for v in values if not isinstance(v, str)), None)
                if odd is not None:
                    raise DataError(
                        f"column {name!r} holds {odd!r:.40}; with a template all columns are text"
                    )
        return Columns([self._in_order(c) for c in cells.values()], self.offsets), True

    def given(self, values: Any, name: str) -> list[list[Any]]:
        """Return sequences of a column, given by its name or by one value per row."""
        cells = self.table.cells(values) if isinstance(values, str) else plain_cells(values)
        if len(cells) != len(self.table):
            raise DataError(
                f"{name} has {len(cells)} values, the table {len(self.table)} rows: give one for "
                "each row, or the name of a column"
            )
        if self.order is not None:
            return self.sequences(cells)
        lengths = np.diff(self.offsets).tolist()
        return [[None] * n if c is None else list(c) for c, n in zip(cells, lengths, strict=True)]

    def labels(self, values: Any, name: str = "y") -> list[list[Any]]:
        """Return the labels of the tokens, None for empty cells."""
        found = self.given(values, name)
        if self.order is None:
            return found
        if any(isinstance(label, list) for sequence in found for label in sequence[:1]):
            raise DataError(
                f"{name} holds lists: a row of this table is a sequence, so leave out "
                "sequence_column"
            )
        empty = any("" in sequence for sequence in found)
        return [[None if c == "" else c for c in s] for s in found] if empty else found


def _is_column(x: Any) -> bool:
    return hasattr(x, "__len__") and not isinstance(x, str | bytes | Mapping)


def _holds_lists(cells: list[Any]) -> bool:
    """Return whether all cells of a column are lists or empty."""
    return all(cell is None or isinstance(cell, list | tuple) for cell in cells)


def _lengths(table: Table, columns: Sequence[str]) -> list[int]:
    """Return the length of the lists in each row, the same in all columns."""
    lengths: list[int] = [0] * len(table)
    for at, name in enumerate(columns):
        if not _holds_lists(table.cells(name)):
            raise DataError(f"column {name!r} does not hold lists, one for each sequence")
        own = [0 if cell is None else len(cell) for cell in table.cells(name)]
        if at and own != lengths:
            row = next(
                i for i, pair in enumerate(zip(own, lengths, strict=True)) if len({*pair}) > 1
            )
            raise DataError(
                f"row {row}: {own[row]} values in column {name!r}, {lengths[row]} in {columns[0]!r}"
            )
        lengths = own
    return lengths


def _groups(ids: list[Any], by: str) -> tuple[Ints, Ints, list[Any]]:
    """Return the rows grouped by sequence, the offsets, and the ids of the sequences."""
    try:
        numbers = {own: number for number, own in enumerate(dict.fromkeys(ids))}
    except TypeError:
        row = next((i for i, own in enumerate(ids) if isinstance(own, list | dict | set)), 0)
        raise DataError(
            f"row {row}: {by} is {ids[row]!r:.60}; an id is a number or a string"
        ) from None
    empty = [numbers.pop(own) for own in (None, "") if own in numbers]
    owners = np.fromiter(map({**numbers, None: -1, "": -1}.__getitem__, ids), np.int64, len(ids))
    if empty:
        if owners[0] < 0:
            raise DataError(f"row 0: the first cell of column {by!r} is empty")
        known = np.maximum.accumulate(np.where(owners < 0, 0, np.arange(len(ids))))
        _, owners = np.unique(owners[known], return_inverse=True)  # numbers without holes
    sizes = np.bincount(owners, minlength=len(numbers))
    return np.argsort(owners, kind="stable"), offsets_of(sizes), list(numbers)


def grouped(by: Any, *columns: Any) -> list[list[list[Any]]]:
    """Split columns with one value per token into sequences, by the ids in ``by``.

    Examples
    --------
    >>> grouped([1, 2, 1], ["A", "B", "C"])
    [[['A', 'C'], ['B']]]
    """
    ids = plain_cells(by)
    order, offsets, _ = _groups(ids, "by")
    out, bounds = [], offsets.tolist()
    for column in columns:
        cells = plain_cells(column)
        if len(cells) != len(ids):
            raise DataError(f"a column has {len(cells)} values, and by has {len(ids)}")
        flat = [cells[row] for row in order.tolist()]
        out.append([flat[a:b] for a, b in pairwise(bounds)])
    return out


def _rows(cells: dict[str, list[Any]], length: int = 0) -> list[dict[str, Any]]:
    if not cells:
        return [{} for _ in range(length)]
    return [dict(zip(cells, row, strict=True)) for row in zip(*cells.values(), strict=True)]
