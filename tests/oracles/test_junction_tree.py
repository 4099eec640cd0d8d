"""What is special about elimination; tests/conformance compares answers with brute force."""

from __future__ import annotations

import tracemalloc

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from cliquewise.errors import TooLargeError, UnsupportedError
from cliquewise.graph.builders import complete, grid, random_graph
from cliquewise.graph.factor_graph import FactorGraph
from cliquewise.graph.structure import Structure
from cliquewise.oracles import get
from cliquewise.oracles.base import Limits
from cliquewise.oracles.junction_tree import analyze_order


def random_grid(side: int, states: int, seed: int = 0) -> FactorGraph:
    rng = np.random.default_rng(seed)
    return grid(
        rng.standard_normal((side, side, states)),
        rng.standard_normal((side - 1, side, states, states)),
        rng.standard_normal((side, side - 1, states, states)),
    )


def random_clique(n: int, states: int) -> FactorGraph:
    rng = np.random.default_rng(1)
    pairs = n * (n - 1) // 2
    return complete(rng.standard_normal((n, states)), rng.standard_normal((pairs, states, states)))


@given(
    cardinalities=st.lists(st.integers(1, 4), min_size=2, max_size=7),
    seed=st.integers(0, 2**32 - 1),
)
def test_dense_mixtures_of_factor_orders_equal_brute_force(
    cardinalities: list[int], seed: int
) -> None:
    rng = np.random.default_rng(seed)
    n = len(cardinalities)
    factors = []
    for _ in range(int(rng.integers(n, 4 * n))):
        scope = rng.permutation(n)[: rng.integers(1, min(n, 4) + 1)]
        table = 3 * rng.standard_normal([cardinalities[v] for v in scope])
        factors.append((scope.tolist(), table))
    graph = FactorGraph(cardinalities, factors)
    ours, listed = graph.marginals("junction-tree"), graph.marginals("brute-force")
    assert ours.log_z == pytest.approx(listed.log_z, rel=1e-12, abs=1e-12)
    assert np.abs(ours.nodes.flat - listed.nodes.flat).max() <= 1e-12
    assert np.abs(ours.factors.flat - listed.factors.flat).max() <= 1e-12
    best = graph.max_marginals("junction-tree").nodes.flat
    assert best == pytest.approx(graph.max_marginals("brute-force").nodes.flat, rel=1e-12)


@pytest.mark.parametrize("graph", [random_grid(6, 3), random_grid(4, 5), random_clique(9, 2)])
def test_tables_built_twice_for_want_of_memory_give_the_same_marginals(graph: FactorGraph) -> None:
    needed = get("junction-tree").consider(graph, "marginals", Limits()).cost.memory
    kept = graph.marginals("junction-tree")
    twice = graph.marginals("junction-tree", max_memory=needed)
    assert twice.log_z == kept.log_z
    assert twice.nodes.flat == pytest.approx(kept.nodes.flat, rel=1e-12)
    assert twice.factors.flat == pytest.approx(kept.factors.flat, rel=1e-12)


@pytest.mark.parametrize(("side", "states"), [(11, 2), (7, 3), (4, 7)])
def test_a_large_grid_is_the_same_as_its_transpose(side: int, states: int) -> None:
    # The mirrored graph has another elimination order and other axes everywhere.
    graph = random_grid(side, states)
    n = graph.n_variables
    renamed = np.arange(n).reshape(side, side).T.ravel()[::-1]
    mirrored = FactorGraph([states] * n, [(renamed[list(s)], t) for s, t in graph.factors])
    ours, other = graph.marginals("junction-tree"), mirrored.marginals("junction-tree")
    assert ours.log_z == pytest.approx(other.log_z, rel=1e-13)
    assert np.abs(ours.factors.flat - other.factors.flat).max() <= 1e-12
    best = graph.max_marginals("junction-tree").nodes.flat.reshape(n, states)
    alike = mirrored.max_marginals("junction-tree").nodes.flat.reshape(n, states)
    assert best == pytest.approx(alike[renamed], rel=1e-12)


@pytest.mark.parametrize("want", ["map", "marginals", "max_marginals", "sample"])
@pytest.mark.parametrize("graph", [random_grid(14, 2), random_clique(20, 2), random_clique(7, 7)])
def test_the_memory_estimate_bounds_the_true_peak(graph: FactorGraph, want: str) -> None:
    oracle = get("junction-tree")
    oracle.plan(graph.structure)
    extra = {"n": 2, "rng": np.random.default_rng(0)} if want == "sample" else {}
    getattr(oracle, want)(graph, **extra)
    needed = oracle.consider(graph, want, Limits()).cost.memory
    # With more memory marginals keep their tables.
    extra["limits"] = Limits(max_memory=needed)
    tracemalloc.start()
    try:
        getattr(oracle, want)(graph, **extra)
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    # Buffers of fixed size (chunks of columns) come on top.
    assert peak <= needed + 200_000
    assert peak >= 0.5 * needed


def test_a_refusal_states_what_would_be_needed() -> None:
    graph = random_grid(14, 2)
    with pytest.raises(TooLargeError, match="GiB") as refused:
        graph.marginals("junction-tree", max_memory=1e6)
    needed = refused.value.memory_bytes
    assert needed > 1e6
    graph.marginals("junction-tree", max_memory=needed)
    with pytest.raises(TooLargeError):
        graph.marginals("junction-tree", max_memory=needed - 1)
    with pytest.raises(UnsupportedError, match="its options are: max_memory, max_operations"):
        random_grid(3, 2).map("junction-tree", iterations=3)


def test_more_orders_are_tried_where_the_answer_is_dear_and_none_is_worse():
    from cliquewise._kernels.graphs import elimination

    oracle = get("junction-tree")
    wide = grid(np.zeros((16, 16, 2)), np.zeros((2, 2)), np.zeros((2, 2)))
    others = [random_graph(150, 200, max_order=3, random_state=seed) for seed in range(3)]
    for graph in (wide, *others):
        s, few = graph.structure, []
        for rule in (elimination.MIN_WEIGHT, elimination.MIN_FILL):
            adjacency = s.adjacency
            indptr, indices = adjacency.indptr.astype(int), adjacency.indices.astype(int)
            logs = np.log(s.cardinalities.astype(float))
            found = elimination.greedy_order(indptr, indices, logs, rule, 1e9)
            few.append(analyze_order(s, *found).operations)
        best = oracle.best_order(s).operations
        assert best <= min(few)
        if graph is wide:
            assert best < 0.5 * min(few)


def test_orders_of_small_graphs_take_no_more_tries_than_before(monkeypatch):
    from cliquewise.oracles import junction_tree

    calls = []
    original = junction_tree.greedy
    monkeypatch.setattr(junction_tree, "greedy", lambda *a: calls.append(1) or original(*a))
    get("junction-tree").best_order(random_graph(20, 25, random_state=0).structure)
    assert len(calls) == 2


def test_a_process_unrolled_in_time_is_ordered_along_time():
    """Facts that an action changes or not, step after step, whatever the variables are called."""
    facts, steps, rng = 12, 10, np.random.default_rng(0)
    n = (facts + 1) * (steps + 1)
    names = rng.permutation(n)
    scopes = [
        names[[(facts + 1) * t, (facts + 1) * t + i, (facts + 1) * (t + 1) + i]]
        for t in range(steps)
        for i in range(1, facts + 1)
    ]
    structure = Structure(np.full(n, 2), [scope.tolist() for scope in scopes])
    # One fact after the other steps into the next moment: twelve of them and two more at a time.
    assert get("junction-tree").best_order(structure).operations <= n * 2.0 ** (facts + 3)
