"""What a solver is, where it is found, and how one is chosen.

A solver is a frozen dataclass of hyper-parameters. It makes a state (``init``), moves it
(``step``) and says what its state proves (``certify``). It has no loop over epochs, no
clock and prints nothing: :mod:`cliquewise.solvers.run` owns all that.
"""

from __future__ import annotations

import importlib
import pkgutil
from dataclasses import dataclass, fields
from functools import cache
from pathlib import Path
from typing import Any, ClassVar, NamedTuple, TypeVar

import numpy as np

from cliquewise.certificate import Certificate
from cliquewise.errors import DataError, UnsupportedError
from cliquewise.problems.base import Problem
from cliquewise.problems.fingerprint import PARTS, Fingerprint, listed
from cliquewise.ragged import Floats

Arrays = dict[str, np.ndarray[Any, Any]]
#: For states of which a start takes the weights alone: the model must have the same.
ALL_BUT_MODEL = frozenset(PARTS) - {"model"}
#: The kinds of problems that are asked example by example.
EXAMPLES = ("candidates", "matching", "examples")


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
        A guess at the relative gap, without a pass of its own; NaN if there is none, and
        infinity if the solver certifies itself in steps of its own choice.
    certificate : Certificate or None
        If the step proves something for nothing.
    finished : bool
        Whether the solver cannot go on.
    """

    epochs: float
    oracle_calls: int
    estimate: float = float("nan")
    certificate: Certificate | None = None
    finished: bool = False


class State:
    """Base of what solvers keep.

    Once a run has made it, ``origin`` says of which problem it is, and ``reached`` which weights
    it found, for solvers that know nothing else of it.
    """

    origin: Fingerprint | None = None
    reached: Start | None = None


class Start(NamedTuple):
    """Weights to start from, in the problem's form; any solver takes them as ``warm``."""

    w: Floats


@dataclass(frozen=True)
class Solver:
    """Base of all solvers.

    Attributes
    ----------
    name : str
        What users write as ``solver=``.
    works_on : dict of str to frozenset of str
        The losses it can minimize, for every kind of problem it works on.
    rank : int
        ``auto`` takes the solver of lowest rank that suits the problem.
    columns : tuple of str
        What it adds to the columns of the trace.
    takes_pair_attributes : bool
        Whether chains may have attributes of token pairs.
    takes_no_penalty : bool
        Whether there may be no penalty (C infinite).
    takes_l1 : bool
        Whether a share of the penalty may be an L1 norm.
    carries : frozenset of str
        The parts of a problem in which a state of another one may differ and still be a start:
        everything that it proves is computed afresh from parts that do not.
    relaxed_on : frozenset of str
        The kinds on which it trains over the local polytope, so that prediction should, too.
    precision : float
        Relative gap that it reaches on small problems whose penalty is not weak (C up to 3) within
        3,000 passes; infinite if it may end on a plateau, or proves nothing.
    """

    name: ClassVar[str]
    works_on: ClassVar[dict[str, frozenset[str]]]
    rank: ClassVar[int] = 100
    columns: ClassVar[tuple[str, ...]] = ()
    takes_pair_attributes: ClassVar[bool] = False
    takes_no_penalty: ClassVar[bool] = False
    takes_l1: ClassVar[bool] = False
    tolerates_changes_in: ClassVar[frozenset[str]] = frozenset({"C"})
    relaxed_on: ClassVar[frozenset[str]] = frozenset()
    precision: ClassVar[float] = 1e-6

    def __post_init__(self) -> None:
        """Refuse hyper-parameters of a wrong type; subclasses look at their values."""
        check_types(self)

    # ---- which problems

    def refuses(self, problem: Problem) -> str | None:
        """Why it cannot work on this problem, as the end of a sentence; None if it can."""
        if problem.kind not in self.works_on:
            return f"does not work on a {problem.kind} problem"
        losses = self.works_on[problem.kind]
        if problem.loss not in losses:
            return f"minimizes {' or '.join(sorted(losses))}, not {problem.loss}"
        if problem.has_pair_attributes and not self.takes_pair_attributes:
            return "does not know attributes of token pairs (B rules with %x in a template)"
        if not problem.has_penalty and not self.takes_no_penalty:
            return "needs a penalty: C must be finite"
        if problem.l1_ratio > 0 and not self.takes_l1:
            return f"knows no L1 penalty, and l1_ratio is {problem.l1_ratio:g}"
        return None

    def suits(self, problem: Problem) -> bool:
        """Whether ``auto`` may take it for a problem that it does not refuse."""
        return True

    def successor(self, problem: Problem) -> Solver | None:
        """Who goes on from its weights if it turns out to be slow on this problem."""
        return None

    def memory(self, problem: Any) -> float:
        """Bytes of the state, estimated before it is allocated."""
        return float(8.0 * problem.dimension)

    # ---- the algorithm

    def begin(self, problem: Problem, warm: Any = None) -> Any:
        """:meth:`init`, with ``warm`` only if what it holds stays true of this problem."""
        if isinstance(warm, State) and not self._holds(problem, warm):
            warm = None
        return self.init(problem, warm)

    def _holds(self, problem: Problem, warm: State) -> bool:
        """Whether a state of the first examples is a start; refuse one of other examples."""
        old, tolerated_changes = warm.origin, self.tolerated_changes(problem)
        if old is None:
            return False
        n = min(old.n_examples, problem.n_examples)
        apart = old.differences(problem.fingerprint(n))
        lost = [part for part in apart if part not in tolerated_changes]
        if "features" in lost or "labels" in lost:
            raise DataError(
                "a warm start needs at least the same examples, and their "
                f"{listed(lost)} differ; start without it"
            )
        return not lost

    def tolerated_changes(self, problem: Problem) -> frozenset[str]:
        """``tolerates_changes_in``, or more where a kind of problem allows it."""
        return self.tolerates_changes_in

    def resume(self, problem: Problem, arrays: Arrays, origin: Fingerprint) -> Any:
        """:meth:`unpack`, if the arrays are of this problem; only C may be another."""
        apart = [part for part in origin.differences(problem.fingerprint()) if part != "C"]
        if apart:
            raise other_data(f"its {listed(apart)} differ")
        return self.unpack(problem, arrays)

    def init(self, problem: Any, warm: Any = None) -> Any:
        """A state to start from; ``warm`` may be one of a similar problem, of any solver."""
        raise NotImplementedError

    def step(self, problem: Any, state: Any, rng: np.random.Generator) -> tuple[Any, Info]:
        """Move the state."""
        raise NotImplementedError

    def weights(self, problem: Any, state: Any) -> Floats:
        """The weights of a state."""
        raise NotImplementedError

    def certify(self, problem: Any, state: Any) -> Certificate:
        """What the state proves; costs a pass over the data."""
        return problem.certificate(self.weights(problem, state))  # type: ignore[no-any-return]

    def check_cost(self, state: Any) -> float:
        """What a certificate costs, in passes; decides how often one is made.

        For most solvers 0.5 to 0.8 (``python -m benchmarks.certificate_cost``).
        """
        return 0.75

    def extras(self, problem: Any, state: Any) -> dict[str, float]:
        """Its own columns of the trace, for the state that was certified last."""
        return {}

    def pack(self, state: Any) -> Arrays:
        """The state as named arrays, for a checkpoint."""
        raise NotImplementedError

    def unpack(self, problem: Any, arrays: Arrays) -> Any:
        """Back from :meth:`pack`; arrays may be anything, see ``solvers.checked``."""
        raise NotImplementedError

    def resume_paths(self, state: Any) -> tuple[str, ...]:
        """Places in a state that, beside what is packed, make it go on to the bit as it would."""
        return ()

    def recompute_untrusted(self, problem: Any, state: Any) -> Any:
        """What is left of an unpacked state if only what its arrays themselves prove counts."""
        return state


def other_data(what: str = "its arrays have other shapes") -> DataError:
    """A checkpoint does not belong to the problem."""
    return DataError(f"the checkpoint is of other data: {what}")


# ---- checks of hyper-parameters


#: Types of hyper-parameters, in words and as tests.
_TYPES: dict[str, tuple[str, Any]] = {
    "bool": ("True or False", lambda v: isinstance(v, bool | np.bool_)),
    "int": ("a whole number", lambda v: _is_number(v, int | np.integer)),
    "float": ("a finite number", lambda v: _is_number(v, int | float | np.number)),
    "str": ("a word", lambda v: isinstance(v, str)),
    "None": ("None", lambda v: v is None),
}


def _is_number(value: Any, kind: Any) -> bool:
    is_one = isinstance(value, kind) and not isinstance(value, bool | complex | np.complexfloating)
    return bool(is_one and np.isfinite(value))


def check_types(solver: Solver) -> None:
    """Refuse hyper-parameters that are not what their annotations say; NaN is no number."""
    for field in fields(solver):
        kinds = [kind.strip() for kind in str(field.type).split("|")]
        if not all(kind in _TYPES for kind in kinds):
            continue
        value = getattr(solver, field.name)
        if not any(_TYPES[kind][1](value) for kind in kinds):
            words = " or ".join(_TYPES[kind][0] for kind in kinds)
            raise DataError(f"{field.name} = {value!r}; it must be {words}")


def one_of(solver: Solver, name: str, *known: Any) -> None:
    """Refuse a hyper-parameter that is not one of the known words."""
    value = getattr(solver, name)
    if value not in known:
        *most, last = map(str, known)
        words = f"{', '.join(most)} or {last}" if most else last
        raise DataError(f"{name} is {words}, not {value!r}")


def at_least(solver: Solver, least: float, *names: str) -> None:
    """Refuse hyper-parameters that are no finite numbers, or below ``least``."""
    for name in names:
        value = getattr(solver, name)
        number = isinstance(value, int | float | np.number) and np.isfinite(value)
        if not number or value < least:
            raise DataError(f"{name} = {value!r}; it must be a number of at least {least:g}")


def share(solver: Solver, name: str) -> None:
    """Refuse a hyper-parameter outside [0, 1]."""
    if not 0 <= getattr(solver, name) <= 1:
        raise DataError(f"{name} = {getattr(solver, name)}; it must be in [0, 1]")


def positive(solver: Solver, name: str, *words: Any) -> None:
    """Refuse a hyper-parameter that is no positive number, nor one of the words."""
    value = getattr(solver, name)
    if any(value is word or (isinstance(word, str) and value == word) for word in words):
        return
    if not (isinstance(value, int | float | np.number) and np.isfinite(value) and value > 0):
        also = "".join(f" or {word!r}" for word in words)
        raise DataError(f"{name} = {value!r}; it must be a positive number{also}")


# ---- the registry

_registry: dict[tuple[str, str], type[Solver]] = {}
S = TypeVar("S", bound=type[Solver])


def register(cls: S) -> S:
    """Make a solver known under its name, for every kind of problem it works on."""
    for kind in cls.works_on:
        if _registry.setdefault((cls.name, kind), cls).__qualname__ != cls.__qualname__:
            raise UnsupportedError(f"two solvers are called {cls.name!r} on {kind} problems")
    return cls


@cache
def _load_all() -> None:
    for module in pkgutil.iter_modules([str(Path(__file__).parent)]):
        importlib.import_module(f"{__package__}.{module.name}")


def registered(kind: str | None = None) -> list[type[Solver]]:
    """All solver classes, or those for one kind of problem; by rank, then by name.

    Examples
    --------
    >>> "sdca" in [solver.name for solver in registered("chain")]
    True
    """
    _load_all()
    found = {cls for (_, k), cls in _registry.items() if kind in (None, k)}
    return sorted(found, key=lambda cls: (cls.rank, cls.name))


def get(solver: str | Solver, kind: str | None = None) -> Solver:
    """A solver by its name (and the kind of problem, where names are shared), or itself.

    Examples
    --------
    >>> get("sdca").name
    'sdca'
    """
    if isinstance(solver, Solver):
        return solver
    for cls in registered(kind):
        if cls.name == solver:
            return cls()
    known = ", ".join(sorted({cls.name for cls in registered(kind)}))
    if any(cls.name == solver for cls in registered()):
        raise UnsupportedError(
            f"solver {solver!r} does not work on a {kind} problem; these do: {known}"
        )
    where = "" if kind is None else f" of {kind} problems"
    raise UnsupportedError(f"unknown solver {solver!r}; the solvers{where} are: auto, {known}")


# ---- the choice


class Choice(NamedTuple):
    """A solver, who goes on if it turns out to be slow, and why it was taken."""

    solver: Solver
    fallback: Solver | None
    explanation: str


def choose(
    problem: Problem, solver: str | Solver = "auto", max_memory: float = 8 * 2**30
) -> Choice:
    """The named solver; or the one of lowest rank that suits the problem and fits.

    Raises
    ------
    UnsupportedError
        If the solver does not fit the problem; the message names those that do.
    """
    if isinstance(solver, str) and solver == "auto":
        return _automatic(problem, max_memory)
    chosen = get(solver, problem.kind)
    reason = _refusal(chosen, problem, max_memory)
    if reason is None:
        return Choice(chosen, None, f"{chosen.name}: asked for")
    fit = [s.name for s in registered(problem.kind) if _refusal(s(), problem, max_memory) is None]
    others = ", ".join(fit) or "none of the solvers"
    raise UnsupportedError(f"solver {chosen.name!r} {reason}; these do: {others}")


def accepts(problem: Problem, solver: str | Solver) -> bool:
    """Whether a solver works on a problem, whatever memory it needs."""
    try:
        choose(problem, solver, np.inf)
    except UnsupportedError:
        return False
    return True


def _automatic(problem: Problem, max_memory: float) -> Choice:
    reasons: list[str] = []
    for cls in registered(problem.kind):
        solver = cls()
        reason = _refusal(solver, problem, max_memory)
        if reason is None and not solver.suits(problem):
            reason = "is not the best choice here"
        if reason is None:
            passed = "".join(f"\n  not {r}" for r in reasons)
            doc = (cls.__doc__ or "").strip().splitlines()[0]
            other = solver.successor(problem)
            if other is not None and _refusal(other, problem, max_memory) is not None:
                other = None
            return Choice(solver, other, f"{solver.name}: {doc}{passed}")
        reasons.append(f"{solver.name}: it {reason}")
    listed = "".join(f"\n  {r}" for r in reasons)
    raise UnsupportedError(f"no solver can minimize this {problem.kind} problem:{listed}")


def _refusal(solver: Solver, problem: Problem, max_memory: float) -> str | None:
    """Why a solver cannot be used, for want of memory too."""
    reason = solver.refuses(problem)
    if reason is not None:
        return reason
    needed = solver.memory(problem)
    if needed <= max_memory:
        return None
    return (
        f"needs {needed / 2**30:.3g} GiB for its state "
        f"(limit: max_memory = {max_memory / 2**30:.3g} GiB)"
    )
