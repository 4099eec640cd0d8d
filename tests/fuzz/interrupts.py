"""Interrupts: runs that are killed, or whose disk is full, end as if nothing had happened."""

from __future__ import annotations

import contextlib
import os
import resource
import signal
import sys
import tempfile
import time
import warnings
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from cliquewise.persistence import read_arrays
from cliquewise.solvers import registered
from cliquewise.solvers.run import Fit, run

from .drawing import Rng, chance, pick
from .findings import Report, Trouble

sys.path.append(str(Path(__file__).parents[1] / "conformance"))

#: Passes of a run; what keeps no state to the bit (networks: the linearization at hand).
EPOCHS, INEXACT = (5, 60), ("prox_linear",)


class Drawn(NamedTuple):
    """A problem of some kind, a solver for it, and how far it runs."""

    name: str
    problem: Any
    solver: Any
    options: dict[str, Any]


@cache
def _cases() -> list[tuple[Any, Any]]:
    from solver_problems import FAMILIES

    return [
        (family, cls())
        for family in FAMILIES
        for cls in registered(family.kind)
        if family.loss in cls.capabilities.losses[family.kind] and cls.name not in INEXACT
    ]


def _drawn(rng: Rng) -> Drawn:
    from solver_problems import Recipe

    while True:
        family, solver = _cases()[int(rng.integers(len(_cases())))]
        recipe = Recipe(
            int(rng.integers(2**31)), examples=int(rng.integers(max(family.fewest, 1), 6)),
            size=int(rng.integers(1, 5)), C=float(10 ** rng.uniform(-2, 2)),
            weights=chance(rng, 0.5), sparse=chance(rng, 0.5), seen=chance(rng, 0.5),
            forbid=chance(rng, 0.3), bare=chance(rng, 0.3), variant=int(rng.integers(3)),
        )  # fmt: skip
        problem = family.build(recipe)
        if solver.refuses(problem) is None:
            epochs = int(rng.integers(*EPOCHS)) if family.kind != "graph" else 8
            options = {"tol": -np.inf, "max_epochs": epochs, "random_state": recipe.seed}
            return Drawn(f"{family}-{solver.name}, {recipe}", problem, solver, options)


def _contradiction(name: str, whole: Fit, again: Fit) -> str | None:
    """Compare a resumed run, which may take another path, with an uninterrupted one."""
    first, second = whole.certificate, again.certificate
    slack = 1e-9 * max(1.0, abs(first.primal))
    agree = first.status == second.status
    if first.status != "none":
        agree = agree and max(first.dual, second.dual) <= min(first.primal, second.primal) + slack
    return None if agree else f"{name}: {second!r} contradicts {first!r}"


def _difference(name: str, whole: Fit, again: Fit) -> str | None:
    if again.weights.tobytes() == whole.weights.tobytes() and (
        again.certificate == whole.certificate
    ):
        return None
    return f"{name}: {again.certificate!r} instead of {whole.certificate!r}"


def kill_and_resume(rng: Rng) -> str | None:
    """Kill a run at random moments, resume it, and compare the proofs of both runs."""
    drawn = _drawn(rng)
    begin = time.perf_counter()
    whole = run(drawn.problem, drawn.solver, **drawn.options)
    seconds = 3 * (time.perf_counter() - begin)
    with tempfile.TemporaryDirectory() as folder:
        files = {"checkpoint": Path(folder) / "run", "checkpoint_seconds": 0, "resume": True}
        for _ in range(int(rng.integers(1, 4))):
            _killed(drawn, files, min(rng.random() * seconds, 2.0))
        left = [name for name in os.listdir(folder) if not name.startswith(".")]
        if left not in ([], ["run"]):
            return f"{drawn.name}: {left} are left"
        options = {**drawn.options, "random_state": 1} if left else drawn.options
        again = run(drawn.problem, drawn.solver, **options, **files)
    return _contradiction(drawn.name, whole, again)


def _killed(drawn: Drawn, files: dict[str, Any], after: float) -> None:
    """A child that trains, and is killed after some seconds."""
    child = os.fork()
    if child == 0:
        try:
            run(drawn.problem, drawn.solver, **drawn.options, **files)
        finally:
            os._exit(0)
    time.sleep(after)
    os.kill(child, signal.SIGKILL)
    os.waitpid(child, 0)


@contextlib.contextmanager
def _small_files(most: int) -> Iterator[None]:
    """No file may have more bytes."""
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (most, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))


def disk_full(rng: Rng) -> str | None:
    """Let the disk be full from some step on for a while; what is then different."""
    drawn = _drawn(rng)
    whole = run(drawn.problem, drawn.solver, **drawn.options)
    rows = max(len(whole.trace), 1)
    first = int(rng.integers(rows))
    last, most, seen = first + int(rng.integers(1, rows + 1)), int(rng.integers(2000)), [0]
    with tempfile.TemporaryDirectory() as folder, contextlib.ExitStack() as full:
        path = Path(folder) / "run"

        def count(row: dict[str, float]) -> None:
            if seen[0] == first:
                full.enter_context(_small_files(most))
            elif seen[0] == last:
                full.close()
            seen[0] += 1

        with warnings.catch_warnings(record=True) as said:
            warnings.simplefilter("always")
            files = {"checkpoint": path, "checkpoint_seconds": 0}
            through = run(drawn.problem, drawn.solver, callback=count, **drawn.options, **files)
        full.close()
        if any("could not be written" not in str(w.message) for w in said):
            return f"{drawn.name}: {[str(w.message) for w in said]}"
        if os.listdir(folder) not in ([], ["run"]):
            return f"{drawn.name}: {os.listdir(folder)} are left"
        trouble = _difference(drawn.name, whole, through)
        if trouble is not None or not path.exists():
            return trouble
        read_arrays(path)
        files["resume"] = True
        again = run(drawn.problem, drawn.solver, **drawn.options, **files)
        return _difference(drawn.name, whole, again)


# ---- as a part of the fuzzer


def draw(rng: Rng) -> dict[str, Any]:
    """What happens, and the seed of everything else."""
    return {"what": pick(rng, "kill_and_resume", "disk_full"), "seed": int(rng.integers(2**31))}


def check(case: dict[str, Any]) -> Report:
    """Whether the run ends as it would have."""
    trouble = globals()[case["what"]](np.random.default_rng(case["seed"]))
    if trouble is None:
        return Report(1)
    return Report(1, Trouble(f"{case['what']} changes {trouble.split(',')[0]}", trouble))
