"""SVRG: stochastic gradients of the smoothed hinge loss, with reduced variance.

Casimir is this with prox centers and less and less smoothing; see ``casimir.py``.

An outer step makes an epoch of steps of

    min over w of  lam/2 ||w||^2 + mean of the smoothed losses + kappa/2 ||w - z||^2

with reduced variance: each step's gradient less the same example's at an anchor, plus the mean of
those. The anchor is a point whose full gradient an outer step begins with (Johnson and Zhang 2013;
Algorithm 4 of casimir); or each example's is its visit in the epoch before, without a call of its
own (Defazio et al. 2014; De and Goldstein 2016). Either way the distributions over outputs behind
the mean are a point of the dual; combinations of such points, with the best share of the newest,
give the lower bound. It never needs an oracle call of its own.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np

from cliquewise._kernels import clock
from cliquewise.certificate import Certificate
from cliquewise.errors import DataError
from cliquewise.problems.base import Problem
from cliquewise.problems.rounding import Bound
from cliquewise.ragged import Floats, Ints
from cliquewise.smoothers import get_smoother
from cliquewise.solvers.backends.base import LEAST, Pass, Smoothing, kind_of_call
from cliquewise.solvers.backends.chain.smooth import ChainSmoothing
from cliquewise.solvers.backends.examples import ExampleSmoothing
from cliquewise.solvers.base import (
    ALL_BUT_MODEL,
    EXAMPLES,
    Arrays,
    Info,
    Solver,
    Start,
    one_of,
    register,
)
from cliquewise.solvers.iterates import COUNTS, Iterates

#: Outer steps without a relative fall of PROGRESS after which the learning rate is halved; where
#: steps along the full gradient would make less, a part EXPECTED of what they would make is enough.
#: It never falls by more than the factor LARGEST.
STALL, PROGRESS, EXPECTED, LARGEST = 2, 0.02, 0.1, 128

#: A slack of this part of the least so far is progress, too: at an anchor, and where visits are
#: kept (True), whose losses are of many weights, so that their noise hides small falls.
FALL = {False: 0.9, True: 0.96}

#: The first learning rate is this part of an estimate of 1 / L where epochs renew the anchor: that
#: of SAGA (Defazio et al. 2014), whose tables these are.
SAGA = 1.0 / 3.0

#: Share of the penalty's pull below which the losses are said to pull too little; the factors
#: that are tried then.
PULL, SCALES = 0.5, (1.0, 0.9, 0.8, 0.7, 0.6, 0.5)

BACKENDS: dict[str, Any] = {"chain": ChainSmoothing} | dict.fromkeys(
    ("graph", *EXAMPLES), ExampleSmoothing
)


@register
@dataclass(frozen=True)
class SVRG(Solver):
    """Stochastic variance-reduced gradient (Johnson and Zhang 2013).

    Each step of the run is a full gradient (counted as a pass of its own, and apart in the
    column ``full_passes`` of the trace) and a reshuffled pass of single steps. With loss
    ``smooth_hinge`` smoothing and its amount are the problem's; with ``hinge`` they are the
    solver's, and the certificate is that of the hinge loss itself.

    Parameters
    ----------
    smoother : {"l2", "entropy", "none"}, default="l2"
        ``l2`` asks for the ``k`` best outputs, ``entropy`` for marginals.
    mu : float, default=1.0
        Amount of smoothing, in units of the task loss; 0 is none.
    k : int, default=5
        Outputs per oracle call, at most.
    learning_rate : float, optional
        By default it is ``1 / max ||x||^2`` over the tokens (candidates: the mean of their
        greatest differences), a third of it with ``anchor="visits"``, and halved when two epochs
        in a row have not found the objective 2 % lower, or as much lower as steps of that
        length can make it.
    average : bool, default=True
        Go on from the average of an epoch's iterates, not from the last.
    anchor : {"full", "visits"}, default="full"
        Which gradients of the examples reduce the variance of an epoch: those of a full gradient
        at its start, or those that the visits of the epoch before have found (smoothers ``l2``
        and ``none``), as in SAGA; then no call is made but those of steps.
    warm_up : int, default=1
        Passes of plain stochastic gradients to begin with.

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
    works_on: ClassVar[dict[str, frozenset[str]]] = {
        "chain": frozenset({"hinge", "smooth_hinge"})
    } | dict.fromkeys(("graph", *EXAMPLES), frozenset({"hinge"}))
    rank: ClassVar[int] = 80
    tolerates_changes_in: ClassVar[frozenset[str]] = ALL_BUT_MODEL  # a start takes its weights
    precision: ClassVar[float] = float("inf")  # smoothed as it is from start to end
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
            raise DataError(f"mu = {self.mu}; it must be a number that is not negative")
        rate = self.learning_rate
        if rate is not None and not (np.isfinite(rate) and rate > 0):
            raise DataError(f"learning_rate = {rate}; it must be a positive number, or None")
        one_of(self, "anchor", "full", "visits", None)
        if self.warm_up < 0:
            raise DataError(f"warm_up = {self.warm_up}; it must not be negative")

    def refuses(self, problem: Problem) -> str | None:
        """As all solvers; and what is asked of the oracles must be within their reach."""
        reason = super().refuses(problem)
        if reason is not None:
            return reason
        smoother = self._smoother(problem)
        if self.anchor == "visits" and smoother == "entropy":
            return 'few outputs can be kept, not marginals: take anchor="full" or smoother="l2"'
        mu = 0.0 if smoother == "none" else self.mu
        return problem.refuses_call(kind_of_call(smoother, self.k, mu))

    def memory(self, problem: Any) -> float:
        """Ten weight vectors, and the distributions at the anchor."""
        return float(BACKENDS[problem.kind].memory(problem, self._smoother(problem), self.k))

    # ---- the smoothing

    def _smoother(self, problem: Problem) -> str:
        return problem.smoother if problem.loss == "smooth_hinge" else self.smoother

    def _backend(self, problem: Problem) -> Smoothing:
        smoother = self._smoother(problem)
        k = problem.top if problem.loss == "smooth_hinge" else self.k
        backend: Smoothing = BACKENDS[problem.kind](
            problem, "l2" if smoother == "none" else smoother, k
        )
        return backend

    def _mu(self, problem: Any, state: Iterates, outer: int) -> float:
        """Amount of smoothing of an outer step (from 1 on)."""
        if problem.loss == "smooth_hinge":
            return float(problem.gamma)
        mu = 0.0 if self.smoother == "none" else self._schedule(problem, state, outer)
        mu *= state.cool
        return mu if mu >= LEAST else 0.0

    def _schedule(self, problem: Any, state: Iterates, outer: int) -> float:
        return self.mu

    def _kappa(self, problem: Any, state: Iterates, outer: int) -> float:
        return 0.0

    # ---- state

    def init(self, problem: Any, warm: Any = None) -> Iterates:
        """Zero weights, or those of ``warm`` where it has as many."""
        backend, old = self._backend(problem), None
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
            state.outer = self.warm_up  # plain steps would only lose what is there
        # A rate that stalls have halved on fewer examples would be too small for good.
        if isinstance(warm, Iterates) and warm.examples == problem.n_examples:
            state.rate = warm.rate
        return state

    # ---- one step

    def _start(self, problem: Any, state: Iterates) -> Floats:
        """Where the steps of the next subproblem begin."""
        return state.w

    def _renews(self, problem: Problem) -> bool:
        """Whether epochs keep what their visits find."""
        return self.anchor == "visits"

    def step(
        self, problem: Any, state: Iterates, rng: np.random.Generator
    ) -> tuple[Iterates, Info]:
        """An epoch of steps; where no earlier one has kept gradients, after a full gradient."""
        n = problem.n_examples
        if n == 0:
            return state, Info(1.0, 0, 0.0)
        k = state.outer + 1
        state.rate = self._rate(problem, state)
        mu, kappa = self._mu(problem, state, k), self._kappa(problem, state, k)
        start = state.inner if len(state.inner) else self._start(problem, state)
        at, renew, passes, calls = start, self._renews(problem), 1.0, 0
        state.mu, state.proved = mu, False
        # What is kept is half renewed if an epoch is cut short: then it is not used.
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
                return state, Info(1.0, calls)
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
            if not plain and found is not None and self._pulls_too_little(problem, found, at):
                more = self._shrink(problem, state, mu)
                passes, asked = passes + more, asked + int(more * n)
                self._count(state, mu, int(more * n), whole=True)
        else:
            state.inner, state.rounds = new, state.rounds + 1
        return state, Info(passes, calls + asked)

    def _full_gradient(self, problem: Any, state: Iterates, w: Floats, mu: float) -> Pass:
        """At ``w``, which becomes the anchor; counted, and a bound."""
        begin = clock.now()
        found = state.backend.full_gradient(w, mu)
        state.full_seconds += clock.now() - begin
        self._count(state, mu, found.calls, whole=True)
        self._bound(problem, state, found)
        state.full_passes, state.exact = state.full_passes + 1, found.exact
        return found

    def _pulls_too_little(self, problem: Any, found: Pass, w: Floats) -> bool:
        """Whether the losses count and pull less than the penalty: all weights are too large."""
        norm = problem.lam * float(w @ w)
        return bool(found.loss < 0.5 * norm and -float(found.gradient @ w) < PULL * norm)

    def _count(self, state: Iterates, mu: float, calls: int, whole: bool = False) -> None:
        """Oracle calls by kind; those of whole passes apart, too."""
        name = f"{state.backend.kind(mu)}_calls"
        setattr(state, name, getattr(state, name) + calls)
        state.full_calls += calls if whole else 0

    def _shrink(self, problem: Any, state: Iterates, mu: float) -> float:
        """Scale the weights down while that lowers the smoothed objective; passes made.

        Steps along the penalty alone would take ``1 / (lam learning_rate)`` visits.
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

    def _is_last(self, state: Iterates) -> bool:
        """Whether a subproblem gets no more epochs."""
        return True

    def _is_solved(
        self, problem: Any, state: Iterates, w: Floats, gradient: Floats, kappa: float
    ) -> bool:
        """Whether the full gradient at ``w`` says that its subproblem is solved well enough."""
        return False

    def _move(self, problem: Any, state: Iterates, new: Floats, kappa: float) -> None:
        """End an outer step at ``new``."""
        state.w, state.z = new, new
        self._close(state)

    def _close(self, state: Iterates) -> None:
        state.outer += 1
        state.inner, state.rounds = np.empty(0), 0

    # ---- learning rates

    def _rate(self, problem: Any, state: Iterates) -> float:
        """The user's learning rate; or an estimate of 1 / L, until steps no longer help."""
        if self.learning_rate is not None:
            return self.learning_rate
        if state.rate == 0.0:
            part = SAGA if self._renews(problem) else 1.0
            return float(part / max(state.backend.curvature, problem.lam, 1e-300))
        return state.rate

    def _watch(self, problem: Any, state: Iterates, w: Floats, found: Pass) -> None:
        """Halve the learning rate where the objective at the anchors no longer falls."""
        slope = found.gradient + problem.lam * w
        size, lam = float(slope @ slope), problem.lam
        # How far the smoothed objective is from its own optimum, at most.
        slack = size / (2 * lam) if lam > 0 else np.inf
        value = found.loss + 0.5 * lam * float(w @ w)
        smoothed = 0.0 if problem.loss == "smooth_hinge" else -found.omega
        # As much as can be asked of an epoch of few or short steps.
        expected = EXPECTED * problem.n_examples * state.rate * size
        if self._cools(state, slack, smoothed):
            state.cool, state.stalled = 0.5 * state.cool, 0
            state.lowest = state.least_slack = np.inf
            return
        fall = FALL[self._renews(problem)]
        needed = min(PROGRESS * state.lowest, expected) if np.isfinite(state.lowest) else 0.0
        if value < state.lowest - needed or slack < fall * state.least_slack:
            state.lowest, state.stalled = min(value, state.lowest), 0
            state.least_slack = min(slack, state.least_slack)
            return
        state.stalled += 1
        least = 1.0 / max(state.backend.curvature, 1e-300) / LARGEST
        if state.stalled >= STALL and self.learning_rate is None and state.rate > least:
            state.rate, state.stalled = 0.5 * state.rate, 0
            state.lowest, state.least_slack = value, slack

    def _cools(self, state: Iterates, slack: float, smoothed: float) -> bool:
        """Whether the smoothing is now the greater part of the error."""
        return False

    def _epoch(
        self, problem: Any, state: Iterates, start: Floats, gradient: Floats, kappa: float,
        order: Ints, renew: bool = False,
    ) -> tuple[Floats, int]:  # fmt: skip
        strong = problem.lam + kappa
        a = min(state.rate, 0.99 / strong)
        c = (kappa * state.z - gradient) / strong
        shrink = 1.0 - a * strong
        return state.backend.epoch(start, c, state.mu, order, a, shrink, self.average, renew)

    # ---- what it proves

    def _bound(self, problem: Any, state: Iterates, found: Pass) -> None:
        """Mix the newest dual point into the old one, by an exact line search."""
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
        # Without a penalty only a point of slope zero proves anything: the truth's.
        if lam > 0:
            bound = problem.bound(
                state.cost,
                state.slope / lam,
                state.rounding_error,
                state.backend.weight_error_scale,
            )
            state.dual, state.rounding = max(Bound(state.dual, state.rounding), bound)

    def certify(self, problem: Any, state: Iterates) -> Certificate:
        """Exact objective of the best weights so far, and the value of the dual point."""
        total = state.backend.total_loss(state.w)
        value = problem.ridge_objective(float(state.w @ state.w), total)
        if value < state.best_value:
            state.best, state.best_value = state.w.copy(), value
        state.proved = True
        return Certificate(state.best_value, state.dual, "exact", state.rounding)

    def weights(self, problem: Any, state: Iterates) -> Floats:
        """The best certified weights, or the newest if they were not certified yet."""
        return state.backend.unpacked(state.best if state.proved else state.w)

    def extras(self, problem: Any, state: Iterates) -> dict[str, float]:
        """Full gradients asked for, share of exact calls in the last, smoothing, rate, calls."""
        counts = {name: float(getattr(state, name)) for name in COUNTS}
        return {
            "full_passes": state.full_passes, "exact_share": state.exact, "mu": state.mu,
            "learning_rate": state.rate, **counts,
        }  # fmt: skip

    def pack(self, state: Iterates) -> Arrays:
        """The vectors and the numbers; distributions at the anchor are found again."""
        return state.packed()

    def resume_paths(self, state: Iterates) -> tuple[str, ...]:
        """A subproblem under way, and what the last epoch has kept."""
        kept = () if self.anchor == "full" else state.backend.resume_paths
        return ("inner", "rounds", "proved", "mean", *(f"backend.{name}" for name in kept))

    def recompute_untrusted(self, problem: Any, state: Iterates) -> Iterates:
        """The weights are a start; a dual point whose outputs are gone proves nothing."""
        return self.init(problem, Start(self.weights(problem, state)))

    def unpack(self, problem: Any, arrays: Arrays) -> Iterates:
        """Back from :meth:`pack`."""
        return self.init(problem).restored(arrays)
