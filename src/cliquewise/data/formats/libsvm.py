"""LIBSVM files with several labels per row: ``label,label index:value index:value ...``."""

from __future__ import annotations

from array import array
from collections.abc import Sequence
from pathlib import Path
from typing import overload

import numpy as np

from cliquewise.data.formats.arff import MultiLabelData, finite
from cliquewise.data.formats.text import Progress, numbered, read_lines
from cliquewise.errors import FormatError

#: Largest number of a feature or a label (indices are 32-bit numbers).
MOST_FEATURES = 2**31 - 2


def read_libsvm(
    path: str | Path,
    *,
    n_features: int | None = None,
    n_labels: int | None = None,
    zero_based: bool | None = None,
    progress: Progress | None = None,
) -> MultiLabelData:
    """Read a multilabel file in LIBSVM's format, plain or compressed (gzip, xz, bzip2).

    Parameters
    ----------
    path : str or Path
    n_features, n_labels : int, optional
        Sizes, where a file does not show all of them (a test file, say).
    zero_based : bool, optional
        Whether features are numbered from 0; by default they are if a 0 occurs.
    progress : callable, optional
        Called as ``progress(bytes_done, bytes_total)`` now and then.

    Returns
    -------
    MultiLabelData
        Column ``l`` of ``Y`` is label number ``l``. A row may have no label at all.

    Examples
    --------
    >>> import tempfile, pathlib
    >>> path = pathlib.Path(tempfile.mkdtemp()) / "a.svm"
    >>> _ = path.write_text("0,2 1:0.5\\n 2:1\\n")
    >>> data = read_libsvm(path)
    >>> data.Y.tolist(), data.X.toarray().tolist()
    ([[1, 0, 1], [0, 0, 0]], [[0.5, 0.0], [0.0, 1.0]])
    """
    indices, values, counts = array("q"), array("d"), array("q")
    hits: list[tuple[int, int]] = []
    with numbered(read_lines(path, progress=progress), path) as lines:
        for line in lines:
            fields = line.partition("#")[0].split()
            if not fields:
                continue
            if ":" not in fields[0]:
                hits += [(len(counts), label) for label in _labels(fields.pop(0))]
            for field in fields:
                index, value = _entry(field)
                indices.append(index)
                values.append(value)
            counts.append(len(fields))
    at, n = np.array(indices, dtype=np.int64), len(counts)
    base = 0 if zero_based or (zero_based is None and bool(np.any(at == 0))) else 1
    at -= base
    if len(at) and at.min() < 0:
        raise FormatError("a feature has number 0; read it with zero_based=True", path)
    width = _size(n_features, int(at.max(initial=-1)) + 1, "features", path)
    height = _size(n_labels, max((label for _, label in hits), default=-1) + 1, "labels", path)
    rows = np.repeat(np.arange(n), np.array(counts, dtype=np.int64))
    try:
        return MultiLabelData.from_entries(
            n, (np.array(values), (rows, at)), hits, Numerals(base, width), Numerals(0, height)
        )
    except FormatError as error:
        raise FormatError(str(error), path) from None


class Numerals(Sequence[str]):
    """The names of numbered things: many, but none is made before it is asked for.

    Examples
    --------
    >>> names = Numerals(1, 300_000_000)
    >>> len(names), names[0], names[-1]
    (300000000, '1', '300000000')
    """

    def __init__(self, first: int, size: int):
        self._numbers = range(first, first + size)

    def __len__(self) -> int:
        return len(self._numbers)

    @overload
    def __getitem__(self, index: int) -> str: ...
    @overload
    def __getitem__(self, index: slice) -> list[str]: ...
    def __getitem__(self, index: int | slice) -> str | list[str]:
        found = self._numbers[index]
        return list(map(str, found)) if isinstance(found, range) else str(found)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Sequence) and list(self) == list(other)

    __hash__ = None  # type: ignore[assignment]

    def __repr__(self) -> str:
        return f"Numerals({self._numbers.start}, {len(self)})"


def _entry(field: str) -> tuple[int, float]:
    index, _, value = field.partition(":")
    try:
        number, size = int(index), finite(value)
    except ValueError:
        raise FormatError(f"{field!r:.60} is not index:value") from None
    if "_" in field or not 0 <= number <= MOST_FEATURES:
        raise FormatError(f"feature {index:.30} is not a number in 0..{MOST_FEATURES}")
    return number, size


def _labels(text: str) -> list[int]:
    try:
        given = [finite(part) for part in text.split(",") if part]
    except ValueError:
        raise FormatError(f"{text!r:.60} is not a list of label numbers") from None
    for label in given:
        if label != int(label) or not 0 <= label <= MOST_FEATURES:
            raise FormatError(f"label {label:.17g} is not a whole number in 0..{MOST_FEATURES}")
    return [int(label) for label in given]


def _size(given: int | None, seen: int, what: str, path: str | Path) -> int:
    if given is None:
        return seen
    if given < seen:
        raise FormatError(f"the file has {seen} {what}, more than the {given} asked for", path)
    return given
