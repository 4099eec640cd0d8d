"""Ctrl-C at any moment: the run ends with a true certificate and is never lost."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from chain_problems import ChainRecipe
from test_cliquewise import small_problem

from cliquewise.problems.chain import ChainProblem
from cliquewise.solvers.bcfw import BCFW
from cliquewise.solvers.lbfgs import LBFGS
from cliquewise.solvers.run import Run, run
from cliquewise.solvers.sdca import SDCA

TESTS = Path(__file__).parent.parent

#: Interrupts runs of several solvers and kinds, once or twice each, and looks at what they return.
CHILD = """
import os, signal, sys, threading, time, traceback, warnings
import numpy as np
sys.path[:0] = [{tests!r}, {tests!r} + "/conformance"]
warnings.simplefilter("ignore")
signal.signal(signal.SIGINT, signal.default_int_handler)  # a background job ignores it
from solver_problems import FAMILIES, Recipe
from cliquewise.solvers import get
from cliquewise.solvers.lbfgs import LBFGS
from cliquewise.solvers.run import Run, run

recipe = Recipe(7, examples=5, weights=True)
rng = np.random.default_rng(int(sys.argv[1]))
count = 0
for text in sys.argv[2:]:
    kind, loss, name = text.split("-")
    family = next(f for f in FAMILIES if (f.kind, f.loss) == (kind, loss))
    problem, solver = family.build(recipe), get(name, kind)
    low, high = family.reference(recipe, kind in solver.capabilities.relaxed_on).bracket
    run(problem, solver, max_epochs=3, tol=-np.inf)
    for times in (1, 2, 2):
        def press():
            time.sleep(0.02 + 0.1 * rng.random())
            for _ in range(times):
                os.kill(os.getpid(), signal.SIGINT)
                time.sleep(0.001 * rng.random())
        thread = threading.Thread(target=press)
        thread.start()
        fit, lost = None, ""
        try:
            try:
                fit = run(problem, solver, max_epochs=np.inf, tol=-np.inf, max_seconds=60)
                thread.join()
            except KeyboardInterrupt:  # one that came before the run began, or when all was over
                lost = traceback.format_exc()
                thread.join()
        except KeyboardInterrupt:  # and the other one, while this one was waiting
            thread.join()
        if fit is None:
            assert "in _train" not in lost, lost
            continue
        count += fit.interrupted  # or it could not go on, and was over before
        slack = 1e-9 * (1 + abs(high))
        assert fit.certificate.dual <= high + slack, (text, fit.certificate)
        assert fit.certificate.primal >= low - slack, (text, fit.certificate)
        on = run(problem, solver, max_epochs=3, tol=-np.inf, warm=fit.state)
        assert on.certificate.dual <= high + slack, (text, on.certificate)
assert count >= len(sys.argv) // 2, count
print("done")
"""


def test_ctrl_c_at_any_moment_returns_the_run_with_a_true_certificate() -> None:
    cases = ("chain-log-sdca", "chain-hinge-bcfw", "chain-hinge-gdmm", "chain-hinge-subgradient",
             "graph-log-idal", "graph-hinge-bcfw", "candidates-hinge-bcfw", "label_sets-hinge-gdmm",
             "examples-hinge-casimir")  # fmt: skip
    child = CHILD.format(tests=str(TESTS))
    done = subprocess.run(
        [sys.executable, "-c", child, "0", *cases], capture_output=True, text=True, timeout=300
    )
    assert done.stdout.strip() == "done", done.stderr


@pytest.mark.parametrize("cut", ["before", "within", "after"])
def test_an_interrupt_within_a_step_leaves_what_was_proved(
    cut: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    base = ChainRecipe(7, examples=6).build()
    problem = ChainProblem(base.model, base.data, loss="hinge")
    turns, original = [0], BCFW.step

    def step(self, problem, state, rng):
        turns[0] += 1
        if turns[0] == 4 and cut == "before":
            raise KeyboardInterrupt
        if turns[0] == 4 and cut == "within":
            state.outputs.visit(np.arange(6), np.zeros(6))
            raise KeyboardInterrupt
        result = original(self, problem, state, rng)
        if turns[0] == 4:
            raise KeyboardInterrupt
        return result

    monkeypatch.setattr(BCFW, "step", step)
    fit = run(problem, BCFW(), tol=-np.inf, max_epochs=20, random_state=0)
    assert fit.interrupted and fit.epochs == 3
    assert fit.certificate.primal == pytest.approx(problem.primal(fit.weights), rel=1e-12)
    best = run(problem, SDCA(), tol=1e-7, max_epochs=2000, random_state=0).certificate
    assert fit.certificate.dual <= best.primal


def test_an_interrupt_while_another_solver_takes_over_leaves_the_first_one(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    base = ChainRecipe(7, examples=6).build()
    problem = ChainProblem(base.model, base.data, C=1e4)

    def interrupted(self, problem, warm=None):
        raise KeyboardInterrupt

    monkeypatch.setattr(LBFGS, "init", interrupted)
    monkeypatch.setattr(Run, "is_slow", lambda self: True)
    fit = run(problem, SDCA(), tol=1e-12, max_epochs=20, random_state=0, fallback=LBFGS())
    assert fit.interrupted and fit.solver == "sdca"
    assert fit.certificate.primal == pytest.approx(problem.primal(fit.weights), rel=1e-12)


@pytest.mark.parametrize("what", ["kill_and_resume", "disk_full"])
def test_runs_that_are_killed_or_cannot_write_end_as_if_nothing_had_happened(what: str) -> None:
    from fuzz import interrupts

    for seed in range(4):
        assert getattr(interrupts, what)(np.random.default_rng(seed)) is None


def test_an_interrupted_row_of_a_graph_leaves_nothing_behind(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    from cliquewise._kernels.cliques import features

    problem = small_problem(7, loss="hinge")
    assert problem.n_examples > 1
    w = np.random.default_rng(0).normal(size=problem.dimension)
    before = problem.best(w, 0).row
    original = features.collect_example

    def interrupted(*args):
        original(*args)
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(features, "collect_example", interrupted)
        with pytest.raises(KeyboardInterrupt):
            problem.best(w, 1)
    after = problem.best(w, 0).row
    np.testing.assert_array_equal(after.indices, before.indices)
    np.testing.assert_array_equal(after.values, before.values)
