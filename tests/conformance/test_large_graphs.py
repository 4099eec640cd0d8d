"""Sizes at which recursion, quadratic loops and underflow show."""

from __future__ import annotations

from functools import cache

import numpy as np
import pytest
from reference import forest_values

from cliquewise.graph.builders import tree
from cliquewise.graph.factor_graph import FactorGraph
from cliquewise.oracles import get, registered
from cliquewise.oracles.planner import why_not

#: Not meant for a hundred thousand variables.
TOO_SLOW = {
    "milp": "a linear program of millions of rows",
    "toulbar2": "an external solver whose preprocessing is not linear",
    "portfolio": "runs those two",
    "bmmf": "one pass of max-marginals per labeling, on top of the method that it calls",
}

SHAPES = ("chain", "deep_tree", "star", "wide_star", "pairs")
EXACT = [o.name for o in registered() if o.exact and o.name not in TOO_SLOW]


def _parents(shape: str) -> np.ndarray:
    rng = np.random.default_rng(7)
    if shape == "chain":
        return np.arange(-1, 99_999)
    if shape == "deep_tree":
        # A spine of half the variables; the others hang on a recent one, on short branches.
        n = 100_000
        back = np.where(rng.random(n) < 0.5, 1, rng.integers(1, 8, size=n))
        return np.maximum(np.arange(n) - back, np.where(np.arange(n) == 0, -1, 0))
    if shape in ("star", "wide_star"):
        return np.array([-1] + [0] * (1_000 if shape == "star" else 10_000))
    return np.where(np.arange(2_000) % 2 == 0, -1, np.arange(2_000) - 1)


@cache
def large(shape: str) -> tuple[FactorGraph, float, float]:
    """A graph, its best score and its log Z."""
    parents = _parents(shape)
    rng = np.random.default_rng(3)
    nodes = rng.standard_normal((len(parents), 2))
    edges = rng.standard_normal((len(parents), 2, 2)) * 2.0
    graph = tree(parents, nodes, edges[parents >= 0])
    return graph, *forest_values(parents, nodes, edges)


CASES = [(name, shape) for shape in SHAPES for name in EXACT]


def _graph_or_skip(name: str, shape: str, question: str) -> tuple[FactorGraph, float, float]:
    graph, best, log_z = large(shape)
    reason = why_not(get(name), graph, question)
    if reason is not None:
        pytest.skip(f"{name} {reason}")
    return graph, best, log_z


@pytest.mark.parametrize(("name", "shape"), CASES)
def test_the_best_score_is_that_of_a_plain_dynamic_program(name: str, shape: str) -> None:
    graph, best, _ = _graph_or_skip(name, shape, "map")
    result = graph.map(name)
    assert result.score == pytest.approx(best, rel=1e-9)
    assert graph.score(result.labels) == pytest.approx(best, rel=1e-9)
    assert result.exact


@pytest.mark.parametrize(("name", "shape"), CASES)
def test_log_z_is_that_of_a_plain_dynamic_program(name: str, shape: str) -> None:
    graph, _, log_z = _graph_or_skip(name, shape, "marginals")
    result = graph.marginals(name)
    assert result.log_z == pytest.approx(log_z, rel=1e-9)
    n = graph.n_variables
    nodes = result.nodes.flat.reshape(n, 2)
    assert np.abs(nodes.sum(axis=1) - 1.0).max() <= 1e-12
    assert np.abs(result.factors.flat[: 2 * n].reshape(n, 2) - nodes).max() <= 1e-12
    # Of the star's center with 10,000 neighbors, sums of 10,000 messages are compared.
    tables = result.factors.flat[2 * n :].reshape(-1, 2, 2)
    ends = graph.structure.scopes[n:].reshape(-1, 2)
    scale = 1e-12 if "star" not in shape else 1e-10
    assert np.abs(tables.sum(axis=2) - nodes[ends[:, 0]]).max() <= scale
    assert np.abs(tables.sum(axis=1) - nodes[ends[:, 1]]).max() <= scale


@pytest.mark.parametrize(("name", "shape"), CASES)
def test_max_marginals_of_a_large_graph_all_attain_the_best_score(name: str, shape: str) -> None:
    graph, best, _ = _graph_or_skip(name, shape, "max_marginals")
    result = graph.max_marginals(name)
    tops = result.nodes.flat.reshape(-1, 2).max(axis=1)
    assert np.abs(tops - best).max() <= 1e-9 * abs(best)


@pytest.mark.parametrize(("name", "shape"), CASES)
def test_top_k_of_a_large_graph_is_sorted_and_starts_at_the_best(name: str, shape: str) -> None:
    graph, best, _ = _graph_or_skip(name, shape, "top_k")
    results = graph.top_k(3, name)
    scores = [r.score for r in results]
    assert scores[0] == pytest.approx(best, rel=1e-9)
    assert scores == sorted(scores, reverse=True)
    assert len({r.labels.tobytes() for r in results}) == 3
    assert graph.score(np.array([r.labels for r in results])) == pytest.approx(scores, rel=1e-9)


@pytest.mark.parametrize(("name", "shape"), CASES)
def test_the_mean_of_draws_of_a_large_graph_is_near_the_marginals(name: str, shape: str) -> None:
    graph, _, _ = _graph_or_skip(name, shape, "sample")
    draws = graph.sample(20, random_state=0, method=name)
    p = graph.marginals(name).nodes.flat.reshape(-1, 2)[:, 1]
    # 20 draws of n variables that are correlated over short distances only.
    deviation = float(draws.mean() - p.mean())
    assert abs(deviation) <= 6 * np.sqrt(10.0 / (4 * draws.size))


def test_evidence_in_the_middle_of_a_long_chain_cuts_it() -> None:
    graph, _, _ = large("chain")
    observed = graph.condition(dict.fromkeys(range(500, 100_000, 1_000), 1))
    result = observed.marginals()
    assert np.all(result.nodes.flat.reshape(-1, 2)[500::1000, 1] == 1.0)
    assert result.log_z < graph.marginals().log_z
    assert np.all(observed.map().labels[500::1000] == 1)
