"""LabelGraphProblem: rows whose labels depend on each other by one graph, exactly.

    P(w) = lam / 2 ||w||^2 + 1/n sum_i c_i (gamma log Z((theta_i(w) + cost_i) / gamma)
                                            - <theta_i(w), y_i>),        lam = 1 / (C n)

The same objective as :class:`~cliquewise.problems.graph.GraphProblem` has of such rows, for exact
solvers. But here all rows share one graph, so that features meet the weights of all labels in
one product, and inference needs one plan. Without pairs the objective is a sum over the labels.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import cached_property
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray
from scipy.sparse import csr_matrix, hstack, issparse
from scipy.special import expit

from cliquewise.certificate import Certificate
from cliquewise.errors import DataError, UnsupportedError
from cliquewise.models.label_sets import multilabel_data, multilabel_model
from cliquewise.oracles.label_rows import LabelRows
from cliquewise.problems.base import Problem, check_weights
from cliquewise.problems.free_intercepts import Side, constant_losses, table_changes
from cliquewise.problems.rounding import EXP, SUM, UNIT, ScoreProfile
from cliquewise.ragged import Floats, Ints


class Features:
    """Rows of features, dense or sparse, and their products with many weight vectors at once."""

    def __init__(self, X: Any, intercept: bool):
        constant = np.ones((X.shape[0], int(intercept)))
        if issparse(X):
            matrix = csr_matrix(hstack([X, constant], format="csr"), dtype=np.float64)
            self.arrays: tuple[Any, ...] | None = (
                matrix.indptr.astype(np.int64), matrix.indices.astype(np.int64), matrix.data,
            )  # fmt: skip
        else:
            matrix, self.arrays = np.hstack([np.asarray(X, dtype=np.float64), constant]), None
        self.matrix: Any = matrix
        self.shape: tuple[int, int] = matrix.shape

    def scores(self, V: Floats, first: int = 0, last: int | None = None) -> Floats:
        """``X V`` of some rows."""
        last = self.shape[0] if last is None else last
        if self.arrays is None:
            return np.asarray(self.matrix[first:last] @ V)
        from cliquewise._kernels.label_sets.rows import scores

        indptr, indices, values = self.arrays
        out = np.empty((last - first, V.shape[1]))
        scores(indptr[first : last + 1], indices, values, np.ascontiguousarray(V), out)
        return out

    def adjoint(self, R: Floats, first: int = 0, squared: bool = False) -> Floats:
        """``X' R`` of some rows; of all squared features, if told."""
        last = first + len(R)
        if self.arrays is None:
            rows = self.matrix[first:last]
            return np.asarray((self._squares if squared else rows).T @ R)
        from cliquewise._kernels.label_sets.rows import adjoint

        indptr, indices, values = self.arrays
        out = np.zeros((self.shape[1], R.shape[1]))
        values = self._squares if squared else values
        adjoint(indptr[first : last + 1], indices, values, np.ascontiguousarray(R), out)
        return out

    @cached_property
    def _squares(self) -> Floats:
        return np.asarray(np.square(self.matrix if self.arrays is None else self.arrays[2]))

    def largest(self) -> Floats:
        """Return the largest ``|feature|`` of each column."""
        if not self.shape[0]:
            return np.zeros(self.shape[1])
        sizes = abs(self.matrix).max(axis=0)
        dense = sizes.toarray() if self.arrays is not None else sizes
        return np.asarray(dense, dtype=np.float64).ravel()

    @property
    def most_entries(self) -> int:
        """The largest number of features of a row."""
        if self.arrays is None:
            return self.shape[1]
        return int(np.diff(self.arrays[0]).max(initial=0))

    def sizes(self, weights: Floats) -> Floats:
        """By column, the weighted sum of its |features|."""
        return np.asarray(weights @ abs(self.matrix)).ravel()


class LabelGraphProblem(Problem):
    """Regularized loss of rows with sets of labels.

    Parameters
    ----------
    X : (n, d), dense or csr_matrix
    Y : (n, L) of 0 and 1
    pairs : int array (n_pairs, 2)
        As `label_pairs` gives them.
    C : float, default=1.0
        Weight of the sum of the losses against ``1/2 ||w||^2``.
    loss : {"log", "softmax_margin"}, default="log"
        No cost, or the Hamming cost.
    gamma : float, default=1.0
        Temperature.
    intercept : bool, default=True
    pairwise : {"table", "co-occurrence"}, default="table"
    weights : float array (n,), optional
        Of the rows' losses.
    n_jobs : int, default=1
        Threads.
    penalize_intercept : bool, default=True
        Whether intercepts are part of the penalty; see :mod:`~cliquewise.problems.free_intercepts`.

    Examples
    --------
    >>> X, Y = np.array([[1.0], [2.0]]), [[0, 1], [1, 1]]
    >>> problem = LabelGraphProblem(X, Y, np.array([[0, 1]]))
    >>> round(problem.primal(np.zeros(problem.dimension)), 4)      # log 4
    1.3863
    """

    kind = "label_graph"
    losses_known = ("log", "softmax_margin")
    smoother = "entropy"

    def __init__(
        self,
        X: Any,
        Y: Any,
        pairs: Any = (),
        C: float = 1.0,
        loss: str = "log",
        gamma: float = 1.0,
        intercept: bool = True,
        pairwise: str = "table",
        weights: Floats | None = None,
        n_jobs: int = 1,
        penalize_intercept: bool = True,
    ):
        super().__init__(C, loss, n_jobs)
        if not (np.isfinite(gamma) and gamma > 0):
            raise DataError(f"gamma = {gamma}; it must be positive")
        self.X, self.Y = X, np.asarray(Y, dtype=np.float64)
        self.features, self.intercept = Features(X, intercept), intercept
        self.gamma, self.pairwise = float(gamma), pairwise
        self.inference = LabelRows(self.Y.shape[1], np.asarray(pairs, dtype=np.int64))
        self.pairs: Ints = self.inference.pairs
        self.weights = check_weights(weights, len(self.Y))
        self.penalize_intercept = bool(penalize_intercept or not intercept)

    def elastic(self, l1_ratio: float) -> Self:
        """Make a share of the penalty the L1 norm; needs penalized intercepts."""
        if l1_ratio > 0 and not self.penalize_intercept:
            raise UnsupportedError("an L1 penalty (l1_ratio > 0) needs penalize_intercept=True")
        return super().elastic(l1_ratio)

    # ---- sizes

    @property
    def n_examples(self) -> int:
        """Number of rows."""
        return len(self.Y)

    @property
    def n_labels(self) -> int:
        """Number of labels."""
        return int(self.Y.shape[1])

    @property
    def dimension(self) -> int:
        """Length of the weight vector, laid out as the pairwise model's."""
        per_pair = 4 if self.pairwise == "table" else 1
        return 2 * self.n_labels * self.features.shape[1] + per_pair * len(self.pairs)

    # ---- weights

    def unpack(self, w: Floats) -> tuple[Floats, Floats]:
        """Weights of being on less those of being off (features, labels), tables (pairs, 4)."""
        size = 2 * self.n_labels * self.features.shape[1]
        unary = w[:size].reshape(self.n_labels, -1, 2)
        V = np.ascontiguousarray((unary[:, :, 1] - unary[:, :, 0]).T)
        tables = np.zeros((len(self.pairs), 4))
        tables[:, self._states] = w[size:].reshape(tables[:, self._states].shape)
        return V, tables

    def pack(self, on: Floats, tables: Floats) -> Floats:
        """The adjoint of :meth:`unpack`; half of it is its inverse where tables are zero."""
        unary = np.stack([-on.T, on.T], axis=2)
        return np.concatenate([unary.ravel(), tables[:, self._states].ravel()])

    @property
    def _states(self) -> slice:
        """States of a pair that have a weight."""
        return slice(0, 4) if self.pairwise == "table" else slice(3, 4)

    # ---- values

    @cached_property
    def costs(self) -> Floats | float:
        """What the cost adds to the scores of being on."""
        return 1.0 - 2.0 * self.Y if self.loss == "softmax_margin" else 0.0

    @cached_property
    def _paired(self) -> Floats:
        """How often each pair is in each of its four states, weighted."""
        a, b = self.Y[:, self.pairs[:, 0]], self.Y[:, self.pairs[:, 1]]
        c = self.weights
        both, left, right = c @ (a * b), c @ (a * (1 - b)), c @ ((1 - a) * b)
        return np.stack([c.sum() - both - left - right, right, left, both], axis=1)

    def losses_and_gradient(self, w: Floats) -> tuple[float, Floats]:
        """The weighted sum of the losses and its gradient, by exact inference on all rows."""
        V, tables = self.unpack(w)
        found = self.over_examples(lambda first, last: self._part(V, tables, first, last))
        loss = sum(part[0] for part in found) - float((tables * self._paired).sum())
        on = np.sum([part[1] for part in found], axis=0)
        pairs = np.sum([part[2] for part in found], axis=0) - self._paired
        return loss, self.pack(on, pairs)

    def _part(self, V: Floats, tables: Floats, first: int, last: int) -> tuple[Any, ...]:
        """Loss (but for the true pairs), X' (p - y), and expected pairs, of some rows."""
        Y, c = self.Y[first:last], self.weights[first:last]
        costs = self.costs if isinstance(self.costs, float) else self.costs[first:last]
        on = self.features.scores(V, first, last) + costs
        log_z, chances, pairs = self.inference.marginals(on / self.gamma, tables / self.gamma, c)
        loss = c @ (self.gamma * log_z - (on * Y).sum(axis=1))
        return float(loss), self.features.adjoint(c[:, None] * (chances - Y), first), pairs

    # ---- intercepts without a penalty

    @cached_property
    def ridge(self) -> Floats:
        """1 for each of the weights (features, labels) that is penalized, and 0 for the others."""
        out = np.ones((self.features.shape[1], self.n_labels))
        if not self.penalize_intercept:
            # A label that is always on, or always off, has no finite optimum without a penalty.
            out[-1, (self._side(True).weight > 0) & (self._side(False).weight > 0)] = 0.0
        return out

    @cached_property
    def _penalized(self) -> Floats:
        """:attr:`ridge` in the form of the weight vector."""
        return np.abs(self.pack(self.ridge, np.ones((len(self.pairs), 4))))

    @cached_property
    def _sides(self) -> dict[bool, Side]:
        return {}

    def _side(self, on: bool) -> Side:
        """Return means over the rows where each label is on, or off."""
        if on not in self._sides:
            of_rows = self.weights[:, None] * (self.Y if on else 1.0 - self.Y)
            weight = of_rows.sum(axis=0)
            total = np.maximum(weight, 1e-300)
            means = self.features.adjoint(of_rows) / total
            sizes = np.asarray(abs(self.features.matrix).T @ of_rows) / total
            changes = table_changes(self.Y, self.pairs, of_rows, weight)
            self._sides[on] = Side(weight, means, sizes, changes)
        return self._sides[on]

    @cached_property
    def _constant_losses(self) -> Floats:
        """By label, an upper bound of the weighted sum of the losses at the optimum."""
        cost = 1.0 if self.loss == "softmax_margin" else 0.0
        on, off = self._side(True).weight, self._side(False).weight
        each = constant_losses(on, off, self.gamma, cost)
        return each if len(self.pairs) == 0 else np.full(self.n_labels, each.sum())

    def penalized(self, w: Floats, total_loss: float) -> float:
        """Return the objective from the weights and the weighted sum of the losses."""
        if self.penalize_intercept:
            return super().penalized(w, total_loss)
        return super().penalized(w * self._penalized, total_loss)

    def primal_and_gradient(self, w: Floats) -> tuple[float, Floats]:
        """Return the objective and its gradient."""
        if self.penalize_intercept:
            return super().primal_and_gradient(w)
        loss, slope = self.losses_and_gradient(w)
        gradient = self.penalty.ridge * self._penalized * w + slope / max(self.n_examples, 1)
        return self.penalized(w, loss), gradient

    def certified(self, w: Floats, value: float, gradient: Floats) -> Certificate:
        """Return the certificate of an objective and its gradient at ``w``."""
        if self.penalize_intercept or not self.has_penalty:
            return super().certified(w, value, gradient)
        V, tables = self.unpack(w)
        size = 2 * V.size
        is_free = self.ridge[-1] == 0
        h = gradient[:size].reshape(self.n_labels, -1, 2)[:, -1, 1] * is_free
        on, off, up = self._side(True), self._side(False), h > 0
        weight = np.where(is_free, np.where(up, on.weight, off.weight), np.inf)
        features, sizes = np.where(up, on.features, off.features), np.where(up, on.sizes, off.sizes)
        left, right = self.pairs.T
        changes = np.stack([
            np.where(up[side][:, None], on.tables[:, :, k], off.tables[:, :, k])
            for k, side in enumerate((left, right))
        ], axis=2)  # fmt: skip
        mean = (features * V).sum(axis=0)
        np.add.at(mean, left, (changes[:, :, 0] * tables).sum(axis=1))
        np.add.at(mean, right, (changes[:, :, 1] * tables).sum(axis=1))
        limit = self._constant_losses / weight
        linear = value - float(np.abs(h) @ limit) - float(h @ mean)
        of_tables = changes[:, :, 0] * h[left, None] + changes[:, :, 1] * h[right, None]
        slope = (gradient - self.pack(features * h, of_tables)) * self._penalized
        # Rounding errors of h, and of the means, in all places where they occur.
        reach = (sizes * np.abs(V)).sum(axis=0) + limit
        np.add.at(reach, left, np.abs(tables).sum(axis=1))
        np.add.at(reach, right, np.abs(tables).sum(axis=1))
        scale = self.gradient_error_scale(w)
        error = scale[:size].reshape(self.n_labels, -1, 2)[:, -1, 1]
        relative = (SUM + self.n_examples + self.features.shape[1]) / self.lam
        each = (error + relative * np.abs(h)) * is_free
        everywhere = np.abs(self.pack(sizes * each, np.ones((len(self.pairs), 4)) * (
            each[left] + each[right])[:, None]))  # fmt: skip
        wrong = UNIT * self.lam * float(each @ reach)
        bound = self.bound(
            linear, slope / self.lam, self.rounding_error(w) + wrong,
            scale + everywhere,
        )  # fmt: skip
        primal, exact = self.upper_bound(w, value)
        return Certificate(primal, bound.value, "exact" if exact else "bound", bound.rounding)

    # ---- rounding

    @cached_property
    def reach(self) -> Floats:
        """By weight: the sum of the |features| of all rows, twice."""
        each = self.features.sizes(self.weights)
        on = np.repeat(each[:, None], self.n_labels, axis=1)
        total = np.full((len(self.pairs), 4), float(self.weights.sum()))
        return 2.0 * np.abs(self.pack(on, total))

    @property
    def roundings(self) -> float:
        """Those of exact inference: a product over all factors, and sums over their states."""
        factors = self.n_labels + len(self.pairs)
        states = self.inference.widest
        return 4.0 * SUM + 8.0 * (factors * (states + EXP) + self.features.shape[1])

    @cached_property
    def weight_error_scale(self) -> Floats:
        """By weight: C times all features, each times its roundings and those of the sum."""
        return self.C * (self.n_examples + 2.0 * self.roundings) * self.reach

    @cached_property
    def score_profile(self) -> ScoreProfile | None:
        """Bounds of the errors of marginals; None without pairs, where nothing is passed on."""
        if not len(self.pairs):
            return None
        most = np.repeat(self.features.largest()[:, None], self.n_labels, axis=1)
        factors = self.n_labels + len(self.pairs)
        entries = (self.features.most_entries + len(self.pairs)) / self.gamma
        sizes = np.abs(self.pack(most, np.ones((len(self.pairs), 4))))
        return ScoreProfile(float(factors), entries, sizes, self.reach)

    @cached_property
    def rounding_terms(self) -> tuple[Floats, float]:
        """Also what exponentials and logarithms do to log partition functions."""
        factors = self.n_labels + len(self.pairs)
        each = 2.0 * self.gamma * float(self.weights.sum()) * factors
        by_weight = (self.n_examples + 2.0 * self.roundings) * self.reach
        return by_weight, self.roundings * each

    # ---- who it is

    def fingerprint_parts(self, n: int) -> Iterator[tuple[str, Any]]:
        """Rows, their labels and weights."""
        matrix = self.X[:n]
        if issparse(matrix):
            for array in (matrix.indptr, matrix.indices, matrix.data):
                yield "features", array
        else:
            yield "features", np.asarray(matrix)
        yield "labels", self.Y[:n]
        yield "weights", self.weights[:n]
        yield "model", np.array([*self.X.shape[1:], self.n_labels, self.intercept])
        if not self.penalize_intercept:
            yield "model", np.array([0])
        yield "model", self.pairs
        yield "model", np.frombuffer(self.pairwise.encode(), dtype=np.uint8)

    def as_graphs(self) -> Any:
        """The same problem with all pairs of all rows listed, for solvers of graphs."""
        from cliquewise.problems.graph import GraphProblem

        model = multilabel_model(
            self.n_labels, self.X.shape[1], self.pairs, self.intercept, self.pairwise
        )
        data = multilabel_data(csr_matrix(self.X), self.n_labels, self.pairs, self.Y)
        problem = GraphProblem(
            model, data, self.C, self.loss, gamma=self.gamma, weights=self.weights
        )
        return problem.elastic(self.l1_ratio)


class LabelsProblem(LabelGraphProblem):
    """Labels without pairs: one logistic regression each.

    Examples
    --------
    >>> problem = LabelsProblem(np.array([[1.0], [2.0]]), [[0, 1], [1, 1]])
    >>> round(problem.primal(np.zeros(problem.dimension)), 4)      # 2 log 2
    1.3863
    """

    kind = "labels"

    def losses(self, on: Floats, labels: slice | NDArray[Any]) -> Floats:
        """Of some labels: their loss over all rows, from their scores of being on."""
        y, s = self.Y[:, labels], on + self._cost_of(labels)
        return np.asarray(self.weights @ (self.gamma * np.logaddexp(0.0, s / self.gamma) - y * s))

    def slopes(self, on: Floats, labels: slice | NDArray[Any]) -> tuple[Floats, Floats]:
        """First and second derivatives of the losses in the scores."""
        p = expit((on + self._cost_of(labels)) / self.gamma)
        c = self.weights[:, None]
        return c * (p - self.Y[:, labels]), c * p * (1.0 - p) / self.gamma

    def _cost_of(self, labels: slice | NDArray[Any]) -> Floats | float:
        return self.costs if isinstance(self.costs, float) else self.costs[:, labels]

    def losses_and_gradient(self, w: Floats) -> tuple[float, Floats]:
        """The weighted sum of the losses and its gradient, without any inference."""
        V, tables = self.unpack(w)
        on, every = self.features.scores(V), slice(None)
        loss = float(self.losses(on, every).sum())
        slope = self.features.adjoint(self.slopes(on, every)[0])
        return loss, self.pack(slope, tables)
