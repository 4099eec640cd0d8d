"""IDAL: cliquewise SDCA steps inside an augmented Lagrangian, with a true duality gap."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np

from cliquewise.certificate import Certificate
from cliquewise.problems.base import Problem
from cliquewise.problems.graph import GraphProblem
from cliquewise.ragged import Floats
from cliquewise.solvers.backends.graph.cliques import CliqueAscent, balanced_rho, uniform_beliefs
from cliquewise.solvers.backends.graph.costs import prefers_cliques
from cliquewise.solvers.base import Arrays, Info, Solver, one_of, positive, register

#: Shares of the whole gap that the inner problem's should stay between.
LEAST, MOST = 0.03, 0.5
#: Below this share the multipliers may have momentum, and at most so much.
CALM, FASTEST = 0.1, 0.8
#: In one pass a gap should fall to this part of itself: by half in 14.
SLOW = 0.95


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

    works_on: ClassVar[dict[str, frozenset[str]]] = {
        "graph": frozenset({"log", "softmax_margin", "hinge"})
    }
    rank: ClassVar[int] = 95
    precision: ClassVar[float] = 1e-3
    relaxed_on: ClassVar[frozenset[str]] = frozenset({"graph"})
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
        """Mean parameters and their repaired copies, multipliers, constants, weights."""
        return CliqueAscent.memory(problem)

    def suits(self, problem: Problem) -> bool:
        """Not where whole graphs are cheap to ask."""
        return prefers_cliques(problem)

    # ---- state

    def init(self, problem: GraphProblem, warm: Any = None) -> CliqueAscent:
        """Uniform mean parameters and no multipliers, or those of ``warm``."""
        rho, inner = (None if isinstance(x, str) else float(x) for x in (self.rho, self.inner))
        state = CliqueAscent.begin(problem, uniform_beliefs(problem), rho, inner)
        if isinstance(warm, CliqueAscent):
            state.continue_from(warm)
        return state

    def pack(self, state: CliqueAscent) -> Arrays:
        """Mean parameters and multipliers."""
        return state.pack()

    def resume_paths(self, state: CliqueAscent) -> tuple[str, ...]:
        """Everything but the problem."""
        return state.resume_paths

    def unpack(self, problem: GraphProblem, arrays: Arrays) -> CliqueAscent:
        """Back from :meth:`pack`."""
        state = self.init(problem)
        state.unpack(arrays)
        return state

    # ---- one step

    def step(
        self, problem: GraphProblem, state: CliqueAscent, rng: np.random.Generator
    ) -> tuple[CliqueAscent, Info]:
        """Move the multipliers, then visit a share of the cliques.

        In this order the messages ``xi - A mu / rho`` belong to the mu of the end of the step,
        where it may be certified.
        """
        n = problem.n_cliques
        if n == 0:
            return state, Info(1.0, 0, 0.0)
        length, momentum = self._multiplier_step(problem, state) if state.outer else (0.0, 0.0)
        move = self._sweep if self.sampling == "examples" else self._visit
        visits, along = move(problem, state, length, momentum, rng)
        if along > 0:
            state.momentum = 1.0
        state.outer += 1
        proof = state.look()
        return state, Info(visits / n, visits, np.inf, proof, self._is_finished(state))

    def _sweep(
        self, problem: GraphProblem, state: CliqueAscent, length: float, momentum: float, rng: Any
    ) -> tuple[int, float]:
        """Example by example: its multipliers, then a share of its cliques."""
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
        self, problem: GraphProblem, state: CliqueAscent, length: float, momentum: float, rng: Any
    ) -> tuple[int, float]:
        """All multipliers, then a share of the cliques of all examples."""
        from cliquewise._kernels.cliques.ascent import multipliers, visit

        g, x, n, along = problem.cliques, state.point, problem.n_cliques, 0.0
        if length > 0:
            state.disagreement, along = multipliers(
                g, x, state.rho, length, momentum, state.previous
            )
        count = max(1, round(state.inner * n))
        order = state.order.draw(n, count, rng, self.sampling, gaps=state.gaps)
        visit(g, problem.terms, x, state.rho, state.steps, order, self.method, state.gaps)
        return count, float(along)

    def _multiplier_step(self, problem: GraphProblem, state: CliqueAscent) -> tuple[float, float]:
        """Step length and momentum of the multipliers."""
        return 0.0, 0.0

    def _is_finished(self, state: CliqueAscent) -> bool:
        """Whether the solver cannot go on."""
        return False

    # ---- what it proves

    def certify(self, problem: GraphProblem, state: CliqueAscent) -> Certificate:
        """True bounds of the relaxed problem, from its own messages and repaired beliefs."""
        return state.certify()

    def extras(self, problem: GraphProblem, state: CliqueAscent) -> dict[str, float]:
        """``||A mu||^2`` of all examples together, and the paper's gap of the inner problem."""
        return state.extras()

    def weights(self, problem: GraphProblem, state: CliqueAscent) -> Floats:
        """Weights of the mean parameters."""
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
        Nesterov's extrapolation of the multipliers (by at most 0.8 of the last step), started
        anew whenever it points uphill, and only while the inner problem has less than a tenth
        of the gap.
    adaptive : bool, default=True
        Start with the given rho and change it when the gap hardly falls: rho is raised towards
        that of ``auto`` if most of the gap is that of the inner problem, which then lags behind
        the multipliers, and lowered if hardly any of it is, unless the multipliers have
        momentum. Every change of direction halves the next change, on a logarithmic scale.
    """

    name: ClassVar[str] = "idal"
    rank: ClassVar[int] = 10
    inner: float | str = "auto"
    accelerated: bool = False
    adaptive: bool = True

    def _multiplier_step(self, problem: GraphProblem, state: CliqueAscent) -> tuple[float, float]:
        """``xi <- xi - A mu / rho`` (line 6 of Algorithm 1)."""
        momentum = 0.0
        if self.accelerated:
            if not len(state.previous):
                state.previous = state.point.xi.copy()
            # Extrapolating from inner problems that lag behind would pile up their errors.
            if state.lag < CALM:
                following = 0.5 * (1.0 + np.sqrt(1.0 + 4.0 * state.momentum**2))
                momentum, state.momentum = (state.momentum - 1.0) / following, following
                momentum = min(momentum, FASTEST)
            else:
                state.momentum = 1.0
        length = 1.0 / state.rho
        if self.adaptive and np.isfinite(state.share):
            self._adapt(problem, state)
        return length, momentum

    def _adapt(self, problem: GraphProblem, state: CliqueAscent) -> None:
        """Another rho if the gap has hardly fallen since the last look."""
        gap, passes = state.primal - state.dual, state.passes
        slow = gap > state.last_gap * SLOW ** (passes - state.last_passes)
        settled = not state.changed
        state.changed = False
        if slow and settled and state.share > MOST and state.rho < balanced_rho(problem):
            # Beyond that of auto the multipliers get slower and the inner problem hardly easier.
            self._scale_rho(state, 1.0)
        elif slow and settled and state.share < LEAST and not self.accelerated:
            self._scale_rho(state, -1.0)
        state.last_gap, state.last_passes, state.share = gap, passes, np.nan

    def _scale_rho(self, state: CliqueAscent, direction: float) -> None:
        if state.direction * direction < 0:
            state.factor = float(np.sqrt(state.factor))
        # The messages jump with rho: the next look says nothing about the new one.
        state.direction, state.changed = direction, True
        state.set_rho(state.rho * state.factor**direction)
