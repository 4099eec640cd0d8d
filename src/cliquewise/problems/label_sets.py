"""MultiLabelProblem: the structured hinge loss of label sets, all pairs of labels interacting.

The same objective as :class:`~cliquewise.problems.graph.GraphProblem` has with a complete graph
over the labels, ``pairwise="co-occurrence"`` and ``loss="hinge"``, without ever listing the pairs
of an example.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import cached_property
from typing import Any

import numpy as np
from scipy.sparse import csr_matrix

from cliquewise.errors import DataError
from cliquewise.models.label_sets import (
    feature_rows,
    label_pairs,
    multilabel_data,
    multilabel_model,
    pack_weights,
    unpack_weights,
)
from cliquewise.oracles.relaxed_label_sets import relaxed_sets
from cliquewise.problems.base import Problem
from cliquewise.ragged import Floats, Ints


class MultiLabelProblem(Problem):
    """Regularized hinge loss of rows with sets of labels.

    Parameters
    ----------
    X : csr_matrix (n, d)
    Y : array or sparse matrix (n, L) of 0 and 1
    C : float, default=1.0
        Weight of the sum of the losses against ``1/2 ||w||^2``.
    intercept : bool, default=True
        A constant feature.

    Examples
    --------
    >>> problem = MultiLabelProblem(csr_matrix([[1.0], [2.0]]), [[0, 1], [1, 1]])
    >>> problem.n_examples, problem.n_labels, problem.dimension
    (2, 2, 9)
    """

    kind = "label_sets"
    losses_known = ("hinge",)

    def __init__(self, X: csr_matrix, Y: Any, C: float = 1.0, intercept: bool = True):
        super().__init__(C, "hinge")
        self.X, self.intercept = csr_matrix(X, dtype=np.float64), intercept
        self.X.sum_duplicates()
        self.Y = csr_matrix(Y)
        self.Y.eliminate_zeros()
        self.Y.sort_indices()
        if self.X.shape[0] != self.Y.shape[0]:
            raise DataError(f"X has {self.X.shape[0]} rows and Y has {self.Y.shape[0]}")
        if not np.all(np.isfinite(self.X.data)):
            raise DataError("X has values that are not finite; replace or drop them")
        if self.Y.shape[1] == 0:
            raise DataError("Y has no labels")

    # ---- sizes

    @property
    def n_examples(self) -> int:
        """Number of rows."""
        return int(self.X.shape[0])

    @property
    def n_labels(self) -> int:
        """Number of labels."""
        return int(self.Y.shape[1])

    @property
    def n_columns(self) -> int:
        """Features of a row, the constant one included."""
        return int(self.X.shape[1]) + int(self.intercept)

    @property
    def dimension(self) -> int:
        """Length of the weight vector: features x 2 per label, one per pair."""
        n = self.n_labels
        return 2 * n * self.n_columns + n * (n - 1) // 2

    # ---- views

    @cached_property
    def used(self) -> Ints:
        """Columns that occur in some row, the constant one included; others weigh nothing."""
        found = np.unique(self.X.indices).astype(np.int64)
        return np.append(found, self.X.shape[1]) if self.intercept else found

    @cached_property
    def rows(self) -> Any:
        """The kernels' view of the features, numbered within those that are used."""
        rows = feature_rows(self.X, self.intercept)
        return rows._replace(indices=np.searchsorted(self.used, rows.indices))

    @property
    def truth(self) -> tuple[Ints, Ints]:
        """Where each example's true labels begin, and the labels."""
        return self.Y.indptr.astype(np.int64), self.Y.indices.astype(np.int64)

    def as_graphs(self) -> Any:
        """The same problem with all pairs listed, for solvers of graphs."""
        from cliquewise.problems.graph import GraphProblem

        pairs = label_pairs(self.n_labels)
        model = multilabel_model(
            self.n_labels, self.X.shape[1], pairs, self.intercept, "co-occurrence"
        )
        data = multilabel_data(self.X, self.n_labels, pairs, self.Y.toarray())
        return GraphProblem(model, data, self.C, "hinge")

    def fingerprint_parts(self, n: int) -> Iterator[tuple[str, Any]]:
        """Rows and their labels."""
        for matrix, name in ((self.X[:n], "features"), (self.Y[:n], "labels")):
            for array in (matrix.indptr, matrix.indices, matrix.data):
                yield name, array
        yield "model", np.array([*self.X.shape, self.n_labels, self.intercept])

    @cached_property
    def _columns(self) -> tuple[Floats, Floats]:
        """By used column: the sum of its |features| over all labels, and the largest of them."""
        rows, n = self.rows, len(self.used)
        sizes, most = np.abs(rows.values), np.zeros(n)
        np.maximum.at(most, rows.indices, sizes)
        total = np.bincount(rows.indices, sizes, minlength=n)
        return np.asarray(self.n_labels * total, dtype=np.float64), most

    def sizes(self, moved: float) -> Floats:
        """By used column, then of all pairs: the sum of |features| if beliefs moved so much."""
        total, most = self._columns
        return np.append(np.minimum(total, moved * most), 2.0 * moved * self.n_labels)

    # ---- weights

    def pack(self, U: Floats, V: Floats) -> Floats:
        """One vector, laid out as the pairwise model's, from those of being on and of pairs."""
        full = np.zeros((self.n_columns, self.n_labels))
        full[self.used] = U
        return pack_weights(full, V)

    def relaxed_primal(
        self, w: Floats, *, tol: float = 1e-3, max_sweeps: int = 200
    ) -> tuple[float, float]:
        """Lower and upper bound of the relaxed objective at any weights.

        Examples
        --------
        >>> problem = MultiLabelProblem(csr_matrix([[1.0], [2.0]]), [[0, 1], [1, 1]])
        >>> problem.relaxed_primal(np.zeros(problem.dimension))
        (2.0, 2.0)
        """
        U, V = unpack_weights(w, self.n_labels, self.n_columns)
        U = np.ascontiguousarray(U[self.used])
        found = relaxed_sets(self.rows, U, V, self.Y, 1.0, tol, max_sweeps)
        norm = float(w @ w)
        return self.ridge_objective(norm, found.lower), self.ridge_objective(norm, found.upper)
