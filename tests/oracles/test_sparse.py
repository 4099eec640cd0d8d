"""Sparse elimination: the same answers as a list of all labelings, from far fewer rows."""

from __future__ import annotations

from itertools import product

import numpy as np
import pytest
from map_cases import with_zeros
from reference import Reference

from cliquewise._kernels.graphs import sparse_joins as joins
from cliquewise.errors import InfeasibleError, TooLargeError
from cliquewise.graph.builders import random_graph
from cliquewise.graph.factor_graph import FactorGraph
from cliquewise.oracles import get
from cliquewise.oracles._sparse_tables import Possible
from cliquewise.oracles.base import Limits
from cliquewise.oracles.sparse import SparseElimination


@pytest.mark.parametrize("seed", range(20))
def test_sparse_equals_brute_force_on_random_graphs_of_orders_up_to_four(seed: int) -> None:
    for part in range(10):
        rng = np.random.default_rng((seed, part))
        n = int(rng.integers(1, 9))
        graph = random_graph(n, int(rng.integers(0, 12)), max_order=4, max_cardinality=4,
                             random_state=rng)  # fmt: skip
        graph = with_zeros(graph, rng, rng.uniform(0.0, 0.8))
        truth = Reference(graph)
        found = graph.marginals("sparse")
        assert found.exact and found.log_z == pytest.approx(truth.log_z)
        np.testing.assert_allclose(found.nodes.flat, truth.node_marginals, atol=1e-11)
        np.testing.assert_allclose(found.factors.flat, truth.factor_marginals, atol=1e-11)
        best = graph.map("sparse")
        assert best.exact and graph.score(best.labels) == pytest.approx(truth.best)
        np.testing.assert_allclose(
            graph.max_marginals("sparse").nodes.flat, truth.node_max_marginals, atol=1e-9
        )
        assert np.all(graph.score(graph.sample(5, random_state=seed, method="sparse")) > -np.inf)


#: Wires that say everything.
INPUTS = 7


def one_of(n: int, rng: np.random.Generator) -> FactorGraph:
    """Wires that are functions of a few inputs, and soft observations of them."""
    inputs = INPUTS
    factors = [((v,), rng.standard_normal(2)) for v in range(inputs)]
    for v in range(inputs, n):
        read = rng.choice(inputs, 3, replace=False)
        says = rng.integers(0, 2, (2, 2, 2))
        factors.append(((*read.tolist(), v), np.where(says[..., None] == [0, 1], 0.0, -np.inf)))
    for v in range(inputs, n - 1):  # neighbors in a row, and any two: the dense tree is wide
        other = int(rng.integers(inputs, n))
        if other not in (v, v + 1):
            factors.append(((v, v + 1, other), rng.standard_normal((2, 2, 2))))
    return FactorGraph([2] * n, factors)


def enumerated(graph: FactorGraph) -> tuple[np.ndarray, np.ndarray]:
    """All possible labelings, and their scores: the inputs say everything."""
    rows = np.zeros((2**INPUTS, graph.n_variables), dtype=int)
    rows[:, :INPUTS] = list(product([0, 1], repeat=INPUTS))
    for scope, table in graph.factors:
        if np.isneginf(table).any():
            at = tuple(rows[:, v] for v in scope[:-1])
            rows[:, scope[-1]] = np.argmax(table[at], axis=-1)
    return rows, graph.score(rows)


def test_auto_solves_exactly_what_dense_tables_are_too_wide_for() -> None:
    graph = one_of(120, np.random.default_rng(0))
    assert not get("junction-tree").consider(graph, "marginals", Limits()).can_answer
    rows, scores = enumerated(graph)
    p = np.exp(scores - scores.max())
    found = graph.marginals()
    assert found.exact and found.method == "sparse"
    assert found.log_z == pytest.approx(scores.max() + np.log(p.sum()))
    p /= p.sum()
    np.testing.assert_allclose([node[1] for node in found.nodes], p @ rows, atol=1e-9)
    assert graph.map("sparse").score == pytest.approx(scores.max())
    best = graph.max_marginals()
    assert best.method == "sparse"
    expected = [scores[rows[:, v] == 1].max(initial=-np.inf) for v in range(120)]
    np.testing.assert_allclose([node[1] for node in best.nodes], expected, atol=1e-9)
    draws = graph.sample(1000, random_state=0)
    assert np.abs(draws.mean(axis=0) - p @ rows).max() < 0.08


def test_keys_of_several_words_hold_messages_of_ninety_variables() -> None:
    """A hub with soft ties to all, eliminated first: its message has them all, and three rows."""
    n, states, rng = 90, 3, np.random.default_rng(1)
    same = np.where(np.eye(states) > 0, 0.0, -np.inf)
    factors = [((v, v + 1), same) for v in range(n - 1)]
    factors += [((v, n), rng.standard_normal((states, states))) for v in range(n)]
    graph = FactorGraph([states] * (n + 1), factors)
    labels = np.array([[a] * n + [b] for a, b in product(range(states), repeat=2)])
    scores = graph.score(labels)
    log_z = np.logaddexp.reduce(scores)
    p = np.exp(scores - log_z).reshape(states, states)
    for order in (np.append(n, np.arange(n)), np.arange(n + 1)):
        run = SparseElimination(Possible.of(graph), order, "marginals", Limits())
        assert run.up(joins.SUM) == pytest.approx(log_z)
        assert run.wiring.words.max() == (3 if order[0] == n else 1)
        nodes, _ = run.down(joins.SUM_DOWN, 1.0)
        expected = np.vstack([np.tile(p.sum(axis=1), (n, 1)), p.sum(axis=0)])
        np.testing.assert_allclose(nodes.reshape(n + 1, states), expected, atol=1e-12)
        assert np.all(graph.score(run.decode(rng.random((5, n + 1)))) > -np.inf)


def test_rows_beyond_the_limits_are_refused_with_an_estimate() -> None:
    rng = np.random.default_rng(2)
    graph = with_zeros(random_graph(30, 60, max_order=3, random_state=rng), rng, 0.3)
    with pytest.raises(TooLargeError, match="'sparse' needs at least") as caught:
        graph.marginals("sparse", max_operations=100)
    assert caught.value.operations > 100
    with pytest.raises(TooLargeError, match="GiB") as caught:
        graph.marginals("sparse", max_memory=10_000)
    assert caught.value.memory_bytes > 10_000


def test_contradictions_that_single_variables_do_not_show_are_infeasible() -> None:
    """Three variables that differ pairwise, with two states: every state has support."""
    differ = np.where(np.eye(2) > 0, -np.inf, 0.0)
    graph = FactorGraph([2, 2, 2], [((0, 1), differ), ((1, 2), differ), ((0, 2), differ)])
    for question in ("map", "marginals", "max_marginals", "sample"):
        with pytest.raises(InfeasibleError):
            getattr(graph, question)(method="sparse")


def test_auto_does_not_begin_what_would_take_hours() -> None:
    rng = np.random.default_rng(3)
    graph = with_zeros(random_graph(400, 600, max_order=3, random_state=rng), rng, 0.25)
    with pytest.raises(TooLargeError, match="expects to join"):
        graph.max_marginals()
