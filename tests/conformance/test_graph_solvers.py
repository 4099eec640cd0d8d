"""Every registered solver that takes graphs, on trees, where relaxed and exact learning agree.

Nothing here names a solver that has to pass: a new one is tried as soon as its file exists, with
the hinge loss, whose optimum is the same for all of them and is found here by listing all
labelings.
"""

from __future__ import annotations

import pickle
from itertools import product
from typing import Any

import numpy as np
import pytest
from scipy.optimize import minimize

from cliquewise.data.graphs import GraphDataset
from cliquewise.errors import DataError
from cliquewise.models.pairwise import PairwiseModel
from cliquewise.problems.graph import GraphProblem
from cliquewise.solvers import Solver, registered
from cliquewise.solvers.run import run


def forest(seed: int, C: float = 0.5, examples: int = 3, **options: Any) -> GraphProblem:
    """Random trees of up to four nodes with two or three labels, with edge features or not."""
    rng = np.random.default_rng(seed)
    k, with_edge_features = int(rng.integers(2, 4)), bool(seed % 2)
    X, y = [], []
    for _ in range(examples):
        n = int(rng.integers(1, 5))
        edges = [(int(rng.integers(0, v)), v) for v in range(1, n)]
        labels = rng.integers(0, k, n)
        features = np.eye(k)[labels] + rng.normal(size=(n, k))
        on_edges = rng.normal(size=(n - 1, 2)) if with_edge_features else None
        X.append((features, np.array(edges, dtype=int).reshape(-1, 2), on_edges))
        y.append(labels)
    data = GraphDataset.from_examples(X, y)
    pairwise = ("table", "symmetric", "potts")[seed % 3]
    model = PairwiseModel([k], k, 2 if with_edge_features else 0, pairwise)
    return GraphProblem(model, data, C=C, loss="hinge", **options)


def listed_optimum(problem: GraphProblem) -> float:
    """The structural SVM's optimum over all labelings, by scipy on its dual.

    One simplex per example over all its labelings; the value is a true lower bound up to the
    solver's tolerance, and is checked against the primal at its own weights.
    """
    images, costs, owner = [], [], []
    d, k = problem.data, int(problem.model.cardinalities[0])
    for i in range(problem.n_examples):
        at = problem.entries(i)
        graph = problem.graph(i, np.zeros(int(problem.cliques.offsets[-1])))
        n = int(d.node_offsets[i + 1] - d.node_offsets[i])
        for labels in product(range(k), repeat=n):
            mu = np.zeros(len(problem.truth))
            for entry in graph._entries(np.array(labels)[None]):
                mu[at[entry[0]]] = 1.0
            truth = np.zeros_like(mu)
            truth[at] = problem.truth[at]
            image = np.zeros(problem.dimension)
            problem.accumulate(truth - mu, image)
            images.append(image)
            costs.append(problem.costs @ mu)
            owner.append(i)
    G, a, who = np.array(images), np.array(costs), np.array(owner)
    rows = (who[None] == np.arange(problem.n_examples)[:, None]).astype(float)
    found = minimize(
        lambda t: 0.5 * problem.C * np.sum((t @ G) ** 2) - a @ t,
        rows.T @ (1 / rows.sum(axis=1)),
        jac=lambda t: problem.C * G @ (t @ G) - a,
        bounds=[(0, None)] * len(a),
        method="SLSQP",
        constraints=[{"type": "eq", "fun": lambda t: rows @ t - 1, "jac": lambda t: rows}],
        options={"ftol": 1e-14, "maxiter": 1000},
    )
    w = problem.C * found.x @ G
    losses = [np.max(a[who == i] - G[who == i] @ w) for i in range(problem.n_examples)]
    primal = problem.value(float(w @ w), float(np.sum(losses)))
    dual = -found.fun / problem.n_examples
    assert primal - dual <= 1e-5 * max(abs(primal), 1.0)
    return dual


SOLVERS = [
    s() for s in sorted(registered(), key=lambda s: s.name) if s().refuses(forest(0)) is None
]
#: Those whose gap goes to zero here; a plateau or a slow last digit is no error.
SLACK = 1e-5
every_solver = pytest.mark.parametrize("solver", SOLVERS, ids=lambda s: s.name)


def check(primal: float, dual: float, optimum: float) -> None:
    slack = SLACK * max(abs(optimum), 1.0)
    assert dual <= optimum + slack
    assert primal >= optimum - slack
    assert primal - dual >= -1e-9 * max(abs(optimum), 1.0)


@pytest.mark.parametrize("seed", range(8))
@every_solver
def test_every_row_of_the_trace_encloses_the_optimum_over_all_labelings(
    solver: Solver, seed: int
) -> None:
    problem = forest(seed)
    optimum = listed_optimum(problem)
    fit = run(problem, solver, tol=1e-4, max_epochs=300, random_state=seed)
    assert len(fit.trace) > 0
    for row in fit.trace:
        check(row["primal"], row["dual"], optimum)
    assert fit.weights.shape == (problem.dimension,)
    # The certificate's primal holds for the weights that are returned.
    assert problem.primal(fit.weights) <= fit.certificate.primal + 1e-9


@every_solver
def test_the_same_seed_gives_the_same_bits_also_after_pickling(solver: Solver) -> None:
    problem = forest(4)
    again = pickle.loads(pickle.dumps(solver))
    assert again == solver and hash(again) == hash(solver)
    one, two = (run(problem, s, tol=0, max_epochs=8, random_state=3) for s in (solver, again))
    assert one.weights.tobytes() == two.weights.tobytes()
    assert one.certificate == two.certificate


@every_solver
def test_a_state_comes_back_from_its_arrays_and_goes_on(solver: Solver) -> None:
    problem = forest(5)
    optimum, rng = listed_optimum(problem), np.random.default_rng(0)
    state = solver.init(problem)
    for _ in range(4):
        state, _ = solver.step(problem, state, rng)
    again = solver.unpack(problem, {k: np.array(v) for k, v in solver.pack(state).items()})
    np.testing.assert_allclose(
        solver.weights(problem, again), solver.weights(problem, state), rtol=1e-9, atol=1e-10
    )
    again, _ = solver.step(problem, again, rng)
    proof = solver.certify(problem, again)
    check(proof.primal, proof.dual, optimum)
    with pytest.raises(DataError, match="other data"):
        solver.unpack(forest(2, examples=5), solver.pack(state))


@every_solver
def test_a_warm_start_from_another_C_is_as_true_as_a_cold_one(solver: Solver) -> None:
    first, second = forest(6, C=0.1), forest(6, C=1.0)
    warm = run(first, solver, tol=1e-3, max_epochs=50, random_state=0).state
    fit = run(second, solver, tol=1e-3, max_epochs=100, random_state=0, warm=warm)
    optimum = listed_optimum(second)
    for row in fit.trace:
        check(row["primal"], row["dual"], optimum)


@every_solver
@pytest.mark.parametrize("passes", [2, 3])
def test_a_checkpoint_of_another_C_proves_nothing_wrong(solver: Solver, passes: int) -> None:
    weak, strong = forest(6, C=5.0), forest(6, C=0.01)
    for one, other in ((weak, strong), (strong, weak)):
        state = run(one, solver, tol=0, max_epochs=passes, random_state=0).state
        again = solver.unpack(other, solver.pack(state))
        optimum, proof = listed_optimum(other), solver.certify(other, again)
        check(proof.primal, proof.dual, optimum)
        again, _ = solver.step(other, again, np.random.default_rng(0))
        proof = solver.certify(other, again)
        check(proof.primal, proof.dual, optimum)


@every_solver
def test_graphs_of_one_node_and_no_edges_are_problems_too(solver: Solver) -> None:
    data = GraphDataset.from_examples([([[1.0]], []), ([[-1.0], [2.0]], [])], [[0], [1, 0]])
    problem = GraphProblem(PairwiseModel([2], 1), data, loss="hinge")
    fit = run(problem, solver, tol=1e-2, max_epochs=2000, random_state=0)
    check(fit.certificate.primal, fit.certificate.dual, listed_optimum(problem))


@every_solver
def test_the_memory_estimate_covers_the_packed_state(solver: Solver) -> None:
    problem = forest(7)
    packed = solver.pack(solver.init(problem))
    assert solver.memory(problem) >= 0.9 * sum(np.asarray(v).nbytes for v in packed.values()) - 512
