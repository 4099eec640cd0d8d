"""ARFF files with several labels per row, dense or sparse, and Mulan's XML list of labels."""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.sparse import csr_matrix

from cliquewise.data.formats.text import Progress, numbered, read_lines
from cliquewise.errors import FormatError

_TOKEN = re.compile(r"""'((?:[^'\\]|\\.)*)'|"((?:[^"\\]|\\.)*)"|([^\s,]+)""")
_SPACE = re.compile(r"\s*")

#: Cells of the table of labels, and entries of features, beyond which a file is refused.
MOST_CELLS, MOST_ENTRIES = 1 << 30, 1 << 28


@dataclass(frozen=True, eq=False)
class MultiLabelData:
    """Rows with features and a set of labels each.

    Parameters
    ----------
    X : csr_matrix (n, d)
        Features.
    Y : int8 array (n, L)
        1 where a row has the label.
    feature_names, label_names : sequence of str
    """

    X: csr_matrix
    Y: NDArray[np.int8]
    feature_names: Sequence[str]
    label_names: Sequence[str]

    @classmethod
    def from_entries(
        cls,
        n: int,
        entries: Any,
        hits: Any,
        feature_names: Sequence[str],
        label_names: Sequence[str],
    ) -> MultiLabelData:
        """From ``n`` rows' values ``(values, (rows, columns))`` and pairs (row, label)."""
        if n * len(label_names) > MOST_CELLS:
            raise FormatError(
                f"{n} rows and {len(label_names)} labels would need a table of more than "
                f"{MOST_CELLS >> 30} GiB; is a label's number wrong?"
            )
        X: Any = csr_matrix(entries, shape=(n, len(feature_names)), dtype=np.float64)
        Y = np.zeros((n, len(label_names)), dtype=np.int8)
        Y[tuple(np.array(hits, dtype=np.int64).reshape(-1, 2).T)] = 1
        return cls(X, Y, feature_names, label_names)


@dataclass(frozen=True)
class _Attribute:
    name: str
    values: tuple[str, ...] | None  # of a nominal attribute; None if numeric

    @cached_property
    def place(self) -> dict[str, int]:
        return {value: at for at, value in reversed(list(enumerate(self.values or ())))}

    @cached_property
    def is_binary_digit(self) -> bool:
        return self.values is not None and set(self.values) <= {"0", "1"}


def read_arff(
    path: str | Path,
    labels: str | Path | Sequence[str] | int,
    *,
    encoding: str = "utf-8",
    progress: Progress | None = None,
) -> MultiLabelData:
    """Read a multilabel ARFF file, plain or compressed (gzip, xz, bzip2).

    Parameters
    ----------
    path : str or Path
    labels : path, list of names, or int
        Which attributes are labels: Mulan's XML file, their names, or how many of the last
        attributes (of the first, if negative). They must be nominal with the values 0 and 1.
    encoding : str, default="utf-8"
    progress : callable, optional
        Called as ``progress(bytes_done, bytes_total)`` now and then.

    Returns
    -------
    MultiLabelData
        Nominal attributes that are not 0/1 become one feature per value.

    Examples
    --------
    >>> import tempfile, pathlib
    >>> path = pathlib.Path(tempfile.mkdtemp()) / "a.arff"
    >>> text = "@relation r\\n@attribute x numeric\\n@attribute A {0,1}\\n@data\\n0.5,1\\n{0 2}\\n"
    >>> _ = path.write_text(text)
    >>> data = read_arff(path, labels=["A"])
    >>> data.X.toarray().ravel().tolist(), data.Y.ravel().tolist()
    ([0.5, 2.0], [1, 0])
    """
    with numbered(read_lines(path, encoding, progress), path) as lines:
        attributes = _header(lines)
        columns = _Columns(attributes, _label_columns(labels, attributes, path))
        n = 0
        for text in map(str.strip, lines):
            if text and not text.startswith("%"):
                columns.add(n, text)
                n += 1
    try:
        return columns.result(n)
    except FormatError as error:
        raise FormatError(str(error), path) from None


def read_mulan_labels(path: str | Path) -> list[str]:
    """Names of the labels in Mulan's XML file, in its order.

    Examples
    --------
    >>> import tempfile, pathlib
    >>> path = pathlib.Path(tempfile.mkdtemp()) / "a.xml"
    >>> _ = path.write_text('<labels><label name="A"></label><label name="B"/></labels>')
    >>> read_mulan_labels(path)
    ['A', 'B']
    """
    from xml.etree import ElementTree

    text = "\n".join(read_lines(path))
    if "<!DOCTYPE" in text or "<!ENTITY" in text:
        raise FormatError("a list of labels needs no document type; it is refused", path)
    try:
        root = ElementTree.fromstring(text.encode())
    except (ElementTree.ParseError, ValueError, LookupError) as error:
        raise FormatError(f"not XML ({error})", path) from error
    found = [e.get("name") for e in root.iter() if e.tag.rsplit("}", 1)[-1] == "label"]
    names = [name for name in found if name is not None]
    if not names or len(names) != len(found):
        raise FormatError('needs elements <label name="..."/>', path)
    return names


def _header(lines: Iterator[str]) -> list[_Attribute]:
    attributes: list[_Attribute] = []
    for text in map(str.strip, lines):
        word = text[:10].lower()
        if word.startswith("@data"):
            if not attributes:
                raise FormatError("@data comes before any @attribute")
            return attributes
        if word.startswith("@attribute"):
            attributes.append(_attribute(text[10:]))
        elif text and not text.startswith("%") and not word.startswith("@relation"):
            raise FormatError(f"expected @attribute or @data, found {text[:40]!r}")
    raise FormatError("the file ends before @data")


def _attribute(text: str) -> _Attribute:
    match = _TOKEN.match(text.strip())
    if match is None:
        raise FormatError("an @attribute needs a name and a type")
    kind = text.strip()[match.end() :].strip()
    name = _unquoted(match)
    if kind.startswith("{") and kind.endswith("}"):
        return _Attribute(name, tuple(_unquoted(m) for m in _TOKEN.finditer(kind[1:-1])))
    if kind.lower() in ("numeric", "real", "integer"):
        return _Attribute(name, None)
    raise FormatError(
        f"attribute {name!r} has type {kind[:30]!r}; numeric and nominal ones can be read"
    )


def _unquoted(match: re.Match[str]) -> str:
    single, double, plain = match.group(1), match.group(2), match.group(3)
    if plain is not None:
        return plain
    return re.sub(r"\\(.)", r"\1", single if single is not None else double or "")


def _label_columns(
    labels: str | Path | Sequence[str] | int, attributes: list[_Attribute], path: str | Path
) -> list[int]:
    names = [attribute.name for attribute in attributes]
    if isinstance(labels, int):
        if not 0 < abs(labels) <= len(names):
            raise FormatError(f"{abs(labels)} labels, but {len(names)} attributes", path)
        every = list(range(len(names)))
        chosen = every[-labels:] if labels > 0 else every[:-labels]
    else:
        wanted = read_mulan_labels(labels) if isinstance(labels, str | Path) else list(labels)
        index = {name: c for c, name in enumerate(names)}
        missing = [name for name in wanted if name not in index]
        if missing:
            raise FormatError(
                f"there is no attribute {missing[0]!r}, which is named as a label", path
            )
        chosen = sorted(index[name] for name in wanted)
    for c in chosen:
        if not attributes[c].is_binary_digit:
            raise FormatError(f"label {names[c]!r} is not nominal with the values 0 and 1", path)
    return chosen


class _Columns:
    """Collects the entries of all rows."""

    def __init__(self, attributes: list[_Attribute], labels: list[int]):
        self.attributes, self.labels = attributes, labels
        self.label_of = {c: at for at, c in enumerate(labels)}
        self.start: list[int] = []
        self.names: list[str] = []
        for c, a in enumerate(attributes):
            self.start.append(len(self.names))
            if c in self.label_of:
                continue
            if a.values is None or a.is_binary_digit:
                self.names.append(a.name)
            else:
                self.names += [f"{a.name}={v}" for v in a.values]
        self.rows: list[int] = []
        self.columns: list[int] = []
        self.values: list[float] = []
        self.hits: list[tuple[int, int]] = []
        #: What a sparse row leaves out is 0, which for a nominal attribute is its first value.
        self.defaults = [
            (c, a.values[0]) for c, a in enumerate(attributes) if a.values and not a.is_binary_digit
        ]

    def add(self, row: int, text: str) -> None:
        given: Iterable[tuple[int, str]]
        if text.startswith("{"):
            given = self._sparse(text)
        else:
            cells = text.split(",") if "'" not in text and '"' not in text else _cells(text)
            if len(cells) != len(self.attributes):
                raise FormatError(f"{len(cells)} values for {len(self.attributes)} attributes")
            given = enumerate(cells)
        for c, cell in given:
            self._entry(row, c, cell.strip())

    def _sparse(self, text: str) -> Iterator[tuple[int, str]]:
        if not text.endswith("}"):
            raise FormatError("a sparse row ends with }")
        seen: set[int] = set()
        for cell in _cells(text[1:-1]) if text[1:-1].strip() else []:
            head, _, value = cell.strip().partition(" ")
            c = int(head) if head.isascii() and head.isdigit() and len(head) < 10 else -1
            if not 0 <= c < len(self.attributes) or c in seen:
                raise FormatError(f"{head!r:.60} is no new attribute number")
            seen.add(c)
            yield c, value.strip().strip("'\"")
        yield from ((c, value) for c, value in self.defaults if c not in seen)

    def _entry(self, row: int, c: int, cell: str) -> None:
        attribute = self.attributes[c]
        where = f"attribute {attribute.name!r}"
        if cell == "?":
            raise FormatError(f"{where} is missing; fill in or drop such rows")
        if attribute.values is not None and cell not in attribute.place:
            raise FormatError(f"{where} has value {cell!r:.60}, which it does not list")
        if c in self.label_of:
            if cell == "1":
                self.hits.append((row, self.label_of[c]))
            return
        at, value = self.start[c], 1.0
        if attribute.values is not None and not attribute.is_binary_digit:
            at += attribute.place[cell]
        else:
            try:
                value = finite(cell)
            except ValueError:
                raise FormatError(f"{where}: {cell!r:.60} is not a number") from None
        if value != 0.0:
            if len(self.values) == MOST_ENTRIES:
                raise FormatError(f"more than {MOST_ENTRIES:,} entries, which is the limit")
            self.rows.append(row)
            self.columns.append(at)
            self.values.append(value)

    def result(self, n: int) -> MultiLabelData:
        labels = [self.attributes[c].name for c in self.labels]
        entries = self.values, (self.rows, self.columns)
        return MultiLabelData.from_entries(n, entries, self.hits, self.names, labels)


def _cells(text: str) -> list[str]:
    """Cells of a row, some of them quoted; every character is looked at once."""
    out, at, end = [], 0, -1
    while end < len(text):
        at = _SPACE.match(text, at).end()  # type: ignore[union-attr]
        token = _TOKEN.match(text, at)
        stop = token.end() if token else at
        end = text.find(",", stop)
        end = len(text) if end < 0 else end
        if token is None or text[stop:end].strip():  # a quote that ends within a cell is plain
            out.append(text[at:end].strip())
        else:
            out.append(_unquoted(token))
        at = end + 1
    return out


def finite(text: str) -> float:
    """A number, finite and without Python's underscores; else ``ValueError``.

    Examples
    --------
    >>> finite("2.5")
    2.5
    """
    value = float(text)
    if "_" in text or not math.isfinite(value):
        raise ValueError(text)
    return value
