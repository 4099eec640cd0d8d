"""GDMM on graphs: all states of all cliques are stored, so the search in a clique is complete."""

from __future__ import annotations

from typing import Self

import numpy as np

from cliquewise.certificate import Certificate
from cliquewise.problems.graph import GraphProblem
from cliquewise.ragged import Floats
from cliquewise.solvers.backends.factors import RULES, Factors, FactorSettings
from cliquewise.solvers.backends.graph.cliques import CliqueAscent
from cliquewise.solvers.base import Arrays, Info

#: Parts that the sampled search divides states (or, with BGCD, cliques) into.
PARTS = 2
#: A clique becomes active if its gain is at least this share of the best clique's gain.
JOIN = 0.5
#: Range of the inner problem's share of the gap in which rho is left unchanged (as in idal).
MIN_SHARE, MAX_SHARE = 0.02, 0.8
#: Factor by which the gap should decrease between two certificates.
SLOW = 0.95


class GraphFactors(Factors[GraphProblem]):
    """Factorwise steps on the beliefs of a :class:`CliqueAscent`."""

    def __init__(self, problem: GraphProblem, settings: FactorSettings):
        self.problem = problem
        self.rule = RULES.index(settings.step_rule or "bcfw")
        sampled = settings.factor_search == "sampled"
        self.parts = (settings.partition or PARTS) if sampled else 1
        self.eta, self.adaptive = float(settings.eta), bool(settings.adaptive)
        rho = None if isinstance(settings.rho, str) else 1.0 / settings.rho
        self.ascent = CliqueAscent.begin(problem, problem.truth.copy(), rho, 1.0)
        self.active = np.zeros(problem.n_cliques, dtype=bool)

    @classmethod
    def memory(cls, problem: GraphProblem, settings: FactorSettings) -> float:
        """Return the bytes of the beliefs of every state, as in `idal`."""
        return CliqueAscent.memory(problem)

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
        return Info(1.0, int(visits), np.inf, state.certify_if_due())

    def _adapt(self) -> None:
        """Change the penalty if the gap decreases slowly; each change is smaller than the last."""
        state = self.ascent
        gap = state.primal - state.dual
        if gap > SLOW * state.last_gap and not MIN_SHARE <= state.share <= MAX_SHARE:
            state.changes += 1
            factor = 4.0 ** (1.0 / state.changes)
            state.set_rho(state.rho * factor if state.share > MAX_SHARE else state.rho / factor)
        state.last_gap, state.share = gap, np.nan

    def certify(self) -> Certificate:
        return self.ascent.certify()

    def weights(self) -> Floats:
        return np.asarray(self.ascent.point.w)

    def extras(self) -> dict[str, float]:
        return {**self.ascent.extras(), "rho": 1.0 / self.ascent.rho}

    def continue_from(self, warm: Self) -> None:
        self.ascent.continue_from(warm.ascent)
        self.active[:] = True

    def pack(self) -> Arrays:
        return self.ascent.pack()

    def unpack(self, arrays: Arrays) -> None:
        self.ascent.unpack(arrays)
        self.active[:] = True
