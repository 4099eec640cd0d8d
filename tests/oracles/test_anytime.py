"""What ``auto`` does where no method is both exact and quick: cheap steps first, bounds always."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from map_cases import graphs, reference, torus
from reference import Reference

from cliquewise._kernels import clock
from cliquewise.errors import InfeasibleError, UnsupportedError
from cliquewise.graph.builders import complete, grid, random_graph
from cliquewise.graph.factor_graph import FactorGraph
from cliquewise.oracles import _anytime_map, toulbar2
from cliquewise.oracles._anytime_map import MapSteps
from cliquewise.oracles._anytime_marginals import MarginalSteps
from cliquewise.oracles.base import Limits
from cliquewise.oracles.junction_tree import JunctionTree
from cliquewise.oracles.planner import ANYTIME, INSTANT
from cliquewise.oracles.registry import get

#: Elimination is out of the question: what is left are estimates and bounds.
BY_ESTIMATE = {"max_operations": 0}


def smooth(side: int, coupling: float = 0.3, k: int = 2, seed: int = 0) -> FactorGraph:
    """A square grid whose neighbors weakly repel each other: no cut, but an easy relaxation."""
    rng = np.random.default_rng(seed)
    apart = -coupling * np.eye(k)
    return grid(rng.normal(size=(side, side, k)), apart, apart)


def sparse(n: int, edges: int, coupling: float, k: int = 2, seed: int = 0) -> FactorGraph:
    """Random pairs with random tables."""
    rng = np.random.default_rng(seed)
    pairs = {tuple(sorted(rng.choice(n, 2, replace=False).tolist())) for _ in range(edges)}
    factors = [((v,), rng.normal(size=k)) for v in range(n)]
    factors += [(pair, coupling * rng.normal(size=(k, k))) for pair in sorted(pairs)]
    return FactorGraph([k] * n, factors)


# ---- the best labeling


@pytest.mark.parametrize("order", [2, 3])
def test_steps_without_a_certain_method_agree_with_brute_force(order, monkeypatch):
    monkeypatch.setattr(MapSteps, "_exact_method", lambda self, only_known=False: None)
    monkeypatch.setattr(_anytime_map, "ROUNDS", 1)

    @settings(max_examples=25, deadline=None)
    @given(graphs(max_order=order))
    def run(graph):
        best = reference(graph)
        try:
            result = ANYTIME.map(graph)
        except InfeasibleError:
            assert best is None
            return
        if best is None:
            assert result.score == -np.inf and not result.exact
            return
        slack = 1e-9 * max(1.0, abs(best))
        assert result.exact and result.score == graph.score(result.labels)
        assert abs(result.score - best) <= slack and result.upper_bound >= best - slack

    run()


def test_what_trw_s_proves_in_a_moment_gets_no_junction_tree(monkeypatch):
    graph = smooth(18)
    best = graph.map("junction-tree")
    monkeypatch.setattr(JunctionTree, "map", lambda *_, **__: pytest.fail("a junction tree"))
    result = graph.map()
    assert result.exact and result.method == "trw-s"
    assert result.score == pytest.approx(best.score, rel=1e-12)
    assert get("junction-tree").cost(graph.structure).seconds > INSTANT


def test_a_frustrated_graph_gets_the_junction_tree_after_a_short_attempt():
    graph = torus(9, 2, seed=3)
    result = graph.map()
    assert result.exact and result.score == pytest.approx(graph.map("toulbar2").score)
    assert [step["method"] for step in graph.map("anytime").info["steps"]][:2] == ["icm", "trw-s"]


def test_large_factors_go_to_toulbar2_and_to_milp_without_it(monkeypatch):
    graph = random_graph(60, 40, max_order=4, max_cardinality=9, random_state=0)
    big = random_graph(90, 500, max_order=4, max_cardinality=10, random_state=0)
    for one in (graph, big):
        assert MapSteps(one, 30.0, 0.0, Limits())._prover().name == "toulbar2"
    monkeypatch.setattr(toulbar2, "_is_installed", lambda: False)
    assert MapSteps(graph, 30.0, 0.0, Limits())._prover().name == "milp"


def test_the_answer_says_which_steps_led_to_it():
    result = sparse(200, 900, 3.0, k=3).map(seconds=0.3)
    steps = result.info["steps"]
    assert not result.exact and result.method in {step["method"] for step in steps}
    scores, bounds = ([step[key] for step in steps] for key in ("score", "bound"))
    assert scores == sorted(scores) and bounds == sorted(bounds, reverse=True)
    assert result.info["bound_by"] in {step["method"] for step in steps}


def test_a_wanted_gap_ends_the_search():
    graph = sparse(200, 900, 3.0, k=3)
    result = graph.map(seconds=20.0, gap=1e6)
    assert result.gap <= 1e6 and len(result.info["steps"]) == 1


# ---- marginals


@settings(max_examples=40, deadline=None)
@given(graphs())
def test_estimated_marginals_are_consistent_and_their_bounds_true(graph):
    truth = Reference(graph)
    if not truth.feasible:
        with pytest.raises(InfeasibleError):
            ANYTIME.marginals(graph, limits=Limits(max_operations=0))
        return
    result = ANYTIME.marginals(graph, limits=Limits(max_operations=0))
    low, high = result.log_z_bounds
    slack = 1e-9 * truth.scale
    assert result.bounds_certified[0] and low <= truth.log_z + slack
    assert not result.bounds_certified[1] or high >= truth.log_z - slack
    assert low - slack <= result.log_z <= high + slack
    for f, (scope, _) in enumerate(graph.factors):
        for axis, v in enumerate(scope):
            others = tuple(a for a in range(len(scope)) if a != axis)
            summed = result.factors[f].sum(axis=others)
            np.testing.assert_allclose(summed, result.nodes[v], atol=1e-9)


def test_weak_couplings_get_the_marginals_of_loopy_propagation_and_bounds_of_trees():
    graph = sparse(60, 90, 0.3)
    result, truth = graph.marginals("anytime", **BY_ESTIMATE), graph.marginals("junction-tree")
    trees = graph.marginals("trw-bp")
    error = np.abs(result.nodes.flat - truth.nodes.flat).mean()
    assert result.info["marginals"] == "loopy-bp" and result.info["upper"] == "trw-bp"
    assert error < 1e-3 and error < np.abs(trees.nodes.flat - truth.nodes.flat).mean()
    low, high = result.log_z_bounds
    assert low <= truth.log_z <= high <= trees.log_z_bounds[1]
    assert result.bounds_certified == (True, True) and result.method == "loopy-bp"


def test_loopy_propagation_is_not_believed_where_it_does_not_settle(monkeypatch):
    graph = sparse(30, 60, 6.0, seed=1)
    plain = MarginalSteps.loopy

    def outside(self):
        point, value, _ = plain(self)
        return point, value + 1e3, True

    monkeypatch.setattr(MarginalSteps, "loopy", outside)
    result = graph.marginals("anytime", **BY_ESTIMATE)
    assert result.info["marginals"] == "gibbs" and result.info["standard_errors"].max() < 0.5
    low, high = result.log_z_bounds
    assert low <= result.log_z <= high and low <= graph.marginals("junction-tree").log_z <= high


def test_more_time_tightens_the_bounds_by_frank_wolfe(monkeypatch):
    monkeypatch.setattr(MarginalSteps, "_mini_buckets", lambda self: None)  # exact on a small graph
    graph = complete(np.zeros((9, 2)), -1.5 * np.eye(2))
    truth = graph.marginals("junction-tree").log_z
    quick = graph.marginals("anytime", **BY_ESTIMATE)
    long = graph.marginals("anytime", seconds=1.5, **BY_ESTIMATE)
    assert long.info["upper"] == "barrier-fw"
    assert truth <= long.log_z_bounds[1] + 1e-9 < quick.log_z_bounds[1]


def test_tables_of_growing_size_tighten_the_bounds_of_pairwise_graphs():
    graph = sparse(30, 60, 1.5)
    truth = graph.marginals("junction-tree").log_z
    found = graph.marginals("anytime", seconds=1.0, **BY_ESTIMATE)
    low, high = found.log_z_bounds
    assert low <= truth + 1e-9 and truth <= high + 1e-9
    assert high <= graph.marginals("trw-bp").log_z_bounds[1] + 1e-9
    assert found.info["lower"] in ("sums", "barrier-fw")


def test_a_graph_whose_possible_labelings_are_not_found_is_answered_all_the_same(monkeypatch):
    def none_found(self):
        raise UnsupportedError("no labeling")

    monkeypatch.setattr(MarginalSteps, "_problem", none_found)
    graph = smooth(4)
    low, high = graph.marginals("anytime", seconds=0.3, **BY_ESTIMATE).log_z_bounds
    assert low - 1e-9 <= graph.marginals("junction-tree").log_z <= high + 1e-9


def test_marginals_are_exact_where_the_limit_allows_it_and_estimates_where_not():
    graph = smooth(16)
    needed = get("junction-tree").cost(graph.structure, "marginals").seconds
    assert graph.marginals().exact and graph.marginals(seconds=100 * needed).exact
    assert not graph.marginals(seconds=needed).exact
    cubes = FactorGraph(
        [30] * 4, [((0, 1, 2), np.zeros((30,) * 3)), ((1, 2, 3), np.zeros((30,) * 3))]
    )
    assert cubes.marginals().exact


# ---- limits


@pytest.mark.parametrize("seconds", [0.0, 0.2])
def test_limits_of_time_are_kept(seconds):
    drawn = [
        torus(30, 2, seed=0), smooth(40, k=5), sparse(300, 1500, 1.0, k=4), sparse(2000, 8000, 0.5),
        random_graph(60, 40, max_order=4, max_cardinality=9, random_state=0),
    ]  # fmt: skip
    for graph in drawn:
        begin = clock.now()
        best = graph.map(seconds=seconds)
        assert best.score <= best.upper_bound and np.isfinite(best.upper_bound)
        assert clock.now() - begin <= 1.1 * seconds + 1.0
        if not graph.structure.is_pairwise:
            continue
        begin = clock.now()
        low, high = graph.marginals(seconds=seconds).log_z_bounds
        assert best.score <= low + 100 * len(graph.tables) and low <= high < np.inf
        assert clock.now() - begin <= 1.1 * seconds + 1.0


def test_a_limit_means_nothing_to_a_chain():
    chain = FactorGraph([2, 2], [((0, 1), [[0.0, 1.0], [2.0, 0.0]])])
    assert chain.map(seconds=0.0).exact and chain.marginals(seconds=0, gap=0.1).exact


@pytest.mark.parametrize("seconds", [-1, float("nan"), "long"])
def test_limits_that_are_none_are_rejected(seconds):
    with pytest.raises(UnsupportedError, match="seconds"):
        FactorGraph([2]).map(seconds=seconds)


def test_options_of_one_method_need_its_name():
    with pytest.raises(UnsupportedError, match=r"rho.*name"):
        sparse(60, 150, 1.0).marginals("anytime", rho=1)


def test_factors_of_any_order_get_bounds_where_elimination_takes_too_long():
    zeros = np.zeros((100, 100, 100))
    cubes = FactorGraph([100] * 4, [((0, 1, 2), zeros), ((1, 2, 3), zeros)])
    assert get("junction-tree").cost(cubes.structure, "marginals").seconds > INSTANT
    found = cubes.marginals(seconds=0.01)
    assert found.method == "loopy-bp" and found.info["upper"] == "mini-buckets"
    low, high = found.log_z_bounds
    assert low <= 4 * np.log(100) <= high


# ---- what it says


def test_explain_shows_what_each_method_costs_and_gives():
    graph = smooth(17)
    text = graph.explain("map")
    assert text.startswith("anytime: ") and "<- taken" in text
    for name, word in (("trw-s", "a step"), ("junction-tree", "proved"), ("chain", "it needs")):
        line = next(row for row in text.splitlines() if row.strip().startswith(name + " "))
        assert word in line
    seconds = get("junction-tree").cost(graph.structure).seconds
    assert f"{seconds:.2g}" in text


# ---- large domains


def frequencies(n: int = 12, states: int = 30) -> FactorGraph:
    """Frequency assignment: pairs of transmitters whose frequencies must differ by a margin."""
    rng, states_ = np.random.default_rng(0), np.arange(states)
    distance = abs(states_[:, None] - states_)
    factors = []
    for i in range(n):
        for j in range(i + 1, n):
            weight, margin = float(rng.choice([1, 1e2, 1e4, 1e6])), rng.integers(4, 17)
            factors.append(((i, j), -weight * (distance <= margin)))
    return FactorGraph([states] * n, factors)


def test_search_is_tried_on_pairwise_graphs_with_large_domains():
    pytest.importorskip("pytoulbar2")
    graph = frequencies(16, 44)
    assert len(graph.tables) > 200_000
    result = graph.map(seconds=20)
    assert result.exact and result.method == "toulbar2"
    assert result.score == graph.map("toulbar2").score


@pytest.mark.parametrize("scale", [1.0, 1e9])
def test_steps_report_scores_of_the_graph_with_its_evidence(scale):
    graph = sparse(40, 140, 3.0 * scale, k=3).condition({0: 1, 5: 2})
    result = graph.map("anytime", seconds=1.0)
    assert result.info["steps"][-1]["score"] == pytest.approx(result.score, rel=1e-9)
    assert result.info["steps"][-1]["bound"] == pytest.approx(result.upper_bound, rel=1e-6)
