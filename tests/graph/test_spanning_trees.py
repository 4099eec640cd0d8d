"""Edge appearance probabilities against a list of all spanning trees."""

from __future__ import annotations

from itertools import combinations

import networkx as nx
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import cliquewise.graph.spanning_trees as trees
from cliquewise.errors import GraphError
from cliquewise.graph.spanning_trees import (
    edge_probabilities,
    in_spanning_tree_polytope,
    maximum_spanning_tree,
    parent_probabilities,
)


def all_forests(n: int, edges: np.ndarray) -> list[tuple[int, ...]]:
    """Edge sets without a cycle that join all that is connected."""
    graph = nx.Graph(list(map(tuple, edges)))
    graph.add_nodes_from(range(n))
    size = n - nx.number_connected_components(graph)
    found = []
    for chosen in combinations(range(len(edges)), size):
        forest = nx.Graph([tuple(edges[e]) for e in chosen])
        forest.add_nodes_from(range(n))
        if nx.is_forest(forest):
            found.append(chosen)
    return found


@st.composite
def graphs(draw):
    n = draw(st.integers(2, 5))
    pairs = list(combinations(range(n), 2))
    kept = draw(st.lists(st.sampled_from(pairs), min_size=1, max_size=8, unique=True))
    seed = draw(st.integers(0, 999))
    return n, np.array(sorted(kept)), np.random.default_rng(seed).uniform(0.2, 2.0, len(kept))


@given(graphs())
def test_the_matrix_tree_theorem_agrees_with_the_list_of_all_trees(case):
    n, edges, weights = case
    listed = all_forests(n, edges)
    chance = np.array([np.prod(weights[list(tree)]) for tree in listed])
    expected = np.zeros(len(edges))
    for tree, p in zip(listed, chance / chance.sum(), strict=True):
        expected[list(tree)] += p
    np.testing.assert_allclose(edge_probabilities(n, edges, weights), expected, atol=1e-12)


@given(graphs())
def test_drawn_parents_make_a_point_of_the_polytope_with_every_edge(case):
    n, edges, weights = case
    rho = parent_probabilities(n, edges, weights)
    assert rho.min() > 0.0 and in_spanning_tree_polytope(n, edges, rho, 1e-5)


@given(graphs())
def test_the_largest_tree_is_the_best_of_the_list(case):
    n, edges, weights = case
    tree = maximum_spanning_tree(n, edges, weights - 0.5)
    best = max(sum(weights[e] - 0.5 for e in t) for t in all_forests(n, edges))
    assert tree @ (weights - 0.5) == pytest.approx(best)
    assert tuple(np.flatnonzero(tree)) in all_forests(n, edges)


@given(graphs(), st.floats(0.05, 0.6))
def test_membership_accepts_mixtures_of_trees_and_refuses_what_leaves_the_hull(case, push):
    n, edges, weights = case
    rho = edge_probabilities(n, edges, weights)
    tree = maximum_spanning_tree(n, edges, weights)
    assert in_spanning_tree_polytope(n, edges, rho)
    assert in_spanning_tree_polytope(n, edges, tree)
    assert in_spanning_tree_polytope(n, edges, 0.3 * rho + 0.7 * tree)
    beyond = tree + push * (tree - rho)  # tree is a vertex, so this is outside
    if np.abs(beyond - tree).max() > 1e-3:
        assert not in_spanning_tree_polytope(n, edges, beyond)
    assert not in_spanning_tree_polytope(n, edges, 0.9 * rho)


def test_a_dense_corner_is_refused_though_every_edge_and_the_total_look_right():
    # A triangle of ones has a cycle; the pendant edges make up for the total.
    edges = [(0, 1), (1, 2), (0, 2), (2, 3), (0, 3)]
    assert not in_spanning_tree_polytope(4, edges, [1.0, 1.0, 1.0, 0.0, 0.0])
    assert in_spanning_tree_polytope(4, edges, [0.6] * 5)


def test_large_graphs_get_the_mean_of_drawn_trees(monkeypatch):
    width = 8
    index = np.arange(width * width).reshape(width, width)
    edges = np.concatenate([
        np.stack([index[:, :-1].ravel(), index[:, 1:].ravel()], 1),
        np.stack([index[:-1].ravel(), index[1:].ravel()], 1),
    ])  # fmt: skip
    weights = np.random.default_rng(0).uniform(0.1, 1.0, len(edges))
    exact = edge_probabilities(64, edges, weights)
    monkeypatch.setattr(trees, "DENSE", 10)
    monkeypatch.setattr(trees, "TREES", 4000)
    drawn = edge_probabilities(64, edges, weights)
    assert drawn.sum() == pytest.approx(63) and drawn.min() > 0
    assert np.abs(drawn - exact).max() < 0.05
    assert in_spanning_tree_polytope(64, edges, drawn)
    monkeypatch.setattr(trees, "TREES", 1)
    few = edge_probabilities(64, edges, weights)
    assert few.min() > 0 and few.sum() == pytest.approx(63)


def test_no_edges_bridges_and_zero_weights():
    assert edge_probabilities(3, []).shape == (0,)
    assert maximum_spanning_tree(3, [], []).shape == (0,)
    assert edge_probabilities(4, [(0, 1), (2, 3)]).tolist() == [1.0, 1.0]
    triangle = [(0, 1), (1, 2), (0, 2)]
    rho = edge_probabilities(3, triangle, [1.0, 1.0, 0.0])
    assert rho.sum() == pytest.approx(2.0) and 0 < rho[2] < 0.05
    np.testing.assert_allclose(edge_probabilities(3, triangle, [0.0] * 3), 2 / 3)


@pytest.mark.parametrize(
    ("edges", "weights"),
    [
        ([(0, 0)], None),
        ([(0, 7)], None),
        ([(0, 1)], [-1.0]),
        ([(0, 1)], [np.nan]),
        ([(0, 1)], [1.0, 2.0]),
    ],
)
def test_bad_edges_and_weights_are_errors(edges, weights):
    with pytest.raises(GraphError):
        edge_probabilities(3, edges, weights)
