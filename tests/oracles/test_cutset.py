"""Impossible states and fixed variables: smaller problems with the same answers."""

from __future__ import annotations

import numpy as np
import pytest
from map_cases import with_zeros

from cliquewise.errors import InfeasibleError, TooLargeError
from cliquewise.graph.builders import grid, random_graph
from cliquewise.graph.factor_graph import FactorGraph
from cliquewise.graph.support import Support
from cliquewise.oracles.base import Limits
from cliquewise.oracles.registry import get


@pytest.mark.parametrize("seed", range(30))
def test_what_is_possible_has_the_same_distribution(seed: int) -> None:
    rng = np.random.default_rng(seed)
    graph = with_zeros(random_graph(7, 9, max_order=4, random_state=rng), rng, 0.6)
    support = Support.of(graph)
    truth = graph.marginals("brute-force")
    for v, states in enumerate(support.states):
        assert set(np.flatnonzero(truth.nodes[v] > 0)) <= set(states.tolist())
    answer = support.translate("marginals", support.graph.marginals("brute-force"))
    assert answer.log_z == pytest.approx(truth.log_z)
    np.testing.assert_allclose(answer.nodes.flat, truth.nodes.flat, atol=1e-12)
    np.testing.assert_allclose(answer.factors.flat, truth.factors.flat, atol=1e-12)
    best = support.translate("map", support.graph.map("brute-force"))
    assert graph.score(best.labels) == pytest.approx(graph.map("brute-force").score)


def test_one_observation_may_determine_everything() -> None:
    equal = np.where(np.eye(3) > 0, 0.0, -np.inf)
    graph = FactorGraph([3] * 50, [((i, i + 1), equal) for i in range(49)])
    support = Support.of(FactorGraph([3] * 50, [*graph.factors, ((7,), [-np.inf, 1.0, -np.inf])]))
    assert len(support.determined) == 50
    with pytest.raises(InfeasibleError):
        Support.of(FactorGraph([2, 2], [((0, 1), np.full((2, 2), -np.inf))]))


@pytest.mark.parametrize("seed", range(4))
@pytest.mark.parametrize("zeros", [False, True])
def test_fixed_variables_keep_to_the_memory_and_change_no_answer(seed: int, zeros: bool) -> None:
    rng = np.random.default_rng(seed)
    tables = rng.normal(size=(2, 7, 7, 3, 3))
    if zeros:
        tables[rng.random(tables.shape) < 0.3] = -np.inf
        tables[..., 1, 1] = 0.5
    graph = grid(rng.normal(size=(7, 7, 3)), tables[0, :6], tables[1, :, :6])
    whole, oracle = get("junction-tree").best_order(graph.structure).memory(False), get("cutset")
    split = oracle.split(graph, "marginals", Limits(max_memory=whole / 4))
    assert split.cost.memory <= whole / 4
    if not zeros:
        assert split.fixed
    for options in ({}, {"max_memory": whole / 4}):
        found, truth = graph.marginals("cutset", **options), graph.marginals("junction-tree")
        assert found.exact
        assert found.log_z == pytest.approx(truth.log_z)
        np.testing.assert_allclose(found.nodes.flat, truth.nodes.flat, atol=1e-12)
        np.testing.assert_allclose(found.factors.flat, truth.factors.flat, atol=1e-12)
        best = graph.map("cutset", **options)
        assert best.exact
        assert best.score == pytest.approx(graph.map("junction-tree").score)


def test_what_exceeds_the_operations_is_refused_with_both_figures() -> None:
    graph = grid(np.zeros((40, 40, 2)), np.zeros((2, 2)), np.zeros((2, 2)))
    with pytest.raises(TooLargeError, match=r"GiB and .* table entries"):
        graph.marginals("cutset")
