"""The local polytope with a Gini entropy: many graphs at once, true bounds, honest refusals."""

from __future__ import annotations

import numpy as np
import pytest
from reference import Reference
from scipy.optimize import linprog
from scipy.sparse import csr_matrix

import cliquewise as cw
from cliquewise.errors import DataError, PrecisionError, UnsupportedError
from cliquewise.graph import FactorGraph
from cliquewise.oracles._pairwise import compile_pairwise
from cliquewise.oracles.relaxed import relaxed_beliefs
from cliquewise.oracles.relaxed_label_sets import relaxed_labels
from cliquewise.ragged import offsets_of


def random_pairwise(seed: int, n: int = 5, k: int = 3) -> FactorGraph:
    rng = np.random.default_rng(seed)
    edges = [(i, j) for i in range(n) for j in range(i + 1, n) if rng.random() < 0.6]
    tables = rng.standard_normal((len(edges), k, k))
    return FactorGraph.pairwise(rng.standard_normal((n, k)), edges, tables)


def local_polytope_maximum(graph: FactorGraph) -> float:
    """The linear program, written out."""
    flat = compile_pairwise(graph)
    t = flat.topology
    scores = np.concatenate([flat.nodes, flat.tables])
    rows, right = [], []
    for v in range(t.n_nodes):
        row = np.zeros(len(scores))
        row[t.node_offsets[v] : t.node_offsets[v + 1]] = 1.0
        rows.append(row)
        right.append(1.0)
    for e, ends in enumerate(t.edges):
        first = int(t.node_offsets[-1] + t.edge_offsets[e])
        shape = t.cards[ends]
        cells = first + np.arange(shape.prod()).reshape(shape)
        for axis, v in enumerate(ends):
            for state, part in enumerate(np.moveaxis(cells, axis, 0)):
                row = np.zeros(len(scores))
                row[part.ravel()], row[t.node_offsets[v] + state] = 1.0, -1.0
                rows.append(row)
                right.append(0.0)
    return -float(linprog(-scores, A_eq=np.array(rows), b_eq=right, bounds=(0, 1)).fun)


@pytest.mark.parametrize("seed", range(4))
def test_value_and_bound_enclose_the_linear_program(seed: int) -> None:
    graph = random_pairwise(seed)
    answer = graph.map("relaxed", tol=1e-6, max_sweeps=4000)
    best = local_polytope_maximum(graph)
    slack = 1e-7 * np.abs(graph.tables).sum()
    assert answer.info["value"] - slack <= best <= answer.upper_bound + slack
    assert answer.info["gap"] <= 1e-4


def test_a_frustrated_cycle_is_not_called_exact() -> None:
    """Every pair of three wants to differ: halves score 3, but no labeling more than 2."""
    graph = FactorGraph.complete(np.zeros((3, 2)), 1.0 - np.eye(2))
    answer = graph.map("relaxed")
    assert answer.score <= 2.0 and answer.upper_bound >= 3.0 - 1e-9 and not answer.exact


def test_on_trees_the_labeling_is_proved() -> None:
    rng = np.random.default_rng(3)
    graph = FactorGraph.tree([-1, 0, 0, 1, 1], rng.normal(size=(5, 3)), rng.normal(size=(3, 3)))
    answer = graph.map("relaxed")
    assert answer.exact and answer.score == pytest.approx(graph.map("tree").score)


@pytest.mark.parametrize("entropy", ["gini", "gini-otrw"])
@pytest.mark.parametrize("gamma", [0.1, 1.0, 10.0])
def test_the_bounds_of_log_z_are_true(entropy: str, gamma: float) -> None:
    for seed in range(5):
        graph = random_pairwise(seed)
        answer = graph.marginals("relaxed", gamma=gamma, entropy=entropy, max_sweeps=40)
        lower, upper = answer.log_z_bounds
        assert lower <= Reference(graph).log_z <= upper
        assert not answer.exact and answer.info["value"] <= answer.info["bound"] + 1e-9


@pytest.mark.parametrize("entropy", ["gini", "gini-otrw"])
def test_many_graphs_at_once_have_the_beliefs_of_each_alone(entropy: str) -> None:
    graphs = [random_pairwise(seed, n=4, k=2 + seed % 2) for seed in range(6)]
    flat = [compile_pairwise(g) for g in graphs]
    node_offsets = offsets_of([g.n_variables for g in graphs])
    edges = [f.topology.edges + at for f, at in zip(flat, node_offsets[:-1], strict=True)]
    together = relaxed_beliefs(
        np.concatenate([f.nodes for f in flat] + [f.tables for f in flat]),
        np.concatenate([g.cardinalities for g in graphs]),
        np.concatenate(edges),
        node_offsets,
        offsets_of([len(e) for e in edges]),
        entropy=entropy,
        tol=1e-8,
        max_sweeps=4000,
    )
    alone = [g.marginals("relaxed", entropy=entropy, tol=1e-8, max_sweeps=4000) for g in graphs]
    expected = np.concatenate([a.nodes.flat for a in alone])
    assert together.nodes == pytest.approx(expected, abs=2e-3)
    assert together.value == pytest.approx(sum(a.info["value"] for a in alone), abs=1e-4)


def test_what_it_cannot_do_is_said() -> None:
    with pytest.raises(UnsupportedError, match="factor of 3"):
        FactorGraph([2, 2, 2], [((0, 1, 2), np.zeros((2, 2, 2)))]).map("relaxed")
    with pytest.raises(UnsupportedError, match="forbidden"):
        FactorGraph([2], [((0,), [0.0, -np.inf])]).map("relaxed")
    graph = FactorGraph([2], [((0,), [0.0, 1.0])])
    with pytest.raises(UnsupportedError, match="entropy is one of"):
        graph.marginals("relaxed", entropy="shannon")
    for wrong in ({"gamma": -1.0}, {"epsilon": 2.0}, {"max_sweeps": 0}):
        with pytest.raises(DataError):
            graph.marginals("relaxed", **wrong)
    with pytest.raises(UnsupportedError, match="no option 'tolerance'"):
        graph.map("relaxed", tolerance=1.0)


def test_auto_never_takes_it() -> None:
    for want in ("map", "marginals"):
        chosen = cw.oracles.choose(random_pairwise(0), want).oracle
        assert chosen.name != "relaxed"


def test_scores_beyond_float64_are_refused_and_not_answered_with_nan():
    two = np.array([2, 2]), np.array([[0, 1]]), np.array([0, 2]), np.array([0, 1])
    with pytest.raises(PrecisionError, match="range of float64"):
        relaxed_beliefs(np.array([1e308, -1e308, -1e308, 1e308, 1e308, 0, -1e308, 0]), *two)
    with pytest.raises(PrecisionError, match="row 0"):
        relaxed_labels(csr_matrix([[1e200]]), np.array([-1e150, 1e150, 1e150, -1e150, 3.0]), 2,
                       intercept=False)  # fmt: skip


def test_a_row_of_label_sets_has_the_same_beliefs_alone_and_among_others():
    rng = np.random.default_rng(0)
    X, labels = csr_matrix(rng.normal(size=(12, 3))), 6
    w = 2.0 * rng.normal(size=2 * labels * 4 + labels * (labels - 1) // 2)
    for sweeps in (1, 7, 200):
        whole, _ = relaxed_labels(X, w, labels, max_sweeps=sweeps)
        for i in range(12):
            alone, _ = relaxed_labels(X[i], w, labels, max_sweeps=sweeps)
            np.testing.assert_array_equal(alone[0], whole[i])
