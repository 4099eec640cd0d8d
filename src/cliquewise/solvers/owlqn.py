"""OWL-QN: L-BFGS within one orthant at a time, for penalties with an L1 norm.

The L1 norm is linear in each orthant (Andrew and Gao 2007). A step takes the direction that L-BFGS
makes of the steepest descent of the whole objective, keeps of it what agrees in sign with
that descent, and stays in the orthant into which it points: weights that would leave it
become zero, and stay there until the slope of the losses outweighs the penalty. What L-BFGS learns
is the curvature of the losses and of the squared norm alone.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np

from cliquewise.problems.base import Problem
from cliquewise.ragged import Floats
from cliquewise.solvers.base import Info, register
from cliquewise.solvers.lbfgs import LBFGS, Iterate, has_positive_curvature

#: Share of the fall that the slope foretells with which a step is content.
ENOUGH = 1e-4
#: Halvings of a step before its direction is given up.
HALVINGS = 40


@register
@dataclass(frozen=True)
class OWLQN(LBFGS):
    """Orthant-wise L-BFGS, for penalties with an L1 norm.

    Parameters
    ----------
    history : int, default=10
        Number of corrections kept.
    """

    name: ClassVar[str] = "owlqn"
    works_on: ClassVar[dict[str, frozenset[str]]] = {
        "chain": frozenset({"log", "softmax_margin"}),
        "graph": frozenset({"log"}),
        "candidates": frozenset({"log"}),
        "label_graph": frozenset({"log", "softmax_margin"}),
        "labels": frozenset({"log", "softmax_margin"}),
        "shards": frozenset({"log"}),
    }
    rank: ClassVar[int] = 26
    takes_l1: ClassVar[bool] = True

    def refuses(self, problem: Problem) -> str | None:
        """Refuse also what has no L1 part: it would be a poorer L-BFGS."""
        reason = super().refuses(problem)
        if reason is None and problem.l1_ratio == 0:
            return "is for penalties with an L1 norm, and l1_ratio is 0"
        return reason

    def step(self, problem: Any, state: Iterate, rng: np.random.Generator) -> tuple[Iterate, Info]:
        """One iteration: a direction and a search for a lower point in its orthant."""
        l1 = problem.penalty.l1
        fall = -steepest(state.w, state.gradient, l1)
        found, tries = self._lower(problem, state, self._within(state, fall), fall)
        if found is None and state.steps:
            # Corrections that lead nowhere are forgotten.
            state = Iterate(state.w, state.value, state.gradient, [], [])
            found, more = self._lower(problem, state, fall, fall)
            tries += more
        calls = tries * problem.n_examples
        if found is None:
            done = self._certificate(problem, state)
            return state, Info(float(tries), calls, certificate=done, finished=True)
        certificate = self._certificate(problem, found)
        return found, Info(float(tries), calls, certificate.gap, certificate)

    def _within(self, state: Iterate, fall: Floats) -> Floats:
        """The direction of L-BFGS among the weights that are free to move.

        Those are not zero, or leave it; the others' share in what was learned is left out.
        """
        free = (state.w != 0) | (fall != 0)
        pairs = [(s * free, y * free) for s, y in zip(state.steps, state.changes, strict=True)]
        pairs = [
            (s, y) for s, y in pairs if has_positive_curvature(s, y) and s @ y > 1e-12 * (y @ y)
        ]
        steps, changes = [s for s, _ in pairs], [y for _, y in pairs]
        within = Iterate(state.w, state.value, state.gradient, steps, changes)
        return self._direction(within, -fall)

    def _lower(
        self, problem: Any, state: Iterate, direction: Floats, fall: Floats
    ) -> tuple[Iterate | None, int]:
        """The first point that is low enough, with what it teaches, and how many were tried."""
        w = state.w
        orthant = np.where(w != 0, np.sign(w), np.sign(fall))
        length = float(np.linalg.norm(fall))
        t = 1.0 if state.steps or length == 0 else min(1.0, 1.0 / length)
        for tries in range(HALVINGS):
            new = w + t * direction
            new[new * orthant <= 0] = 0.0
            moved = new - w
            foretold = float(fall @ moved)
            if not foretold > 0:
                return None, tries
            value, gradient = problem.primal_and_gradient(new)
            if value <= state.value - ENOUGH * foretold:
                change = gradient - state.gradient
                steps, changes = state.steps, state.changes
                if has_positive_curvature(moved, change):
                    steps = [*steps, moved][-self.history :]
                    changes = [*changes, change][-self.history :]
                return Iterate(new, value, gradient, steps, changes), tries + 1
            t *= 0.5
        return None, HALVINGS


def steepest(w: Floats, gradient: Floats, l1: float) -> Floats:
    """The subgradient of least norm of a smooth function plus ``l1`` times the L1 norm.

    Examples
    --------
    >>> steepest(np.array([2.0, 0.0, 0.0]), np.array([1.0, 0.3, -1.5]), 0.5)
    array([ 1.5,  0. , -1. ])
    """
    at_zero = gradient - np.clip(gradient, -l1, l1)
    return np.where(w != 0, gradient + l1 * np.sign(w), at_zero)
