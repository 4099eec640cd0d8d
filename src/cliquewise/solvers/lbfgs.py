"""L-BFGS on the primal objective: the reference, and the solver for partial labels.

Limited-memory BFGS (Liu and Nocedal 1989) with a strong Wolfe line search::

    repeat:
        d <- -H g                  # two-loop recursion over the last pairs (s, y)
        t <- step size along d that satisfies the strong Wolfe conditions
        s <- t d;  w <- w + s;  y <- g(w) - g;  g <- g(w)
        keep (s, y) if <s, y> > 0

Every gradient proves a bound (Eq. 15 of sdca_crf): ``P* >= P(w) - ||g||^2 / (2 lam)``.
"""

from __future__ import annotations

import warnings
from dataclasses import dataclass, field
from typing import ClassVar, Protocol

import numpy as np
from scipy.optimize import line_search

from cliquewise.certificate import Certificate
from cliquewise.problems.base import Problem
from cliquewise.ragged import Floats
from cliquewise.solvers.array_checks import check, checked
from cliquewise.solvers.base import (
    ALL_BUT_MODEL,
    Arrays,
    Capabilities,
    Info,
    Solver,
    Start,
    State,
    Warm,
)
from cliquewise.solvers.parameters import at_least
from cliquewise.solvers.registry import register

#: Why other losses are rejected if pairs of tokens have attributes.
PAIRS_NEED_LOG = "supports attributes of token pairs (B rules with %x) with the log loss only"
#: Bytes per example that exact inference on a graph takes in Python.
GRAPH_BYTES = 5000


@dataclass
class Iterate(State):
    """Weights, the objective there, and the corrections of the quasi-Newton matrix."""

    w: Floats
    value: float
    gradient: Floats
    steps: list[Floats] = field(default_factory=list)
    changes: list[Floats] = field(default_factory=list)  # of the gradient along the steps

    def move(self, moved: Floats, value: float, gradient: Floats, history: int) -> None:
        """Go to ``w + moved``, and keep the correction if it has positive curvature."""
        change = gradient - self.gradient
        if has_positive_curvature(moved, change):
            self.steps = [*self.steps, moved][-history:]
            self.changes = [*self.changes, change][-history:]
        self.w, self.value, self.gradient = self.w + moved, value, gradient


class Objective(Protocol):
    """A smooth function to minimize."""

    def primal_and_gradient(self, w: Floats) -> tuple[float, Floats]:
        """Return the value and the gradient."""


def minimize_once(objective: Objective, state: Iterate, history: int) -> tuple[int, bool]:
    """Make one iteration; return the number of evaluations, and whether the iterate moved."""
    direction = quasi_newton_direction(state.steps, state.changes, state.gradient)
    slope = float(direction @ state.gradient)
    if not slope < 0:
        return 0, False
    seen: dict[float, tuple[float, Floats]] = {0.0: (state.value, state.gradient)}

    def at(t: float) -> tuple[float, Floats]:
        if t not in seen:
            seen[t] = objective.primal_and_gradient(state.w + t * direction)
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
    if t is None:
        lower = [k for k, (v, _) in seen.items() if v < state.value]
        if not lower:
            return len(seen) - 1, False
        t = min(lower, key=lambda k: seen[k][0])
    value, gradient = seen[t]
    state.move(t * direction, value, gradient, history)
    return len(seen) - 1, True


def quasi_newton_direction(steps: list[Floats], changes: list[Floats], gradient: Floats) -> Floats:
    """Return ``-H gradient`` by the two-loop recursion."""
    q = gradient.copy()
    rhos = [1.0 / float(s @ y) for s, y in zip(steps, changes, strict=True)]
    alphas = []
    for s, y, rho in zip(reversed(steps), reversed(changes), reversed(rhos), strict=True):
        alphas.append(rho * float(s @ q))
        q -= alphas[-1] * y
    if steps:
        y = changes[-1]
        q *= float(steps[-1] @ y) / float(y @ y)
    for s, y, rho, alpha in zip(steps, changes, rhos, reversed(alphas), strict=True):
        q += (alpha - rho * float(y @ q)) * s
    return -q


def has_positive_curvature(moved: Floats, change: Floats) -> bool:
    """Whether a step and the change of the gradient along it make a usable correction."""
    return min(float(moved @ change), float(change @ change)) > 1e-300


@register
@dataclass(frozen=True)
class LBFGS(Solver[Problem, Iterate]):
    """Limited-memory BFGS with a strong Wolfe line search.

    Parameters
    ----------
    history : int, default=10
        Number of corrections that are kept.
    """

    name: ClassVar[str] = "lbfgs"
    capabilities: ClassVar[Capabilities] = Capabilities(
        {
            "chain": frozenset({"log", "softmax_margin", "smooth_hinge"}),
            "graph": frozenset({"log"}),
            "candidates": frozenset({"log"}),
            "label_graph": frozenset({"log", "softmax_margin"}),
            "shards": frozenset({"log"}),
        },
        rank=25,
        pair_attributes=True,
    )
    history: int = 10

    def __post_init__(self) -> None:
        super().__post_init__()
        at_least(self, 1, "history")

    def refuses(self, problem: Problem) -> str | None:
        """Also reject problems whose exact marginals are out of reach."""
        reason = super().refuses(problem)
        if reason is None and problem.has_pair_attributes and problem.loss != "log":
            return PAIRS_NEED_LOG
        return reason or problem.refuses_call("exp")

    def unsuitable(self, problem: Problem) -> str | None:
        """Reject maxima with kinks, which the l2 smoother leaves if only few outputs share it."""
        if problem.loss == "log" or problem.smoother == "entropy":
            return None
        return "needs a smoother maximum than that of the l2 smoother"

    def tolerated_changes(self, problem: Problem) -> frozenset[str]:
        """Return what may change: only the weights are reused."""
        return ALL_BUT_MODEL

    def memory(self, problem: Problem) -> float:
        """Return the bytes of the corrections, the iterate, and a gradient per thread."""
        packed = problem.vector_size * (1 + max(problem.n_jobs, 1))
        in_kernels = problem.kind in ("chain", "label_graph", "shards")
        answers = 0 if in_kernels else GRAPH_BYTES * problem.n_examples
        return 8.0 * (problem.dimension * (2 * self.history + 7) + packed) + answers

    def init(self, problem: Problem, warm: Warm = None) -> Iterate:
        """Start at zero, or at the weights of ``warm``."""
        w = np.zeros(problem.dimension)
        if isinstance(warm, State) and not isinstance(warm, Iterate):
            warm = warm.reached
        if isinstance(warm, Start | Iterate):
            w[: len(warm.w)] = warm.w[: problem.dimension]
        return Iterate(w, *problem.primal_and_gradient(w))

    def step(self, problem: Problem, state: Iterate, rng: np.random.Generator) -> Info:
        """Make one iteration; its last gradient is also a certificate."""
        evaluations, moved = minimize_once(problem, state, self.history)
        return self._info(problem, state, evaluations, moved)

    def _info(self, problem: Problem, state: Iterate, evaluations: int, moved: bool) -> Info:
        proof = self.certify(problem, state)
        calls = evaluations * problem.n_examples
        return Info(float(evaluations), calls, proof.gap, proof, finished=not moved)

    def certify(self, problem: Problem, state: Iterate) -> Certificate:
        """Return the bound of the current gradient, at no extra cost."""
        return problem.certified(state.w, state.value, state.gradient)

    def weights(self, problem: Problem, state: Iterate) -> Floats:
        """Return the iterate."""
        return state.w

    def pack(self, state: Iterate) -> Arrays:
        """Return the iterate and the corrections."""
        shape = (len(state.steps), len(state.w))
        return {
            "w": state.w,
            "steps": np.array(state.steps).reshape(shape),
            "changes": np.array(state.changes).reshape(shape),
        }

    def unpack(self, problem: Problem, arrays: Arrays) -> Iterate:
        """Return a state from :meth:`pack`; value and gradient are recomputed."""
        d = problem.dimension
        w = checked(arrays, "w", (d,))
        value, gradient = problem.primal_and_gradient(w)
        check(np.isfinite(value) and np.isfinite(gradient).all(), "its weights are too large")
        state = Iterate(w, value, gradient)
        if "steps" in arrays:  # older checkpoints have none
            steps = checked(arrays, "steps", (None, d))
            changes = checked(arrays, "changes", (len(steps), d))
            pairs = [(s, y) for s, y in zip(steps, changes) if has_positive_curvature(s, y)]
            state.steps = [s for s, _ in pairs][-self.history :]
            state.changes = [y for _, y in pairs][-self.history :]
        return state
