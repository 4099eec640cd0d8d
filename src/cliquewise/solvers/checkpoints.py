"""Checkpoints: what they contain, and how a run continues from one.

A checkpoint contains the arrays of the solver's state, the trace so far, and the random state. It
is checked as untrusted input: every index, size and number is tested before a kernel uses it. A
resumed run does not trust any bound in the file. It recomputes what the arrays prove, so it agrees
with an uninterrupted run up to rounding errors, and its certificates are its own. Some solvers keep
sums over outputs that cannot be recomputed (`KeepsSums`): as SECURITY.md says, resume only your own
checkpoints. States in model files are read by `unpack_untrusted`.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from cliquewise.errors import DataError
from cliquewise.persistence import read_arrays
from cliquewise.problems.base import Problem
from cliquewise.problems.fingerprint import Fingerprint, listed
from cliquewise.solvers.base import (
    AnySolver,
    Arrays,
    Checkpointing,
    KeepsSums,
    State,
    other_data,
)
from cliquewise.trace import Trace

if TYPE_CHECKING:
    from cliquewise.solvers.run import Run

#: Names of the arrays of the run itself begin with this; all others are the solver's.
RUN = "run/"


# ---- writing


def to_file(run: Run, state: State) -> tuple[Arrays, dict[str, Any]]:
    """Return the arrays and the header of a checkpoint."""
    solver, trace = run.solver, run.trace
    assert isinstance(solver, Checkpointing)
    arrays = {name: np.ascontiguousarray(part) for name, part in solver.pack(state).items()}
    rows = np.array([list(row.values()) for row in trace])
    arrays[RUN + "trace"] = rows.reshape(len(trace), len(trace.columns))
    arrays[RUN + "estimates"] = np.array(run.estimates).reshape(-1, 2)
    header = {
        "kind": "checkpoint",
        "solver": solver.name,
        "problem": run.problem.fingerprint().to_header(),
        "epochs": run.epochs,
        "oracle_calls": int(run.calls),
        "seconds": float(run.seconds),
        "finished": bool(run.finished),
        "columns": list(trace.columns),
        "random": _random_state(run.rng),
    }
    return arrays, header


def _random_state(rng: np.random.Generator) -> Any:
    """Return the state of numpy's default generator; None for others."""
    state = rng.bit_generator.state
    return state if state["bit_generator"] == "PCG64" else None


# ---- reading


def resume_run(run: Run, path: Path) -> State:
    """Return the state in a checkpoint, and give ``run`` its trace, counts and random numbers."""
    arrays, header = read_arrays(path)
    if header.get("kind") != "checkpoint" or "epochs" not in header:
        raise DataError(f"{path}: this is not a checkpoint; delete it or name another file")
    _choose_solver(run, path, header.get("solver"))
    try:
        origin = Fingerprint.from_header(header["problem"])
    except (KeyError, TypeError, ValueError, AttributeError):
        raise DataError(f"{path}: the checkpoint does not identify its problem") from None
    own = {name: part for name, part in arrays.items() if not name.startswith(RUN)}
    state = unpack_same(run.solver, run.problem, own, origin)
    run.epochs = _number(header["epochs"], path, "epochs")
    if not origin.differences(run.problem.fingerprint()):
        _restore_run(run, arrays, header, path)
    return state


def unpack_same(solver: AnySolver, problem: Problem, arrays: Arrays, origin: Fingerprint) -> State:
    """Return the state in arrays that belong to this problem; only C may differ."""
    wrong = [part for part in origin.differences(problem.fingerprint()) if part != "C"]
    if wrong:
        raise other_data(f"its {listed(wrong)} differ")
    state: State = solver.unpack(problem, arrays)  # type: ignore[attr-defined]
    return state


def unpack_untrusted(
    solver: AnySolver, problem: Problem, arrays: Arrays, origin: Fingerprint
) -> State:
    """Return the state in arrays of an untrusted file; its certificates hold in any case."""
    state = unpack_same(solver, problem, arrays, origin)
    return solver.without_sums(problem, state) if isinstance(solver, KeepsSums) else state


def _choose_solver(run: Run, path: Path, name: object) -> None:
    if run.fallback is not None and name == run.fallback.name:
        run.solver, run.fallback = run.fallback, None
    if name != run.solver.name:
        raise DataError(
            f"{path}: the checkpoint is of solver {name!r}, not {run.solver.name!r}; delete it "
            "or use that solver"
        )


def _number(value: object, path: Path, name: str) -> float:
    """Return a number of a header that cannot be negative."""
    if not isinstance(value, int | float) or not 0 <= value < 1e300:
        raise DataError(f"{path}: the checkpoint is damaged: {value!r:.40} {name}")
    return float(value)


def _restore_run(run: Run, arrays: Arrays, header: dict[str, Any], path: Path) -> None:
    """Continue the trace, the counts and the random numbers; bounds are proven again."""
    if RUN + "trace" not in arrays:
        return  # written by version 0.4 or older
    columns, rows = header.get("columns"), arrays.get(RUN + "trace")
    estimates = arrays.get(RUN + "estimates")
    fits = (
        isinstance(columns, list)
        and tuple(columns) == run.trace.columns
        and rows is not None
        and rows.dtype == np.float64
        and rows.shape[1:] == (len(columns),)
        and estimates is not None
        and estimates.dtype == np.float64
        and estimates.shape[1:] == (2,)
    )
    if not fits:
        raise DataError(f"{path}: the checkpoint is damaged: its trace has other columns")
    assert columns is not None and rows is not None and estimates is not None
    run.trace = Trace(columns)
    for row in rows.tolist():
        run.trace.append(**dict(zip(columns, row, strict=True)))
    run.estimates = [(a, b) for a, b in estimates.tolist()]
    run.calls = int(_number(header.get("oracle_calls"), path, "oracle calls"))
    run.earlier_seconds = _number(header.get("seconds"), path, "seconds")
    run.finished = header.get("finished") is True
    if header.get("random") is not None and _random_state(run.rng) is not None:
        try:
            run.rng.bit_generator.state = header["random"]
        except (KeyError, TypeError, ValueError, OverflowError):
            raise DataError(f"{path}: the checkpoint is damaged: its random state") from None
