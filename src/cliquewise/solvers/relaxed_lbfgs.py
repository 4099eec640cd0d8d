"""L-BFGS on weights and messages together: the relaxed objective of graphs, hinge loss included.

For fixed messages between cliques the relaxed loss is a sum of maxima over single cliques, and
this upper bound is convex in weights and messages (Eq. 4 and Prop. 5 of idal)::

    F(w, delta) = lam/2 ||w||^2
                  + 1/n sum_c max_{mu_c} <theta_c(w) + cost_c + A_c' delta, mu_c> + gamma h_c(mu_c)

    repeat:
        (w, delta) <- an iteration of L-BFGS on F
        now and then: repair mu into the local polytope for a lower bound
        hinge loss: gamma <- 0.3 gamma if the unsolved part of the gap is below that of smoothing

Meshi et al. 2010 alternate between w and delta. A structural SVM has no entropy; it is given one
with a decreasing weight (Johnson, Malioutov and Willsky 2007). Certificates are of the original
problem.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import ClassVar

import numpy as np

from cliquewise.certificate import Certificate
from cliquewise.problems.base import Problem
from cliquewise.problems.graph import GraphProblem
from cliquewise.problems.rounding import Bound
from cliquewise.ragged import Floats
from cliquewise.solvers.array_checks import check, checked, number_of
from cliquewise.solvers.backends.graph.messages import Reparametrized
from cliquewise.solvers.base import Arrays, Capabilities, Info, Solver, Start, State, Warm
from cliquewise.solvers.lbfgs import Iterate, minimize_once
from cliquewise.solvers.parameters import at_least
from cliquewise.solvers.registry import register

#: Initial smoothing of the hinge loss relative to the mean cost of a wrong label, and its factor.
FIRST, DECAY = 0.3, 0.3
#: Smoothing below this share of the initial one has no effect in float64.
LAST = 1e-7
#: Share of the gap that the unsolved smooth problem may have when smoothing is lowered.
UNSOLVED = 0.5
#: Iterations between two certificates: at least, at most, and as a share of all so far.
MIN_INTERVAL, MAX_INTERVAL, INTERVAL_SHARE = 10, 40, 0.2


@dataclass
class Descent(State):
    """The iterate, the smoothed problem that it belongs to, and the best bound so far."""

    view: Reparametrized
    iterate: Iterate
    joint: Floats  # the locally consistent beliefs of the best bound
    bound: Bound = field(default_factory=lambda: Bound(-np.inf))
    first: float = 1.0  # the initial smoothing
    steps: int = 0
    next_check: int = MIN_INTERVAL
    disagreement: float = float("nan")

    @property
    def smoothing(self) -> float:
        """Weight of the entropy."""
        return self.view.smoothing


@register
@dataclass(frozen=True)
class RelaxedLBFGS(Solver[GraphProblem, Descent]):
    """L-BFGS on the weights and the messages of the relaxed problem.

    Parameters
    ----------
    history : int, default=10
        Number of corrections that are kept, each as long as weights and messages.
    """

    name: ClassVar[str] = "relaxed_lbfgs"
    capabilities: ClassVar[Capabilities] = Capabilities(
        {"graph": frozenset({"log", "softmax_margin", "hinge"})},
        rank=9,
        relaxed_on=frozenset({"graph"}),
        precision=1e-3,
    )
    columns: ClassVar[tuple[str, ...]] = ("disagreement", "smoothing")
    history: int = 10

    def __post_init__(self) -> None:
        super().__post_init__()
        at_least(self, 1, "history")

    def refuses(self, problem: Problem) -> str | None:
        """Also reject the entropy whose maxima are not projections."""
        reason = super().refuses(problem)
        if reason is not None or not isinstance(problem, GraphProblem):
            return reason
        if problem.gamma > 0 and problem.entropy != "gini":
            return f'supports the entropy "gini" only, not {problem.entropy!r}'
        return None

    def memory(self, problem: GraphProblem) -> float:
        """Return the bytes of the corrections, the iterate, the beliefs and repaired copies."""
        g = problem.cliques
        messages = float(g.degree @ np.diff(g.offsets[: len(g.degree) + 1]))
        vectors = (2 * self.history + 9) * (problem.dimension + messages)
        return 8.0 * (vectors + 4.0 * float(g.offsets[-1]) + 4.0 * problem.dimension)

    # ---- state

    def init(self, problem: GraphProblem, warm: Warm = None) -> Descent:
        """Start with weights and messages of zero, or with those of ``warm``."""
        first = problem.gamma
        if problem.gamma == 0:
            costs = problem.cliques.cost
            first = FIRST * (float(costs[costs > 0].mean()) if (costs > 0).any() else 1.0)
        view = Reparametrized(problem, first)
        w, messages = np.zeros(problem.dimension), np.zeros(view.n_messages)
        if isinstance(warm, Descent):
            old, sent = warm.view.split(warm.iterate.w)
            if len(sent) == len(messages):
                w, messages = old, sent
        elif isinstance(warm, State):
            warm = warm.reached
        if isinstance(warm, Start):
            w[: len(warm.w)] = warm.w[: problem.dimension]
        return self._at(view, w, messages, first)

    def _at(self, view: Reparametrized, w: Floats, messages: Floats, first: float) -> Descent:
        u = view.joined(w, messages)
        iterate = Iterate(u, *view.primal_and_gradient(u))
        return Descent(view, iterate, view.problem.truth.copy(), first=first)

    def _smooth_less(self, state: Descent) -> None:
        """Lower the smoothing at the same weights and messages; corrections are discarded."""
        old = state.view
        w, messages = old.split(state.iterate.w)
        state.view = new = Reparametrized(old.problem, DECAY * old.smoothing)
        new.best, new.best_w = old.best, old.best_w
        u = new.joined(w, messages)
        state.iterate = Iterate(u, *new.primal_and_gradient(u))

    # ---- one step

    def step(self, problem: GraphProblem, state: Descent, rng: np.random.Generator) -> Info:
        """Make an iteration of L-BFGS; at intervals, certify and smooth the hinge loss less."""
        evaluations, moved = minimize_once(state.view, state.iterate, self.history)
        state.steps += 1
        finished, passes = not moved, float(evaluations)
        if state.steps < state.next_check and not finished:
            return Info(passes, 0, np.inf)
        unsolved = self._prove(state)
        proof = self._certificate(state)
        interval = np.clip(INTERVAL_SHARE * state.steps, MIN_INTERVAL, MAX_INTERVAL)
        state.next_check = state.steps + int(interval)
        if problem.gamma == 0:
            solved = unsolved <= UNSOLVED * (proof.primal - proof.dual)
            if state.smoothing > LAST * state.first and (finished or solved):
                self._smooth_less(state)
                finished, passes = False, passes + 1.0
        return Info(passes, 0, np.inf, proof, finished)

    # ---- certificate

    def _prove(self, state: Descent) -> float:
        """Update the bound from the iterate; return the gap of the smoothed problem."""
        view = state.view
        value, _ = view.primal_and_gradient(state.iterate.w)
        bound, own, added = view.dual(state.joint)
        state.bound = max(state.bound, bound)
        state.disagreement = float(view.apart @ view.apart)
        return value - own - added

    def _certificate(self, state: Descent) -> Certificate:
        return Certificate(state.view.best, state.bound.value, "bound", state.bound.rounding)

    def certify(self, problem: GraphProblem, state: Descent) -> Certificate:
        """Return the objective of the best weights and the bound of the best consistent beliefs."""
        self._prove(state)
        return self._certificate(state)

    def extras(self, problem: GraphProblem, state: Descent) -> dict[str, float]:
        """Return ``||A mu||^2`` of all examples together, and the weight of the entropy."""
        return {"disagreement": state.disagreement, "smoothing": state.smoothing}

    def weights(self, problem: GraphProblem, state: Descent) -> Floats:
        """Return the best weights so far."""
        return state.view.best_w

    def pack(self, state: Descent) -> Arrays:
        """Return weights, the best weights, messages and smoothing, but not the corrections."""
        w, messages = state.view.split(state.iterate.w)
        return {"w": w, "best": state.view.best_w, "messages": messages,
                "smoothing": np.array([state.smoothing])}  # fmt: skip

    def unpack(self, problem: GraphProblem, arrays: Arrays) -> Descent:
        """Return a state from :meth:`pack`; bounds are computed again."""
        first = self.init(problem).first
        smoothing = number_of(arrays, "smoothing")
        check(1e-3 * LAST * first <= smoothing <= 1e30, "its 'smoothing' is not in range")
        view = Reparametrized(problem, smoothing if problem.gamma == 0 else problem.gamma)
        d, n = problem.dimension, view.n_messages
        messages = checked(arrays, "messages", (n,), low=-1e100, high=1e100)
        # First the best weights: `view` then knows their objective at these messages.
        self._at(view, checked(arrays, "best", (d,), low=-1e100, high=1e100), messages, first)
        w = checked(arrays, "w", (d,), low=-1e100, high=1e100)
        return self._at(view, w, messages, first)
