"""Portfolio: the best of its members, and the smallest of their bounds."""

import numpy as np
import pytest
from hypothesis import given, settings
from map_cases import check, graphs, torus

from cliquewise.errors import InfeasibleError, UnsupportedError
from cliquewise.graph.factor_graph import FactorGraph


@settings(max_examples=100, deadline=None)
@given(graphs(max_cardinality=4))
def test_answers_agree_with_brute_force(graph):
    check(graph, "portfolio")


def test_small_frustrated_graphs_are_solved_even_where_not_proved():
    for seed in range(6):
        graph = torus(5, 2, seed)
        assert graph.map("portfolio").score == pytest.approx(graph.map("toulbar2").score)


def test_is_at_least_as_good_as_its_members():
    for k in (2, 4):
        graph = torus(10, k, seed=7)
        result = graph.map("portfolio")
        for method in ("trw-s", "icm", "expansion"):
            assert result.score >= graph.map(method).score
        assert result.upper_bound <= graph.map("trw-s", max_iterations=200).upper_bound + 1e-9
        assert result.score == max(result.score, *result.info["scores"].values())


def test_attractive_graphs_are_exact_by_the_cut():
    graph = torus(12, 2, seed=0, potts=0.4)
    result = graph.map("portfolio")
    assert result.exact
    assert result.score == graph.map("graph-cut").score


def test_same_seed_same_answer():
    graph = torus(9, 3, seed=5)
    first, second = graph.map("portfolio", random_state=3), graph.map("portfolio", random_state=3)
    assert first.labels.tolist() == second.labels.tolist()


def test_never_worse_than_the_labeling_it_is_given():
    graph = torus(9, 3, seed=6)
    best = graph.map("portfolio", seconds=0.5)
    again = graph.map("portfolio", init=best.labels, max_iterations=1, rounds=0)
    assert again.score >= best.score


def test_a_time_limit_ends_a_search_that_proves_nothing():
    graph = torus(40, 2, seed=1)
    result = graph.map("portfolio", seconds=1.0)
    assert not result.exact
    assert result.upper_bound > result.score > 0
    assert graph.map("portfolio", seconds=0.0).upper_bound >= result.score


def test_forbidden_colors_of_a_map_are_respected():
    apart = np.where(np.eye(3) > 0, -np.inf, 0.0)
    rng = np.random.default_rng(0)
    ring = [((i, (i + 1) % 11), apart) for i in range(11)]
    graph = FactorGraph([3] * 11, ring + [((i,), rng.normal(size=3)) for i in range(11)])
    result = graph.map("portfolio")
    assert result.score == pytest.approx(graph.map("junction-tree").score)


def test_higher_order_is_refused_and_the_remedy_named():
    graph = FactorGraph([2] * 3, [((0, 1, 2), np.zeros((2, 2, 2)))])
    with pytest.raises(UnsupportedError, match="toulbar2, milp and icm"):
        graph.map("portfolio")


def test_contradicting_rules_are_infeasible():
    with pytest.raises(InfeasibleError):
        FactorGraph([2], [((0,), [0.0, -np.inf]), ((0,), [-np.inf, 0.0])]).map("portfolio")


@pytest.mark.parametrize("seed", range(3))
def test_a_frustrated_strip_is_solved_to_the_optimum_that_elimination_proves(seed):
    """Spins with random couplings and hardly a field: single flips alone get stuck."""
    rng = np.random.default_rng(seed)
    index = np.arange(8 * 50).reshape(8, 50)
    pairs = [*zip(index[1:].flat, index[:-1].flat), *zip(index[:, 1:].flat, index[:, :-1].flat)]
    factors = [((int(v),), 0.1 * rng.normal(size=2)) for v in index.flat]
    factors += [((int(a), int(b)), rng.normal() * np.eye(2)) for a, b in pairs]
    graph = FactorGraph([2] * 400, factors)
    best = graph.map("junction-tree").score
    assert graph.map("portfolio", random_state=seed).score == pytest.approx(best, rel=1e-12)
