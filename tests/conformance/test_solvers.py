"""Every registered solver against the optimum found by listing all labelings.

Nothing here names a solver that has to pass: they are found through the registry. A new
solver is tried as soon as its file exists, on every problem that it does not refuse.
"""

from __future__ import annotations

import pickle
from functools import cache
from typing import Any

import numpy as np
import pytest
from chain_problems import ChainRecipe, Enumeration, chain_recipes, random_problem
from hypothesis import example, given, settings

from cliquewise.data.dataset import Dataset
from cliquewise.errors import DataError, UnsupportedError
from cliquewise.models.chain import ChainModel
from cliquewise.problems.chain import ChainProblem
from cliquewise.solvers import Solver, get, registered
from cliquewise.solvers.base import choose
from cliquewise.solvers.run import Fit, run

EVERY = [s() for s in sorted(registered(), key=lambda s: s.name)]

#: Solvers of other problems (another loss, graphs that are no chains) only have to refuse.
SOLVERS = [s for s in EVERY if s.refuses(ChainRecipe(0).build()) is None]
every_solver = pytest.mark.parametrize("solver", SOLVERS, ids=lambda s: s.name)

#: A dual value may exceed the optimum, and a primal value fall short of it, by rounding only.
HONEST = 1e-10

#: Relative gap of a run to the optimum; the optimum itself is then asked for to 1e-6.
TOL = 1e-7

LIMIT = 40_000


def solve(problem: ChainProblem, solver: Solver, **options: Any) -> Fit:
    return run(problem, solver, **{"tol": TOL, "max_epochs": LIMIT, "random_state": 0, **options})


def check_row(primal: float, dual: float, optimum: float) -> None:
    slack = HONEST * (1 + abs(optimum))
    assert dual <= optimum + slack
    assert primal >= optimum - slack
    assert primal - dual >= -slack


@cache
def ordinary() -> ChainProblem:
    """A problem with a bit of everything."""
    return ChainRecipe(7, examples=6, labels=3, values=True, weights=True, forbid="both").build()


# ---- the optimum, and what is said on the way


@every_solver
@settings(max_examples=40)
@given(recipe=chain_recipes())
@example(recipe=ChainRecipe(0, examples=1, labels=1))
@example(recipe=ChainRecipe(1, examples=6, labels=4, feature_pairs="seen", C=100.0))
@example(recipe=ChainRecipe(2, examples=6, labels=2, values=True, scale=10.0, C=100.0))
def test_solver_reaches_the_optimum_and_every_row_of_its_trace_is_true(
    solver: Solver, recipe: ChainRecipe
) -> None:
    problem = recipe.build()
    reference = Enumeration(problem)
    fit = solve(problem, solver)
    for row in fit.trace:
        check_row(row["primal"], row["dual"], reference.optimum)
    assert fit.converged
    assert fit.certificate.primal <= reference.optimum + 1e-6 * (1e-6 + abs(reference.optimum))
    assert fit.weights.shape == (problem.dimension,)
    own = reference.value(fit.weights)
    assert own == pytest.approx(fit.certificate.primal, rel=1e-10, abs=1e-12)


@every_solver
@settings(max_examples=40)
@given(recipe=chain_recipes())
def test_certificates_along_the_way_are_true_at_every_step(
    solver: Solver, recipe: ChainRecipe
) -> None:
    problem = recipe.build()
    reference = Enumeration(problem)
    rng = np.random.default_rng(recipe.seed)
    state = solver.init(problem)
    for _ in range(15):
        proof = solver.certify(problem, state)
        weights = solver.weights(problem, state)
        check_row(proof.primal, proof.dual, reference.optimum)
        assert proof.status == "exact"
        assert reference.value(weights) == pytest.approx(proof.primal, rel=1e-10, abs=1e-12)
        state, info = solver.step(problem, state, rng)
        assert info.epochs >= 0 and info.oracle_calls >= 0
        if info.certificate is not None:
            check_row(info.certificate.primal, info.certificate.dual, reference.optimum)


@every_solver
def test_estimate_is_of_the_size_of_the_true_gap_near_the_end(solver: Solver) -> None:
    problem = ordinary()
    rng = np.random.default_rng(0)
    state = solver.init(problem)
    ratios = []
    for _ in range(60):
        state, info = solver.step(problem, state, rng)
        gap = solver.certify(problem, state).gap
        if np.isfinite(info.estimate) and gap > 1e-9:
            ratios.append(info.estimate / gap)
    assert len(ratios) > 0
    assert 0.05 < np.median(ratios) < 20


# ---- the same answer again


@every_solver
def test_same_seed_gives_the_same_bits(solver: Solver) -> None:
    problem = ordinary()
    one, two = (solve(problem, solver, max_epochs=20, random_state=5) for _ in range(2))
    assert one.weights.tobytes() == two.weights.tobytes()
    assert one.certificate == two.certificate


@every_solver
def test_solver_and_problem_are_left_as_they_were(solver: Solver) -> None:
    problem = ordinary()
    before = pickle.dumps((problem.data, problem.model))
    solve(problem, solver, max_epochs=5)
    assert pickle.dumps((problem.data, problem.model)) == before
    assert solver == type(solver)()


@every_solver
def test_solver_is_hashable_frozen_and_survives_pickling(solver: Solver) -> None:
    again = pickle.loads(pickle.dumps(solver))
    assert again == solver
    assert hash(again) == hash(solver)
    with pytest.raises(AttributeError):
        solver.name = "another"  # type: ignore[misc]
    problem = ordinary()
    a, b = (solve(problem, s, max_epochs=10) for s in (solver, again))
    assert a.weights.tobytes() == b.weights.tobytes()


# ---- starting from somewhere


@every_solver
def test_warm_start_at_the_optimum_ends_at_once(solver: Solver) -> None:
    problem = ordinary()
    cold = solve(problem, solver)
    warm = solve(problem, solver, warm=cold.state, random_state=1)
    assert warm.converged
    assert warm.epochs <= max(2.0, 0.2 * cold.epochs)
    assert warm.certificate.primal == pytest.approx(cold.certificate.primal, rel=1e-6)


@every_solver
def test_warm_start_from_another_C_reaches_the_optimum(solver: Solver) -> None:
    recipe = ChainRecipe(3, examples=5, feature_pairs="seen", C=0.5)
    first = recipe.build()
    second = ChainProblem(first.model, first.data, 2.0)
    fit = solve(second, solver, warm=solve(first, solver).state)
    optimum = Enumeration(second).optimum
    assert fit.converged
    assert fit.certificate.primal == pytest.approx(optimum, rel=1e-6)


@every_solver
def test_warm_start_with_more_examples_reaches_the_optimum(solver: Solver) -> None:
    data = ChainRecipe(11, examples=6).build().data
    few = data.subset(np.arange(4))
    model = ChainModel.build(data, 3)
    state = solve(ChainProblem(model, few), solver).state
    whole = ChainProblem(model, data)
    fit = solve(whole, solver, warm=state)
    assert fit.converged
    assert fit.certificate.primal == pytest.approx(Enumeration(whole).optimum, rel=1e-6)


@every_solver
@pytest.mark.parametrize("pairs", ["all", "seen"])
def test_state_comes_back_from_its_packed_arrays(solver: Solver, pairs: str) -> None:
    problem = ChainRecipe(5, examples=6, feature_pairs=pairs, values=True).build()
    rng = np.random.default_rng(0)
    state = solver.init(problem)
    for _ in range(3):
        state, _ = solver.step(problem, state, rng)
    arrays = {k: np.array(v) for k, v in solver.pack(state).items()}
    assert all(isinstance(v, np.ndarray) for v in arrays.values())
    again = solver.unpack(problem, pickle.loads(pickle.dumps(arrays)))
    np.testing.assert_allclose(
        solver.weights(problem, again), solver.weights(problem, state), rtol=1e-9, atol=1e-12
    )
    state, _ = solver.step(problem, again, rng)
    check_row(*_values(solver, problem, state), Enumeration(problem).optimum)


def _values(solver: Solver, problem: ChainProblem, state: Any) -> tuple[float, float]:
    proof = solver.certify(problem, state)
    return proof.primal, proof.dual


@every_solver
def test_checkpoint_is_written_and_resumed(solver: Solver, tmp_path: Any) -> None:
    problem, path = ordinary(), tmp_path / "run.ckpt"
    solve(problem, solver, max_epochs=3, tol=0, checkpoint=path, checkpoint_seconds=0)
    assert path.exists()
    fit = solve(problem, solver, checkpoint=path, resume=True)
    assert fit.converged
    assert fit.epochs > 3
    assert fit.certificate.primal == pytest.approx(Enumeration(problem).optimum, rel=1e-6)


@every_solver
def test_checkpoint_of_another_solver_is_refused(solver: Solver, tmp_path: Any) -> None:
    problem, path = ordinary(), tmp_path / "run.ckpt"
    other = next(s for s in SOLVERS if s.name != solver.name)
    solve(problem, other, max_epochs=2, tol=0, checkpoint=path, checkpoint_seconds=0)
    with pytest.raises(DataError, match=f"of solver '{other.name}'"):
        solve(problem, solver, checkpoint=path, resume=True)


@every_solver
def test_arrays_of_other_data_are_refused(solver: Solver) -> None:
    one = ChainRecipe(5, examples=6).build()
    two = ChainRecipe(6, examples=2, labels=2).build()
    state, _ = solver.step(one, solver.init(one), np.random.default_rng(0))
    with pytest.raises(DataError, match="other data"):
        solver.unpack(two, solver.pack(state))


# ---- stopping


@every_solver
def test_ctrl_c_returns_what_there_is_with_a_true_certificate(solver: Solver) -> None:
    problem = ordinary()
    rows = []

    def interrupt(row: dict[str, float]) -> None:
        rows.append(row)
        if len(rows) == 1:
            raise KeyboardInterrupt

    fit = solve(problem, solver, tol=1e-12, callback=interrupt)
    assert fit.interrupted
    reference = Enumeration(problem)
    check_row(fit.certificate.primal, fit.certificate.dual, reference.optimum)
    own = reference.value(fit.weights)
    assert own == pytest.approx(fit.certificate.primal, rel=1e-9)


@every_solver
def test_limits_are_kept(solver: Solver) -> None:
    problem = ordinary()
    short = solve(problem, solver, tol=0, max_epochs=2)
    assert not short.converged
    assert 2 <= short.epochs <= 4  # a step of several passes may end late
    assert solve(problem, solver, tol=0, max_seconds=0.0).epochs == 0


# ---- what cannot be done


@every_solver
def test_unknown_labels_are_solved_or_refused_with_a_sentence(solver: Solver) -> None:
    data = ChainRecipe(5, examples=4).build().data
    labels = data.labels.copy()
    labels[0] = -1
    partial = np.zeros((data.n_tokens, 3), dtype=bool)
    partial[np.arange(data.n_tokens), np.maximum(labels, 0)] = True
    partial[0] = True
    hidden = data.with_labels(labels)
    problem = ChainProblem(ChainModel.build(hidden, 3), hidden, partial=partial)
    reason = solver.refuses(problem)
    if reason is None:
        fit = solve(problem, solver, max_epochs=300)
        assert fit.certificate.dual == -np.inf
        assert fit.certificate.status == "none"
        return
    with pytest.raises(UnsupportedError) as error:
        choose(problem, solver)
    assert solver.name in str(error.value) and reason in str(error.value)
    assert "these do: lbfgs" in str(error.value)


@pytest.mark.parametrize("solver", EVERY, ids=lambda s: s.name)
def test_another_loss_is_refused_with_a_sentence(solver: Solver) -> None:
    problem = ChainRecipe(5).build()
    problem.loss = "no such loss"
    reason = solver.refuses(problem)
    assert reason is not None and ("no such loss" in reason or "chain" in reason)
    with pytest.raises(UnsupportedError, match=solver.name):
        choose(problem, solver)


def test_names_are_the_keys_of_the_registry() -> None:
    assert len({s.name for s in EVERY}) == len(EVERY)
    assert all(get(s.name) == s for s in EVERY)
    assert {"lbfgs", "sag", "sdca"} <= {s.name for s in SOLVERS}


@every_solver
def test_state_that_does_not_fit_is_refused_before_it_is_made(solver: Solver) -> None:
    problem = ordinary()
    needed = solver.memory(problem)
    assert needed >= 8 * problem.dimension
    assert choose(problem, solver, max_memory=needed).solver is solver
    with pytest.raises(UnsupportedError, match=r"GiB for its state"):
        choose(problem, solver, max_memory=needed / 2)


@every_solver
def test_memory_estimate_covers_the_packed_state(solver: Solver) -> None:
    problem = ChainRecipe(5, examples=6, labels=4).build()
    packed = solver.pack(solver.init(problem))
    assert solver.memory(problem) >= 0.9 * sum(np.asarray(v).nbytes for v in packed.values()) - 512


def test_unknown_solver_is_named_with_the_known_ones() -> None:
    with pytest.raises(UnsupportedError, match=r"'newton'.*auto.*sag.*sdca"):
        get("newton")


@pytest.mark.parametrize("C", [0.0, -1.0, np.nan])
def test_bad_C_is_refused(C: float) -> None:
    data = ChainRecipe(5).build().data
    with pytest.raises(DataError, match="C = "):
        ChainProblem(ChainModel.build(data, 3), data, C)


@every_solver
def test_no_examples_and_only_empty_ones_are_problems_too(solver: Solver) -> None:
    for offsets in ([0], [0, 0, 0]):
        data = Dataset(offsets, [0], [], None, 2, labels=[])
        fit = solve(ChainProblem(ChainModel.build(data, 2), data), solver, max_epochs=5)
        assert fit.converged
        assert not fit.weights.any()


# ---- larger and harder problems: solvers against each other


LARGER = [(5, 40, "all"), (12, 20, "seen"), (30, 15, "seen"), (30, 10, "all")]


@pytest.mark.medium
@pytest.mark.parametrize(("k", "longest", "pairs"), LARGER)
def test_all_solvers_agree_on_larger_problems(k: int, longest: int, pairs: str) -> None:
    problem = random_problem(k, 60, k, longest, pairs=pairs, C=0.3)
    fits = [solve(problem, s, tol=1e-9) for s in SOLVERS]
    best_dual = max(fit.certificate.dual for fit in fits)
    for fit in fits:
        assert fit.converged
        assert fit.certificate.primal == pytest.approx(best_dual, rel=1e-8)
        for row in fit.trace:
            assert row["primal"] >= best_dual * (1 - 1e-12)


HARD = {
    "large C": {"n": 20, "k": 4, "longest": 8, "C": 1e4},
    "large features": {"n": 20, "k": 4, "longest": 8, "scale": 1e3},
    "one label": {"n": 20, "k": 1, "longest": 8},
    "300 labels": {"n": 15, "k": 300, "longest": 4},
    "70 labels, seen pairs": {"n": 15, "k": 70, "longest": 6, "pairs": "seen"},
}


@cache
def hard_optimum(case: str) -> float:
    problem = random_problem(1, **HARD[case])
    return solve(problem, get("lbfgs"), tol=1e-10, max_epochs=3000).certificate.primal


@pytest.mark.medium
@pytest.mark.filterwarnings("error")
@every_solver
@pytest.mark.parametrize("case", HARD)
def test_hard_problems_give_finite_answers_and_true_certificates(solver: Solver, case: str) -> None:
    problem = random_problem(1, **HARD[case])
    fit = solve(problem, solver, tol=1e-6, max_epochs=300)
    assert np.isfinite(fit.weights).all()
    start = problem.primal(np.zeros(problem.dimension))
    for row in fit.trace:
        check_row(row["primal"], row["dual"], hard_optimum(case))
    assert fit.certificate.primal <= start * (1 + 1e-9)


@pytest.mark.medium
@every_solver
@pytest.mark.parametrize("case", ["one label", "300 labels", "70 labels, seen pairs"])
def test_many_labels_or_one_are_solved_to_the_end(solver: Solver, case: str) -> None:
    fit = solve(random_problem(1, **HARD[case]), solver, tol=1e-6, max_epochs=2000)
    assert fit.converged
