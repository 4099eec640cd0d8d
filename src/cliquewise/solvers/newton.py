"""Newton's method for labels that do not depend on each other, all of them at once.

Each label is a logistic regression of its own. Their steps are solved for by conjugate gradients,
scaled by the diagonal, in blocks of labels: features meet the directions of all labels of a block
in one product, which costs little more than that of one label. Every label has its own line
search, which needs no product, and leaves when it is done.
"""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from typing import Any, ClassVar

import numpy as np
from threadpoolctl import threadpool_limits

from cliquewise.certificate import Certificate
from cliquewise.problems.label_graph import LabelsProblem
from cliquewise.ragged import Floats
from cliquewise.solvers.array_checks import check, checked
from cliquewise.solvers.base import ALL_BUT_MODEL, Arrays, Info, Solver, Start, State, register

#: Labels of a block: their numbers lie side by side. The same for all numbers of threads.
BLOCK = 64
#: Norm of the residual, as a share of the gradient's, at which a direction is good enough: at
#: first, and at last.
ROUGH, FINE = 0.3, 0.01
#: Most steps towards a direction.
STEPS = 200
#: Share of the labels that are not done below which the others leave.
LEAVE = 0.8
#: Share of the promised fall of the objective that a step must make, and halvings of a step.
ARMIJO, HALVINGS = 1e-4, 40


@dataclass
class Labels(State):
    """Weights of all labels (being on less being off), and what they are worth."""

    V: Floats
    on: Floats
    values: Floats
    gradient: Floats
    passes: Floats = field(default_factory=lambda: np.zeros(0))


@register
@dataclass(frozen=True)
class Newton(Solver):
    """Newton's method with conjugate gradients, label by label."""

    name: ClassVar[str] = "newton"
    works_on: ClassVar[dict[str, frozenset[str]]] = {"labels": frozenset({"log", "softmax_margin"})}
    rank: ClassVar[int] = 5
    tolerates_changes_in: ClassVar[frozenset[str]] = ALL_BUT_MODEL  # a start takes its weights

    def memory(self, problem: Any) -> float:
        """Weights, gradients and directions; scores and slopes of all rows, and a block's."""
        (n, d), k = problem.features.shape, problem.n_labels
        jobs = max(problem.n_jobs, 1)
        return float(8.0 * (k * (6 * d + 2 * n) + jobs * min(k, BLOCK) * (6 * d + 6 * n)))

    def init(self, problem: LabelsProblem, warm: Any = None) -> Labels:
        """Zero weights, or those of ``warm``."""
        V = np.zeros((problem.features.shape[1], problem.n_labels))
        if isinstance(warm, Start):
            V = problem.unpack(np.resize(warm.w, problem.dimension))[0]
        elif isinstance(warm, Labels):
            V = warm.V.copy()
        return self._state(problem, V)

    def _state(self, problem: LabelsProblem, V: Floats) -> Labels:
        on = problem.features.scores(V)
        slope = problem.slopes(on, slice(None))[0]
        gradient = problem.C * problem.features.adjoint(slope) + 0.5 * V
        values = problem.C * problem.losses(on, slice(None)) + 0.25 * np.square(V).sum(axis=0)
        return Labels(V, on, values, gradient)

    def step(
        self, problem: LabelsProblem, state: Labels, rng: np.random.Generator
    ) -> tuple[Labels, Info]:
        """A step of every label that has not reached what floating point allows."""
        squares = np.square(state.gradient).sum(axis=0)
        # The gap of a label is at most its squared gradient; what is far below all is done.
        moving = np.flatnonzero(squares > 1e-4 * squares.sum() / max(len(squares), 1))
        blocks = [moving[at : at + BLOCK] for at in range(0, len(moving), BLOCK)]
        old, state = state, Labels(state.V.copy(), state.on.copy(), state.values.copy(),
                                   state.gradient.copy())  # fmt: skip
        jobs = min(max(problem.n_jobs, 1), len(blocks))
        if jobs > 1:
            with ThreadPoolExecutor(jobs) as pool, threadpool_limits(1, "blas"):
                passes = list(pool.map(lambda b: _improve(problem, state, b), blocks))
        else:
            passes = [_improve(problem, state, block) for block in blocks]
        work = sum(p * len(b) for p, b in zip(passes, blocks, strict=True))
        certificate = self.certify(problem, state)
        stuck = not np.any(state.values < old.values)
        epochs = max(work / max(problem.n_labels, 1), 1e-3)
        calls = int(work * problem.n_examples)
        return state, Info(epochs, calls, certificate.gap, certificate, finished=stuck)

    def certify(self, problem: LabelsProblem, state: Labels) -> Certificate:
        """The gradient is at hand, so the proof costs nothing."""
        none = np.zeros((0, 4))
        # Of C times the losses and a quarter of ||V||^2, which is half of ||w||^2.
        gradient = problem.lam * problem.pack(state.gradient, none)
        w = self.weights(problem, state)
        value = problem.lam * float(state.values.sum())
        return problem.certified(w, value, gradient)

    def weights(self, problem: LabelsProblem, state: Labels) -> Floats:
        """Being off has minus half of the weights, being on half."""
        return 0.5 * problem.pack(state.V, np.zeros((0, 4)))

    def pack(self, state: Labels) -> Arrays:
        """The weights; the rest follows."""
        return {"V": state.V}

    def resume_paths(self, state: Labels) -> tuple[str, ...]:
        """Scores, values and gradients, as they were computed on the way."""
        return ("on", "values", "gradient")

    def unpack(self, problem: LabelsProblem, arrays: Arrays) -> Labels:
        """Back from :meth:`pack`."""
        shape = (problem.features.shape[1], problem.n_labels)
        state = self._state(problem, checked(arrays, "V", shape))
        fits = np.isfinite(state.values).all() and np.isfinite(state.gradient).all()
        check(fits, "its weights are too large")
        return state


def _improve(problem: LabelsProblem, state: Labels, labels: Any) -> float:
    """One step of the labels of a block; how many passes it took."""
    features, C = problem.features, problem.C
    V, on, gradient = state.V[:, labels], state.on[:, labels], state.gradient[:, labels]
    curvature = C * problem.slopes(on, labels)[1]
    d, moved, passes = _direction(features, curvature, gradient)
    slope = (gradient * d).sum(axis=0)
    before, t = state.values[labels], np.ones(len(labels))
    norm, along, own = (V * V).sum(axis=0), (V * d).sum(axis=0), (d * d).sum(axis=0)
    for _ in range(HALVINGS):
        penalty = 0.25 * (norm + 2.0 * t * along + t * t * own)
        after = C * problem.losses(on + t * moved, labels) + penalty
        falls = after <= before + ARMIJO * t * slope
        if falls.all():
            break
        t = np.where(falls, t, 0.5 * t)
    t, after = np.where(after < before, t, 0.0), np.minimum(after, before)
    on += t * moved
    V += t * d
    state.V[:, labels], state.on[:, labels], state.values[labels] = V, on, after
    slopes = problem.slopes(on, labels)[0]
    state.gradient[:, labels] = C * features.adjoint(slopes) + 0.5 * V
    return passes + 1.0


def _direction(features: Any, curvature: Floats, gradient: Floats) -> tuple[Floats, Floats, float]:
    """About ``-(X' diag(curvature) X + 1/2)^-1 gradient``, X times it, and passes made."""
    scale = features.adjoint(curvature, squared=True) + 0.5
    d, moved = np.zeros_like(gradient), np.zeros_like(curvature)
    own, along = d.copy(), moved.copy()  # of the labels that are not done yet
    r = -gradient
    z = r / scale
    p, rz = z.copy(), (r * z).sum(axis=0)
    size = np.sqrt((r * r).sum(axis=0))
    stop, passes, at = size * np.clip(size, FINE, ROUGH), 0.5, np.arange(len(size))
    for _ in range(STEPS):
        Xp = features.scores(p)
        Hp = features.adjoint(curvature * Xp) + 0.5 * p
        length = rz / np.maximum((p * Hp).sum(axis=0), 1e-300)
        own += length * p
        Xp *= length
        along += Xp
        r -= length * Hp
        passes += len(at) / len(size)
        on = np.sqrt((r * r).sum(axis=0)) > stop[at]
        if not on.any():
            break
        if np.count_nonzero(on) <= LEAVE * len(at):  # labels that are done leave the products
            d[:, at], moved[:, at] = own, along
            at, rz, curvature = at[on], rz[on], curvature[:, on]
            own, along, r, p, scale = own[:, on], along[:, on], r[:, on], p[:, on], scale[:, on]
        z = r / scale
        new = (r * z).sum(axis=0)
        p = z + p * (new / np.maximum(rz, 1e-300))
        rz = new
    d[:, at], moved[:, at] = own, along
    return d, moved, passes
