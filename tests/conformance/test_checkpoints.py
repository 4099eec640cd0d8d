"""Checkpoints of every solver and kind: resumed to the bit, harmless however they are altered."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from test_solvers import CASES, ORDINARY, Case, check, every_case, solve

from cliquewise.errors import CliquewiseError
from cliquewise.persistence import read_arrays, write_arrays
from cliquewise.solvers.checkpoints import COURSE
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
def test_a_resumed_run_equals_one_that_was_not_interrupted(case: Case, tmp_path: Path) -> None:
    if case.solver.name == "prox_linear":
        pytest.skip("the linearization at hand is not kept")
    path = tmp_path / "run"
    started(case, path)
    whole = solve(case.build(ORDINARY), case.solver, tol=-np.inf, max_epochs=WHOLE)
    again = resumed(case, path, max_epochs=WHOLE, random_state=99)
    assert again.weights.tobytes() == whole.weights.tobytes()
    assert again.certificate == whole.certificate
    assert again.epochs == whole.epochs
    assert again.trace.primal.tobytes() == whole.trace.primal.tobytes()


def test_a_run_that_was_finished_is_not_changed_by_resuming_it(tmp_path: Path) -> None:
    case = next(case for case in CASES if case.solver.name == "lbfgs")
    problem, path = case.build(ORDINARY), tmp_path / "run"
    options = {"tol": -np.inf, "checkpoint": path, "checkpoint_seconds": 0}
    whole = solve(problem, case.solver, max_epochs=10_000, **options)
    again = solve(problem, case.solver, max_epochs=20_000, resume=True, **options)
    assert whole.epochs < 10_000
    assert again.epochs == whole.epochs
    assert again.weights.tobytes() == whole.weights.tobytes()


# ---- altered by somebody who can make check sums


def alterations(array: Array, rng: np.random.Generator) -> Iterator[Array]:
    """The array with numbers, sizes or types that it must not have."""
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
def test_an_altered_checkpoint_is_refused_or_proves_nothing_wrong(
    case: Case, tmp_path: Path
) -> None:
    path, altered = tmp_path / "run", tmp_path / "altered"
    started(case, path)
    (arrays, header), rng = read_arrays(path), np.random.default_rng(SEED)
    reference, refused, tried = case.reference(ORDINARY), 0, 0
    for name in [name for name in arrays if not name.startswith(COURSE)]:
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
            for row in fit.trace:
                check(row["primal"], row["dual"], reference)
    assert refused > 0.2 * tried


@every_case
def test_a_checkpoint_of_somebody_else_goes_on_with_true_proofs(case: Case, tmp_path: Path) -> None:
    path = tmp_path / "run"
    started(case, path)
    arrays, header = read_arrays(path)
    write_arrays(path, arrays, {**header, "seal": "0" * 32, "best": [1e9, 0.0], "calls": -1})
    fit = resumed(case, path, max_epochs=BEFORE + 5)
    for row in fit.trace:
        check(row["primal"], row["dual"], case.reference(ORDINARY))


@pytest.mark.parametrize("epochs", [-1.0, float("nan"), float("inf"), "many", None, []])
def test_epochs_that_are_no_number_are_refused(epochs: Any, tmp_path: Path) -> None:
    case, path = CASES[0], tmp_path / "run"
    started(case, path)
    arrays, header = read_arrays(path)
    write_arrays(path, arrays, {**header, "epochs": epochs})
    with pytest.raises(CliquewiseError, match="passes"):
        resumed(case, path)
