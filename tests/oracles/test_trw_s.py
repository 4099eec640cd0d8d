"""TRW-S: a bound that never rises, and exactness only where it is proved."""

import numpy as np
import pytest
from hypothesis import given, settings
from map_cases import check, graphs, torus

from cliquewise.errors import InfeasibleError, UnsupportedError
from cliquewise.graph.factor_graph import FactorGraph
from cliquewise.oracles.registry import get


@settings(max_examples=150, deadline=None)
@given(graphs())
def test_answers_agree_with_brute_force(graph):
    check(graph, "trw-s")


@settings(max_examples=80, deadline=None)
@given(graphs())
def test_the_bound_never_rises(graph):
    try:
        result = get("trw-s").map(graph, max_iterations=40)
    except InfeasibleError:
        return
    bounds = result.info["bounds"]
    if len(bounds) > 1:
        assert np.diff(bounds).max() <= 1e-10 * max(1.0, np.abs(bounds).max())


def test_the_bound_never_rises_on_a_frustrated_torus_either():
    bounds = torus(12, 3, seed=0).map("trw-s", max_iterations=60).info["bounds"]
    assert len(bounds) > 10
    assert np.diff(bounds).max() <= 1e-9 * abs(bounds[-1])
    assert bounds[-1] < bounds[0] - 1.0


def test_a_tree_is_solved_at_once():
    rng = np.random.default_rng(0)
    factors = [((i,), rng.normal(size=4)) for i in range(30)]
    factors += [((int(rng.integers(i)), i), rng.normal(size=(4, 4))) for i in range(1, 30)]
    graph = FactorGraph([4] * 30, factors)
    result = graph.map("trw-s")
    assert result.exact
    assert result.score == pytest.approx(graph.map("junction-tree").score)


def test_attractive_torus_closes_the_gap():
    graph = torus(10, 2, seed=1, potts=0.5)
    result = graph.map("trw-s")
    assert result.exact
    assert result.score == pytest.approx(graph.map("graph-cut").score)


def test_stops_for_each_of_its_reasons():
    graph = torus(8, 3, seed=2)
    assert graph.map("trw-s", max_iterations=3).info["stopped"] == "max_iterations"
    assert graph.map("trw-s", seconds=0.0).info["stopped"] == "seconds"
    assert graph.map("trw-s", gap=1e6).info["stopped"] == "gap"
    assert graph.map("trw-s", max_iterations=100_000).info["stopped"] in ("stall", "gap")


def test_without_time_the_bound_is_still_true():
    graph = torus(4, 2, seed=3)
    result = graph.map("trw-s", seconds=0.0)
    assert not result.exact
    assert result.upper_bound >= graph.map("junction-tree").score


def test_odd_cycle_of_contradictions_is_not_called_exact():
    apart = [[-np.inf, 0.0], [0.0, -np.inf]]
    graph = FactorGraph([2] * 3, [((0, 1), apart), ((1, 2), apart), ((0, 2), apart)])
    check(graph, "trw-s")


def test_arc_inconsistent_graph_is_infeasible():
    factors = [((0,), [0.0, -np.inf]), ((0, 1), [[-np.inf, 0.0], [0.0, 0.0]])]
    factors.append(((1,), [0.0, -np.inf]))
    with pytest.raises(InfeasibleError):
        FactorGraph([2, 2], factors).map("trw-s")


def test_higher_order_is_refused_and_the_remedy_named():
    graph = FactorGraph([2] * 3, [((0, 1, 2), np.zeros((2, 2, 2)))])
    with pytest.raises(UnsupportedError, match="toulbar2, milp and icm"):
        graph.map("trw-s")


def test_unknown_option_is_an_error():
    with pytest.raises(UnsupportedError, match="no option 'iteration'"):
        torus(3, 2, 0).map("trw-s", iteration=3)


def test_a_graph_without_variables():
    result = FactorGraph([], []).map("trw-s")
    assert (result.score, result.upper_bound, result.exact) == (0.0, 0.0, True)
