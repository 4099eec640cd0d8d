"""Beliefs of all cliques of all graphs, multipliers that make them agree, and their certificate.

The certificate is that of the relaxed problem, and not of the inner problem of the paper:

* upper: any messages make the cliques' own maxima an upper bound of the relaxed loss at w
  (Prop. 5 of idal); the messages taken are ``xi - A mu / rho``;
* lower: ``mu`` is repaired into the local polytope, where the dual objective is a lower bound.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, Self

import numpy as np

from cliquewise.certificate import Certificate
from cliquewise.errors import DataError
from cliquewise.problems.graph import GraphProblem
from cliquewise.problems.rounding import UNIT, Bound
from cliquewise.ragged import Floats, Ints
from cliquewise.solvers.array_checks import check, check_sums, checked, number_of
from cliquewise.solvers.base import Arrays, State
from cliquewise.solvers.sampling import Order

#: Condition number of a node's problem up to which half a pass per outer step is enough.
WELL_CONDITIONED = 2.5
#: Largest number of passes between two certificates.
MAX_CHECK_PASSES = 10.0


@dataclass
class CliqueAscent(State):
    """State of a cliquewise solver: mean parameters, multipliers, and adaptive step control."""

    problem: GraphProblem
    point: Any  # the kernels' named tuple: mu, the multipliers xi, their inflow, the weights
    rho: float = 1.0  # the penalty for disagreement is ||A mu||^2 / (2 rho)
    inner: float = 0.5  # visits per outer step, as a share of the cliques
    steps: Floats = field(default_factory=lambda: np.empty(0))
    gaps: Floats = field(default_factory=lambda: np.empty(0))
    previous: Floats = field(default_factory=lambda: np.empty(0))
    place: Ints = field(default_factory=lambda: np.empty(0, dtype=np.int64))
    by_example: Ints = field(default_factory=lambda: np.empty(0, dtype=np.int64))
    active: Any = None  # cliques that a greedy solver visits
    order: Order = field(default_factory=Order)
    outer: int = 0
    momentum: float = 1.0
    disagreement: float = float("nan")
    inner_gap: float = float("nan")
    primal: float = float("nan")
    dual: float = float("nan")
    next_check: int = 4  # outer step after which the solver certifies itself
    share: float = float("nan")  # of the inner gap in the whole gap, at the last certificate
    lag: float = float("inf")  # the same; kept after rho was adapted to it
    last_gap: float = float("nan")  # at the certificate before
    last_passes: float = 0.0
    factor: float = 2.0  # of the next change of rho
    direction: float = 0.0  # of the last change of rho
    changed: bool = False  # whether rho changed at the last certificate
    changes: int = 0  # of rho

    @classmethod
    def begin(
        cls, problem: GraphProblem, mu: Floats, rho: float | None, inner: float | None
    ) -> CliqueAscent:
        """Start at the beliefs ``mu`` with zero multipliers; None is the default of a parameter."""
        from cliquewise._kernels.cliques.ascent import Point, cliques_by_example

        g, data, n = problem.cliques, problem.data, problem.n_cliques
        nodes = np.diff(g.offsets)[: len(g.degree)]
        messages = int(g.degree.astype(np.int64) @ nodes)
        sizes = messages, int(nodes.sum()), problem.dimension
        state = cls(problem, Point(mu, *(np.zeros(size) for size in sizes)))
        state.steps, state.gaps = np.empty(n), np.full(n, np.inf)
        state.by_example = np.empty(n, dtype=np.int64)
        state.place = np.zeros(problem.n_examples, dtype=np.int64)
        cliques_by_example(data.n_nodes, data.node_offsets, data.edge_offsets, state.by_example)
        state.refresh()
        state.set_rho(balanced_rho(problem) if rho is None else rho)
        state.inner = balanced_inner(problem, state.steps) if inner is None else float(inner)
        return state

    @staticmethod
    def memory(problem: GraphProblem) -> float:
        """Return the bytes of mean parameters, repaired copies, multipliers and weights."""
        g = problem.cliques
        messages = float(g.degree @ np.diff(g.offsets[: len(g.degree) + 1]))
        states, weights = int(g.offsets[-1]), problem.dimension
        return 8.0 * (3 * states + 2 * messages + 4 * len(g.type) + 3 * weights)

    @property
    def passes(self) -> float:
        """Visits so far, in passes over all cliques."""
        return self.order.visits / max(self.problem.n_cliques, 1)

    def refresh(self) -> None:
        """Recompute the weights from the beliefs, which removes rounding errors of the updates."""
        self.point.w[:] = weights_of_beliefs(self.problem, self.point.mu)

    def set_rho(self, rho: float) -> None:
        """Set the penalty and its step sizes; mu and the multipliers are unchanged."""
        from cliquewise._kernels.cliques.ascent import lipschitz, multipliers

        # Always a float: kernels would be compiled again for an integer.
        self.rho = rho = float(rho)
        g, none = self.problem.cliques, np.empty(0)
        lipschitz(g, self.problem.terms, rho, self.problem.model.layout["spread"], self.steps)
        self.disagreement, _ = multipliers(g, self.point, rho, 0.0, 0.0, none)

    # ---- warm starts and checkpoints

    def continue_from(self, warm: Self) -> None:
        """Copy beliefs, multipliers and penalty of the same graphs."""
        x, old = self.point, warm.point
        if old.mu.shape != x.mu.shape or old.xi.shape != x.xi.shape:
            raise DataError("a warm start needs the same graphs")
        self._take(old.mu, old.xi, warm.rho)

    def pack(self) -> Arrays:
        """Return mean parameters, multipliers and the penalty."""
        return {"mu": self.point.mu, "xi": self.point.xi, "rho": np.array([self.rho])}

    def unpack(self, arrays: Arrays) -> None:
        """Take the arrays of :meth:`pack`, after checks."""
        x, sizes = self.point, np.diff(self.problem.cliques.offsets)
        mu = checked(arrays, "mu", x.mu.shape, low=0.0)
        check_sums(mu, sizes, np.minimum(sizes, 1.0))
        xi = checked(arrays, "xi", x.xi.shape, low=-1e100, high=1e100)
        rho = number_of(arrays, "rho")
        check(1e-30 <= rho <= 1e30, "its 'rho' is not in range")
        self._take(mu, xi, rho)

    def _take(self, mu: Floats, xi: Floats, rho: float) -> None:
        self.point.mu[:], self.point.xi[:] = mu, xi
        self.refresh()
        self.set_rho(rho)

    # ---- certificate

    def certify_if_due(self) -> Certificate | None:
        """Return a certificate at increasing intervals of up to ten passes, and None in between.

        The intervals do not depend on the clock, so runs are reproducible. The running weights
        are recomputed on the same occasion.
        """
        if self.outer != self.next_check:
            return None
        proof = self.certify()
        self.share = self.lag = self.inner_gap / max(self.primal - self.dual, 1e-300)
        self.refresh()
        most = max(4, int(np.ceil(MAX_CHECK_PASSES / self.inner)))
        self.next_check = self.outer + min(max(4, self.outer // 4), most)
        return proof

    def certify(self) -> Certificate:
        """Return bounds of the relaxed problem, from the messages and from repaired beliefs."""
        from cliquewise._kernels.cliques.local_polytope import repair, upper_bound

        # The running weights are not replaced, so extra certificates do not change the iterates.
        problem, g = self.problem, self.problem.cliques
        w = weights_of_beliefs(problem, self.point.mu)
        x = self.point._replace(w=w)
        loss, self.disagreement, inner = upper_bound(g, problem.terms, x, self.rho)
        self.primal = problem.ridge_objective(float(w @ w), loss)
        self.inner_gap = inner / max(problem.n_examples, 1)
        mu = np.empty_like(self.point.mu)
        repair(g, self.point.mu, mu)
        bound = dual_value(problem, mu)
        self.dual = bound.value
        return Certificate(self.primal, self.dual, "bound", bound.rounding)

    def extras(self) -> dict[str, float]:
        """Return ``||A mu||^2`` of all examples together, and the gap of the inner problem."""
        return {"disagreement": self.disagreement, "inner_gap": self.inner_gap}


def uniform_beliefs(problem: GraphProblem) -> Floats:
    """Return equal beliefs in all states of each clique."""
    sizes = np.diff(problem.cliques.offsets)
    return np.repeat(1.0 / np.maximum(sizes, 1), sizes)


def balanced_rho(problem: GraphProblem) -> float:
    """Return the rho whose penalty has the curvature of all other terms on a typical edge."""
    from cliquewise._kernels.cliques.ascent import lipschitz

    g, n_nodes = problem.cliques, problem.data.n_nodes
    if not len(g.left):
        return 1.0
    both = []
    for rho in (1.0, 1e30):
        out = np.empty(problem.n_cliques)
        plain = problem.terms._replace(slack=np.empty((0, 2)))
        lipschitz(g, plain, rho, problem.model.layout["spread"], out)
        both.append(out[n_nodes:])
    bend = 2.0 * problem.gamma * problem.terms.curvature[n_nodes:]
    ratio = (both[0] - both[1]) / np.maximum(both[1] + bend, 1e-12)
    return float(np.clip(np.median(ratio), 1e-3, 1e3))


def balanced_inner(problem: GraphProblem, steps: Floats) -> float:
    """Return the passes per outer step: 0.5 for well conditioned nodes, up to 2 for others.

    ``steps`` are the curvatures of all terms but the entropy. Their ratio to the entropy's is
    the condition number of a node's problem; passes grow with its square root.
    """
    g = problem.cliques
    joined = np.flatnonzero(g.degree > 0)
    bend = 2.0 * problem.gamma * problem.terms.curvature[joined]
    if not len(joined) or not bend.min() > 0:
        return 0.5
    ratio = float(np.median(steps[joined] / bend))
    return float(np.clip(0.5 * np.sqrt(ratio / WELL_CONDITIONED), 0.5, 2.0))


def weights_of_beliefs(problem: GraphProblem, mu: Floats) -> Floats:
    """Return ``w = C sum_c B_c (y_c - mu_c)``, the representer theorem (Eq. 6 of idal)."""
    from cliquewise._kernels.cliques.features import weights_of

    w = np.empty(problem.dimension)
    weights_of(problem.cliques, problem.C, mu, w)
    return w


def dual_value(problem: GraphProblem, mu: Floats) -> Bound:
    """Return the dual objective per example (Eq. 4 of idal); mu must be locally consistent."""
    from cliquewise._kernels.cliques.local_polytope import entropy, node_costs

    g, terms = problem.cliques, problem.terms
    w = weights_of_beliefs(problem, mu)
    linear = problem.ridge_objective(
        0.0, float(node_costs(g, mu) + problem.gamma * entropy(g, terms, mu))
    )
    curvature = problem.gamma * (np.abs(terms.curvature).sum() + 2.0 * np.abs(terms.slack).sum())
    sizes = problem.per_example(float(curvature + np.abs(problem.costs) @ mu))
    rounding_error = UNIT * (problem.n_cliques + problem.roundings) * sizes
    moved = problem.sizes(problem.truth - mu)
    return problem.bound(
        linear, w, rounding_error, problem.weight_error_scale_for(moved, 2.0 * problem.n_cliques)
    )
