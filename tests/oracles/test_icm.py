"""ICM: local optima on any graph."""

import numpy as np
import pytest
from hypothesis import given, settings
from map_cases import check, graphs, torus

from cliquewise.errors import GraphError, InfeasibleError
from cliquewise.graph.factor_graph import FactorGraph
from cliquewise.oracles.registry import get


@settings(max_examples=100, deadline=None)
@given(graphs(max_order=5))
def test_answers_agree_with_brute_force(graph):
    check(graph, "icm", restarts=2)


@settings(max_examples=80, deadline=None)
@given(graphs(max_order=4, forbid=False))
def test_no_single_change_improves_the_answer(graph):
    labels = get("icm").map(graph).labels
    score = graph.score(labels)
    for v, k in enumerate(graph.cardinalities):
        for state in range(k):
            changed = labels.copy()
            changed[v] = state
            assert graph.score(changed) <= score + 1e-9 * max(1.0, abs(score))


def test_restarts_help_on_a_frustrated_torus():
    graph = torus(8, 3, seed=0)
    once = graph.map("icm")
    often = graph.map("icm", restarts=50)
    assert often.info["runs"] == 51
    assert often.score > once.score
    assert often.score == graph.map("icm", restarts=50).score


def test_starts_where_it_is_told():
    together = np.array([[3.0, 0.0], [0.0, 2.0]])
    graph = FactorGraph([2, 2], [((0, 1), together)])
    assert graph.map("icm", init=[1, 1]).labels.tolist() == [1, 1]
    assert graph.map("icm", init=[0, 0]).labels.tolist() == [0, 0]
    with pytest.raises(GraphError, match="a labeling needs 2"):
        graph.map("icm", init=[0])


def test_climbs_out_of_forbidden_entries():
    table = np.full((3, 3), -np.inf)
    table[2, 1] = 0.0
    graph = FactorGraph([3, 3], [((0,), [1.0, 1.0, 0.0]), ((0, 1), table), ((1,), [0.0, 0.0, 0.0])])
    assert graph.map("icm", restarts=20).score == 0.0


def test_a_table_that_forbids_everything_is_infeasible():
    with pytest.raises(InfeasibleError):
        FactorGraph([2], [((0,), [-np.inf, -np.inf])]).map("icm")
