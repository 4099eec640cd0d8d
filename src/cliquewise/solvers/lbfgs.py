"""L-BFGS on the primal objective, with scipy's line search: the solver for partial labels."""

from __future__ import annotations

import warnings
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
from scipy.optimize import line_search

from cliquewise.certificate import Certificate
from cliquewise.errors import DataError
from cliquewise.graph.factor_graph import Floats
from cliquewise.solvers.base import Info, Solver, register


@dataclass
class Iterate:
    """Weights, and the corrections that L-BFGS learned on the way."""

    w: Floats
    value: float
    gradient: Floats
    steps: list[Floats]
    changes: list[Floats]


@register
@dataclass(frozen=True)
class LBFGS(Solver):
    """Limited-memory BFGS with a strong-Wolfe line search.

    Parameters
    ----------
    history : int, default=10
        Number of corrections kept.
    """

    name: ClassVar[str] = "lbfgs"
    takes_edges: ClassVar[bool] = True
    losses: ClassVar[frozenset[str]] = frozenset({"log", "smooth_hinge"})
    problems: ClassVar[frozenset[str]] = frozenset({"chain", "graph", "candidates"})
    history: int = 10

    def memory(self, problem: Any) -> float:
        """The corrections, the iterate and scratch."""
        return float(8.0 * problem.dimension * (2 * self.history + 8))

    def init(self, problem: Any, warm: Any = None) -> Iterate:
        """Zero weights, or those of ``warm``."""
        w = np.zeros(problem.dimension)
        if warm is not None:
            w[: len(warm.w)] = warm.w[: problem.dimension]
        value, gradient = problem.primal_and_gradient(w)
        return Iterate(w, value, gradient, [], [])

    def _direction(self, state: Iterate) -> Floats:
        """The two-loop recursion."""
        q = state.gradient.copy()
        rhos = [1.0 / float(s @ y) for s, y in zip(state.steps, state.changes, strict=True)]
        alphas = []
        for s, y, rho in zip(
            reversed(state.steps), reversed(state.changes), reversed(rhos), strict=True
        ):
            alphas.append(rho * float(s @ q))
            q -= alphas[-1] * y
        if state.steps:
            y = state.changes[-1]
            q *= float(state.steps[-1] @ y) / float(y @ y)
        for s, y, rho, alpha in zip(
            state.steps, state.changes, rhos, reversed(alphas), strict=True
        ):
            q += (alpha - rho * float(y @ q)) * s
        return -q

    def step(self, problem: Any, state: Iterate, rng: np.random.Generator) -> tuple[Iterate, Info]:
        """One iteration: a direction and a line search along it."""
        direction = self._direction(state)
        slope = float(direction @ state.gradient)
        if not slope < 0:
            return state, Info(0.0, 0, certificate=self._certificate(problem, state), finished=True)
        seen: dict[float, tuple[float, Floats]] = {0.0: (state.value, state.gradient)}

        def at(t: float) -> tuple[float, Floats]:
            if t not in seen:
                seen[t] = problem.primal_and_gradient(state.w + t * direction)
            return seen[t]

        first = 1.0 if state.steps else min(1.0, 1.0 / float(np.linalg.norm(state.gradient)))
        direction = direction * first
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # its failure is handled below
            t = line_search(
                lambda t: at(float(t[0]))[0],
                lambda t: np.array([direction @ at(float(t[0]))[1]]),
                np.zeros(1), np.ones(1), np.array([slope * first]), state.value,
            )[0]  # fmt: skip
        calls = (len(seen) - 1) * problem.n_examples
        if t is None:
            lower = [k for k, (v, _) in seen.items() if v < state.value]
            if not lower:
                done = self._certificate(problem, state)
                return state, Info(len(seen) - 1.0, calls, certificate=done, finished=True)
            t = min(lower, key=lambda k: seen[k][0])
        value, gradient = seen[t]
        moved, change = t * direction, gradient - state.gradient
        steps, changes = state.steps, state.changes
        if float(moved @ change) > 1e-300:
            steps = [*steps, moved][-self.history :]
            changes = [*changes, change][-self.history :]
        new = Iterate(state.w + moved, value, gradient, steps, changes)
        certificate = self._certificate(problem, new)
        return new, Info(len(seen) - 1.0, calls, certificate.gap, certificate)

    def _certificate(self, problem: Any, state: Iterate) -> Certificate:
        if not problem.is_convex:
            return Certificate(state.value)
        slack = float(state.gradient @ state.gradient) / (2 * problem.lam)
        return Certificate(state.value, state.value - slack, "exact")

    def certify(self, problem: Any, state: Iterate) -> Certificate:
        """The gradient is at hand, so the proof costs nothing."""
        return self._certificate(problem, state)

    def weights(self, problem: Any, state: Iterate) -> Floats:
        """The iterate."""
        return state.w

    def pack(self, state: Iterate) -> dict[str, np.ndarray[Any, Any]]:
        """The iterate; corrections are learned again."""
        return {"w": state.w}

    def unpack(self, problem: Any, arrays: dict[str, np.ndarray[Any, Any]]) -> Iterate:
        """Back from :meth:`pack`."""
        w = np.array(arrays["w"])
        if w.shape != (problem.dimension,):
            raise DataError("the checkpoint is of other data: its arrays have other shapes")
        value, gradient = problem.primal_and_gradient(w)
        return Iterate(w, value, gradient, [], [])
