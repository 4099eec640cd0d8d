"""MatchingModel: one score per pair, linear in its features."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from scipy.sparse import csr_matrix, issparse
from scipy.sparse import hstack as sparse_hstack
from scipy.sparse import vstack as sparse_vstack

from cliquewise.data.feature_rows import FeatureRows
from cliquewise.data.matrices import checked_matrix
from cliquewise.errors import DataError
from cliquewise.models.candidates import CandidateSets
from cliquewise.ragged import Floats, Ints, offsets_of


@dataclass(frozen=True)
class PairTables:
    """Features of the pairs of all examples; example i has a table of ``shapes[i]`` pairs."""

    features: FeatureRows
    shapes: Ints
    offsets: Ints

    @classmethod
    def from_examples(cls, X: Any, n_features: int | None = None) -> PairTables:
        """Build from one (p, q, d) array, or list of p CSR matrices (q, d), per example.

        Examples
        --------
        >>> PairTables.from_examples([np.zeros((2, 3, 5))]).shapes
        array([[2, 3]])
        """
        if issparse(X) or isinstance(X, str | dict):
            raise DataError("X must be a list with one (rows, columns, features) array per example")
        parts, shapes = [], []
        for i, example in enumerate(X):
            part, shape = _pairs(example, i, n_features)
            parts.append(part)
            shapes.append(shape)
        features = FeatureRows.stack(parts, n_features)
        sizes = [p * q for p, q in shapes]
        return cls(
            features,
            np.asarray(shapes, dtype=np.int64).reshape(-1, 2),
            offsets_of(sizes),
        )

    def __len__(self) -> int:
        """Number of examples."""
        return len(self.shapes)


def _pairs(example: Any, i: int, n_features: int | None) -> tuple[Any, tuple[int, int]]:
    """Return the features (p q, d) of one example, and its shape (p, q)."""
    if issparse(example):
        raise DataError(
            f"example {i}: a sparse matrix has no columns to match; give a list of one "
            "(columns, features) matrix per row"
        )
    if isinstance(example, list | tuple) and len(example) and issparse(example[0]):
        tables = [checked_matrix(m, f"example {i}, row {r}") for r, m in enumerate(example)]
        if len({m.shape for m in tables}) != 1:
            raise DataError(f"example {i}: its rows have matrices of different shapes")
        return csr_matrix(sparse_vstack(tables)), (len(tables), int(tables[0].shape[0]))
    try:
        table = np.asarray(example)
    except (TypeError, ValueError) as error:
        raise DataError(f"example {i}: features must be numbers ({error})") from None
    if table.ndim != 3:
        raise DataError(
            f"example {i}: features must be (rows, columns, features), not {table.shape}"
        )
    return table.reshape(-1, table.shape[2]), (table.shape[0], table.shape[1])


def row_and_column_choices(
    data: PairTables, matchings: list[Ints], intercept: bool
) -> tuple[CandidateSets, Ints]:
    """Return each row's choice among columns, each column's among rows, and the true choices.

    The last candidate of every choice is to remain unmatched; its features are zero.

    Examples
    --------
    >>> data = PairTables.from_examples([np.ones((1, 2, 1))])
    >>> sets, truth = row_and_column_choices(data, [np.array([1])], False)
    >>> sets.offsets.tolist(), truth.tolist()
    ([0, 3, 5, 7], [1, 1, 0])
    """
    matrix, n = data.features.matrix, len(data.features)
    stack = sparse_hstack if data.features.is_sparse else np.hstack
    if intercept:
        matrix = stack([matrix, np.ones((n, 1))])
    empty = np.zeros((1, matrix.shape[1]))
    matrix = (
        csr_matrix(sparse_vstack([matrix, empty]))
        if data.features.is_sparse
        else np.vstack([matrix, empty])
    )
    rows: list[Ints] = []
    sizes: list[int] = []
    truth: list[Ints] = []
    for i, columns in enumerate(matchings):
        p, q = data.shapes[i].tolist()
        table = int(data.offsets[i]) + np.arange(p * q).reshape(p, q)
        inverse = np.full(q, -1, dtype=np.int64)
        matched = np.flatnonzero(columns >= 0)
        inverse[columns[matched]] = matched
        for choices, chosen in ((table, columns), (table.T, inverse)):
            k = choices.shape[1]
            rows.append(np.hstack([choices, np.full((len(choices), 1), n)]).ravel())
            sizes += [k + 1] * len(choices)
            truth.append(np.where(chosen >= 0, chosen, k))
    sets = CandidateSets(FeatureRows(matrix[np.concatenate(rows)]), offsets_of(sizes))
    return sets, np.concatenate(truth)


class MatchingModel:
    """The linear map from weights to the scores of pairs, and its adjoint.

    Parameters
    ----------
    n_features : int
    intercept : bool, default=True
        Adds a constant weight to all pairs, the threshold of a match.
    is_partial : bool, default=True
        Whether rows and columns may remain unmatched, at score 0.

    Examples
    --------
    >>> data = PairTables.from_examples([np.ones((1, 2, 1))])
    >>> MatchingModel(1).potentials(np.array([2.0, -0.5]), data)
    array([1.5, 1.5])
    """

    def __init__(self, n_features: int, intercept: bool = True, is_partial: bool = True):
        self.n_features, self.intercept, self.is_partial = n_features, intercept, is_partial
        self.dimension = n_features + int(intercept)

    def potentials(
        self, w: Floats, data: PairTables, first: int = 0, last: int | None = None
    ) -> Floats:
        """Return the scores of all pairs, or of the pairs of the examples ``first : last``."""
        last = len(data) if last is None else last
        a, b = int(data.offsets[first]), int(data.offsets[last])
        scores = data.features.scores(w[: self.n_features], a, b)
        return scores + w[-1] if self.intercept else scores

    def combination(self, data: PairTables, rows: Ints, factors: Floats) -> tuple[Ints, Floats]:
        """Return the indices and values of ``sum_r factors[r] phi_r`` over some pairs."""
        index, values = data.features.combination(rows, factors)
        if self.intercept:
            index = np.append(index, self.n_features)
            values = np.append(values, factors.sum())
        return index, values

    def accumulate(self, mu: Floats, data: PairTables, out: Floats) -> None:
        """Add ``sum_c mu_c phi_c`` over all pairs to ``out``."""
        out[: self.n_features] += data.features.accumulate(mu)
        if self.intercept:
            out[-1] += mu.sum()

    @property
    def alone(self) -> float | None:
        """Score of an unmatched row; None if all rows must be matched."""
        return 0.0 if self.is_partial else None
