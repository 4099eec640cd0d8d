"""Every chain kernel against enumeration of all labelings, and on hard cases."""

import itertools

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.special import logsumexp

from cliquewise._kernels.chain import decode as chain_decode
from cliquewise._kernels.chain import log_domain as chain_log
from cliquewise._kernels.chain import sums as chain
from cliquewise._kernels.chain import top_k as chain_top_k

INF = np.inf
plain = st.floats(-3, 3)
large = st.floats(-1e4, 1e4)
rough = st.sampled_from([-INF, 0.0, 0.0, 1.0, 1e-300, -1e-300, 1e4, -1e4, 300.0, -705.0, -750.0])
steep = st.sampled_from([0.0, 0.0, 0.0, -200.0, -350.0, -650.0, -720.0, -900.0, -INF])


@st.composite
def chains(draw, elements=None):
    """(nodes, trans): up to 5 positions, 4 labels, shared or own transitions."""
    entry = (
        elements if elements is not None else draw(st.sampled_from([plain, large, rough, steep]))
    )
    length, n_labels = draw(st.integers(1, 5)), draw(st.integers(1, 4))
    n_tables = draw(st.sampled_from([1, length - 1]))

    def table(shape):
        size = int(np.prod(shape))
        return np.array(draw(st.lists(entry, min_size=size, max_size=size))).reshape(shape)

    return table((length, n_labels)), table((n_tables, n_labels, n_labels))


def enumerate_labelings(nodes, trans):
    """All labelings (M, T) and their scores (M,)."""
    length, n_labels = nodes.shape
    labels = np.array(list(itertools.product(range(n_labels), repeat=length)))
    scores = np.zeros(len(labels))
    for t in range(length):
        scores += nodes[t, labels[:, t]]
        if t > 0:
            table = trans[0 if len(trans) == 1 else t - 1]
            scores += table[labels[:, t - 1], labels[:, t]]
    return labels, scores


def reference(nodes, trans):
    """log Z, node marginals, edge marginals by enumeration."""
    n_labels = nodes.shape[1]
    labels, scores = enumerate_labelings(nodes, trans)
    log_z = logsumexp(scores) if scores.max() > -INF else -INF
    weights = np.exp(scores - log_z) if log_z > -INF else np.zeros_like(scores)
    one_hot = np.eye(n_labels)[labels]
    marginals = np.einsum("m,mtk->tk", weights, one_hot)
    edges = np.einsum("m,mti,mtj->tij", weights, one_hot[:, :-1], one_hot[:, 1:])
    return log_z, marginals, edges


def run(nodes, trans, edges=True, expectation=False, length=None):
    n, k = nodes.shape
    tables = chain.transition_tables(k, nodes)
    chain.prepare_transitions(trans, tables)
    work = chain.workspace(n if length is None else length, k, nodes)
    marginals = np.full((n, k), np.nan, nodes.dtype)
    pairs = np.full((max(n - 1, 0) if edges else 0, k, k), np.nan, nodes.dtype)
    sums = np.zeros((k if expectation else 0, k), nodes.dtype)
    log_z = chain.forward_backward(nodes, trans, tables, marginals, pairs, sums, work)
    return log_z, marginals, pairs, sums


def partition(nodes, trans):
    tables = chain.transition_tables(nodes.shape[1], nodes)
    chain.prepare_transitions(trans, tables)
    work = chain.workspace(len(nodes), nodes.shape[1], nodes)
    return chain.log_partition(nodes, trans, tables, work)


def tolerance(nodes, trans):
    """Rounding of the sums of scores, in the reference as in the kernel."""
    finite = np.concatenate([nodes.ravel(), trans.ravel()])
    finite = finite[np.isfinite(finite)]
    return 1e-12 + 1e-14 * np.abs(finite).sum() if finite.size else 1e-12


@settings(max_examples=400, deadline=None)
@given(chains())
def test_sum_product_equals_enumeration(example):
    nodes, trans = example
    log_z, marginals, edges = reference(nodes, trans)
    atol = tolerance(nodes, trans)
    got = run(nodes, trans, expectation=True)
    assert got[0] == pytest.approx(log_z, rel=1e-12, abs=atol)
    np.testing.assert_allclose(got[1], marginals, atol=atol)
    np.testing.assert_allclose(got[2], edges, atol=atol)
    np.testing.assert_allclose(got[3], edges.sum(0), atol=atol)
    assert partition(nodes, trans) == pytest.approx(log_z, rel=1e-12, abs=atol)
    if log_z > -INF:
        np.testing.assert_allclose(got[1].sum(1), 1, atol=1e-12)


@settings(max_examples=200, deadline=None)
@given(chains())
def test_log_domain_equals_enumeration(example):
    nodes, trans = example
    n, k = nodes.shape
    log_z, marginals, edges = reference(nodes, trans)
    atol = tolerance(nodes, trans)
    got, pairs, sums = np.empty((n, k)), np.empty((n - 1, k, k)), np.zeros((k, k))
    work = chain.workspace(n, k, nodes)
    tables = chain.transition_tables(k, nodes)
    value = chain_log.forward_backward_log(nodes, trans, tables, got, pairs, sums, work)
    assert value == pytest.approx(log_z, rel=1e-12, abs=atol)
    np.testing.assert_allclose(got, marginals, atol=atol)
    np.testing.assert_allclose(pairs, edges, atol=atol)
    np.testing.assert_allclose(sums, edges.sum(0), atol=atol)
    assert chain_log.log_partition_log(nodes, trans, work) == value


@settings(max_examples=400, deadline=None)
@given(chains())
def test_viterbi_finds_the_best_labeling(example):
    nodes, trans = example
    _, scores = enumerate_labelings(nodes, trans)
    labels = np.full(len(nodes), -1)
    work = chain_decode.decode_workspace(len(nodes), nodes.shape[1], nodes)
    score = chain_decode.viterbi(nodes, trans, labels, work)
    assert score == pytest.approx(scores.max(), abs=tolerance(nodes, trans))
    assert labels.min() >= 0
    assert chain_decode.path_score(nodes, trans, labels) == score or score == -INF


@settings(max_examples=300, deadline=None)
@given(chains(), st.integers(1, 20))
def test_top_k_lists_the_best_labelings_in_order(example, k):
    nodes, trans = example
    _, scores = enumerate_labelings(nodes, trans)
    feasible = np.sort(scores[scores > -INF])[::-1][:k]
    labels, got = np.full((k, len(nodes)), -1), np.full(k, np.nan)
    work = chain_decode.decode_workspace(*nodes.shape, nodes)
    count = chain_top_k.top_k_viterbi(nodes, trans, labels, got, work)
    assert count == len(feasible)
    atol = tolerance(nodes, trans)
    np.testing.assert_allclose(got[:count], feasible, atol=atol)
    assert np.all(np.diff(got[:count]) <= 0)
    assert len({tuple(row) for row in labels[:count]}) == count
    for row, score in zip(labels[:count], got[:count], strict=True):
        assert chain_decode.path_score(nodes, trans, row) == pytest.approx(score, abs=atol)


@settings(max_examples=50, deadline=None)
@given(chains(), st.integers(0, 2**32 - 1))
def test_samples_are_feasible_and_repeatable(example, seed):
    nodes, trans = example
    uniforms = np.random.default_rng(seed).random((20, len(nodes)))
    labels, again = np.empty((2, 20, len(nodes)), np.int64)
    log_z = chain_decode.sample(nodes, trans, uniforms, labels)
    chain_decode.sample(nodes, trans, uniforms, again)
    np.testing.assert_array_equal(labels, again)
    if log_z > -INF:
        assert all(chain_decode.path_score(nodes, trans, row) > -INF for row in labels)


@pytest.mark.parametrize("n_tables", [1, 3])
def test_samples_have_the_right_frequencies(n_tables):
    rng = np.random.default_rng(0)
    nodes, trans = rng.normal(size=(4, 3)), rng.normal(size=(n_tables, 3, 3))
    trans[0, 0, 1] = -INF
    n = 40_000
    labels = np.empty((n, 4), np.int64)
    chain_decode.sample(nodes, trans, rng.random((n, 4)), labels)
    every, scores = enumerate_labelings(nodes, trans)
    expected = np.exp(scores - logsumexp(scores))
    seen = np.array([np.mean((labels == row).all(1)) for row in every])
    assert np.all(np.abs(seen - expected) < 5 * np.sqrt(expected / n) + 1e-12)


@pytest.mark.parametrize("n_labels", [1, 2, 7, 8, 9, 16, 23, 45])
@pytest.mark.parametrize("forbidden", [0.0, 0.3])
def test_widths_around_the_vector_length_agree_with_the_log_domain(n_labels, forbidden):
    rng = np.random.default_rng(n_labels)
    nodes, trans = rng.normal(size=(30, n_labels)), rng.normal(size=(1, n_labels, n_labels))
    trans[0][(rng.random((n_labels, n_labels)) < forbidden) & ~np.eye(n_labels, dtype=bool)] = -INF
    log_z, marginals, edges, sums = run(nodes, trans, expectation=True, length=50)
    expected, pairs = np.empty_like(marginals), np.empty_like(edges)
    work = chain.workspace(30, n_labels, nodes)
    tables = chain.transition_tables(n_labels, nodes)
    value = chain_log.forward_backward_log(nodes, trans, tables, expected, pairs, sums[:0], work)
    assert log_z == pytest.approx(value, rel=1e-13)
    np.testing.assert_allclose(marginals, expected, atol=1e-13)
    np.testing.assert_allclose(edges, pairs, atol=1e-13)
    np.testing.assert_allclose(sums, pairs.sum(0), atol=1e-12)
    assert np.all(edges[:, np.isneginf(trans[0])] == 0)


@pytest.mark.parametrize("n_labels", [3, 9])
def test_neighboring_marginals_agree_on_a_chain_of_100_000_tokens(n_labels):
    rng = np.random.default_rng(0)
    nodes, trans = rng.normal(size=(100_000, n_labels)), rng.normal(size=(1, n_labels, n_labels))
    log_z, marginals, edges, _ = run(nodes, trans)
    assert log_z == pytest.approx(partition(nodes, trans), rel=1e-14)
    np.testing.assert_allclose(marginals.sum(1), 1, atol=1e-12)
    np.testing.assert_allclose(edges.sum(2), marginals[:-1], atol=1e-12)
    np.testing.assert_allclose(edges.sum(1), marginals[1:], atol=1e-12)


@pytest.mark.parametrize("drop", [50.0, 150.0, 300.0, 600.0])
def test_mass_that_vanishes_in_the_linear_domain_is_recovered(drop):
    """Label 1 starts so low that exp() loses it, but label 0 then falls lower, step by step."""
    length = int(1000 / drop) + 2
    nodes = np.zeros((length, 2))
    nodes[0, 1] = -800.0
    nodes[1:, 0] = -drop
    trans = np.array([[[0.0, -2000.0], [-2000.0, 0.0]]])
    log_z, marginals, edges, sums = run(nodes, trans, expectation=True)
    assert log_z == pytest.approx(-800.0, rel=1e-14)
    assert partition(nodes, trans) == pytest.approx(-800.0, rel=1e-14)
    np.testing.assert_allclose(marginals, [[0, 1]] * length, atol=1e-12)
    np.testing.assert_allclose(edges, [[[0, 0], [0, 1]]] * (length - 1), atol=1e-12)
    np.testing.assert_allclose(sums, [[0, 0], [0, length - 1]], atol=1e-12)


def test_a_long_chain_of_large_scores_loses_no_digits():
    rng = np.random.default_rng(1)
    nodes = rng.normal(size=(2000, 3)) * 1e5
    trans = rng.normal(size=(1, 3, 3)) * 1e5
    log_z, marginals, edges, _ = run(nodes, trans)
    labels = np.empty(2000, np.int64)
    best = chain_decode.viterbi(nodes, trans, labels, chain_decode.decode_workspace(2000, 3, nodes))
    assert log_z >= best - 1e-6
    assert log_z == pytest.approx(best, rel=1e-8)
    np.testing.assert_allclose(marginals.sum(1), 1, atol=1e-12)
    np.testing.assert_allclose(edges.sum(1), marginals[1:], atol=1e-9)


def test_nothing_feasible_is_minus_infinity_not_an_error():
    nodes = np.zeros((3, 2))
    trans = np.full((1, 2, 2), -INF)
    log_z, marginals, edges, sums = run(nodes, trans, expectation=True)
    assert log_z == -INF
    assert partition(nodes, trans) == -INF
    assert not marginals.any() and not edges.any() and not sums.any()
    labels = np.full(3, 7)
    work = chain_decode.decode_workspace(3, 2, nodes)
    assert chain_decode.viterbi(nodes, trans, labels, work) == -INF
    assert not labels.any()
    many, scores = np.empty((2, 3), np.int64), np.empty(2)
    assert chain_top_k.top_k_viterbi(nodes, trans, many, scores, work) == 0


@pytest.mark.parametrize("place", ["nodes", "trans"])
def test_nan_is_never_turned_into_a_number(place):
    nodes, trans = np.zeros((3, 2)), np.zeros((1, 2, 2))
    (nodes if place == "nodes" else trans)[0, 1] = np.nan
    assert np.isnan(run(nodes, trans)[0])
    assert np.isnan(partition(nodes, trans))


def test_equal_scores_give_uniform_marginals_and_all_labelings():
    nodes, trans = np.zeros((3, 2)), np.zeros((1, 2, 2))
    np.testing.assert_allclose(run(nodes, trans)[1], 0.5)
    labels, scores = np.empty((9, 3), np.int64), np.empty(9)
    work = chain_decode.decode_workspace(3, 2, nodes)
    assert chain_top_k.top_k_viterbi(nodes, trans, labels, scores, work) == 8
    assert len(np.unique(labels[:8], axis=0)) == 8


def batch(n_labels, shared, dtype=np.float64):
    rng = np.random.default_rng(5)
    lengths = np.array([3, 0, 1, 2, 6, 1, 0])
    offsets = np.concatenate([[0], np.cumsum(lengths)])
    n_edges = int(np.maximum(lengths - 1, 0).sum())
    nodes = rng.normal(size=(offsets[-1], n_labels)).astype(dtype)
    trans = rng.normal(size=(1 if shared else n_edges, n_labels, n_labels)).astype(dtype)
    starts = np.concatenate([[0], np.cumsum(np.maximum(lengths - 1, 0))])
    return nodes, offsets, trans, starts


@pytest.mark.parametrize("shared", [True, False])
@pytest.mark.parametrize("n_labels", [1, 3])
def test_batches_equal_single_chains_including_empty_ones(shared, n_labels):
    nodes, offsets, trans, starts = batch(n_labels, shared)
    n, n_edges = len(offsets) - 1, starts[-1]
    marginals, log_z, again = np.empty_like(nodes), np.empty(n), np.empty(n)
    edges = np.empty((n_edges, n_labels, n_labels))
    sums = np.zeros((n_labels, n_labels))
    chain.batch_forward_backward(nodes, offsets, trans, marginals, edges, sums, log_z)
    chain.batch_log_partition(nodes, offsets, trans, again)
    labels, scores = np.empty(len(nodes), np.int64), np.empty(n)
    chain_decode.batch_viterbi(nodes, offsets, trans, labels, scores)
    many, many_scores = np.empty((2, len(nodes)), np.int64), np.empty((n, 2))
    counts = np.empty(n, np.int64)
    chain_top_k.batch_top_k(nodes, offsets, trans, many, many_scores, counts)
    np.testing.assert_allclose(again, log_z, rtol=1e-14)
    for s in range(n):
        rows = slice(offsets[s], offsets[s + 1])
        if rows.start == rows.stop:
            assert (log_z[s], scores[s], counts[s], many_scores[s, 0]) == (0, 0, 1, 0)
            continue
        own = trans if shared else trans[starts[s] : starts[s + 1]]
        expected = reference(nodes[rows], own)
        assert log_z[s] == pytest.approx(expected[0])
        np.testing.assert_allclose(marginals[rows], expected[1], atol=1e-12)
        np.testing.assert_allclose(edges[starts[s] : starts[s + 1]], expected[2], atol=1e-12)
        ordered = np.sort(enumerate_labelings(nodes[rows], own)[1])[::-1]
        assert scores[s] == pytest.approx(ordered[0])
        np.testing.assert_allclose(many_scores[s, : counts[s]], ordered[: counts[s]])
        np.testing.assert_array_equal(many[0, rows], labels[rows])
    np.testing.assert_allclose(sums, edges.sum(0), atol=1e-12)


@pytest.mark.parametrize("size", [1.0, 1000.0])
def test_single_precision_compiles_and_is_right_to_its_digits(size):
    rng = np.random.default_rng(3)
    nodes = (rng.normal(size=(5, 3)) * size).astype(np.float32)
    trans = (rng.normal(size=(1, 3, 3)) * size).astype(np.float32)
    log_z, marginals, edges, _ = run(nodes, trans)
    expected = reference(nodes.astype(float), trans.astype(float))
    assert marginals.dtype == np.float32
    assert log_z == pytest.approx(expected[0], rel=1e-5)
    np.testing.assert_allclose(marginals, expected[1], atol=1e-5 * size)
    np.testing.assert_allclose(edges, expected[2], atol=1e-5 * size)
