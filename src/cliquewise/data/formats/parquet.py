"""Parquet and Arrow files of sequences: one row per sequence, columns that are lists."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

from cliquewise.errors import FormatError, UnsupportedError

#: Rows that are read at once.
_ROWS = 4096


def iter_parquet(path: str | Path, label: int | str = -1) -> Iterator[tuple[list[Any], list[Any]]]:
    """Sequences and their labels, one after the other.

    Parameters
    ----------
    path : path
        A Parquet file, or (``.arrow``, ``.feather``) an Arrow file.
    label : int or str, default=-1
        The column of the labels. Every other column of lists is a column of the tokens; or there
        is one column whose tokens are lists of attributes themselves.

    Yields
    ------
    sequence : list
        Per token, the tuple of its columns, or the list of its attributes.
    labels : list
    """
    try:
        import pyarrow
        import pyarrow.dataset
    except ImportError:
        raise UnsupportedError(
            "Parquet and Arrow files need pyarrow: pip install 'cliquewise[tables]'"
        ) from None
    kind = "parquet" if Path(path).suffix == ".parquet" else "feather"
    try:
        table = pyarrow.dataset.dataset(str(path), format=kind)
        names = [f.name for f in table.schema if pyarrow.types.is_list(_plain(f.type))]
        at = _label(names, label, path)
        batches = table.to_batches(columns=names, batch_size=_ROWS)
        for batch in batches:
            yield from _sequences([c.to_pylist() for c in batch.columns], names, at, path)
    except (pyarrow.ArrowInvalid, OSError) as error:
        raise FormatError(f"not a {kind} file ({error})", path) from None


def _plain(kind: Any) -> Any:
    """Long lists are lists, too."""
    import pyarrow

    return pyarrow.list_(kind.value_type) if pyarrow.types.is_large_list(kind) else kind


def _label(names: list[str], label: int | str, path: Any) -> int:
    """The place of the labels among the columns."""
    if len(names) < 2:
        raise FormatError(
            "at least two columns of lists are needed, one of them the labels; it has "
            f"{', '.join(names) or 'none'}",
            path,
        )
    if isinstance(label, str):
        if label not in names:
            raise FormatError(f"no column {label!r}; its lists are {', '.join(names)}", path)
        return names.index(label)
    if not -len(names) <= label < len(names):
        raise FormatError(f"no column {label}; it has {len(names)} columns of lists", path)
    return label % len(names)


def _sequences(
    columns: list[list[Any]], names: list[str], at: int, path: Any
) -> Iterator[tuple[list[Any], list[Any]]]:
    others = [column for j, column in enumerate(columns) if j != at]
    for row, labels in enumerate(columns[at]):
        cells = [column[row] for column in others]
        if labels is None or any(c is None or len(c) != len(labels) for c in cells):
            raise FormatError(
                f"a row with labels {labels!r:.60}: the lists of {', '.join(names)} must be there "
                "and equally long",
                path,
            )
        nested = len(cells) == 1 and bool(cells[0]) and isinstance(cells[0][0], list)
        yield cells[0] if nested else list(zip(*cells)), labels
