"""Subgradient: stochastic steps on the primal objective of a structural support vector machine.

Steps of length ``1 / (lam s)`` at time ``s`` make the weights a plain average of subgradients
(Shalev-Shwartz et al. 2011). After whole passes every example has its share in that average, so
that the labelings met are a point of the dual, and its value is a true lower bound.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np

from cliquewise.certificate import Certificate
from cliquewise.errors import DataError
from cliquewise.graph.factor_graph import Floats
from cliquewise.graph.structure import Ints
from cliquewise.problems.chain import ChainProblem
from cliquewise.solvers._pegasos import AveragedSteps
from cliquewise.solvers.base import Info, Solver, register


@dataclass
class Steps:
    """Sums of subgradients and what they prove."""

    chains: Any  # the data it is about
    z: Floats  # the weights are z n / s, packed
    sums: Floats  # visits before a change times that change; empty if no average is wanted
    strength: float
    visits: int
    mistakes: float  # sum of c_i Hamming over the labelings of all visits
    dual: float  # after the last whole pass
    order: Ints
    averaged: bool = False


@register
@dataclass(frozen=True)
class Subgradient(AveragedSteps, Solver):
    """Stochastic subgradient descent in reshuffled passes (Pegasos).

    Parameters
    ----------
    delay : float, default=1.0
        Passes by which time is ahead at the start: the first step is ``1 / (lam delay n)``.
    average : bool, default=True
        Keep the average of all iterates, weighted by time, and return it where its objective
        is lower.

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
    losses: ClassVar[frozenset[str]] = frozenset({"hinge"})
    delay: float = 1.0
    average: bool = True

    def __post_init__(self) -> None:
        self._check_delay()

    def memory(self, problem: Any) -> float:
        """Three weight vectors and an order of the examples."""
        return float(8 * (3 * problem.form.size + problem.n_examples + 16))

    # ---- state

    def init(self, problem: ChainProblem, warm: Steps | None = None) -> Steps:
        """Zero weights; or the sums of ``warm``, if it ended with a whole pass."""
        form, chains, n = problem.form, problem.chains, problem.n_examples
        sums = form.zeros() if self.average else np.empty(0)
        none = np.empty(0, dtype=np.int64)
        state = Steps(chains, form.zeros(), sums, problem.C, 0, 0.0, 0.0, none)
        if not isinstance(warm, Steps):
            return state
        old = len(warm.chains.offsets) - 1
        if old == 0 or warm.visits % old or warm.z.shape != state.z.shape:
            return state
        if old > n or not np.array_equal(
            warm.chains.labels, chains.labels[: len(warm.chains.labels)]
        ):
            raise DataError("a warm start needs the same labels and at least the same examples")
        # The new examples count as if every pass had found them right.
        ratio = problem.C / warm.strength
        state.z[:], state.visits, state.mistakes = (
            ratio * warm.z,
            warm.visits // old * n,
            warm.mistakes,
        )
        if len(state.sums) == len(warm.sums):
            state.sums[:] = ratio * n / old * warm.sums
        state.dual = self._dual(problem, state)
        return state

    # ---- one step

    def step(
        self, problem: ChainProblem, state: Steps, rng: np.random.Generator
    ) -> tuple[Steps, Info]:
        """Visit a pass of examples, or as many as keep one call below about two seconds."""
        from cliquewise._kernels.chain.hinge import pegasos

        n = problem.n_examples
        if n == 0:
            return state, Info(1.0, 0, 0.0)
        work = problem.data.n_tokens * problem.model.n_labels**2
        pieces = min(n, 1 + int(work // 400_000_000))
        at = state.visits % n
        count = min(-(-n // pieces), n - at)
        if at == 0:
            state.order = rng.permutation(n)
        calls, mistakes = pegasos(
            state.chains, state.z, state.sums, problem.C, state.order[at : at + count],
            state.visits, self.delay * n,
        )  # fmt: skip
        state.visits += count
        state.mistakes += mistakes
        self._end_visits(problem, state)
        return state, Info(count / n, calls)

    # ---- what it proves

    def certify(self, problem: ChainProblem, state: Steps) -> Certificate:
        """Exact objective of the better of iterate and average, and the best dual value met."""
        primal = problem.packed_primal(self._current(problem, state))
        state.averaged = False
        if self.average and state.visits > 0:
            other = problem.packed_primal(self._mean(problem, state))
            state.averaged = other < primal
            primal = min(primal, other)
        return Certificate(primal, state.dual, "exact")

    def weights(self, problem: ChainProblem, state: Steps) -> Floats:
        """The iterate, or the average if that was certified."""
        w = (self._mean if state.averaged else self._current)(problem, state)
        return problem.form.unpack(w)

    def pack(self, state: Steps) -> dict[str, np.ndarray[Any, Any]]:
        """The sums, the order of the pass under way, and the numbers."""
        return {
            "z": state.z, "sums": state.sums, "order": state.order,
            "offsets": state.chains.offsets,
            "numbers": np.array([state.strength, state.visits, state.mistakes, state.dual]),
        }  # fmt: skip

    def unpack(self, problem: ChainProblem, arrays: dict[str, np.ndarray[Any, Any]]) -> Steps:
        """Back from :meth:`pack`."""
        state: Steps = self._take_up(
            problem, self.init(problem), arrays, "offsets", problem.data.offsets
        )
        return state
