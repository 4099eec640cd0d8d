"""Marginal MAP: brute force says the same, bounds hold, and every graph gets an answer."""

from __future__ import annotations

import numpy as np
import pytest
from map_cases import with_zeros
from reference import Reference

from cliquewise._kernels import clock
from cliquewise.errors import GraphError, InfeasibleError, TooLargeError, UnsupportedError
from cliquewise.graph.builders import complete, grid, random_graph
from cliquewise.graph.factor_graph import FactorGraph
from cliquewise.oracles import _marginal_map_steps as steps
from cliquewise.oracles._conditional_sums import SumsGiven
from cliquewise.oracles._mixed_orders import mixed_order, narrowing
from cliquewise.oracles._sum_elimination import plan_sums, sum_out


def drawn(seed: int, n: int = 8) -> tuple[FactorGraph, list[int]]:
    """Orders up to four, some with forbidden entries, some with evidence; variables to label."""
    rng = np.random.default_rng(seed)
    graph = random_graph(n, 12, max_order=4, scale=float(rng.uniform(0.2, 3.0)), random_state=rng)
    if seed % 2:
        graph = with_zeros(graph, rng, 0.3)
    if seed % 3 == 0:
        v = int(rng.integers(n))
        graph = graph.condition({v: int(graph.map("brute-force").labels[v])})
    count = [0, 1, n, *range(2, n)][seed % (n + 1)]
    return graph, rng.permutation(n)[:count].tolist()


def sums(graph: FactorGraph, over: list[int]) -> np.ndarray:
    """The log of the sum for every labeling of some variables, in the order of their numbers."""
    others = tuple(v for v in range(graph.n_variables) if v not in over)
    return np.logaddexp.reduce(Reference(graph).joint, axis=others) if others else np.array(
        Reference(graph).joint
    )  # fmt: skip


def random_grid(side: int, seed: int, scale: float = 1.0) -> FactorGraph:
    rng = np.random.default_rng(seed)
    across, down = (scale * rng.normal(size=(2, side, side, 2, 2)))[:, : side - 1]
    return grid(rng.normal(size=(side, side, 2)), across, down.transpose(1, 0, 2, 3))


@pytest.mark.parametrize("block", range(3))
def test_labels_and_sums_are_those_of_brute_force(block: int) -> None:
    for seed in range(27 * block, 27 * block + 27):
        graph, over = drawn(seed)
        truth = sums(graph, over)
        found = graph.map(over=over)
        assert found.exact and found.gap == 0.0
        assert found.score == pytest.approx(float(truth.max()), abs=1e-9)
        assert truth[tuple(found.labels[sorted(over)])] == pytest.approx(found.score, abs=1e-9)
        open_ = [v for v in range(8) if v not in over and v not in graph.evidence]
        assert (found.labels[open_] == -1).all()
        assert all(found.labels[v] == x for v, x in graph.evidence.items())


def test_bounds_hold_and_labels_are_worth_their_score_where_sums_are_split(monkeypatch) -> None:
    monkeypatch.setattr(steps, "FIRST", 4)
    monkeypatch.setattr(steps, "MOST_ENTRIES", 32.0)
    monkeypatch.setattr(steps, "RESTARTS", 3)
    proved = 0
    for seed in range(36):
        graph, over = drawn(seed)
        truth = sums(graph, over)
        if not over or len(over) == 8:
            continue
        found = graph.map("mini-buckets", over=over)
        reached = truth[tuple(found.labels[sorted(over)])]
        assert found.score <= reached + 1e-9
        assert reached <= truth.max() + 1e-9 <= found.upper_bound + 2e-9
        assert found.score == pytest.approx(float(truth.max()), abs=1e-9) or not found.exact
        proved += found.exact
    assert proved > 10


def test_relaxations_bound_the_sum_of_every_labeling() -> None:
    for seed in range(12):
        graph = drawn(seed)[0].core.graph
        n = graph.n_variables
        is_max = np.random.default_rng(seed).random(n) < 0.5
        kept, summed = np.flatnonzero(is_max), np.flatnonzero(~is_max)
        truth = sums(graph, kept.tolist())
        order = np.concatenate([summed, kept])
        for upper in (True, False):
            left = steps.eliminate(graph, order, len(summed), 8, upper, np.inf)
            relaxed = steps._as_graph(graph, kept, left)
            bound = Reference(relaxed.graph).joint + relaxed.constant
            slack = 1e-9 + relaxed.rounding
            assert (bound >= truth - slack if upper else bound <= truth + slack).all()
        mixed, count = mixed_order(graph.structure, is_max, np.log(8.0))
        assert sorted(mixed) == list(range(n)) and is_max[mixed[count:]].all()
        left = steps.eliminate(graph, mixed, n, 8, True, np.inf, is_max)
        assert left.constant >= truth.max() - 1e-9


def test_sums_given_labels_are_exact_and_change_with_the_parts_around() -> None:
    for seed in range(10):
        graph = drawn(seed)[0].core.graph
        is_max = np.random.default_rng(seed).random(graph.n_variables) < 0.5
        truth = sums(graph, np.flatnonzero(is_max).tolist())
        given = SumsGiven(graph, is_max, {})
        rng = np.random.default_rng(seed)
        for _ in range(5):
            labels = rng.integers(0, graph.cardinalities)
            assert given.value(labels) == pytest.approx(truth[tuple(labels[is_max])], abs=1e-9)
        labels = rng.integers(0, graph.cardinalities)
        before = given.value(labels)
        assert given.climb(labels, rng, np.inf)
        assert given.value(labels) >= before


def test_fixing_more_variables_makes_sums_narrow_lower_bounds() -> None:
    rng = np.random.default_rng(0)
    for seed in range(12):
        graph = drawn(seed)[0].core.graph
        is_max = rng.random(graph.n_variables) < 0.3
        truth = sums(graph, np.flatnonzero(is_max).tolist())
        fixed = narrowing(graph.structure, is_max, np.log(16.0))
        assert not (fixed & is_max).any()
        plan = plan_sums(graph.structure, is_max | fixed, np.inf)
        given = SumsGiven(graph, is_max | fixed, {})
        assert plan is not None
        for _ in range(3):
            labels = rng.integers(0, graph.cardinalities)
            assert given.value(labels) <= truth[tuple(labels[is_max])] + 1e-9
    fixed = narrowing(random_grid(30, 0).structure, np.zeros(900, dtype=bool), np.log(2.0**10))
    rest = plan_sums(random_grid(30, 0).structure, fixed, np.inf)
    assert 0 < fixed.sum() < 250
    assert rest is None or rest.parts.structure.n_variables > 650


def test_sums_come_first_at_the_width_of_one_tree() -> None:
    """A line of sums that all touch one variable: no table has more than three."""
    rng = np.random.default_rng(0)
    factors = [((0, v), rng.normal(size=(2, 2))) for v in range(1, 50)]
    factors += [((v, v + 1), rng.normal(size=(2, 2))) for v in range(1, 49)]
    graph = FactorGraph([2] * 50, factors)
    is_max = np.arange(50) == 0
    plan = plan_sums(graph.structure, is_max, np.inf)
    assert plan is not None and plan.order.clique_sizes.max() == 8
    rest, constant = sum_out(graph, is_max, plan)
    given = [graph.condition({0: x}).marginals().log_z for x in (0, 1)]
    np.testing.assert_allclose(Reference(rest).joint + constant, given, atol=1e-9)


def test_wide_maxima_over_narrow_sums_are_a_search_like_any_other() -> None:
    """Pixels to label, each with a hidden cause of its noise."""
    rng = np.random.default_rng(0)
    pixels = random_grid(14, 0, 0.3)
    n = pixels.n_variables
    noise = rng.normal(size=(n, 2, 3))
    factors = [*pixels.factors, *(((v, n + v), noise[v]) for v in range(n))]
    graph = FactorGraph([2] * n + [3] * n, factors)
    found = graph.map(over=range(n), seconds=20)
    unary = [((v,), np.logaddexp.reduce(noise[v], axis=1)) for v in range(n)]
    truth = FactorGraph([2] * n, [*pixels.factors, *unary]).map()
    assert found.score == pytest.approx(truth.score) and found.exact == truth.exact


def test_what_is_too_wide_gets_labels_and_bounds_around_the_truth() -> None:
    graph = random_grid(7, 3)
    over = np.random.default_rng(0).permutation(49)[:16].tolist()
    truth = graph.map(over=over)
    assert truth.exact
    with pytest.raises(TooLargeError, match="table entries"):
        graph.map("junction-tree", over=over, max_operations=1000)
    found = graph.map(over=over, max_operations=1000, seconds=20, gap=0.5)
    assert found.score - 1e-9 <= truth.score <= found.upper_bound + 1e-9
    assert found.info["bound_by"] in ("mini-buckets", "best-first")
    rough = graph.map(over=over, max_operations=1000, seconds=0)
    assert rough.score - 1e-9 <= truth.score <= rough.upper_bound and not rough.exact


@pytest.mark.parametrize("kind", ["complete", "third order", "zeros"])
def test_no_graph_is_too_wide_for_an_answer_in_time(kind: str) -> None:
    rng = np.random.default_rng(0)
    graph = complete(rng.normal(size=(40, 3)), rng.normal(size=(3, 3)))
    if kind != "complete":
        graph = random_graph(120, 300, max_order=3, random_state=1)
    if kind == "zeros":
        graph = with_zeros(graph, rng, 0.1)
    over = list(range(0, graph.n_variables, 2))
    begin = clock.now()
    found = graph.map(over=over, seconds=1.5)
    assert clock.now() - begin < 5.0
    fixed = {v: int(found.labels[v]) for v in over}
    assert found.score <= graph.condition(fixed).marginals(seconds=1).log_z_bounds[1]
    assert -np.inf < found.score <= found.upper_bound < np.inf


def test_names_and_single_variables_are_understood() -> None:
    graph = FactorGraph.from_cpts(
        {"Rain": [0.8, 0.2], "Grass": (["Rain"], [[0.9, 0.1], [0.01, 0.99]])}
    )
    assert graph.map(over=["Grass"]).labels.tolist() == [-1, 0]
    assert graph.map(over="Grass").score == pytest.approx(np.log(0.8 * 0.9 + 0.2 * 0.01))
    wet = graph.condition({"Grass": 1})
    assert wet.map(over=["Rain"]).labels.tolist() == [1, 1]
    assert wet.map(over=[]).score == pytest.approx(np.log(0.8 * 0.1 + 0.2 * 0.99))


@pytest.mark.parametrize("method", ["auto", "junction-tree", "mini-buckets"])
def test_every_method_takes_all_variables_and_none(method: str) -> None:
    graph, _ = drawn(2)
    everything = list(range(graph.n_variables))
    options = {"seconds": 10.0, "gap": 0.0, "max_memory": 1e9, "max_operations": None}
    seen = graph.condition({0: 0})
    for asked, over in ((graph, everything), (seen, everything[1:])):
        found = asked.map(method, over=over, **options)
        assert found.exact and found.score == pytest.approx(asked.map("brute-force").score)
    found = graph.map(method, over=[], **options)
    assert found.exact and found.score == pytest.approx(graph.marginals("brute-force").log_z)


def test_the_exact_method_refuses_a_sum_of_all_variables_that_is_too_large() -> None:
    graph, _ = drawn(2)
    with pytest.raises(TooLargeError, match="max_operations"):
        graph.map("junction-tree", over=[], max_operations=1)


def test_scores_of_any_size_are_summed() -> None:
    table = np.array([[1.0, 1.0, 1.0], [1.5, 0.0, 0.0]])
    graph = FactorGraph([2, 3, 2], [((0, 1), 1e8 + table), ((2,), [-3e7, -2e7])])
    found = graph.map(over=[0, 2])
    assert found.labels.tolist() == [0, -1, 1] and found.exact
    assert found.score == pytest.approx(8e7 + 1.0 + np.log(3.0), abs=1e-6)


def test_what_is_impossible_or_asked_wrongly_is_said() -> None:
    graph, _ = drawn(0)
    forbidden = FactorGraph([2, 2], [((0, 1), np.full((2, 2), -np.inf))])
    with pytest.raises(InfeasibleError):
        forbidden.map(over=[0])
    with pytest.raises(GraphError, match="twice"):
        graph.map(over=[1, 1])
    with pytest.raises(GraphError, match=r"0\.\.7"):
        graph.map(over=[8])
    with pytest.raises(GraphError, match="no names"):
        graph.map(over=["Rain"])
    with pytest.raises(GraphError, match="list of variables"):
        graph.map(over=1.5)
    with pytest.raises(UnsupportedError, match="junction-tree, mini-buckets"):
        graph.map("toulbar2", over=[1])
    with pytest.raises(UnsupportedError, match="no option 'fast'"):
        graph.map(over=[1], fast=True)
    with pytest.raises(UnsupportedError, match="seconds"):
        graph.map(over=[1], seconds=-1)


def test_steps_report_scores_of_the_graph_with_its_evidence() -> None:
    graph = random_graph(12, 16, max_order=2, random_state=3).condition({0: 1, 4: 0})
    for method in ("auto", "mini-buckets"):
        result = graph.map(method, over=[1, 2, 3])
        assert result.info["steps"][-1]["score"] == pytest.approx(result.score, rel=1e-6)
