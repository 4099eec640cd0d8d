"""Factors of any order: bounds hold at every size, and belief propagation is exact on trees."""

from __future__ import annotations

import numpy as np
import pytest
from map_cases import with_zeros

from cliquewise._kernels import clock
from cliquewise.errors import InfeasibleError, UnsupportedError
from cliquewise.graph.builders import complete, random_graph
from cliquewise.graph.factor_graph import FactorGraph
from cliquewise.oracles._factor_messages import FactorMessages
from cliquewise.oracles._logz_lower_bound import sum_below
from cliquewise.oracles._mini_buckets import TooLate, mini_bucket_bound
from cliquewise.oracles.base import Limits
from cliquewise.oracles.planner import ANYTIME
from cliquewise.oracles.registry import get


def drawn(seed: int) -> FactorGraph:
    """Orders up to four; every other graph has forbidden entries, but not all."""
    rng = np.random.default_rng(seed)
    graph = random_graph(8, 12, max_order=4, scale=float(rng.uniform(0.2, 3.0)), random_state=rng)
    return with_zeros(graph, rng, 0.3) if seed % 2 else graph


@pytest.mark.parametrize("block", range(4))
def test_bounds_hold_on_two_hundred_graphs_and_meet_when_tables_are_large(block: int) -> None:
    for seed in range(50 * block, 50 * block + 50):
        graph = drawn(seed)
        log_z = graph.marginals("brute-force").log_z
        order = np.random.default_rng(seed).permutation(8)
        for entries in (1, 16, 64, 1e9):
            high = mini_bucket_bound(graph, order, entries, True, np.inf)
            low = mini_bucket_bound(graph, order, entries, False, np.inf)
            assert high.value >= log_z - 1e-9 * max(1.0, abs(log_z))
            assert not low.value > log_z + 1e-9 * max(1.0, abs(log_z))
        assert high.exact and low.exact
        assert high.value == pytest.approx(log_z, abs=1e-9)
        assert low.value == pytest.approx(log_z, abs=1e-9)


@pytest.mark.parametrize("block", range(4))
def test_whatever_is_called_certified_holds_and_is_finite_on_two_hundred_graphs(block: int) -> None:
    for seed in range(50 * block, 50 * block + 50):
        rng = np.random.default_rng(seed)
        scale = float(rng.uniform(0.2, 3.0))
        graph = random_graph(
            7, 10, max_order=2 + seed % 3, max_cardinality=3, scale=scale, random_state=rng
        )
        if seed % 2:
            graph = with_zeros(graph, rng, float(rng.uniform(0.1, 0.8)))
        log_z, slack = graph.marginals("brute-force").log_z, 1e-9
        found = {
            "no time": ANYTIME.marginals(graph, seconds=0.0, limits=Limits(max_operations=0)),
            "buckets": get("mini-buckets").marginals(graph, max_entries=300, max_iterations=3),
        }
        if graph.structure.is_pairwise:
            found["steps"] = ANYTIME.marginals(graph, limits=Limits(max_operations=0))
            found["parts"] = get("barrier-fw").marginals(graph, parts=3, max_calls=8)
            found["no calls"] = get("barrier-fw").marginals(graph, seconds=0.0)
            found["messages"] = get("trw-bp").marginals(graph)
        for name, answer in found.items():
            low, high = answer.log_z_bounds
            assert np.isfinite([low, high]).all() and answer.bounds_certified[0], (seed, name)
            assert low <= log_z + slack * max(1.0, abs(log_z)), (seed, name)
            if answer.bounds_certified[1]:
                assert high >= log_z - slack * max(1.0, abs(log_z)), (seed, name)


def test_sums_around_a_labeling_hold_for_every_distribution_and_meet_ln_z() -> None:
    wider = []
    for seed in range(60):
        graph = drawn(seed)
        log_z = graph.marginals("brute-force").log_z
        rng = np.random.default_rng(seed)
        order, offsets = rng.permutation(8), graph.structure.node_offsets
        nodes = rng.random(int(offsets[-1])) * (rng.random(int(offsets[-1])) < 0.8)
        nodes[offsets[:-1]] += 0.1
        nodes /= np.repeat(np.add.reduceat(nodes, offsets[:-1]), graph.cardinalities)
        labels = graph.map("brute-force").labels
        score = graph.score(labels)
        for entries in (1, 16, 64, 1e9):
            for q in (nodes, np.eye(len(nodes))[offsets[:-1] + labels].sum(axis=0)):
                low = sum_below(graph, order, entries, q, labels, np.inf)
                assert low <= log_z + 1e-9 * max(1.0, abs(log_z))
            assert low >= score - 1e-9 * max(1.0, abs(score))
            wider.append(low - score)
        assert low == pytest.approx(log_z, abs=1e-9)
    assert np.mean(wider) > 0.5  # nats above the score of the best labeling


def tree_of_factors(seed: int) -> FactorGraph:
    """Every factor shares one variable with those before."""
    rng = np.random.default_rng(seed)
    cards, factors = [int(rng.integers(2, 4))], []
    for _ in range(6):
        new = range(len(cards), len(cards) + int(rng.integers(0, 3)))
        scope = [int(rng.integers(len(cards))), *new]
        cards += [int(rng.integers(2, 4)) for _ in new]
        table = 2.0 * rng.normal(size=[cards[v] for v in scope])
        if seed % 2:
            table[rng.random(table.shape) < 0.15] = -np.inf
        factors.append((scope, table))
    return FactorGraph(cards, factors)


def test_belief_propagation_is_exact_on_trees_of_factors() -> None:
    checked = 0
    for seed in range(40):
        graph = tree_of_factors(seed)
        try:
            truth = graph.marginals("junction-tree")
        except InfeasibleError:
            with pytest.raises(InfeasibleError):
                graph.marginals("mini-buckets")
            continue
        messages = FactorMessages(graph)
        converged, _ = messages.run(1e-12, 200, np.inf)
        nodes, factors, value = messages.answer()
        assert converged
        assert value == pytest.approx(truth.log_z, abs=1e-8)
        np.testing.assert_allclose(nodes, truth.nodes.flat, atol=1e-8)
        np.testing.assert_allclose(factors, truth.factors.flat, atol=1e-8)
        checked += 1
    assert checked >= 25


def test_messages_that_settle_make_factors_and_variables_agree() -> None:
    settled = 0
    for seed in range(60):
        graph = drawn(seed)
        messages = FactorMessages(graph)
        try:
            converged, turns = messages.run(1e-9, 1000, np.inf)
            nodes, _, _ = messages.answer()
        except InfeasibleError:  # messages prove it only where it is true
            with pytest.raises(InfeasibleError):
                graph.marginals("brute-force")
            continue
        settled += converged
        assert converged or turns == 1000
        for group in messages.groups if converged else ():
            scores = group.scores()
            p = np.exp(scores - scores.max())
            p /= p.reshape(len(p), -1).sum(axis=1).reshape(-1, *[1] * len(group.shape))
            for a, places in enumerate(group.places):
                others = tuple(b + 1 for b in range(len(group.shape)) if b != a)
                np.testing.assert_allclose(p.sum(axis=others), nodes[places], atol=1e-6)
    assert settled >= 55


def test_messages_far_below_the_largest_entry_are_not_lost() -> None:
    steep = np.array([[0.0, -2000.0, -3000.0], [-2500.0, -1000.0, -4000.0]])
    factors = [((0, 1), steep), ((1, 2), steep.T), ((1,), [-5000.0, 0.0, 900.0]), ((), 3.0)]
    graph = FactorGraph([2, 3, 2], factors)
    messages = FactorMessages(graph)
    assert messages.run(1e-12, 100, np.inf)[0]
    nodes, _, value = messages.answer()
    truth = graph.marginals("brute-force")
    assert value == pytest.approx(truth.log_z, rel=1e-12)
    np.testing.assert_allclose(nodes, truth.nodes.flat, atol=1e-9)


def test_methods_of_pairs_name_those_that_take_more() -> None:
    graph = random_graph(5, 6, max_order=3, random_state=1)
    assert graph.structure.max_order == 3
    for method in ("barrier-fw", "trw-bp"):
        with pytest.raises(UnsupportedError, match=r"junction-tree, mini-buckets take factors of"):
            graph.marginals(method)


def test_estimates_lie_within_bounds_that_tighten_until_the_time_is_over() -> None:
    graph = random_graph(50, 60, max_order=3, scale=0.5, random_state=3)
    truth = graph.marginals("junction-tree")
    rough = graph.marginals("mini-buckets", max_entries=300, seconds=60)
    fine = graph.marginals("mini-buckets", max_entries=20_000, seconds=60)
    for found in (rough, fine):
        low, high = found.log_z_bounds
        assert low <= truth.log_z <= high
        assert low <= found.log_z <= high
        assert found.bounds_certified == (True, True)
    assert np.diff(fine.log_z_bounds) <= np.diff(rough.log_z_bounds)
    assert (np.diff(fine.trace.upper) <= 0).all()
    assert np.abs(fine.nodes.flat - truth.nodes.flat).mean() < 0.02


def test_no_time_gives_an_answer_all_the_same() -> None:
    graph = random_graph(50, 60, max_order=3, random_state=3)
    found = graph.marginals("mini-buckets", seconds=0.0)
    low, high = found.log_z_bounds
    assert low <= graph.marginals("junction-tree").log_z <= high
    with pytest.raises(TooLate):
        mini_bucket_bound(graph, np.arange(50), 64, True, clock.now() - 1.0)


def test_lower_bounds_allow_for_the_rounding_of_numbers_that_grow() -> None:
    """Twenty mini-buckets of a variable shift numbers up to 1e20 between them."""
    rng = np.random.default_rng(0)
    graph = complete(rng.normal(size=(40, 3)), rng.normal(size=(3, 3)))
    order, high = np.arange(40), np.inf
    for entries in (9, 81, 256, 2048):
        high = min(high, mini_bucket_bound(graph, order, entries, True, np.inf).value)
        assert mini_bucket_bound(graph, order, entries, False, np.inf).value <= high
