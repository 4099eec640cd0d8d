"""SDCA on graphs of small treewidth, by exact inference on one example at a time.

The same mathematics as ``_kernels/chain/sdca.py``, without its speed: the dual distribution of
an example is kept as log-potentials theta with their marginals and log partition A, and moves
along ``theta + eta (s - theta)``, where s are the scores under the present weights. With
``g = A(s) - A(theta) - <s - theta, mu>`` as block gap a step is accepted only if the dual
objective, evaluated exactly, does not fall.
"""

from __future__ import annotations

from math import fsum
from typing import ClassVar, Self

import numpy as np

from cliquewise.errors import DataError
from cliquewise.problems.graph import MESSAGE, GraphProblem
from cliquewise.problems.rounding import UNIT, Bound
from cliquewise.ragged import Floats, Ints
from cliquewise.solvers.array_checks import checked, pack_gaps, unpack_gaps
from cliquewise.solvers.backends.base import DualSettings
from cliquewise.solvers.base import Arrays
from cliquewise.solvers.sampling import Order


class GraphDuals:
    """Distributions of all examples, flat over their cliques, and their weights."""

    samples_by_gap: ClassVar[bool] = False

    def __init__(self, problem: GraphProblem, settings: DualSettings):
        self.problem, self.gamma = problem, settings.gamma
        self.theta = settings.start * problem.truth
        # The scores of edges are zero at the start: those of the nodes are enough.
        self.theta[problem.cliques.offsets[problem.data.n_nodes] :] = 0.0
        n = problem.n_examples
        self.mu, self.log_z = np.zeros_like(self.theta), np.zeros(n)
        # An example without weight has no gap, visited or not.
        self.gaps = np.where(problem.temperatures > 0, np.inf, 0.0)
        self.w = np.zeros(problem.dimension)
        self.infer()

    @classmethod
    def memory(cls, problem: GraphProblem, settings: DualSettings) -> float:
        """Return four numbers per state of each clique, and the memory of exact inference."""
        states = 4.0 * int(problem.cliques.offsets[-1])
        return 8.0 * (states + 3 * problem.dimension + 500 * problem.n_examples)

    def order(self) -> Order:
        """Return the order of visits of a run."""
        return Order()

    def infer(self) -> None:
        """Compute marginals and log partition functions from the scores."""
        for i in range(self.problem.n_examples):
            at = self.problem.entries(i)
            self.mu[at], self.log_z[i] = self.problem.marginals(i, self.theta[at])

    # ---- warm starts and checkpoints

    def continue_from(self, warm: Self) -> None:
        if warm.theta.shape != self.theta.shape:
            raise DataError("a warm start needs the same graphs")
        self.theta = warm.theta.copy()
        self.infer()

    def pack(self) -> Arrays:
        return {"theta": self.theta, "gaps": pack_gaps(self.gaps)}

    def unpack(self, arrays: Arrays) -> None:
        self.theta = checked(arrays, "theta", self.theta.shape, low=-1e12, high=1e12)
        self.gaps = unpack_gaps(arrays, self.gaps)
        self.infer()

    # ---- steps

    def refresh(self) -> None:
        self.w[:] = 0.0
        self.problem.accumulate(self.problem.truth - self.mu, self.w)
        self.w *= self._strength

    @property
    def _strength(self) -> float:
        return self.problem.C / self.problem.penalty.scale

    def visit(self, order: Ints, uniforms: Floats, step: float) -> int:
        return sum(self._visit(i, step) for i in order.tolist())

    def _visit(self, i: int, step: float) -> int:
        problem = self.problem
        at, gamma, C = problem.entries(i), float(problem.temperatures[i]), self._strength
        w = problem.penalty.shrunk(self.w)
        if gamma == 0:  # an example without weight
            self.gaps[i] = 0.0
            return 0
        cost, theta, mu = problem.costs[at], self.theta[at], self.mu[at]
        scores = (problem.scores(w, i) + cost) / gamma
        p, log_z = problem.marginals(i, scores)
        self.gaps[i] = max(log_z - self.log_z[i] - float((scores - theta) @ mu), 0.0)
        both = float((scores - theta) @ (p - mu))
        if both <= 1e-15:
            return 1
        image = problem.image(i, p - mu)
        curve = C * float(image @ image) / (gamma * both)
        eta = step or _step_length(curve, both, float(self.gaps[i]))
        entropy, calls = self.log_z[i] - float(theta @ mu), 1
        while eta > 1e-6:
            new_theta = theta + eta * (scores - theta)
            new_mu, new_z = (p, log_z) if eta == 1.0 else problem.marginals(i, new_theta)
            calls += eta < 1.0
            image = problem.image(i, new_mu - mu)
            spread = gamma * (new_z - float(new_theta @ new_mu) - entropy)
            gained = spread + float(cost @ (new_mu - mu)) + float(w @ image)
            if gained - 0.5 * C * float(image @ image) >= 0:
                self.theta[at], self.mu[at], self.log_z[i] = new_theta, new_mu, new_z
                self.w -= C * image
                break
            eta *= 0.5
        return calls

    def gap(self) -> float:
        return float(self.problem.temperatures @ self.gaps) / max(self.problem.n_examples, 1)

    def dual(self) -> tuple[float, float]:
        problem, entropies = self.problem, self.log_z.copy()
        products = self.theta * self.mu
        entropies -= np.bincount(problem.state_owners, products, minlength=len(entropies))
        total = float(problem.temperatures @ entropies) + float(problem.costs @ self.mu)
        return problem.per_example(total) - problem.penalty.conjugate(self.w), 0.0

    def watch(self, dual: float) -> None:
        pass  # one thread: the dual value does not decrease

    def bound(self) -> Bound:
        problem = self.problem
        entropies, sizes = self.log_z.copy(), np.abs(self.log_z)
        products = self.theta * self.mu
        for out, terms in ((entropies, -products), (sizes, np.abs(products))):
            out += np.bincount(problem.state_owners, terms, minlength=len(out))
        costs = problem.costs * self.mu
        linear = problem.per_example(fsum(problem.temperatures * entropies) + fsum(costs))
        sizes = problem.temperatures @ (1.0 + sizes) + np.abs(costs).sum()
        rounding_error = UNIT * problem.roundings * problem.per_example(float(sizes))
        weight_error_scale = problem.weight_error_scale_for(
            problem.sizes(problem.truth - self.mu), 2.0 * problem.n_cliques
        )
        if problem.forest is None:
            weight_error_scale += problem.C * self._message_roundings() * problem.reach
        return problem.bound(linear, self.w, rounding_error, weight_error_scale)

    def _message_roundings(self) -> float:
        """Return the roundings of the messages of a junction tree, from the scores."""
        problem, g = self.problem, self.problem.cliques
        largest = np.maximum.reduceat(np.abs(self.theta), g.offsets[:-1])
        scores = np.bincount(problem.owners, largest, minlength=problem.n_examples)
        cliques = np.bincount(problem.owners, minlength=problem.n_examples)
        return MESSAGE * float((cliques * scores).max(initial=0.0))

    def primal(self, w: Floats) -> tuple[float, bool]:
        w = self.problem.penalty.shrunk(w)
        return self.problem.upper_bound(w, self.problem.primal(w))

    def unpacked(self, w: Floats) -> Floats:
        return np.array(self.problem.penalty.shrunk(w))


def _step_length(kappa: float, both: float, gap: float) -> float:
    """Root of ``1 - eta = kappa eta^a`` with ``a = both / gap - 1``, by Newton's steps."""
    power = max(both / max(gap, 1e-300) - 1.0, 0.1)
    low, high, eta = 0.0, 1.0, 1.0 / (1.0 + kappa)
    for _ in range(20):
        value = 1.0 - eta - kappa * eta**power
        low, high = (eta, high) if value > 0 else (low, eta)
        slope = -1.0 - kappa * power * eta ** (power - 1.0)
        new = eta - value / slope
        eta = new if low < new < high else 0.5 * (low + high)
    return 1.0 if eta > 0.99 else eta
