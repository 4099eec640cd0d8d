"""OWL-QN: L-BFGS within one orthant at a time, for penalties with an L1 norm.

Andrew and Gao 2007. The L1 norm is linear in each orthant::

    repeat:
        f <- the steepest descent direction of the whole objective, L1 norm included
        d <- -H f by L-BFGS, on the weights that are not zero or leave it
        t <- 1, halved until the projection of w + t d on the orthant is low enough
        w <- that projection: weights that would change sign become zero
        keep (s, y) of the smooth part of the objective

Weights that are zero stay there until the slope of the losses exceeds the penalty's.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from cliquewise.problems.base import Problem
from cliquewise.ragged import Floats
from cliquewise.solvers.base import Capabilities, Info
from cliquewise.solvers.lbfgs import LBFGS, Iterate, has_positive_curvature, quasi_newton_direction
from cliquewise.solvers.registry import register

#: Share of the decrease predicted by the slope that a step must achieve (Armijo).
ARMIJO = 1e-4
#: Halvings of a step before its direction is given up.
MAX_HALVINGS = 40


@register
@dataclass(frozen=True)
class OWLQN(LBFGS):
    """Orthant-wise L-BFGS, for penalties with an L1 norm.

    Parameters
    ----------
    history : int, default=10
        Number of corrections that are kept.
    """

    name: ClassVar[str] = "owlqn"
    capabilities: ClassVar[Capabilities] = Capabilities(
        {
            "chain": frozenset({"log", "softmax_margin"}),
            "graph": frozenset({"log"}),
            "candidates": frozenset({"log"}),
            "label_graph": frozenset({"log", "softmax_margin"}),
            "labels": frozenset({"log", "softmax_margin"}),
            "shards": frozenset({"log"}),
        },
        rank=26,
        pair_attributes=True,
        l1=True,
    )

    def refuses(self, problem: Problem) -> str | None:
        """Also reject penalties without an L1 part, for which L-BFGS is better."""
        reason = super().refuses(problem)
        if reason is None and problem.l1_ratio == 0:
            return "is for penalties with an L1 norm, and l1_ratio is 0"
        return reason

    def step(self, problem: Problem, state: Iterate, rng: np.random.Generator) -> Info:
        """Make one iteration: a direction, and a search for a lower point in its orthant."""
        descent = -steepest(state.w, state.gradient, problem.penalty.l1)
        moved, tries = self._search(problem, state, self._direction(state, descent), descent)
        if not moved and state.steps:
            # The corrections lead nowhere: discard them and try the steepest descent.
            state.steps, state.changes = [], []
            moved, more = self._search(problem, state, descent, descent)
            tries += more
        return self._info(problem, state, tries, moved)

    def _direction(self, state: Iterate, descent: Floats) -> Floats:
        """Return the direction of L-BFGS among the weights that are not zero or leave it."""
        free = (state.w != 0) | (descent != 0)
        pairs = [(s * free, y * free) for s, y in zip(state.steps, state.changes, strict=True)]
        pairs = [
            (s, y) for s, y in pairs if has_positive_curvature(s, y) and s @ y > 1e-12 * (y @ y)
        ]
        return quasi_newton_direction([s for s, _ in pairs], [y for _, y in pairs], -descent)

    def _search(
        self, problem: Problem, state: Iterate, direction: Floats, descent: Floats
    ) -> tuple[bool, int]:
        """Move to the first point that is low enough; return whether one exists, and the tries."""
        w = state.w
        orthant = np.where(w != 0, np.sign(w), np.sign(descent))
        length = float(np.linalg.norm(descent))
        t = 1.0 if state.steps or length == 0 else min(1.0, 1.0 / length)
        for tries in range(MAX_HALVINGS):
            new = w + t * direction
            new[new * orthant <= 0] = 0.0
            moved = new - w
            predicted = float(descent @ moved)
            if not predicted > 0:
                return False, tries
            value, gradient = problem.primal_and_gradient(new)
            if value <= state.value - ARMIJO * predicted:
                state.move(moved, value, gradient, self.history)
                state.w = new  # w + moved may differ from it by a rounding error
                return True, tries + 1
            t *= 0.5
        return False, MAX_HALVINGS


def steepest(w: Floats, gradient: Floats, l1: float) -> Floats:
    """Return the subgradient of least norm of a smooth function plus ``l1`` times the L1 norm.

    Examples
    --------
    >>> steepest(np.array([2.0, 0.0, 0.0]), np.array([1.0, 0.3, -1.5]), 0.5)
    array([ 1.5,  0. , -1. ])
    """
    at_zero = gradient - np.clip(gradient, -l1, l1)
    return np.where(w != 0, gradient + l1 * np.sign(w), at_zero)
