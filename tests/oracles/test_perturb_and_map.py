"""Perturb-and-MAP: exact where one variable decides, reasonable elsewhere."""

from __future__ import annotations

import numpy as np
import pytest
from reference import Reference

from cliquewise.errors import InfeasibleError, UnsupportedError
from cliquewise.graph.builders import complete
from cliquewise.graph.factor_graph import FactorGraph


def clique(n: int, coupling: float, seed: int) -> FactorGraph:
    rng = np.random.default_rng(seed)
    pairs = n * (n - 1) // 2
    return complete(rng.uniform(-1, 1, (n, 2)), rng.uniform(-coupling, coupling, (pairs, 2, 2)))


def test_independent_variables_are_drawn_exactly_and_the_mean_maximum_is_log_z():
    graph = FactorGraph([3, 2], [((0,), [0.0, 1.0, -1.0]), ((1,), [0.5, 0.0])])
    truth = Reference(graph)
    result = graph.marginals("perturb-and-map", n_samples=4000)
    assert np.abs(result.nodes.flat - truth.node_marginals).max() < 0.03
    assert abs(result.log_z - truth.log_z) < 5 * result.info["standard_error"] < 0.2


def test_marginals_are_the_frequencies_of_its_own_draws():
    graph = clique(5, 1.0, 0)
    draws = graph.sample(300, random_state=7, method="perturb-and-map")
    result = graph.marginals("perturb-and-map", n_samples=300, random_state=7)
    np.testing.assert_allclose([node[1] for node in result.nodes], draws.mean(axis=0), atol=1e-12)
    assert result.info["map_calls"] == 300


def test_the_mean_maximum_overestimates_and_the_lower_bound_is_true():
    above = []
    for seed in range(5):
        graph = clique(6, 2.0, seed)
        truth = Reference(graph)
        result = graph.marginals("perturb-and-map", n_samples=200)
        assert result.bounds_certified == (True, False)
        assert result.log_z_bounds[0] <= truth.log_z + 1e-9
        above.append(result.log_z - truth.log_z)
        assert np.abs(result.nodes.flat - truth.node_marginals).mean() < 0.35
    assert np.mean(above) > 0


def test_larger_factors_and_forbidden_entries_are_fine():
    table = np.full((2, 2, 2), -np.inf)
    table[0, 1, 0] = table[1, 0, 1] = 0.0
    graph = FactorGraph([2, 2, 2], [((0, 1, 2), table)])
    draws = graph.sample(50, random_state=0, method="perturb-and-map")
    assert {tuple(d) for d in draws.tolist()} == {(0, 1, 0), (1, 0, 1)}


def test_impossible_graphs_and_bad_options_are_errors():
    graph = FactorGraph([2, 2], [((0, 1), np.full((2, 2), -np.inf))])
    with pytest.raises(InfeasibleError):
        graph.marginals("perturb-and-map")
    with pytest.raises(UnsupportedError, match="n_samples"):
        clique(3, 1.0, 0).marginals("perturb-and-map", n_samples=0)
    with pytest.raises(UnsupportedError, match="speed"):
        clique(3, 1.0, 0).marginals("perturb-and-map", speed=1)
