"""The training planner: chooses a solver by estimated time and memory, and explains the choice.

Every registered solver for the kind of problem is a candidate. A candidate is rejected if it
refuses the problem, if its state does not fit in memory, or if it is unsuitable for automatic
choice. The others are compared by the estimated CPU seconds to a relative gap of 1e-3. Where no
estimate is known, the order is that of ``Capabilities.rank``.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from cliquewise.errors import UnsupportedError
from cliquewise.problems.base import Problem
from cliquewise.solvers.base import AnySolver, HasFallback, Selective
from cliquewise.solvers.estimates import estimated_seconds
from cliquewise.solvers.registry import get, registered
from cliquewise.tables import text_table

#: Memory that a state may use, in bytes.
MAX_MEMORY = 8 * 2.0**30


@dataclass(frozen=True)
class Candidate:
    """A solver that the planner considered.

    Attributes
    ----------
    solver : Solver
    memory : float
        Estimated bytes of its state; NaN if it cannot work on the problem.
    seconds : float
        Estimated CPU seconds to a relative gap of 1e-3; NaN if there is no estimate.
    rejected : str or None
        The reason, as the end of a sentence; None for a candidate that could be chosen.
    """

    solver: AnySolver
    memory: float
    seconds: float
    rejected: str | None

    @property
    def _order(self) -> tuple[float, int, str]:
        seconds = np.inf if np.isnan(self.seconds) else self.seconds
        return seconds, self.solver.capabilities.rank, self.solver.name


@dataclass(frozen=True)
class Plan:
    """The chosen solver, and all candidates; ``print`` shows the comparison.

    Attributes
    ----------
    solver : Solver
    fallback : Solver or None
        Continues if the solver turns out to be slow.
    candidates : tuple of Candidate
        The chosen one first, then the others in the order of the planner, then those rejected.
        Empty if the user named the solver.
    """

    solver: AnySolver
    fallback: AnySolver | None = None
    candidates: tuple[Candidate, ...] = ()

    @property
    def explanation(self) -> str:
        """Why the solver was chosen, and why candidates before it in rank were not."""
        if not self.candidates:
            return f"{self.solver.name}: named by the user"
        doc = (type(self.solver).__doc__ or "").strip().splitlines()[0]
        rank = self.solver.capabilities.rank
        others = [
            f"\n  not {c.solver.name}: it {c.rejected}"
            for c in self.candidates
            if c.rejected is not None and c.solver.capabilities.rank < rank
        ]
        return f"{self.solver.name}: {doc}{''.join(others)}"

    def __str__(self) -> str:
        rows = [
            (c.solver.name, _cell(c.seconds, 1.0), _cell(c.memory, 2.0**20), c.rejected or "")
            for c in self.candidates
        ]
        table = text_table(["candidate", "CPU s", "MiB", "rejected: it"], rows) if rows else ""
        return f"{self.explanation}\n{table}".rstrip()


def _cell(value: float, unit: float) -> str:
    return "" if np.isnan(value) else f"{value / unit:.3g}"


def choose(
    problem: Problem, solver: str | AnySolver = "auto", max_memory: float = MAX_MEMORY
) -> Plan:
    """Return the named solver, or the candidate with the lowest estimated time.

    Raises
    ------
    UnsupportedError
        If the named solver cannot work on the problem; the message lists those that can.

    Examples
    --------
    >>> from cliquewise.problems.label_graph import LabelsProblem
    >>> problem = LabelsProblem(np.array([[1.0], [2.0]]), [[0, 1], [1, 1]])
    >>> choose(problem).solver.name
    'newton'
    """
    if isinstance(solver, str) and solver == "auto":
        return _automatic(problem, max_memory)
    chosen = get(solver, problem.kind)
    reason = _refusal(chosen, problem, max_memory)
    if reason is None:
        return Plan(chosen)
    able = [s.name for s in registered(problem.kind) if _refusal(s(), problem, max_memory) is None]
    others = ", ".join(able) or "none of the solvers"
    raise UnsupportedError(f"solver {chosen.name!r} {reason}; these do: {others}")


def accepts(problem: Problem, solver: str | AnySolver) -> bool:
    """Whether a solver works on a problem, regardless of the memory that it needs."""
    try:
        choose(problem, solver, np.inf)
    except UnsupportedError:
        return False
    return True


def _automatic(problem: Problem, max_memory: float) -> Plan:
    candidates = [_candidate(cls(), problem, max_memory) for cls in registered(problem.kind)]
    able = sorted((c for c in candidates if c.rejected is None), key=lambda c: c._order)
    rejected = [c for c in candidates if c.rejected is not None]
    if not able:
        listed = "".join(f"\n  {c.solver.name}: it {c.rejected}" for c in rejected)
        raise UnsupportedError(
            f"no solver can minimize this {problem.kind} problem:{listed}"
        ).concerning("solver", "max_memory")
    solver = able[0].solver
    fallback = solver.fallback(problem) if isinstance(solver, HasFallback) else None
    if fallback is not None and _refusal(fallback, problem, max_memory) is not None:
        fallback = None
    return Plan(solver, fallback, (*able, *rejected))


def _candidate(solver: AnySolver, problem: Problem, max_memory: float) -> Candidate:
    rejected = solver.refuses(problem)
    if rejected is not None:
        return Candidate(solver, np.nan, np.nan, rejected)
    memory = float(solver.memory(problem))
    rejected = _too_large(memory, max_memory)
    if rejected is None and isinstance(solver, Selective):
        rejected = solver.unsuitable(problem)
    seconds = np.nan if rejected is not None else estimated_seconds(solver.name, problem)
    return Candidate(solver, memory, seconds, rejected)


def _refusal(solver: AnySolver, problem: Problem, max_memory: float) -> str | None:
    """Return why a solver cannot be used, also because of the memory that it needs."""
    return solver.refuses(problem) or _too_large(float(solver.memory(problem)), max_memory)


def _too_large(needed: float, max_memory: float) -> str | None:
    if needed <= max_memory:
        return None
    return (
        f"needs {needed / 2**30:.3g} GiB for its state "
        f"(limit: max_memory = {max_memory / 2**30:.3g} GiB)"
    )
