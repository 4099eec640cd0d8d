"""SVRG: stochastic gradients of the smoothed hinge loss, with reduced variance.

Johnson and Zhang 2013, with the smoothed losses ``h_i`` of Section 2.3 of casimir. `casimir` adds
prox centers ``z`` and decreasing smoothing ``mu`` (here kappa = 0)::

    min over w of  lam/2 ||w||^2 + 1/n sum_i h_i(w; mu) + kappa/2 ||w - z||^2

    repeat:
        g_i <- gradient of h_i at the anchor w~, for all i;  g <- mean of g_i
        for n examples i, in shuffled order:
            w <- w - a (gradient of h_i at w - g_i + g + lam w + kappa (w - z))
        w~ <- the average of these iterates

With ``anchor="visits"`` the ``g_i`` are those of the visits in the epoch before, without full
gradients (Defazio et al. 2014; De and Goldstein 2016). In both cases the distributions over outputs
behind g are a point of the dual; an exact line search mixes the newest point into the previous
ones. So the lower bound needs no oracle calls.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from cliquewise._kernels import clock
from cliquewise.certificate import Certificate
from cliquewise.errors import DataError
from cliquewise.problems.base import Problem
from cliquewise.problems.chain import ChainProblem
from cliquewise.problems.examples import ExampleProblem
from cliquewise.problems.rounding import Bound
from cliquewise.ragged import Floats, Ints
from cliquewise.smoothers import get_smoother
from cliquewise.solvers.backends.base import (
    MIN_SMOOTHING,
    BackendTable,
    Pass,
    Smoothing,
    SmoothingSettings,
    kind_of_call,
)
from cliquewise.solvers.backends.chain.smooth import ChainSmoothing
from cliquewise.solvers.backends.examples import ExampleSmoothing
from cliquewise.solvers.base import (
    ALL_BUT_MODEL,
    EXAMPLES,
    Arrays,
    Capabilities,
    Info,
    Solver,
    Start,
    Warm,
)
from cliquewise.solvers.iterates import COUNTS, Iterates
from cliquewise.solvers.parameters import one_of
from cliquewise.solvers.registry import register

#: The learning rate is halved after STALL outer steps without progress: a relative decrease of
#: PROGRESS, or of EXPECTED times what steps along the full gradient would achieve. All halvings
#: together are at most a factor of MAX_DECREASE.
STALL, PROGRESS, EXPECTED, MAX_DECREASE = 2, 0.02, 0.1, 128
#: A slack below this factor of the lowest so far is also progress: at an anchor (False), and with
#: ``anchor="visits"`` (True), where losses at many different weights make the slack noisier.
SLACK_FACTOR = {False: 0.9, True: 0.96}
#: First learning rate with ``anchor="visits"``, in units of an estimate of 1 / L: that of SAGA.
SAGA = 1.0 / 3.0
#: If the losses pull with less than PULL times the force of the penalty, all weights are too large
#: and these factors are tried.
PULL, SCALES = 0.5, (1.0, 0.9, 0.8, 0.7, 0.6, 0.5)

BACKENDS = (
    BackendTable[SmoothingSettings, Smoothing]()
    .add(ChainProblem, ChainSmoothing)
    .add(ExampleProblem, ExampleSmoothing, "graph", *EXAMPLES)
)


@register
@dataclass(frozen=True)
class SVRG(Solver[Problem, Iterates]):
    """Stochastic variance-reduced gradient (Johnson and Zhang 2013).

    Each step of the run is a full gradient (which counts as a pass, and is also counted in the
    column ``full_passes`` of the trace) and a shuffled pass of single steps. With the loss
    ``smooth_hinge`` the smoothing is the problem's; with ``hinge`` it is the solver's, and the
    certificate is that of the hinge loss itself.

    Parameters
    ----------
    smoother : {"l2", "entropy", "none"}, default="l2"
        ``l2`` needs the ``k`` best outputs, ``entropy`` needs marginals.
    mu : float, default=1.0
        Amount of smoothing, in units of the task loss; 0 is none.
    k : int, default=5
        Largest number of outputs per oracle call.
    learning_rate : float, optional
        By default ``1 / max ||x||^2`` over the tokens (candidates: the mean of their largest
        differences), and a third of it with ``anchor="visits"``. It is halved when two
        consecutive epochs have not lowered the objective by 2 %, or by a tenth of what steps of
        this size can achieve.
    average : bool, default=True
        Continue from the average of an epoch's iterates, not from the last one.
    anchor : {"full", "visits"}, default="full"
        The gradients that reduce the variance of an epoch: those of a full gradient at its start,
        or those of the visits in the epoch before (smoothers ``l2`` and ``none``), as in SAGA,
        which needs no full gradients.
    warm_up : int, default=1
        Initial passes of plain stochastic gradient descent.

    Examples
    --------
    >>> from cliquewise.data.dataset import Dataset
    >>> from cliquewise.models.chain import ChainModel
    >>> from cliquewise.problems.chain import ChainProblem
    >>> from cliquewise.solvers.run import run
    >>> data = Dataset([0, 2, 3], [0, 1, 3, 4], [0, 0, 1, 1], None, 2, labels=[0, 1, 1])
    >>> problem = ChainProblem(ChainModel.build(data, 2), data, loss="hinge")
    >>> bool(run(problem, SVRG(mu=0.01), tol=0.02, max_epochs=500, random_state=0).converged)
    True
    """

    name: ClassVar[str] = "svrg"
    capabilities: ClassVar[Capabilities] = Capabilities(
        {"chain": frozenset({"hinge", "smooth_hinge"})}
        | dict.fromkeys(("graph", *EXAMPLES), frozenset({"hinge"})),
        rank=80,
        precision=float("inf"),  # constant smoothing leaves a plateau
    )
    columns: ClassVar[tuple[str, ...]] = (
        "full_passes", "exact_share", "mu", "learning_rate", *COUNTS
    )  # fmt: skip
    smoother: str = "l2"
    mu: float = 1.0
    k: int = 5
    learning_rate: float | None = None
    average: bool = True
    anchor: str | None = "full"
    warm_up: int = 1

    def __post_init__(self) -> None:
        super().__post_init__()
        get_smoother(self.smoother)
        if self.k < 1:
            raise DataError(f"k = {self.k}; at least one output is needed")
        if not (np.isfinite(self.mu) and self.mu >= 0):
            raise DataError(f"mu = {self.mu}; it must be a number >= 0")
        rate = self.learning_rate
        if rate is not None and not (np.isfinite(rate) and rate > 0):
            raise DataError(f"learning_rate = {rate}; it must be a positive number, or None")
        one_of(self, "anchor", "full", "visits", None)
        if self.warm_up < 0:
            raise DataError(f"warm_up = {self.warm_up}; it must not be negative")

    def refuses(self, problem: Problem) -> str | None:
        """Also reject problems whose oracles cannot answer the calls of the smoother."""
        reason = super().refuses(problem)
        if reason is not None:
            return reason
        smoother = self._smoother(problem)
        if self.anchor == "visits" and smoother == "entropy":
            return 'can store few outputs, but not marginals: use anchor="full" or smoother="l2"'
        mu = 0.0 if smoother == "none" else self.mu
        return problem.refuses_call(kind_of_call(smoother, self.k, mu))

    def memory(self, problem: Problem) -> float:
        """Return the bytes of ten weight vectors, and of the distributions at the anchor."""
        return BACKENDS[problem].memory(problem, self._settings(problem))

    def tolerated_changes(self, problem: Problem) -> frozenset[str]:
        """Return what may change: only the weights are reused."""
        return ALL_BUT_MODEL

    # ---- the smoothing

    def _smoother(self, problem: Problem) -> str:
        return problem.smoother if problem.loss == "smooth_hinge" else self.smoother

    def _settings(self, problem: Problem) -> SmoothingSettings:
        smoother = self._smoother(problem)
        k = problem.top if problem.loss == "smooth_hinge" else self.k
        return SmoothingSettings("l2" if smoother == "none" else smoother, k)

    def _mu(self, problem: Problem, state: Iterates, outer: int) -> float:
        """Return the amount of smoothing in an outer step (from 1 on)."""
        if problem.loss == "smooth_hinge":
            return float(problem.gamma)
        mu = 0.0 if self.smoother == "none" else self._schedule(problem, state, outer)
        # A larger kappa would raise the schedule; Theorem 16 of casimir needs mu not to increase.
        mu = min(mu * state.cool, state.mu_limit)
        return mu if mu >= MIN_SMOOTHING else 0.0

    def _schedule(self, problem: Problem, state: Iterates, outer: int) -> float:
        return self.mu

    def _kappa(self, problem: Problem, state: Iterates, outer: int) -> float:
        return 0.0

    # ---- state

    def init(self, problem: Problem, warm: Warm = None) -> Iterates:
        """Start at zero, or at the weights of ``warm``."""
        backend, old = BACKENDS[problem](problem, self._settings(problem)), None
        w = backend.zeros()
        if isinstance(warm, Start):
            old = warm.w
        elif isinstance(warm, Iterates):
            if warm.examples > problem.n_examples:
                raise DataError("a warm start needs at least the same examples")
            old = warm.backend.unpacked(warm.best if warm.proved else warm.w)
        if old is not None and len(old) == problem.dimension:
            w = backend.packed(np.asarray(old, dtype=np.float64))
        state = Iterates(
            backend, problem.n_examples, w, w.copy(), w.copy(), backend.zeros(), w.copy(),
            problem.lam, problem.gamma, cost=problem.lower_bound, dual=problem.lower_bound,
        )  # fmt: skip
        if old is not None:
            state.outer = self.warm_up  # plain stochastic gradients would lose the start
        # A rate that was halved on fewer examples would remain too small.
        if isinstance(warm, Iterates) and warm.examples == problem.n_examples:
            state.rate = warm.rate
        return state

    # ---- one step

    def _start(self, problem: Problem, state: Iterates) -> Floats:
        """Return where the steps of the next subproblem begin."""
        return state.w

    def _renews(self, problem: Problem) -> bool:
        """Whether the gradients of visits replace those of the anchor."""
        return self.anchor == "visits"

    def step(self, problem: Problem, state: Iterates, rng: np.random.Generator) -> Info:
        """Make an epoch of steps, after a full gradient if no earlier epoch has stored one."""
        n = problem.n_examples
        if n == 0:
            return Info(1.0, 0, 0.0)
        k = state.outer + 1
        state.rate = self._rate(problem, state)
        mu, kappa = self._mu(problem, state, k), self._kappa(problem, state, k)
        start = state.inner if len(state.inner) else self._start(problem, state)
        at, renew, passes, calls = start, self._renews(problem), 1.0, 0
        state.mu, state.mu_limit, state.proved = mu, mu, False
        # An interrupt in an epoch leaves a half-updated mean, which must not be used.
        mean, state.mean = state.mean, np.empty(0)
        plain, found = state.outer < self.warm_up and not len(state.inner), None
        if plain:
            state.backend.forget()
            mean = np.zeros_like(start)
        elif not len(mean):
            found = self._full_gradient(problem, state, start, mu)
            mean, calls, passes = found.gradient, found.calls, 2.0
            if not renew:
                self._watch(problem, state, start, found)
            if self._is_solved(problem, state, start, mean, kappa):
                self._move(problem, state, start, kappa)
                return Info(1.0, calls)
        order = rng.permutation(n)
        new, asked = self._epoch(problem, state, start, mean, kappa, order, renew)
        self._count(state, mu, asked)
        if renew:
            found, at = state.backend.kept(), new
            self._bound(problem, state, found)
            state.mean, state.exact = found.gradient, found.exact
            if not plain:
                self._watch(problem, state, new, found)
        if self._is_last(state):
            self._move(problem, state, new, kappa)
            usable = found is not None and not plain and self._rescales()
            if usable and found is not None and self._pulls_too_little(problem, found, at):
                more = self._shrink(problem, state, mu)
                passes, asked = passes + more, asked + int(more * n)
                self._count(state, mu, int(more * n), whole=True)
        else:
            state.inner, state.rounds = new, state.rounds + 1
        return Info(passes, calls + asked)

    def _full_gradient(self, problem: Problem, state: Iterates, w: Floats, mu: float) -> Pass:
        """Return the full gradient at ``w``, the new anchor; count it, and update the bound."""
        begin = clock.now()
        found = state.backend.full_gradient(w, mu)
        state.full_seconds += clock.now() - begin
        self._count(state, mu, found.calls, whole=True)
        self._bound(problem, state, found)
        state.full_passes, state.exact = state.full_passes + 1, found.exact
        return found

    def _pulls_too_little(self, problem: Problem, found: Pass, w: Floats) -> bool:
        """Whether the losses pull much less than the penalty, so all weights are too large."""
        norm = problem.lam * float(w @ w)
        return bool(found.loss < 0.5 * norm and -float(found.gradient @ w) < PULL * norm)

    def _count(self, state: Iterates, mu: float, calls: int, whole: bool = False) -> None:
        """Count oracle calls by kind, and those of full passes separately."""
        name = f"{state.backend.kind(mu)}_calls"
        setattr(state, name, getattr(state, name) + calls)
        state.full_calls += calls if whole else 0

    def _shrink(self, problem: Problem, state: Iterates, mu: float) -> float:
        """Scale the weights down while that lowers the smoothed objective; return the passes made.

        Steps along the gradient of the penalty would take ``1 / (lam learning_rate)`` visits.
        """
        low, passes = np.inf, 0.0
        scale = 1.0
        for factor in SCALES:
            w = factor * state.w
            value = 0.5 * problem.lam * float(w @ w) + state.backend.smooth_loss(w, mu)
            passes += 1.0
            if not value < low:
                break
            low, scale = value, factor
        for name in ("w", "z", "z_before"):
            setattr(state, name, scale * getattr(state, name))
        return passes

    def _rescales(self) -> bool:
        """Whether weights that are too large are scaled down."""
        return True

    def _is_last(self, state: Iterates) -> bool:
        """Whether this is the last epoch on a subproblem."""
        return True

    def _is_solved(
        self, problem: Problem, state: Iterates, w: Floats, gradient: Floats, kappa: float
    ) -> bool:
        """Whether the full gradient at ``w`` shows that the subproblem is solved well enough."""
        return False

    def _move(self, problem: Problem, state: Iterates, new: Floats, kappa: float) -> None:
        """End an outer step at ``new``."""
        state.w, state.z = new, new
        self._close(state)

    def _close(self, state: Iterates) -> None:
        state.outer += 1
        state.inner, state.rounds = np.empty(0), 0

    # ---- learning rates

    def _rate(self, problem: Problem, state: Iterates) -> float:
        """Return the user's learning rate, or the current estimate of 1 / L."""
        if self.learning_rate is not None:
            return self.learning_rate
        if state.rate == 0.0:
            part = SAGA if self._renews(problem) else 1.0
            return float(part / max(state.backend.curvature, problem.lam, 1e-300))
        return state.rate

    def _watch(self, problem: Problem, state: Iterates, w: Floats, found: Pass) -> None:
        """Halve the learning rate if the objective at the anchors no longer decreases."""
        slope = found.gradient + problem.lam * w
        size, lam = float(slope @ slope), problem.lam
        # An upper bound of the suboptimality of the smoothed objective.
        slack = size / (2 * lam) if lam > 0 else np.inf
        value = found.loss + 0.5 * lam * float(w @ w)
        smoothed = 0.0 if problem.loss == "smooth_hinge" else -found.omega
        # The decrease that an epoch of few or short steps can achieve.
        expected = EXPECTED * problem.n_examples * state.rate * size
        if self._cools(state, slack, smoothed):
            state.cool, state.stalled = 0.5 * state.cool, 0
            state.lowest = state.least_slack = np.inf
            return
        factor = SLACK_FACTOR[self._renews(problem)]
        needed = min(PROGRESS * state.lowest, expected) if np.isfinite(state.lowest) else 0.0
        if value < state.lowest - needed or slack < factor * state.least_slack:
            state.lowest, state.stalled = min(value, state.lowest), 0
            state.least_slack = min(slack, state.least_slack)
            return
        state.stalled += 1
        least = 1.0 / max(state.backend.curvature, 1e-300) / MAX_DECREASE
        if state.stalled >= STALL and self.learning_rate is None and state.rate > least:
            state.rate, state.stalled = 0.5 * state.rate, 0
            state.lowest, state.least_slack = value, slack

    def _cools(self, state: Iterates, slack: float, smoothed: float) -> bool:
        """Whether the smoothing is the larger part of the error."""
        return False

    def _epoch(
        self, problem: Problem, state: Iterates, start: Floats, gradient: Floats, kappa: float,
        order: Ints, renew: bool = False,
    ) -> tuple[Floats, int]:  # fmt: skip
        strong = problem.lam + kappa
        a = min(state.rate, 0.99 / strong)
        c = (kappa * state.z - gradient) / strong
        shrink = 1.0 - a * strong
        return state.backend.epoch(start, c, state.mu, order, a, shrink, self.average, renew)

    # ---- certificate

    def _bound(self, problem: Problem, state: Iterates, found: Pass) -> None:
        """Mix the newest dual point into the previous one, by an exact line search."""
        lam = problem.lam
        cost = found.cost - (found.omega if problem.loss == "smooth_hinge" else 0.0)
        step = found.gradient - state.slope
        curve = float(step @ step)
        if curve > 0:
            share = (lam * (cost - state.cost) - float(state.slope @ step)) / curve
            share = min(max(share, 0.0), 1.0)
            state.slope = state.slope + share * step
            state.cost += share * (cost - state.cost)
        state.rounding_error = max(state.rounding_error, found.rounding_error)
        # Without a penalty, only a point of slope zero proves a bound: the truth.
        if lam > 0:
            bound = problem.bound(
                state.cost,
                state.slope / lam,
                state.rounding_error,
                state.backend.weight_error_scale,
            )
            state.dual, state.rounding = max(Bound(state.dual, state.rounding), bound)

    def certify(self, problem: Problem, state: Iterates) -> Certificate:
        """Return the objective of the best weights so far, and the value of the dual point."""
        total = state.backend.total_loss(state.w)
        value = problem.ridge_objective(float(state.w @ state.w), total)
        if value < state.best_value:
            state.best, state.best_value = state.w.copy(), value
        state.proved = True
        primal, exact = problem.upper_bound(state.best, state.best_value)
        return Certificate(primal, state.dual, "exact" if exact else "bound", state.rounding)

    def weights(self, problem: Problem, state: Iterates) -> Floats:
        """Return the best certified weights, or the newest if they were not certified yet."""
        return state.backend.unpacked(state.best if state.proved else state.w)

    def extras(self, problem: Problem, state: Iterates) -> dict[str, float]:
        """Return the full gradients so far, share of exact calls, smoothing, rate, and calls."""
        counts = {name: float(getattr(state, name)) for name in COUNTS}
        return {
            "full_passes": state.full_passes, "exact_share": state.exact, "mu": state.mu,
            "learning_rate": state.rate, **counts,
        }  # fmt: skip

    def pack(self, state: Iterates) -> Arrays:
        """Return the vectors and the numbers; the anchor is recomputed by a full gradient."""
        return state.packed()

    def without_sums(self, problem: Problem, state: Iterates) -> Iterates:
        """Return a start from the weights, without the dual point."""
        return self.init(problem, Start(self.weights(problem, state)))

    def unpack(self, problem: Problem, arrays: Arrays) -> Iterates:
        """Return a state from :meth:`pack`."""
        return self.init(problem).restored(arrays)
