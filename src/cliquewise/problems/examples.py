"""ExampleProblem: a problem whose examples are asked one at a time for their best outputs.

    P(w) = lam / 2 ||w||^2 + 1/n sum_i max over y of psi_i(y; w),      lam = 1 / (C n)
    psi_i(y; w) = cost_i(y) + <w, phi(x_i, y) - phi(x_i, y_i)>

A solver sees nothing of the outputs but :meth:`ExampleProblem.top_k`: values of psi and their
gradients. What an output is (a matching, a candidate, a box) is the subclass's affair.
"""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any, ClassVar, NamedTuple

import numpy as np

from cliquewise.certificate import Certificate
from cliquewise.errors import DataError, UnsupportedError
from cliquewise.graph.factor_graph import Floats
from cliquewise.graph.structure import Ints


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


class ExampleProblem:
    """Base of the problems that solvers drive through a top-K oracle.

    Parameters
    ----------
    n_examples, dimension : int
    C : float, default=1.0
        Weight of the sum of the losses against ``1/2 ||w||^2``; infinity leaves the penalty
        out, which only solver ``casimir`` can do with.
    loss : str, default="hinge"
    n_jobs : int, default=1
        Threads for passes over all examples.

    Attributes
    ----------
    kind : str
        ``candidates``, ``matching``; ``examples`` for a class of your own.
    losses_known : tuple of str
        What ``loss`` may be.
    """

    kind: ClassVar[str] = "examples"
    losses_known: ClassVar[tuple[str, ...]] = ("hinge",)
    is_convex: ClassVar[bool] = True

    def __init__(
        self, n_examples: int, dimension: int, C: float = 1.0, loss: str = "hinge", n_jobs: int = 1
    ):
        if loss not in self.losses_known:
            raise UnsupportedError(
                f"loss {loss!r} is not available for a {self.kind} problem; "
                f"the losses are: {', '.join(self.losses_known)}"
            )
        if not C > 0:
            raise DataError(f"C = {C}; it must be positive (or infinite: no penalty)")
        self.n_examples, self.dimension = n_examples, dimension
        self.C, self.loss, self.n_jobs = float(C), loss, n_jobs

    @property
    def lam(self) -> float:
        """Weight of the penalty in the per-example objective."""
        return 1.0 / (self.C * max(self.n_examples, 1))

    # ---- the oracle

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

    def top_k_all(self, w: Floats, k: int) -> list[tuple[Floats, Rows]]:
        """:meth:`top_k` of every example, in ``n_jobs`` threads."""
        found: list[Any] = [None] * self.n_examples

        def part(first: int, last: int) -> None:
            for i in range(first, last):
                found[i] = self.top_k(w, i, k)

        self.over_examples(part)
        return found

    def over_examples(self, part: Callable[[int, int], Any]) -> None:
        """Run ``part(first, last)`` over all examples, in ``n_jobs`` threads."""
        n, jobs = self.n_examples, max(1, self.n_jobs)
        if jobs == 1 or n < 2 * jobs:
            part(0, n)
            return
        cuts = np.linspace(0, n, jobs + 1).astype(int).tolist()
        with ThreadPoolExecutor(jobs) as pool:
            list(pool.map(part, cuts[:-1], cuts[1:]))

    def exp(self, w: Floats, i: int, mu: float = 1.0) -> tuple[float, Rows]:
        """``mu log sum over y of exp(psi / mu)`` and its gradient, a single row."""
        raise UnsupportedError(f"a {self.kind} problem has no exp oracle; smooth with top-K")

    @property
    def row_entries(self) -> float:
        """About how many entries a row of :meth:`top_k` has, to foretell memory."""
        return float(self.dimension)

    # ---- values

    def value(self, penalty_norm: float, total_loss: float) -> float:
        """The objective from ``||w||^2`` and the sum of the losses."""
        return 0.5 * self.lam * penalty_norm + total_loss / max(self.n_examples, 1)

    def losses(self, w: Floats) -> Floats:
        """Exact loss of every example."""
        return np.array([scores[0] for scores, _ in self.top_k_all(w, 1)], dtype=np.float64)

    def primal(self, w: Floats) -> float:
        """The objective."""
        return self.value(float(w @ w), float(self.losses(w).sum()))

    def primal_and_gradient(self, w: Floats) -> tuple[float, Floats]:
        """The objective and a subgradient."""
        total, gradient = 0.0, np.zeros(self.dimension)
        for scores, rows in self.top_k_all(w, 1):
            total += float(scores[0])
            rows.add_to(gradient, 0)
        gradient /= max(self.n_examples, 1)
        return self.value(float(w @ w), total), gradient + self.lam * w

    def certificate(self, w: Floats) -> Certificate:
        """Primal and dual at ``w``: strong convexity gives ``P* >= P - ||grad||^2 / (2 lam)``.

        True, but loose for the hinge loss; a solver with dual variables proves more.
        """
        value, gradient = self.primal_and_gradient(w)
        if self.lam == 0:
            return Certificate(value, 0.0, "exact")  # no loss is negative
        lower = value - float(gradient @ gradient) / (2 * self.lam)
        return Certificate(value, lower, "exact")

    def resolve(self, solver: Any) -> Any:
        """What ``auto`` and ``bcfw`` mean here."""
        if solver == "auto":
            solver = "bcfw" if self.loss == "hinge" else "lbfgs"
        return "bcfw_examples" if solver == "bcfw" else solver
