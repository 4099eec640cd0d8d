"""ColumnFormat: how a file with one token per line is written, and which columns are used."""

from __future__ import annotations

from dataclasses import dataclass, fields, replace
from typing import Any

from cliquewise.errors import DataError

#: Dialects of files with one token per line.
CONLL, CONLLU = "conll", "conllu"

#: Number or name of a column.
Column = int | str


@dataclass(frozen=True)
class ColumnFormat:
    """How a column file is written, and which of its columns are features and labels.

    Model files store the format of their training file, so that other files are read the same way.

    Parameters
    ----------
    dialect : {"conll", "conllu"}
        ``"conll"`` is any file of columns.
    encoding : str
        Text encoding.
    separator : str, optional
        Text between columns; by default any run of spaces and tabs.
    comment : str, optional
        Prefix of lines to skip.
    header : bool
        Whether the first line holds the names of the columns.
    label : int or str, optional
        Column of the labels; the last one by default.
    features : tuple of int or str, optional
        Columns of the features; by default all but the label (``form`` in CoNLL-U).
    output_separator : str
        Separator to write: the first one in the file that was read.

    Examples
    --------
    >>> training = ColumnFormat(encoding="latin-1")
    >>> training.override(encoding=None, comment="#")  # None keeps the value
    ColumnFormat(encoding='latin-1', comment='#')
    >>> ColumnFormat.from_dict(training.to_dict()) == training
    True
    """

    dialect: str = CONLL
    encoding: str = "utf-8"
    separator: str | None = None
    comment: str | None = None
    header: bool = False
    label: Column | None = None
    features: tuple[Column, ...] | None = None
    output_separator: str = " "

    def __repr__(self) -> str:
        changed = (f for f in fields(self) if getattr(self, f.name) != f.default)
        return f"ColumnFormat({', '.join(f'{f.name}={getattr(self, f.name)!r}' for f in changed)})"

    def override(self, **values: Any) -> ColumnFormat:
        """Return a copy with the given values; values that are None are ignored."""
        return replace(self, **{name: v for name, v in values.items() if v is not None})

    def to_dict(self) -> dict[str, Any]:
        """Return the fields that differ from their defaults, for JSON."""
        values = {f.name: getattr(self, f.name) for f in fields(self)}
        if self.features is not None:
            values["features"] = list(self.features)
        return {f.name: values[f.name] for f in fields(self) if values[f.name] != f.default}

    @classmethod
    def from_dict(cls, values: Any) -> ColumnFormat:
        """Return the format that :meth:`to_dict` stored; files of version 3 had ``tabs``."""
        broken = DataError("the description of its training file is damaged")
        if not isinstance(values, dict):
            raise broken
        values = dict(values)
        if "tabs" in values:
            tabs, output = values.pop("tabs"), values.pop("separator", " ")
            values |= {"separator": "\t"} if tabs == "yes" else {}
            values["output_separator"] = output
        features = values.get("features")
        if isinstance(features, list):
            values["features"] = tuple(features)
        if not set(values) <= {f.name for f in fields(cls)}:
            raise broken
        made = cls(**values)
        texts = (made.dialect, made.encoding, made.output_separator)
        optional = (made.separator, made.comment)
        columns = (*(made.features or ()), *(() if made.label is None else (made.label,)))
        if (
            not all(isinstance(text, str) for text in texts)
            or not all(text is None or isinstance(text, str) for text in optional)
            or not all(isinstance(column, int | str) for column in columns)
            or not isinstance(made.features, tuple | None)
            or not isinstance(made.header, bool)
            or made.dialect not in (CONLL, CONLLU)
        ):
            raise broken
        return made
