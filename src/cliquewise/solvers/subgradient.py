"""Subgradient: stochastic steps on the primal objective of a structural support vector machine.

Steps of length ``1 / (lam s)`` at time ``s`` make the weights a plain average of subgradients
(Shalev-Shwartz et al. 2011), ``z / s`` with s in passes. After whole passes every example has its
share in that average, so that the outputs met are a point of the dual, and its value is a true
lower bound.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, ClassVar

import numpy as np

from cliquewise.certificate import Certificate
from cliquewise.problems.rounding import UNIT, Bound
from cliquewise.ragged import Floats
from cliquewise.solvers.array_checks import check, checked
from cliquewise.solvers.backends.base import Sums
from cliquewise.solvers.backends.chain.sums import ChainSums
from cliquewise.solvers.backends.examples import ExampleSums
from cliquewise.solvers.base import EXAMPLES, Arrays, Info, State, at_least, register
from cliquewise.solvers.bcfw import MapCalls
from cliquewise.solvers.sampling import Order

BACKENDS: dict[str, Any] = {"chain": ChainSums} | dict.fromkeys(("graph", *EXAMPLES), ExampleSums)


@dataclass
class Steps(State):
    """Sums of subgradients and what they prove."""

    backend: Sums
    z: Floats  # the weights are z / time
    sums: Floats  # visits before a change times that change; empty if no average is wanted
    strength: float  # the problem's C
    examples: int
    order: Order = field(default_factory=Order)
    mistakes: float = 0.0  # sum of the costs of the outputs of all visits
    dual: Bound = field(default_factory=lambda: Bound(0.0))  # the best after a whole pass
    averaged: bool = False


@register
@dataclass(frozen=True)
class Subgradient(MapCalls):
    """Stochastic subgradient descent in reshuffled passes (Pegasos).

    Parameters
    ----------
    delay : float, default=1.0
        Passes by which time is ahead at the start: the first step is ``1 / (lam delay n)``.
    average : bool, default=True
        Keep the average of all iterates, weighted by time, and return it where its objective
        is lower.
    map_method, map_options
        See :class:`~cliquewise.solvers.bcfw.MapCalls`.

    Examples
    --------
    >>> from cliquewise.data.dataset import Dataset
    >>> from cliquewise.models.chain import ChainModel
    >>> from cliquewise.problems.chain import ChainProblem
    >>> from cliquewise.solvers.run import run
    >>> data = Dataset([0, 2, 3], [0, 1, 3, 4], [0, 0, 1, 1], None, 2, labels=[0, 1, 1])
    >>> problem = ChainProblem(ChainModel.build(data, 2), data, loss="hinge")
    >>> bool(run(problem, Subgradient(), tol=0.02, max_epochs=1000, random_state=0).converged)
    True
    """

    name: ClassVar[str] = "subgradient"
    works_on: ClassVar[dict[str, frozenset[str]]] = dict.fromkeys(BACKENDS, frozenset({"hinge"}))
    rank: ClassVar[int] = 90
    precision: ClassVar[float] = 0.03
    delay: float = 1.0
    average: bool = True

    def __post_init__(self) -> None:
        super().__post_init__()
        at_least(self, 0.0, "delay")

    def memory(self, problem: Any) -> float:
        """Four weight vectors and, of every example, its place in the order and its bound."""
        each = 40 if problem.kind == "chain" else 500
        return float(32 * BACKENDS[problem.kind].size(problem) + each * problem.n_examples + 128)

    # ---- state

    def init(self, problem: Any, warm: Any = None) -> Steps:
        """Zero weights; or the sums of ``warm``, if it ended with a whole pass."""
        backend = BACKENDS[problem.kind](problem, self)
        sums = backend.zeros() if self.average else np.empty(0)
        state = Steps(backend, backend.zeros(), sums, problem.C, problem.n_examples)
        if isinstance(warm, Steps) and warm.z.shape == state.z.shape:
            self._continue_from(problem, state, warm)
        state.dual = self._dual(problem, state)
        return state

    def _continue_from(self, problem: Any, state: Steps, warm: Steps) -> None:
        old, n = warm.examples, problem.n_examples
        if old == 0 or not warm.order.is_whole(old):
            return
        # New examples count as if every pass had found them right.
        ratio = problem.C / warm.strength
        state.z[:] = ratio * warm.z
        state.backend.sizes = warm.backend.sizes.copy()
        state.order.visits, state.mistakes = warm.order.visits // old * n, warm.mistakes
        if len(state.sums) == len(warm.sums):
            state.sums[:] = ratio * n / old * warm.sums

    # ---- one step

    def step(self, problem: Any, state: Steps, rng: np.random.Generator) -> tuple[Steps, Info]:
        """Visit a pass of examples, or as many as keep one call below about two seconds."""
        n, before = problem.n_examples, state.order.visits
        if n == 0:
            return state, Info(1.0, 0, 0.0)
        count = state.order.count(n, problem.max_step_examples)
        calls, mistakes = state.backend.visit(
            state.order.draw(n, count, rng), state.z, state.sums, before, self.delay * n
        )
        state.mistakes += mistakes
        state.averaged = False
        if state.order.is_whole(n) and count < n:  # certificates may miss the end of a pass
            state.dual = max(state.dual, self._dual(problem, state))
        return state, Info(count / n, calls)

    def _time(self, problem: Any, state: Steps) -> float:
        """The time s, in passes."""
        return float(self.delay + state.order.visits / max(problem.n_examples, 1))

    def _current(self, problem: Any, state: Steps) -> Floats:
        time = self._time(problem, state)
        return state.z / time if time > 0 else state.z

    def _mean(self, problem: Any, state: Steps) -> Floats:
        """The average of the iterates after each visit, weighted by their times."""
        visits, n = float(state.order.visits), problem.n_examples
        total = visits * self.delay * n + 0.5 * visits * (visits + 1)
        return n * (visits * state.z - state.sums) / total  # type: ignore[no-any-return]

    # ---- what it proves

    def _dual(self, problem: Any, state: Steps) -> Bound:
        """Value of the dual point that the outputs of all visits make, after whole passes."""
        n, time = max(problem.n_examples, 1), self._time(problem, state)
        if time == 0:
            return Bound(problem.lower_bound)
        visits = state.order.visits
        costs = (state.mistakes / n + self.delay * problem.lower_bound) / time
        rounding_error = UNIT * visits * abs(costs)
        weight_error_scale = state.backend.weight_error_scale(visits) / time
        bound: Bound = problem.bound(costs, state.z / time, rounding_error, weight_error_scale)
        return bound

    def check_cost(self, state: Steps) -> float:
        """A pass each for the iterate and for the average."""
        return 2.0 if self.average else 1.0

    def certify(self, problem: Any, state: Steps) -> Certificate:
        """Objective of the better of iterate and average, and the best dual value met."""
        if problem.n_examples and state.order.is_whole(problem.n_examples):
            state.dual = max(state.dual, self._dual(problem, state))
        primal, exact = state.backend.primal(self._current(problem, state))
        state.averaged = False
        if self.average and state.order.visits > 0:
            other, also = state.backend.primal(self._mean(problem, state))
            if other < primal:
                state.averaged, primal, exact = True, other, also
        status = "exact" if exact else "bound"
        return Certificate(primal, state.dual.value, status, state.dual.rounding)

    def weights(self, problem: Any, state: Steps) -> Floats:
        """The iterate, or the average if that was certified."""
        mean = state.averaged
        return state.backend.unpacked((self._mean if mean else self._current)(problem, state))

    def pack(self, state: Steps) -> Arrays:
        """The sums, the order of the pass under way, and the numbers."""
        numbers = [state.strength, state.order.visits, state.mistakes, *state.dual]
        return {
            "z": state.z,
            "sums": state.sums,
            "sizes": state.backend.sizes,
            "order": state.order.order,
            "numbers": np.array(numbers),
        }

    def resume_paths(self, state: Steps) -> tuple[str, ...]:
        """Whether the average was the better one."""
        return ("averaged",)

    def recompute_untrusted(self, problem: Any, state: Steps) -> Steps:
        """Sums of outputs that nobody can find again prove nothing."""
        return self.init(problem)

    def unpack(self, problem: Any, arrays: Arrays) -> Steps:
        """Back from :meth:`pack`; under another C the sums are scaled."""
        state = self.init(problem)
        numbers = checked(arrays, "numbers", (5,)).tolist()
        strength, visits, state.mistakes = numbers[:3]
        dual = Bound(*numbers[3:])
        check(strength > 0, "its C is not positive")
        state.backend.sizes = checked(arrays, "sizes", state.backend.sizes.shape)
        ratio = problem.C / strength
        for name in ("z", "sums"):
            target = getattr(state, name)
            target[:] = ratio * checked(arrays, name, target.shape)
        order = checked(arrays, "order", (None,), np.int64)
        state.order = Order.unpacked(visits, order, problem.n_examples)
        if ratio == 1.0:
            state.dual = dual
        elif problem.n_examples and state.order.is_whole(problem.n_examples):
            state.dual = max(state.dual, self._dual(problem, state))
        return state
