"""The relaxed objective as a function of weights and messages, for methods that want gradients."""

from __future__ import annotations

from typing import Any

import numpy as np

from cliquewise.certificate import Certificate
from cliquewise.problems.graph import GraphProblem
from cliquewise.problems.rounding import Bound, squared_norm
from cliquewise.ragged import Floats
from cliquewise.solvers.backends.graph.cliques import dual_value, weights_of_beliefs


class Reparametrized:
    """Primal values and gradients at vectors of scaled weights, then messages.

    ``smoothing`` is the temperature: that of the problem, or that of a stand-in for one without.
    A weight is scaled by how much all cliques together bend the objective along it, a message by
    how much its two cliques do. The best weights seen are kept, with the objective proper that
    their messages prove.
    """

    def __init__(self, problem: GraphProblem, smoothing: float):
        g = problem.cliques
        self.problem, self.smoothing = problem, smoothing
        self.n_examples = problem.n_examples
        self.order = np.argsort(g.type, kind="stable")
        self.curvature = np.ascontiguousarray(problem.clique_weights)
        states = np.diff(g.offsets)[: len(g.degree)]
        self.n_messages = int(g.degree.astype(np.int64) @ states)
        self.mu = np.empty(int(g.offsets[-1]))
        self.gradient, self.apart = np.empty(problem.dimension), np.empty(self.n_messages)
        self.best, self.best_w = np.inf, np.zeros(problem.dimension)
        self.scale = self._scales()

    def _scales(self) -> Floats:
        """Square roots of bounds of the second derivatives, upside down."""
        problem, n = self.problem, max(self.n_examples, 1)
        squares = np.zeros(problem.dimension)
        g = problem.cliques._replace(values=problem.cliques.values**2)
        problem.model.accumulate(np.ones(len(self.mu)), g, squares)
        bend = 2.0 * self.smoothing * n
        weights = problem.lam + 0.5 * squares / bend
        return np.concatenate([weights**-0.5, np.full(self.n_messages, (2.0 / bend) ** -0.5)])

    def split(self, u: Floats) -> tuple[Floats, Floats]:
        """The weights and the messages of a vector."""
        x, d = u * self.scale, self.problem.dimension
        return x[:d], x[d:]

    def joined(self, w: Floats, messages: Floats) -> Floats:
        """Back from :meth:`split`."""
        return np.concatenate([w, messages]) / self.scale

    def primal_and_gradient(self, u: Floats) -> tuple[float, Floats]:
        """The smoothed objective; ``mu`` and ``apart`` are those of the maxima there."""
        from cliquewise._kernels.cliques.messages import relaxed_loss

        problem, n = self.problem, max(self.n_examples, 1)
        w, messages = self.split(u)
        smooth, plain = relaxed_loss(
            problem.cliques, self.curvature, self.smoothing, w, messages, self.order, self.mu,
            self.gradient, self.apart,
        )  # fmt: skip
        norm = squared_norm(w)
        proper = problem.ridge_objective(norm, plain if problem.gamma == 0 else smooth)
        if proper < self.best:
            self.best, self.best_w = proper, w.copy()
        whole = np.concatenate([problem.lam * w + self.gradient / n, self.apart / n])
        return problem.ridge_objective(norm, smooth), whole * self.scale

    def certified(self, u: Floats, value: float, gradient: Floats) -> Certificate:
        """Nothing: bounds are made of beliefs that agree, now and then."""
        return Certificate(value, -np.inf, "none")

    def dual(self, joint: Floats) -> tuple[Bound, float, float]:
        """Dual values of beliefs that agree, and the entropy that smoothing adds to them.

        ``mu`` is repaired. Without an entropy ``joint``, the point of the last bound, moves
        towards it as far as the dual value rises, which evens out what single points have of
        the wrong weights; with one it moves there. Returns the bound of ``joint``, the dual value
        of ``mu`` itself, and what smoothing adds to that.
        """
        from cliquewise._kernels.cliques.local_polytope import entropy, repair

        problem, g = self.problem, self.problem.cliques
        mu = np.empty_like(self.mu)
        repair(g, self.mu, mu)
        if problem.gamma > 0:
            joint[:] = mu
            bound = dual_value(problem, mu)
            return bound, bound.value, 0.0
        terms: Any = problem.terms._replace(curvature=self.curvature, slack=np.empty((0, 2)))
        added = problem.per_example(self.smoothing * float(entropy(g, terms, mu)))
        old, new = (weights_of_beliefs(problem, x) for x in (joint, mu))
        change, rise = new - old, problem.per_example(float(problem.costs @ (mu - joint)))
        slope = rise - problem.lam * float(old @ change)
        bend = problem.lam * squared_norm(change)
        joint += (mu - joint) * (min(slope / bend, 1.0) if bend > 0 and slope > 0 else 0.0)
        own = problem.ridge_objective(
            0.0, float(problem.costs @ mu)
        ) - 0.5 * problem.lam * squared_norm(new)
        return dual_value(problem, joint), own, added
