"""Builders: which variable is tied to which, with which table."""

from __future__ import annotations

import networkx as nx
import numpy as np
import pytest
from hypothesis import given
from strategies import Recipe, recipes

from cliquewise import builders
from cliquewise.errors import GraphError
from cliquewise.graph.factor_graph import FactorGraph


def normal(*shape: int) -> np.ndarray:
    return np.random.default_rng(0).standard_normal(shape)


def pairs_of(graph: FactorGraph) -> list[list[int]]:
    return [list(s) for s, _ in graph.factors if len(s) == 2]


def test_a_chain_scores_as_written_out() -> None:
    nodes, edges = normal(4, 3), normal(3, 3, 3)
    labels = [2, 0, 1, 1]
    expected = sum(nodes[t, y] for t, y in enumerate(labels))
    expected += sum(edges[t, labels[t], labels[t + 1]] for t in range(3))
    assert FactorGraph.chain(nodes, edges).score(labels) == pytest.approx(expected)


@pytest.mark.parametrize("n", [0, 1])
def test_chains_of_no_and_one_variable(n: int) -> None:
    graph = builders.chain(np.zeros((n, 2)), np.eye(2))
    assert (graph.n_variables, graph.n_factors) == (n, n)


def test_one_table_serves_all_edges() -> None:
    table = normal(2, 2)
    graph = builders.chain(np.zeros((3, 2)), table)
    assert np.array_equal(graph.table(3), table) and np.array_equal(graph.table(4), table)


def test_a_tree_has_its_parent_on_the_first_axis() -> None:
    edges = normal(3, 2, 2)
    graph = FactorGraph.tree([1, -1, 1, 0], np.zeros((4, 2)), edges)
    assert pairs_of(graph) == [[1, 0], [1, 2], [0, 3]]
    assert np.array_equal(graph.table(6), edges[2])


@pytest.mark.parametrize("parents", [[1, 0], [1, 2, 0], [0], [-1, 5]])
def test_parents_with_a_cycle_or_an_unknown_variable_are_rejected(parents: list[int]) -> None:
    with pytest.raises(GraphError):
        builders.tree(parents, np.zeros((len(parents), 2)), np.eye(2))


def test_parents_and_nodes_must_be_equally_many() -> None:
    with pytest.raises(GraphError, match="parents"):
        builders.tree([-1, 0], np.zeros((3, 2)), np.eye(2))


def test_a_grid_ties_each_cell_to_the_one_below_and_to_the_right() -> None:
    vertical, horizontal = normal(1, 3, 2, 2), 10 + normal(2, 2, 2, 2)
    graph = FactorGraph.grid(np.zeros((2, 3, 2)), vertical, horizontal)
    assert pairs_of(graph) == [[0, 3], [1, 4], [2, 5], [0, 1], [1, 2], [3, 4], [4, 5]]
    assert np.array_equal(graph.table(6 + 2), vertical[0, 2])
    assert np.array_equal(graph.table(6 + 3 + 2), horizontal[1, 0])


@pytest.mark.parametrize(("h", "w"), [(1, 1), (1, 4), (3, 1)])
def test_thin_grids_are_chains(h: int, w: int) -> None:
    graph = builders.grid(np.zeros((h, w, 2)), np.eye(2), np.eye(2))
    assert graph.structure.path is not None
    assert len(graph.structure.edges) == h * w - 1


def test_a_complete_graph_ties_every_pair_once() -> None:
    graph = FactorGraph.complete(normal(5, 2), normal(10, 2, 2))
    assert len(graph.structure.edges) == 10
    assert pairs_of(graph)[:2] == [[0, 1], [0, 2]]


@pytest.mark.parametrize(
    "build",
    [
        lambda: builders.chain(np.zeros((3, 2)), np.zeros((3, 2, 2))),
        lambda: builders.chain(np.zeros((3, 2)), np.zeros((3, 3))),
        lambda: builders.chain(np.zeros(3), np.zeros((2, 2))),
        lambda: builders.grid(np.zeros((2, 2)), np.eye(2), np.eye(2)),
        lambda: builders.grid(np.zeros((2, 2, 2)), np.zeros((2, 2, 2, 2)), np.eye(2)),
        lambda: builders.complete(np.zeros((3, 2)), np.zeros((2, 2, 2))),
        lambda: builders.chain([["a", "b"]], np.eye(2)),
    ],
)
def test_tables_of_the_wrong_shape_are_rejected(build: object) -> None:
    with pytest.raises(GraphError, match=r"nodes|tables"):
        build()  # type: ignore[operator]


def test_random_graphs_repeat_under_a_seed_and_keep_their_promises() -> None:
    a = builders.random_graph(6, 9, max_order=3, max_cardinality=4, random_state=5)
    b = builders.random_graph(6, 9, max_order=3, max_cardinality=4, random_state=5)
    assert np.array_equal(a.tables, b.tables)
    assert a.n_factors == 9 and a.structure.max_order <= 3
    assert a.cardinalities.min() >= 2 and a.cardinalities.max() <= 4


def test_a_random_graph_of_no_variables_with_factors_is_rejected() -> None:
    assert builders.random_graph(0, 0).n_variables == 0
    with pytest.raises(GraphError):
        builders.random_graph(0, 3)


@given(recipes())
def test_networkx_and_back_is_the_same_graph(recipe: Recipe) -> None:
    graph = recipe.build()
    again = builders.from_networkx(builders.to_networkx(graph))
    assert np.array_equal(again.cardinalities, graph.cardinalities)
    assert np.array_equal(again.tables, graph.tables)
    assert np.array_equal(again.structure.scopes, graph.structure.scopes)


def test_a_plain_networkx_graph_needs_tables_on_nodes_and_edges() -> None:
    graph = nx.path_graph(["x", "y"])
    with pytest.raises(GraphError, match="'x' has no attribute 'table'"):
        builders.from_networkx(graph)
    nx.set_node_attributes(graph, [0.0, 1.0], "table")
    with pytest.raises(GraphError, match="'x', 'y'"):
        builders.from_networkx(graph)
    graph.edges["x", "y"]["table"] = [[0.0, 3.0], [0.0, 0.0]]
    assert builders.from_networkx(graph).map("brute-force").labels.tolist() == [0, 1]
