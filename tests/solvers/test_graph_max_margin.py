"""Structural SVMs on graphs through MAP methods: the optimum, honest bounds, caches, chains."""

from __future__ import annotations

import numpy as np
import pytest

import cliquewise as cw
from cliquewise.data.graphs import GraphDataset
from cliquewise.errors import DataError, UnsupportedError
from cliquewise.models.pairwise import PairwiseModel
from cliquewise.problems.graph import GraphProblem
from cliquewise.solvers.bcfw import BCFW
from cliquewise.solvers.idal import IDAL
from cliquewise.solvers.planner import choose
from cliquewise.solvers.run import run
from cliquewise.solvers.subgradient import Subgradient
from cliquewise.solvers.warm_start import begin


def graphs(seed: int, shape: str, count: int = 5, n: int = 5, k: int = 3):
    """Chains, rings or complete graphs whose features tell something about the labels."""
    rng = np.random.default_rng(seed)
    edges = {
        "chain": [(i, i + 1) for i in range(n - 1)],
        "ring": [(i, (i + 1) % n) for i in range(n)],
        "complete": [(i, j) for i in range(n) for j in range(i + 1, n)],
    }[shape]
    y = [rng.integers(0, k, n) for _ in range(count)]
    X = [(np.eye(k)[labels] + rng.normal(size=(n, k)), edges) for labels in y]
    return X, y


def problem_of(seed: int, shape: str, C: float = 0.2, **options) -> GraphProblem:
    X, y = graphs(seed, shape)
    given = {"C": C, "loss": "hinge"} | options
    return GraphProblem(PairwiseModel([3], 3), GraphDataset.from_examples(X, y), **given)


@pytest.mark.parametrize("sampling", ["permuted", "gap", "uniform"])
@pytest.mark.parametrize("shape", ["chain", "ring", "complete"])
def test_bcfw_proves_its_optimum_and_no_exact_primal_is_below_it(shape, sampling):
    problem = problem_of(1, shape)
    fit = run(problem, BCFW(sampling=sampling), tol=1e-6, max_epochs=500, random_state=0)
    assert fit.converged and fit.certificate.status == "exact"
    assert problem.primal(fit.weights) == pytest.approx(fit.certificate.primal, rel=1e-9)
    # Convexity: no point nearby is better than what was proved.
    rng = np.random.default_rng(0)
    for size in (1e-3, 1e-2, 0.3):
        other = fit.weights + size * rng.normal(size=problem.dimension)
        assert problem.primal(other) >= fit.certificate.dual - 1e-9


@pytest.mark.parametrize("shape", ["chain", "ring"])
def test_the_dual_rises_with_every_step(shape):
    problem, solver = problem_of(2, shape, C=1.0), BCFW()
    state, rng, last = solver.init(problem), np.random.default_rng(0), 0.0
    for _ in range(15):
        solver.step(problem, state, rng)
        running = state.dual
        solver._refresh(problem, state)
        assert state.dual == pytest.approx(running, rel=1e-8, abs=1e-10)
        assert state.dual >= last - 1e-10
        last = state.dual
    blocks = state.outputs
    assert blocks.atoms.alpha[: blocks.used].min() >= 0
    assert not blocks.scratch.any()


def test_top_k_rows_are_feature_differences_from_the_gold_labeling():
    problem, rng = problem_of(3, "ring"), np.random.default_rng(0)
    for i in range(problem.n_examples):
        w = rng.normal(size=problem.dimension)
        scores, rows = problem.top_k(w, i, 4)
        graph, at = problem.graph(i, problem.potentials(w) + problem.costs), problem.entries(i)
        for r, found in enumerate(graph.top_k(4)):
            mu = -problem.truth[at]
            for entry in graph._entries(found.labels[None]):
                mu[entry[0]] += 1.0
            dense = np.zeros(problem.dimension)
            rows.add_to(dense, r)
            np.testing.assert_allclose(dense, problem.image(i, mu), atol=1e-12)
            hamming = np.sum(found.labels != problem.data.labels[5 * i : 5 * i + 5])
            assert scores[r] == pytest.approx(hamming + dense @ w)


@pytest.mark.parametrize("method", ["icm", "trw-s", "portfolio", "milp", "junction-tree"])
@pytest.mark.parametrize("solver", [BCFW, Subgradient])
def test_an_inexact_map_method_loosens_the_certificate_and_never_fakes_it(solver, method):
    problem = problem_of(4, "complete", C=0.5)
    best = run(problem, BCFW(), tol=1e-7, max_epochs=500, random_state=0).certificate
    fit = run(problem, solver(map_method=method), tol=1e-3, max_epochs=10, random_state=0)
    for row in fit.trace:
        assert row["primal"] >= best.dual - 1e-7
        assert row["dual"] <= best.primal + 1e-7
    if method in ("milp", "junction-tree"):
        assert fit.certificate.status == "exact"
    if method == "icm":
        assert fit.certificate.status == "bound"


def test_bcfw_stops_when_its_map_method_finds_nothing_new():
    problem = problem_of(4, "complete", C=0.5)
    fit = run(problem, BCFW(map_method="icm"), tol=1e-9, max_epochs=10_000, random_state=0)
    assert not fit.converged
    assert fit.epochs < 1000


def test_bcfw_ends_once_only_what_its_method_cannot_prove_is_left():
    problem = problem_of(3, "complete", C=1.0)
    best = run(problem, BCFW(map_method="junction-tree"), tol=1e-6, max_epochs=500, random_state=0)
    fit = run(problem, BCFW(map_method="trw-s"), tol=1e-9, max_epochs=2000, random_state=0)
    assert not fit.converged and fit.certificate.status == "bound" and fit.epochs < 500
    assert fit.certificate.dual <= best.certificate.primal
    assert best.certificate.dual <= problem.primal(fit.weights) <= fit.certificate.primal + 1e-9
    # What could still be gained is little, and less than what is left open.
    left = problem.primal(fit.weights) - best.certificate.dual
    assert left < min(0.01 * best.certificate.primal, fit.certificate.absolute_gap)


def test_the_subgradient_method_comes_near():
    problem = problem_of(5, "ring", C=0.05)
    best = run(problem, BCFW(), tol=1e-7, max_epochs=500, random_state=0).certificate
    fit = run(problem, Subgradient(), tol=2e-2, max_epochs=2000, random_state=0)
    assert fit.converged
    assert fit.certificate.primal == pytest.approx(best.primal, rel=2.1e-2)


def test_few_labelings_are_enough_room_for_a_true_certificate():
    problem = problem_of(6, "ring", C=3.0)
    best = run(problem, BCFW(), tol=1e-7, max_epochs=1000, random_state=0)
    tight = run(problem, BCFW(max_outputs=2), tol=1e-7, max_epochs=60, random_state=0)
    wide = run(problem, BCFW(max_outputs=9), tol=1e-6, max_epochs=1000, random_state=0)
    # Half of the room may be taken by those that were dropped.
    many, few = (np.count_nonzero(r.state.outputs.atoms.alpha) for r in (best, tight))
    assert few <= 2 * problem.n_examples < many
    assert tight.state.outputs.used <= 4 * problem.n_examples
    assert tight.certificate.dual <= best.certificate.primal + 1e-9
    assert tight.certificate.primal >= best.certificate.dual - 1e-9
    assert wide.certificate.primal == pytest.approx(best.certificate.primal, rel=1e-5)


def test_on_chains_idal_near_gamma_zero_graph_bcfw_and_chain_bcfw_have_one_optimum():
    X, y = graphs(0, "chain", count=8, n=6)
    data, model = GraphDataset.from_examples(X, y), PairwiseModel([3], 3)
    # The chain solver has its own oracle, model and data path: no code is shared with graphs.
    tagger = cw.SequenceTagger(
        loss="hinge", C=0.2, solver="bcfw", boundary_weights=False, tol=1e-6, max_epochs=5000,
        random_state=0,
    ).fit([x for x, _ in X], [labels.tolist() for labels in y])  # fmt: skip
    chain = tagger.certificate_
    assert chain.gap <= 1e-6
    hinge = GraphProblem(model, data, C=0.2, loss="hinge")
    graph = run(hinge, BCFW(), tol=1e-6, max_epochs=500, random_state=0).certificate
    assert graph.primal == pytest.approx(chain.primal, rel=1e-5)
    small = GraphProblem(model, data, C=0.2, loss="softmax_margin", gamma=1e-4)
    relaxed = run(small, IDAL(), tol=2e-4, max_epochs=4000, random_state=0).certificate
    assert relaxed.gap <= 1e-3
    assert relaxed.primal == pytest.approx(chain.primal, rel=1e-3)


@pytest.mark.parametrize("shape", ["ring", "complete"])
def test_on_loopy_graphs_the_relaxation_is_not_below_the_exact_structural_svm(shape):
    # The local polytope holds the marginal one, so the relaxed loss is the larger.
    exact = run(problem_of(7, shape), BCFW(), tol=1e-6, max_epochs=500, random_state=0)
    relaxed = run(problem_of(7, shape), IDAL(), tol=1e-3, max_epochs=2000, random_state=0)
    assert relaxed.certificate.primal >= exact.certificate.dual - 1e-9


def test_a_warm_start_needs_the_same_graphs_and_ends_at_once():
    problem = problem_of(8, "ring")
    cold = run(problem, BCFW(), tol=1e-6, max_epochs=500, random_state=0)
    warm = run(problem, BCFW(), tol=1e-6, max_epochs=500, random_state=1, warm=cold.state)
    assert warm.converged and warm.epochs <= 2
    for solver in (BCFW(), Subgradient()):
        state = run(problem, solver, max_epochs=2, random_state=0).state
        with pytest.raises(DataError, match="same"):
            begin(solver, problem_of(9, "chain"), state)


def test_solvers_have_the_same_names_on_graphs_as_on_chains():
    problem = problem_of(1, "ring")
    assert isinstance(choose(problem, "bcfw").solver, BCFW)
    assert isinstance(choose(problem, "subgradient").solver, Subgradient)
    with pytest.raises(UnsupportedError, match=r"not log; these do: .*idal"):
        choose(problem_of(1, "ring", loss="log"), "bcfw")
    with pytest.raises(UnsupportedError, match=r"'chain', which"):
        choose(problem, BCFW(map_method="chain"))


@pytest.mark.parametrize(
    "options",
    [
        {"sampling": "x"},
        {"uniform_share": 2.0},
        {"cached_passes": -1},
        {"max_outputs": 1},
        {"map_method": "trw-bp"},
        {"map_options": 3},
    ],
)
def test_bad_parameters_are_named_for_graph_bcfw(options):
    with pytest.raises(DataError, match=next(iter(options))):
        BCFW(**options)


def test_map_options_reach_the_method_and_leave_the_solver_hashable():
    solver = BCFW(map_method="trw-s", map_options={"max_iterations": 3})
    assert hash(solver) == hash(BCFW(map_method="trw-s", map_options={"max_iterations": 3}))
    fit = run(problem_of(1, "ring"), solver, tol=1e-2, max_epochs=20, random_state=0)
    assert np.isfinite(fit.certificate.primal)
    with pytest.raises(UnsupportedError, match="unknown method"):
        BCFW(map_method="no such")


@pytest.mark.parametrize("solver", ["bcfw", "subgradient"])
def test_estimators_train_through_map_and_predict_exactly(solver):
    X, y = graphs(3, "ring", count=12)
    labeler = cw.GraphLabeler("hinge", C=0.3, solver=solver, tol=0.05, random_state=0).fit(X, y)
    assert labeler.certificate_.status == "exact"
    assert labeler.certificate_.gap <= 0.05
    assert labeler.score(X, y) > 0.7
    exact = labeler.predict(X, "brute-force")
    assert all(np.array_equal(a, b) for a, b in zip(labeler.predict(X), exact, strict=True))
