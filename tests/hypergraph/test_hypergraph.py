"""Inference on hypergraphs against enumeration of all derivations."""

from __future__ import annotations

import itertools
import math

import numpy as np
import pytest
from scipy.stats import chisquare

from cliquewise.errors import DataError, GraphError, InfeasibleError, TooLargeError
from cliquewise.hypergraph import Hypergraph


def derivations(graph, node=None):
    """List every derivation of a node as a tuple of edges."""
    node = graph.root if node is None else node
    found = []
    for e in range(graph.edge_offsets[node], graph.edge_offsets[node + 1]):
        below = graph.tails[graph.tail_offsets[e] : graph.tail_offsets[e + 1]]
        for choice in itertools.product(*(derivations(graph, v) for v in below)):
            found.append((e, *itertools.chain(*choice)))
    return found


def random_hypergraph(rng, n_nodes=6, arity=3, n_parts=8):
    """Return a hypergraph in which every node has a derivation."""
    heads, tails = [], []
    for v in range(n_nodes):
        for _ in range(rng.integers(1, 4)):
            heads.append(v)
            tails.append(rng.integers(0, v, rng.integers(0, arity + 1)).tolist() if v else [])
    parts = rng.integers(-1, n_parts, len(heads))
    return Hypergraph(heads, tails, parts, n_parts)


def n_derivations(graph):
    """Count the derivations of the root without listing them."""
    counts = [0] * graph.n_nodes
    for e, head in enumerate(graph.heads):
        below = graph.tails[graph.tail_offsets[e] : graph.tail_offsets[e + 1]]
        counts[head] += math.prod(counts[v] for v in below)
    return counts[graph.root]


def scores_of(graph, scores):
    """Return all derivations and their scores."""
    listed = derivations(graph)
    padded = np.append(scores, 0.0)
    return listed, np.array([padded[graph.parts[list(d)]].sum() for d in listed])


@pytest.fixture(params=range(30))
def case(request):
    rng = np.random.default_rng(request.param)
    while True:
        graph = random_hypergraph(rng)
        if 1 < n_derivations(graph) < 5000:
            break
    scale = (1.0, 30.0, 1e4)[request.param % 3]
    scores = scale * rng.normal(size=graph.n_parts)
    if request.param % 4 == 1:
        scores[rng.integers(graph.n_parts)] = -np.inf
    if request.param % 5 == 2:
        scores = np.round(scores / scale)  # ties
    if scores_of(graph, scores)[1].max() == -np.inf:
        scores = np.zeros(graph.n_parts)
    return graph, scores


def test_best_derivation_has_the_highest_score(case):
    graph, scores = case
    listed, values = scores_of(graph, scores)
    best = graph.best(scores)
    assert best.score == pytest.approx(values.max(), rel=1e-12, abs=1e-9)
    assert tuple(best.edges) in listed


def test_log_partition_and_marginals_match_enumeration(case):
    graph, scores = case
    listed, values = scores_of(graph, scores)
    high = values.max()
    log_z = high + np.log(np.exp(values - high).sum())
    probabilities = np.exp(values - log_z)
    counts = np.array([np.bincount(d, minlength=graph.n_edges) for d in listed])
    found = graph.marginals(scores)
    assert found.log_z == pytest.approx(log_z, rel=1e-12, abs=1e-9)
    assert graph.log_partition(scores) == found.log_z
    tolerance = 1e-9 * max(1.0, np.abs(scores[np.isfinite(scores)]).max())
    np.testing.assert_allclose(found.edges, probabilities @ counts, atol=tolerance)
    expected = np.zeros(graph.n_parts + 1)
    np.add.at(expected, graph.parts, probabilities @ counts)
    np.testing.assert_allclose(found.parts, expected[:-1], atol=tolerance)


def test_marginals_are_the_gradient_of_log_partition():
    graph, rng = random_hypergraph(np.random.default_rng(5)), np.random.default_rng(6)
    scores = rng.normal(size=graph.n_parts)
    step = 1e-6 * np.eye(graph.n_parts)
    slopes = [
        (graph.log_partition(scores + d) - graph.log_partition(scores - d)) / 2e-6 for d in step
    ]
    np.testing.assert_allclose(graph.marginals(scores).parts, slopes, atol=1e-7)


def test_entropy_and_divergence_match_enumeration():
    rng = np.random.default_rng(1)
    for _ in range(20):
        graph = random_hypergraph(rng)
        if not 1 < n_derivations(graph) < 5000:
            continue
        first, second = rng.normal(size=(2, graph.n_parts))
        p, q = (np.exp(scores_of(graph, s)[1] - graph.log_partition(s)) for s in (first, second))
        assert graph.marginals(first).entropy == pytest.approx(-(p * np.log(p)).sum(), abs=1e-9)
        expected = (p * np.log(p / q)).sum()
        assert graph.kl_divergence(first, second) == pytest.approx(expected, abs=1e-9)


@pytest.mark.parametrize("k", [1, 2, 5, 1000])
def test_top_k_lists_the_best_derivations_in_order_without_repeats(case, k):
    graph, scores = case
    listed, values = scores_of(graph, scores)
    finite = np.sort(values[values > -np.inf])[::-1]
    found = graph.top_k(scores, min(k, len(listed)))
    assert len(found) == min(k, len(finite))
    np.testing.assert_allclose(
        [d.score for d in found], finite[: len(found)], rtol=1e-12, atol=1e-9
    )
    assert len({tuple(d.edges) for d in found}) == len(found)
    assert all(tuple(d.edges) in listed for d in found)


def test_samples_follow_the_distribution():
    rng = np.random.default_rng(3)
    graph = random_hypergraph(rng, n_nodes=4)
    assert 1 < n_derivations(graph) < 500
    scores = rng.normal(size=graph.n_parts)
    listed, values = scores_of(graph, scores)
    number = {d: i for i, d in enumerate(listed)}
    draws = [number[tuple(d.edges)] for d in graph.sample(scores, 20_000, random_state=0)]
    expected = 20_000 * np.exp(values - graph.log_partition(scores))
    seen = np.bincount(draws, minlength=len(listed))
    common = expected > 5
    observed, wanted = np.append(seen[common], seen[~common].sum()), expected[common]
    assert chisquare(observed, np.append(wanted, 20_000 - wanted.sum()) + 1e-9).pvalue > 1e-3


def test_samples_are_reproducible():
    graph = Hypergraph([0, 0, 0], [[], [], []])
    first, second = (graph.sample(np.zeros(3), 50, random_state=7) for _ in range(2))
    assert [d.edges.tolist() for d in first] == [d.edges.tolist() for d in second]


def test_edges_by_name_are_sorted_and_unreachable_ones_dropped():
    edges = [("s", ["x", "y"], 0), ("y", [], 1), ("x", ["y"], 2), ("z", ["s"], 3)]
    graph = Hypergraph.from_edges(edges, root="s", n_parts=4)
    assert graph.n_nodes == 3
    assert graph.best([1.0, 10.0, 100.0, 1000.0]).score == 121.0  # y is used twice


def test_cycles_are_rejected():
    with pytest.raises(GraphError, match="cycle"):
        Hypergraph.from_edges([("a", ["b"], 0), ("b", ["a"], 1)], root="a")


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (([], []), "at least one edge"),
        (([1, 0], [[], []]), "ascending"),
        (([0, 1], [[], [1]]), "smaller node"),
        (([0], [[]], [3], 2), "parts must be"),
    ],
)
def test_invalid_topologies_are_rejected(arguments, message):
    with pytest.raises(GraphError, match=message):
        Hypergraph(*arguments)


def test_invalid_scores_are_rejected():
    graph = Hypergraph([0, 0], [[], []])
    with pytest.raises(DataError, match="3 scores for 2 parts"):
        graph.best(np.zeros(3))
    with pytest.raises(DataError, match="NaN"):
        graph.best([np.nan, 0.0])
    with pytest.raises(InfeasibleError):
        graph.marginals([-np.inf, -np.inf])
    with pytest.raises(TooLargeError):
        graph.top_k(np.zeros(2), 10**9)


def test_arrays_are_read_only():
    graph = Hypergraph([0, 1], [[], [0]])
    for array in (graph.heads, graph.tails, graph.tail_offsets, graph.parts, graph.edge_offsets):
        with pytest.raises(ValueError, match="read-only"):
            array[0] = 5


def test_derivations_with_exponentially_many_edges_are_rejected():
    n = 40  # node v uses node v - 1 twice
    graph = Hypergraph(range(n), [[], *([v - 1, v - 1] for v in range(1, n))], [0] * n)
    assert graph.log_partition([0.0]) == 0.0
    with pytest.raises(TooLargeError, match="more than"):
        graph.best([0.0])
