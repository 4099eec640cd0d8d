"""Full gradients and epochs of SVRG and Casimir on graphs, one example at a time.

The gradient of an example's smoothed loss is ``B_i (q - y_i)``: q are the mean parameters of its
best labeling (max oracle), of the k best in their shares (top-K), or the marginals at temperature
mu (exp). Only exact answers count; a method that cannot prove its answer is refused.
"""

from __future__ import annotations

from functools import cached_property
from typing import Any, NamedTuple

import numpy as np

from cliquewise.errors import UnsupportedError
from cliquewise.graph.factor_graph import FactorGraph, Floats
from cliquewise.graph.structure import Ints
from cliquewise.problems.graph import GraphProblem
from cliquewise.smoothers import get_smoother
from cliquewise.solvers._max_margin import augmented_scores, most_states, states_of
from cliquewise.solvers.backends.smooth import Pass, kind_of_call

REMEDY = "use solver bcfw or subgradient, which make do with bounds"


class Answer(NamedTuple):
    """The smoothed maximum of one example, counted from the truth, and where it is reached."""

    value: float
    mean: Floats  # mean parameters of the example's states
    omega: float
    exact: bool


class GraphBackend:
    """Graphs whose best labelings, or marginals, an exact method finds."""

    def __init__(self, problem: GraphProblem, smoother: str, k: int):
        self.problem, self.name, self.k = problem, smoother, k
        self.smoother: Any = get_smoother(smoother)
        self.room = np.empty(most_states(problem))
        self.anchor: list[Floats] = []

    def zeros(self) -> Floats:
        return np.zeros(self.problem.dimension)

    def kind(self, mu: float) -> str:
        return kind_of_call(self.name, self.k, mu)

    @property
    def truth_cost(self) -> float:
        problem = self.problem
        return float(problem.costs @ problem.truth) / max(problem.n_examples, 1)

    # ---- one example

    def _answer(self, w: Floats, i: int, mu: float) -> Answer:
        """Ask the oracle; what it refuses is said with the example and the remedy."""
        try:
            return self._ask(w, i, mu)
        except UnsupportedError as error:
            raise UnsupportedError(f"example {i}, at these weights: {error}; {REMEDY}") from error

    def _ask(self, w: Floats, i: int, mu: float) -> Answer:
        plain, tables = augmented_scores(self.problem, w, i, self.room)
        start = float(plain @ self.problem.truth[self.problem.entries(i)])
        structure, kind = self.problem.structures[i], self.kind(mu)
        if kind == "exp":
            found = FactorGraph.from_structure(structure, tables / mu).marginals()
            _demand_exact(found)
            value, mean = mu * float(found.value), np.asarray(found.factors.flat)
            return Answer(value - start, mean, float(tables @ mean) - value, True)
        graph = FactorGraph.from_structure(structure, tables)
        if kind == "max":
            best = graph.map()
            _demand_exact(best)
            return Answer(best.score - start, _mean(graph, [best], np.ones(1)), 0.0, True)
        several = graph.top_k(self.k + 1)
        _demand_exact(several[0])
        psi = np.array([result.score for result in several]) - start
        u = self.smoother.gradient(psi[: self.k], mu)
        exact = len(psi) <= self.k or self.smoother.is_exact(psi[: self.k], float(psi[self.k]), mu)
        value = self.smoother.value(psi[: self.k], mu)
        return Answer(value, _mean(graph, several, u), mu * self.smoother.omega(u), bool(exact))

    def _add(self, i: int, d: Floats, out: Floats) -> None:
        """``out += B_i d``."""
        from cliquewise._kernels.cliques.features import add_example

        data = self.problem.data
        nodes = (int(data.node_offsets[i]), int(data.node_offsets[i + 1]))
        edges = (int(data.edge_offsets[i]), int(data.edge_offsets[i + 1]))
        add_example(self.problem.cliques, d, nodes, edges, out)

    # ---- all of them

    def full_gradient(self, w: Floats, mu: float) -> Pass:
        problem, n = self.problem, max(self.problem.n_examples, 1)
        loss = cost = omega = 0.0
        exact, gradient, self.anchor = 0, self.zeros(), []
        for i in range(problem.n_examples):
            found, at = self._answer(w, i, mu), problem.entries(i)
            loss, omega, exact = loss + found.value, omega + found.omega, exact + found.exact
            cost += float(problem.costs[at] @ found.mean)
            self._add(i, found.mean - problem.truth[at], gradient)
            self.anchor.append(found.mean)
        share = exact / n if problem.n_examples else 1.0
        return Pass(loss / n, cost / n, omega / n, gradient / n, problem.n_examples, share)

    def epoch(
        self, w: Floats, c: Floats, mu: float, order: Ints, step: float, shrink: float,
        average: bool,
    ) -> tuple[Floats, int]:  # fmt: skip
        w, total = w.copy(), self.zeros()
        for i in order.tolist():
            mean = self._answer(w, i, mu).mean
            w += (1.0 - shrink) * (c - w)
            self._add(i, step * (self.anchor[i] - mean), w)
            if average:
                total += w
        return (total / len(order) if average and len(order) else w), len(order)

    def forget(self) -> None:
        problem = self.problem
        self.anchor = [problem.truth[problem.entries(i)] for i in range(problem.n_examples)]

    def smooth_loss(self, w: Floats, mu: float) -> float:
        n = self.problem.n_examples
        return sum(self._answer(w, i, mu).value for i in range(n)) / max(n, 1)

    def losses(self, w: Floats) -> Floats:
        n = self.problem.n_examples
        return np.array([self._answer(w, i, 0.0).value for i in range(n)], dtype=np.float64)

    @cached_property
    def curvature(self) -> float:
        """Between what one node moves and what all nodes of an example do: their geometric mean.

        Where features are sparse few labels share weights, and one node counts; with a handful
        of weights for all nodes the others count as well.
        """
        g = self.problem.cliques
        total = np.concatenate(([0.0], np.cumsum(g.values**2)))
        squares = (total[g.indptr[1:]] - total[g.indptr[:-1]])[g.row]
        nodes, edges = squares[: len(g.degree)].copy(), squares[len(g.degree) :]
        np.add.at(nodes, g.left, edges)
        np.add.at(nodes, g.right, edges)
        whole = np.bincount(self.problem.owners, squares, minlength=1).mean()
        return float(np.sqrt(nodes.max(initial=0.0) * whole))

    def unpacked(self, w: Floats) -> Floats:
        return w.copy()

    packed = unpacked


def _demand_exact(found: Any) -> None:
    if not found.exact:
        raise UnsupportedError(f"method {found.method!r} does not prove its answer")


def _mean(graph: FactorGraph, labelings: list[Any], shares: Floats) -> Floats:
    """Mean parameters of labelings in their shares; those beyond the shares have none."""
    mean = np.zeros(len(graph.tables))
    rows = np.array([result.labels for result in labelings[: len(shares)]])
    for entries in graph._entries(rows):
        np.add.at(mean, entries, shares[:, None])
    return mean


def refusal_on_graphs(problem: GraphProblem, kind: str) -> str | None:
    """Why no exact method answers calls of a kind on some of the graphs; None if one may.

    What depends on the scores (whether they are submodular) is only known in the course of it.
    """
    from cliquewise.oracles.base import registered

    exact = [o for o in registered() if o.exact and o.automatic]
    for structure in {id(s): s for s in problem.structures}.values():
        wants = [{"max": "map", "top_k": "top_k", "exp": "marginals"}[kind]]
        able = [o for o in exact if o.name != "bmmf" and o.accepts(structure, wants[0])]
        if not able and kind == "top_k":
            wants = ["map", "max_marginals"]  # what bmmf makes its labelings from
            able = [o for o in exact if all(o.accepts(structure, want) for want in wants)]
        if not able:
            what = {"max": "best labelings", "top_k": "k best labelings", "exp": "marginals"}
            return (
                f"needs the exact {what[kind]} of every graph, and a graph of "
                f"{structure.n_variables} nodes and {len(structure.edges)} edges is too much for "
                f"every exact method; {REMEDY}"
            )
    return None


def states(problem: GraphProblem) -> int:
    """Numbers in the mean parameters of all examples."""
    return sum(states_of(problem, i)[2] for i in range(problem.n_examples))
