"""The relaxed problem of small graphs written out as one quadratic program, and its optimum.

    max over mu in the local polytope of <cost, mu> + gamma H(mu) - C / 2 ||B (y - mu)||^2

Matrices are dense; the optimum comes from a generic method (see ``quadratic_program.py``).
"""

from __future__ import annotations

from functools import cached_property

import numpy as np
from quadratic_program import minimize_quadratic
from scipy.linalg import null_space

from cliquewise.problems.graph import GraphProblem


def feature_matrix(problem: GraphProblem) -> np.ndarray:
    """B as a dense matrix, by applying the adjoint to unit vectors."""
    size = int(problem.cliques.offsets[-1])
    columns = []
    for s in range(size):
        unit, out = np.zeros(size), np.zeros(problem.dimension)
        unit[s] = 1.0
        problem.accumulate(unit, out)
        columns.append(out)
    return np.array(columns).reshape(size, problem.dimension).T


def constraint_matrices(problem: GraphProblem) -> tuple[np.ndarray, np.ndarray]:
    """Rows that sum each clique to one, and the rows of A."""
    g = problem.cliques
    n_nodes = len(g.degree)
    size = int(g.offsets[-1])
    sums = np.zeros((len(g.type), size))
    for c in range(len(g.type)):
        sums[c, g.offsets[c] : g.offsets[c + 1]] = 1.0
    rows = []
    for e, (i, j) in enumerate(zip(g.left, g.right, strict=True)):
        ki, kj = (int(g.offsets[v + 1] - g.offsets[v]) for v in (i, j))
        table = np.arange(g.offsets[n_nodes + e], g.offsets[n_nodes + e + 1]).reshape(ki, kj)
        for node, lines in ((i, table), (j, table.T)):
            for s, line in enumerate(lines):
                row = np.zeros(size)
                row[g.offsets[node] + s] = 1.0
                row[line] = -1.0
                rows.append(row)
    return sums, np.array(rows).reshape(len(rows), size)


def node_of(problem: GraphProblem, row: np.ndarray) -> int:
    """The node of a row of A."""
    return int(np.searchsorted(problem.cliques.offsets, np.flatnonzero(row > 0)[0], "right")) - 1


class RelaxedProgram:
    """The matrices of a problem, the bracket of its optimum, and the objective at weights."""

    def __init__(self, problem: GraphProblem):
        self.problem = problem
        self.B = feature_matrix(problem)
        self.sums, self.A = constraint_matrices(problem)
        self.target = self.B @ problem.truth
        terms, g = problem.terms, problem.cliques
        curvature = problem.gamma * np.repeat(terms.curvature, np.diff(g.offsets))
        #: H(mu) = constant - mu' R mu
        self.R, self.constant = np.diag(curvature), problem.gamma * terms.curvature.sum()
        if len(terms.slack):
            self.constant -= problem.gamma * terms.slack.sum()
            for row in self.A:
                ends = np.minimum(row, 0.0)
                clique = int(np.searchsorted(g.offsets, np.flatnonzero(ends)[0], "right"))
                e = clique - 1 - len(g.degree)
                side = 0 if g.left[e] == node_of(problem, row) else 1
                self.R -= problem.gamma * terms.slack[e, side] * np.outer(ends, ends)
        self.directions = null_space(np.concatenate([self.sums, self.A]))

    def maximum(self, linear: np.ndarray, Q: np.ndarray) -> tuple[float, float]:
        """Bracket of the most that ``<linear, mu> - mu' Q mu / 2`` is on the local polytope."""
        N, truth = self.directions, self.problem.truth
        t, y = minimize_quadratic(
            N.T @ Q @ N, N.T @ (Q @ truth - linear), N, -truth, np.zeros(N.shape[1])
        )
        sizes = np.diff(self.problem.cliques.offsets)
        inside, mu = np.repeat(1.0 / sizes, sizes), truth + N @ t
        low = -float(mu.min(initial=0.0))
        mu += low / (low + inside.min(initial=1.0)) * (inside - mu)
        slope = linear - Q @ mu
        # No point is further from mu than every clique's mass is, and y is nowhere negative.
        far = np.sqrt(2.0 * len(sizes)) * float(np.linalg.norm(N.T @ (slope + y)))
        value = float(linear @ mu - 0.5 * mu @ Q @ mu)
        return value, value + float(y @ mu) + far

    @cached_property
    def bracket(self) -> tuple[float, float]:
        """A lower and an upper bound of the optimum, per example."""
        C, n = self.problem.C, max(self.problem.n_examples, 1)
        Q = C * self.B.T @ self.B + 2 * self.R
        linear = self.problem.costs + C * self.B.T @ self.target
        constant = self.constant - 0.5 * C * self.target @ self.target
        low, high = self.maximum(linear, Q)
        return (low + constant) / n, (high + constant) / n

    def value(self, w: np.ndarray) -> float:
        """The relaxed objective at weights: no more than a lower bound, to many digits."""
        most = self.maximum(self.problem.costs + self.B.T @ w, 2 * self.R)[0]
        return self.problem.ridge_objective(
            float(w @ w), most + self.constant - float(w @ self.target)
        )


def reference_optimum(problem: GraphProblem) -> float:
    """The relaxed optimum per example."""
    return reference_bracket(problem)[0]


def reference_bracket(problem: GraphProblem) -> tuple[float, float]:
    """A lower and an upper bound of the relaxed optimum."""
    return RelaxedProgram(problem).bracket
