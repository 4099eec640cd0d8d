"""The relaxed objective as a function of weights and messages, for methods that want gradients."""

from __future__ import annotations

import numpy as np

from cliquewise.problems.graph import GraphProblem
from cliquewise.problems.rounding import Bound, squared_norm
from cliquewise.ragged import Floats
from cliquewise.solvers.backends.graph.cliques import dual_value, weights_of_beliefs


class Reparametrized:
    """The objective as a function of scaled weights and messages.

    ``smoothing`` is the weight of the entropy: that of the problem, or an artificial one. Weights
    and messages are scaled by the square roots of their curvatures. The best weights so far are
    stored, with the upper bound of the original objective that their messages prove.
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
        """Return the inverse square roots of bounds of the second derivatives."""
        problem, n = self.problem, max(self.n_examples, 1)
        squares = np.zeros(problem.dimension)
        g = problem.cliques._replace(values=problem.cliques.values**2)
        problem.model.accumulate(np.ones(len(self.mu)), g, squares)
        bend = 2.0 * self.smoothing * n
        weights = problem.lam + 0.5 * squares / bend
        return np.concatenate([weights**-0.5, np.full(self.n_messages, (2.0 / bend) ** -0.5)])

    def split(self, u: Floats) -> tuple[Floats, Floats]:
        """Return the weights and the messages of a vector."""
        x, d = u * self.scale, self.problem.dimension
        return x[:d], x[d:]

    def joined(self, w: Floats, messages: Floats) -> Floats:
        """Return the vector of weights and messages."""
        return np.concatenate([w, messages]) / self.scale

    def primal_and_gradient(self, u: Floats) -> tuple[float, Floats]:
        """Return the smoothed objective and its gradient; store those of its maxima."""
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

    def dual(self, joint: Floats) -> tuple[Bound, float, float]:
        """Return the bound of ``joint``, the dual value of ``mu``, and its artificial entropy.

        ``mu`` is repaired into the local polytope. With an entropy in the problem, ``joint``
        moves there. Without one, ``joint`` moves toward it by an exact line search on the dual,
        which averages out the errors of the weights of single points.
        """
        from cliquewise._kernels.cliques.local_polytope import entropy, repair

        problem, g = self.problem, self.problem.cliques
        mu = np.empty_like(self.mu)
        repair(g, self.mu, mu)
        if problem.gamma > 0:
            joint[:] = mu
            bound = dual_value(problem, mu)
            return bound, bound.value, 0.0
        terms = problem.terms._replace(curvature=self.curvature, slack=np.empty((0, 2)))
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
