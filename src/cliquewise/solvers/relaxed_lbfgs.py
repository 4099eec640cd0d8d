"""L-BFGS on weights and messages together: the relaxed objective of graphs, hinge loss included.

For fixed messages between cliques the relaxed loss falls apart into maxima over single cliques, and
its bound is convex in weights and messages together (Eq. 4 and Prop. 5 of idal; Meshi et al. 2010
alternate between the two). With an entropy the maxima are smooth. A structural SVM has none: it is
given one, of a weight that is lowered (Johnson, Malioutov and Willsky 2007) whenever what is not
yet solved costs less than what smoothing does. Certificates are of the problem itself.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, ClassVar

import numpy as np

from cliquewise.certificate import Certificate
from cliquewise.problems.base import Problem
from cliquewise.problems.graph import GraphProblem
from cliquewise.problems.rounding import Bound
from cliquewise.ragged import Floats
from cliquewise.solvers.array_checks import check, checked, number_of
from cliquewise.solvers.backends.graph.costs import prefers_cliques
from cliquewise.solvers.backends.graph.messages import Reparametrized
from cliquewise.solvers.base import Arrays, Info, Solver, Start, State, at_least, register
from cliquewise.solvers.lbfgs import LBFGS, Iterate

#: The first smoothing of a hinge loss, relative to the mean cost of a wrong label, and by what it
#: is lowered each time.
FIRST, LOWER = 0.3, 0.3
#: Below this share of the first one, smoothing changes nothing that float64 can see.
LAST = 1e-7
#: Share of the gap that an unsolved smooth problem may have before it is made less smooth.
UNSOLVED = 0.5
#: Iterations before the first certificate, and between two: at most, and as a share.
EARLY, SELDOM, GROWTH = 10, 40, 0.2


@dataclass
class Descent(State):
    """The iterate, the smoothed problem it belongs to, and what was proved so far."""

    view: Reparametrized
    iterate: Iterate
    joint: Floats  # beliefs that agree, those of the best bound
    bound: Bound = field(default_factory=lambda: Bound(-np.inf))
    first: float = 1.0  # smoothing at the start
    steps: int = 0
    next_look: int = EARLY
    disagreement: float = float("nan")

    @property
    def smoothing(self) -> float:
        """Weight of the entropy."""
        return self.view.smoothing


@register
@dataclass(frozen=True)
class RelaxedLBFGS(Solver):
    """L-BFGS on the weights and the messages of the relaxed problem.

    Parameters
    ----------
    history : int, default=10
        Number of corrections kept, each as long as weights and messages.
    """

    name: ClassVar[str] = "relaxed_lbfgs"
    works_on: ClassVar[dict[str, frozenset[str]]] = {
        "graph": frozenset({"log", "softmax_margin", "hinge"})
    }
    rank: ClassVar[int] = 9
    precision: ClassVar[float] = 1e-3
    relaxed_on: ClassVar[frozenset[str]] = frozenset({"graph"})
    columns: ClassVar[tuple[str, ...]] = ("disagreement", "smoothing")
    history: int = 10

    def __post_init__(self) -> None:
        super().__post_init__()
        at_least(self, 1, "history")

    def refuses(self, problem: Any) -> str | None:
        """Refuse also the entropy whose maxima are no projections."""
        reason = super().refuses(problem)
        if reason is None and problem.gamma > 0 and problem.entropy != "gini":
            return f'knows the entropy "gini" only, not {problem.entropy!r}'
        return reason

    def suits(self, problem: Problem) -> bool:
        """Structural SVMs of which whole graphs are dear to ask."""
        return problem.loss == "hinge" and prefers_cliques(problem)

    def memory(self, problem: GraphProblem) -> float:
        """The corrections, the iterate and scratch; beliefs and their repaired copies."""
        g = problem.cliques
        messages = float(g.degree @ np.diff(g.offsets[: len(g.degree) + 1]))
        vectors = (2 * self.history + 9) * (problem.dimension + messages)
        return 8.0 * (vectors + 4.0 * float(g.offsets[-1]) + 4.0 * problem.dimension)

    # ---- state

    def init(self, problem: GraphProblem, warm: Any = None) -> Descent:
        """Weights and messages of zero, or those of ``warm``."""
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
        iterate = Iterate(u, *view.primal_and_gradient(u), [], [])
        return Descent(view, iterate, view.problem.truth.copy(), first=first)

    def _soften(self, state: Descent) -> None:
        """Less smooth, from the same weights and messages; what was learned of bends is lost."""
        old = state.view
        w, messages = old.split(state.iterate.w)
        state.view = new = Reparametrized(old.problem, LOWER * old.smoothing)
        new.best, new.best_w = old.best, old.best_w
        u = new.joined(w, messages)
        state.iterate = Iterate(u, *new.primal_and_gradient(u), [], [])

    # ---- one step

    def step(
        self, problem: GraphProblem, state: Descent, rng: np.random.Generator
    ) -> tuple[Descent, Info]:
        """One iteration of L-BFGS; now and then a certificate and, of a hinge, less smoothing."""
        view: Any = state.view
        state.iterate, info = LBFGS(self.history).step(view, state.iterate, rng)
        state.steps += 1
        finished, passes = info.finished, info.epochs
        if state.steps < state.next_look and not finished:
            return state, Info(passes, 0, np.inf)
        unsolved = self._prove(state)
        proof = self._certificate(state)
        state.next_look = state.steps + int(np.clip(GROWTH * state.steps, EARLY, SELDOM))
        if problem.gamma == 0:
            solved = unsolved <= UNSOLVED * (proof.primal - proof.dual)
            if state.smoothing > LAST * state.first and (finished or solved):
                self._soften(state)
                finished, passes = False, passes + 1.0
        return state, Info(passes, 0, np.inf, proof, finished)

    # ---- what it proves

    def _prove(self, state: Descent) -> float:
        """Look at the iterate: a new bound, and the gap of the smoothed problem."""
        view = state.view
        value, _ = view.primal_and_gradient(state.iterate.w)
        bound, own, added = view.dual(state.joint)
        state.bound = max(state.bound, bound)
        state.disagreement = float(view.apart @ view.apart)
        return value - own - added

    def _certificate(self, state: Descent) -> Certificate:
        return Certificate(state.view.best, state.bound.value, "bound", state.bound.rounding)

    def certify(self, problem: GraphProblem, state: Descent) -> Certificate:
        """The best weights so far against the best beliefs that agree."""
        self._prove(state)
        return self._certificate(state)

    def extras(self, problem: GraphProblem, state: Descent) -> dict[str, float]:
        """``||A mu||^2`` of all examples together, and the weight of the entropy."""
        return {"disagreement": state.disagreement, "smoothing": state.smoothing}

    def weights(self, problem: GraphProblem, state: Descent) -> Floats:
        """The weights that were best so far."""
        return state.view.best_w

    def pack(self, state: Descent) -> Arrays:
        """Weights, those that were best, messages and smoothing; corrections are learned again."""
        w, messages = state.view.split(state.iterate.w)
        return {"w": w, "best": state.view.best_w, "messages": messages,
                "smoothing": np.array([state.smoothing])}  # fmt: skip

    def resume_paths(self, state: Descent) -> tuple[str, ...]:
        """The iterate and the corrections, too."""
        return ("iterate", "joint", "bound", "steps", "next_look", "disagreement", "view.best")

    def unpack(self, problem: GraphProblem, arrays: Arrays) -> Descent:
        """Back from :meth:`pack`."""
        first = self.init(problem).first
        smoothing = number_of(arrays, "smoothing")
        check(1e-3 * LAST * first <= smoothing <= 1e30, "its 'smoothing' is not in range")
        view = Reparametrized(problem, smoothing if problem.gamma == 0 else problem.gamma)
        d, n = problem.dimension, view.n_messages
        messages = checked(arrays, "messages", (n,), low=-1e100, high=1e100)
        # The best weights last: their objective is that of the messages at hand.
        self._at(view, checked(arrays, "best", (d,), low=-1e100, high=1e100), messages, first)
        w = checked(arrays, "w", (d,), low=-1e100, high=1e100)
        return self._at(view, w, messages, first)
