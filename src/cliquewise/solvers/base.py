"""What a solver is: hyperparameters, a state object, and four methods.

A :class:`Solver` is a frozen dataclass of hyperparameters. Its state is an object: ``init`` makes
it, ``step`` moves it in place, ``weights`` reads it, and ``certify`` proves how good it is. States
hold large arrays that compiled kernels update, so nothing is copied and no method returns a new
state. ``certify`` may recompute running sums (which removes their rounding errors) and remembers
which weights it certified; it does not move the point that the sums belong to.

Everything else is optional. A solver that can also be checkpointed, that can reuse the state of a
changed problem, or that has columns in the trace implements one of the small protocols below, which
``run``, ``checkpoints`` and ``planner`` look for. The loop over epochs, the clock, the trace and
all output are in :mod:`cliquewise.solvers.run`.

A complete solver::

    @dataclass
    class Point(State):
        w: Floats

    @register
    @dataclass(frozen=True)
    class GradientDescent(Solver[Problem, Point]):
        \"\"\"Gradient descent with a fixed step size.\"\"\"

        name = "gradient_descent"
        capabilities = Capabilities({"chain": frozenset({"log"})})
        step_size: float = 0.1

        def init(self, problem, warm=None):
            return Point(np.zeros(problem.dimension))

        def step(self, problem, state, rng):
            state.w -= self.step_size * problem.primal_and_gradient(state.w)[1]
            return Info(epochs=1.0, oracle_calls=problem.n_examples)

        def weights(self, problem, state):
            return state.w

        def certify(self, problem, state):
            return problem.certificate(state.w)
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import (
    Any,
    ClassVar,
    Generic,
    NamedTuple,
    Protocol,
    TypeAlias,
    TypeVar,
    runtime_checkable,
)

import numpy as np
from numpy.typing import NDArray

from cliquewise.certificate import Certificate
from cliquewise.errors import DataError
from cliquewise.problems.base import Problem
from cliquewise.problems.fingerprint import PARTS, Fingerprint
from cliquewise.ragged import Floats
from cliquewise.solvers.parameters import check_types

#: Named arrays of a checkpoint, of any type.
Arrays: TypeAlias = dict[str, NDArray[np.generic]]
#: The parts of a problem that may change if only the weights of a state are reused.
ALL_BUT_MODEL = frozenset(PARTS) - {"model"}
#: The kinds of problems whose examples are optimized over one at a time, by an oracle.
EXAMPLES = ("candidates", "matching", "examples")


# ---- states


@dataclass
class Info:
    """What one step did.

    Attributes
    ----------
    epochs : float
        Passes over the data made in this step.
    oracle_calls : int
        Inferences made.
    estimate : float
        An estimate of the relative gap that needs no extra pass. NaN if there is none; infinite
        if the solver certifies itself in steps of its choice.
    certificate : Certificate or None
        A proof that the step produced at no extra cost.
    finished : bool
        Whether another step would change nothing.
    """

    epochs: float
    oracle_calls: int
    estimate: float = float("nan")
    certificate: Certificate | None = None
    finished: bool = False


class Start(NamedTuple):
    """Weights to start from, in the problem's form; every solver takes them as ``warm``."""

    w: Floats


class State:
    """Base of the states of all solvers.

    Attributes
    ----------
    origin : Fingerprint or None
        The problem that the state belongs to; set at the end of a run.
    reached : Start or None
        The final weights, so that other solvers can start from them; set at the end of a run.
    """

    origin: Fingerprint | None = None
    reached: Start | None = None


#: What a run can start from.
Warm: TypeAlias = State | Start | None

P = TypeVar("P", bound=Problem)
S = TypeVar("S", bound=State)
P_contra = TypeVar("P_contra", bound=Problem, contravariant=True)
S_contra = TypeVar("S_contra", bound=State, contravariant=True)


# ---- solvers


@dataclass(frozen=True)
class Capabilities:
    """What a solver can minimize, and its place in the registry.

    Attributes
    ----------
    losses : mapping of str to frozenset of str
        The losses that it can minimize, for every kind of problem.
    rank : int
        Position in lists of solvers; equal estimated costs are decided by it.
    pair_attributes : bool
        Whether chains may have attributes of token pairs.
    no_penalty : bool
        Whether there may be no penalty (C infinite).
    l1 : bool
        Whether the penalty may have an L1 part.
    relaxed_on : frozenset of str
        The kinds on which it trains over the local polytope; prediction should then do the same.
    precision : float
        Relative gap that it reaches within 3,000 epochs on small problems with C up to 3; infinite
        if it may end on a plateau or proves nothing.
    """

    losses: Mapping[str, frozenset[str]] = field(hash=False)
    rank: int = 100
    pair_attributes: bool = False
    no_penalty: bool = False
    l1: bool = False
    relaxed_on: frozenset[str] = frozenset()
    precision: float = 1e-6


@dataclass(frozen=True)
class Solver(ABC, Generic[P, S]):
    """Base of all solvers; see the module for a complete one.

    Attributes
    ----------
    name : str
        What users write as ``solver=``.
    capabilities : Capabilities
    """

    name: ClassVar[str]
    capabilities: ClassVar[Capabilities]

    def __post_init__(self) -> None:
        """Check the types of the hyperparameters; subclasses check their values."""
        check_types(self)

    # ---- required

    @abstractmethod
    def init(self, problem: P, warm: Warm = None) -> S:
        """Return a state to start from.

        ``warm`` may be weights, or a state of a similar problem from any solver; what cannot be
        reused is ignored.
        """

    @abstractmethod
    def step(self, problem: P, state: S, rng: np.random.Generator) -> Info:
        """Move the state, for at most a few seconds."""

    @abstractmethod
    def weights(self, problem: P, state: S) -> Floats:
        """Return the weights; after ``certify`` and before the next step, the certified ones."""

    @abstractmethod
    def certify(self, problem: P, state: S) -> Certificate:
        """Return what the state proves; this costs about a pass over the data."""

    # ---- with defaults

    def refuses(self, problem: Problem) -> str | None:
        """Return why it cannot work on a problem, as the end of a sentence; None if it can."""
        can = self.capabilities
        if problem.kind not in can.losses:
            return f"does not work on a {problem.kind} problem"
        losses = can.losses[problem.kind]
        if problem.loss not in losses:
            return f"minimizes {' or '.join(sorted(losses))}, not {problem.loss}"
        if problem.has_pair_attributes and not can.pair_attributes:
            return "does not support attributes of token pairs (B rules with %x in a template)"
        if not problem.has_penalty and not can.no_penalty:
            return "needs a penalty: C must be finite"
        if problem.l1_ratio > 0 and not can.l1:
            return f"does not support an L1 penalty, and l1_ratio is {problem.l1_ratio:g}"
        return None

    def memory(self, problem: P) -> float:
        """Return the bytes of a state, estimated before it is allocated."""
        return 8.0 * problem.dimension


#: A solver of any kind of problem, as the registry and the loop handle it.
AnySolver: TypeAlias = Solver[Any, Any]


# ---- optional capabilities


@runtime_checkable
class Checkpointing(Protocol[P_contra, S]):
    """A solver whose states can be written to files."""

    def pack(self, state: S) -> Arrays:
        """Return the state as named arrays."""

    def unpack(self, problem: P_contra, arrays: Arrays) -> S:
        """Return a state from :meth:`pack`.

        The arrays may hold anything: kernels do not check indices, so every index, size and number
        is checked here (see :mod:`~cliquewise.solvers.array_checks`). What follows from other
        arrays is recomputed and not stored.
        """


@runtime_checkable
class KeepsSums(Protocol[P_contra, S]):
    """A solver whose bounds rest on sums over outputs that are not stored.

    Nothing in a file can confirm such sums. A run resumes with those of its own checkpoint; a state
    from an untrusted file has to do without them.
    """

    def without_sums(self, problem: P_contra, state: S) -> S:
        """Return a start from the state that does not use its sums."""


@runtime_checkable
class ReusesState(Protocol[P_contra]):
    """A solver whose states remain a valid start when more than C changes in the problem."""

    def tolerated_changes(self, problem: P_contra) -> frozenset[str]:
        """Return the parts of a problem (see ``fingerprint.PARTS``) that may differ."""


@runtime_checkable
class HasFallback(Protocol[P_contra]):
    """A solver that another one should replace if it converges slowly."""

    def fallback(self, problem: P_contra) -> AnySolver | None:
        """Return the solver that continues from the weights, or None."""


@runtime_checkable
class HasColumns(Protocol[P_contra, S_contra]):
    """A solver that adds columns to the trace."""

    @property
    def columns(self) -> tuple[str, ...]:
        """Names of the columns."""

    def extras(self, problem: P_contra, state: S_contra) -> dict[str, float]:
        """Return the cells of a row, for the state that was certified last."""


@runtime_checkable
class HasCertificateCost(Protocol[S_contra]):
    """A solver whose certificates cost more or less than usual."""

    def check_cost(self, state: S_contra) -> float:
        """Return the cost of a certificate in passes; it determines how often one is computed."""


@runtime_checkable
class Selective(Protocol[P_contra]):
    """A solver that should be chosen automatically for some of its problems only."""

    def unsuitable(self, problem: P_contra) -> str | None:
        """Return why the planner should not choose it, as the end of a sentence; or None."""


def other_data(what: str = "its arrays have other shapes") -> DataError:
    """Return the error that a checkpoint does not belong to the problem."""
    return DataError(f"the checkpoint is of other data: {what}")
