"""Baselines for networks: stochastic gradient descent with three schedules, and Adam."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
import torch
from torch import Tensor

from cliquewise.certificate import Certificate
from cliquewise.errors import DataError
from cliquewise.solvers.array_checks import checked, count_of
from cliquewise.solvers.base import Capabilities, Info, Solver, State, Warm
from cliquewise.solvers.parameters import one_of, positive
from cliquewise.solvers.registry import register
from cliquewise.torch.losses import LOSSES
from cliquewise.torch.problem import DeepProblem

#: The rate is divided by this power of the time.
SCHEDULES = {"constant": 0.0, "sqrt": 0.5, "inverse": 1.0}


@dataclass
class StochasticState(State):
    """Weights, the moments of Adam, the number of steps, and the average of the weights."""

    w: Tensor
    first: Tensor
    second: Tensor
    steps: int = 0
    mean: Tensor | None = None


def start_of(problem: DeepProblem, warm: Warm) -> Tensor:
    """Return the weights of ``warm``, or else those of the network."""
    w = problem.weights()
    given = getattr(warm, "w", None)
    return w if given is None else torch.as_tensor(given).to(w)


@dataclass(frozen=True)
class _Stochastic(Solver[DeepProblem, StochasticState]):
    """One pass over shuffled mini-batches per step."""

    rate: float = 0.1
    schedule: str = "constant"
    t0: float = 100.0
    average: float = 0.0
    capabilities: ClassVar[Capabilities] = Capabilities(
        {"deep": frozenset(LOSSES)}, no_penalty=True, precision=float("inf")
    )

    def __post_init__(self) -> None:
        super().__post_init__()
        positive(self, "rate")
        positive(self, "t0")
        one_of(self, "schedule", *SCHEDULES)
        if not 0 <= self.average < 1:
            raise DataError(f"average = {self.average}; it must be at least 0 and below 1")

    def init(self, problem: DeepProblem, warm: Warm = None) -> StochasticState:
        """Start from the weights of the network, or those of another state."""
        w = start_of(problem, warm)
        mean = w.clone() if self.average else None
        return StochasticState(w.clone(), torch.zeros_like(w), torch.zeros_like(w), mean=mean)

    def update(self, state: StochasticState, grad: Tensor, rate: float) -> None:
        """Update the weights with one stochastic gradient; ``state.steps`` includes it."""
        raise NotImplementedError

    def advance(self, state: StochasticState, grad: Tensor) -> None:
        """Perform one step at the current rate and update the average."""
        age = 1.0 + state.steps / self.t0
        state.steps += 1
        self.update(state, grad, self.rate / age ** SCHEDULES[self.schedule])
        if state.mean is not None:
            # A short memory at first, to forget the starting point.
            kept = min(self.average, (1.0 + state.steps) / (10.0 + state.steps))
            state.mean.lerp_(state.w, 1.0 - kept)

    @staticmethod
    def answer(state: StochasticState) -> Tensor:
        """Return the average of the weights, or the weights without averaging."""
        return state.w if state.mean is None else state.mean

    def step(self, problem: DeepProblem, state: StochasticState, rng: np.random.Generator) -> Info:
        """Perform one pass over the data."""
        for batch in problem.batches(torch.from_numpy(rng.permutation(problem.n_examples))):
            grad, _ = problem.gradient(state.w, batch)
            self.advance(state, grad.add(state.w, alpha=problem.lam))
        return Info(1.0, problem.n_examples, certificate=self.certify(problem, state))

    def weights(self, problem: DeepProblem, state: StochasticState) -> Any:
        """Return the weights or their average as a NumPy vector."""
        return self.answer(state).cpu().double().numpy()

    def certify(self, problem: DeepProblem, state: StochasticState) -> Certificate:
        """Compute the objective in a pass over the data; nothing is proven."""
        return Certificate(problem.objective(self.answer(state)), status="none")

    def pack(self, state: StochasticState) -> dict[str, Any]:
        """Return the arrays of a checkpoint."""
        arrays = {n: getattr(state, n).cpu().numpy() for n in ("w", "first", "second")}
        own = {} if state.mean is None else {"mean": state.mean.cpu().numpy()}
        return arrays | own | {"steps": np.array([state.steps])}

    def unpack(self, problem: DeepProblem, arrays: dict[str, Any]) -> StochasticState:
        """Restore a state from the arrays of a checkpoint."""
        like = problem.weights()
        names = ("w", "first", "second", *(["mean"] if self.average else []))
        shape, kind, low = tuple(like.shape), like.cpu().numpy().dtype, {"second": 0.0}
        w, first, second, *mean = (
            torch.as_tensor(checked(arrays, n, shape, kind, low.get(n, -np.inf))).to(like)
            for n in names
        )
        return StochasticState(w, first, second, count_of(arrays, "steps"), *mean)


@register
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
    average : float
        If positive, return an exponential moving average of the weights with this decay, such
        as 0.999, which often generalizes better.

    Examples
    --------
    >>> SGD(rate=0.5, schedule="sqrt").name
    'sgd'
    """

    name: ClassVar[str] = "sgd"

    def update(self, state: StochasticState, grad: Tensor, rate: float) -> None:
        """Step against the gradient."""
        state.w = state.w.add(grad, alpha=-rate)


@register
@dataclass(frozen=True)
class Adam(_Stochastic):
    """Adam (Kingma and Ba 2015).

    Parameters
    ----------
    rate, schedule, t0, average
        As of :class:`SGD`.
    decay : pair of float
        Decay rates of the first and the second moment.

    Examples
    --------
    >>> Adam(rate=1e-3, average=0.999).name
    'adam'
    """

    rate: float = 1e-3
    decay: tuple[float, float] = (0.9, 0.999)
    name: ClassVar[str] = "adam"

    def __post_init__(self) -> None:
        super().__post_init__()
        pair = isinstance(self.decay, tuple | list) and len(self.decay) == 2
        if not pair or not all(isinstance(x, float | int) and 0 <= x < 1 for x in self.decay):
            raise DataError(f"decay = {self.decay!r}; it must be two numbers in [0, 1)")

    def update(self, state: StochasticState, grad: Tensor, rate: float) -> None:
        """Step along the first moment divided by the root of the second."""
        slow, slower = self.decay
        state.first.mul_(slow).add_(grad, alpha=1 - slow)
        state.second.mul_(slower).addcmul_(grad, grad, value=1 - slower)
        # In place where possible: the vectors are as long as all weights of the network.
        root = state.second.sqrt().div_((1 - slower**state.steps) ** 0.5).add_(1e-8)
        state.w = torch.addcdiv(state.w, state.first, root, value=-rate / (1 - slow**state.steps))
