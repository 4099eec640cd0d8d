"""LIBSVM files with several labels per row: ``label,label index:value index:value ...``."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from cliquewise.data.formats.arff import MultiLabelData
from cliquewise.data.formats.text import Progress, numbered, read_lines
from cliquewise.errors import FormatError


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
    rows: list[int] = []
    columns: list[int] = []
    values: list[float] = []
    hits: list[tuple[int, int]] = []
    n = 0
    with numbered(read_lines(path, progress=progress), path) as lines:
        for line in lines:
            fields = line.partition("#")[0].split()
            if not fields:
                continue
            if ":" not in fields[0]:
                hits += [(n, label) for label in _labels(fields.pop(0))]
            for field in fields:
                index, _, value = field.partition(":")
                try:
                    columns.append(int(index))
                    values.append(float(value))
                except ValueError:
                    raise FormatError(f"{field!r} is not index:value") from None
            rows += [n] * len(fields)
            n += 1
    base = 0 if zero_based or (zero_based is None and 0 in columns) else 1
    at = np.array(columns, dtype=np.int64) - base
    if len(at) and at.min() < 0:
        raise FormatError("a feature has number 0; read it with zero_based=True", path)
    width = _size(n_features, int(at.max(initial=-1)) + 1, "features", path)
    height = _size(n_labels, max((label for _, label in hits), default=-1) + 1, "labels", path)
    features, labels = map(str, range(base, width + base)), map(str, range(height))
    return MultiLabelData.from_entries(n, (values, (rows, at)), hits, [*features], [*labels])


def _labels(text: str) -> list[int]:
    try:
        labels = [int(float(part)) for part in text.split(",") if part]
    except ValueError:
        raise FormatError(f"{text!r} is not a list of label numbers") from None
    if any(label < 0 for label in labels):
        raise FormatError(f"label {min(labels)} is negative")
    return labels


def _size(given: int | None, seen: int, what: str, path: str | Path) -> int:
    if given is None:
        return seen
    if given < seen:
        raise FormatError(f"the file has {seen} {what}, more than the {given} asked for", path)
    return given
