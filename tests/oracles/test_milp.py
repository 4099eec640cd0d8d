"""The integer program and its relaxation over the local polytope."""

import numpy as np
import pytest
from hypothesis import given, settings
from map_cases import check, graphs, reference, torus

from cliquewise.errors import InfeasibleError
from cliquewise.graph.factor_graph import FactorGraph
from cliquewise.oracles.milp import local_polytope_lp, polytope


@settings(max_examples=60, deadline=None)
@given(graphs(max_order=4))
def test_answers_equal_brute_force(graph):
    result = check(graph, "milp")
    assert result is None or result.exact


@settings(max_examples=60, deadline=None)
@given(graphs(max_order=4))
def test_the_relaxation_bounds_the_best_score(graph):
    check(graph, "milp", relaxed=True)


@settings(max_examples=60, deadline=None)
@given(graphs(max_order=3))
def test_pseudo_marginals_lie_in_the_local_polytope(graph):
    best = reference(graph)
    if best is None:
        return
    nodes, factors, value = local_polytope_lp(graph)
    s = graph.structure
    scale = max(1.0, abs(best))
    assert value >= best - 1e-6 * scale
    for v in range(s.n_variables):
        own = nodes[s.node_offsets[v] : s.node_offsets[v + 1]]
        assert own.sum() == pytest.approx(1.0, abs=1e-6)
    for f in range(s.n_factors):
        table = factors[s.table_offsets[f] : s.table_offsets[f + 1]].reshape(s.shape(f))
        for axis, v in enumerate(s.scope(f)):
            others = tuple(a for a in range(table.ndim) if a != axis)
            own = nodes[s.node_offsets[v] : s.node_offsets[v + 1]]
            np.testing.assert_allclose(table.sum(axis=others), own, atol=1e-6)
    allowed = np.isfinite(graph.tables)
    assert factors[~allowed].max(initial=0.0) == 0.0
    assert value == pytest.approx(factors[allowed] @ graph.tables[allowed], abs=1e-6 * scale)


def test_frustrated_triangle_is_half_half_when_relaxed():
    apart = [[0.0, 1.0], [1.0, 0.0]]
    graph = FactorGraph([2] * 3, [((0, 1), apart), ((1, 2), apart), ((0, 2), apart)])
    nodes, _, value = local_polytope_lp(graph)
    np.testing.assert_allclose(nodes, 0.5, atol=1e-7)
    assert value == pytest.approx(3.0)
    assert graph.map("milp", relaxed=True).upper_bound == pytest.approx(3.0)
    assert graph.map("milp").score == 2.0


def test_the_constraints_are_built_once():
    graph = torus(4, 2, seed=0)
    first = polytope(graph.structure)
    other = FactorGraph.from_structure(graph.structure, -graph.tables)
    assert polytope(other.structure) is first


def test_relaxation_and_trw_s_agree_on_the_bound():
    graph = torus(5, 2, seed=4)
    relaxed = graph.map("milp", relaxed=True).upper_bound
    messages = graph.map("trw-s", max_iterations=3000).upper_bound
    assert relaxed <= messages + 1e-6
    assert relaxed == pytest.approx(messages, rel=0.02)


def test_time_limit_zero_and_infeasibility():
    graph = torus(4, 2, seed=0)
    result = graph.map("milp", seconds=0)
    assert result.upper_bound >= graph.map("milp").score
    apart = [[-np.inf, 0.0], [0.0, -np.inf]]
    cycle = FactorGraph([2] * 3, [((0, 1), apart), ((1, 2), apart), ((0, 2), apart)])
    with pytest.raises(InfeasibleError):
        cycle.map("milp")
