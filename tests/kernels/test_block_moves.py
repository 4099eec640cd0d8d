"""Exact moves of regions: never worse, optimal where everything fits, quick where it does not."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from cliquewise._kernels.cliques.block_moves import block_moves
from cliquewise.graph.builders import random_graph
from cliquewise.graph.factor_graph import FactorGraph
from cliquewise.oracles._pairwise import compile_pairwise


def improved(graph, labels, moves=1, limit=64, reach=1e9, seed=0):
    """Labels after some moves, and the reach they ended with."""
    pairwise = compile_pairwise(graph)
    reach = np.full(1, float(min(reach, pairwise.topology.n_nodes)))
    labels = np.array(labels, dtype=np.int64)
    block_moves(moves, limit, reach, seed, labels, pairwise.arrays)
    return labels, float(reach[0])


def connected(seed, n, extra, cardinalities, hub=False):
    """A random tree, or a star, and further edges, with random tables."""
    rng = np.random.default_rng(seed)
    pairs = {(0 if hub else int(rng.integers(v)), v) for v in range(1, n)}
    while extra > 0:
        i, j = sorted(rng.choice(n, 2, replace=False).tolist())
        pairs.add((i, j))
        extra -= 1
    cards = rng.choice(cardinalities, n)
    factors = [((v,), rng.normal(size=cards[v])) for v in range(n)]
    factors += [((i, j), 2 * rng.normal(size=(cards[i], cards[j]))) for i, j in sorted(pairs)]
    return FactorGraph(cards, factors), rng.integers(0, cards)


@settings(max_examples=100, deadline=None)
@given(st.integers(0, 2**31), st.integers(1, 12), st.sampled_from([1, 2, 4, 9, 50, 4000]))
def test_a_move_never_lowers_the_score(seed, n, limit):
    rng = np.random.default_rng(seed)
    graph = random_graph(n, 2 * n, max_order=2, max_cardinality=4, random_state=rng)
    labels = rng.integers(0, graph.cardinalities)
    for step in range(6):
        after, _ = improved(graph, labels, 1, limit, reach=rng.integers(2, 13), seed=step)
        assert graph.score(after) >= graph.score(labels) - 1e-12
        labels = after


@pytest.mark.parametrize("hub", [False, True])
@pytest.mark.parametrize("seed", range(6))
def test_one_move_solves_a_tree_with_tables_of_one_edge(seed, hub):
    graph, labels = connected(seed, 60, 0, [2, 3, 5], hub)
    after, _ = improved(graph, labels, limit=25)
    assert graph.score(after) == pytest.approx(graph.map("tree").score)


@settings(max_examples=60, deadline=None)
@given(st.integers(0, 2**31), st.integers(2, 7), st.integers(0, 12))
def test_one_move_solves_what_fits_into_its_tables(seed, n, extra):
    graph, labels = connected(seed, n, extra, [2, 3, 4])
    after, _ = improved(graph, labels, limit=4**7)
    assert graph.score(after) == pytest.approx(graph.map("brute-force").score)


def test_a_move_is_optimal_given_what_it_leaves_alone():
    """Where a region is all but one variable of a ring, no labeling of it can be better."""
    for seed in range(20):
        rng = np.random.default_rng(seed)
        ring = [((i, (i + 1) % 9), 2 * rng.normal(size=(3, 3))) for i in range(9)]
        graph = FactorGraph([3] * 9, ring)
        labels = rng.integers(0, 3, 9)
        after, _ = improved(graph, labels, limit=3**3, reach=8, seed=seed)
        best = [
            graph.condition({v: int(labels[v])}).map("junction-tree").score
            for v in range(9)
            if after[v] == labels[v]
        ]
        assert any(graph.score(after) == pytest.approx(b) for b in best)


def test_many_moves_leave_no_pair_of_neighbors_that_could_do_better():
    graph, labels = connected(3, 40, 40, [2, 3])
    after, _ = improved(graph, labels, moves=2000, limit=200, reach=6)
    for i, j in graph.structure.edges.tolist():
        for x in range(graph.cardinalities[i]):
            for y in range(graph.cardinalities[j]):
                other = after.copy()
                other[[i, j]] = x, y
                assert graph.score(other) <= graph.score(after) + 1e-9


def test_variables_of_one_state_and_lone_variables_are_no_obstacle():
    table = np.array([[0.0, 3.0]])
    graph = FactorGraph([1, 2, 2], [((0, 1), table), ((2,), [0.0, 1.0])])
    after, _ = improved(graph, [0, 0, 0], moves=30, reach=3)
    assert after.tolist() == [0, 1, 1]


def test_regions_shrink_on_dense_graphs_and_grow_on_sparse_ones():
    dense, labels = connected(0, 60, 3000, [2])
    _, reach = improved(dense, labels, moves=300, limit=2**8)
    assert reach < 16
    sparse, labels = connected(0, 300, 0, [2])
    _, reach = improved(sparse, labels, moves=300, limit=2**8, reach=10)
    assert reach == 300


def test_a_large_hub_costs_no_more_than_its_look():
    n = 50_000
    rng = np.random.default_rng(0)
    edges = np.stack([np.zeros(n - 1, dtype=np.int64), np.arange(1, n)], axis=1)
    graph = FactorGraph([2] * n, [(tuple(e), t) for e, t in zip(edges.tolist(),
                                  rng.normal(size=(n - 1, 2, 2)))])  # fmt: skip
    labels = np.zeros(n, dtype=np.int64)
    after, _ = improved(graph, labels, moves=200, limit=2**14, reach=50)
    assert graph.score(after) > graph.score(labels)


def test_same_seed_same_moves_and_another_seed_others():
    graph, labels = connected(1, 200, 200, [2])
    runs = [improved(graph, labels, 5, 32, 20, seed)[0].tolist() for seed in (4, 4, 5)]
    assert runs[0] == runs[1] != runs[2]
