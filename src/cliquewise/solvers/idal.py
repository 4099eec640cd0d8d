"""IDAL: cliquewise SDCA steps inside an augmented Lagrangian, with a true duality gap."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from cliquewise.graph_problem import GraphProblem
from cliquewise.solvers._cliquewise import Ascent, Cliquewise
from cliquewise.solvers.base import register


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
        Change rho by the balance of disagreement and inner progress.
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
        return 1.0 / state.rho, momentum
