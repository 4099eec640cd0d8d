"""GDMM on graphs: three steps, three searches, one optimum, and bounds that enclose it."""

from __future__ import annotations

import numpy as np
import pytest
from relaxed_program import reference_optimum
from test_cliquewise import augmented, small_problem

import cliquewise as cw
from cliquewise._kernels.cliques import factors as kernels
from cliquewise._kernels.cliques.ascent import Tour
from cliquewise.errors import DataError
from cliquewise.solvers.backends.graph.factors import RULES
from cliquewise.solvers.gdmm import GDMM
from cliquewise.solvers.idal import IDAL
from cliquewise.solvers.planner import choose
from cliquewise.solvers.run import run

#: Relative gap asked for; the optimum of a generic solver is then met to 1e-4.
TOL = 2e-5


@pytest.mark.parametrize("step", RULES)
@pytest.mark.parametrize("block", range(4))
def test_every_step_meets_a_generic_solver_and_its_bounds_enclose_the_optimum(step, block):
    for seed in range(6 * block, 6 * block + 6):
        problem = small_problem(seed, loss="hinge", entropy="gini")
        best = reference_optimum(problem)
        scale = max(abs(best), 1.0)
        fit = run(problem, GDMM(step), tol=TOL, max_epochs=3000, random_state=seed)
        assert np.all(fit.trace.primal >= best - 1e-6 * scale), seed
        assert np.all(fit.trace.dual <= best + 1e-6 * scale), seed
        assert fit.certificate.primal == pytest.approx(best, rel=1e-4, abs=1e-6), seed


def test_idal_with_little_entropy_ends_at_the_same_weights_and_value():
    for seed in (1, 4, 7, 16):
        problem = small_problem(seed, loss="hinge", entropy="gini")
        nearly = small_problem(seed, loss="softmax_margin", gamma=1e-5, entropy="gini")
        fits = [
            run(p, s, tol=TOL, max_epochs=3000, random_state=0)
            for p, s in ((problem, GDMM()), (nearly, IDAL()))
        ]
        one, two = (fit.certificate.primal for fit in fits)
        assert one == pytest.approx(two, rel=1e-4, abs=1e-4)


@pytest.mark.parametrize("seed", [1, 5, 9])
@pytest.mark.parametrize("loss", ["log", "softmax_margin"])
def test_with_an_entropy_it_ends_where_idal_ends(seed, loss):
    problem = small_problem(seed, loss=loss, gamma=1.0, entropy="gini")
    wanted = run(problem, IDAL(), tol=1e-6, max_epochs=1000, random_state=0).certificate.primal
    for step in RULES:
        fit = run(problem, GDMM(step), tol=TOL, max_epochs=1000, random_state=1)
        assert fit.converged
        assert fit.certificate.primal == pytest.approx(wanted, rel=1e-4)


@pytest.mark.parametrize("options", [
    {"factor_search": "sampled"}, {"factor_search": "full"}, {"adaptive": True}, {"eta": 0.5},
    {"step_rule": "bgcd", "factor_search": "sampled"},
    {"step_rule": "afw", "factor_search": "sampled"},
])  # fmt: skip
def test_searches_and_multiplier_steps_only_change_the_way(options):
    problem = small_problem(9, loss="hinge", entropy="gini")
    wanted = run(problem, GDMM(), tol=1e-6, max_epochs=3000, random_state=0)
    fit = run(problem, GDMM(**options), tol=TOL, max_epochs=3000, random_state=1)
    assert fit.converged
    assert fit.certificate.primal == pytest.approx(wanted.certificate.primal, rel=1e-4)


@pytest.mark.parametrize("step", RULES)
@pytest.mark.parametrize("seed", range(6))
def test_no_pass_lowers_the_augmented_dual(seed, step):
    problem = small_problem(seed, entropy="gini")
    solver = GDMM(step, rho=1.5)
    factors = solver.init(problem)
    state = factors.ascent
    rng = np.random.default_rng(seed)
    state.point.xi[:] = rng.normal(size=len(state.point.xi))
    state.set_rho(state.rho)
    before = augmented(problem, state.point.mu, state.point.xi, state.rho)
    data, examples = problem.data, np.arange(len(problem.data))
    for _ in range(5):
        kernels.factor_sweep(
            problem.cliques, problem.terms, state.point, state.rho, state.steps,
            kernels.Rule(RULES.index(step), 1, 0.5), state.gaps, factors.active,
            Tour(data.node_offsets, data.edge_offsets, examples, state.by_example, state.place),
            0.0, rng.integers(0, 2**63, 1, dtype=np.uint64),
        )  # fmt: skip
        after = augmented(problem, state.point.mu, state.point.xi, state.rho)
        assert after >= before - 1e-10 * max(abs(before), 1.0)
        before = after


def ring_problem() -> tuple[list, list]:
    """Rings whose nodes show their labels."""
    rng = np.random.default_rng(0)
    labels = rng.integers(0, 3, (20, 12))
    ring = [(i, (i + 1) % 12) for i in range(12)]
    return [(4.0 * np.eye(3)[row], ring) for row in labels], list(labels)


def test_the_greedy_step_begins_with_few_cliques():
    X, y = ring_problem()
    labeler = cw.GraphLabeler("hinge", solver=GDMM("bgcd"), max_epochs=4, tol=1.0)
    labeler.fit(X, y)
    assert labeler.trace_.oracle_calls[-1] < 0.7 * labeler.n_iter_ * 20 * 24


def test_a_labeler_trains_with_it_and_predicts_by_the_same_relaxation():
    X, y = ring_problem()
    labeler = cw.GraphLabeler("hinge", solver="gdmm", tol=1e-2, random_state=0).fit(X, y)
    assert labeler.certificate_.gap <= 1e-2
    assert labeler.solver_ == "gdmm"
    assert np.array_equal(np.concatenate(labeler.predict(X)), np.concatenate(y))


def test_gdmm_means_the_solver_of_graphs_and_keeps_its_parameters():
    problem = small_problem(4, loss="hinge", entropy="gini")
    assert choose(problem, "gdmm").solver == GDMM()
    given = GDMM("afw", "full", 2.0, 0.5)
    assert choose(problem, given).solver is given


def test_the_same_seed_gives_the_same_bits_and_a_checkpoint_goes_on():
    problem = small_problem(7, loss="hinge", entropy="gini")
    solver = GDMM("bgcd")
    one, two = (run(problem, solver, max_epochs=10, tol=0, random_state=3) for _ in range(2))
    assert np.array_equal(one.weights, two.weights)
    restored = solver.unpack(problem, solver.pack(one.state))
    np.testing.assert_allclose(restored.weights(), one.weights, atol=1e-9)
    again = run(problem, solver, tol=TOL, max_epochs=3000, random_state=0, warm=one.state)
    assert again.converged


@pytest.mark.parametrize("options", [
    {"step_rule": "fw"}, {"factor_search": "none"}, {"eta": 0}, {"eta": float("nan")},
    {"rho": -1.0}, {"rho": "x"},
])  # fmt: skip
def test_bad_parameters_are_named(options):
    with pytest.raises(DataError, match=next(iter(options))):
        GDMM(**options)
