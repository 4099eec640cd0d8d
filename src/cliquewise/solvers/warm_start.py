"""Warm starts: whether a state of another problem is a valid start for this one."""

from __future__ import annotations

from cliquewise.errors import DataError
from cliquewise.problems.base import Problem
from cliquewise.problems.fingerprint import listed
from cliquewise.solvers.base import AnySolver, ReusesState, State, Warm

#: What may differ for solvers that do not say otherwise (see `ReusesState`).
ONLY_C = frozenset({"C"})


def begin(solver: AnySolver, problem: Problem, warm: Warm = None) -> State:
    """Return a state to start from; ``warm`` is used only if it remains valid for this problem.

    Raises
    ------
    DataError
        If ``warm`` is of other examples.
    """
    if isinstance(warm, State) and not _is_valid(solver, problem, warm):
        warm = None
    state: State = solver.init(problem, warm)
    return state


def _is_valid(solver: AnySolver, problem: Problem, warm: State) -> bool:
    """Whether a state of the same examples, or of the first of them, can be reused."""
    if warm.origin is None:
        return False
    tolerated = solver.tolerated_changes(problem) if isinstance(solver, ReusesState) else ONLY_C
    n = min(warm.origin.n_examples, problem.n_examples)
    differences = warm.origin.differences(problem.fingerprint(n))
    wrong = [part for part in differences if part not in tolerated]
    if "features" in wrong or "labels" in wrong:
        raise DataError(
            "a warm start needs at least the same examples, and their "
            f"{listed(wrong)} differ; start without it"
        )
    return not wrong
