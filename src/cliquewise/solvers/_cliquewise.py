"""The core that IDAL, SoftSDCA and SoftBCFW share: cliquewise ascent and a true certificate.

What is certified is the relaxed problem itself and not the inner one of the paper:

* upper: any messages make the cliques' own maxima an upper bound of the relaxed loss at w
  (Prop. 5 of idal); the messages taken are ``xi - A mu / rho``;
* lower: ``mu`` is repaired into the local polytope, where the dual objective is a lower bound.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, ClassVar

import numpy as np

from cliquewise.certificate import Certificate
from cliquewise.errors import DataError
from cliquewise.graph.factor_graph import Floats
from cliquewise.graph.structure import Ints
from cliquewise.problems.graph import GraphProblem
from cliquewise.solvers.base import Info, Solver

#: Share of visits that gap sampling draws uniformly.
UNIFORM_SHARE = 0.2
#: Condition number of a node's problem up to which half a pass per outer step is enough.
WELL = 2.5
#: Passes between two looks at the certificate, at most.
LOOK = 10.0


@dataclass
class Ascent:
    """Mean parameters, multipliers and what runs along with them."""

    point: Any  # the kernels' named tuple
    rho: float
    steps: Floats
    gaps: Floats
    previous: Floats = field(default_factory=lambda: np.empty(0))
    order: Ints = field(default_factory=lambda: np.empty(0, dtype=np.int64))
    place: Ints = field(default_factory=lambda: np.empty(0, dtype=np.int64))
    active: Any = None  # cliques that a greedy solver visits
    visits: int = 0
    outer: int = 0
    momentum: float = 1.0
    disagreement: float = float("nan")
    inner_gap: float = float("nan")
    primal: float = float("nan")
    dual: float = float("nan")
    next_look: int = 4  # outer step after which the solver certifies itself
    share: float = float("nan")  # of the inner gap in the whole one, at the last look
    lag: float = float("inf")  # the same, not taken away once it was acted upon
    last_gap: float = float("nan")  # at the look before
    last_passes: float = 0.0
    inner: float = 0.5  # visits per outer step, as a share of the cliques
    factor: float = 2.0  # by which rho changes next
    direction: float = 0.0  # of its last change
    changed: bool = False  # whether it was changed at the last look
    changes: int = 0  # of rho


@dataclass(frozen=True)
class Cliquewise(Solver):
    """Block steps on one clique at a time; subclasses say which, and what multipliers do.

    Parameters
    ----------
    rho : float or "auto", default="auto"
        The penalty for disagreement is ``||A mu||^2 / (2 rho)``: small is strong. ``auto`` makes
        the penalty bend an edge's objective as much as all other terms do.
    inner : float or "auto", default=0.5
        Visits per outer step, as a share of the cliques. ``auto`` takes the more, the more the
        penalty and the features bend a node's objective beside its entropy.
    sampling : {"examples", "permuted", "uniform", "gap"}, default="examples"
        ``examples``: reshuffled passes over the examples; in each its multipliers move and then
        a random share of its cliques, which is the same step taken one example at a time.
        Or all cliques as one graph, as in the paper: in reshuffled passes, by independent draws,
        or drawn in proportion to the gap that a clique had when it was last visited (and 20 %
        uniformly).
    """

    losses: ClassVar[frozenset[str]] = frozenset({"log", "softmax_margin", "hinge"})
    relaxed: ClassVar[bool] = True
    problems: ClassVar[frozenset[str]] = frozenset({"graph"})
    columns: ClassVar[tuple[str, ...]] = ("disagreement", "inner_gap")
    method: ClassVar[int] = 0

    rho: float | str = "auto"
    inner: float | str = 0.5
    sampling: str = "examples"

    def __post_init__(self) -> None:
        if self.sampling not in ("examples", "permuted", "uniform", "gap"):
            raise DataError(
                f"sampling is examples, permuted, uniform or gap, not {self.sampling!r}"
            )
        if self.rho != "auto" and not (
            isinstance(self.rho, int | float) and np.isfinite(self.rho) and self.rho > 0
        ):
            raise DataError(f'rho = {self.rho!r}; it must be a positive number or "auto"')
        if self.inner != "auto" and not (
            isinstance(self.inner, int | float) and np.isfinite(self.inner) and self.inner > 0
        ):
            raise DataError(
                f'inner = {self.inner!r}; it must be a positive share of the cliques or "auto"'
            )

    def memory(self, problem: GraphProblem) -> float:
        """Mean parameters and their repaired copies, multipliers, constants, weights."""
        g = problem.cliques
        messages = float(g.degree @ np.diff(g.offsets[: len(g.degree) + 1]))
        states, weights = int(g.offsets[-1]), problem.dimension
        return 8.0 * (3 * states + 2 * messages + 4 * len(g.type) + 3 * weights)

    # ---- state

    def init(self, problem: GraphProblem, warm: Ascent | None = None) -> Ascent:
        """Uniform mean parameters and no multipliers, or those of ``warm``."""
        from cliquewise._kernels.cliques.ascent import Point

        g = problem.cliques
        sizes = np.diff(g.offsets)
        mu = np.repeat(1.0 / np.maximum(sizes, 1), sizes)
        nodes = sizes[: len(g.degree)]
        messages = int(g.degree.astype(np.int64) @ nodes)
        point = Point(
            mu, np.zeros(messages), np.zeros(int(nodes.sum())), np.zeros(problem.dimension)
        )
        rho = balanced_rho(problem) if isinstance(self.rho, str) else self.rho
        if warm is not None:
            if warm.point.mu.shape != mu.shape or warm.point.xi.shape != point.xi.shape:
                raise DataError("a warm start needs the same graphs")
            mu[:], point.xi[:], rho = warm.point.mu, warm.point.xi, warm.rho
        return self._ready(problem, point, rho)

    def _ready(self, problem: GraphProblem, point: Any, rho: float) -> Ascent:
        from cliquewise._kernels.cliques.ascent import cliques_by_example

        point.w[:] = weights_of_beliefs(problem, point.mu)
        n = problem.n_cliques
        state = Ascent(point, rho, np.empty(n), np.full(n, np.inf))
        self._set_rho(problem, state, rho)
        auto = isinstance(self.inner, str)
        state.inner = balanced_inner(problem, state.steps) if auto else float(self.inner)
        if self.sampling == "examples":
            state.order = np.empty(problem.n_cliques, dtype=np.int64)
            state.place = np.zeros(problem.n_examples, dtype=np.int64)
            data = problem.data
            cliques_by_example(data.n_nodes, data.node_offsets, data.edge_offsets, state.order)
        return state

    def _set_rho(self, problem: GraphProblem, state: Ascent, rho: float) -> None:
        """Another penalty: new step lengths and inflows; mu and the multipliers stay."""
        from cliquewise._kernels.cliques.ascent import lipschitz, multipliers

        # A float always: kernels would be compiled again for an integer.
        state.rho = rho = float(rho)
        g, none = problem.cliques, np.empty(0)
        lipschitz(g, problem.terms, rho, problem.model.layout["spread"], state.steps)
        state.disagreement, _ = multipliers(g, state.point, rho, 0.0, 0.0, none)

    # ---- one step

    def _order(self, n: int, state: Ascent, rng: np.random.Generator) -> Ints:
        """The cliques of the next visits."""
        count = max(1, round(state.inner * n))
        if self.sampling == "uniform":
            return rng.integers(0, n, count)
        if self.sampling == "gap" and state.visits >= n:
            order = rng.integers(0, n, count)
            total = np.cumsum(state.gaps)
            if total[-1] > 0:
                chosen = rng.random(count) >= UNIFORM_SHARE
                drawn = np.searchsorted(total, rng.random(int(chosen.sum())) * total[-1], "right")
                order[chosen] = np.minimum(drawn, n - 1)
            return order
        parts: list[Ints] = []
        missing, at = count, state.visits % n
        while missing > 0:
            if at == 0 or len(state.order) != n:
                state.order = rng.permutation(n)
            parts.append(state.order[at : at + missing])
            missing -= len(parts[-1])
            at = (at + len(parts[-1])) % n
        return np.concatenate(parts)

    def step(
        self, problem: GraphProblem, state: Ascent, rng: np.random.Generator
    ) -> tuple[Ascent, Info]:
        """Move the multipliers, then visit a share of the cliques.

        In this order the messages ``xi - A mu / rho`` belong to the mu of the end of the step,
        where it may be certified.
        """
        from cliquewise._kernels.cliques.ascent import (
            MultiplierStep,
            Tour,
            multipliers,
            sweep,
            visit,
        )

        n, g, x = problem.n_cliques, problem.cliques, state.point
        if n == 0:
            return state, Info(1.0, 0, 0.0)
        length, momentum = self._multiplier_step(problem, state) if state.outer else (0.0, 0.0)
        along = 0.0
        if self.sampling == "examples":
            data = problem.data
            seed = rng.integers(0, 2**63, 1, dtype=np.uint64)
            examples = rng.permutation(len(data))
            tour = Tour(data.node_offsets, data.edge_offsets, examples, state.order, state.place)
            visits, apart, along = sweep(
                g, problem.terms, x, state.rho, state.steps, self.method, state.gaps, tour,
                float(state.inner), MultiplierStep(length, momentum, state.previous), seed,
            )  # fmt: skip
        else:
            if length > 0:
                apart, along = multipliers(g, x, state.rho, length, momentum, state.previous)
            order = self._order(n, state, rng)
            visit(g, problem.terms, x, state.rho, state.steps, order, self.method, state.gaps)
            visits = len(order)
        if length > 0:
            state.disagreement = apart
        if along > 0:
            state.momentum = 1.0
        state.visits += visits
        state.outer += 1
        proof = self._look(problem, state) if state.outer == state.next_look else None
        return state, Info(visits / n, visits, np.inf, proof, self._is_finished(state))

    def _look(self, problem: GraphProblem, state: Ascent) -> Certificate:
        """A certificate after a number of steps that grows up to ten passes.

        The steps do not depend on the clock, so that the same seed gives the same bits. Rounding
        errors of the running weights are swept out on the same occasion.
        """
        proof = self.certify(problem, state)
        state.share = state.lag = state.inner_gap / max(state.primal - state.dual, 1e-300)
        state.point.w[:] = weights_of_beliefs(problem, state.point.mu)
        most = max(4, int(np.ceil(LOOK / state.inner)))
        state.next_look = state.outer + min(max(4, state.outer // 4), most)
        return proof

    def _multiplier_step(self, problem: GraphProblem, state: Ascent) -> tuple[float, float]:
        """Step length and momentum of the multipliers."""
        return 0.0, 0.0

    def _is_finished(self, state: Ascent) -> bool:
        """Whether the solver cannot go on."""
        return False

    # ---- what it proves

    def certify(self, problem: GraphProblem, state: Ascent) -> Certificate:
        """True bounds of the relaxed problem, from its own messages and repaired beliefs."""
        from cliquewise._kernels.cliques.local_polytope import upper_bound

        # The state is left as it is, so that a certificate more does not change the course.
        g, w = problem.cliques, weights_of_beliefs(problem, state.point.mu)
        x = state.point._replace(w=w)
        loss, state.disagreement, inner = upper_bound(g, problem.terms, x, state.rho)
        state.primal = problem.value(float(w @ w), loss)
        state.inner_gap = inner / max(problem.n_examples, 1)
        state.dual = self._lower_bound(problem, state)
        return Certificate(state.primal, state.dual, "bound")

    def _lower_bound(self, problem: GraphProblem, state: Ascent) -> float:
        from cliquewise._kernels.cliques.local_polytope import repair

        mu = np.empty_like(state.point.mu)
        repair(problem.cliques, state.point.mu, mu)
        return dual_value(problem, mu)

    def extras(self, problem: GraphProblem, state: Ascent) -> dict[str, float]:
        """``||A mu||^2`` of all examples together, and the paper's gap of the inner problem."""
        return {"disagreement": state.disagreement, "inner_gap": state.inner_gap}

    def weights(self, problem: GraphProblem, state: Ascent) -> Floats:
        """Weights of the mean parameters."""
        return np.asarray(state.point.w)

    def pack(self, state: Ascent) -> dict[str, np.ndarray[Any, Any]]:
        """Mean parameters and multipliers."""
        return {"mu": state.point.mu, "xi": state.point.xi, "rho": np.array([state.rho])}

    def unpack(self, problem: GraphProblem, arrays: dict[str, np.ndarray[Any, Any]]) -> Ascent:
        """Back from :meth:`pack`."""
        state = self.init(problem)
        x = state.point
        if x.mu.shape != arrays["mu"].shape or x.xi.shape != arrays["xi"].shape:
            raise DataError("the checkpoint is of other data: its arrays have other shapes")
        x.mu[:], x.xi[:] = arrays["mu"], arrays["xi"]
        return self._ready(problem, x, float(arrays["rho"][0]))


def balanced_rho(problem: GraphProblem) -> float:
    """The rho at which the penalty's curvature on a typical edge equals that of the rest."""
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
    """Half a pass per outer step where nodes are well conditioned, up to two where they are not.

    ``steps`` are the curvatures of all terms but the entropy. Their ratio to the entropy's is
    the condition number of a node's problem; visits grow with its square root.
    """
    g = problem.cliques
    joined = np.flatnonzero(g.degree > 0)
    bend = 2.0 * problem.gamma * problem.terms.curvature[joined]
    if not len(joined) or not bend.min() > 0:
        return 0.5
    ratio = float(np.median(steps[joined] / bend))
    return float(np.clip(0.5 * np.sqrt(ratio / WELL), 0.5, 2.0))


def weights_of_beliefs(problem: GraphProblem, mu: Floats) -> Floats:
    """``w = C sum_c B_c (y_c - mu_c)``, the representer theorem (Eq. 6 of idal)."""
    from cliquewise._kernels.cliques.features import weights_of

    w = np.empty(problem.dimension)
    weights_of(problem.cliques, problem.C, mu, w)
    return w


def dual_value(problem: GraphProblem, mu: Floats) -> float:
    """Dual objective per example (Eq. 4 of idal); a lower bound if mu is locally consistent."""
    from cliquewise._kernels.cliques.local_polytope import entropy, node_costs

    g, terms = problem.cliques, problem.terms
    w = weights_of_beliefs(problem, mu)
    total = node_costs(g, mu) + problem.gamma * entropy(g, terms, mu)
    return float(total) / max(problem.n_examples, 1) - 0.5 * problem.lam * float(w @ w)
