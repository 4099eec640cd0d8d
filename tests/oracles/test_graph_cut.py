"""Graph cuts: max-flow, exact cuts, their max-marginals, moves and roof duality."""

import networkx as nx
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from map_cases import check, graphs, reference, submodular, torus
from scipy.sparse import csr_array
from scipy.sparse.csgraph import maximum_flow

from cliquewise._kernels.graphs.maxflow import arcs_of, max_flow
from cliquewise.errors import InfeasibleError, UnsupportedError
from cliquewise.graph.factor_graph import FactorGraph
from cliquewise.oracles.graph_cut import qpbo
from cliquewise.oracles.planner import why_not
from cliquewise.oracles.registry import get


def network(seed, integral):
    """Random edges, capacities in both directions, and terminal capacities."""
    rng = np.random.default_rng(seed)
    n = int(rng.integers(2, 14))
    pairs = np.array([rng.choice(n, 2, replace=False) for _ in range(rng.integers(1, 40))])
    pairs = np.unique(np.sort(pairs, axis=1), axis=0)
    draw = rng.integers(0, 10, 2 * len(pairs)) if integral else rng.random(2 * len(pairs))
    terminal = rng.integers(-10, 11, n) if integral else rng.normal(size=n)
    return n, pairs, draw.astype(float), terminal.astype(float)


def dense(n, pairs, capacity, terminal):
    matrix = np.zeros((n + 2, n + 2))
    matrix[pairs[:, 0], pairs[:, 1]] = capacity[0::2]
    matrix[pairs[:, 1], pairs[:, 0]] = capacity[1::2]
    matrix[n, :n] = np.maximum(terminal, 0)
    matrix[:n, n + 1] = np.maximum(-terminal, 0)
    return matrix


def our_flow(n, pairs, capacity, terminal):
    first, head, sister, arc = arcs_of(n, pairs[:, 0].copy(), pairs[:, 1].copy())
    residual = np.empty(len(head))
    residual[arc] = capacity
    in_source = np.empty(n, dtype=bool)
    flow = max_flow(first, head, sister, residual, terminal.copy(), in_source)
    assert residual.min(initial=0.0) >= 0.0
    return flow, np.append(in_source, [True, False])


@settings(max_examples=200, deadline=None)
@given(st.integers(0, 2**31))
def test_flow_equals_scipys_and_the_cut_weighs_as_much(seed):
    problem = network(seed, integral=True)
    matrix = dense(*problem)
    n = problem[0]
    flow, source_side = our_flow(*problem)
    assert flow == maximum_flow(csr_array(matrix.astype(np.int32)), n, n + 1).flow_value
    assert flow == matrix[source_side][:, ~source_side].sum()


@settings(max_examples=50, deadline=None)
@given(st.integers(0, 2**31))
def test_flow_with_real_capacities_equals_networkx(seed):
    problem = network(seed, integral=False)
    matrix = dense(*problem)
    graph = nx.from_numpy_array(matrix, create_using=nx.DiGraph, edge_attr="capacity")
    flow, source_side = our_flow(*problem)
    n = problem[0]
    assert flow == pytest.approx(nx.maximum_flow_value(graph, n, n + 1), abs=1e-9)
    assert flow == pytest.approx(matrix[source_side][:, ~source_side].sum(), abs=1e-9)


def test_large_grid_flow_equals_scipys():
    rng = np.random.default_rng(0)
    side = 60
    index = np.arange(side * side).reshape(side, side)
    down = np.stack([index[:-1].ravel(), index[1:].ravel()], axis=1)
    right = np.stack([index[:, :-1].ravel(), index[:, 1:].ravel()], axis=1)
    pairs = np.concatenate([down, right])
    capacity = rng.integers(0, 20, 2 * len(pairs)).astype(float)
    terminal = rng.integers(-30, 31, side * side).astype(float)
    n = side * side
    rows = np.concatenate([pairs[:, 0], pairs[:, 1], np.full(n, n), np.arange(n)])
    columns = np.concatenate([pairs[:, 1], pairs[:, 0], np.arange(n), np.full(n, n + 1)])
    values = [capacity[0::2], capacity[1::2], np.maximum(terminal, 0), np.maximum(-terminal, 0)]
    flat = np.concatenate(values).astype(np.int32)
    expected = maximum_flow(csr_array((flat, (rows, columns)), shape=(n + 2, n + 2)), n, n + 1)
    assert our_flow(n, pairs, capacity, terminal)[0] == expected.flow_value


@settings(max_examples=150, deadline=None)
@given(graphs(max_cardinality=2).map(submodular))
def test_cut_is_exact_on_submodular_graphs(graph):
    assert why_not(get("graph-cut"), graph, "map") is None
    result = check(graph, "graph-cut")
    assert result is None or result.exact


@settings(max_examples=100, deadline=None)
@given(graphs(max_cardinality=2))
def test_whatever_is_accepted_is_exact_also_with_forbidden_entries(graph):
    if why_not(get("graph-cut"), graph, "map") is None:
        result = check(graph, "graph-cut")
        assert result is None or result.exact


@settings(max_examples=100, deadline=None)
@given(graphs(max_cardinality=2))
def test_max_marginals_equal_brute_force(graph):
    if why_not(get("graph-cut"), graph, "max_marginals") is not None:
        graph = submodular(graph)
    if reference(graph) is None:
        with pytest.raises(InfeasibleError):
            get("graph-cut").max_marginals(graph)
        return
    ours = get("graph-cut").max_marginals(graph)
    expected = get("brute-force").max_marginals(graph)
    scale = max(1.0, np.abs(graph.tables[np.isfinite(graph.tables)]).max(initial=0.0))
    np.testing.assert_allclose(ours.nodes.flat, expected.nodes.flat, rtol=0, atol=1e-9 * scale)
    assert ours.exact


def test_repulsive_edge_is_refused_by_name_and_remedy():
    graph = FactorGraph([2] * 3, [((1, 2), [[0.0, 1.0], [1.0, 0.0]])])
    with pytest.raises(UnsupportedError, match=r"variables 1 and 2 .* toulbar2 and milp"):
        graph.map("graph-cut")


def test_three_states_are_refused_by_remedy():
    with pytest.raises(UnsupportedError, match="expansion"):
        torus(3, 3, 0).map("graph-cut")


def test_contradicting_equalities_are_infeasible():
    same, hard = [[0.0, -np.inf], [-np.inf, 0.0]], [0.0, -np.inf]
    graph = FactorGraph([2, 2], [((0, 1), same), ((0,), hard), ((1,), hard[::-1])])
    with pytest.raises(InfeasibleError):
        graph.map("graph-cut")


@pytest.mark.parametrize("moves", ["expansion", "swap"])
def test_moves_never_fall_below_their_start_and_keep_bounds(moves):
    @settings(max_examples=80, deadline=None)
    @given(graphs(max_cardinality=4))
    def run(graph):
        check(graph, "expansion", moves=moves)
        if reference(graph) is not None:
            start = np.zeros(graph.n_variables, dtype=np.int64)
            result = get("expansion").map(graph, moves=moves, init=start)
            assert result.score >= graph.score(start)

    run()


def test_expansion_is_nearly_optimal_on_potts_images():
    graph = torus(8, 4, seed=3, potts=0.7)
    best = graph.map("toulbar2").score
    for moves in ("expansion", "swap"):
        assert graph.map("expansion", moves=moves).score >= best - 0.02 * abs(best)


def test_unknown_moves_are_named():
    with pytest.raises(UnsupportedError, match="expansion, swap"):
        torus(3, 3, 0).map("expansion", moves="jump")


@settings(max_examples=150, deadline=None)
@given(graphs(max_cardinality=2))
def test_roof_duality_bounds_and_persists(graph):
    best = reference(graph)
    if best is None:
        return
    labels, bound = qpbo(graph)
    slack = 1e-9 * max(1.0, abs(best))
    assert bound >= best - slack
    labelings, scores = get("brute-force")._list(graph)
    optima = labelings[scores >= best - slack]
    agrees = (optima == labels) | (labels < 0)
    assert agrees.all(axis=1).any()


def test_roof_duality_settles_every_tree():
    rng = np.random.default_rng(0)
    factors = [((i,), rng.normal(size=2)) for i in range(20)]
    factors += [((i, i + 1), rng.normal(size=(2, 2))) for i in range(19)]
    graph = FactorGraph([2] * 20, factors)
    labels, bound = qpbo(graph)
    assert (labels >= 0).all()
    assert bound == pytest.approx(graph.score(labels))


@pytest.mark.parametrize("size", [1e15, 1e100, 1e299])
def test_roof_duality_bounds_scores_of_any_size(size):
    rng = np.random.default_rng(3)
    pairs = [(0, 1), (1, 2), (0, 2), (2, 3)]
    numbers = [((v,), rng.standard_normal(2)) for v in range(4)]
    numbers += [(pair, size * rng.standard_normal((2, 2))) for pair in pairs]
    graph = FactorGraph([2] * 4, numbers)
    labels, bound = qpbo(graph)
    best = graph.map("junction-tree")
    assert bound >= best.score
    known = labels >= 0
    assert np.array_equal(labels[known], best.labels[known])
