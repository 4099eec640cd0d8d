"""Structure: what is read off the topology, and which topologies are refused."""

from __future__ import annotations

import itertools
import pickle
import time

import networkx as nx
import numpy as np
import pytest
from hypothesis import given
from strategies import Recipe, recipes

from cliquewise.errors import GraphError
from cliquewise.graph.factor_graph import FactorGraph
from cliquewise.graph.structure import MAX_CARDINALITY, Structure


def as_networkx(structure: Structure) -> nx.Graph:
    graph = nx.Graph()
    graph.add_nodes_from(range(structure.n_variables))
    for f in range(structure.n_factors):
        scope = structure.scope(f).tolist()
        graph.add_edges_from((a, b) for a in scope for b in scope if a < b)
    return graph


@given(recipes())
def test_edges_parts_and_kinds_agree_with_networkx(recipe: Recipe) -> None:
    s = recipe.build().structure
    peer = as_networkx(s)
    assert s.edges.tolist() == sorted(sorted(e) for e in peer.edges)
    count, part = s.components
    assert count == nx.number_connected_components(peer)
    assert all(part[a] == part[b] for a, b in peer.edges)
    assert len(set(part.tolist())) == count
    acyclic = s.n_variables == 0 or nx.is_forest(peer)
    assert s.is_forest == (acyclic and s.max_order <= 2)
    assert (s.adjacency.toarray() == nx.to_numpy_array(peer)).all() if s.n_variables else True


@given(recipes(("chain", "shuffled_chain", "several_chains", "forest", "cycle", "no_factor")))
def test_a_path_visits_every_variable_and_walks_along_edges(recipe: Recipe) -> None:
    s = recipe.build().structure
    degree = np.bincount(s.edges.ravel(), minlength=s.n_variables)
    if s.path is None:
        assert not s.is_forest or degree.max() > 2
        return
    assert sorted(s.path.tolist()) == list(range(s.n_variables))
    steps = {frozenset(p) for p in zip(s.path[:-1].tolist(), s.path[1:].tolist(), strict=True)}
    assert {frozenset(e) for e in s.edges.tolist()} <= steps


def test_a_long_shuffled_path_is_found() -> None:
    order = np.random.default_rng(0).permutation(50_000)
    pairs = np.stack([order[:-1], order[1:]], axis=1)
    s = Structure.from_arrays(np.full(50_000, 2), pairs.ravel(), 2 * np.arange(50_000))
    assert s.path is not None
    assert np.array_equal(s.path, order) or np.array_equal(s.path, order[::-1])


def test_offsets_follow_cardinalities_and_scopes() -> None:
    s = Structure([2, 3, 4], [(2, 0), (), (1,)])
    assert s.table_offsets.tolist() == [0, 8, 9, 12]
    assert s.node_offsets.tolist() == [0, 2, 5, 9]
    assert s.shape(0) == (4, 2) and s.shape(1) == ()
    assert s.scope(0).tolist() == [2, 0]
    assert s.orders.tolist() == [2, 0, 1]


def test_an_empty_structure_is_a_forest_of_no_trees() -> None:
    s = Structure([], [])
    assert s.n_variables == s.n_factors == s.max_order == 0
    assert s.is_forest and s.is_binary and s.components[0] == 0
    assert s.path is not None and s.path.size == 0


def test_flat_arrays_build_the_same_structure() -> None:
    a = Structure([2, 2, 2], [(0, 1), (2,)])
    b = Structure.from_arrays([2, 2, 2], [0, 1, 2], [0, 2, 3])
    assert all(a.scope(f).tolist() == b.scope(f).tolist() for f in range(2))


def test_arrays_cannot_be_written() -> None:
    s = Structure([2, 2], [(0, 1)])
    for array in (s.cardinalities, s.scopes, s.scope_offsets, s.table_offsets, s.node_offsets):
        with pytest.raises(ValueError, match="read-only"):
            array[0] = 5


def test_pickling_keeps_the_topology_and_drops_what_can_be_computed_again() -> None:
    s = Structure([2, 3], [(0, 1)])
    s.memo["plan"] = object()
    again = pickle.loads(pickle.dumps(s))
    assert again.memo == {}
    assert again.shape(0) == (2, 3)
    with pytest.raises(ValueError, match="read-only"):
        again.cardinalities[0] = 7


@pytest.mark.parametrize(
    ("cards", "scopes", "message"),
    [
        ([2, 0], [], "variable 1 has cardinality 0"),
        ([2, -3], [], "variable 1 has cardinality -3"),
        ([2, MAX_CARDINALITY + 1], [], "limit is"),
        ([2.5], [], "integers"),
        ([[2]], [], "flat list"),
        ([2], [(0,), (1,)], "factor 1 names variable 1"),
        ([2], [(-1,)], "factor 0 names variable -1"),
        ([2, 2], [(0,), (1, 0, 1)], "factor 1 names variable 1 twice"),
        ([10**6] * 4, [(0, 1, 2, 3)], "entries"),
        ([10**7] * 60, [tuple(range(60))], "entries"),
        ([10**7] * 300, [(i,) for i in range(300)], "entries"),
    ],
)
def test_impossible_structures_are_refused_with_the_place(
    cards: list, scopes: list, message: str
) -> None:
    with pytest.raises(GraphError, match=message):
        Structure(cards, scopes)


@pytest.mark.parametrize(
    ("scopes", "offsets"), [([0, 1], [0, 1]), ([0], [0, 2]), ([0, 1], [1, 2]), ([0, 1], [0, 2, 1])]
)
def test_offsets_that_do_not_cover_the_scopes_are_rejected(scopes: list, offsets: list) -> None:
    with pytest.raises(GraphError, match="offsets"):
        Structure.from_arrays([2, 2], scopes, offsets)


@pytest.mark.parametrize("scope", [[0.5], ["a"], [[0, 1]], [None]])
def test_a_scope_that_is_not_a_list_of_integers_is_rejected(scope: list) -> None:
    with pytest.raises(GraphError, match="factor 0"):
        Structure([2, 2], [scope])


def arrays_of(value: object) -> list[np.ndarray]:
    """All arrays in an attribute, within lists and tuples."""
    if isinstance(value, np.ndarray):
        return [value]
    if isinstance(value, list | tuple):
        return [array for item in value for array in arrays_of(item)]
    return []


@pytest.mark.parametrize("scopes", [[(0,), (0, 1), (1, 2)], [(0, 1, 2), (2, 3)], []])
def test_all_arrays_of_structures_and_graphs_are_read_only(scopes):
    structure = Structure([2, 3, 2, 2], scopes)
    graph = FactorGraph.from_structure(structure, np.zeros(int(structure.table_offsets[-1])))
    found = []
    for owner in (structure, graph, graph.condition({0: 1}).core.graph):
        names = [name for name in dir(owner) if not name.startswith("__")]
        for name in names:
            value = getattr(owner, name)
            found += [(name, array) for array in arrays_of(value)]
    found += [("table", graph.table(f)) for f in range(graph.n_factors)]
    assert {"cardinalities", "scopes", "orders", "edges", "strides", "tables"} <= dict(found).keys()
    writable = sorted({name for name, array in found if array.flags.writeable})
    assert writable == []


def test_paths_of_many_isolated_variables_take_linear_time():
    begin = time.perf_counter()
    structure = Structure([2] * 100_000, [])
    assert sorted(structure.path.tolist()) == list(range(100_000))
    assert time.perf_counter() - begin < 5.0  # 17 s by a depth-first walk


def test_paths_are_followed_from_end_to_end():
    structure = Structure([2] * 7, [(4, 0), (0, 2), (5, 1), (6, 3), (3, 5)])
    path, part = structure.path.tolist(), structure.components[1]
    edges = {tuple(edge) for edge in structure.edges.tolist()}
    for a, b in itertools.pairwise(path):
        assert (part[a] != part[b]) or tuple(sorted((a, b))) in edges
