"""IDAL: cliquewise SDCA steps inside an augmented Lagrangian, with a true duality gap."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from cliquewise.graph_problem import GraphProblem
from cliquewise.solvers._cliquewise import Ascent, Cliquewise
from cliquewise.solvers.base import register

#: Shares of the whole gap that the inner problem's should stay between.
LEAST, MOST = 0.03, 0.5
#: From one look to the next a gap should fall below this part of itself.
SLOW = 0.6


@register
@dataclass(frozen=True)
class IDAL(Cliquewise):
    """Inexact dual augmented Lagrangian: SDCA on the cliques, gradient steps on multipliers.

    Parameters
    ----------
    rho, inner, sampling
        See :class:`Cliquewise`.
    accelerated : bool, default=False
        Nesterov's extrapolation of the multipliers, started anew whenever it points uphill.
    adaptive : bool, default=False
        Start with rho and change it when the gap hardly falls: rho is raised if most of the gap
        is that of the inner problem, which then lags behind the multipliers, and lowered if
        hardly any of it is.
    """

    name: ClassVar[str] = "idal"
    accelerated: bool = False
    adaptive: bool = False

    def _multiplier_step(self, problem: GraphProblem, state: Ascent) -> tuple[float, float]:
        """``xi <- xi - A mu / rho`` (line 6 of Algorithm 1)."""
        momentum = 0.0
        if self.accelerated:
            if not len(state.previous):
                state.previous = state.point.xi.copy()
            following = 0.5 * (1.0 + np.sqrt(1.0 + 4.0 * state.momentum**2))
            momentum, state.momentum = (state.momentum - 1.0) / following, following
        length = 1.0 / state.rho
        if self.adaptive and np.isfinite(state.share):
            self._adapt(problem, state)
        return length, momentum

    def _adapt(self, problem: GraphProblem, state: Ascent) -> None:
        """Another rho if the gap has hardly fallen; each change is smaller than the last."""
        gap = state.primal - state.dual
        if gap > SLOW * state.last_gap and not LEAST <= state.share <= MOST:
            state.changes += 1
            factor = 4.0 ** (1.0 / state.changes)
            rho = state.rho * factor if state.share > MOST else state.rho / factor
            self._set_rho(problem, state, rho)
        state.last_gap, state.share = gap, np.nan
