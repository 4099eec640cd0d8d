"""GDMM for many interacting labels: against generic solvers, the full search and dense graphs."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from relaxed_program import constraint_matrices, reference_optimum
from scipy.optimize import linprog
from scipy.sparse import csr_matrix

from cliquewise._kernels.label_sets import bounds
from cliquewise._kernels.label_sets import search as kernels
from cliquewise._kernels.label_sets.bounds import background
from cliquewise._kernels.label_sets.steps import _threshold4
from cliquewise.errors import DataError, UnsupportedError
from cliquewise.models.label_sets import unpack_weights
from cliquewise.oracles.relaxed_label_sets import empty_sets, empty_weights, relaxed_labels
from cliquewise.problems.graph import GraphProblem
from cliquewise.problems.label_sets import MultiLabelProblem
from cliquewise.solvers.backends.graph.factors import RULES
from cliquewise.solvers.backends.label_sets import squared_norm
from cliquewise.solvers.gdmm import GDMM
from cliquewise.solvers.idal import IDAL
from cliquewise.solvers.planner import choose
from cliquewise.solvers.run import run

#: Relative gap asked for; the optimum of a generic solver is then met to 1e-4.
TOL = 2e-5


def small_problem(seed: int) -> MultiLabelProblem:
    """A few rows with up to four labels."""
    rng = np.random.default_rng(seed)
    n, labels, d = int(rng.integers(1, 4)), int(rng.integers(1, 5)), int(rng.integers(1, 4))
    Y = (rng.random((n, labels)) < 0.4).astype(int)
    C = float(10 ** rng.uniform(-1.5, 0.7))
    return MultiLabelProblem(csr_matrix(rng.normal(size=(n, d))), Y, C)


def larger_problem(seed: int, n: int = 40, labels: int = 25, C: float = 0.3) -> MultiLabelProblem:
    """Labels that come in threes, seen through noisy features."""
    rng = np.random.default_rng(seed)
    topics = rng.random((n, labels // 3 + 1)) < 0.15
    Y = np.repeat(topics, 3, axis=1)[:, :labels] & (rng.random((n, labels)) < 0.8)
    X = topics @ rng.normal(size=(topics.shape[1], 8)) + 0.3 * rng.normal(size=(n, 8))
    return MultiLabelProblem(csr_matrix(X), Y.astype(int), C)


def test_the_sparse_and_the_listed_problem_are_the_same():
    problem = larger_problem(0, 6, 5)
    graphs = problem.as_graphs()
    assert graphs.dimension == problem.dimension
    rng = np.random.default_rng(0)
    U, V = rng.normal(size=(9, 5)), rng.normal(size=(5, 5))
    V = np.triu(V, 1) + np.triu(V, 1).T
    w = problem.pack(U, V)
    assert all(np.allclose(a, b) for a, b in zip(unpack_weights(w, 5, 9), (U, V), strict=True))
    scores = graphs.potentials(w)
    x = np.append(problem.X.toarray()[0], 1.0)
    np.testing.assert_allclose(np.diff(scores[:10].reshape(5, 2))[:, 0], 2 * x @ U)
    first = int(graphs.cliques.offsets[graphs.data.n_nodes])
    np.testing.assert_allclose(scores[first : first + 4], [0, 0, 0, V[0, 1]])


@pytest.mark.parametrize("block", range(2))
def test_it_meets_a_generic_solver_and_its_bounds_enclose_the_optimum(block):
    for seed in range(8 * block, 8 * block + 8):
        problem = small_problem(seed)
        best = reference_optimum(problem.as_graphs())
        fit = run(problem, GDMM(), tol=TOL, max_epochs=2000, random_state=seed)
        assert np.all(fit.trace.primal >= best - 1e-6 * max(best, 1.0)), seed
        assert np.all(fit.trace.dual <= best + 1e-6 * max(best, 1.0)), seed
        assert fit.certificate.primal == pytest.approx(best, rel=1e-4, abs=1e-6), seed


def test_all_solvers_agree_and_nobody_crosses_another_bound():
    problem = larger_problem(1, 8, 6, C=0.5)
    graphs = problem.as_graphs()
    nearly = GraphProblem(graphs.model, graphs.data, 0.5, "softmax_margin", gamma=1e-5)
    fits = [
        run(problem, GDMM(factor_search=s), tol=TOL, max_epochs=2000, random_state=0)
        for s in ("sublinear", "full", "sampled")
    ]
    fits += [run(graphs, GDMM(s), tol=TOL, max_epochs=3000, random_state=0) for s in RULES]
    fits.append(run(nearly, IDAL(), tol=TOL, max_epochs=3000, random_state=0))
    best = max(fit.certificate.dual for fit in fits)
    for fit in fits:
        assert fit.certificate.primal == pytest.approx(best, rel=1e-4)
        assert np.all(fit.trace.primal >= best * (1 - 1e-4))


@pytest.mark.parametrize("seed", range(3))
def test_bounds_enclose_the_optimum_of_larger_problems_from_the_first_pass_on(seed):
    problem = larger_problem(seed)
    fine = run(problem, GDMM(), tol=3e-3, max_epochs=500, random_state=0)
    assert fine.converged
    listed = run(problem.as_graphs(), IDAL(), tol=5e-2, max_epochs=60, random_state=0)
    top = min(fine.certificate.primal, listed.certificate.primal)
    assert top >= max(fine.certificate.dual, listed.certificate.dual)
    solver = GDMM(rho=1.0)
    state, rng = solver.init(problem), np.random.default_rng(seed)
    for _ in range(8):
        proof = solver.certify(problem, state)
        assert proof.dual <= top + 1e-9 and proof.primal >= fine.certificate.dual - 1e-9
        low, high = problem.relaxed_primal(solver.weights(problem, state), tol=1e-4)
        assert low - 1e-9 <= proof.primal
        assert low <= high
        solver.step(problem, state, rng)


def test_features_that_never_occur_cost_and_weigh_nothing():
    problem = larger_problem(0, 10, 5)
    X = csr_matrix((problem.X.data, 3 * problem.X.indices + 1, problem.X.indptr), shape=(10, 40))
    wide = MultiLabelProblem(X, problem.Y, problem.C)
    one, two = (run(p, GDMM(), max_epochs=5, tol=0, random_state=0)
                for p in (problem, wide))  # fmt: skip
    assert one.certificate == two.certificate
    unary = two.weights[: 2 * 5 * 41].reshape(5, 41, 2)
    np.testing.assert_array_equal(unary[:, wide.used].ravel(), one.weights[: 2 * 5 * 9])
    assert np.count_nonzero(unary) == np.count_nonzero(one.weights[: 2 * 5 * 9])
    low, high = (p.relaxed_primal(f.weights, tol=1e-6)[1] for p, f in
                 ((problem, one), (wide, two)))  # fmt: skip
    assert low == pytest.approx(high)


# ---- the search


class Walk:
    """Weights and active sets under a long random sequence of changes."""

    def __init__(self, labels: int, seed: int):
        self.rng, self.n = np.random.default_rng(seed), labels
        self.w = empty_weights(1, labels)
        self.sets = empty_sets(np.array([labels * 4]))
        self.sets.capacity[0] = labels * 4, labels * labels
        self.desk = kernels._desk(labels)

    def move(self) -> None:
        j, k = self.rng.choice(self.n, 2, replace=False)
        kernels._move_pair(self.w, j, k, float(self.rng.normal()))

    def join(self) -> None:
        active = set(self.sets.label[: self.sets.count[0, 0]].tolist())
        free = [k for k in range(self.n) if k not in active]
        if free:
            kernels._join_label(self.sets, 0, int(self.rng.choice(free)), 0.0)
            self.sets.p[self.sets.count[0, 0] - 1] = self.rng.random()

    def expected(self, thorough: bool) -> np.ndarray:
        """Sums over all pairs, in numpy."""
        active = np.zeros(self.n, dtype=bool)
        p = np.zeros(self.n)
        here = self.sets.label[: self.sets.count[0, 0]]
        active[here], p[here] = True, self.sets.p[: len(here)]
        share = np.where(active[:, None], 1.0, 0.5) if thorough else p[:, None]
        return (share * np.maximum(self.w.V, 0.0)).sum(axis=0)


@settings(max_examples=25, deadline=None)
@given(labels=st.integers(2, 12), seed=st.integers(0, 10**6), thorough=st.booleans())
def test_the_search_finds_what_a_look_at_every_pair_finds(labels, seed, thorough):
    walk = Walk(labels, seed)
    for turn in range(60):
        walk.move()
        if turn % 9 == 0:
            walk.join()
        walk.desk.u[:] = walk.rng.normal(size=labels) - 1.0
        kernels._lay_out(walk.sets, 0, walk.desk, True)
        kernels._by_rule_in_full(walk.w, walk.sets, 0, walk.desk, thorough)
        full = kernels._most_violated(walk.desk, 1.0, 0, 1)
        slow = walk.desk.delta.copy()
        kernels._by_rule(walk.w, walk.sets, 0, walk.desk, thorough)
        quick = kernels._most_violated(walk.desk, 1.0, 0, 1)
        off = walk.desk.place == 0
        np.testing.assert_allclose(slow[off], walk.expected(thorough)[off], atol=1e-9)
        np.testing.assert_allclose(walk.desk.delta[off], slow[off], atol=1e-9)
        assert quick[0] == full[0] and quick[1] == pytest.approx(full[1], abs=1e-9)
        kernels._lay_out(walk.sets, 0, walk.desk, False)
    kept = walk.w.S.copy()
    background(walk.w)
    np.testing.assert_allclose(kept, walk.w.S, atol=1e-9)


def test_the_sampled_search_finds_the_best_label_as_often_as_it_promises():
    rng = np.random.default_rng(0)
    desk = kernels._desk(30)
    desk.u[:], desk.delta[:] = rng.normal(size=30), 0.0
    best = kernels._most_violated(desk, 1.0, 0, 1)[0]
    hits = [kernels._most_violated(desk, 1.0, part, 3)[0] == best for part in range(3)]
    assert sum(hits) == 1


def test_both_searches_walk_the_same_way():
    problem = larger_problem(2)
    one, two = (
        run(problem, GDMM(factor_search=s), tol=0, max_epochs=6, random_state=0)
        for s in ("sublinear", "full")
    )
    np.testing.assert_allclose(one.weights, two.weights, atol=1e-7)


# ---- fixed weights


@pytest.mark.parametrize("seed", range(8))
def test_relaxed_values_and_labels_are_those_of_a_linear_program(seed):
    problem = small_problem(seed)
    graphs, n = problem.as_graphs(), problem.n_labels
    rng = np.random.default_rng(seed)
    V = 1.5 * np.triu(rng.normal(size=(n, n)), 1)
    w = problem.pack(rng.normal(size=(problem.n_columns, n)), V + V.T)
    low, high = problem.relaxed_primal(w, tol=1e-7, max_sweeps=2000)
    scores = graphs.potentials(w)
    sums, A = constraint_matrices(graphs)
    E = np.concatenate([sums, A])
    right = np.concatenate([np.ones(len(sums)), np.zeros(len(A))])
    best = linprog(-(scores + graphs.costs), A_eq=E, b_eq=right, bounds=(0, 1))
    value = graphs.ridge_objective(float(w @ w), -best.fun - scores @ graphs.truth)
    assert low - 1e-8 <= value <= high + 1e-8
    assert high - low <= 1e-6
    plain = linprog(-scores, A_eq=E, b_eq=right, bounds=(0, 1)).x
    beliefs, _ = relaxed_labels(problem.X, w, n, tol=1e-7, max_sweeps=2000)
    wanted = plain[: 2 * n * problem.n_examples].reshape(-1, n, 2)[:, :, 1]
    np.testing.assert_allclose(beliefs, wanted, atol=1e-3)


@settings(max_examples=100, deadline=None)
@given(st.lists(st.floats(-3, 3), min_size=4, max_size=4))
def test_the_threshold_of_four_numbers_leaves_a_distribution(t):
    left = np.maximum(np.array(t) - _threshold4(*t), 0.0)
    assert left.sum() == pytest.approx(1.0)
    on = left > 0  # optimality of the projection: equal shifts where positive, more elsewhere
    shift = np.array(t) - left
    np.testing.assert_allclose(shift[on], shift[on][0], atol=1e-9)
    assert np.all(shift[~on] <= shift[on][0] + 1e-9)


def test_more_sweeps_of_messages_never_loosen_the_bound_and_never_cross_the_optimum(monkeypatch):
    problem = larger_problem(6)
    solver = GDMM()
    state, rng = solver.init(problem), np.random.default_rng(0)
    for _ in range(5):
        solver.step(problem, state, rng)
    plan, w = state._plan(), state.own
    low = problem.relaxed_primal(solver.weights(problem, state), tol=1e-4)[0]
    python = {name: getattr(bounds, name).py_func for name in ("loss_bound", "_polish")}
    monkeypatch.setattr(bounds, "_polish", python["_polish"])
    values = []
    for sweeps in (0, 1, 2, bounds.POLISH):
        monkeypatch.setattr(bounds, "POLISH", sweeps)
        losses = np.zeros(problem.n_examples)
        python["loss_bound"](problem.rows, w, plan, state.sets, losses, np.zeros(25))
        values.append(problem.ridge_objective(squared_norm(w), losses.sum()))
    assert np.all(np.diff(values) <= 1e-12)
    assert values[-1] < values[0]
    assert values[-1] >= low - 1e-9
    assert solver.certify(problem, state).primal == pytest.approx(values[-1], rel=1e-6)


def test_the_penalty_grows_only_while_making_beliefs_agree_costs_most_of_the_gap():
    problem = larger_problem(0, C=1.0)
    solver = GDMM()
    state = solver.init(problem)
    for repair, grows in ((0.6, True), (0.4, False)):
        state.repair, before = repair, state.rho
        state._adapt(1.0)
        assert (state.rho > before) is grows
    for _ in range(50):
        state.repair = 1.0
        state._adapt(1.0)
    assert state.rho == 10.0 * problem.C
    given = GDMM(rho=0.7)
    state = given.init(problem)
    state.repair = 1.0
    state._adapt(1.0)
    assert state.rho == 0.7


# ---- memory, growth, files, bad input


def test_few_labels_are_active_where_few_are_near_the_margin():
    problem = larger_problem(3, 200, 60, C=3.0)
    fit = run(problem, GDMM(), tol=0, max_epochs=12, random_state=0)
    assert fit.trace.active[-1] < 0.75 * 60
    assert fit.state.sets.count[:, 1].mean() < 0.25 * 60 * 59 / 2


@pytest.mark.parametrize("Y", [
    [[1], [0], [1]], [[0, 1], [0, 0], [0, 1]], [[0, 0], [0, 0], [0, 0]],
    np.eye(3, 9, dtype=int), np.ones((3, 4), dtype=int),
], ids=["one label", "never on", "no labels", "more labels than rows", "all on"])  # fmt: skip
def test_extreme_label_sets_are_solved(Y):
    X = csr_matrix([[1.0, 1.0], [0.0, 0.0], [2.0, 2.0]])  # a feature twice, an empty row
    problem = MultiLabelProblem(X, np.asarray(Y), 0.5)
    fit = run(problem, GDMM(), tol=1e-3, max_epochs=1000, random_state=0)
    assert fit.converged
    assert np.isfinite(fit.weights).all()


def test_no_rows_are_a_problem_too():
    problem = MultiLabelProblem(csr_matrix((0, 3)), np.zeros((0, 4), dtype=int))
    assert not run(problem, GDMM(), max_epochs=2).weights.any()


def test_the_same_seed_gives_the_same_bits_and_a_checkpoint_goes_on():
    problem = larger_problem(4)
    solver = GDMM()
    one, two = (run(problem, solver, tol=0, max_epochs=7, random_state=5) for _ in range(2))
    assert one.weights.tobytes() == two.weights.tobytes()
    again = solver.unpack(problem, solver.pack(one.state))
    np.testing.assert_allclose(solver.weights(problem, again), one.weights, atol=1e-9)
    warm = run(problem, solver, tol=1e-2, max_epochs=500, random_state=0, warm=one.state)
    assert warm.converged
    other = larger_problem(5)
    with pytest.raises(DataError, match="other data"):
        solver.unpack(other, solver.pack(one.state))
    with pytest.raises(DataError, match="same rows"):
        solver.init(other, one.state)


@pytest.mark.parametrize("options", [
    {"step_rule": "x"}, {"factor_search": "x"}, {"rho": 0.0}, {"rho": "x"},
    {"eta": -1.0},
])  # fmt: skip
def test_bad_parameters_are_named(options):
    with pytest.raises(DataError, match=next(iter(options))):
        GDMM(**options)


BAD = {
    "rows": (csr_matrix([[1.0], [2.0]]), [[1, 0]]),
    "no labels": (csr_matrix([[1.0], [2.0]]), np.zeros((2, 0))),
    "finite": (csr_matrix([[np.nan], [1.0]]), [[1], [0]]),
    "C = ": (csr_matrix([[1.0], [2.0]]), [[1], [0]], -1.0),
}


@pytest.mark.parametrize("reason", BAD)
def test_bad_problems_are_rejected(reason):
    with pytest.raises(DataError, match=reason):
        MultiLabelProblem(*BAD[reason])


def test_the_solver_of_such_problems_is_found_and_others_are_rejected():
    problem = MultiLabelProblem(csr_matrix([[1.0], [2.0]]), [[1], [0]])
    assert choose(problem, "auto").solver == choose(problem, "gdmm").solver == GDMM()
    with pytest.raises(UnsupportedError, match=r"'idal' does not work on a label_sets.*gdmm"):
        choose(problem, "idal")
    with pytest.raises(UnsupportedError, match="every pair of labels"):
        choose(problem, GDMM("bcfw"))
