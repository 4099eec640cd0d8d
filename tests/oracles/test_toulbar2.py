"""toulbar2: exact within its rounding, honest when the time runs out."""

import numpy as np
import pytest
from hypothesis import given, settings
from map_cases import check, graphs, torus

from cliquewise.errors import InfeasibleError, UnsupportedError
from cliquewise.graph.factor_graph import FactorGraph
from cliquewise.oracles import toulbar2
from cliquewise.oracles._pairwise import table_bound
from cliquewise.oracles.base import Limits
from cliquewise.oracles.registry import get

pytest.importorskip("pytoulbar2")


@settings(max_examples=120, deadline=None)
@given(graphs(max_order=5))
def test_answers_equal_brute_force(graph):
    result = check(graph, "toulbar2")
    if result is not None:
        finite = graph.tables[np.isfinite(graph.tables)]
        assert result.exact
        assert result.gap <= 1e-8 * max(1.0, np.abs(finite).max(initial=0.0))


@settings(max_examples=60, deadline=None)
@given(graphs(max_order=4))
def test_rounding_stays_below_its_share_of_the_range(graph):
    try:
        costs = toulbar2.integer_costs(graph)
    except InfeasibleError:
        return
    spread = sum(
        np.ptp(t[np.isfinite(t)]) if np.isfinite(t).any() else 0.0 for _, t in graph.factors
    )
    assert costs.error <= 1e-9 * spread
    assert costs.flat[np.isfinite(costs.flat)].sum() < 2.0**53
    assert (costs.flat >= 0).all()


def test_integers_are_not_rounded_at_all():
    graph = FactorGraph([2, 2], [((0, 1), [[0.0, 3.0], [-5.0, 1.5]])])
    assert toulbar2.integer_costs(graph).error == 0.0
    assert graph.map("toulbar2").gap == 0.0


def test_time_limit_returns_a_labeling_and_a_true_bound(capfd):
    graph = torus(30, 4, seed=0)
    result = graph.map("toulbar2", seconds=1)
    assert not result.exact
    assert result.upper_bound >= graph.map("portfolio", seconds=1).score
    assert result.upper_bound < table_bound(graph)
    assert capfd.readouterr() == ("", "")


def test_no_time_at_all_still_answers():
    graph = torus(5, 2, seed=1)
    result = graph.map("toulbar2", seconds=0)
    assert not result.exact
    assert result.upper_bound >= graph.map("junction-tree").score


def test_a_search_without_solution_is_infeasible(capfd):
    apart = [[-np.inf, 0.0], [0.0, -np.inf]]
    graph = FactorGraph([2] * 5, [((i, (i + 1) % 5), apart) for i in range(5)])
    with pytest.raises(InfeasibleError):
        graph.map("toulbar2")
    assert capfd.readouterr() == ("", "")


def test_starts_from_the_given_labeling():
    graph = torus(5, 3, seed=2)
    best = graph.map("toulbar2")
    again = graph.map("toulbar2", init=best.labels)
    assert again.exact
    assert again.score == best.score


def test_missing_package_is_named(monkeypatch):
    monkeypatch.setattr(toulbar2, "_is_installed", lambda: False)
    with pytest.raises(UnsupportedError, match=r"pip install 'cliquewise\[exact\]'"):
        torus(3, 2, 0).map("toulbar2")


def test_large_graphs_are_accepted_by_name():
    graph = torus(160, 3, seed=0)
    assert get("toulbar2").consider(graph, "map", Limits()).is_accepted
