"""BCFW: block-coordinate Frank-Wolfe for structural support vector machines, with a duality gap.

Algorithm 4 of Lacoste-Julien et al. 2013, with gap sampling, pairwise and away steps (Osokin et
al. 2016) and cached passes (Shah et al. 2015). The dual has a convex combination ``alpha_i`` of
outputs for each example; an output y has features ``psi_i(y) = F(x_i, y_i) - F(x_i, y)`` and cost
``L_i(y)``::

    D(alpha) = 1/n sum_i E_alpha_i L_i - lam/2 ||w(alpha)||^2,    w(alpha) = C sum_i E_alpha_i psi_i

    repeat:
        for n examples i, in shuffled order or by gap:
            y     <- argmax over y of L_i(y) - <w, psi_i(y)>            # the MAP oracle
            gap_i <- the gain of moving all mass of alpha_i to y
            add y to the outputs of alpha_i
            let the outputs of alpha_i exchange mass, with exact line searches;  w <- w(alpha)
        cached passes: repeat the last step for all examples, without calls of the oracle

``step_rule="fw"`` is the algorithm of 2013: ``alpha_i`` moves toward y by an exact line search.
On chains, outputs are stored as segments of wrong labels (``_kernels/chain/bcfw.py``), elsewhere
as wholes (``_kernels/common/working_sets.py``).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import ClassVar, TypeVar

import numpy as np

from cliquewise.certificate import Certificate
from cliquewise.errors import DataError
from cliquewise.problems.base import Problem
from cliquewise.problems.chain import ChainProblem
from cliquewise.problems.examples import ExampleProblem
from cliquewise.problems.rounding import squared_norm
from cliquewise.ragged import Floats
from cliquewise.solvers.array_checks import MAX_COUNT, checked
from cliquewise.solvers.backends.base import (
    BackendTable,
    Combinations,
    CombinationSettings,
    Defaults,
    MapSettings,
)
from cliquewise.solvers.backends.chain.segments import ChainSegments
from cliquewise.solvers.backends.examples import WorkingSets
from cliquewise.solvers.base import (
    EXAMPLES,
    Arrays,
    Capabilities,
    Info,
    Solver,
    State,
    Warm,
)
from cliquewise.solvers.parameters import at_least, one_of, share
from cliquewise.solvers.registry import register
from cliquewise.solvers.sampling import SAMPLINGS, Order

#: With inexact oracles a run ends when the gain that new outputs promise is below SETTLED times the
#: gap that loose bounds leave, and below FINE times the objective.
SETTLED, FINE = 0.25, 1e-3
#: Cached passes end when they gain less than this share of the gain of the oracle calls.
MIN_GAIN = 0.1
BACKENDS = (
    BackendTable[CombinationSettings, Combinations]()
    .add(ChainProblem, ChainSegments)
    .add(ExampleProblem, WorkingSets, "graph", *EXAMPLES)
)
DEFAULTS: dict[str, Defaults] = {"chain": ChainSegments.defaults} | dict.fromkeys(
    ("graph", *EXAMPLES), WorkingSets.defaults
)

S = TypeVar("S", bound=State)


@dataclass(frozen=True)
class MapCalls(Solver[Problem, S]):
    """Base of `bcfw` and `subgradient`: solvers that call MAP oracles, exact or not.

    The primal value uses the upper bound of an oracle, never its value. So an inexact method
    makes the certificate loose, but not wrong.

    Parameters
    ----------
    map_method : str, default="auto"
        On graphs: any method of :meth:`~cliquewise.FactorGraph.map`. Only exact ones give a gap
        that converges to zero; ``auto`` is exact where a proof is cheap: on trees and narrow
        graphs, and wherever ``trw-s`` finds one.
    map_options : mapping, optional
        Passed to the method; for example a limit of its iterations or seconds.
    """

    map_method: str = "auto"
    map_options: Mapping[str, object] | tuple[tuple[str, object], ...] | None = None

    def __post_init__(self) -> None:
        super().__post_init__()
        from cliquewise.oracles.planner import find_method

        if self.map_method != "auto" and "map" not in find_method(self.map_method).provides:
            raise DataError(f"map_method = {self.map_method!r}; it does not answer MAP questions")
        options = self.map_options
        if isinstance(options, Mapping):
            # A frozen solver is hashable, a dict is not.
            object.__setattr__(self, "map_options", tuple(sorted(options.items())) or None)
        elif options is not None and not isinstance(options, tuple):
            raise DataError(f"map_options = {options!r}; it must be a dict")

    @property
    def map_call(self) -> MapSettings:
        """How oracles are called."""
        options = self.map_options
        assert options is None or isinstance(options, tuple)
        return MapSettings(self.map_method, options or ())

    def refuses(self, problem: Problem) -> str | None:
        """Also reject what the MAP method rejects."""
        reason = super().refuses(problem)
        if reason is None:
            reason = problem.refuses_method(self.map_method, dict(self.map_call.options))
        return reason


@dataclass
class Ascent(State):
    """Combinations of outputs, the order of visits, and an average of the weights."""

    outputs: Combinations
    order: Order = field(default_factory=Order)
    average: Floats = field(default_factory=lambda: np.empty(0))  # empty if it is not wanted
    steps: int = 0
    dual: float = 0.0
    is_average_better: bool = False  # at the last certificate


@register
@dataclass(frozen=True)
class BCFW(MapCalls[Ascent]):
    """Block-coordinate Frank-Wolfe on the dual, one example at a time.

    Parameters
    ----------
    step_rule : {"segments", "fw"}, default="segments"
        How an example's combination of outputs moves. ``segments``: single outputs (on chains: runs
        of wrong labels) exchange mass in forward, away and pairwise steps. ``fw``, on chains: all
        mass moves toward the best labeling, the algorithm of 2013, which needs many more epochs.
    sampling : {"permuted", "gap", "uniform", "cyclic"}, default="permuted"
        Order of the examples: in shuffled epochs; with probability ``1 - uniform_share`` in
        proportion to the last known gap (after one epoch); at random; or as they are. Gaps are
        less informative here than in `sdca`, because cached passes lower them in between.
    uniform_share : float, default=0.2
        Share of uniformly sampled visits with ``sampling="gap"``.
    cached_passes : int, optional
        Largest number of passes after each epoch that move mass between stored outputs without
        oracle calls; they end as soon as they gain less than a tenth of the epoch's gain. By
        default 10 on chains and 200 elsewhere, where an oracle call is expensive.
    inner_rounds : int, optional
        Largest number of rounds over an example's outputs per visit; by default 2 on chains, else
        5.
    max_outputs : int, optional
        Largest number of segments (on chains) or outputs per example; beyond it the one with the
        least mass is dropped. By default 200 segments or 100 outputs.
    average : bool, optional
        Also maintain a weighted average of the weights, and return it if its objective is lower.
        By default on chains, where a second objective is cheap.
    map_method, map_options
        See :class:`~cliquewise.solvers.bcfw.MapCalls`.

    Examples
    --------
    >>> from cliquewise.data.dataset import Dataset
    >>> from cliquewise.models.chain import ChainModel
    >>> from cliquewise.problems.chain import ChainProblem
    >>> from cliquewise.solvers.run import run
    >>> data = Dataset([0, 2, 3], [0, 1, 3, 4], [0, 0, 1, 1], None, 2, labels=[0, 1, 1])
    >>> problem = ChainProblem(ChainModel.build(data, 2), data, loss="hinge")
    >>> bool(run(problem, BCFW(), tol=1e-6, random_state=0).converged)
    True
    """

    name: ClassVar[str] = "bcfw"
    capabilities: ClassVar[Capabilities] = Capabilities(
        dict.fromkeys(BACKENDS.kinds, frozenset({"hinge"})), rank=40
    )
    step_rule: str = "segments"
    sampling: str = "permuted"
    uniform_share: float = 0.2
    cached_passes: int | None = None
    inner_rounds: int | None = None
    max_outputs: int | None = None
    average: bool | None = None

    def __post_init__(self) -> None:
        super().__post_init__()
        one_of(self, "step_rule", "segments", "fw")
        one_of(self, "sampling", *SAMPLINGS)
        share(self, "uniform_share")
        for name, least in (("cached_passes", 0), ("inner_rounds", 1), ("max_outputs", 2)):
            if getattr(self, name) is not None:
                at_least(self, least, name)

    def _parameters(self, problem: Problem) -> Defaults:
        """Return the parameters that depend on the kind of problem, unless they were given."""
        default = DEFAULTS[problem.kind]
        given = {name: getattr(self, name) for name in default._fields}
        return default._replace(**{n: value for n, value in given.items() if value is not None})

    def _settings(self, problem: Problem) -> CombinationSettings:
        given = self._parameters(problem)
        return CombinationSettings(
            self.step_rule == "segments", self.sampling == "gap", given.inner_rounds,
            given.max_outputs, self.map_call,
        )  # fmt: skip

    def refuses(self, problem: Problem) -> str | None:
        """Also reject the step rule of 2013 on other problems than chains."""
        reason = super().refuses(problem)
        if reason is None and self.step_rule == "fw" and problem.kind != "chain":
            return f'has no step_rule="fw" on a {problem.kind} problem'
        return reason

    def memory(self, problem: Problem) -> float:
        """Return the bytes of the weights, and of the outputs allocated at the start."""
        return BACKENDS[problem].memory(problem, self._settings(problem))

    # ---- state

    def tolerated_changes(self, problem: Problem) -> frozenset[str]:
        """Return what may change: segments of chains are labels, which do not depend on a model."""
        return frozenset({"C", "model"} if problem.kind == "chain" else {"C"})

    def init(self, problem: Problem, warm: Warm = None) -> Ascent:
        """Start at the truth, or at the combinations of ``warm``."""
        state = self._fresh(problem)
        if isinstance(warm, Ascent) and type(warm.outputs) is type(state.outputs):
            state.outputs.continue_from(warm.outputs)
            state.order.visits = warm.order.visits
        self._refresh(problem, state)
        return state

    def _fresh(self, problem: Problem) -> Ascent:
        outputs = BACKENDS[problem](problem, self._settings(problem))
        wanted = self._parameters(problem).average
        return Ascent(outputs, average=np.zeros_like(outputs.w) if wanted else np.empty(0))

    def _refresh(self, problem: Problem, state: Ascent) -> None:
        """Recompute the weights and the dual value from the outputs."""
        cost = state.outputs.refresh()
        state.dual = cost - problem.ridge_objective(squared_norm(state.outputs.w), 0.0)

    # ---- one step

    def step(self, problem: Problem, state: Ascent, rng: np.random.Generator) -> Info:
        """Visit all examples once, or as many as take about two seconds."""
        n, outputs, order = problem.n_examples, state.outputs, state.order
        if n == 0:
            return Info(1.0, 0, 0.0)
        count = order.count(n, outputs.max_step_examples)
        gaps = None if outputs.samples_by_gap else outputs.gaps
        chosen = order.sample(n, count, rng, self.sampling, self.uniform_share, gaps)
        calls, gain = outputs.visit(chosen, rng.random(count))
        total = gain
        for _ in range(self._parameters(problem).cached_passes):
            more = outputs.cached_pass(rng.permutation(n))
            total += more
            if more < MIN_GAIN * gain or more == 0:
                break
        state.dual += total / n
        state.steps += 1
        state.is_average_better = False
        if len(state.average):
            state.average += 2.0 / (state.steps + 1) * (outputs.w - state.average)
        gap, finished = float(outputs.gaps.sum()) / n, False
        if order.is_whole(n):
            finished = self._is_finished(state, outputs.end_epoch(), gap, total / n, n)
        known = order.visits >= n and np.isfinite(gap)
        estimate = gap / max(abs(state.dual + gap), 1e-12) if known else np.nan
        return Info(count / n, calls, estimate, None, finished)

    def _is_finished(self, state: Ascent, exhausted: bool, gap: float, gain: float, n: int) -> bool:
        """Whether an inexact oracle cannot improve the state further."""
        idle = exhausted and gain <= 1e-13 * max(abs(state.dual), 1e-12)
        unproven = state.outputs.unproven / n
        most = min(SETTLED * unproven, FINE * abs(state.dual + gap))
        settled = unproven > 0 and gap - unproven <= most
        return (idle or settled) and self.sampling == "permuted"

    # ---- certificate

    def certify(self, problem: Problem, state: Ascent) -> Certificate:
        """Return the dual value, and the lower primal value of the weights and their average."""
        self._refresh(problem, state)
        bound = state.outputs.bound()
        primal, exact = state.outputs.primal(state.outputs.w)
        state.is_average_better = False
        if len(state.average) and state.steps > 1:
            other, is_exact = state.outputs.primal(state.average)
            if other < primal:
                state.is_average_better, primal, exact = True, other, is_exact
        return Certificate(primal, bound.value, "exact" if exact else "bound", bound.rounding)

    def weights(self, problem: Problem, state: Ascent) -> Floats:
        """Return the weights of the dual point, or their average if that was certified."""
        outputs = state.outputs
        return outputs.unpacked(state.average if state.is_average_better else outputs.w)

    # ---- checkpoints

    def pack(self, state: Ascent) -> Arrays:
        """Return the outputs and their shares, and the average."""
        counts = np.array([state.steps, state.order.visits])
        return {
            **state.outputs.pack(),
            "average": state.average,
            "counts": counts,
            "order": state.order.order,
        }

    def without_sums(self, problem: Problem, state: Ascent) -> Ascent:
        """Return the state on chains, where outputs are labels, and else a new start.

        Elsewhere an output is stored as features and a cost, which cannot be recomputed.
        """
        return state if problem.kind == "chain" else self.init(problem)

    def unpack(self, problem: Problem, arrays: Arrays) -> Ascent:
        """Return a state from :meth:`pack`; the weights are recomputed."""
        state = self._fresh(problem)
        state.outputs.unpack(arrays)
        steps, visits = checked(arrays, "counts", (2,), np.int64, 0, MAX_COUNT).tolist()
        state.order = Order.from_arrays(arrays, visits, problem.n_examples)
        if len(state.average) and len(arrays.get("average", ())):
            state.average[:] = checked(arrays, "average", state.average.shape)
            state.steps = steps
        self._refresh(problem, state)
        return state
