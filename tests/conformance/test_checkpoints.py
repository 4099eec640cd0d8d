"""Checkpoints of every solver and kind: resumed runs converge, altered files do no harm."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from test_solvers import CASES, ORDINARY, Case, check, every_case, solve

from cliquewise.errors import CliquewiseError
from cliquewise.persistence import read_arrays, write_arrays
from cliquewise.solvers.base import KeepsSums
from cliquewise.solvers.checkpoints import RUN, unpack_untrusted
from cliquewise.solvers.run import Fit

Array = np.ndarray[Any, Any]
#: Passes to the checkpoint, and in all.
BEFORE, WHOLE = 4, 9
#: Alterations of every array that are tried.
TRIED = dict.fromkeys(("chain", "label_sets", "candidates", "matching", "examples"), 8)
TRIED |= {"graph": 3, "deep": 3, "labels": 8, "label_graph": 3}
SEED = 0


def started(case: Case, path: Path, **options: Any) -> Fit:
    options = {"checkpoint": path, "checkpoint_seconds": 0, **options}
    return solve(case.build(ORDINARY), case.solver, tol=-np.inf, max_epochs=BEFORE, **options)


def resumed(case: Case, path: Path, **options: Any) -> Fit:
    options = {"checkpoint": path, "resume": True, "tol": -np.inf, **options}
    return solve(case.build(ORDINARY), case.solver, **options)


@every_case
def test_resumed_run_continues_from_the_checkpoint(case: Case, tmp_path: Path) -> None:
    path = tmp_path / "run"
    first = started(case, path)
    again = resumed(case, path, max_epochs=WHOLE, random_state=99)
    assert again.epochs >= first.epochs
    # The trace of the first run is continued; its last row may be newer than its checkpoint.
    rows = min(len(first.trace), len(again.trace)) - 1
    assert again.trace.primal[:rows].tobytes() == first.trace.primal[:rows].tobytes()
    for row in again.trace:
        check(row["primal"], row["dual"], case.reference(ORDINARY))


@pytest.mark.parametrize("name", ["sdca", "lbfgs", "sag"])
def test_resumed_run_equals_an_uninterrupted_one(name: str, tmp_path: Path) -> None:
    case = next(c for c in CASES if c.solver.name == name and c.family.kind == "chain")
    path = tmp_path / "run"
    started(case, path)
    whole = solve(case.build(ORDINARY), case.solver, tol=-np.inf, max_epochs=WHOLE)
    again = resumed(case, path, max_epochs=WHOLE, random_state=99)
    assert again.epochs == whole.epochs
    np.testing.assert_allclose(again.weights, whole.weights, rtol=1e-9, atol=1e-12)
    assert again.certificate.dual == pytest.approx(whole.certificate.dual, rel=1e-12)


def test_resuming_a_finished_run_changes_nothing(tmp_path: Path) -> None:
    case = next(case for case in CASES if case.solver.name == "lbfgs")
    problem, path = case.build(ORDINARY), tmp_path / "run"
    options = {"tol": -np.inf, "checkpoint": path, "checkpoint_seconds": 0}
    whole = solve(problem, case.solver, max_epochs=10_000, **options)
    again = solve(problem, case.solver, max_epochs=20_000, resume=True, **options)
    assert whole.epochs < 10_000
    assert again.epochs == whole.epochs
    assert again.weights.tobytes() == whole.weights.tobytes()


# ---- altered files with correct checksums


def alterations(array: Array, rng: np.random.Generator) -> Iterator[Array]:
    """Yield the array with invalid numbers, sizes or types."""
    yield array[:-1] if len(array) else np.zeros((3, *array.shape[1:]), array.dtype)
    yield np.concatenate([array, array])
    yield array[None]
    yield array.astype(np.float32 if array.dtype.kind == "f" else np.float64)
    if not array.size:
        return
    kind = array.dtype.kind
    wild: list[Any] = [-1, -(2**30), 2**30, 1, 0]
    if kind == "f":
        wild = [np.nan, np.inf, -np.inf, -1.0, 1e308, 1e-300, 0.5, 3.0, 1e6, 0.0]
    elif kind == "b":
        wild = [True, False]
    for value in wild:
        one, every = array.copy(), np.full_like(array, value)
        one[tuple(rng.integers(0, size) for size in array.shape)] = value
        yield from (one, every)
    yield rng.permutation(array)


@every_case
def test_altered_checkpoint_is_rejected_or_proves_only_true_bounds(
    case: Case, tmp_path: Path
) -> None:
    path, altered = tmp_path / "run", tmp_path / "altered"
    started(case, path)
    (arrays, header), rng = read_arrays(path), np.random.default_rng(SEED)
    reference, refused, tried = case.reference(ORDINARY), 0, 0
    # Sums over outputs cannot be verified: then only crashes are excluded.
    verified = not isinstance(case.solver, KeepsSums)
    for name in [name for name in arrays if not name.startswith(RUN)]:
        every: list[Array | None] = [None, *alterations(arrays[name], rng)]
        for at in rng.permutation(len(every))[: TRIED[case.family.kind]]:
            parts = {**arrays, name: every[at]}
            write_arrays(altered, {n: p for n, p in parts.items() if p is not None}, header)
            tried += 1
            try:
                fit = resumed(case, altered, max_epochs=BEFORE + 2)
            except CliquewiseError:
                refused += 1
                continue
            for row in fit.trace if verified else ():
                check(row["primal"], row["dual"], reference)
    assert refused > 0.2 * tried


@every_case
def test_altered_state_in_an_untrusted_file_proves_only_true_bounds(case: Case) -> None:
    if not isinstance(case.solver, KeepsSums):
        pytest.skip("its certificates do not rest on stored sums")
    problem, solver = case.build(ORDINARY), case.solver
    arrays = solver.pack(solve(problem, solver, tol=-np.inf, max_epochs=BEFORE).state)
    rng, reference = np.random.default_rng(SEED), case.reference(ORDINARY)
    for name, array in arrays.items():
        for other in list(alterations(np.asarray(array), rng))[: TRIED[case.family.kind]]:
            parts = {**arrays, name: other}
            try:
                state = unpack_untrusted(solver, problem, parts, problem.fingerprint())
            except CliquewiseError:
                continue
            proof = solver.certify(problem, state)
            check(proof.primal, proof.dual, reference)


@every_case
def test_bounds_in_the_header_of_a_checkpoint_are_ignored(case: Case, tmp_path: Path) -> None:
    path = tmp_path / "run"
    started(case, path)
    arrays, header = read_arrays(path)
    write_arrays(path, arrays, {**header, "best": [1e9, 0.0]})
    fit = resumed(case, path, max_epochs=BEFORE + 5)
    for row in fit.trace:
        check(row["primal"], row["dual"], case.reference(ORDINARY))


@pytest.mark.parametrize("change", [
    {"oracle_calls": -1}, {"seconds": "long"}, {"columns": ["gap"]}, {"columns": None},
    {"random": {"bit_generator": "PCG64", "state": -1}},
])  # fmt: skip
def test_damaged_counts_of_a_checkpoint_are_rejected(
    change: dict[str, Any], tmp_path: Path
) -> None:
    case, path = CASES[0], tmp_path / "run"
    started(case, path)
    arrays, header = read_arrays(path)
    write_arrays(path, arrays, {**header, **change})
    with pytest.raises(CliquewiseError, match="damaged"):
        resumed(case, path)


@pytest.mark.parametrize("epochs", [-1.0, float("nan"), float("inf"), "many", None, []])
def test_epochs_that_are_not_a_number_are_rejected(epochs: Any, tmp_path: Path) -> None:
    case, path = CASES[0], tmp_path / "run"
    started(case, path)
    arrays, header = read_arrays(path)
    write_arrays(path, arrays, {**header, "epochs": epochs})
    with pytest.raises(CliquewiseError, match="epochs"):
        resumed(case, path)
