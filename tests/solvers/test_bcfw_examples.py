"""Problems that are asked example by example, and block-coordinate Frank-Wolfe on them.

The optimum comes from a generic solver of the quadratic program that lists every output.
"""

from __future__ import annotations

import itertools
import pickle
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.optimize import minimize
from scipy.sparse import csr_matrix

from cliquewise.errors import DataError, UnsupportedError
from cliquewise.models.candidates import CandidateSets
from cliquewise.models.matching import MatchingModel, PairTables
from cliquewise.problems.candidates import CandidateProblem
from cliquewise.problems.examples import ExampleProblem
from cliquewise.problems.matching import MatchingProblem
from cliquewise.solvers.bcfw import BCFW
from cliquewise.solvers.planner import choose
from cliquewise.solvers.registry import get
from cliquewise.solvers.run import run


def candidates(
    seed: int, n: int = 5, d: int = 3, sparse: bool = False, **options: Any
) -> CandidateProblem:
    rng = np.random.default_rng(seed)
    X: list[Any] = [rng.normal(size=(rng.integers(1, 6), d)) for _ in range(n)]
    truth = [int(rng.integers(len(x))) for x in X]
    cost = np.concatenate([rng.random(len(x)) for x in X]) if rng.random() < 0.5 else None
    if sparse:
        X = [csr_matrix(np.where(rng.random(x.shape) < 0.5, x, 0.0)) for x in X]
    if rng.random() < 0.5:
        options["sample_weight"] = rng.random(n) + 0.1
    return CandidateProblem(CandidateSets.from_examples(X), truth, cost, **options)


def matchings(seed: int, n: int = 4, d: int = 2, **options: Any) -> MatchingProblem:
    rng = np.random.default_rng(seed)
    X = [rng.normal(size=(*rng.integers(1, 4, 2), d)) for _ in range(n)]
    partial = bool(rng.random() < 0.5)
    truth = []
    for x in X:
        p, q = x.shape[:2]
        size = int(rng.integers(min(p, q) + 1)) if partial else min(p, q)
        columns = np.full(p, -1)
        columns[rng.permutation(p)[:size]] = rng.permutation(q)[:size]
        truth.append(columns)
    model = MatchingModel(d, intercept=bool(rng.random() < 0.7), is_partial=partial)
    costs = {"cost_missing": 1.5, "cost_wrong": 0.5} if rng.random() < 0.5 else {}
    return MatchingProblem(model, PairTables.from_examples(X), truth, **costs, **options)


def outputs(problem: ExampleProblem, i: int) -> tuple[np.ndarray, np.ndarray]:
    """Cost and features less the truth's, of every output of an example."""
    zero = np.zeros(problem.dimension)
    scores, rows = problem.top_k(zero, i, 10_000)
    dense = np.zeros((len(scores), problem.dimension))
    for r in range(len(scores)):
        rows.add_to(dense[r], r)
    return scores, dense


def optimum(problem: ExampleProblem) -> float:
    """By a generic solver of the quadratic program with one slack per example."""
    every = [outputs(problem, i) for i in range(problem.n_examples)]
    n, d = problem.n_examples, problem.dimension
    A = np.concatenate(
        [np.hstack([-g, np.tile(np.eye(n)[i], (len(g), 1))]) for i, (_, g) in enumerate(every)]
    )
    b = np.concatenate([c for c, _ in every])

    def value(z: np.ndarray) -> float:
        return 0.5 * problem.lam * z[:d] @ z[:d] + z[d:].sum() / n

    def slope(z: np.ndarray) -> np.ndarray:
        return np.concatenate([problem.lam * z[:d], np.full(n, 1 / n)])

    start = np.concatenate([np.zeros(d), [c.max() for c, _ in every]])
    found = minimize(
        value, start, jac=slope, method="SLSQP",
        constraints={"type": "ineq", "fun": lambda z: A @ z - b, "jac": lambda z: A},
        options={"maxiter": 1000, "ftol": 1e-14},
    )  # fmt: skip
    w = found.x[:d]
    return problem.ridge_objective(float(w @ w), sum(float((c + g @ w).max()) for c, g in every))


kinds = st.sampled_from([candidates, matchings])


@settings(max_examples=60)
@given(kinds, st.integers(0, 10**6), st.sampled_from([0.01, 1.0, 30.0]))
def test_solver_reaches_the_optimum_and_every_row_of_its_trace_is_true(kind, seed, C):
    problem = kind(seed, C=C)
    best = optimum(problem)
    fit = run(problem, choose(problem).solver, tol=1e-9, max_epochs=5000, random_state=0)
    assert fit.solver == "bcfw"
    assert fit.converged
    slack = 1e-7 * (1 + abs(best))
    assert fit.certificate.primal <= best + slack
    for row in fit.trace:
        assert row["dual"] <= best + slack
        assert row["primal"] >= fit.certificate.dual - 1e-10
        assert row["primal"] >= row["dual"] - 1e-12
    assert problem.primal(fit.weights) == pytest.approx(fit.certificate.primal, rel=1e-12)


@settings(max_examples=40)
@given(kinds, st.integers(0, 10**6))
def test_certificates_along_the_way_are_true_at_every_step(kind, seed):
    problem, solver = kind(seed), BCFW(cached_passes=1, inner_rounds=1)
    best = run(problem, BCFW(), tol=1e-10, max_epochs=5000, random_state=1).certificate
    rng, state = np.random.default_rng(seed), solver.init(problem)
    last = -np.inf
    for _ in range(12):
        proof = solver.certify(problem, state)
        assert proof.dual <= best.primal + 1e-10 and proof.primal >= best.dual - 1e-10
        assert proof.dual >= last - 1e-12  # every step is an ascent
        last = proof.dual
        info = solver.step(problem, state, rng)
        # What is kept along the way is what is computed afresh.
        blocks = state.outputs
        kept, w = state.dual, blocks.w.copy()
        solver._refresh(problem, state)
        assert kept == pytest.approx(state.dual, abs=1e-10)
        np.testing.assert_allclose(w, blocks.w, atol=1e-10)
        total = blocks.atoms.rest.copy()
        for i, a in enumerate(blocks.atoms.head):
            while a >= 0:
                total[i] += blocks.atoms.alpha[a]
                a = blocks.atoms.next[a]
        np.testing.assert_allclose(total, 1.0, atol=1e-12)
        assert info.oracle_calls == problem.n_examples


def test_many_passes_forget_outputs_that_no_longer_count():
    rng = np.random.default_rng(0)
    X = [rng.normal(size=(40, 5)) for _ in range(30)]
    problem = CandidateProblem(CandidateSets.from_examples(X), rng.integers(0, 40, 30), C=10.0)
    fit = run(problem, BCFW(), tol=1e-8, max_epochs=3000, random_state=0)
    assert fit.converged
    assert fit.state.outputs.used < 30 * 7


@pytest.mark.parametrize("kind", [candidates, matchings])
def test_a_subgradient_and_the_gap_it_proves_are_true(kind):
    for seed in range(20):
        problem = kind(seed)
        best = run(problem, BCFW(), tol=1e-9, max_epochs=3000).certificate
        rng = np.random.default_rng(seed)
        w, v = rng.normal(size=(2, problem.dimension))
        value, gradient = problem.primal_and_gradient(w)
        assert value == pytest.approx(problem.primal(w))
        assert problem.primal(v) >= value + gradient @ (v - w) - 1e-9
        proof = problem.certificate(w)
        assert proof.dual <= best.primal + 1e-9 and proof.primal >= best.dual - 1e-9


@pytest.mark.parametrize("kind", [candidates, matchings])
def test_top_k_gives_scores_and_their_gradients(kind):
    for seed in range(30):
        problem = kind(seed)
        w = np.random.default_rng(seed).normal(size=problem.dimension)
        for i, (scores, rows) in enumerate(problem.top_k_all(w, 4)):
            cost, features = outputs(problem, i)
            every = np.sort(cost + features @ w)[::-1]
            np.testing.assert_allclose(scores, every[:4], atol=1e-10)
            one, same = problem.top_k(w, i, 4)
            np.testing.assert_allclose(one, scores, atol=1e-12)
            np.testing.assert_allclose(same.dot(w), rows.dot(w), atol=1e-12)
            # psi is cost + <w, row>, with one of the costs.
            known = scores - rows.dot(w)
            assert np.abs(known[:, None] - cost).min(axis=1).max() < 1e-10
            assert scores[0] >= -1e-12


def test_log_loss_has_the_gradient_of_finite_differences():
    for seed in range(10):
        problem = candidates(seed, loss="log")
        w = np.random.default_rng(seed).normal(size=problem.dimension)
        gradient = problem.primal_and_gradient(w)[1]
        total = sum(problem.exp(w, i)[0] for i in range(problem.n_examples))
        weighted = problem.losses(w).sum()
        if np.all(problem.weights == 1):
            assert total == pytest.approx(weighted)
        for j in range(problem.dimension):
            step = 1e-6 * (np.arange(problem.dimension) == j)
            slope = (problem.primal(w + step) - problem.primal(w - step)) / 2e-6
            assert slope == pytest.approx(gradient[j], abs=1e-8)


@pytest.mark.parametrize("mu", [0.1, 1.0, 5.0])
def test_the_exp_oracle_has_the_gradient_of_finite_differences(mu):
    problem = candidates(3)
    w = np.random.default_rng(0).normal(size=problem.dimension)
    for i in range(problem.n_examples):
        value, mean, row = problem.exp(w, i, mu)
        assert mean <= value + 1e-12
        dense = np.zeros(problem.dimension)
        row.add_to(dense, 0)
        n = len(outputs(problem, i)[0])
        assert 0 <= value - problem.losses(w)[i] + 1e-12 <= mu * np.log(n) + 2e-12
        for j in range(problem.dimension):
            step = 1e-6 * (np.arange(problem.dimension) == j)
            slope = (problem.exp(w + step, i, mu)[0] - problem.exp(w - step, i, mu)[0]) / 2e-6
            assert slope == pytest.approx(dense[j], abs=1e-7)


def test_the_exp_oracle_of_matchings_is_refused_with_its_reason():
    with pytest.raises(UnsupportedError, match="permanent"):
        matchings(0).exp(np.zeros(3), 0)
    with pytest.raises(UnsupportedError, match="permanent"):
        matchings(0, loss="log")


def test_sparse_and_dense_features_give_the_same_problem():
    rng = np.random.default_rng(2)
    X = [np.where(rng.random((4, 6)) < 0.4, rng.normal(size=(4, 6)), 0.0) for _ in range(8)]
    truth, w = rng.integers(0, 4, 8), rng.normal(size=6)
    dense, sparse = (
        CandidateProblem(CandidateSets.from_examples([form(x) for x in X]), truth)
        for form in (np.asarray, csr_matrix)
    )
    assert dense.primal(w) == pytest.approx(sparse.primal(w))
    np.testing.assert_allclose(dense.primal_and_gradient(w)[1], sparse.primal_and_gradient(w)[1])
    for i in range(8):
        (a, left), (b, right) = dense.top_k(w, i, 3), sparse.top_k(w, i, 3)
        np.testing.assert_allclose(a, b)
        np.testing.assert_allclose(left.dot(w), right.dot(w), atol=1e-12)
    fits = [run(p, BCFW(), tol=1e-9, max_epochs=2000).weights for p in (dense, sparse)]
    np.testing.assert_allclose(fits[0], fits[1], atol=1e-4)


# ---- the same answer again


@pytest.mark.parametrize("kind", [candidates, matchings])
def test_same_seed_same_bits_and_threads_change_nothing(kind):
    fits = [
        run(kind(4, n=12, n_jobs=jobs), BCFW(), max_epochs=7, tol=0.0, random_state=3)
        for jobs in (1, 1, 3)
    ]
    assert len({f.weights.tobytes() for f in fits}) == 1
    assert len({f.certificate for f in fits}) == 1


@pytest.mark.parametrize("kind", [candidates, matchings])
def test_a_packed_state_and_a_warm_start_go_on_where_they_were(kind):
    problem, solver = kind(6, n=8), BCFW()
    fit = run(problem, solver, tol=1e-6, max_epochs=3000, random_state=0)
    again = solver.unpack(problem, pickle.loads(pickle.dumps(solver.pack(fit.state))))
    assert solver.certify(problem, again) == solver.certify(problem, fit.state)
    warm = run(problem, solver, tol=1e-6, max_epochs=3000, random_state=0, warm=fit.state)
    assert warm.epochs <= 2
    with pytest.raises(DataError, match="other data"):
        solver.unpack(kind(6, n=7), solver.pack(fit.state))
    with pytest.raises(DataError, match="warm"):
        solver.init(kind(6, n=3), fit.state)


# ---- what does not fit


def test_an_impossible_pair_of_solver_and_problem_names_those_that_work():
    with pytest.raises(UnsupportedError, match="bcfw"):
        choose(candidates(0), "sdca")
    assert choose(candidates(0, loss="log")).solver.name == "lbfgs"
    with pytest.raises(UnsupportedError, match="hinge"):
        choose(candidates(0, loss="log"), "bcfw")
    assert get("bcfw").name == "bcfw"


def test_a_state_that_does_not_fit_into_memory_is_refused_before_it_is_made():
    with pytest.raises(UnsupportedError, match="GiB"):
        choose(candidates(0), "bcfw", max_memory=100.0)


def test_bad_problems_are_rejected():
    data = CandidateSets.from_examples([[[1.0], [2.0]]])
    for truth in ([2], [-1], [0, 1]):
        with pytest.raises(DataError):
            CandidateProblem(data, truth)
    with pytest.raises(DataError):
        CandidateProblem(data, [0], cost=[0.0, np.nan])
    with pytest.raises(DataError, match="no candidates"):
        CandidateSets.from_examples([[[1.0]], np.empty((0, 1))])
    with pytest.raises(DataError):
        CandidateProblem(data, [0], C=0.0)
    with pytest.raises(UnsupportedError, match="hinge, log"):
        CandidateProblem(data, [0], loss="square")
    with pytest.raises(DataError):
        BCFW(inner_rounds=0)


def test_matchings_that_are_none_are_rejected():
    data = PairTables.from_examples([np.zeros((2, 2, 1))])
    for truth in ([0, 0], [0, 2], [0]):
        with pytest.raises(DataError, match="example 0"):
            MatchingProblem(MatchingModel(1), data, [np.array(truth)])
    with pytest.raises(DataError, match="partial=True"):
        MatchingProblem(MatchingModel(1, is_partial=False), data, [np.array([0, -1])])
    with pytest.raises(DataError, match="cost"):
        MatchingProblem(MatchingModel(1), data, [np.array([0, 1])], cost_wrong=-1.0)


def test_rows_of_nothing_are_zero():
    problem = candidates(1)
    scores, rows = problem.top_k(np.zeros(3), 0, 10_000)
    total = sum(1 for _ in itertools.chain(scores))
    assert len(rows) == total
    # The truth itself differs from the truth by nothing.
    assert (np.diff(rows.indptr) == 0).sum() == 1
    assert rows.dot(np.ones(3))[np.diff(rows.indptr) == 0].tolist() == [0.0]
