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
    adaptive : bool, default=True
        Start with rho and change it by what certificates say: it is doubled while most of the
        gap is that of the inner problem, which then lags behind the multipliers, and halved
        while hardly any of it is.
    """

    name: ClassVar[str] = "idal"
    accelerated: bool = False
    adaptive: bool = True

    def _multiplier_step(self, problem: GraphProblem, state: Ascent) -> tuple[float, float]:
        """``xi <- xi - A mu / rho`` (line 6 of Algorithm 1)."""
        momentum = 0.0
        if self.accelerated:
            if not len(state.previous):
                state.previous = state.point.xi.copy()
            following = 0.5 * (1.0 + np.sqrt(1.0 + 4.0 * state.momentum**2))
            momentum, state.momentum = (state.momentum - 1.0) / following, following
        length = 1.0 / state.rho
        if self.adaptive and not state.is_judged:
            self._judge(problem, state)
        return length, momentum

    def _judge(self, problem: GraphProblem, state: Ascent) -> None:
        """Another rho, if the last certificate asks for it."""
        state.is_judged = True
        share = state.inner_gap / max(state.primal - state.dual, 1e-300)
        if share > MOST:
            self._set_rho(problem, state, state.rho * (4.0 if share > 0.8 else 2.0))
        elif share < LEAST:
            self._set_rho(problem, state, state.rho / 2.0)

    def _wants_to_look(self, state: Ascent) -> bool:
        """After 4, 8, 16, ... outer steps, so that a bad rho is noticed soon."""
        return self.adaptive and state.outer >= 4 and state.outer & (state.outer - 1) == 0
