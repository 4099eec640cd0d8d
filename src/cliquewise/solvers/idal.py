"""IDAL: cliquewise SDCA steps inside an augmented Lagrangian, with a true duality gap.

Algorithm 1 of Hu and Obozinski 2018 (idal). ``mu`` are mean parameters of all cliques, ``A mu = 0``
says that they agree, ``w(mu)`` are their weights (Eq. 6), and ``D_rho`` is the dual with a
penalty ``||A mu||^2 / (2 rho)`` and multipliers ``xi``::

    repeat:
        xi <- xi - A mu / rho                                        (line 6)
        for T_in cliques c, at random:                               (SDCA on D_rho(., xi))
            g    <- gradient of D_rho without its entropy, in mu_c
            mu_c <- argmax over the simplex of <g, m - mu_c> - L_c/2 ||m - mu_c||^2 + gamma h_c(m)
            update w and the inflow of messages

With a Gini entropy the block step is a projection on the simplex. The inner problem is left
unsolved after ``T_in`` visits, which is enough for the outer steps to converge.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import ClassVar

import numpy as np

from cliquewise.certificate import Certificate
from cliquewise.problems.graph import GraphProblem
from cliquewise.ragged import Floats
from cliquewise.solvers.backends.graph.cliques import CliqueAscent, balanced_rho, uniform_beliefs
from cliquewise.solvers.base import Arrays, Capabilities, Info, Solver, Warm
from cliquewise.solvers.parameters import one_of, positive
from cliquewise.solvers.registry import register

#: Range of the inner problem's share of the gap in which rho is left unchanged.
MIN_SHARE, MAX_SHARE = 0.03, 0.5
#: The multipliers have momentum while the inner problem's share is below this; largest momentum.
MOMENTUM_SHARE, MAX_MOMENTUM = 0.1, 0.8
#: Factor by which the gap should decrease per pass: by half in 14.
SLOW = 0.95


@dataclass(frozen=True)
class Cliquewise(Solver[GraphProblem, CliqueAscent]):
    """Block steps on one clique at a time; subclasses define the step and that of multipliers.

    Parameters
    ----------
    rho : float or "auto", default="auto"
        The penalty for disagreement is ``||A mu||^2 / (2 rho)``: a small rho is a strong penalty.
        With ``auto`` the penalty has the same curvature on a typical edge as all other terms.
    inner : float or "auto", default=0.5
        Visits per outer step, as a share of the cliques. ``auto`` increases it with the condition
        number of a node's problem.
    sampling : {"examples", "permuted", "uniform", "gap"}, default="examples"
        ``examples``: shuffled passes over the examples; the multipliers of an example move, and
        then a random share of its cliques. Otherwise all cliques are visited as one graph, as in
        the paper: in shuffled passes, uniformly at random, or in proportion to the gap of a clique
        when it was last visited (and 20 % uniformly).
    """

    capabilities: ClassVar[Capabilities] = Capabilities(
        {"graph": frozenset({"log", "softmax_margin", "hinge"})},
        rank=95,
        relaxed_on=frozenset({"graph"}),
        precision=1e-3,
    )
    columns: ClassVar[tuple[str, ...]] = ("disagreement", "inner_gap")
    method: ClassVar[int] = 0

    rho: float | str = "auto"
    inner: float | str = 0.5
    sampling: str = "examples"

    def __post_init__(self) -> None:
        super().__post_init__()
        one_of(self, "sampling", "examples", "permuted", "uniform", "gap")
        positive(self, "rho", "auto")
        positive(self, "inner", "auto")

    def memory(self, problem: GraphProblem) -> float:
        """Return the bytes of mean parameters, their repaired copies, multipliers and weights."""
        return CliqueAscent.memory(problem)

    # ---- state

    def init(self, problem: GraphProblem, warm: Warm = None) -> CliqueAscent:
        """Start with uniform mean parameters and zero multipliers, or with those of ``warm``."""
        rho, inner = (None if isinstance(x, str) else float(x) for x in (self.rho, self.inner))
        state = CliqueAscent.begin(problem, uniform_beliefs(problem), rho, inner)
        if isinstance(warm, CliqueAscent):
            state.continue_from(warm)
        return state

    def pack(self, state: CliqueAscent) -> Arrays:
        """Return mean parameters, multipliers and the penalty."""
        return state.pack()

    def unpack(self, problem: GraphProblem, arrays: Arrays) -> CliqueAscent:
        """Return a state from :meth:`pack`; the weights are recomputed."""
        state = self.init(problem)
        state.unpack(arrays)
        return state

    # ---- one step

    def step(self, problem: GraphProblem, state: CliqueAscent, rng: np.random.Generator) -> Info:
        """Move the multipliers, then visit a share of the cliques.

        In this order the messages ``xi - A mu / rho`` belong to the final mu of the step, which
        may be certified.
        """
        n = problem.n_cliques
        if n == 0:
            return Info(1.0, 0, 0.0)
        length, momentum = self._multiplier_step(problem, state) if state.outer else (0.0, 0.0)
        move = self._sweep if self.sampling == "examples" else self._visit
        visits, along = move(problem, state, length, momentum, rng)
        if along > 0:
            state.momentum = 1.0
        state.outer += 1
        proof = state.certify_if_due()
        return Info(visits / n, visits, np.inf, proof, self._is_finished(state))

    def _sweep(
        self, problem: GraphProblem, state: CliqueAscent, length: float, momentum: float,
        rng: np.random.Generator,
    ) -> tuple[int, float]:  # fmt: skip
        """Move the multipliers and then a share of the cliques of each example in turn."""
        from cliquewise._kernels.cliques.ascent import MultiplierStep, Tour, sweep

        data = problem.data
        seed = rng.integers(0, 2**63, 1, dtype=np.uint64)
        tour = Tour(
            data.node_offsets, data.edge_offsets, rng.permutation(len(data)), state.by_example,
            state.place,
        )  # fmt: skip
        visits, apart, along = sweep(
            problem.cliques, problem.terms, state.point, state.rho, state.steps, self.method,
            state.gaps, tour, float(state.inner),
            MultiplierStep(length, momentum, state.previous), seed,
        )  # fmt: skip
        if length > 0:
            state.disagreement = apart
        state.order.visits += visits
        return int(visits), float(along)

    def _visit(
        self, problem: GraphProblem, state: CliqueAscent, length: float, momentum: float,
        rng: np.random.Generator,
    ) -> tuple[int, float]:  # fmt: skip
        """Move all multipliers, then a share of the cliques of all examples."""
        from cliquewise._kernels.cliques.ascent import multipliers, visit

        g, x, n, along = problem.cliques, state.point, problem.n_cliques, 0.0
        if length > 0:
            state.disagreement, along = multipliers(
                g, x, state.rho, length, momentum, state.previous
            )
        count = max(1, round(state.inner * n))
        order = state.order.sample(n, count, rng, self.sampling, gaps=state.gaps)
        visit(g, problem.terms, x, state.rho, state.steps, order, self.method, state.gaps)
        return count, float(along)

    def _multiplier_step(self, problem: GraphProblem, state: CliqueAscent) -> tuple[float, float]:
        """Return the step size and the momentum of the multipliers."""
        return 0.0, 0.0

    def _is_finished(self, state: CliqueAscent) -> bool:
        """Whether another step would change nothing."""
        return False

    # ---- certificate

    def certify(self, problem: GraphProblem, state: CliqueAscent) -> Certificate:
        """Return bounds of the relaxed problem, from the messages and from repaired beliefs."""
        return state.certify()

    def extras(self, problem: GraphProblem, state: CliqueAscent) -> dict[str, float]:
        """Return ``||A mu||^2`` of all examples together, and the gap of the inner problem."""
        return state.extras()

    def weights(self, problem: GraphProblem, state: CliqueAscent) -> Floats:
        """Return the weights of the mean parameters."""
        return np.asarray(state.point.w)


@register
@dataclass(frozen=True)
class IDAL(Cliquewise):
    """Inexact dual augmented Lagrangian: SDCA on the cliques, gradient steps on multipliers.

    Parameters
    ----------
    rho, inner, sampling
        See :class:`~cliquewise.solvers.idal.Cliquewise`; ``inner`` is ``auto`` by default.
    accelerated : bool, default=False
        Nesterov's extrapolation of the multipliers, by at most 0.8 of the last step. It restarts
        whenever it points uphill, and pauses while the inner problem has more than a tenth of
        the gap.
    adaptive : bool, default=True
        Start with the given rho and change it when the gap decreases slowly: increase it up to
        that of ``auto`` if most of the gap is that of the inner problem, which then lags behind
        the multipliers; decrease it if hardly any of the gap is, unless the multipliers have
        momentum. Each change of direction halves the logarithm of the next factor.
    """

    name: ClassVar[str] = "idal"
    capabilities: ClassVar[Capabilities] = replace(Cliquewise.capabilities, rank=10)
    inner: float | str = "auto"
    accelerated: bool = False
    adaptive: bool = True

    def _multiplier_step(self, problem: GraphProblem, state: CliqueAscent) -> tuple[float, float]:
        """``xi <- xi - A mu / rho`` (line 6 of Algorithm 1)."""
        momentum = 0.0
        if self.accelerated:
            if not len(state.previous):
                state.previous = state.point.xi.copy()
            # Extrapolation from unsolved inner problems would accumulate their errors.
            if state.lag < MOMENTUM_SHARE:
                following = 0.5 * (1.0 + np.sqrt(1.0 + 4.0 * state.momentum**2))
                momentum, state.momentum = (state.momentum - 1.0) / following, following
                momentum = min(momentum, MAX_MOMENTUM)
            else:
                state.momentum = 1.0
        length = 1.0 / state.rho
        if self.adaptive and np.isfinite(state.share):
            self._adapt(problem, state)
        return length, momentum

    def _adapt(self, problem: GraphProblem, state: CliqueAscent) -> None:
        """Change rho if the gap has decreased slowly since the last certificate."""
        gap, passes = state.primal - state.dual, state.passes
        slow = gap > state.last_gap * SLOW ** (passes - state.last_passes)
        settled = not state.changed
        state.changed = False
        if slow and settled and state.share > MAX_SHARE and state.rho < balanced_rho(problem):
            # Beyond that of auto the multipliers are slower, and the inner problem is hardly
            # easier.
            self._scale_rho(state, 1.0)
        elif slow and settled and state.share < MIN_SHARE and not self.accelerated:
            self._scale_rho(state, -1.0)
        state.last_gap, state.last_passes, state.share = gap, passes, np.nan

    def _scale_rho(self, state: CliqueAscent, direction: float) -> None:
        if state.direction * direction < 0:
            state.factor = float(np.sqrt(state.factor))  # halves its logarithm
        # The messages change with rho, so the next certificate does not judge the new one.
        state.direction, state.changed = direction, True
        state.set_rho(state.rho * state.factor**direction)
