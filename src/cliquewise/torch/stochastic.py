"""Baselines for networks: stochastic gradient descent with three schedules, and Adam."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
import torch
from torch import Tensor

from cliquewise.certificate import Certificate
from cliquewise.errors import DataError, UnsupportedError
from cliquewise.solvers.base import Info, Solver
from cliquewise.torch.problem import DeepProblem

SCHEDULES = ("constant", "sqrt", "inverse")


@dataclass
class StochasticState:
    """Weights, the moments of Adam, and the number of steps made."""

    w: Tensor
    first: Tensor
    second: Tensor
    steps: int = 0


@dataclass(frozen=True)
class _Stochastic(Solver):
    """One pass over shuffled mini-batches per step."""

    rate: float = 0.1
    losses: ClassVar[frozenset[str]] = frozenset({"log", "hinge", "smooth_hinge", "softmax_margin"})
    problems: ClassVar[frozenset[str]] = frozenset({"deep"})

    def __post_init__(self) -> None:
        if not self.rate > 0:
            raise DataError(f"rate = {self.rate}; it must be positive")

    def init(self, problem: DeepProblem, warm: Any = None) -> StochasticState:
        """Start from the network's weights, or those of another state."""
        w = problem.weights() if warm is None else torch.as_tensor(warm.w).to(problem.weights())
        return StochasticState(w.clone(), torch.zeros_like(w), torch.zeros_like(w))

    def update(self, state: StochasticState, grad: Tensor) -> None:
        """Move the state along one stochastic gradient."""
        raise NotImplementedError

    def step(
        self, problem: DeepProblem, state: StochasticState, rng: np.random.Generator
    ) -> tuple[StochasticState, Info]:
        """One pass over the data."""
        for batch in problem.batches(torch.from_numpy(rng.permutation(problem.n_examples))):
            grad, _ = problem.gradient(state.w, batch)
            self.update(state, grad + problem.lam * state.w)
        return state, Info(1.0, problem.n_examples, certificate=self.certify(problem, state))

    def weights(self, problem: DeepProblem, state: StochasticState) -> Any:
        """As a numpy vector."""
        return state.w.cpu().double().numpy()

    def certify(self, problem: DeepProblem, state: StochasticState) -> Certificate:
        """The objective, from a pass over the data; nothing is proved."""
        return Certificate(problem.value(state.w), status="none")

    def pack(self, state: StochasticState) -> dict[str, Any]:
        """For a checkpoint."""
        arrays = {n: getattr(state, n).cpu().numpy() for n in ("w", "first", "second")}
        return arrays | {"steps": np.array([state.steps])}

    def unpack(self, problem: DeepProblem, arrays: dict[str, Any]) -> StochasticState:
        """Back from :meth:`pack`."""
        like = problem.weights()
        w, first, second = (
            torch.as_tensor(arrays[n].copy()).to(like) for n in ("w", "first", "second")
        )
        return StochasticState(w, first, second, int(arrays["steps"][0]))


@dataclass(frozen=True)
class SGD(_Stochastic):
    """Stochastic (sub)gradient descent.

    Parameters
    ----------
    rate : float
        Learning rate of the first step.
    schedule : {"constant", "sqrt", "inverse"}
        The rate itself, divided by ``sqrt(1 + t / t0)``, or by ``1 + t / t0``.
    t0 : float
        In steps.

    Examples
    --------
    >>> SGD(rate=0.5, schedule="sqrt").name
    'sgd'
    """

    schedule: str = "constant"
    t0: float = 100.0
    name: ClassVar[str] = "sgd"

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.schedule not in SCHEDULES:
            raise UnsupportedError(f"schedule is one of: {', '.join(SCHEDULES)}")

    def update(self, state: StochasticState, grad: Tensor) -> None:
        """A step against the gradient."""
        age = 1.0 + state.steps / self.t0
        power = {"constant": 0.0, "sqrt": 0.5, "inverse": 1.0}[self.schedule]
        state.w = state.w - self.rate / age**power * grad
        state.steps += 1


@dataclass(frozen=True)
class Adam(_Stochastic):
    """Adam (Kingma and Ba 2015).

    Examples
    --------
    >>> Adam(rate=1e-3).name
    'adam'
    """

    rate: float = 1e-3
    decay: tuple[float, float] = (0.9, 0.999)
    name: ClassVar[str] = "adam"

    def update(self, state: StochasticState, grad: Tensor) -> None:
        """A step along the first moment over the root of the second."""
        state.steps += 1
        slow, slower = self.decay
        state.first.mul_(slow).add_(grad, alpha=1 - slow)
        state.second.mul_(slower).addcmul_(grad, grad, value=1 - slower)
        first = state.first / (1 - slow**state.steps)
        second = state.second / (1 - slower**state.steps)
        state.w = state.w - self.rate * first / (second.sqrt() + 1e-8)
