"""What a solver is, and how one is chosen.

A solver is a frozen dataclass of hyper-parameters. It makes a state (``init``), moves it
(``step``) and says what its state proves (``certify``). It has no loop over epochs, no
clock and prints nothing: :mod:`cliquewise.solvers.run` owns all that.
"""

from __future__ import annotations

import importlib
import pkgutil
from dataclasses import dataclass
from functools import cache
from typing import Any, ClassVar, TypeVar

import numpy as np

from cliquewise.certificate import Certificate
from cliquewise.errors import UnsupportedError
from cliquewise.graph.factor_graph import Floats

State = Any

#: From here on a pass over factors is much cheaper than one over whole chains.
MANY_LABELS = 200


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


@dataclass(frozen=True)
class Solver:
    """Base of all solvers.

    Attributes
    ----------
    name : str
        What users write as ``solver=``.
    losses : frozenset of str
        The losses it can minimize.
    problems : frozenset of str
        The kinds of problems it works on: ``chain``, ``graph``.
    columns : tuple of str
        What it adds to the columns of the trace.
    """

    name: ClassVar[str]
    losses: ClassVar[frozenset[str]]
    #: Whether chains may have attributes of token pairs.
    takes_edges: ClassVar[bool] = False
    #: Whether there may be no penalty (C infinite).
    takes_no_penalty: ClassVar[bool] = False
    #: Whether it trains on the local polytope; prediction then uses the same relaxation.
    relaxed: ClassVar[bool] = False
    problems: ClassVar[frozenset[str]] = frozenset({"chain"})
    columns: ClassVar[tuple[str, ...]] = ()

    def refuses(self, problem: Any) -> str | None:
        """Why it cannot work on this problem, as the end of a sentence; None if it can."""
        kind = getattr(problem, "kind", "chain")
        if kind not in self.problems:
            return f"does not work on a {kind} problem"
        if problem.loss not in self.losses:
            return f"minimizes {' or '.join(sorted(self.losses))}, not {problem.loss}"
        if getattr(problem, "edge_chains", None) is not None and not self.takes_edges:
            return "does not know attributes of token pairs (B rules with %x in a template)"
        if getattr(problem, "lam", 1.0) == 0.0 and not self.takes_no_penalty:
            return "needs a penalty: C must be finite"
        return None

    def memory(self, problem: Any) -> float:
        """Bytes of the state, estimated before it is allocated."""
        return float(8.0 * problem.dimension)

    def init(self, problem: Any, warm: State | None = None) -> State:
        """A state to start from; ``warm`` may be one of a similar problem."""
        raise NotImplementedError

    def step(self, problem: Any, state: State, rng: np.random.Generator) -> tuple[State, Info]:
        """Move the state."""
        raise NotImplementedError

    def weights(self, problem: Any, state: State) -> Floats:
        """The weights of a state."""
        raise NotImplementedError

    def certify(self, problem: Any, state: State) -> Certificate:
        """What the state proves; costs a pass over the data."""
        return problem.certificate(self.weights(problem, state))  # type: ignore[no-any-return]

    def check_cost(self, state: State) -> float:
        """What a certificate costs, in passes; decides how often one is made."""
        return 0.5

    def extras(self, problem: Any, state: State) -> dict[str, float]:
        """Its own columns of the trace, for the state that was certified last."""
        return {}

    def pack(self, state: State) -> dict[str, np.ndarray[Any, Any]]:
        """The state as named arrays, for a checkpoint."""
        raise NotImplementedError

    def unpack(self, problem: Any, arrays: dict[str, np.ndarray[Any, Any]]) -> State:
        """Back from :meth:`pack`."""
        raise NotImplementedError


_registry: dict[str, type[Solver]] = {}
S = TypeVar("S", bound=type[Solver])


def register(cls: S) -> S:
    """Make a solver known under its name."""
    _registry[cls.name] = cls
    return cls


@cache
def _load_all() -> None:
    import cliquewise.solvers as package

    for module in pkgutil.iter_modules(package.__path__):
        importlib.import_module(f"{package.__name__}.{module.name}")


def registered() -> list[type[Solver]]:
    """All solver classes.

    Examples
    --------
    >>> "sdca" in [solver.name for solver in registered()]
    True
    """
    _load_all()
    return list(_registry.values())


def get(solver: str | Solver) -> Solver:
    """A solver by its name, or itself.

    Examples
    --------
    >>> get("sdca").name
    'sdca'
    """
    if isinstance(solver, Solver):
        return solver
    _load_all()
    if solver not in _registry:
        raise UnsupportedError(
            f"unknown solver {solver!r}; the solvers are: auto, {', '.join(sorted(_registry))}"
        )
    return _registry[solver]()


def choose(problem: Any, solver: str | Solver = "auto", max_memory: float = 8 * 2**30) -> Solver:
    """The named solver, or the one that suits the problem.

    ``auto`` takes ``sdca`` where the problem is convex and its dual variables fit into
    ``max_memory`` bytes; otherwise ``lbfgs``, or for the hinge loss ``bcfw``, and ``gdmm`` on
    chains with at least `MANY_LABELS` labels. For the smoothed hinge loss it takes ``lbfgs``, or
    ``casimir`` where the smoother is l2, whose few labelings leave kinks; and ``casimir``
    where there is no penalty.

    Raises
    ------
    UnsupportedError
        If the solver does not fit the problem; the message names those that do.
    """
    if solver == "auto" and getattr(problem, "lam", 1.0) == 0.0:
        solver = "casimir"
    if hasattr(problem, "resolve"):
        solver = problem.resolve(solver)
    if solver == "auto" and problem.loss == "smooth_hinge":
        solver = "lbfgs" if problem.smoother == "entropy" else "casimir"
    if solver == "auto":
        first = get("sdca")
        if first.refuses(problem) is None and first.memory(problem) <= max_memory:
            return first
        if problem.loss != "hinge":
            return get("lbfgs")
        many = get("gdmm")
        if many.refuses(problem) is None and problem.model.n_labels >= MANY_LABELS:
            return many
        return get("bcfw")
    chosen = get(solver)
    reason = chosen.refuses(problem)
    if reason is None and chosen.memory(problem) > max_memory:
        reason = (
            f"needs {chosen.memory(problem) / 2**30:.3g} GiB for its state "
            f"(limit: max_memory = {max_memory / 2**30:.3g} GiB)"
        )
    if reason is not None:
        fit = [
            s.name
            for s in registered()
            if s().refuses(problem) is None and s().memory(problem) <= max_memory
        ]
        others = ", ".join(fit) or "none of the solvers"
        raise UnsupportedError(f"solver {chosen.name!r} {reason}; these do: {others}")
    return chosen
