"""What a checkpoint holds, and how a run goes on from it: to the bit as if nothing had happened.

Beside what a solver packs, which is checked and holds by itself, there is the *course*: running
sums, orders, random numbers and the trace, without which the run would go on a little differently.
The course is believed only under a seal (:mod:`cliquewise.solvers.seal`).
"""

from __future__ import annotations

import warnings
from collections.abc import Iterator
from dataclasses import fields, is_dataclass
from pathlib import Path
from typing import Any

import numpy as np

from cliquewise.errors import DataError
from cliquewise.persistence import read_arrays
from cliquewise.problems.fingerprint import Fingerprint
from cliquewise.problems.rounding import Bound
from cliquewise.solvers.base import Arrays, Solver
from cliquewise.solvers.seal import is_sealed, seal_of
from cliquewise.trace import Trace

#: Arrays of the course have this before their names.
COURSE = "course/"


# ---- writing


def content(run: Any, state: Any) -> tuple[Arrays, dict[str, Any]]:
    """Arrays and header of a checkpoint of a run."""
    solver = run.solver
    arrays = {name: np.ascontiguousarray(part) for name, part in solver.pack(state).items()}
    numbers: dict[str, Any] = {}
    for path in _leaves(state, solver.resume_paths(state)):
        value = _get(state, path)
        if isinstance(value, list):
            value = np.stack(value) if value else np.empty((0, 0))
        if isinstance(value, np.ndarray):
            # Pools have room that nothing was written to: it is left out.
            used = len(value) - int(np.argmax(_rows_in_use(value)[::-1])) if value.size else 0
            arrays[COURSE + path] = np.ascontiguousarray(value[:used])
            numbers[path] = len(value)
        else:
            numbers[path] = np.asarray(value).item()
    trace = run.trace
    arrays[COURSE + "trace"] = np.array([list(row.values()) for row in trace]).reshape(
        len(trace), len(trace.columns)
    )
    arrays[COURSE + "estimates"] = np.array(run.estimates).reshape(-1, 2)
    header = {
        "kind": "checkpoint",
        "solver": solver.name,
        "epochs": run.epochs,
        "problem": run.problem.fingerprint().to_header(),
        "setting": repr(solver),
        "resume_paths": numbers,
        "calls": int(run.calls),
        "finished": bool(run.finished),
        "best": [float(number) for number in run.best],
        "seconds": float(run.before + run.seconds),
        "random": _random_state(run.rng),
        "columns": list(trace.columns),
    }
    header["seal"] = seal_of(arrays, header)
    return arrays, header


def _rows_in_use(array: Any) -> Any:
    """Which entries, or rows, are not zero; the first counts as one."""
    used = array.reshape(len(array), -1).any(axis=1)
    used[0] = True
    return used


def _random_state(rng: np.random.Generator) -> Any:
    """The state of the usual generator; of others nothing."""
    state = rng.bit_generator.state
    return state if state["bit_generator"] == "PCG64" else None


# ---- reading


def resume(run: Any, path: Path) -> Any:
    """The state in a checkpoint; ``run`` becomes what it was."""
    arrays, header = read_arrays(path)
    if header.get("kind") != "checkpoint" or "epochs" not in header:
        raise DataError(f"{path}: this is not a checkpoint; delete it or name another file")
    _choose_solver(run, path, header.get("solver"))
    try:
        origin = Fingerprint.from_header(header["problem"])
    except (KeyError, TypeError, ValueError, AttributeError):
        raise DataError(f"{path}: the checkpoint does not say of which problem it is") from None
    del header["version"]
    sealed = is_sealed(arrays, header, header.pop("seal", None))
    own = {name: part for name, part in arrays.items() if not name.startswith(COURSE)}
    state = run.solver.resume(run.problem, own, origin)
    if not sealed:
        warnings.warn(
            f"{path}: the checkpoint is of another user, or was altered. The run goes on "
            "from what its arrays prove by themselves, which may be less than it had reached",
            stacklevel=4,
        )
        state = run.solver.recompute_untrusted(run.problem, state)
        run.epochs = _epochs(header["epochs"], path)
        return state
    run.epochs = float(header["epochs"])
    if not origin.differences(run.problem.fingerprint()):
        _restore_run(run, arrays[COURSE + "trace"], header)
        run.estimates = [(a, b) for a, b in arrays[COURSE + "estimates"].tolist()]
        if header["setting"] == repr(run.solver):
            _restore_course(run.solver, state, arrays, header["resume_paths"])
            run.finished = header.get("finished", False)
    return state


def _choose_solver(run: Any, path: Path, name: Any) -> None:
    if run.fallback is not None and name == run.fallback.name:
        run.solver, run.fallback = run.fallback, None
    if name != run.solver.name:
        raise DataError(
            f"{path}: the checkpoint is of solver {name!r}, not {run.solver.name!r}; delete it "
            "or use that solver"
        )


def _epochs(number: Any, path: Path) -> float:
    """The passes that a checkpoint has seen."""
    if not isinstance(number, int | float) or not 0 <= number < 1e300:
        raise DataError(f"{path}: the checkpoint is damaged: {number!r:.40} passes")
    return float(number)


def _restore_run(run: Any, rows: Any, header: dict[str, Any]) -> None:
    run.calls, run.best = header["calls"], Bound(*header["best"])
    run.before = header["seconds"]
    run.trace = Trace(header["columns"])
    for row in rows.tolist():
        run.trace.append(**dict(zip(header["columns"], row, strict=True)))
    if header["random"] is not None and _random_state(run.rng) is not None:
        run.rng.bit_generator.state = header["random"]


def _restore_course(solver: Solver, state: Any, arrays: Arrays, numbers: dict[str, Any]) -> None:
    for path in _leaves(state, solver.resume_paths(state)):
        if path not in numbers:  # of a run in another number of threads
            continue
        value = numbers[path]
        if COURSE + path not in arrays:
            _put(state, path, value)
            continue
        stored = arrays[COURSE + path]
        if isinstance(_get(state, path), list):
            _put(state, path, list(np.array(stored)))
            continue
        whole = np.zeros((value, *stored.shape[1:]), dtype=stored.dtype)
        whole[: len(stored)] = stored
        _put(state, path, whole)


# ---- places in a state, such as "blocks.pool.alpha"


def _leaves(state: Any, paths: tuple[str, ...]) -> Iterator[str]:
    """The paths, with all fields of records that they lead to."""
    for path in paths:
        value = _get(state, path)
        names: tuple[str, ...] = ()
        if is_dataclass(value):
            names = tuple(field.name for field in fields(value))
        elif isinstance(value, tuple):
            names = value._fields  # type: ignore[attr-defined]
        if names:
            yield from _leaves(state, tuple(f"{path}.{name}" for name in names))
        else:
            yield path


def _get(state: Any, path: str) -> Any:
    for name in path.split("."):
        state = getattr(state, name)
    return state


def _put(state: Any, path: str, value: Any) -> None:
    above, _, name = path.rpartition(".")
    owner = _get(state, above) if above else state
    if isinstance(owner, tuple):  # a named one
        _put(state, above, owner._replace(**{name: value}))  # type: ignore[attr-defined]
    else:
        setattr(owner, name, value)
