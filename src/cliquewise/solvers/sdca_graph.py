"""SDCA on graphs of small treewidth: one example at a time, by exact inference.

The same mathematics as ``_kernels/chain/sdca.py``, without its speed: the dual distribution of
an example is kept as log-potentials theta with their marginals and log partition A, and moves
along ``theta + eta (s - theta)``, where s are the scores under the present weights. With
``g = A(s) - A(theta) - <s - theta, mu>`` as block gap a step is accepted only if the dual
objective, evaluated exactly, does not fall.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np

from cliquewise.certificate import Certificate
from cliquewise.errors import DataError
from cliquewise.graph.factor_graph import FactorGraph, Floats
from cliquewise.problems.graph import GraphProblem
from cliquewise.solvers.base import Info, Solver, register


@dataclass
class TableDuals:
    """Distributions of all examples, flat over their cliques, and the weights they give."""

    theta: Floats
    mu: Floats
    log_z: Floats
    gaps: Floats
    w: Floats


@register
@dataclass(frozen=True)
class GraphSDCA(Solver):
    """Stochastic dual coordinate ascent by exact inference; users call it ``sdca``.

    Parameters
    ----------
    start : float, default=10.0
        Score of the true labels in the dual distributions at the start.
    """

    name: ClassVar[str] = "sdca_graph"
    losses: ClassVar[frozenset[str]] = frozenset({"log", "softmax_margin"})
    problems: ClassVar[frozenset[str]] = frozenset({"graph"})
    start: float = 10.0

    def refuses(self, problem: Any) -> str | None:
        """Refuse other losses, and graphs on which exact inference is out of reach."""
        reason = super().refuses(problem)
        if reason is None and (large := problem.too_large()) is not None:
            reason = f"needs exact inference, which {large}"
        return reason

    def memory(self, problem: GraphProblem) -> float:
        """Two numbers per state of each clique."""
        return 8.0 * (2.0 * int(problem.cliques.offsets[-1]) + 3 * problem.dimension)

    def init(self, problem: GraphProblem, warm: TableDuals | None = None) -> TableDuals:
        """Distributions close to the truth, or those of ``warm``."""
        theta = self.start * problem.truth
        # Edges say nothing at the start: the nodes' scores suffice.
        theta[problem.cliques.offsets[problem.data.n_nodes] :] = 0.0
        if warm is not None:
            if warm.theta.shape != theta.shape:
                raise DataError("a warm start needs the same graphs")
            theta = warm.theta.copy()
        return self._ready(problem, theta)

    def _ready(self, problem: GraphProblem, theta: Floats) -> TableDuals:
        n = problem.n_examples
        mu, log_z = np.empty_like(theta), np.empty(n)
        for i in range(n):
            at = problem.entries(i)
            mu[at], log_z[i] = _marginals(problem, i, theta[at])
        state = TableDuals(theta, mu, log_z, np.full(n, np.inf), np.empty(0))
        self._refresh(problem, state)
        return state

    def _refresh(self, problem: GraphProblem, state: TableDuals) -> None:
        w = np.zeros(problem.dimension)
        problem.accumulate(problem.truth - state.mu, w)
        state.w = problem.C * w

    def step(
        self, problem: GraphProblem, state: TableDuals, rng: np.random.Generator
    ) -> tuple[TableDuals, Info]:
        """One reshuffled pass over the examples."""
        n = problem.n_examples
        calls = sum(self._visit(problem, state, int(i)) for i in rng.permutation(n))
        gap = float(problem.temperatures @ state.gaps) / max(n, 1)
        dual = self._dual(problem, state)
        return state, Info(1.0, calls, gap / max(abs(dual + gap), 1e-12))

    def _visit(self, problem: GraphProblem, state: TableDuals, i: int) -> int:
        """Move the distribution of one example; returns the number of inferences."""
        from cliquewise._kernels.cliques.features import add_example, example_scores

        at, gamma, C = problem.entries(i), float(problem.temperatures[i]), problem.C
        if gamma == 0:  # an example without weight
            state.gaps[i] = 0.0
            return 0
        d = problem.data
        nodes = (int(d.node_offsets[i]), int(d.node_offsets[i + 1]))
        edges = (int(d.edge_offsets[i]), int(d.edge_offsets[i + 1]))
        scores = np.empty(len(at))
        example_scores(problem.cliques, state.w, nodes, edges, scores)
        cost = problem.costs[at]
        scores = (scores + cost) / gamma
        theta, mu = state.theta[at], state.mu[at]
        p, log_z = _marginals(problem, i, scores)
        state.gaps[i] = max(log_z - state.log_z[i] - float((scores - theta) @ mu), 0.0)
        both = float((scores - theta) @ (p - mu))
        if both <= 1e-15:
            return 1
        image = np.zeros(problem.dimension)
        add_example(problem.cliques, p - mu, nodes, edges, image)
        eta = _step_length(C * float(image @ image) / (gamma * both), both, state.gaps[i])
        entropy = state.log_z[i] - float(theta @ mu)
        calls = 1
        while eta > 1e-6:
            new_theta = theta + eta * (scores - theta)
            new_mu, new_z = (p, log_z) if eta == 1.0 else _marginals(problem, i, new_theta)
            calls += eta < 1.0
            image[:] = 0.0
            add_example(problem.cliques, new_mu - mu, nodes, edges, image)
            gained = gamma * (new_z - float(new_theta @ new_mu) - entropy) + float(
                cost @ (new_mu - mu)
            )
            gained += float(state.w @ image) - 0.5 * C * float(image @ image)
            if gained >= 0:
                state.theta[at], state.mu[at], state.log_z[i] = new_theta, new_mu, new_z
                state.w -= C * image
                break
            eta *= 0.5
        return calls

    def _dual(self, problem: GraphProblem, state: TableDuals) -> float:
        entropies = state.log_z.copy()
        for i in range(problem.n_examples):
            at = problem.entries(i)
            entropies[i] -= float(state.theta[at] @ state.mu[at])
        total = float(problem.temperatures @ entropies) + float(problem.costs @ state.mu)
        return total / max(problem.n_examples, 1) - 0.5 * problem.lam * float(state.w @ state.w)

    def certify(self, problem: GraphProblem, state: TableDuals) -> Certificate:
        """Exact primal and dual values."""
        self._refresh(problem, state)
        return Certificate(problem.primal(state.w), self._dual(problem, state), "exact")

    def weights(self, problem: GraphProblem, state: TableDuals) -> Floats:
        """Weights of the dual point."""
        return state.w

    def pack(self, state: TableDuals) -> dict[str, np.ndarray[Any, Any]]:
        """The dual scores; the rest follows from them."""
        return {"theta": state.theta}

    def unpack(self, problem: GraphProblem, arrays: dict[str, np.ndarray[Any, Any]]) -> TableDuals:
        """Back from :meth:`pack`."""
        if arrays["theta"].shape != (int(problem.cliques.offsets[-1]),):
            raise DataError("the checkpoint is of other data: its arrays have other shapes")
        return self._ready(problem, np.array(arrays["theta"]))


def _marginals(problem: GraphProblem, i: int, tables: Floats) -> tuple[Floats, float]:
    answer = FactorGraph.from_structure(problem.structures[i], tables).marginals()
    return answer.factors.flat, answer.log_z


def _step_length(kappa: float, both: float, gap: float) -> float:
    """Root of ``1 - eta = kappa eta^a`` with ``a = both / gap - 1``, by Newton's steps."""
    power = max(both / max(gap, 1e-300) - 1.0, 0.1)
    low, high, eta = 0.0, 1.0, 1.0 / (1.0 + kappa)
    for _ in range(20):
        value = 1.0 - eta - kappa * eta**power
        low, high = (eta, high) if value > 0 else (low, eta)
        slope = -1.0 - kappa * power * eta ** (power - 1.0)
        new = eta - value / slope
        eta = new if low < new < high else 0.5 * (low + high)
    return 1.0 if eta > 0.99 else eta
