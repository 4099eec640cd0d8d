"""Algorithm 1 of the note as it is printed: steps on the segment between two distributions.

The library's steps go along the exponentiated path between the same two ends. This one is for
comparison, on chains of one node (multiclass regression), and in plain numpy.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from cliquewise.certificate import Certificate
from cliquewise.problems.chain import ChainProblem
from cliquewise.solvers.base import Info

#: Precision of the root that the line search finds.
PRECISION = 1e-3


@dataclass
class Segment:
    """Points, their distributions, and the weights that these make."""

    x: np.ndarray  # with a constant 1
    y: np.ndarray
    alpha: np.ndarray
    w: np.ndarray
    penalty: float


@dataclass(frozen=True)
class PublishedSDCA:
    """SDCA with uniform sampling; the step is Newton's root of the derivative, kept in [0, 1]."""

    start: float = 10.0

    def init(self, problem: ChainProblem) -> Segment:
        """Distributions close to the truth, as the library starts."""
        data = problem.data
        assert data.labels is not None and len(data) == data.n_tokens
        x = np.ones((len(data), data.n_features + 1))
        x[:, :-1] = 0.0
        rows = np.repeat(np.arange(len(data)), np.diff(data.indptr))
        x[rows, data.indices] = 1.0 if data.values is None else data.values
        y, k = np.asarray(data.labels), problem.model.n_labels
        alpha = np.full((len(y), k), 1.0)
        alpha[np.arange(len(y)), y] = np.exp(self.start)
        alpha /= alpha.sum(axis=1, keepdims=True)
        penalty = 1.0 / (problem.C * len(y))
        return Segment(x, y, alpha, self._weights(x, y, alpha, penalty), penalty)

    @staticmethod
    def _weights(x: np.ndarray, y: np.ndarray, alpha: np.ndarray, penalty: float) -> np.ndarray:
        true = np.eye(alpha.shape[1])[y]
        return (true - alpha).T @ x / (penalty * len(y))

    def step(self, problem: Any, state: Segment, rng: np.random.Generator) -> Info:
        """As many visits as there are points."""
        x, alpha, w, n = state.x, state.alpha, state.w, len(state.y)
        scale = 1.0 / (state.penalty * n)
        for i in rng.integers(0, n, n):
            scores = w @ x[i]
            p = np.exp(scores - scores.max())
            p /= p.sum()
            d = p - alpha[i]
            size = self._root(alpha[i], d, float(d @ scores), scale * float(x[i] @ x[i]))
            alpha[i] += size * d
            w -= np.outer(scale * size * d, x[i])
        return Info(epochs=1.0, oracle_calls=n)

    @staticmethod
    def _root(a: np.ndarray, d: np.ndarray, slope: float, curve: float) -> float:
        """Where ``-<d, log(a + g d)> + <d, s> - g |v|^2`` is zero, by safeguarded Newton steps."""
        quadratic = curve * float(d @ d)
        low, high, g = 0.0, 1.0, 0.5
        for _ in range(30):
            at = np.maximum(a + g * d, 1e-300)
            f = -float(d @ np.log(at)) + slope - g * quadratic
            low, high = (g, high) if f > 0 else (low, g)
            new = g + f / (float(d @ (d / at)) + quadratic)
            new = new if low < new < high else 0.5 * (low + high)
            if abs(new - g) < PRECISION:
                return new
            g = new
        return g

    def certify(self, problem: Any, state: Segment) -> Certificate:
        """Both objectives."""
        scores = state.x @ state.w.T
        top = scores.max(axis=1)
        log_z = top + np.log(np.exp(scores - top[:, None]).sum(axis=1))
        norm = 0.5 * state.penalty * float((state.w**2).sum())
        loss = float(np.mean(log_z - scores[np.arange(len(state.y)), state.y]))
        a = np.maximum(state.alpha, 1e-300)
        entropy = -float((a * np.log(a)).sum(axis=1).mean())
        return Certificate(primal=norm + loss, dual=entropy - norm)

    def weights(self, problem: Any, state: Segment) -> np.ndarray:
        """A row per class."""
        return state.w.ravel()
