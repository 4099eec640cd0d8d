"""Tree-reweighted belief propagation: exact on trees, a true bound everywhere."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from reference import Reference

from cliquewise.errors import InfeasibleError, UnsupportedError
from cliquewise.graph.builders import complete
from cliquewise.graph.factor_graph import FactorGraph
from cliquewise.graph.spanning_trees import edge_probabilities


def ring(seed: int, forbidden: float = 0.0) -> FactorGraph:
    """A ring with a chord, cardinalities 1 to 3, one factor twice and flipped."""
    rng = np.random.default_rng(seed)
    cards = rng.integers(1, 4, 5)
    scopes = [(v,) for v in range(5)] + [(v, (v + 1) % 5) for v in range(5)] + [(3, 1), (1, 3)]
    factors = []
    for scope in scopes:
        table = 2.0 * rng.normal(size=tuple(cards[list(scope)]))
        if len(scope) == 2:
            table[rng.random(table.shape) < forbidden] = -np.inf
        factors.append((scope, table))
    return FactorGraph(cards, factors)


def clique(n: int, coupling: float, seed: int) -> FactorGraph:
    rng = np.random.default_rng(seed)
    pairs = n * (n - 1) // 2
    return complete(rng.uniform(-1, 1, (n, 2)), rng.uniform(-coupling, coupling, (pairs, 2, 2)))


@pytest.mark.parametrize("rho", ["uniform", 1.0])
def test_on_a_tree_it_is_exact(rho):
    rng = np.random.default_rng(1)
    graph = FactorGraph.tree([-1, 0, 0, 1, 1], rng.normal(size=(5, 3)), rng.normal(size=(4, 3, 3)))
    truth = graph.marginals("tree")
    result = graph.marginals("trw-bp", rho=rho, damping=0.0, tol=1e-12)
    assert result.info["converged"]
    assert result.log_z == pytest.approx(truth.log_z, abs=1e-9)
    assert result.log_z_bounds[1] == pytest.approx(truth.log_z, abs=1e-8)
    np.testing.assert_allclose(result.nodes.flat, truth.nodes.flat, atol=1e-9)
    np.testing.assert_allclose(result.factors.flat, truth.factors.flat, atol=1e-9)


@given(
    seed=st.integers(0, 10_000),
    rho=st.sampled_from(["uniform", "weighted", "optimized", 1.0]),
    forbidden=st.sampled_from([0.0, 0.0, 0.3]),
    iterations=st.sampled_from([0, 1, 3, 500]),
)
@settings(max_examples=60)
def test_the_bound_holds_whether_or_not_the_messages_converged(seed, rho, forbidden, iterations):
    graph = ring(seed, forbidden)
    truth = Reference(graph)
    options = {"rho": rho, "max_iterations": iterations, "rho_updates": 2}
    if not truth.feasible:
        with pytest.raises(InfeasibleError):
            graph.marginals("trw-bp", **options)
        return
    result = graph.marginals("trw-bp", **options)
    low, high = result.log_z_bounds
    assert result.bounds_certified == (True, True)
    assert low - 1e-9 <= truth.log_z <= high + 1e-9
    assert np.all(result.trace.upper >= truth.log_z - 1e-9)
    assert np.all(result.nodes.flat[truth.node_marginals == 0.0] <= 1e-12)


def test_a_converged_bound_is_the_tree_reweighted_value():
    graph = clique(6, 0.7, 0)
    result = graph.marginals("trw-bp", tol=1e-11, max_iterations=5000)
    assert result.info["converged"] and result.info["change"] <= 1e-11
    assert result.log_z_bounds[1] == pytest.approx(result.trace.primal[-1], abs=1e-6)
    assert result.log_z > Reference(graph).log_z


def test_optimised_rho_lowers_the_bound():
    for seed in range(4):
        graph = clique(6, 1.0, seed)
        fixed = graph.marginals("trw-bp").log_z_bounds[1]
        assert graph.marginals("trw-bp", rho="optimized").log_z_bounds[1] < fixed


def test_loopy_propagation_on_a_ring_has_its_fixed_point():
    graph = ring(3)
    result = graph.marginals("trw-bp", rho=1.0, tol=1e-10, max_iterations=5000)
    truth = Reference(graph)
    assert result.info["converged"]
    assert np.abs(result.nodes.flat - truth.node_marginals).max() < 0.1


def test_given_probabilities_count_as_they_are():
    graph = clique(5, 0.5, 2)
    rho = edge_probabilities(5, graph.structure.edges)
    given_ = graph.marginals("trw-bp", rho=rho)
    assert given_.log_z == graph.marginals("trw-bp", rho="uniform").log_z
    np.testing.assert_array_equal(given_.info["rho"], rho)


@pytest.mark.parametrize(
    ("options", "word"),
    [
        ({"rho": "best"}, "rho"),
        ({"rho": 0.0}, "rho"),
        ({"rho": [0.5, 0.5]}, "edges"),
        ({"damping": 1.0}, "damping"),
        ({"speed": 1}, "speed"),
    ],
)
def test_bad_options_are_errors_that_name_them(options, word):
    with pytest.raises(UnsupportedError, match=word):
        clique(4, 1.0, 0).marginals("trw-bp", **options)


def test_no_time_no_edges_and_larger_factors():
    graph = clique(5, 1.0, 0)
    low, high = graph.marginals("trw-bp", seconds=0).log_z_bounds
    assert low <= Reference(graph).log_z <= high
    alone = FactorGraph([3, 2], [((0,), [0.0, 1.0, 2.0])])
    assert alone.marginals("trw-bp").log_z == pytest.approx(alone.marginals().log_z)
    with pytest.raises(UnsupportedError, match="3 variables"):
        FactorGraph([2] * 3, [((0, 1, 2), np.zeros((2, 2, 2)))]).marginals("trw-bp")
