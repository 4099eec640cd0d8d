"""ExampleProblem: a problem whose examples are asked one at a time for their best outputs.

    P(w) = lam / 2 ||w||^2 + 1/n sum_i max over y of psi_i(y; w),      lam = 1 / (C n)
    psi_i(y; w) = cost_i(y) + <w, phi(x_i, y) - phi(x_i, y_i)>

A solver sees nothing of the outputs but :meth:`ExampleProblem.top_k` and, where marginals can be
had, :meth:`ExampleProblem.exp`: values of psi and their gradients. What an output is (a labeling
of a graph, a matching, a candidate, a box) is the subclass's affair.
"""

from __future__ import annotations

from functools import cached_property
from typing import Any, ClassVar, NamedTuple

import numpy as np

from cliquewise.errors import UnsupportedError
from cliquewise.problems.base import Problem
from cliquewise.problems.rounding import EXP, SUM, UNIT
from cliquewise.ragged import Floats, Ints, offsets_of


class Rows(NamedTuple):
    """Sparse rows: row r has ``values[indptr[r] : indptr[r + 1]]`` at the same ``indices``.

    No index occurs twice in a row; indices and ``indptr`` are int64, values float64.
    """

    indices: Ints
    values: Floats
    indptr: Ints

    def __len__(self) -> int:
        """Number of rows."""
        return len(self.indptr) - 1

    def dot(self, w: Floats) -> Floats:
        """Product of every row with ``w``."""
        terms = np.append(self.values * w[self.indices], 0.0)
        sums = np.add.reduceat(terms, self.indptr[:-1]) if len(self) else np.empty(0)
        return np.where(np.diff(self.indptr) > 0, sums, 0.0)

    def add_to(self, out: Floats, r: int, factor: float = 1.0) -> None:
        """``out += factor * row r``."""
        at = slice(int(self.indptr[r]), int(self.indptr[r + 1]))
        out[self.indices[at]] += factor * self.values[at]

    def row(self, r: int) -> Rows:
        """Return one row."""
        at = slice(int(self.indptr[r]), int(self.indptr[r + 1]))
        size = at.stop - at.start
        return Rows(self.indices[at], self.values[at], np.array([0, size]))

    def combined(self, factors: Floats) -> Rows:
        """The sum of the rows times their factors, a single row; those without one are left out."""
        n = len(factors)
        end, counts = int(self.indptr[n]), np.diff(self.indptr[: n + 1])
        values = self.values[:end] * np.repeat(factors, counts)
        indices, place = np.unique(self.indices[:end], return_inverse=True)
        sums = np.bincount(place, values, minlength=len(indices))
        return Rows(indices, np.asarray(sums, dtype=np.float64), np.array([0, len(indices)]))


def stacked(parts: list[tuple[Ints, Floats]]) -> Rows:
    """Sparse vectors as rows."""
    lengths = [len(index) for index, _ in parts]
    return Rows(
        np.concatenate([np.empty(0, dtype=np.int64), *(index for index, _ in parts)]),
        np.concatenate([np.empty(0), *(values for _, values in parts)]),
        offsets_of(lengths),
    )


class Best(NamedTuple):
    """The best output found: psi, its gradient as a single row, and what is proved.

    No output has a psi above ``bound``, which is psi itself where the answer is ``exact``.
    """

    value: float
    row: Rows
    bound: float
    exact: bool

    def cost(self, problem: ExampleProblem, w: Floats) -> float:
        """What the output costs, or less: psi at ``w`` without the scores, and without rounding."""
        score = float(self.row.dot(w)[0])
        return self.value - score - problem.cost_rounding_error(w, self.value, self.row)


class ExampleProblem(Problem):
    """Base of the problems that solvers drive through a top-K oracle.

    Parameters
    ----------
    n_examples, dimension : int
    C, loss, n_jobs
        As of :class:`~cliquewise.problems.base.Problem`.

    Attributes
    ----------
    truth_costs : float array (n_examples,)
        Cost of each true output, psi of the truth; zero unless a subclass says otherwise.
    """

    kind: ClassVar[str] = "examples"
    losses_known: ClassVar[tuple[str, ...]] = ("hinge",)
    has_exp: ClassVar[bool] = False

    def __init__(
        self, n_examples: int, dimension: int, C: float = 1.0, loss: str = "hinge", n_jobs: int = 1
    ):
        super().__init__(C, loss, n_jobs)
        self._n_examples, self._dimension = n_examples, dimension
        self.truth_costs = np.zeros(n_examples)

    @property
    def n_examples(self) -> int:
        """Number of examples."""
        return self._n_examples

    @property
    def dimension(self) -> int:
        """Length of the weight vector."""
        return self._dimension

    @property
    def lower_bound(self) -> float:
        """Mean cost of the true outputs."""
        return float(self.truth_costs.sum()) / max(self.n_examples, 1)

    # ---- the oracles

    def top_k(self, w: Floats, i: int, k: int) -> tuple[Floats, Rows]:
        """The k best outputs of example ``i``: their psi and its gradients.

        Parameters
        ----------
        w : array (dimension,)
        i, k : int

        Returns
        -------
        scores : float array (m,)
            psi of the m <= k best outputs, descending; fewer than k only if there are no more.
            The first is the hinge loss, which is never negative: the truth has psi = 0.
        features : Rows
            Row r is ``phi(x_i, y_r) - phi(x_i, y_i)``; row 0 is a subgradient of the hinge loss.
        """
        raise NotImplementedError

    def exp(self, w: Floats, i: int, mu: float = 1.0) -> tuple[float, float, Rows]:
        """``mu log sum over y of exp(psi / mu)``, the mean of psi, and the mean of its gradients.

        Means are over ``p(y) ~ exp(psi / mu)``; the last is a single row, the first's gradient.
        """
        raise UnsupportedError(f"a {self.kind} problem has no exp oracle; smooth with top-K")

    @cached_property
    def reach(self) -> Floats:
        """By weight: twice the sum of all absolute features; zero where they are not known."""
        return np.zeros(self.dimension)

    @cached_property
    def weight_error_scale(self) -> Floats:
        """By weight: C times all features, each times its roundings and those of the sum."""
        return self.C * self.rounding_terms[0]

    @property
    def rounding_terms(self) -> tuple[Floats, float]:
        """By weight: all features, each times its roundings and those of the sum; no others."""
        return (self.n_examples + 2.0 * self.roundings) * self.reach, 0.0

    def weight_error_scale_for(self, sizes: Floats, additions: float) -> Floats:
        """:attr:`weight_error_scale` of a sum of rows of known sizes and number."""
        return self.C * ((additions + self.roundings) * sizes + self.roundings * self.reach)

    def rounding_error(self, w: Floats) -> float:
        """Errors of scores and maxima, and of their sum over the examples."""
        own = UNIT * self.roundings * self.n_examples
        return super().rounding_error(w) + own / max(self.n_examples, 1)

    @property
    def roundings(self) -> float:
        """Roundings of a score, of a cost, or of an entry of a row, at most."""
        return SUM + 4.0 * (self.row_entries + EXP)

    def cost_rounding_error(self, w: Floats, value: float, row: Rows) -> float:
        """By how much the cost of an output may be wrong if it is made from psi and its row."""
        size = float(np.abs(row.values) @ np.abs(w[row.indices]))
        return UNIT * (self.roundings + len(row.values)) * (abs(value) + size)

    def best(
        self, w: Floats, i: int, method: str = "auto", options: Any = (), enough: float = 0.0
    ) -> Best:
        """The best output, by a method of the user's choice where a kind of problem has several.

        One whose psi is within ``enough`` of the bound will do.
        """
        if method != "auto" or options:
            raise UnsupportedError(f"a {self.kind} problem has one way to find its best outputs")
        scores, rows = self.top_k(w, i, 1)
        return Best(float(scores[0]), rows, float(scores[0]), True)

    @property
    def row_entries(self) -> float:
        """Estimate the number of entries of a row of :meth:`top_k`, to estimate memory."""
        return float(self.dimension)

    def curvature(self, k: int) -> float:
        """By how much gradients may differ, squared: the greatest of k outputs, for a mean example.

        It sets the first learning rate of `svrg` and `casimir`.
        """
        n, norms = self.n_examples, []
        for i in range(0, n, max(1, n // 50)):
            _, rows = self.top_k(np.zeros(self.dimension), i, k)
            squares = np.append(rows.values**2, 0.0)
            sums = np.add.reduceat(squares, rows.indptr[:-1]) * (np.diff(rows.indptr) > 0)
            norms.append(sums.max(initial=0.0))
        return float(np.mean(norms)) if norms else 0.0

    # ---- all examples

    def top_k_all(self, w: Floats, k: int) -> list[tuple[Floats, Rows]]:
        """:meth:`top_k` of every example, in ``n_jobs`` threads."""

        def part(first: int, last: int) -> list[tuple[Floats, Rows]]:
            return [self.top_k(w, i, k) for i in range(first, last)]

        return [found for several in self.over_examples(part) for found in several]

    def losses(self, w: Floats) -> Floats:
        """Exact loss of every example."""
        return np.array([scores[0] for scores, _ in self.top_k_all(w, 1)], dtype=np.float64)

    def bounds(self, w: Floats, method: str = "auto", options: Any = ()) -> tuple[Floats, bool]:
        """An upper bound of every loss by :meth:`best`, and whether all are exact."""
        if method == "auto" and not options:
            return self.losses(w), True
        found = [self.best(w, i, method, options) for i in range(self.n_examples)]
        return np.array([b.bound for b in found]), all(b.exact for b in found)

    def primal(self, w: Floats) -> float:
        """The objective."""
        return self.penalized(w, float(self.losses(w).sum()))

    def losses_and_gradient(self, w: Floats) -> tuple[float, Floats]:
        """The sum of the losses and a subgradient."""
        total, gradient = 0.0, np.zeros(self.dimension)
        for scores, rows in self.top_k_all(w, 1):
            total += float(scores[0])
            rows.add_to(gradient, 0)
        return total, gradient
