"""BCFW: block-coordinate Frank-Wolfe for structural support vector machines, with a duality gap.

Lacoste-Julien et al. 2013, with the gap sampling and the pairwise and away steps of Osokin
et al. 2016 and the cached passes of Shah et al. 2015: a visit asks an oracle for one output, then
the outputs at hand exchange weight. On chains outputs are kept as segments of wrong labels (see
``_kernels/chain/bcfw.py``), elsewhere whole (``_kernels/common/working_sets.py``).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, ClassVar

import numpy as np

from cliquewise.certificate import Certificate
from cliquewise.errors import DataError
from cliquewise.problems.rounding import squared_norm
from cliquewise.ragged import Floats
from cliquewise.solvers.array_checks import MOST, checked
from cliquewise.solvers.backends.base import Combinations
from cliquewise.solvers.backends.chain.segments import ChainSegments
from cliquewise.solvers.backends.examples import WorkingSets
from cliquewise.solvers.base import (
    EXAMPLES,
    Arrays,
    Info,
    Solver,
    State,
    at_least,
    one_of,
    register,
    share,
)
from cliquewise.solvers.sampling import SAMPLINGS, Order

#: Where bounds are loose: what new outputs could still gain, relative to what the bounds leave open
#: and to the objective, when a run ends.
SETTLED, FINE = 0.25, 1e-3
BLOCKS: dict[str, Any] = {"chain": ChainSegments} | dict.fromkeys(("graph", *EXAMPLES), WorkingSets)


@dataclass(frozen=True)
class MapCalls(Solver):
    """What `bcfw` and `subgradient` share: max oracles, whose bounds are enough.

    An inexact method is welcome: the primal takes its upper bound and never its value, so that a
    poor method loosens the certificate and cannot fake it.

    Parameters
    ----------
    map_method : str, default="auto"
        On graphs: any method of :meth:`~cliquewise.FactorGraph.map`. Only exact ones give a gap
        that goes to zero; ``auto`` is exact where a proof is cheap: on trees and narrow graphs,
        and wherever ``trw-s`` finds one.
    map_options : mapping, optional
        Passed to the method, a limit of its iterations or seconds for instance.
    """

    map_method: str = "auto"
    map_options: Any = None

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

    def refuses(self, problem: Any) -> str | None:
        """Refuse what the MAP method refuses."""
        reason = super().refuses(problem)
        if reason is None:
            reason = problem.refuses_method(self.map_method, dict(self.map_options or ()))
        return reason


@dataclass
class Ascent(State):
    """Where `bcfw` stands."""

    blocks: Combinations
    order: Order = field(default_factory=Order)
    average: Floats = field(default_factory=lambda: np.empty(0))  # empty if not wanted
    steps: int = 0
    dual: float = 0.0
    averaged: bool = False  # whether the average is the better one of the two


@register
@dataclass(frozen=True)
class BCFW(MapCalls):
    """Block-coordinate Frank-Wolfe on the dual, one example at a time.

    Parameters
    ----------
    step_rule : {"segments", "fw"}, default="segments"
        Which way an example's combination of outputs moves: single ones (on chains: runs of wrong
        labels) up, down (away) or against each other (pairwise); or, on chains, all towards the
        best labeling at once. ``fw`` is the algorithm of 2013, which needs many more passes.
    sampling : {"permuted", "gap", "uniform", "cyclic"}, default="permuted"
        Which example comes next: in reshuffled passes; with probability ``1 - uniform_share`` in
        proportion to its last seen gap (after one pass over all); at random; or in order.
        Gaps say less here than elsewhere, since cached passes lower them in between.
    uniform_share : float, default=0.2
        Share of uniform draws with ``sampling="gap"``.
    cached_passes : int, optional
        After each pass at most so many passes that ask for no new output and improve the weights
        of those at hand; they end as soon as they bring less than a tenth of it. By default 10 on
        chains and 200 elsewhere, where an oracle call is dear.
    inner_rounds : int, optional
        Rounds over an example's outputs per visit, at most; by default 2 on chains, else 5.
    max_outputs : int, optional
        Segments (on chains) or outputs kept per example, at most; beyond it the lightest is given
        up. By default 200 segments or 100 outputs.
    average : bool, optional
        Keep a weighted average of the weights, too, and return it where its objective is lower.
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
    works_on: ClassVar[dict[str, frozenset[str]]] = dict.fromkeys(BLOCKS, frozenset({"hinge"}))
    rank: ClassVar[int] = 40
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

    def setting(self, name: str, blocks: Any) -> Any:
        """A parameter, or what suits the kind of problem if it was not given."""
        given = getattr(self, name)
        return getattr(blocks, name) if given is None else given

    def refuses(self, problem: Any) -> str | None:
        """Refuse also the step rule of 2013 where there is none."""
        reason = super().refuses(problem)
        if reason is None and self.step_rule == "fw" and problem.kind != "chain":
            return f'has no step_rule="fw" on a {problem.kind} problem'
        return reason

    def memory(self, problem: Any) -> float:
        """Weights, and the outputs that there is room for at the start."""
        return float(BLOCKS[problem.kind].memory(problem, self))

    # ---- state

    def tolerated_changes(self, problem: Any) -> frozenset[str]:
        """Segments of chains are labels, whatever weights there are for them."""
        return self.tolerates_changes_in | ({"model"} if problem.kind == "chain" else set())

    def init(self, problem: Any, warm: Any = None) -> Ascent:
        """The truth alone, or the combinations of ``warm`` for the examples it has."""
        state = self._empty(problem)
        if isinstance(warm, Ascent) and type(warm.blocks) is type(state.blocks):
            state.blocks.continue_from(warm.blocks)
            state.order.visits = warm.order.visits
        self._refresh(problem, state)
        return state

    def _empty(self, problem: Any) -> Ascent:
        blocks = BLOCKS[problem.kind](problem, self)
        average = np.zeros_like(blocks.w) if self.setting("average", blocks) else np.empty(0)
        return Ascent(blocks, average=average)

    def _refresh(self, problem: Any, state: Ascent) -> None:
        """The weights and the dual value from the outputs afresh."""
        state.dual = state.blocks.refresh() - 0.5 * problem.lam * squared_norm(state.blocks.w)

    # ---- one step

    def step(self, problem: Any, state: Ascent, rng: np.random.Generator) -> tuple[Ascent, Info]:
        """Visit a pass of examples, or as many as keep one call below about two seconds."""
        n, blocks, order = problem.n_examples, state.blocks, state.order
        if n == 0:
            return state, Info(1.0, 0, 0.0)
        count = order.count(n, blocks.max_step_examples)
        gaps = None if blocks.draws else blocks.gaps
        chosen = order.draw(n, count, rng, self.sampling, self.uniform_share, gaps)
        calls, rise = blocks.visit(chosen, rng.random(count))
        total = rise
        for _ in range(self.setting("cached_passes", blocks)):
            more = blocks.cached_pass(rng.permutation(n))
            total += more
            if more < 0.1 * rise or more == 0:
                break
        state.dual += total / n
        state.steps += 1
        state.averaged = False
        if len(state.average):
            state.average += 2.0 / (state.steps + 1) * (blocks.w - state.average)
        gap, finished = float(blocks.gaps.sum()) / n, False
        if order.is_whole(n):
            idle = blocks.end_pass() and total <= 1e-13 * n * max(abs(state.dual), 1e-12)
            unproved = blocks.unproved / n
            most = min(SETTLED * unproved, FINE * abs(state.dual + gap))
            settled = unproved > 0 and gap - unproved <= most
            finished = (idle or settled) and self.sampling == "permuted"
        known = order.visits >= n and np.isfinite(gap)
        estimate = gap / max(abs(state.dual + gap), 1e-12) if known else np.nan
        return state, Info(count / n, calls, estimate, None, finished)

    # ---- what it proves

    def certify(self, problem: Any, state: Ascent) -> Certificate:
        """Primal (of the better of weights and average) and dual values in float64."""
        self._refresh(problem, state)
        bound = state.blocks.bound()
        primal, exact = state.blocks.primal(state.blocks.w)
        state.averaged = False
        if len(state.average) and state.steps > 1:
            other, also = state.blocks.primal(state.average)
            if other < primal:
                state.averaged, primal, exact = True, other, also
        return Certificate(primal, bound.value, "exact" if exact else "bound", bound.rounding)

    def weights(self, problem: Any, state: Ascent) -> Floats:
        """Weights of the dual point, or their average if that was certified."""
        return state.blocks.unpacked(state.average if state.averaged else state.blocks.w)

    def pack(self, state: Ascent) -> Arrays:
        """The outputs and their weights, and the average."""
        counts = np.array([state.steps, state.order.visits])
        return {**state.blocks.pack(), "average": state.average, "counts": counts}

    def resume_paths(self, state: Ascent) -> tuple[str, ...]:
        """The running weights, the dual value and the order."""
        return (
            "order",
            "dual",
            "averaged",
            *(f"blocks.{name}" for name in state.blocks.resume_paths),
        )

    def recompute_untrusted(self, problem: Any, state: Ascent) -> Ascent:
        """Segments are labels; of other outputs only what they were worth is known."""
        return state if problem.kind == "chain" else self.init(problem)

    def unpack(self, problem: Any, arrays: Arrays) -> Ascent:
        """Back from :meth:`pack`."""
        state = self._empty(problem)
        state.blocks.unpack(arrays)
        steps, visits = checked(arrays, "counts", (2,), np.int64, 0, MOST).tolist()
        state.order.visits = visits
        if len(state.average) and len(arrays.get("average", ())):
            state.average[:] = checked(arrays, "average", state.average.shape)
            state.steps = steps
        self._refresh(problem, state)
        return state
