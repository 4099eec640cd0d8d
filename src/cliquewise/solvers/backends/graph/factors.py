"""GDMM on graphs: all states of all cliques are stored, so that a clique's search is complete."""

from __future__ import annotations

from typing import Any, ClassVar

import numpy as np

from cliquewise.certificate import Certificate
from cliquewise.problems.graph import GraphProblem
from cliquewise.ragged import Floats
from cliquewise.solvers.backends.graph.cliques import CliqueAscent
from cliquewise.solvers.base import Arrays, Info, State

RULES = ("bcfw", "afw", "bgcd")
#: Parts that the sampled search divides states (or, with BGCD, cliques) into.
PARTS = 2
#: A clique joins the active ones if it gains this share of the best clique's gain.
JOIN = 0.5
#: Shares of the whole gap that the inner problem's should stay between (as in idal).
LEAST, MOST = 0.02, 0.8
#: From one look to the next a gap should fall below this part of itself.
SLOW = 0.95


class GraphFactors(State):
    """Factorwise steps on the beliefs of a :class:`CliqueAscent`."""

    check_cost = 0.5
    resume_paths: ClassVar[tuple[str, ...]] = (
        "active", *(f"ascent.{name}" for name in CliqueAscent.resume_paths)
    )  # fmt: skip

    def __init__(self, problem: GraphProblem, solver: Any):
        self.problem = problem
        self.rule = RULES.index(solver.step_rule or "bcfw")
        sampled = solver.factor_search == "sampled"
        self.parts = (solver.partition or PARTS) if sampled else 1
        self.eta, self.adaptive = float(solver.eta), bool(solver.adaptive)
        rho = None if isinstance(solver.rho, str) else 1.0 / solver.rho
        self.ascent = CliqueAscent.begin(problem, problem.truth.copy(), rho, 1.0)
        self.active = np.zeros(problem.n_cliques, dtype=bool)

    @staticmethod
    def memory(problem: GraphProblem) -> float:
        """As of all solvers that store every state."""
        return CliqueAscent.memory(problem)

    @staticmethod
    def refuses(problem: GraphProblem, solver: Any) -> str | None:
        """Nothing."""
        return None

    def sweep(self, rng: np.random.Generator) -> Info:
        from cliquewise._kernels.cliques.ascent import Tour
        from cliquewise._kernels.cliques.factors import Rule, factor_sweep

        problem, data, state = self.problem, self.problem.data, self.ascent
        if problem.n_cliques == 0:
            return Info(1.0, 0, 0.0)
        if self.adaptive and np.isfinite(state.share):
            self._adapt()
        length = self.eta / state.rho if state.outer else 0.0
        examples = rng.permutation(len(data))
        tour = Tour(data.node_offsets, data.edge_offsets, examples, state.by_example, state.place)
        visits, apart = factor_sweep(
            problem.cliques, problem.terms, state.point, state.rho, state.steps,
            Rule(self.rule, self.parts, JOIN), state.gaps, self.active, tour, length,
            rng.integers(0, 2**63, 1, dtype=np.uint64),
        )  # fmt: skip
        if length > 0:
            state.disagreement = apart
        state.order.visits += visits
        state.outer += 1
        return Info(1.0, int(visits), np.inf, state.look())

    def _adapt(self) -> None:
        """Another penalty if the gap has hardly fallen; each change is smaller than the last."""
        state = self.ascent
        gap = state.primal - state.dual
        if gap > SLOW * state.last_gap and not LEAST <= state.share <= MOST:
            state.changes += 1
            factor = 4.0 ** (1.0 / state.changes)
            state.set_rho(state.rho * factor if state.share > MOST else state.rho / factor)
        state.last_gap, state.share = gap, np.nan

    def certify(self) -> Certificate:
        return self.ascent.certify()

    def weights(self) -> Floats:
        return np.asarray(self.ascent.point.w)

    def extras(self) -> dict[str, float]:
        return {**self.ascent.extras(), "rho": 1.0 / self.ascent.rho}

    def continue_from(self, warm: GraphFactors) -> None:
        self.ascent.continue_from(warm.ascent)
        self.active[:] = True

    def pack(self) -> Arrays:
        return self.ascent.pack()

    def unpack(self, arrays: Arrays) -> None:
        self.ascent.unpack(arrays)
        self.active[:] = True
