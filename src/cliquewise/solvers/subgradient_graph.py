"""Subgradient on graphs: stochastic primal steps through MAP calls, with a true lower bound.

As on chains (see ``subgradient.py``): with steps ``1 / (lam s)`` the weights are a plain average
of subgradients, and after whole passes the labelings met are a point of the dual.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, ClassVar

import numpy as np

from cliquewise.certificate import Certificate
from cliquewise.errors import DataError
from cliquewise.graph.factor_graph import Floats
from cliquewise.graph.structure import Ints
from cliquewise.problems.graph import GraphProblem
from cliquewise.solvers._max_margin import MaxMargin, augmented_scores, most_states, ranges_of
from cliquewise.solvers._pegasos import AveragedSteps
from cliquewise.solvers.base import Info, register
from cliquewise.solvers.bcfw_graph import PIECE


@dataclass
class GraphSteps:
    """Sums of subgradients and what they prove."""

    z: Floats  # the weights are z / time
    sums: Floats  # visits before a change times that change; empty if no average is wanted
    scores: Floats
    column: Any  # labels of all nodes: a labeling, then the truth
    cliques: Any  # the problem's: the sums are worth nothing with other features or costs
    strength: float  # the problem's C
    visits: int = 0
    mistakes: float = 0.0  # sum of the costs of the labelings of all visits
    dual: float = 0.0  # best value after a whole pass
    averaged: bool = False
    order: Ints = field(default_factory=lambda: np.empty(0, dtype=np.int64))


@register
@dataclass(frozen=True)
class GraphSubgradient(AveragedSteps, MaxMargin):
    """Stochastic subgradient descent through MAP calls; users call it ``subgradient``.

    Parameters
    ----------
    map_method : str, default="auto"
        Any method of :meth:`FactorGraph.map`.
    map_options : mapping, optional
        Passed to the method.
    delay : float, default=1.0
        Passes by which time is ahead at the start: the first step is ``1 / (lam delay n)``.
    average : bool, default=True
        Keep the average of all iterates, weighted by time, and return it where its objective
        is lower.

    Examples
    --------
    >>> from cliquewise.data.graphs import GraphDataset
    >>> from cliquewise.models.pairwise import PairwiseModel
    >>> from cliquewise.solvers.run import run
    >>> data = GraphDataset.from_examples([([[0.5], [-1.0]], [(0, 1)])], [[0, 1]])
    >>> problem = GraphProblem(PairwiseModel([2], 1), data, loss="hinge")
    >>> fit = run(problem, GraphSubgradient(), tol=0.02, max_epochs=1000, random_state=0)
    >>> bool(fit.converged)
    True
    """

    name: ClassVar[str] = "subgradient_graph"
    delay: float = 1.0
    average: bool = True

    def __post_init__(self) -> None:
        super().__post_init__()
        self._check_delay()

    def memory(self, problem: GraphProblem) -> float:
        """Three weight vectors, an order of the examples, two labelings."""
        return 8.0 * (3 * problem.dimension + problem.n_examples + problem.data.n_nodes + 16)

    # ---- state

    def init(self, problem: GraphProblem, warm: GraphSteps | None = None) -> GraphSteps:
        """Zero weights; or the sums of ``warm``, if it ended with a whole pass."""
        size, n = problem.dimension, problem.n_examples
        truth = np.asarray(problem.data.labels, dtype=np.int32)
        state = GraphSteps(
            np.zeros(size), np.zeros(size if self.average else 0), np.empty(most_states(problem)),
            np.stack([truth, truth], axis=1), problem.cliques, problem.C,
        )  # fmt: skip
        if isinstance(warm, GraphSteps) and n > 0 and warm.visits % n == 0:
            if any(not np.array_equal(*p) for p in zip(warm.cliques, problem.cliques, strict=True)):
                raise DataError("a warm start needs the same graphs, features and costs")
            ratio = problem.C / warm.strength
            state.z[:], state.visits, state.mistakes = ratio * warm.z, warm.visits, warm.mistakes
            if warm.sums.shape == state.sums.shape:
                state.sums[:] = ratio * warm.sums
        state.dual = self._dual(problem, state)
        return state

    def _truth_cost(self, problem: GraphProblem) -> float:
        return float(problem.costs @ problem.truth)

    # ---- one step

    def step(
        self, problem: GraphProblem, state: GraphSteps, rng: np.random.Generator
    ) -> tuple[GraphSteps, Info]:
        """Visit a pass of examples, in pieces if there are many."""
        n = problem.n_examples
        if n == 0:
            return state, Info(1.0, 0, 0.0)
        at = state.visits % n
        count = min(PIECE, n - at)
        if at == 0:
            state.order = rng.permutation(n)
        for i in state.order[at : at + count].tolist():
            self._visit(problem, state, i)
        self._end_visits(problem, state)
        return state, Info(count / n, count)

    def _visit(self, problem: GraphProblem, state: GraphSteps, i: int) -> None:
        """``z += C B (y - e)`` for the best labeling e under the present weights."""
        from cliquewise._kernels.cliques.labelings import add_labeling

        g, ranges, time = problem.cliques, ranges_of(problem), self._time(problem, state)
        plain, tables = augmented_scores(problem, state.z, i, state.scores)
        if time > 0:
            tables += (1.0 / time - 1.0) * plain
        labels = self._ask(problem, i, tables).labels
        first, last = problem.data.node_offsets[i : i + 2].tolist()
        state.column[first:last, 0] = labels
        state.mistakes += float(g.cost[g.offsets[first:last] + labels].sum())
        if not np.array_equal(labels, state.column[first:last, 1]):
            for slot, scale in ((1, problem.C), (0, -problem.C)):
                add_labeling(g, ranges, state.column, slot, i, scale, state.z)
                if len(state.sums):
                    add_labeling(g, ranges, state.column, slot, i, scale * state.visits, state.sums)
        state.visits += 1

    # ---- what it proves

    def certify(self, problem: GraphProblem, state: GraphSteps) -> Certificate:
        """Objective of the better of iterate and average, and the best dual value met."""
        primal, exact = self._primal(problem, self._current(problem, state))
        state.averaged = False
        if self.average and state.visits > 0:
            other, also = self._primal(problem, self._mean(problem, state))
            if other < primal:
                state.averaged, primal, exact = True, other, also
        return Certificate(primal, state.dual, "exact" if exact else "bound")

    def weights(self, problem: GraphProblem, state: GraphSteps) -> Floats:
        """The iterate, or the average if that was certified."""
        return (self._mean if state.averaged else self._current)(problem, state)

    def pack(self, state: GraphSteps) -> dict[str, np.ndarray[Any, Any]]:
        """The sums, the order of the pass under way, and the numbers."""
        return {
            "z": state.z, "sums": state.sums, "order": state.order, "truth": state.column[:, 1],
            "numbers": np.array([state.strength, state.visits, state.mistakes, state.dual]),
        }  # fmt: skip

    def unpack(self, problem: GraphProblem, arrays: dict[str, np.ndarray[Any, Any]]) -> GraphSteps:
        """Back from :meth:`pack`."""
        state = self.init(problem)
        resumed: GraphSteps = self._take_up(problem, state, arrays, "truth", state.column[:, 1])
        return resumed
