"""IDAL: cliquewise SDCA steps inside an augmented Lagrangian, with a true duality gap."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from cliquewise.problems.graph import GraphProblem
from cliquewise.solvers._cliquewise import Ascent, Cliquewise, balanced_rho
from cliquewise.solvers.base import register

#: Shares of the whole gap that the inner problem's should stay between.
LEAST, MOST = 0.03, 0.5
#: Below this share the multipliers may have momentum, and at most so much.
CALM, FASTEST = 0.1, 0.8
#: In one pass a gap should fall to this part of itself: by half in 14.
SLOW = 0.95


@register
@dataclass(frozen=True)
class IDAL(Cliquewise):
    """Inexact dual augmented Lagrangian: SDCA on the cliques, gradient steps on multipliers.

    Parameters
    ----------
    rho, inner, sampling
        See :class:`Cliquewise`; ``inner`` is ``auto`` by default.
    accelerated : bool, default=False
        Nesterov's extrapolation of the multipliers (by at most 0.8 of the last step), started
        anew whenever it points uphill, and only while the inner problem has less than a tenth
        of the gap.
    adaptive : bool, default=True
        Start with the given rho and change it when the gap hardly falls: rho is raised towards
        that of ``auto`` if most of the gap is that of the inner problem, which then lags behind
        the multipliers, and lowered if hardly any of it is, unless the multipliers have
        momentum. Every change of direction halves the next change, on a logarithmic scale.
    """

    name: ClassVar[str] = "idal"
    inner: float | str = "auto"
    accelerated: bool = False
    adaptive: bool = True

    def _multiplier_step(self, problem: GraphProblem, state: Ascent) -> tuple[float, float]:
        """``xi <- xi - A mu / rho`` (line 6 of Algorithm 1)."""
        momentum = 0.0
        if self.accelerated:
            if not len(state.previous):
                state.previous = state.point.xi.copy()
            # Extrapolating from inner problems that lag behind would pile up their errors.
            if state.lag < CALM:
                following = 0.5 * (1.0 + np.sqrt(1.0 + 4.0 * state.momentum**2))
                momentum, state.momentum = (state.momentum - 1.0) / following, following
                momentum = min(momentum, FASTEST)
            else:
                state.momentum = 1.0
        length = 1.0 / state.rho
        if self.adaptive and np.isfinite(state.share):
            self._adapt(problem, state)
        return length, momentum

    def _adapt(self, problem: GraphProblem, state: Ascent) -> None:
        """Another rho if the gap has hardly fallen since the last look."""
        gap, passes = state.primal - state.dual, state.visits / max(problem.n_cliques, 1)
        slow = gap > state.last_gap * SLOW ** (passes - state.last_passes)
        settled = not state.changed
        state.changed = False
        if slow and settled and state.share > MOST and state.rho < balanced_rho(problem):
            # Beyond that of auto the multipliers get slower and the inner problem hardly easier.
            self._scale_rho(problem, state, 1.0)
        elif slow and settled and state.share < LEAST and not self.accelerated:
            self._scale_rho(problem, state, -1.0)
        state.last_gap, state.last_passes, state.share = gap, passes, np.nan

    def _scale_rho(self, problem: GraphProblem, state: Ascent, direction: float) -> None:
        if state.direction * direction < 0:
            state.factor = float(np.sqrt(state.factor))
        # The messages jump with rho: the next look says nothing about the new one.
        state.direction, state.changed = direction, True
        self._set_rho(problem, state, state.rho * state.factor**direction)
