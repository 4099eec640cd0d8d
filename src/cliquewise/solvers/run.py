"""The only training loop: stopping, time, trace, progress, checkpoints and Ctrl-C.

Cadence of the certificate: a solver that proves its state for nothing is recorded at every
step. For others a check costs less than a pass over the data (a solver may say otherwise). It is
made when the solver's own estimate says that it is done, after the first pass, at the end, and in
between as often as keeps all checks below a tenth of the passes. No clock decides: the same seed
gives the same bits.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from threadpoolctl import ThreadpoolController

from cliquewise._kernels import clock
from cliquewise.certificate import Certificate
from cliquewise.errors import CliquewiseError, warn_user
from cliquewise.persistence import check_target, write_arrays
from cliquewise.problems.base import Problem
from cliquewise.problems.rounding import Bound
from cliquewise.ragged import Floats
from cliquewise.solvers.base import Info, Solver, Start
from cliquewise.solvers.interrupts import BetweenSteps
from cliquewise.solvers.progress import TrainingLine
from cliquewise.trace import COLUMNS, Trace

#: Share of the passes that certificates may take before the solver itself claims to be done.
CHECK_SHARE = 0.1
#: Passes before a solver may be called slow.
PATIENCE = 30
#: Estimates of the gap that make a trend.
TREND = 10


@dataclass(frozen=True)
class Fit:
    """What a run returns."""

    weights: Floats
    certificate: Certificate
    trace: Trace
    state: Any
    converged: bool
    interrupted: bool
    epochs: float
    solver: str


class Watch(NamedTuple):
    """Who looks on: called with every row of the trace; with passes and weights after every step.

    The run ends where the second one says True.
    """

    rows: Callable[[dict[str, float]], Any] | None = None
    weights: Callable[[float, Floats], bool] | None = None


class Run:
    """One training run; see :func:`run`."""

    def __init__(
        self,
        problem: Problem,
        solver: Solver,
        *,
        tol: float,
        max_epochs: float,
        max_seconds: float,
        rng: np.random.Generator,
        callback: Callable[[dict[str, float]], Any] | None,
        checkpoint: Path | None,
        checkpoint_seconds: float,
        fallback: Solver | None = None,
    ):
        self.fallback = fallback
        self.problem, self.solver, self.rng = problem, solver, rng
        self.tol, self.max_epochs, self.max_seconds = tol, max_epochs, max_seconds
        self.callback, self.checkpoint = callback, checkpoint
        self.checkpoint_seconds = checkpoint_seconds
        self.trace = Trace((*COLUMNS, *solver.columns))
        self.started = clock.now()
        self.epochs, self.calls = 0.0, 0
        self.saved = self.started
        # No objective is below the costs of the truth, whatever rounding does to other bounds.
        self.lower_bound = problem.lower_bound if problem.is_convex else -np.inf
        self.best = Bound(self.lower_bound)
        self.estimates: list[tuple[float, float]] = []  # of the gap, by the solver, after each step
        self.before = 0.0  # seconds of earlier runs that this one goes on from
        self.monitor: Callable[[float, Floats], bool] | None = None
        self.finished = False  # the solver says so: another step would change nothing

    @property
    def seconds(self) -> float:
        """Since the solver started, checks included and compiling not."""
        return clock.now() - self.started

    def check(self, state: Any, certificate: Certificate | None = None) -> Certificate:
        """Certify the state and record it; a dual value once reached stays proved."""
        if certificate is None:
            certificate = self.solver.certify(self.problem, state)
        if certificate.status != "none":
            rounding = certificate.rounding
            self.best = best = max(self.best, Bound(certificate.dual, rounding))
            # An objective below the costs of the truth is rounding, too.
            primal = max(certificate.primal, self.lower_bound)
            certificate = Certificate(primal, best.value, certificate.status, rounding)
        self.trace.append(
            seconds=self.before + self.seconds, epochs=self.epochs, oracle_calls=self.calls,
            primal=certificate.primal, dual=certificate.dual, gap=certificate.gap,
            **self.solver.extras(self.problem, state),
        )  # fmt: skip
        if self.callback is not None:
            self.callback(self.trace[-1])
        return certificate

    @property
    def is_over(self) -> bool:
        """Whether no step is to follow, whatever the certificate says."""
        late = self.epochs >= self.max_epochs - 1e-9 or self.seconds >= self.max_seconds
        return self.finished or late

    def is_due(self, info: Info, state: Any) -> bool:
        """Whether to spend a pass on a certificate now."""
        if info.estimate <= self.tol:
            return True
        if len(self.trace) == 0:
            return self.epochs >= 1
        cost = self.solver.check_cost(state)
        return (len(self.trace) + 1) * cost <= CHECK_SHARE * self.epochs

    def is_slow(self) -> bool:
        """Whether the trend foretells more than twice the passes made so far.

        The trend is that of the solver's own estimates over the last half of its passes: two
        certificates are too few, since gaps are noisy.
        """
        if len(self.trace) == 0 or self.epochs < PATIENCE:
            return False
        passes, estimates = np.array(self.estimates).T
        recent = (passes >= 0.5 * self.epochs) & np.isfinite(estimates) & (estimates > 0)
        if np.count_nonzero(recent) < TREND:
            return False
        fall = -float(np.polyfit(passes[recent], np.log(estimates[recent]), 1)[0])
        needed = np.log(max(self.trace[-1]["gap"], 1e-300) / max(self.tol, 1e-300))
        return bool(needed > 2 * self.epochs * max(fall, 0.0))

    def change(self, state: Any) -> Any:
        """Go on with the other solver, from the weights of this one; its dual bound stays."""
        assert self.fallback is not None
        start = Start(self.solver.weights(self.problem, state))
        begun = self.fallback.begin(self.problem, start)
        self.solver, self.fallback = self.fallback, None  # last: an interrupt leaves the old pair
        return begun

    def save(self, state: Any) -> None:
        """Write a checkpoint if the interval is over."""
        if self.checkpoint is None or clock.now() - self.saved < self.checkpoint_seconds:
            return
        from cliquewise.solvers.checkpoints import content

        try:
            write_arrays(self.checkpoint, *content(self, state))
        except OSError as error:
            warn_user(
                f"the checkpoint {self.checkpoint} could not be written ({error}). Training goes "
                f"on; the next try is in {self.checkpoint_seconds:g} s, and a file written before "
                "stays as it is"
            )
        self.saved = clock.now()

    def _recovered(self, state: Any) -> tuple[Any, Certificate]:
        """A state again after an interrupt within a step; proved is what was before it."""
        try:
            state = self.solver.unpack(self.problem, self.solver.pack(state))
        except CliquewiseError:
            state = self.solver.begin(self.problem)
        reached = self.solver.certify(self.problem, state)
        before = Certificate(reached.primal, self.best.value, reached.status, self.best.rounding)
        return state, self.check(state, before)

    def _is_enough(self, state: Any) -> bool:
        """Whether whoever looks on has seen enough."""
        if self.monitor is None:
            return False
        return self.monitor(self.epochs, np.array(self.solver.weights(self.problem, state)))

    def go(self, state: Any) -> Fit:
        """Step until the certificate, the epochs or the clock say stop."""
        with BetweenSteps() as ctrl_c:
            return self._go(state, ctrl_c)

    def _go(self, state: Any, ctrl_c: BetweenSteps) -> Fit:
        certificate: Certificate | None = None
        interrupted = stepping = False
        try:
            ctrl_c.is_urgent = True
            while not self.is_over:
                if ctrl_c.asked:
                    interrupted = True
                    break
                stepping = True
                state, info = self.solver.step(self.problem, state, self.rng)
                stepping = False
                self.epochs += info.epochs
                self.calls += info.oracle_calls
                self.estimates.append((self.epochs, info.estimate))
                if isinstance(self.callback, TrainingLine):
                    self.callback.step(self.epochs, self.before + self.seconds, info.estimate)
                certificate = None
                proved = False
                if info.certificate is not None or self.is_due(info, state):
                    certificate = self.check(state, info.certificate)
                    proved = bool(certificate.gap <= self.tol)
                    if not proved and self.fallback is not None and self.is_slow():
                        state, certificate = self.change(state), None
                self.finished = info.finished
                if not proved:
                    self.save(state)
                if self._is_enough(state) or proved:
                    break
            ctrl_c.is_urgent = False
        except KeyboardInterrupt:
            ctrl_c.is_urgent, interrupted, certificate = False, True, None
        if stepping:
            state, certificate = self._recovered(state)
        elif certificate is None:
            certificate = self.check(state)
        done = self.finished and certificate.status == "none"
        converged = done or bool(certificate.gap <= self.tol)
        weights = np.array(self.solver.weights(self.problem, state))
        state.origin, state.reached = self.problem.fingerprint(), Start(weights)
        return Fit(
            weights, certificate, self.trace, state, converged, interrupted, self.epochs,
            self.solver.name,
        )  # fmt: skip


@cache
def _blas() -> ThreadpoolController:
    """BLAS, which takes milliseconds to find."""
    return ThreadpoolController()


def run(
    problem: Problem,
    solver: Solver,
    *,
    tol: float = 1e-3,
    max_epochs: float = 100,
    max_seconds: float = float("inf"),
    random_state: Any = None,
    warm: Any = None,
    callback: Callable[[dict[str, float]], Any] | Watch | None = None,
    checkpoint: str | Path | None = None,
    checkpoint_seconds: float = 60.0,
    resume: bool = False,
    fallback: Solver | None = None,
) -> Fit:
    """Drive a solver until the relative duality gap is below ``tol``.

    Parameters
    ----------
    problem, solver
        What to solve, and how.
    tol : float
        Relative gap ``(primal - dual) / |primal|`` to stop at.
    max_epochs, max_seconds : float
        Stop earlier after so many passes or seconds.
    random_state : int or Generator, optional
        The same seed gives the same bits.
    warm : state, optional
        State of a similar problem to start from.
    callback : callable or Watch, optional
        Called with every new row of the trace; or what is called with these and with weights.
    checkpoint : path, optional
        File to keep the state in, written every ``checkpoint_seconds``.
    resume : bool
        Go on from that file if it exists, as if there had been no interruption.
    fallback : Solver, optional
        Goes on from the weights of ``solver`` once that has become slow: after 30 passes, if
        the trend foretells more than twice as many again.

    Returns
    -------
    Fit
        Ctrl-C ends the run early and returns what there is (``interrupted``).
    """
    rng = np.random.default_rng(random_state)
    path = None if checkpoint is None else Path(checkpoint)
    watch = callback if isinstance(callback, Watch) else Watch(callback)
    r = Run(
        problem, solver, tol=tol, max_epochs=max_epochs, max_seconds=max_seconds, rng=rng,
        callback=watch.rows, checkpoint=path, checkpoint_seconds=checkpoint_seconds,
        fallback=fallback,
    )  # fmt: skip
    r.monitor = watch.weights
    if path is not None:
        check_target(path, "the checkpoint")
    if resume and path is not None and path.exists():
        from cliquewise.solvers.checkpoints import resume as resume_from

        state = resume_from(r, path)
    else:
        state = solver.begin(problem, warm)
    with _blas().limit(limits=problem.blas_threads, user_api="blas"):
        return r.go(state)
