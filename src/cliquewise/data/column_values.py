"""Values of columns of any data frame library, through narwhals."""

from __future__ import annotations

from typing import Any

import numpy as np

from cliquewise.errors import DataError, MissingDependencyError


def plain_cells(column: Any) -> list[Any]:
    """Return the values of a column of any library, None for empty cells."""
    if hasattr(column, "to_pylist"):  # of pyarrow
        column = column.to_pylist()
    if isinstance(column, list | tuple | np.ndarray):
        values = list(column) if isinstance(column, list | tuple) else column.tolist()
        if {str}.issuperset(map(type, values)):
            return values
        return [None if isinstance(v, float) and v != v else _plain(v) for v in values]
    import narwhals.stable.v1 as nw

    series = as_narwhals(column, series_only=True)
    values, kind = series.to_list(), series.dtype
    if not (kind.is_numeric() or kind.is_temporal() or kind in (nw.String, nw.Boolean)):
        values = [_plain(v) for v in values]
    for row in np.flatnonzero(series.is_null().to_numpy()).tolist():
        values[row] = None
    if kind.is_float():  # NaN is a value in polars
        for row in np.flatnonzero(np.isnan(np.array(values, dtype=np.float64))).tolist():
            values[row] = None
    return values


def _plain(cell: Any) -> Any:
    return cell.tolist() if isinstance(cell, np.ndarray) else cell


def as_narwhals(x: Any, **options: bool) -> Any:
    """Convert a table or column of any library to narwhals."""
    try:
        import narwhals.stable.v1 as nw
    except ImportError as error:
        raise MissingDependencyError(
            "tables are read by narwhals: pip install 'cliquewise[tables]'"
        ) from error
    try:
        return nw.from_native(_whole(x), **(options or {"eager_only": True}))
    except nw.exceptions.DuplicateError:
        names = list(map(str, x.columns))
        twice = next(name for name in names if names.count(name) > 1)
        raise DataError(
            f"a table has one column per name, and this has several {twice!r}"
        ) from None
    except TypeError:
        if options and hasattr(type(x), "columns"):
            raise DataError(
                f"a column is wanted, and this is a table of them ({type(x).__name__}): take "
                'table["tag"], not table[["tag"]]'
            ) from None
        collect = "; call its collect()" if hasattr(type(x), "collect") else ""
        raise DataError(
            f"a table or column of type {type(x).__name__} cannot be read{collect}; make it one of "
            "pandas, polars or pyarrow, or a list, first"
        ) from None


def _whole(x: Any) -> Any:
    """Convert a pyarrow record batch to a table; return others unchanged."""
    if type(x).__name__ == "RecordBatch":
        import pyarrow

        return pyarrow.Table.from_batches([x])
    return x
