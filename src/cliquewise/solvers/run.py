"""The training loop: stopping, time, the trace, progress, checkpoints and Ctrl-C.

How often a certificate is computed: a solver that proves its state at no cost is recorded after
every step. For others a certificate costs most of a pass over the data. It is computed when the
solver's own estimate of the gap is small enough, after the first pass, at the end, and in between
as often as keeps all certificates below a tenth of the passes. The clock has no influence, so a
run with a given seed is reproducible to the bit.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import Protocol

import numpy as np
from threadpoolctl import ThreadpoolController

from cliquewise._kernels import clock
from cliquewise.atomic_files import check_target
from cliquewise.certificate import Certificate
from cliquewise.errors import CliquewiseError, UnsupportedError, warn_user
from cliquewise.persistence import write_arrays
from cliquewise.problems.base import Problem
from cliquewise.problems.rounding import Bound
from cliquewise.ragged import Floats
from cliquewise.solvers.base import (
    AnySolver,
    Checkpointing,
    HasCertificateCost,
    HasColumns,
    Info,
    Start,
    State,
    Warm,
)
from cliquewise.solvers.interrupts import BetweenSteps
from cliquewise.solvers.warm_start import begin
from cliquewise.trace import COLUMNS, Trace

#: Largest share of the passes that certificates may take while the solver itself expects more.
CHECK_SHARE = 0.1
#: Cost of a certificate in passes: for most solvers 0.5 to 0.8 (`benchmarks.certificate_cost`).
CERTIFICATE_PASSES = 0.75
#: Epochs before a solver may be called slow.
MIN_EPOCHS = 30
#: Estimates of the gap needed to fit a trend.
MIN_ESTIMATES = 10

#: Called with every new row of the trace.
RowCallback = Callable[[dict[str, float]], object]
#: Called with epochs and weights after every step; the run ends when it returns True.
StopCondition = Callable[[float, Floats], bool]


class Progress(Protocol):
    """A display of a running solver."""

    def row(self, row: dict[str, float]) -> None:
        """Show a new row of the trace."""

    def step(self, epochs: float, seconds: float, estimate: float) -> None:
        """Show a step without a certificate, with the solver's estimate of the gap."""


@dataclass(frozen=True)
class Fit:
    """The result of a run."""

    weights: Floats
    certificate: Certificate
    trace: Trace
    state: State
    converged: bool
    interrupted: bool
    epochs: float
    solver: str


@dataclass(kw_only=True)
class Run:
    """One training run and its options; see :func:`run`."""

    problem: Problem
    solver: AnySolver
    tol: float
    max_epochs: float
    max_seconds: float
    rng: np.random.Generator
    callback: RowCallback | None = None
    progress: Progress | None = None
    stop_when: StopCondition | None = None
    checkpoint: Path | None = None
    checkpoint_seconds: float = 60.0
    fallback: AnySolver | None = None
    earlier_seconds: float = 0.0  # of the runs that this one resumes
    epochs: float = 0.0
    calls: int = 0
    finished: bool = False  # the solver reports that another step would change nothing
    estimates: list[tuple[float, float]] = field(default_factory=list)  # (epochs, gap) by step

    def __post_init__(self) -> None:
        columns = self.solver.columns if isinstance(self.solver, HasColumns) else ()
        self.trace = Trace((*COLUMNS, *columns))
        self.started = self.saved = clock.now()
        # The costs of the true outputs bound every objective, and are not affected by rounding.
        self.lower_bound = self.problem.lower_bound if self.problem.is_convex else -np.inf
        self.best = Bound(self.lower_bound)

    @property
    def seconds(self) -> float:
        """Seconds since the start, with certificates and without compilation."""
        return self.earlier_seconds + clock.now() - self.started

    def check(self, state: State, certificate: Certificate | None = None) -> Certificate:
        """Certify the state and record it; the best dual value so far remains proven."""
        if certificate is None:
            certificate = self.solver.certify(self.problem, state)
        if certificate.status != "none":
            rounding = certificate.rounding
            self.best = best = max(self.best, Bound(certificate.dual, rounding))
            # A primal value below the costs of the true outputs can only be a rounding error.
            primal = max(certificate.primal, self.lower_bound)
            certificate = Certificate(primal, best.value, certificate.status, rounding)
        solver = self.solver
        extras = solver.extras(self.problem, state) if isinstance(solver, HasColumns) else {}
        self.trace.append(
            seconds=self.seconds, epochs=self.epochs, oracle_calls=self.calls,
            primal=certificate.primal, dual=certificate.dual, gap=certificate.gap, **extras,
        )  # fmt: skip
        if self.progress is not None:
            self.progress.row(self.trace[-1])
        if self.callback is not None:
            self.callback(self.trace[-1])
        return certificate

    @property
    def is_over(self) -> bool:
        """Whether a limit is reached, or the solver has finished."""
        late = clock.now() - self.started >= self.max_seconds
        return self.finished or late or self.epochs >= self.max_epochs - 1e-9

    def is_due(self, info: Info, state: State) -> bool:
        """Whether to spend most of a pass on a certificate now."""
        if info.estimate <= self.tol:
            return True
        if len(self.trace) == 0:
            return self.epochs >= 1
        solver, cost = self.solver, CERTIFICATE_PASSES
        if isinstance(solver, HasCertificateCost):
            cost = solver.check_cost(state)
        return (len(self.trace) + 1) * cost <= CHECK_SHARE * self.epochs

    def is_slow(self) -> bool:
        """Whether the trend predicts more than twice the epochs made so far.

        The trend is that of the solver's estimates over the last half of the epochs. Two
        certificates would not be enough, because gaps are noisy.
        """
        if len(self.trace) == 0 or self.epochs < MIN_EPOCHS:
            return False
        epochs, estimates = np.array(self.estimates).T
        recent = (epochs >= 0.5 * self.epochs) & np.isfinite(estimates) & (estimates > 0)
        if np.count_nonzero(recent) < MIN_ESTIMATES:
            return False
        rate = -float(np.polyfit(epochs[recent], np.log(estimates[recent]), 1)[0])
        needed = np.log(max(self.trace[-1]["gap"], 1e-300) / max(self.tol, 1e-300))
        return bool(needed > 2 * self.epochs * max(rate, 0.0))

    def switch_to_fallback(self, state: State) -> State:
        """Continue with the fallback from the current weights; the dual bound remains proven."""
        assert self.fallback is not None
        start = Start(self.solver.weights(self.problem, state))
        new = begin(self.fallback, self.problem, start)
        self.solver, self.fallback = self.fallback, None  # last: an interrupt keeps the old pair
        return new

    def save(self, state: State, at_once: bool = False) -> None:
        """Write a checkpoint if the interval has passed, or at once."""
        if self.checkpoint is None:
            return
        if not at_once and clock.now() - self.saved < self.checkpoint_seconds:
            return
        from cliquewise.solvers.checkpoints import to_file

        try:
            write_arrays(self.checkpoint, *to_file(self, state))
        except OSError as error:
            warn_user(
                f"could not write the checkpoint {self.checkpoint} ({error}). Training continues; "
                f"the next attempt is in {self.checkpoint_seconds:g} s. An earlier checkpoint is "
                "left unchanged"
            )
        self.saved = clock.now()

    def _recover(self, state: State) -> tuple[State, Certificate]:
        """Return a consistent state after an interrupt within a step, and its certificate."""
        solver = self.solver
        try:
            if not isinstance(solver, Checkpointing):
                raise UnsupportedError(f"{solver.name} has no checkpoints")
            state = solver.unpack(self.problem, solver.pack(state))
        except CliquewiseError:
            state = begin(solver, self.problem)
        found = solver.certify(self.problem, state)
        proven = Certificate(found.primal, self.best.value, found.status, self.best.rounding)
        return state, self.check(state, proven)

    def _should_stop(self, state: State) -> bool:
        """Whether the user's condition for stopping holds."""
        if self.stop_when is None:
            return False
        return self.stop_when(self.epochs, np.array(self.solver.weights(self.problem, state)))

    def _step(self, state: State) -> Info:
        """Make one step and count it."""
        info = self.solver.step(self.problem, state, self.rng)
        self.epochs += info.epochs
        self.calls += info.oracle_calls
        self.estimates.append((self.epochs, info.estimate))
        return info

    def train(self, state: State) -> Fit:
        """Step until the gap is small enough, a limit is reached, or the user interrupts."""
        with BetweenSteps() as ctrl_c:
            return self._train(state, ctrl_c)

    def _train(self, state: State, ctrl_c: BetweenSteps) -> Fit:
        certificate: Certificate | None = None
        interrupted = stepping = False
        try:
            ctrl_c.is_urgent = True
            while not self.is_over:
                if ctrl_c.asked:
                    interrupted = True
                    break
                stepping = True
                info = self._step(state)
                stepping = False
                if self.progress is not None:
                    self.progress.step(self.epochs, self.seconds, info.estimate)
                certificate, converged = None, False
                if info.certificate is not None or self.is_due(info, state):
                    certificate = self.check(state, info.certificate)
                    converged = bool(certificate.gap <= self.tol)
                    if not converged and self.fallback is not None and self.is_slow():
                        state, certificate = self.switch_to_fallback(state), None
                self.finished = info.finished
                if not converged:
                    self.save(state)
                if self._should_stop(state) or converged:
                    break
            ctrl_c.is_urgent = False
        except KeyboardInterrupt:
            ctrl_c.is_urgent, interrupted, certificate = False, True, None
        if stepping:
            state, certificate = self._recover(state)
        elif certificate is None:
            certificate = self.check(state)
        if interrupted:
            self.save(state, at_once=True)
        return self._result(state, certificate, interrupted)

    def _result(self, state: State, certificate: Certificate, interrupted: bool) -> Fit:
        done = self.finished and certificate.status == "none"
        weights = np.array(self.solver.weights(self.problem, state))
        state.origin, state.reached = self.problem.fingerprint(), Start(weights)
        return Fit(
            weights, certificate, self.trace, state, done or bool(certificate.gap <= self.tol),
            interrupted, self.epochs, self.solver.name,
        )  # fmt: skip


@cache
def _blas() -> ThreadpoolController:
    """Return the controller of BLAS threads; finding the libraries takes milliseconds."""
    return ThreadpoolController()


def run(
    problem: Problem,
    solver: AnySolver,
    *,
    tol: float = 1e-3,
    max_epochs: float = 100,
    max_seconds: float = float("inf"),
    random_state: int | np.random.Generator | None = None,
    warm: Warm = None,
    callback: RowCallback | None = None,
    progress: Progress | None = None,
    stop_when: StopCondition | None = None,
    checkpoint: str | Path | None = None,
    checkpoint_seconds: float = 60.0,
    resume: bool = False,
    fallback: AnySolver | None = None,
) -> Fit:
    """Run a solver until the relative duality gap is at most ``tol``.

    Parameters
    ----------
    problem, solver
        The objective, and the algorithm that minimizes it.
    tol : float
        Relative gap ``(primal - dual) / |primal|`` to stop at.
    max_epochs, max_seconds : float
        Limits at which the run stops even if the gap is larger.
    random_state : int or Generator, optional
        A given seed makes the run reproducible to the bit.
    warm : State or Start, optional
        State of a similar problem, or weights, to start from.
    callback : callable, optional
        Called with every new row of the trace.
    progress : Progress, optional
        A display that is updated after every step.
    stop_when : callable, optional
        Called with epochs and weights after every step; the run ends when it returns True.
    checkpoint : path, optional
        File to save the state in, written every ``checkpoint_seconds``.
    resume : bool
        Continue from that file if it exists.
    fallback : Solver, optional
        Continues from the weights of ``solver`` if that has become slow: if after 30 epochs the
        trend predicts more than twice as many again.

    Returns
    -------
    Fit
        Ctrl-C ends the run early; the result is then the current state (``interrupted``).
    """
    path = None if checkpoint is None else Path(checkpoint)
    if path is not None:
        check_target(path, "the checkpoint")
        if not isinstance(solver, Checkpointing):
            raise UnsupportedError(f"solver {solver.name!r} does not support checkpoints")
    r = Run(
        problem=problem, solver=solver, tol=tol, max_epochs=max_epochs, max_seconds=max_seconds,
        rng=np.random.default_rng(random_state), callback=callback, progress=progress,
        stop_when=stop_when, checkpoint=path, checkpoint_seconds=checkpoint_seconds,
        fallback=fallback,
    )  # fmt: skip
    if resume and path is not None and path.exists():
        from cliquewise.solvers.checkpoints import resume_run

        state = resume_run(r, path)
    else:
        state = begin(solver, problem, warm)
    with _blas().limit(limits=problem.blas_threads, user_api="blas"):
        return r.train(state)
