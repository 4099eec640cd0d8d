"""SDCA: stochastic dual coordinate ascent for conditional random fields, with a duality gap.

Algorithms 1 and 2 of Le Priol 2017 (sdca_crf). The dual (Eq. 9) has a distribution ``q_i`` over
labelings for each example; its weights are expectations of features (Eq. 12)::

    D(q) = 1/n sum_i c_i H(q_i) - lam/2 ||w(q)||^2,   w(q) = C sum_i c_i (F(x_i, y_i) - E_q_i F)

    repeat:
        sample an example i, in proportion to gap_i or uniformly
        s     <- scores of x_i at w, so that p_i ~ exp(s)
        gap_i <- KL(q_i || p_i)                                                     (Eq. 16)
        eta   <- argmax over [0, 1] of D(q with q_i(eta) in place of q_i)           (line search)
        q_i   <- q_i(eta);  w <- w(q)

The paper moves along ``q_i + eta (p_i - q_i)``, a mixture of marginals. Here the scores ``theta``
of ``q_i`` move to ``theta + eta (s - theta)``, the path of exponentiated gradients:
``_kernels/chain/sdca.py`` derives why this needs neither marginals per edge nor logarithms.

The hinge loss is smoothed by gamma times the entropy, which makes its dual one of the same form.
Gamma decreases during training. The certificate is that of the hinge loss itself: without their
entropy, any dual distributions give a lower bound of it.

With an L1 part in the penalty, the weights are those of the dual point after soft thresholding
(``problems/penalty.py``); vectors in the state are those before it.
"""

from __future__ import annotations

from abc import abstractmethod
from dataclasses import dataclass, field
from typing import ClassVar

import numpy as np

from cliquewise.certificate import Certificate
from cliquewise.errors import DataError
from cliquewise.problems.base import Problem
from cliquewise.problems.chain import ChainProblem
from cliquewise.problems.graph import GraphProblem
from cliquewise.problems.shards import ShardedChainProblem
from cliquewise.ragged import Floats, Ints
from cliquewise.solvers.array_checks import checked, count_of
from cliquewise.solvers.backends.base import (
    BackendClass,
    BackendTable,
    Distributions,
    DualSettings,
    scaled,
)
from cliquewise.solvers.backends.chain.duals import ChainDuals
from cliquewise.solvers.backends.chain.float32_duals import Float32Duals
from cliquewise.solvers.backends.chain.shards import ShardedDuals
from cliquewise.solvers.backends.graph.duals import GraphDuals
from cliquewise.solvers.base import AnySolver, Arrays, Capabilities, Info, Solver, State, Warm
from cliquewise.solvers.lbfgs import LBFGS, PAIRS_NEED_LOG
from cliquewise.solvers.owlqn import OWLQN
from cliquewise.solvers.parameters import one_of, share
from cliquewise.solvers.registry import register
from cliquewise.solvers.sampling import SAMPLINGS, Order

BACKENDS = (
    BackendTable[DualSettings, Distributions]()
    .add(ChainProblem, ChainDuals)
    .add(GraphProblem, GraphDuals)
    .add(ShardedChainProblem, ShardedDuals)
)
FLOAT32_BACKENDS = BackendTable[DualSettings, Distributions]().add(ChainProblem, Float32Duals)
#: Smallest weight of the entropy that smooths the hinge loss.
MIN_GAMMA = 1e-9
#: Largest initial score: beyond it exp leaves nothing but the true labels.
MAX_START = 1000
#: The smoothing of the hinge loss is multiplied by DECAY once the gap of the smoothed problem is
#: below SETTLED times the entropy term. Faster decay costs more epochs than it saves.
DECAY, SETTLED = 0.7, 0.3
#: Weight of the newest epoch in the running average of the weights.
AVERAGE_WEIGHT = 0.2


@dataclass
class DualAscent(State):
    """Dual distributions, the order of visits, and an average of the weights."""

    duals: Distributions
    order: Order = field(default_factory=Order)
    average: Floats = field(default_factory=lambda: np.empty(0))  # of the weights after epochs
    is_average_better: bool = False  # at the last certificate


@dataclass(frozen=True)
class Ascent(Solver[Problem, DualAscent]):
    """Base of the solvers that move one example's dual distribution at a time."""

    sampling: str
    step_length: float
    start: float
    uniform_share: ClassVar[float] = 0.0

    def __post_init__(self) -> None:
        super().__post_init__()
        if not 0 < self.step_length <= 1:
            raise DataError(f"step_length = {self.step_length}; it must be in (0, 1]")
        if not abs(self.start) <= MAX_START:
            raise DataError(
                f"start = {self.start}; it must be between -{MAX_START} and {MAX_START}"
            )

    def refuses(self, problem: Problem) -> str | None:
        """Reject other losses and unknown labels."""
        reason = super().refuses(problem)
        if reason is None and not problem.is_convex:
            return "needs every label: with partial labels the problem is not convex"
        return reason

    @abstractmethod
    def _make_duals(self, problem: Problem) -> Distributions:
        """Return dual variables close to the truth."""

    @abstractmethod
    def _visit(self, duals: Distributions, chosen: Ints, rng: np.random.Generator) -> int:
        """Move the distributions of these examples; return the number of inferences."""

    # ---- state

    def init(self, problem: Problem, warm: Warm = None) -> DualAscent:
        """Start close to the truth, or at the distributions of ``warm``."""
        state = self._fresh(problem)
        if isinstance(warm, DualAscent) and type(warm.duals) is type(state.duals):
            state.duals.continue_from(warm.duals)
            # With more examples, the stored gaps are out of date: visit all of them first.
            if warm.origin is None or warm.origin.n_examples == problem.n_examples:
                state.order.visits = warm.order.visits
        state.duals.refresh()
        return state

    def tolerated_changes(self, problem: Problem) -> frozenset[str]:
        """Return what may change: any dual distributions give a bound for any model."""
        return frozenset({"C", "model", "weights"})

    def _fresh(self, problem: Problem) -> DualAscent:
        duals = self._make_duals(problem)
        return DualAscent(duals, duals.order())

    # ---- one step

    def step(self, problem: Problem, state: DualAscent, rng: np.random.Generator) -> Info:
        """Visit all examples once, or as many as take about two seconds."""
        n, duals, order = problem.n_examples, state.duals, state.order
        if n == 0:
            return Info(1.0, 0, 0.0)
        gaps = None if duals.samples_by_gap else duals.gaps
        chosen = order.next(
            n, problem.max_step_examples, rng, self.sampling, self.uniform_share, gaps
        )
        count = len(chosen)
        calls = self._visit(duals, chosen, rng)
        state.is_average_better = False
        estimate = np.nan
        if order.visits >= n and order.is_due(n, count):
            (dual, slack), gap = duals.dual(), duals.gap()
            estimate = (gap + slack) / max(abs(dual + gap), 1e-12)
            duals.watch(dual + slack)
            if problem.loss == "hinge" and order.ends_epoch(n, count):
                self._anneal(state, gap, slack)
        return Info(count / n, calls, estimate)

    def _anneal(self, state: DualAscent, gap: float, slack: float) -> None:
        """After an epoch: average the weights, and smooth less if smoothing is the larger error."""
        duals = state.duals
        if not len(state.average):
            state.average = np.zeros_like(duals.w)
        state.average += AVERAGE_WEIGHT * (duals.gamma * duals.w - state.average)
        if gap < SETTLED * slack and duals.gamma > MIN_GAMMA:
            duals.gamma = max(DECAY * duals.gamma, MIN_GAMMA)
            duals.refresh()

    # ---- certificate

    def certify(self, problem: Problem, state: DualAscent) -> Certificate:
        """Return the dual value and the better primal value of the weights and their average."""
        duals = state.duals
        duals.refresh()
        bound = duals.bound()
        primal, exact = duals.primal(scaled(duals))
        state.is_average_better = False
        if len(state.average):
            other, is_exact = duals.primal(state.average)
            if other < primal:
                state.is_average_better, primal, exact = True, other, is_exact
        return Certificate(primal, bound.value, "exact" if exact else "bound", bound.rounding)

    def weights(self, problem: Problem, state: DualAscent) -> Floats:
        """Return the weights of the dual point, or their average if that was certified."""
        duals = state.duals
        return duals.unpacked(state.average if state.is_average_better else scaled(duals))

    # ---- checkpoints

    def pack(self, state: DualAscent) -> Arrays:
        """Return the scores of the distributions and the average; all else follows from them."""
        return {
            **state.duals.pack(),
            "visits": np.array([state.order.visits]),
            "order": state.order.order,
            "average": state.average,
        }

    def unpack(self, problem: Problem, arrays: Arrays) -> DualAscent:
        """Return a state from :meth:`pack`; marginals and weights are recomputed."""
        state = self._fresh(problem)
        state.duals.unpack(arrays)
        state.duals.refresh()
        saved = Order.from_arrays(arrays, count_of(arrays, "visits"), problem.n_examples)
        state.order.visits, state.order.order = saved.visits, saved.order
        if problem.loss == "hinge" and len(arrays.get("average", ())):
            w = state.duals.w
            state.average = checked(arrays, "average", w.shape, w.dtype)
        return state


@register
@dataclass(frozen=True)
class SDCA(Ascent):
    """Stochastic dual coordinate ascent, by exact marginals of one example at a time.

    Parameters
    ----------
    sampling : {"gap", "permuted", "uniform", "cyclic"}, default="gap"
        Which example comes next: with probability ``1 - uniform_share`` in proportion to its
        last seen gap (after one pass over all), in reshuffled passes, at random, or in order.
    uniform_share : float, default=0.2
        Share of uniform draws with ``sampling="gap"``.
    line_search : bool, default=True
        False takes the step ``step_length`` always.
    step_length : float, default=0.1
        Step length without a line search.
    start : float, default=10.0
        Score of the true labels in the dual distributions at the start: close to the truth,
        but inside the simplex.
    gamma : float, default=1.0
        With the hinge loss: weight of the entropy at the start. It falls by 30 % whenever the gap
        of the smoothed problem has become a small part of what the entropy adds to it.
    dtype : {"float64", "float32"}, default="float64"
        Type of distributions and weights on chains. ``float32`` halves the memory; certificates
        are computed in float64 all the same, and reach gaps of 1e-5 or so.
    """

    name: ClassVar[str] = "sdca"
    capabilities: ClassVar[Capabilities] = Capabilities(
        {
            "chain": frozenset({"log", "softmax_margin", "hinge"}),
            "graph": frozenset({"log", "softmax_margin"}),
            "shards": frozenset({"log", "hinge"}),
        },
        rank=20,
        pair_attributes=True,
        l1=True,
        precision=1e-4,
    )
    sampling: str = "gap"
    uniform_share: float = 0.2  # type: ignore[misc]
    line_search: bool = True
    step_length: float = 0.1
    start: float = 10.0
    gamma: float = 1.0
    dtype: str = "float64"

    def __post_init__(self) -> None:
        super().__post_init__()
        one_of(self, "sampling", *SAMPLINGS)
        one_of(self, "dtype", "float64", "float32")
        share(self, "uniform_share")
        if not MIN_GAMMA <= self.gamma < np.inf:
            raise DataError(f"gamma = {self.gamma}; it must be at least {MIN_GAMMA}")

    def refuses(self, problem: Problem) -> str | None:
        """Also reject a penalty without an L2 part, and exact inference that is out of reach."""
        reason = super().refuses(problem)
        if reason is None and problem.has_pair_attributes and problem.loss != "log":
            return PAIRS_NEED_LOG
        if reason is None and problem.l1_ratio == 1:
            return "needs an L2 part in the penalty: l1_ratio must be below 1"
        single = self.dtype == "float32"
        if reason is None and single and (problem.kind != "chain" or problem.has_pair_attributes):
            return (
                'supports dtype "float32" only on chains in memory without attributes of token '
                "pairs"
            )
        return reason or problem.refuses_call("exp")

    def unsuitable(self, problem: Problem) -> str | None:
        """Reject graphs with the log loss: visits are in Python, and L-BFGS makes fewer calls."""
        if problem.kind == "graph" and problem.loss == "log":
            return "makes more inferences than lbfgs"
        return None

    def fallback(self, problem: Problem) -> AnySolver | None:
        """Return L-BFGS: dual ascent is slow if C is large or features are badly scaled."""
        if problem.loss not in LBFGS.capabilities.losses[problem.kind]:
            return None
        return OWLQN() if problem.l1_ratio > 0 else LBFGS()

    def memory(self, problem: Problem) -> float:
        """Return two numbers per state of each clique of the model, and the weights, in bytes."""
        return self._backend(problem).memory(problem, self._settings(problem))

    def _backend(self, problem: Problem) -> BackendClass[Problem, DualSettings, Distributions]:
        return (FLOAT32_BACKENDS if self.dtype == "float32" else BACKENDS)[problem]

    def _settings(self, problem: Problem) -> DualSettings:
        gamma = self.gamma if problem.loss == "hinge" else 1.0
        return DualSettings(self.start, gamma, self.sampling == "gap")

    def _make_duals(self, problem: Problem) -> Distributions:
        return self._backend(problem)(problem, self._settings(problem))

    def _visit(self, duals: Distributions, chosen: Ints, rng: np.random.Generator) -> int:
        step = 0.0 if self.line_search else self.step_length
        return duals.visit(chosen, rng.random(len(chosen)), step)

    def adopt(self, problem: Problem, warm: DualAscent, own: Ints, old: Ints) -> DualAscent | None:
        """Return a state with the distributions that ``warm`` has for some of the examples.

        Any dual distribution gives a bound of the objective, whatever its scores are. So the
        examples need not be the same as in ``warm``.

        Parameters
        ----------
        problem : Problem
        warm : DualAscent
        own, old : int arrays
            Numbers of the examples in ``problem``, and of the same examples in ``warm``.
        """
        state = self._fresh(problem)
        duals, others = state.duals, warm.duals
        if not isinstance(duals, ChainDuals) or not isinstance(others, type(duals)):
            return None
        duals.adopt(others, own, old, self.start)
        duals.refresh()
        state.origin = problem.fingerprint()
        return state
