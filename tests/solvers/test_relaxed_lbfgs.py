"""L-BFGS on weights and messages: its gradient, its bounds, and the hinge loss on loopy graphs."""

from __future__ import annotations

import numpy as np
import pytest
from relaxed_program import reference_bracket
from scipy.optimize import check_grad

from cliquewise.data.graphs import GraphDataset
from cliquewise.data.images import grids
from cliquewise.models.pairwise import PairwiseModel
from cliquewise.problems.graph import GraphProblem
from cliquewise.solvers.backends.graph.messages import Reparametrized
from cliquewise.solvers.planner import choose
from cliquewise.solvers.relaxed_lbfgs import RelaxedLBFGS
from cliquewise.solvers.run import run


def drawn(seed: int, loss: str, C: float = 1.0, weights=None) -> GraphProblem:
    """Three graphs of up to five nodes, with cycles and features of edges."""
    rng = np.random.default_rng(seed)
    examples, labels = [], []
    for _ in range(3):
        n = int(rng.integers(2, 6))
        pairs = np.array([(i, j) for i in range(n) for j in range(i)])
        pairs = pairs[rng.random(len(pairs)) < 0.8].reshape(-1, 2)
        examples.append((rng.normal(size=(n, 2)), pairs, rng.normal(size=(len(pairs), 1))))
        labels.append(rng.integers(0, 3, n))
    data = GraphDataset.from_examples(examples, labels)
    gamma = float(rng.uniform(0.2, 2.0))
    return GraphProblem(PairwiseModel([3], 2, 1), data, C, loss, gamma, weights=weights)


@pytest.mark.parametrize("loss", ["log", "hinge"])
def test_the_gradient_in_weights_and_messages_is_that_of_finite_differences(loss):
    problem = drawn(1, loss, weights=[2.0, 0.0, 1.0])
    view = Reparametrized(problem, 0.7 if loss == "hinge" else problem.gamma)
    u = np.random.default_rng(0).normal(size=problem.dimension + view.n_messages)
    wrong = check_grad(
        lambda v: view.primal_and_gradient(v)[0], lambda v: view.primal_and_gradient(v)[1], u
    )
    assert wrong < 1e-5


def test_every_certificate_encloses_the_optimum_and_closes_whatever_the_smoothing():
    for seed in range(12):
        problem = drawn(seed, ("log", "softmax_margin", "hinge", "hinge")[seed % 4],
                        C=(0.1, 1.0, 10.0)[seed % 3])  # fmt: skip
        low, high = reference_bracket(problem)
        scale = max(abs(low), 1.0)
        fit = run(problem, RelaxedLBFGS(), tol=1e-3, max_epochs=3000, random_state=0)
        assert np.all(fit.trace.primal >= low - 1e-7 * scale), seed
        assert np.all(fit.trace.dual <= high + 1e-7 * scale), seed
        assert fit.converged, (seed, fit.certificate)


def test_structural_svms_on_grids_get_below_a_gap_of_one_percent():
    rng = np.random.default_rng(0)
    y = [rng.integers(0, 3, (6, 6)) for _ in range(4)]
    X = grids([np.eye(3)[v] + rng.normal(size=(6, 6, 3)) for v in y], differences=True)
    data = GraphDataset.from_examples(X, [v.ravel() for v in y])
    width = data.edge_features.shape[1]
    for C in (0.1, 10.0):
        problem = GraphProblem(PairwiseModel([3], 3, width), data, C, "hinge")
        fit = run(problem, RelaxedLBFGS(), tol=1e-2, max_epochs=1500, random_state=0)
        assert fit.converged, fit.certificate
        assert fit.certificate.primal == pytest.approx(fit.certificate.dual, rel=1.1e-2)


def test_planner_compares_whole_graphs_with_cliques_and_other_entropies_are_rejected():
    rng = np.random.default_rng(0)
    y = [rng.integers(0, 2, (3, 3)) for _ in range(4)]
    X = grids([np.eye(2)[v] for v in y], differences=True)
    few = GraphDataset.from_examples(X, [v.ravel() for v in y])
    width = few.edge_features.shape[1]
    assert choose(GraphProblem(PairwiseModel([2], 2, width), few, 1.0, "hinge")).solver.name == (
        "relaxed_lbfgs"
    )
    n = 40
    edges = [(i, j) for i in range(n) for j in range(i)]
    data = GraphDataset.from_examples(
        [(rng.normal(size=(n, 3000)), edges)] * 2, [rng.integers(0, 2, n)] * 2
    )
    hinge = GraphProblem(PairwiseModel([2], 3000), data, 1.0, "hinge")
    assert choose(hinge).solver.name == "bcfw"  # 3,000 features in each of 820 cliques
    other = GraphProblem(PairwiseModel([2], 3000), data, entropy="gini-otrw")
    assert "gini" in str(RelaxedLBFGS().refuses(other))
