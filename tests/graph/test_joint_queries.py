"""Joint queries: exact, and of no more than has a say in the answer."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from reference import Reference

from cliquewise.graph.factor_graph import FactorGraph
from cliquewise.graph.joint import relevant_factors


def network(n: int, parents: int, rng: np.random.Generator, states: int = 2) -> FactorGraph:
    """Every variable depends on some of those before it."""
    cpts: dict[str, Any] = {}
    for v in range(n):
        chosen = rng.choice(v, min(v, parents), replace=False)
        table = rng.dirichlet(np.ones(states), size=(states,) * len(chosen))
        cpts[f"x{v}"] = ([f"x{u}" for u in chosen], table)
    return FactorGraph.from_cpts(cpts)


@pytest.mark.parametrize("seed", range(20))
def test_leaves_that_nobody_asks_for_change_no_answer(seed: int) -> None:
    rng = np.random.default_rng(seed)
    graph = network(9, 2, rng)
    chosen = rng.permutation(9)
    asked, seen = chosen[:2].tolist(), chosen[2 : 2 + seed % 3].tolist()
    evidence: dict[Any, Any] = {int(v): int(rng.integers(2)) for v in seen}
    if seed % 4 == 3:
        evidence[int(chosen[8])] = [0.2, 0.9]  # a likelihood is one more factor
    joint = Reference(graph.condition(evidence)).probabilities
    rest = tuple(v for v in range(9) if v not in asked)
    expected = joint.sum(axis=rest)
    expected = expected if asked[0] < asked[1] else expected.T
    found = graph.query(asked, evidence)
    assert found.exact
    np.testing.assert_allclose(found.probabilities, expected, atol=1e-12)


def test_causes_in_a_wide_network_are_answered_exactly_at_once() -> None:
    rng = np.random.default_rng(0)
    graph = network(300, 6, rng)
    found = graph.query(["x0", "x5"], max_operations=1e6)
    assert found.exact
    first = FactorGraph(graph.cardinalities[:6], list(graph.factors)[:6])
    expected = Reference(first).probabilities.sum(axis=(1, 2, 3, 4))
    np.testing.assert_allclose(found.probabilities, expected, atol=1e-12)


def test_only_what_sums_to_the_same_whatever_others_are_is_left_out() -> None:
    rng = np.random.default_rng(1)
    free = FactorGraph([2, 2], [((0,), [0.0, 1.0]), ((0, 1), rng.standard_normal((2, 2)))])
    assert relevant_factors(free, [0]) == [0, 1]
    scaled = np.log([[0.2, 0.8], [0.5, 0.5]]) + 3.0  # any constant will do
    tied = FactorGraph([2, 2], [((0,), [0.0, 1.0]), ((0, 1), scaled)])
    assert relevant_factors(tied, [0]) == [0]
    assert relevant_factors(tied, [1]) == [0, 1]
    assert relevant_factors(tied.condition({1: 0}), [0]) == [0, 1]
    never = np.array([[0.0, -np.inf], [-np.inf, -np.inf]])
    assert relevant_factors(FactorGraph([2, 2], [((0, 1), never)]), [0]) == [0]
