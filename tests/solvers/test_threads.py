"""SDCA in several threads: the certificate is true whatever races did, and the optimum the same."""

from __future__ import annotations

import os
import signal
import threading
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from chain_problems import ChainRecipe, Enumeration, chain_recipes, random_problem
from hypothesis import given, settings
from hypothesis import strategies as st

from cliquewise.problems.chain import ChainProblem
from cliquewise.solvers.backends.base import DualSettings
from cliquewise.solvers.backends.chain import parallel as threads
from cliquewise.solvers.backends.chain.duals import ChainDuals
from cliquewise.solvers.run import run
from cliquewise.solvers.sdca import SDCA


@pytest.fixture(autouse=True)
def even_small_problems(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let threads work on problems that one would solve at once."""
    monkeypatch.setattr(threads, "MIN_SEQUENCES", 1)
    monkeypatch.setattr(threads, "MIN_WORK", 1.0)
    monkeypatch.setattr(threads, "MAX_THREADS", 8)


def in_threads(problem: ChainProblem, jobs: int) -> ChainProblem:
    """The same problem, for so many threads."""
    return ChainProblem(problem.model, problem.data, problem.C, None, jobs, problem.loss)


@settings(max_examples=40)
@given(
    recipe=chain_recipes(max_log_c=1), jobs=st.sampled_from([2, 4, 8]), examples=st.integers(2, 12),
    pairs=st.sampled_from([0, 0, 2]),
)  # fmt: skip
def test_certificates_under_threads_are_true(
    recipe: ChainRecipe, jobs: int, examples: int, pairs: int
) -> None:
    problem = replace(recipe, examples=examples, pairs=pairs).build()
    optimum = Enumeration(problem).optimum
    fit = run(in_threads(problem, jobs), SDCA(), tol=1e-6, max_epochs=60, random_state=0)
    slack = 1e-10 * (1 + abs(optimum))
    for row in fit.trace:
        assert row["dual"] <= optimum + slack
        assert row["primal"] >= optimum - slack


LARGER = {
    "rows": {},
    "seen pairs": {"pairs": "seen"},
    "lists of pairs": {"pairs": "seen", "k": 70, "n": 40, "longest": 4},
}


@pytest.mark.parametrize("jobs", [2, 4, 8])
@pytest.mark.parametrize("name", LARGER)
def test_threads_find_the_optimum_of_one(name: str, jobs: int) -> None:
    recipe: dict[str, Any] = {"n": 80, "k": 5, "longest": 8, **LARGER[name]}
    problem = random_problem(3, recipe.pop("n"), recipe.pop("k"), recipe.pop("longest"), **recipe)
    alone = run(problem, SDCA(), tol=1e-4, max_epochs=300, random_state=0)
    fit = run(in_threads(problem, jobs), SDCA(), tol=1e-4, max_epochs=300, random_state=0)
    assert fit.converged
    assert fit.certificate.primal == pytest.approx(alone.certificate.primal, rel=2e-4)


def test_the_hinge_loss_is_minimized_in_threads() -> None:
    base = random_problem(5, 60, 4, 6)
    problems = [ChainProblem(base.model, base.data, 1.0, None, jobs, "hinge") for jobs in (1, 3)]
    one, many = (run(p, SDCA(), tol=1e-2, max_epochs=300, random_state=0) for p in problems)
    assert many.converged
    assert many.certificate.primal == pytest.approx(one.certificate.primal, rel=2e-2)


def test_weights_of_a_certificate_are_those_of_the_duals_alone() -> None:
    """Whatever threads did to the running weights; and to the bit, whoever adds them up."""
    problem = random_problem(1, 50, 4, 6)
    solver, rng = SDCA(), np.random.default_rng(0)
    many = in_threads(problem, 3)
    state = solver.init(many)
    for _ in range(3):
        solver.step(many, state, rng)
    state.duals.w[:] = rng.normal(size=len(state.duals.w))  # the worst that races could do
    proof = solver.certify(many, state)
    alone = ChainDuals(problem, DualSettings(0.0, 1.0, True))
    alone.unpack(state.duals.pack())
    alone.refresh()
    assert np.array_equal(alone.w, state.duals.w)
    assert proof.dual == pytest.approx(alone.bound().value, rel=1e-12)


def test_one_thread_gives_the_bits_it_gives_without_the_word() -> None:
    problem = random_problem(2, 40, 4, 6)
    first, second = (run(p, SDCA(), random_state=4) for p in (problem, in_threads(problem, 1)))
    assert np.array_equal(first.weights, second.weights)
    assert SDCA().init(problem).duals.parts is None


def test_little_work_is_left_to_fewer_threads(monkeypatch: pytest.MonkeyPatch) -> None:
    problem = in_threads(random_problem(2, 40, 3, 3), 8)
    monkeypatch.setattr(threads, "MIN_SEQUENCES", 16)
    assert threads.threads_of(problem) == 2
    monkeypatch.setattr(threads, "MIN_WORK", 1e6)
    assert SDCA().init(problem).duals.parts is None


@pytest.mark.parametrize(("before", "after"), [(1, 2), (2, 1), (2, 2), (4, 2)])
def test_checkpoints_go_on_in_any_number_of_threads(
    before: int, after: int, tmp_path: Path
) -> None:
    problem, path = random_problem(6, 60, 4, 6), tmp_path / "state"
    kept = {"checkpoint": path, "checkpoint_seconds": 0.0, "random_state": 0}
    first = run(in_threads(problem, before), SDCA(), tol=0, max_epochs=4, **kept)
    fit = run(in_threads(problem, after), SDCA(), tol=1e-4, max_epochs=300, resume=True, **kept)
    assert fit.converged and fit.epochs > 4
    assert fit.trace[0]["dual"] == first.trace[0]["dual"]


def test_threads_exchange_more_often_when_the_dual_falls_and_end_as_one() -> None:
    problem = in_threads(random_problem(6, 60, 4, 6), 4)
    state = SDCA().init(problem)
    SDCA().step(problem, state, np.random.default_rng(0))
    seen = []
    for dual in (1e3, 1e2, 10.0):
        state.duals.watch(dual)
        seen.append(None if state.duals.parts is None else state.duals.parts.parts[0].every)
    assert seen == [2, 1, None]
    fit = run(problem, SDCA(), tol=1e-4, max_epochs=300, warm=state)
    assert fit.converged


@pytest.mark.parametrize("times", [1, 2])
def test_ctrl_c_in_a_threaded_pass_returns_a_true_result(times: int) -> None:
    """Once, it ends after the step; twice, at once: but never while a thread still works."""
    base = random_problem(4, 400, 8, 30)
    problem = in_threads(base, 4)
    run(problem, SDCA(), max_epochs=1)  # compiles
    before = signal.signal(signal.SIGINT, signal.default_int_handler)

    def press() -> None:
        for _ in range(times):
            os.kill(os.getpid(), signal.SIGINT)
            time.sleep(0.002)

    timer = threading.Timer(0.1, press)
    try:
        timer.start()
        fit = run(problem, SDCA(), tol=-np.inf, max_epochs=np.inf, max_seconds=60)
        timer.join()
    finally:
        signal.signal(signal.SIGINT, before)
    assert fit.interrupted
    assert threading.active_count() == 1 + sum(t.daemon for t in threading.enumerate())
    assert fit.certificate.primal == pytest.approx(base.primal(fit.weights), rel=1e-12)
    best = run(base, SDCA(), tol=1e-6, max_epochs=300).certificate
    assert fit.certificate.dual <= best.primal
    assert fit.certificate.primal >= best.dual


def test_sequences_are_dealt_evenly() -> None:
    lengths = np.random.default_rng(0).integers(0, 50, 1001)
    for jobs in (2, 3, 8):
        owner = threads.distribute(lengths, jobs)
        counts = np.bincount(owner)
        assert np.ptp(counts) <= 1
        assert np.ptp(np.bincount(owner, lengths)) <= 3 * 50
