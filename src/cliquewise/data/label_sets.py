"""LabelSets: encode sets of labels (0/1 matrices or lists of names), and decode them."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import chain
from numbers import Real
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.sparse import issparse

from cliquewise.data.frames import is_frame
from cliquewise.data.matrices import checked_matrix
from cliquewise.errors import DataError

_SETS = (list, tuple, set, frozenset, np.ndarray)


@dataclass(frozen=True)
class LabelSets:
    """Number and names of the labels, and the form of ``y``.

    Attributes
    ----------
    n_labels : int
    names : tuple of str, optional
        The columns of a data frame, or the sorted names from lists of names.
    as_lists : bool
        Whether ``y`` has lists of names instead of rows of 0 and 1.

    Examples
    --------
    >>> labels, matrix = LabelSets.fit([["sad"], ["calm", "sad"], []])
    >>> labels.names, matrix.tolist()
    (('calm', 'sad'), [[0, 1], [1, 1], [0, 0]])
    >>> labels.decode(matrix)
    [['sad'], ['calm', 'sad'], []]
    """

    n_labels: int
    names: tuple[str, ...] | None = None
    as_lists: bool = False

    @classmethod
    def fit(cls, y: Any) -> tuple[LabelSets, NDArray[np.int64]]:
        """Return the labels of ``y``, and ``y`` as a matrix (rows, labels) of 0 and 1."""
        rows = _lists_of_names(y)
        if rows is not None:
            found = tuple(sorted(set(chain.from_iterable(rows))))
            labels = cls(len(found), found, True)
            return labels, labels._encode(rows)
        matrix = _indicator(y)
        names = tuple(str(name) for name in y.columns) if is_frame(y) else None
        if names is not None and len(set(names)) < len(names):
            raise DataError("two columns of y have the same name")
        return cls(matrix.shape[1], names), matrix

    def _encode(self, rows: list[list[str]]) -> NDArray[np.int64]:
        number = {name: i for i, name in enumerate(self.names or ())}
        matrix = np.zeros((len(rows), self.n_labels), dtype=np.int64)
        for i, row in enumerate(rows):
            matrix[i, [number[name] for name in row]] = 1
        return matrix

    def matrix(self, y: Any) -> NDArray[np.int64]:
        """Return sets of labels in either form as rows of 0 and 1."""
        rows = _lists_of_names(y) if self.names is not None else None
        if rows is None and not (self.as_lists and all(len(row) == 0 for row in y)):
            return _indicator(y)
        known = set(self.names or ())
        for i, row in enumerate(rows or []):
            strange = [name for name in row if name not in known]
            if strange:
                raise DataError(
                    f"y[{i}] has the label {strange[0]!r}, which does not occur in training"
                )
        return self._encode(list(y) if rows is None else rows)

    def decode(self, matrix: NDArray[np.int64]) -> Any:
        """Return rows of 0 and 1 in the form of the ``y`` of :meth:`fit`."""
        if not self.as_lists or self.names is None:
            return matrix
        return [[self.names[i] for i in np.flatnonzero(row)] for row in matrix]

    def right(self, y: Any, predicted: Any) -> NDArray[np.bool_]:
        """Return whether the predicted set of each row equals the true one."""
        rows = _lists_of_names(y) if self.as_lists else None
        if rows is None:
            true = _indicator(y)
            own = self._encode(predicted) if self.as_lists else predicted
            if true.shape != own.shape:
                raise DataError(f"y has shape {true.shape}, the prediction {own.shape}")
            return np.asarray((own == true).all(axis=1))
        if len(rows) != len(predicted):
            raise DataError(f"X has {len(predicted)} rows and y has {len(rows)}")
        pairs = zip(rows, predicted, strict=True)
        return np.array([set(true) == set(own) for true, own in pairs], dtype=bool)

    def number(self, label: int | str) -> int:
        """Return the number of a label, given its number or its name."""
        if isinstance(label, str):
            if self.names is None:
                raise DataError(
                    f"label {label!r}: labels have no names here, only numbers; fit on lists of "
                    "names or on a data frame to use names"
                )
            if label not in self.names:
                raise DataError(f"{label!r} is no label; they are {', '.join(self.names[:10])}")
            return self.names.index(label)
        if not 0 <= label < self.n_labels:
            raise DataError(f"label {label}; the labels are 0..{self.n_labels - 1}")
        return int(label)

    def numbers(self, graph: Any) -> Any:
        """Return pairs of labels, given by names or numbers, as pairs of numbers."""
        if not isinstance(graph, list | tuple | set | frozenset | np.ndarray):
            return graph
        pairs = [[*pair] if isinstance(pair, _SETS) else pair for pair in graph]
        if not any(isinstance(pair, list) and any(map(_is_text, pair)) for pair in pairs):
            return graph
        return [[self.number(str(x) if _is_text(x) else x) for x in pair] for pair in pairs]


def _is_text(label: Any) -> bool:
    return isinstance(label, str)


def restored(n_labels: int, names: Any, as_lists: Any) -> LabelSets:
    """Return LabelSets from the header of a model file, after checks."""
    if names is None:
        return LabelSets(n_labels)
    if (
        not isinstance(names, list)
        or not all(isinstance(name, str) for name in names)
        or not len(names) == len(set(names)) == n_labels
    ):
        raise DataError("the names of its labels do not fit its labels")
    return LabelSets(n_labels, tuple(names), bool(as_lists))


def _lists_of_names(y: Any) -> list[list[str]] | None:
    """Return the sorted names of every row; None if ``y`` is not a list of lists of strings."""
    if y is None or issparse(y) or is_frame(y) or not isinstance(y, Iterable):
        return None
    if isinstance(y, np.ndarray) and (y.ndim != 1 or y.dtype.kind in "biuf"):
        return None
    rows: Sequence[Any] = [*y]
    texts = [i for i, row in enumerate(rows) if isinstance(row, str)]
    if texts:
        text = rows[texts[0]]
        raise DataError(
            f"y[{texts[0]}] is the string {text!r:.60}; the labels of a row are a list of names, "
            f"[{text!r:.60}], or a row of 0 and 1"
        )
    if not all(isinstance(row, _SETS) for row in rows):
        return None
    if not any(isinstance(name, str) for row in rows for name in row):
        return None
    for i, row in enumerate(rows):
        odd = [name for name in row if not isinstance(name, str)]
        if odd:
            raise DataError(f"y[{i}] has the label {odd[0]!r:.60}; names of labels are strings")
    return [sorted({str(name) for name in row}) for row in rows]


def _indicator(y: Any) -> NDArray[np.int64]:
    """Return ``y`` as a matrix (n, L) of 0 and 1."""
    if y is None:
        raise DataError("training requires y to be passed, but the target y is None")
    try:
        dense = checked_matrix(y, "y").toarray() if issparse(y) else np.asarray(y)
    except ValueError:  # rows of unequal lengths
        dense = np.empty(0, dtype=object)
    if dense.ndim != 2 or dense.shape[1] == 0:
        raise DataError(
            f"y must be a matrix (rows, labels) of 0 and 1, not of shape {dense.shape}, or a list "
            "with the names of the labels of every row, as strings"
        )
    if dense.dtype.kind == "O" and all(isinstance(v, Real | np.bool_) for v in dense.flat):
        dense = dense.astype(np.float64)
    if dense.dtype.kind not in "biuf" or not np.isin(dense, (0, 1)).all():
        raise DataError("y must contain only 0 and 1; encode other labels as such columns")
    return dense.astype(np.int64)
