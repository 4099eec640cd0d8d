"""Training and prediction of linear chains on a GPU, for ``SequenceTagger(device="cuda")``.

L-BFGS runs in float32, with features, weights and corrections on the device. Certificates use
float64, and so does L-BFGS once float32 stops making progress. ``device="cpu"`` runs the same
algorithm in plain PyTorch.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any, ClassVar, cast

import numpy as np
import torch
from torch import Tensor

from cliquewise.certificate import Certificate
from cliquewise.errors import UnsupportedError
from cliquewise.models.chain import ChainModel
from cliquewise.problems.base import Problem
from cliquewise.problems.chain import ChainProblem
from cliquewise.ragged import Floats
from cliquewise.solvers.array_checks import check, checked
from cliquewise.solvers.base import (
    ALL_BUT_MODEL,
    AnySolver,
    Arrays,
    Capabilities,
    Info,
    Solver,
    Start,
    State,
    Warm,
)
from cliquewise.solvers.lbfgs import LBFGS
from cliquewise.solvers.parameters import at_least, one_of
from cliquewise.torch._descent import Descent
from cliquewise.torch._device_chains import MAX_LABELS, current, fits
from cliquewise.torch._device_data import DeviceData, Needs, device_of
from cliquewise.torch._device_prediction import DevicePredictor

#: Power of the curvature that scales steps: weights of rare attributes get longer steps.
POWER = -0.15
#: Steps without a better value or bound after which L-BFGS switches type or stops.
PATIENCE = 15

TYPES = {"float32": torch.float32, "float64": torch.float64}


@dataclass
class DeviceIterate(State):
    """State of a run on a device."""

    data: DeviceData
    descent: Descent
    best: Tensor  # weights with the best lower bound
    dual: float = -np.inf  # their lower bound, in the type of the descent
    value: float = np.inf  # objective at the last clear decrease
    idle: int = 0  # steps since the value or the bound improved

    def continue_from(self, other: DeviceIterate) -> None:
        """Take the descent of another state, and its weights and values."""
        self.descent, self.best = other.descent, other.best
        self.dual, self.value, self.idle = other.dual, other.value, other.idle


@dataclass(frozen=True)
class DeviceLBFGS(Solver[ChainProblem, DeviceIterate]):
    """L-BFGS with all vectors on a GPU (or on the CPU, by PyTorch).

    Parameters
    ----------
    device : str, default="cuda"
    history : int, default=10
        Number of corrections kept.
    start : {"float32", "float64"}, default="float32"
        Type to start with; certificates always use float64.
    graph : bool, default=True
        Replay the launches of an evaluation as a CUDA graph.
    memory_gib : float, optional
        Memory limit on the device, in GiB; by default the free memory.
    """

    name: ClassVar[str] = "lbfgs"
    capabilities: ClassVar[Capabilities] = Capabilities({"chain": frozenset({"log"})})
    device: str = "cuda"
    history: int = 10
    start: str = "float32"
    graph: bool = True
    memory_gib: float | None = None

    def __post_init__(self) -> None:
        super().__post_init__()
        at_least(self, 1, "history")
        one_of(self, "start", *TYPES)

    # ---- supported problems

    def refuses(self, problem: Problem) -> str | None:
        """Return why the kernels do not support a problem, or None."""
        reason = super().refuses(problem)
        if reason is not None:
            return f"on device {self.device!r} {reason}"
        labels = cast(ChainProblem, problem).model.n_labels
        if labels > MAX_LABELS:
            return (
                f"on device {self.device!r} supports at most {MAX_LABELS} labels, not "
                f"{labels}; leave device out"
            )
        if not problem.is_convex:
            return f"on device {self.device!r} needs fully labeled data; leave device out"
        return None

    def tolerated_changes(self, problem: ChainProblem) -> frozenset[str]:
        """Return what may change: only the weights are reused."""
        return ALL_BUT_MODEL

    def memory(self, problem: ChainProblem) -> float:
        """Return the bytes of main memory: the weights, and on a CPU also the data."""
        host = 3 * 8.0 * problem.dimension
        if device_of(self.device).type == "cuda" or self.memory_gib is not None:
            return host
        return host + sum(Needs.of(problem, self.history, True))

    # ---- the algorithm

    def init(self, problem: ChainProblem, warm: Warm = None) -> DeviceIterate:
        """Start from zero weights or those of ``warm``, with all data on the device."""
        if isinstance(warm, Start) and len(warm.w) == problem.dimension:
            return self._begin(problem, warm.w)
        return self._begin(problem, None)

    def _begin(self, problem: ChainProblem, w: Floats | None) -> DeviceIterate:
        free = None if self.memory_gib is None else self.memory_gib * 2**30
        device = device_of(self.device)
        with current(device):
            data = DeviceData(problem, device, self.history, free)
            return self._descend(data, data.upload(w), TYPES[self.start])

    def _descend(self, data: DeviceData, weights: Tensor, dtype: torch.dtype) -> DeviceIterate:
        """Start a descent from weights, without corrections."""
        problem = data.problem
        scale = curvature_scale(data).to(dtype)
        graph = self.graph and data.plan.resident and fits(data.k, dtype)
        n = max(problem.n_examples, 1)
        descent = Descent(data.evaluator(dtype), scale, self.history, n, problem.lam, graph)
        zero = torch.zeros((), dtype=torch.float64, device=scale.device)
        descent.start(torch.where(data.free, weights / scale.double(), zero).to(dtype))
        state = DeviceIterate(data, descent, descent.evaluator.weights.clone())
        self._look(state)
        return state

    def _look(self, state: DeviceIterate) -> None:
        """Keep the weights if their lower bound is better."""
        m, lam = state.descent.now, state.descent.lam
        dual = m.value - m.raw / (2.0 * lam)
        state.idle += 1
        if not m.value >= state.value - state.descent.noise * abs(m.value):
            state.value, state.idle = m.value, 0
        if dual > state.dual:
            state.dual, state.idle = dual, 0
            state.best.copy_(state.descent.evaluator.weights)

    def step(self, problem: ChainProblem, state: DeviceIterate, rng: np.random.Generator) -> Info:
        """Make one iteration: a direction and a line search along it."""
        with current(state.data.device):
            return self._step(problem, state)

    def _step(self, problem: ChainProblem, state: DeviceIterate) -> Info:
        before = state.descent.evaluations
        fine = state.descent.step()
        spent = state.descent.evaluations - before
        self._look(state)
        if not fine or state.idle >= PATIENCE:
            if state.descent.evaluator.dtype == torch.float32:
                weights = state.descent.evaluator.weights.double()
                state.continue_from(self._descend(state.data, weights, torch.float64))
                spent += state.descent.evaluations
            else:
                calls = spent * problem.n_examples
                proof = self._certify(state)
                return Info(float(spent), calls, certificate=proof, finished=True)
        value = state.descent.now.value
        estimate = (value - state.dual) / max(abs(value), 1e-12)
        return Info(float(spent), spent * problem.n_examples, estimate)

    def check_cost(self, state: DeviceIterate) -> float:
        """Return 4: two passes in float64, each of twice the cost."""
        return 4.0

    def certify(self, problem: ChainProblem, state: DeviceIterate) -> Certificate:
        """Compute the objective at the weights and the better of two lower bounds, in float64."""
        with current(state.data.device):
            return self._certify(state)

    def _certify(self, state: DeviceIterate) -> Certificate:
        weights = state.descent.evaluator.weights
        kept = state.descent.evaluator.dtype == torch.float64
        # In float64 the descent and the proof share their evaluator, whose sums are still needed.
        here = weights.clone() if kept else weights
        value, bound = state.data.prove(here)
        m = state.descent.now
        if m.value - m.raw / (2.0 * state.descent.lam) < state.dual:
            _, other = state.data.prove(state.best)
            bound = max(bound, other)
        if kept:
            weights.copy_(here)
        return Certificate(value, bound.value, "exact", bound.rounding)

    def weights(self, problem: ChainProblem, state: DeviceIterate) -> Floats:
        """The iterate."""
        return state.data.download(state.descent.evaluator.weights)

    # ---- files

    def pack(self, state: DeviceIterate) -> Arrays:
        """Return the weights; corrections are rebuilt after a resume."""
        return {"w": state.data.download(state.descent.evaluator.weights)}

    def unpack(self, problem: ChainProblem, arrays: Arrays) -> DeviceIterate:
        """Restore a state from the arrays of a checkpoint."""
        w = checked(arrays, "w", (problem.dimension,))
        state = self._begin(problem, w)
        m = state.descent.now
        check(np.isfinite([m.value, m.raw]).all(), "its weights are too large")
        return state


def curvature_scale(data: DeviceData) -> Tensor:
    """Return a step scale per weight; 0 where there is no weight.

    Computed from the diagonal of the Hessian at zero, which depends on counts only.
    """
    problem, k = data.problem, data.k
    n = max(problem.n_examples, 1)
    spread = (1.0 - 1.0 / k) / k if k > 1 else 1.0
    links = max(problem.data.n_tokens - n, 0)
    edges = data.squares.new_full((k,), links / k**2)
    rows = (problem.lam + torch.cat([spread * data.squares, edges]) / n) ** POWER
    scale = (rows / rows.max()).repeat_interleave(k)
    return scale.masked_fill_(~data.free, 0.0)


# ---- for taggers


def solver_on(device: str, solver: Any) -> AnySolver:
    """Return the solver for a tagger, on its device."""
    if isinstance(solver, DeviceLBFGS):
        return replace(solver, device=device)
    if isinstance(solver, LBFGS):
        return DeviceLBFGS(device, solver.history)
    if isinstance(solver, str) and solver in ("auto", "lbfgs"):
        return DeviceLBFGS(device)
    name = solver.name if isinstance(solver, Solver) else solver
    raise UnsupportedError(
        f'solver {name!r} does not work with device={device!r}, only "lbfgs" does ("auto" takes '
        "it); leave device out for the others"
    )


def predictor_on(device: str, model: ChainModel, coef: Floats) -> DevicePredictor | None:
    """Return a predictor on the device, or None for unsupported models."""
    if model.n_edge_attributes or model.n_labels > MAX_LABELS:
        return None
    return DevicePredictor(model, coef, device_of(device))
