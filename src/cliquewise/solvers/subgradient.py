"""Subgradient: stochastic steps on the primal objective of a structural support vector machine.

Pegasos (Shalev-Shwartz et al. 2011), with time s in epochs and ``psi_i(y)`` as in `bcfw`::

    z <- 0
    for every visit, of example i at time s:
        w <- z / s
        y <- argmax over y of L_i(y) - <w, psi_i(y)>                # the MAP oracle
        z <- z + C psi_i(y)                                         # a step of size 1 / (lam s)

So the weights are an average of subgradients. After whole epochs every example has the same share
in it, and the outputs found are a point of the dual, whose value is a lower bound of the objective.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import ClassVar

import numpy as np

from cliquewise.certificate import Certificate
from cliquewise.problems.base import Problem
from cliquewise.problems.chain import ChainProblem
from cliquewise.problems.examples import ExampleProblem
from cliquewise.problems.rounding import UNIT, Bound
from cliquewise.ragged import Floats
from cliquewise.solvers.array_checks import check, checked
from cliquewise.solvers.backends.base import BackendTable, MapSettings, Subgradients
from cliquewise.solvers.backends.chain.sums import ChainSums
from cliquewise.solvers.backends.examples import ExampleSums
from cliquewise.solvers.base import EXAMPLES, Arrays, Capabilities, Info, State, Warm
from cliquewise.solvers.bcfw import MapCalls
from cliquewise.solvers.parameters import at_least
from cliquewise.solvers.registry import register
from cliquewise.solvers.sampling import Order

BACKENDS = (
    BackendTable[MapSettings, Subgradients]()
    .add(ChainProblem, ChainSums)
    .add(ExampleProblem, ExampleSums, "graph", *EXAMPLES)
)


@dataclass
class Steps(State):
    """Sums of subgradients, and the bound that they prove."""

    backend: Subgradients
    z: Floats  # the weights are z / time
    sums: Floats  # of changes times the visits before them; empty without average
    strength: float  # the problem's C
    examples: int
    order: Order = field(default_factory=Order)
    mistakes: float = 0.0  # sum of the costs of all outputs found
    dual: Bound = field(default_factory=lambda: Bound(0.0))  # the best after a whole epoch
    is_average_better: bool = False  # at the last certificate


@register
@dataclass(frozen=True)
class Subgradient(MapCalls[Steps]):
    """Stochastic subgradient descent in shuffled epochs (Pegasos).

    Parameters
    ----------
    delay : float, default=1.0
        Time at the start, in epochs: the first step size is ``1 / (lam delay n)``.
    average : bool, default=True
        Also maintain the average of all iterates, weighted by time, and return it if its
        objective is lower.
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
    capabilities: ClassVar[Capabilities] = Capabilities(
        dict.fromkeys(BACKENDS.kinds, frozenset({"hinge"})), rank=90, precision=0.03
    )
    delay: float = 1.0
    average: bool = True

    def __post_init__(self) -> None:
        super().__post_init__()
        at_least(self, 0.0, "delay")

    def memory(self, problem: Problem) -> float:
        """Return the bytes of four weight vectors, and of some numbers per example."""
        return BACKENDS[problem].memory(problem, self.map_call) + 128.0

    # ---- state

    def init(self, problem: Problem, warm: Warm = None) -> Steps:
        """Start at zero; or at the sums of ``warm``, if it ended with a whole epoch."""
        backend = BACKENDS[problem](problem, self.map_call)
        sums = backend.zeros() if self.average else np.empty(0)
        state = Steps(backend, backend.zeros(), sums, problem.C, problem.n_examples)
        if isinstance(warm, Steps) and warm.z.shape == state.z.shape:
            self._continue_from(problem, state, warm)
        state.dual = self._dual(problem, state)
        return state

    def _continue_from(self, problem: Problem, state: Steps, warm: Steps) -> None:
        old, n = warm.examples, problem.n_examples
        if old == 0 or not warm.order.is_whole(old):
            return
        # New examples count as if the truth had been their best output in every epoch.
        ratio = problem.C / warm.strength
        state.z[:] = ratio * warm.z
        state.backend.sizes = warm.backend.sizes.copy()
        state.order.visits, state.mistakes = warm.order.visits // old * n, warm.mistakes
        if len(state.sums) == len(warm.sums):
            state.sums[:] = ratio * n / old * warm.sums

    # ---- one step

    def step(self, problem: Problem, state: Steps, rng: np.random.Generator) -> Info:
        """Visit all examples once, or as many as take about two seconds."""
        n, before = problem.n_examples, state.order.visits
        if n == 0:
            return Info(1.0, 0, 0.0)
        count = state.order.count(n, problem.max_step_examples)
        calls, mistakes = state.backend.visit(
            state.order.sample(n, count, rng), state.z, state.sums, before, self.delay * n
        )
        state.mistakes += mistakes
        state.is_average_better = False
        if state.order.is_whole(n) and count < n:  # certificates may miss the end of an epoch
            state.dual = max(state.dual, self._dual(problem, state))
        return Info(count / n, calls)

    def _time(self, problem: Problem, state: Steps) -> float:
        """Return the time s, in epochs."""
        return float(self.delay + state.order.visits / max(problem.n_examples, 1))

    def _current(self, problem: Problem, state: Steps) -> Floats:
        time = self._time(problem, state)
        return state.z / time if time > 0 else state.z

    def _mean(self, problem: Problem, state: Steps) -> Floats:
        """Return the average of the iterates after each visit, weighted by their times."""
        visits, n = float(state.order.visits), problem.n_examples
        total = visits * self.delay * n + 0.5 * visits * (visits + 1)
        return np.asarray(n * (visits * state.z - state.sums) / total)

    # ---- certificate

    def _dual(self, problem: Problem, state: Steps) -> Bound:
        """Return the value of the dual point of all outputs found, after whole epochs."""
        n, time = max(problem.n_examples, 1), self._time(problem, state)
        if time == 0:
            return Bound(problem.lower_bound)
        visits = state.order.visits
        costs = (state.mistakes / n + self.delay * problem.lower_bound) / time
        rounding_error = UNIT * visits * abs(costs)
        weight_error_scale = state.backend.weight_error_scale(visits) / time
        return problem.bound(costs, state.z / time, rounding_error, weight_error_scale)

    def check_cost(self, state: Steps) -> float:
        """Return one pass for the iterate and one for the average."""
        return 2.0 if self.average else 1.0

    def certify(self, problem: Problem, state: Steps) -> Certificate:
        """Return the better objective of iterate and average, and the best dual value so far."""
        if problem.n_examples and state.order.is_whole(problem.n_examples):
            state.dual = max(state.dual, self._dual(problem, state))
        primal, exact = state.backend.primal(self._current(problem, state))
        state.is_average_better = False
        if self.average and state.order.visits > 0:
            other, is_exact = state.backend.primal(self._mean(problem, state))
            if other < primal:
                state.is_average_better, primal, exact = True, other, is_exact
        status = "exact" if exact else "bound"
        return Certificate(primal, state.dual.value, status, state.dual.rounding)

    def weights(self, problem: Problem, state: Steps) -> Floats:
        """Return the iterate, or the average if that was certified."""
        which = self._mean if state.is_average_better else self._current
        return state.backend.unpacked(which(problem, state))

    def pack(self, state: Steps) -> Arrays:
        """Return the sums, the order of the epoch, and the numbers."""
        numbers = [state.strength, state.order.visits, state.mistakes, *state.dual]
        return {
            "z": state.z,
            "sums": state.sums,
            "sizes": state.backend.sizes,
            "order": state.order.order,
            "numbers": np.array(numbers),
        }

    def without_sums(self, problem: Problem, state: Steps) -> Steps:
        """Return a new start: the weights and the bound are both made of the sums."""
        return self.init(problem)

    def unpack(self, problem: Problem, arrays: Arrays) -> Steps:
        """Return a state from :meth:`pack`; under another C the sums are scaled."""
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
        state.order = Order.from_arrays(arrays, visits, problem.n_examples)
        if ratio == 1.0:
            state.dual = dual
        elif problem.n_examples and state.order.is_whole(problem.n_examples):
            state.dual = max(state.dual, self._dual(problem, state))
        return state
