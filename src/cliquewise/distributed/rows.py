"""Partitions of rows with sets of labels: checked where they are, under one list of labels."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy.sparse import csr_matrix, issparse, vstack

from cliquewise.data.label_sets import LabelSets
from cliquewise.data.matrices import check_values, checked_matrix
from cliquewise.distributed.partition import Block, Part, Places
from cliquewise.errors import DataError
from cliquewise.problems.base import check_weights
from cliquewise.problems.label_graph import LabelGraphProblem
from cliquewise.ragged import Floats, Ints


@dataclass
class RowsPart:
    """Rows, and which of the partition's own labels they have."""

    X: Any
    Y: NDArray[np.int64]
    weights: Floats
    labels: LabelSets

    def __sizeof__(self) -> int:
        X = self.X
        own = X.data.nbytes + X.indices.nbytes + X.indptr.nbytes if issparse(X) else X.nbytes
        return int(own + self.Y.nbytes + self.weights.nbytes)


class RowsFound(NamedTuple):
    """What a partition says before labels are merged, and some of its rows."""

    n_rows: int
    n_columns: int
    labels: LabelSets
    some: RowsPart


def encode_rows(X: Any, y: Any, weights: Any = None) -> RowsPart:
    """Check a partition by itself."""
    names = getattr(X, "columns", None)
    matrix = csr_matrix(checked_matrix(X, "X")) if issparse(X) else np.asarray(X, dtype=np.float64)
    if matrix.ndim != 2:
        raise DataError(f"X has shape {matrix.shape}; it must have two dimensions")
    check_values(matrix, names=names)
    if isinstance(y, list) and not any(len(row) for row in y):  # rows without labels, or none
        labels, Y = LabelSets(0, (), True), np.zeros((len(y), 0), dtype=np.int64)
    elif not matrix.shape[0]:
        labels, Y = LabelSets(0), np.zeros((0, 0), dtype=np.int64)
    else:
        labels, Y = LabelSets.fit(y)
    if len(Y) != matrix.shape[0]:
        raise DataError(f"X has {matrix.shape[0]} rows and y has {len(Y)}")
    return RowsPart(matrix, Y, check_weights(weights, len(Y)), labels)


def found_rows(part: RowsPart, most: int) -> RowsFound:
    """Sizes and labels of a partition, and up to ``most`` of its rows, evenly spread."""
    n = len(part.Y)
    at = np.unique(np.linspace(0, n - 1, min(n, most)).astype(np.int64)) if n else np.arange(0)
    some = RowsPart(part.X[at], part.Y[at], part.weights[at], part.labels)
    return RowsFound(n, part.X.shape[1], part.labels, some)


def merged_labels(found: Sequence[RowsFound]) -> LabelSets:
    """The labels of all partitions."""
    filled = [f for f in found if f.n_rows]
    if not filled:
        raise DataError("X has no rows")
    if len({f.n_columns for f in filled}) > 1:
        sizes = sorted({f.n_columns for f in filled})
        raise DataError(f"partitions of X have {sizes[0]} and {sizes[-1]} columns: not the same")
    first = filled[0].labels
    if any(f.labels.as_lists for f in filled):
        names = tuple(sorted({name for f in filled for name in f.labels.names or ()}))
        return LabelSets(len(names), names, True)
    for f in filled:
        if f.labels != first:
            raise DataError(
                f"partitions of y have {first.n_labels} and {f.labels.n_labels} labels, or other "
                "names for them; all need the same"
            )
    return first


def renumbered(part: RowsPart, labels: LabelSets) -> NDArray[np.int64]:
    """Which of all labels the rows have."""
    if part.labels == labels:
        return part.Y
    number = {name: i for i, name in enumerate(labels.names or ())}
    Y = np.zeros((len(part.Y), labels.n_labels), dtype=np.int64)
    if part.labels.names:
        Y[:, [number[name] for name in part.labels.names]] = part.Y
    return Y


def sample(found: Sequence[RowsFound], labels: LabelSets) -> tuple[Any, Any, Floats]:
    """The rows that all partitions sent along: X, Y and weights."""
    some = [f.some for f in found if f.n_rows]
    stack = vstack if any(issparse(s.X) for s in some) else np.concatenate
    X = stack([s.X for s in some])
    Y = np.concatenate([renumbered(s, labels) for s in some])
    return csr_matrix(X) if issparse(X) else X, Y, np.concatenate([s.weights for s in some])


class Task(NamedTuple):
    """The parameters of a :class:`LabelGraphProblem` beside its rows."""

    pairs: Ints
    C: float
    loss: str
    gamma: float
    intercept: bool
    pairwise: str

    def problem(self, X: Any, Y: Any, weights: Floats | None = None) -> LabelGraphProblem:
        """The problem of some rows."""
        return LabelGraphProblem(
            X, Y, self.pairs, self.C, self.loss, self.gamma, self.intercept, self.pairwise, weights
        )


def without_rows(n_columns: int, n_labels: int, task: Task) -> LabelGraphProblem:
    """The problem that knows the weights and has no examples."""
    return task.problem(np.zeros((0, n_columns)), np.zeros((0, n_labels)))


def assemble_rows(part: RowsPart, labels: LabelSets, n_columns: int, task: Task) -> Part:
    """A partition's problem, over the columns that its rows have."""
    used, X = np.arange(n_columns), part.X
    if issparse(X) and len(part.Y):
        used = np.unique(X.indices).astype(np.int64)
        X = csr_matrix(X[:, used])
    elif not len(part.Y):
        X = np.zeros((0, n_columns))
    Y = renumbered(part, labels)
    build = partial(task.problem, X, Y, part.weights)
    places, rows = places_of(used, labels.n_labels, n_columns, task)
    return Part(build, places, rows, 2 * part.__sizeof__() + 8 * Y.size)


def places_of(used: Ints, n_labels: int, n_columns: int, task: Task) -> tuple[Places, Ints]:
    """Where the weights of some columns are among all; rows of roundings are weights here."""
    columns = n_columns + int(task.intercept)
    own = np.append(used, n_columns) if task.intercept else used
    rows = (np.arange(n_labels)[:, None] * columns + own).ravel()
    width = 4 if task.pairwise == "table" else 1
    tables = np.arange(len(task.pairs))
    start = 2 * n_labels * columns
    blocks = (
        Block(0, n_labels * columns, 2, rows),
        Block(start, len(task.pairs), width, tables),
    )
    weights = [(2 * rows[:, None] + np.arange(2)).ravel(), start + np.arange(width * len(tables))]
    return Places(blocks), np.concatenate(weights)


def places_in(part: Part) -> tuple[Places, Ints]:
    """Where a part's weights are, for the client."""
    return part.places, part.rows
