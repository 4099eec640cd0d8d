"""Newton's method for labels that do not depend on each other, all of them at once.

Each label is a separate logistic regression::

    for every label that has not converged:
        d <- -(C X' diag(p (1 - p)) X + I / 2)^-1 g       # conjugate gradients, diagonal scaling
        t <- 1, halved until the objective decreases enough (Armijo)
        V <- V + t d

Conjugate gradients run on blocks of labels: the product of the features with the directions of all
labels of a block costs little more than with one. Each label has its own line search, which
needs no product, and leaves the block when it has converged.
"""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import ClassVar

import numpy as np
from threadpoolctl import threadpool_limits

from cliquewise.certificate import Certificate
from cliquewise.problems.label_graph import Features, LabelsProblem
from cliquewise.ragged import Floats, Ints
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
from cliquewise.solvers.registry import register

#: Labels of a block, whose numbers are adjacent in memory. It does not depend on the threads.
BLOCK = 64
#: Norm of the residual relative to the gradient at which a direction is good enough: for large
#: gradients, and for small ones.
ROUGH, FINE = 0.3, 0.01
#: Largest number of conjugate gradient steps.
MAX_STEPS = 200
#: If less than this share of the labels of a block is active, the others leave the products.
COMPACT = 0.8
#: Share of the decrease predicted by the slope that a step must achieve; halvings of a step.
ARMIJO, MAX_HALVINGS = 1e-4, 40


@dataclass
class Labels(State):
    """Weights of all labels (on minus off), their scores on all rows, objectives and gradients."""

    V: Floats
    on: Floats
    values: Floats
    gradient: Floats


@register
@dataclass(frozen=True)
class Newton(Solver[LabelsProblem, Labels]):
    """Newton's method with conjugate gradients, label by label."""

    name: ClassVar[str] = "newton"
    capabilities: ClassVar[Capabilities] = Capabilities(
        {"labels": frozenset({"log", "softmax_margin"})}, rank=5
    )

    def memory(self, problem: LabelsProblem) -> float:
        """Return the bytes of weights, gradients, directions, scores and derivatives."""
        (n, d), k = problem.features.shape, problem.n_labels
        jobs = max(problem.n_jobs, 1)
        return 8.0 * (k * (6 * d + 2 * n) + jobs * min(k, BLOCK) * (6 * d + 6 * n))

    def tolerated_changes(self, problem: LabelsProblem) -> frozenset[str]:
        """Return what may change: only the weights are reused."""
        return ALL_BUT_MODEL

    def init(self, problem: LabelsProblem, warm: Warm = None) -> Labels:
        """Start at zero, or at the weights of ``warm``."""
        V = np.zeros((problem.features.shape[1], problem.n_labels))
        if isinstance(warm, Start):
            V = problem.unpack(np.resize(warm.w, problem.dimension))[0]
        elif isinstance(warm, Labels):
            V = warm.V.copy()
        return self._at(problem, V)

    def _at(self, problem: LabelsProblem, V: Floats) -> Labels:
        on = problem.features.scores(V)
        slope = problem.slopes(on, slice(None))[0]
        ridge = 0.5 * problem.ridge * V
        gradient = problem.C * problem.features.adjoint(slope) + ridge
        values = problem.C * problem.losses(on, slice(None)) + 0.5 * (ridge * V).sum(axis=0)
        return Labels(V, on, values, gradient)

    def step(self, problem: LabelsProblem, state: Labels, rng: np.random.Generator) -> Info:
        """Make a step of every label that can still improve in floating point."""
        squares = np.square(state.gradient).sum(axis=0)
        # The gap of a label is at most its squared gradient: skip those far below the mean.
        moving = np.flatnonzero(squares > 1e-4 * squares.sum() / max(len(squares), 1))
        blocks = [moving[at : at + BLOCK] for at in range(0, len(moving), BLOCK)]
        before = state.values.copy()
        jobs = min(max(problem.n_jobs, 1), len(blocks))
        if jobs > 1:
            with ThreadPoolExecutor(jobs) as pool, threadpool_limits(1, "blas"):
                passes = list(pool.map(lambda b: _improve(problem, state, b), blocks))
        else:
            passes = [_improve(problem, state, block) for block in blocks]
        work = sum(p * len(b) for p, b in zip(passes, blocks, strict=True))
        certificate = self.certify(problem, state)
        stuck = not np.any(state.values < before)
        epochs = max(work / max(problem.n_labels, 1), 1e-3)
        calls = int(work * problem.n_examples)
        return Info(epochs, calls, certificate.gap, certificate, finished=stuck)

    def certify(self, problem: LabelsProblem, state: Labels) -> Certificate:
        """Return the bound of the current gradient, at no extra cost."""
        none = np.zeros((0, 4))
        # The gradient is that of C times the losses plus ||V||^2 / 4, which is ||w||^2 / 2.
        gradient = problem.lam * problem.pack(state.gradient, none)
        w = self.weights(problem, state)
        value = problem.lam * float(state.values.sum())
        return problem.certified(w, value, gradient)

    def weights(self, problem: LabelsProblem, state: Labels) -> Floats:
        """Return the weights: half of V for a label that is on, minus half for one that is off."""
        return 0.5 * problem.pack(state.V, np.zeros((0, 4)))

    def pack(self, state: Labels) -> Arrays:
        """Return the weights."""
        return {"V": state.V}

    def unpack(self, problem: LabelsProblem, arrays: Arrays) -> Labels:
        """Return a state from :meth:`pack`; scores, values and gradients are recomputed."""
        shape = (problem.features.shape[1], problem.n_labels)
        state = self._at(problem, checked(arrays, "V", shape))
        fits = np.isfinite(state.values).all() and np.isfinite(state.gradient).all()
        check(fits, "its weights are too large")
        return state


def _improve(problem: LabelsProblem, state: Labels, labels: Ints) -> float:
    """Make one step of the labels of a block; return the number of passes."""
    features, C, ridge = problem.features, problem.C, problem.ridge[:, labels]
    V, on, gradient = state.V[:, labels], state.on[:, labels], state.gradient[:, labels]
    curvature = C * problem.slopes(on, labels)[1]
    d, moved, passes = _direction(features, curvature, gradient, 0.5 * ridge)
    slope = (gradient * d).sum(axis=0)
    before, t = state.values[labels], np.ones(len(labels))
    norm, own = (ridge * V * V).sum(axis=0), (ridge * d * d).sum(axis=0)
    along = (ridge * V * d).sum(axis=0)
    for _ in range(MAX_HALVINGS):
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
    state.gradient[:, labels] = C * features.adjoint(slopes) + 0.5 * ridge * V
    return passes + 1.0


def _direction(
    features: Features, curvature: Floats, gradient: Floats, ridge: Floats
) -> tuple[Floats, Floats, float]:
    """Approximate ``d = -(X' diag(curvature) X + ridge)^-1 gradient``; return d, X d and passes."""
    scale = np.maximum(features.adjoint(curvature, squared=True) + ridge, 1e-300)
    d, moved = np.zeros_like(gradient), np.zeros_like(curvature)
    own, along = d.copy(), moved.copy()  # of the labels that are still active
    r = -gradient
    z = r / scale
    p, rz = z.copy(), (r * z).sum(axis=0)
    size = np.sqrt((r * r).sum(axis=0))
    stop, passes, at = size * np.clip(size, FINE, ROUGH), 0.5, np.arange(len(size))
    for _ in range(MAX_STEPS):
        Xp = features.scores(p)
        Hp = features.adjoint(curvature * Xp) + ridge * p
        length = rz / np.maximum((p * Hp).sum(axis=0), 1e-300)
        own += length * p
        Xp *= length
        along += Xp
        r -= length * Hp
        passes += len(at) / len(size)
        on = np.sqrt((r * r).sum(axis=0)) > stop[at]
        if not on.any():
            break
        if np.count_nonzero(on) <= COMPACT * len(at):  # converged labels leave the products
            d[:, at], moved[:, at] = own, along
            at, rz, curvature, ridge = at[on], rz[on], curvature[:, on], ridge[:, on]
            own, along, r, p, scale = own[:, on], along[:, on], r[:, on], p[:, on], scale[:, on]
        z = r / scale
        new = (r * z).sum(axis=0)
        p = z + p * (new / np.maximum(rz, 1e-300))
        rz = new
    d[:, at], moved[:, at] = own, along
    return d, moved, passes
