"""FeatureRows: many rows of numbers, dense or sparse, with one interface."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from scipy.sparse import csr_matrix, issparse
from scipy.sparse import vstack as sparse_vstack

from cliquewise.data.matrices import checked_matrix
from cliquewise.errors import DataError
from cliquewise.ragged import Floats, Ints


class FeatureRows:
    """The rows of all examples in one matrix (N, d), an array or CSR.

    Examples
    --------
    >>> rows = FeatureRows.stack([[[1.0, 2.0]], [[0.0, 3.0], [1.0, 1.0]]])
    >>> rows.scores(np.array([1.0, 10.0]))
    array([21., 30., 11.])
    >>> rows.combination(np.array([0, 1]), np.array([1.0, -1.0]))
    (array([0, 1]), array([ 1., -1.]))
    """

    def __init__(self, matrix: Any):
        self.matrix = matrix
        self.is_sparse = bool(issparse(matrix))

    @classmethod
    def stack(cls, parts: Sequence[Any], n_features: int | None = None) -> FeatureRows:
        """Check and stack the parts (rows, d) of all examples."""
        matrices = [checked_matrix(part, f"example {i}") for i, part in enumerate(parts)]
        if n_features is None:
            if not matrices:
                raise DataError("there are no examples")
            n_features = matrices[0].shape[1]
        for i, m in enumerate(matrices):
            if m.shape[1] != n_features:
                raise DataError(f"example {i} has {m.shape[1]} features, not {n_features}")
        if any(issparse(m) for m in matrices):
            return cls(csr_matrix(sparse_vstack([csr_matrix(m) for m in matrices])))
        return cls(np.ascontiguousarray(np.concatenate([np.empty((0, n_features)), *matrices])))

    @property
    def n_features(self) -> int:
        """Number of columns."""
        return int(self.matrix.shape[1])

    def __len__(self) -> int:
        """Number of rows."""
        return int(self.matrix.shape[0])

    @property
    def row_entries(self) -> float:
        """Mean number of stored entries of a row."""
        return self.matrix.nnz / max(len(self), 1) if self.is_sparse else float(self.n_features)

    def scores(self, w: Floats, first: int = 0, last: int | None = None) -> Floats:
        """Return the products of the rows ``first : last`` with ``w``."""
        if not self.is_sparse:
            return np.asarray(self.matrix[first:last] @ w)
        m, last = self.matrix, len(self) if last is None else last
        if first == 0 and last == len(self):
            return np.asarray(m @ w)
        a, b = int(m.indptr[first]), int(m.indptr[last])
        row = np.repeat(np.arange(last - first), np.diff(m.indptr[first : last + 1]))
        sums = np.bincount(row, m.data[a:b] * w[m.indices[a:b]], minlength=last - first)
        return sums.astype(np.float64)

    def combination(self, rows: Ints, factors: Floats) -> tuple[Ints, Floats]:
        """Return the indices and values of ``sum_r factors[r] * row rows[r]``."""
        if not self.is_sparse:
            return np.arange(self.n_features), factors @ self.matrix[rows]
        m = self.matrix
        spans = [slice(int(m.indptr[r]), int(m.indptr[r + 1])) for r in rows]
        if not spans:
            return np.empty(0, dtype=np.int64), np.empty(0)
        index = np.concatenate([m.indices[s] for s in spans]).astype(np.int64)
        parts = [f * m.data[s] for f, s in zip(factors, spans, strict=True)]
        known, at = np.unique(index, return_inverse=True)
        sums = np.bincount(at, np.concatenate(parts), minlength=len(known))
        return known, sums.astype(np.float64)

    def accumulate(self, factors: Floats) -> Floats:
        """``sum_r factors[r] * row r`` over all rows, dense."""
        return np.asarray(self.matrix.T @ factors)

    def sizes(self, factors: Floats) -> Floats:
        """:meth:`accumulate` of the rows without their signs."""
        return np.asarray(abs(self.matrix).T @ np.abs(factors), dtype=np.float64)
