"""IDAL and its relatives against a generic convex solver, finite differences and brute force."""

from __future__ import annotations

import numpy as np
import pytest
from relaxed_program import constraint_matrices, feature_matrix, reference_bracket
from scipy.optimize import linprog, minimize

from cliquewise._kernels.cliques import ascent as kernels
from cliquewise._kernels.cliques.local_polytope import entropy, repair
from cliquewise.data.graphs import GraphDataset
from cliquewise.errors import DataError
from cliquewise.models.pairwise import PairwiseModel
from cliquewise.problems.graph import GraphProblem
from cliquewise.solvers.backends.graph.cliques import dual_value
from cliquewise.solvers.idal import IDAL
from cliquewise.solvers.run import run
from cliquewise.solvers.soft_bcfw import SoftBCFW
from cliquewise.solvers.soft_sdca import SoftSDCA

LOSSES = ("log", "softmax_margin", "hinge")


def small_problem(seed: int, **options) -> GraphProblem:
    """Two or three graphs of up to four nodes, with edge features every other time."""
    rng = np.random.default_rng(seed)
    examples, labels = [], []
    types = int(rng.integers(1, 3))
    cards = rng.integers(2, 4, types).tolist()
    pairwise = "table"
    if types == 1:
        pairwise = ("table", "symmetric", "potts")[seed % 3]
    with_edge_features = bool(seed % 2)
    for _ in range(int(rng.integers(1, 4))):
        n = int(rng.integers(1, 5))
        pairs = np.array([(i, j) for i in range(n) for j in range(i)], dtype=int).reshape(-1, 2)
        pairs = pairs[rng.random(len(pairs)) < 0.7]
        kind = rng.integers(0, types, n)
        edge_features = rng.normal(size=(len(pairs), 2)) if with_edge_features else None
        examples.append((rng.normal(size=(n, 2)), pairs, edge_features, kind))
        labels.append([int(rng.integers(0, cards[t])) for t in kind])
    data = GraphDataset.from_examples(examples, labels)
    model = PairwiseModel(cards, 2, 2 if with_edge_features else 0, pairwise)
    given = {
        "C": float(10 ** rng.uniform(-1.5, 0.5)),
        "loss": LOSSES[seed % 3],
        "gamma": float(10 ** rng.uniform(-1, 0.5)),
        "entropy": ("gini", "gini-otrw")[seed % 2],
    }
    return GraphProblem(model, data, **(given | options))


def test_bounds_stay_true_long_after_the_optimum_is_reached():
    # The penalty's weight is 1e8 by then: differences of beliefs must be taken before it counts.
    for seed in (2, 4, 7, 8):
        problem = small_problem(seed)
        proof = run(problem, IDAL(), tol=-np.inf, max_epochs=1500, random_state=0).certificate
        best, above = reference_bracket(problem)
        assert proof.dual <= above + 1e-9 * max(abs(above), 1.0)
        assert proof.primal >= best - 1e-9 * max(abs(best), 1.0)
        assert proof.gap <= 1e-9


@pytest.mark.medium
@pytest.mark.parametrize("block", range(10))
def test_bounds_enclose_the_optimum_that_a_generic_solver_finds(block):
    for seed in range(20 * block, 20 * block + 20):
        problem = small_problem(seed)
        best, above = reference_bracket(problem)
        scale = max(abs(best), 1.0)
        fit = run(problem, IDAL(), tol=1e-6, max_epochs=1000, random_state=seed)
        assert above - best <= 2e-3 * scale, seed
        assert np.all(fit.trace.primal >= best - 1e-7 * scale), seed
        assert np.all(fit.trace.dual <= above + 1e-7 * scale), seed
        # Without entropy the dual has flat directions, and the last digits take longer.
        near = 5e-3 if problem.loss == "hinge" else 1e-4
        assert fit.certificate.primal == pytest.approx(best, abs=near * scale), seed
        for solver in (SoftSDCA(rho=1.0), SoftBCFW(rho=1.0)):
            soft = run(problem, solver, max_epochs=20, random_state=seed)
            assert soft.certificate.primal >= best - 1e-6 * scale, seed
            assert soft.certificate.dual <= best + 1e-6 * scale, seed


@pytest.mark.parametrize("seed", range(12))
def test_a_repaired_point_is_locally_consistent_and_a_consistent_one_stays(seed):
    problem = small_problem(seed)
    rng = np.random.default_rng(seed)
    g = problem.cliques
    mu = np.concatenate([rng.dirichlet(np.ones(k)) for k in np.diff(g.offsets)])
    out = np.empty_like(mu)
    repair(g, mu, out)
    sums, A = constraint_matrices(problem)
    assert out.min() >= 0
    np.testing.assert_allclose(sums @ out, 1, atol=1e-12)
    np.testing.assert_allclose(A @ out, 0, atol=1e-12)
    again = np.empty_like(mu)
    repair(g, out, again)
    np.testing.assert_allclose(again, out, atol=1e-12)


def augmented(problem: GraphProblem, mu, xi, rho):
    _, A = constraint_matrices(problem)
    apart = A @ mu
    dual = dual_value(problem, mu).value
    return dual * problem.n_examples + xi @ apart - apart @ apart / (2 * rho)


@pytest.mark.parametrize("method", [kernels.PROXIMAL, kernels.FRANK_WOLFE])
@pytest.mark.parametrize("seed", range(12))
def test_no_block_step_lowers_the_augmented_dual(seed, method):
    problem = small_problem(seed)
    solver = IDAL(rho=0.7)
    state = solver.init(problem)
    rng = np.random.default_rng(seed)
    state.point.xi[:] = rng.normal(size=len(state.point.xi))
    state.set_rho(0.7)
    before = augmented(problem, state.point.mu, state.point.xi, 0.7)
    for c in rng.integers(0, problem.n_cliques, 30):
        kernels.visit(problem.cliques, problem.terms, state.point, 0.7, state.steps,
                      np.array([c]), method, state.gaps)  # fmt: skip
        after = augmented(problem, state.point.mu, state.point.xi, 0.7)
        assert after >= before - 1e-10 * max(abs(before), 1.0)
        before = after


@pytest.mark.parametrize("seed", range(12))
def test_the_gradient_of_a_clique_is_that_of_finite_differences(seed):
    problem = small_problem(seed)
    rho, rng = 0.7, np.random.default_rng(seed)
    solver = IDAL(rho=rho)
    state = solver.init(problem)
    g, x = problem.cliques, state.point
    x.mu[:] = np.concatenate([rng.dirichlet(np.ones(k)) for k in np.diff(g.offsets)])
    x.xi[:] = rng.normal(size=len(x.xi))
    state.refresh()
    state.set_rho(rho)
    widest = int(max(np.diff(g.offsets).max(), g.params.max()))
    for c in range(problem.n_cliques):
        t, a, b = (np.empty(widest) for _ in range(3))
        kernels._smooth_gradient(g, problem.terms, x, rho, c, t, a, b)
        at = slice(g.offsets[c], g.offsets[c + 1])
        k = at.stop - at.start
        given = t[:k] - 2 * problem.gamma * problem.terms.curvature[c] * x.mu[at]
        for s in range(k):
            values = []
            for h in (1e-5, -1e-5):
                moved = x.mu.copy()
                moved[at.start + s] += h
                values.append(augmented(problem, moved, x.xi, rho))
            slope = (values[0] - values[1]) / 2e-5
            assert given[s] == pytest.approx(slope, rel=1e-4, abs=1e-5)


def test_the_step_constants_bound_the_curvature_on_the_simplex():
    for seed in range(20):
        problem = small_problem(seed)
        solver = IDAL(rho=0.3)
        state = solver.init(problem)
        B, (_, A) = feature_matrix(problem), constraint_matrices(problem)
        H = problem.C * B.T @ B + A.T @ A / 0.3
        for c in range(problem.n_cliques):
            at = slice(problem.cliques.offsets[c], problem.cliques.offsets[c + 1])
            k = at.stop - at.start
            center = np.eye(k) - 1.0 / k
            largest = np.linalg.eigvalsh(center @ H[at, at] @ center)[-1]
            if problem.entropy == "gini":
                assert state.steps[c] >= largest - 1e-9
                if problem.model.pairwise == "table":
                    assert state.steps[c] <= max(2 * largest, 1e-9) + 1e-9


def test_entropies_vanish_at_labelings_and_are_largest_at_uniform_beliefs():
    for seed in range(10):
        problem = small_problem(seed)
        truth = problem.truth
        assert entropy(problem.cliques, problem.terms, truth) == pytest.approx(0, abs=1e-9)
        sizes = np.diff(problem.cliques.offsets)
        uniform = np.repeat(1.0 / sizes, sizes)
        assert entropy(problem.cliques, problem.terms, uniform) > 0


def test_the_penalty_alone_ends_on_a_plateau_that_multipliers_pass():
    problem = small_problem(27, C=1.0, loss="softmax_margin", gamma=1.0)
    assert len(problem.cliques.left)
    soft = run(problem, SoftSDCA(rho=1.0), tol=1e-9, max_epochs=500, random_state=0)
    full = run(problem, IDAL(rho=1.0), tol=1e-6, max_epochs=500, random_state=0)
    assert full.certificate.gap <= 1e-6
    assert soft.certificate.gap > 1e-3
    assert soft.trace.disagreement[-1] > 1e-4 > full.trace.disagreement[-1]


@pytest.mark.parametrize("sampling", ["examples", "permuted", "uniform", "gap"])
def test_every_order_of_the_cliques_ends_at_the_same_optimum(sampling):
    problem = small_problem(3, C=0.3, loss="log", gamma=1.0)
    wanted = run(problem, IDAL(), tol=1e-7, max_epochs=2000, random_state=0).certificate.primal
    fit = run(
        problem, IDAL(sampling=sampling, inner=1.0), tol=1e-5, max_epochs=2000, random_state=1
    )
    assert fit.converged
    assert fit.certificate.primal == pytest.approx(wanted, rel=1e-4)


def test_momentum_ends_at_the_same_optimum():
    problem = small_problem(5, C=0.3, loss="log", gamma=1.0)
    wanted = run(problem, IDAL(), tol=1e-7, max_epochs=2000, random_state=0).certificate.primal
    fit = run(problem, IDAL(accelerated=True, inner=3), tol=1e-5, max_epochs=2000, random_state=1)
    assert fit.converged
    assert fit.certificate.primal == pytest.approx(wanted, rel=1e-4)


def test_the_same_seed_gives_the_same_bits_and_a_checkpoint_goes_on():
    problem = small_problem(7, loss="log", gamma=1.0)
    one, two = (run(problem, IDAL(), max_epochs=10, tol=0, random_state=3) for _ in range(2))
    assert np.array_equal(one.weights, two.weights)
    solver = IDAL()
    restored = solver.unpack(problem, solver.pack(one.state))
    np.testing.assert_allclose(restored.point.w, one.weights, atol=1e-9)
    assert solver.certify(problem, restored).primal == pytest.approx(one.certificate.primal)


def test_a_warm_start_begins_where_the_other_run_ended():
    problem = small_problem(9, loss="log", gamma=1.0)
    first = run(problem, IDAL(), tol=1e-6, max_epochs=1000, random_state=0)
    again = run(problem, IDAL(), tol=1e-5, max_epochs=1000, random_state=0, warm=first.state)
    assert again.epochs <= 0.2 * first.epochs + 5


@pytest.mark.parametrize(
    "options",
    [{"rho": 0}, {"rho": "x"}, {"inner": 0}, {"inner": float("nan")}, {"sampling": "other"}],
)
def test_bad_parameters_are_named(options):
    with pytest.raises(DataError, match=next(iter(options))):
        IDAL(**options)


def structural_svm_optimum(problem: GraphProblem) -> float:
    """The exact structural SVM by cutting planes: a linear program oracle and scipy's solver."""
    assert problem.gamma == 0
    B, planes, w = feature_matrix(problem), [], np.zeros(problem.dimension)
    for _ in range(200):
        scores = B.T @ w
        mu, _ = problem.inference(scores + problem.costs)
        planes.append((problem.costs @ mu, B @ (problem.truth - mu)))
        a = np.array([p[0] for p in planes])
        G = np.array([p[1] for p in planes])

        def negative(t, a=a, G=G):
            return 0.5 * problem.C * np.sum((t @ G) ** 2) - a @ t

        start = np.full(len(a), 1.0 / len(a))
        t = minimize(
            negative, start, jac=lambda t, a=a, G=G: problem.C * G @ (t @ G) - a,
            bounds=[(0, None)] * len(a), method="SLSQP",
            constraints=[{"type": "eq", "fun": lambda t: t.sum() - 1, "jac": np.ones_like}],
            options={"ftol": 1e-13, "maxiter": 500},
        )  # fmt: skip
        w = problem.C * t.x @ G
        if problem.primal(w) + t.fun / problem.n_examples < 1e-6:
            break
    return problem.primal(w)


def test_on_chains_the_limit_of_small_gamma_is_the_exact_structural_svm():
    rng = np.random.default_rng(0)
    examples, labels = [], []
    for _ in range(6):
        y = rng.integers(0, 3, 5)
        x = np.eye(3)[y] + rng.normal(size=(5, 3))
        examples.append((x, [(i, i + 1) for i in range(4)]))
        labels.append(y)
    data = GraphDataset.from_examples(examples, labels)
    model = PairwiseModel([3], 3)
    exact = structural_svm_optimum(GraphProblem(model, data, C=0.2, loss="hinge"))
    relaxed = GraphProblem(model, data, C=0.2, loss="softmax_margin", gamma=1e-4)
    fit = run(relaxed, IDAL(), tol=2e-4, max_epochs=4000, random_state=0)
    assert fit.certificate.primal == pytest.approx(exact, rel=1e-3)
    hinge = GraphProblem(model, data, C=0.2, loss="hinge")
    fit = run(hinge, IDAL(), tol=2e-4, max_epochs=4000, random_state=0)
    assert fit.certificate.primal == pytest.approx(exact, rel=1e-3)


def test_the_upper_bound_is_that_of_a_linear_program_when_there_is_no_entropy():
    problem = small_problem(8, loss="hinge", C=0.5)
    fit = run(problem, IDAL(), tol=1e-5, max_epochs=3000, random_state=0)
    sums, A = constraint_matrices(problem)
    scores = problem.potentials(fit.weights)
    found = linprog(
        -(scores + problem.costs), A_eq=np.concatenate([sums, A]),
        b_eq=np.concatenate([np.ones(len(sums)), np.zeros(len(A))]),
    )  # fmt: skip
    value = problem.ridge_objective(
        float(fit.weights @ fit.weights), -found.fun - scores @ problem.truth
    )
    assert fit.certificate.dual - 1e-9 <= value <= fit.certificate.primal + 1e-9


def dense_problem(gamma: float = 1.0, loss: str = "log") -> GraphProblem:
    """Complete graphs over eight binary nodes: a strong penalty makes their inner problem hard."""
    rng = np.random.default_rng(0)
    pairs = [(i, j) for i in range(8) for j in range(i)]
    y = [rng.integers(0, 2, 8) for _ in range(20)]
    X = [(np.eye(2)[labels] + rng.normal(size=(8, 2)), pairs) for labels in y]
    data = GraphDataset.from_examples(X, y)
    return GraphProblem(PairwiseModel([2], 2), data, C=0.5, loss=loss, gamma=gamma)


def test_an_adaptive_rho_finds_its_way_back_from_a_bad_one():
    problem = dense_problem()
    options = {"tol": 1e-4, "max_epochs": 400, "random_state": 0}
    fixed = run(problem, IDAL(rho=0.02, inner=0.5, adaptive=False), **options)
    found = run(problem, IDAL(rho=0.02, inner=0.5), **options)
    assert found.converged
    assert found.epochs < 0.5 * fixed.epochs
    assert found.state.rho > 0.02


def test_visits_per_step_grow_with_the_condition_number_and_stay_within_limits():
    hard, easy = dense_problem(gamma=0.1), dense_problem(gamma=100.0)
    shares = [IDAL(rho=0.5).init(p).inner for p in (hard, easy)]
    assert 2.0 >= shares[0] > shares[1] == 0.5
    assert IDAL().init(dense_problem(loss="hinge")).inner == 0.5
    assert IDAL(inner=0.7).init(hard).inner == 0.7
