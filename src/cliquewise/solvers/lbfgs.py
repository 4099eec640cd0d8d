"""L-BFGS on the primal objective: the reference, and the solver for partial labels."""

from __future__ import annotations

import warnings
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
from scipy.optimize import line_search

from cliquewise.certificate import Certificate
from cliquewise.problems.base import Problem
from cliquewise.ragged import Floats
from cliquewise.solvers.array_checks import check, checked
from cliquewise.solvers.base import (
    ALL_BUT_MODEL,
    Info,
    Solver,
    Start,
    State,
    at_least,
    register,
)

#: Why other losses are refused where pairs of tokens have attributes.
PAIRS_OF_LOG = "knows attributes of token pairs (B rules with %x) with the log loss only"


@dataclass
class Iterate(State):
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
    works_on: ClassVar[dict[str, frozenset[str]]] = {
        "chain": frozenset({"log", "softmax_margin", "smooth_hinge"}),
        "graph": frozenset({"log"}),
        "candidates": frozenset({"log"}),
        "label_graph": frozenset({"log", "softmax_margin"}),
        "shards": frozenset({"log"}),
    }
    rank: ClassVar[int] = 25
    tolerates_changes_in: ClassVar[frozenset[str]] = ALL_BUT_MODEL  # a start takes its weights
    takes_pair_attributes: ClassVar[bool] = True
    history: int = 10

    def __post_init__(self) -> None:
        super().__post_init__()
        at_least(self, 1, "history")

    def refuses(self, problem: Problem) -> str | None:
        """Refuse also what no exact marginals can be had of."""
        reason = super().refuses(problem)
        if reason is None and problem.has_pair_attributes and problem.loss != "log":
            return PAIRS_OF_LOG
        return reason or problem.refuses_call("exp")

    def suits(self, problem: Problem) -> bool:
        """Not where a smoothed maximum has kinks (the l2 smoother's few outputs leave some)."""
        return problem.loss == "log" or problem.smoother == "entropy"

    def memory(self, problem: Any) -> float:
        """The corrections, the iterate and scratch, and a gradient per thread."""
        packed = problem.vector_size * (1 + max(problem.n_jobs, 1))
        answers = (
            0 if problem.kind in ("chain", "label_graph", "shards") else 5000 * problem.n_examples
        )
        return float(8.0 * (problem.dimension * (2 * self.history + 7) + packed) + answers)

    def init(self, problem: Any, warm: Any = None) -> Iterate:
        """Zero weights, or those of ``warm``."""
        w = np.zeros(problem.dimension)
        if isinstance(warm, State) and not isinstance(warm, Iterate):
            warm = warm.reached
        if isinstance(warm, Start | Iterate):
            w[: len(warm.w)] = warm.w[: problem.dimension]
        value, gradient = problem.primal_and_gradient(w)
        return Iterate(w, value, gradient, [], [])

    def _direction(self, state: Iterate, gradient: Floats) -> Floats:
        """The two-loop recursion."""
        q = gradient.copy()
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
        direction = self._direction(state, state.gradient)
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
        if has_positive_curvature(moved, change):
            steps = [*steps, moved][-self.history :]
            changes = [*changes, change][-self.history :]
        new = Iterate(state.w + moved, value, gradient, steps, changes)
        certificate = self._certificate(problem, new)
        return new, Info(len(seen) - 1.0, calls, certificate.gap, certificate)

    def _certificate(self, problem: Any, state: Iterate) -> Certificate:
        """The gradient is at hand, so the proof costs nothing."""
        return problem.certified(state.w, state.value, state.gradient)  # type: ignore[no-any-return]

    certify = _certificate

    def weights(self, problem: Any, state: Iterate) -> Floats:
        """The iterate."""
        return state.w

    def pack(self, state: Iterate) -> dict[str, np.ndarray[Any, Any]]:
        """The iterate; corrections are learned again."""
        return {"w": state.w}

    def resume_paths(self, state: Iterate) -> tuple[str, ...]:
        """The corrections, too."""
        return ("value", "gradient", "steps", "changes")

    def unpack(self, problem: Any, arrays: dict[str, np.ndarray[Any, Any]]) -> Iterate:
        """Back from :meth:`pack`."""
        w = checked(arrays, "w", (problem.dimension,))
        value, gradient = problem.primal_and_gradient(w)
        check(np.isfinite(value) and np.isfinite(gradient).all(), "its weights are too large")
        return Iterate(w, value, gradient, [], [])


def has_positive_curvature(moved: Floats, change: Floats) -> bool:
    """Whether a step, and by how much the gradient changed, make a correction to divide by."""
    return min(float(moved @ change), float(change @ change)) > 1e-300
