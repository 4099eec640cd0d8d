"""A solver followed pass by pass."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from threadpoolctl import threadpool_limits

from cliquewise.problems.chain import ChainProblem
from cliquewise.solvers.base import Info
from cliquewise.solvers.bcfw import BCFW

#: As published by Lacoste-Julien et al., with which the papers compare themselves.
BCFW_2013 = BCFW(step_rule="fw", sampling="uniform", cached_passes=0)


@dataclass
class Course:
    """Where a run was at its checks.

    ``rows`` have ``passes`` (over the data), ``counted`` (the same, or what ``count`` made of it),
    ``seconds`` (of the processor, in steps alone: checks are not counted), ``primal``, ``dual``
    (the best bound so far) and whatever ``score`` adds.
    """

    rows: list[dict[str, float]] = field(default_factory=list)
    weights: np.ndarray = field(default_factory=lambda: np.empty(0))
    state: Any = None


@threadpool_limits.wrap(limits=1)  # as `run` does: BLAS that spins would count as work
def followed(
    problem: Any,
    solver: Any,
    *,
    passes: float = np.inf,
    seconds: float = np.inf,
    every: float = 1.0,
    growth: float = 1.0,
    tol: float = 0.0,
    below: float = -np.inf,
    seed: int = 0,
    count: Callable[[Info], float] | None = None,
    score: Callable[[Any, np.ndarray], dict[str, float]] | None = None,
) -> Course:
    """Run a solver, and certify it every few passes.

    Parameters
    ----------
    problem, solver : Problem, Solver
    passes, seconds, tol, below : float
        It ends after so many passes, so many seconds, at this relative gap, or at a primal value
        at most ``below``; also where the solver has finished. Give ``passes`` or ``seconds``.
    every, growth : float
        A check is ``every`` passes after the last one, or at ``growth`` times as many if that is
        later. The end is checked in any case.
    seed : int
    count : callable, optional
        What a step counts for in a paper that does not count passes, from its ``Info``; then
        ``passes``, ``every`` and ``growth`` are about this.
    score : callable, optional
        From the solver's state and its weights to more columns.
    """
    assert np.isfinite(passes) or np.isfinite(seconds), "a run needs an end"
    ready(problem, solver)
    rng, trajectory = np.random.default_rng(seed), Course()
    begin = time.process_time()
    state = solver.init(problem)
    spent = time.process_time() - begin
    done = counted = 0.0
    mark, best, over = every, -np.inf, False
    while not over:
        begin = time.process_time()
        info = solver.step(problem, state, rng)
        spent += time.process_time() - begin
        done += info.epochs
        counted += info.epochs if count is None else count(info)
        over = counted >= passes - 1e-9 or spent >= seconds or info.finished
        if counted < mark - 1e-9 and not over:
            continue
        mark = max(counted + every, growth * counted)
        proof = solver.certify(problem, state)
        best = max(best, proof.dual)
        weights = np.asarray(solver.weights(problem, state))
        more = score(state, weights) if score is not None else {}
        trajectory.rows.append({"passes": done, "counted": counted, "seconds": spent,
                            "primal": proof.primal, "dual": best, **more})  # fmt: skip
        over = over or proof.primal <= below or proof.primal - best <= tol * abs(proof.primal)
    trajectory.weights, trajectory.state = np.array(solver.weights(problem, state)), state
    return trajectory


def ready(problem: Any, solver: Any) -> None:
    """Two steps and a check, so that no clock counts compilation; on two examples of chains."""
    if isinstance(problem, ChainProblem):
        data = problem.data.subset([0, 1])
        problem = ChainProblem(problem.model, data, problem.C, loss=problem.loss)
    rng, state = np.random.default_rng(0), solver.init(problem)
    for _ in range(2):  # the second step of some asks for more than the first
        solver.step(problem, state, rng)
    solver.certify(problem, state)


def column(rows: list[dict[str, Any]], name: str) -> np.ndarray:
    """One column of the rows; what is None is NaN."""
    return np.array([row[name] for row in rows], dtype=float)


def gaps(rows: list[dict[str, Any]]) -> np.ndarray:
    """Relative gap at the checks."""
    primal = column(rows, "primal")
    return (primal - column(rows, "dual")) / np.abs(primal)


def first(
    rows: list[dict[str, Any]], values: np.ndarray, level: float, by: str = "passes"
) -> float:
    """Where ``values`` are first at or below a level, in passes (or ``by``); infinity if never."""
    hit = np.flatnonzero(values <= level)
    return float(rows[hit[0]][by]) if len(hit) else np.inf


def reachable(level: float, courses: list[list[dict[str, Any]]], name: str) -> float:
    """A level; or, where all of these runs were too short for it, what the best of them reached."""
    return max(level, float(np.nanmin([np.nanmin(column(rows, name)) for rows in courses])))


def words(value: float, form: str = ".0f") -> str:
    """A number for a sentence; "never" for infinity."""
    return format(value, form) if np.isfinite(value) else "never"
