"""Rows over one graph of labels, all at once, against a list of all labelings of each."""

from __future__ import annotations

from itertools import product

import numpy as np
import pytest
from scipy.special import logsumexp

from cliquewise.graph.factor_graph import FactorGraph
from cliquewise.oracles.label_rows import LabelRows, is_narrow


@pytest.mark.parametrize("size", [1.0, 50.0, 600.0])  # the last is beyond any exponential
@pytest.mark.parametrize("density", [0.0, 0.4, 1.0])
def test_rows_together_have_the_marginals_and_best_sets_of_brute_force(size, density):
    rng = np.random.default_rng(int(size + 10 * density))
    for n_labels in (1, 3, 6):
        every = np.stack(np.triu_indices(n_labels, 1), axis=1)
        pairs = every[rng.random(len(every)) < density]
        on = size * rng.normal(size=(int(rng.integers(1, 40)), n_labels))
        tables, c = size * rng.normal(size=(len(pairs), 4)), rng.random(len(on))
        rows = LabelRows(n_labels, pairs)
        log_z, chances, sums = rows.marginals(on, tables, c)
        best, expected = rows.best(on, tables), np.zeros((len(pairs), 4))
        for i in range(len(on)):
            scores = np.concatenate([np.stack([0 * on[i], on[i]], axis=1).ravel(), tables.ravel()])
            graph = FactorGraph.from_structure(rows.structure, scores)
            true = graph.marginals("brute-force")
            assert log_z[i] == pytest.approx(true.log_z, rel=1e-12, abs=1e-9)
            np.testing.assert_allclose(chances[i], true.nodes.flat[1::2], atol=1e-9)
            expected += c[i] * true.factors.flat[2 * n_labels :].reshape(-1, 4)
            assert graph.score(best[i]) == pytest.approx(graph.map("brute-force").score)
        np.testing.assert_allclose(sums, expected, atol=1e-8)


def enumerated_marginals(on, pairs, tables):
    """Log Z, the marginals of labels, and those of pairs, from a list of all labelings."""
    n_labels = len(on)
    labelings = np.array(list(product([0, 1], repeat=n_labels)))
    cells = 2 * labelings[:, pairs[:, 0]] + labelings[:, pairs[:, 1]]
    scores = labelings @ on + tables[np.arange(len(pairs)), cells].sum(axis=1)
    log_z = logsumexp(scores)
    p = np.exp(scores - log_z)
    joint = np.stack([p @ (cells == cell) for cell in range(4)], axis=1)
    return log_z, p @ labelings, joint


def test_message_entry_that_underflows_but_decides_later_is_not_lost():
    pairs, on = np.array([[0, 1], [1, 2]]), np.array([[450.0, 450.0, 0.0]])
    tables = np.array([[0.0, 0.0, -450.0, 0.0], [0.0, 0.0, -800.0, -800.0]])
    log_z, marginals, sums = LabelRows(3, pairs).marginals(on, tables, np.ones(1))
    true_log_z, true_marginals, true_sums = enumerated_marginals(on[0], pairs, tables)
    assert true_log_z == pytest.approx(100 + np.log(2), rel=1e-14)
    assert log_z[0] == pytest.approx(true_log_z, rel=1e-14)
    np.testing.assert_allclose(marginals[0], true_marginals, atol=1e-12)
    np.testing.assert_allclose(sums, true_sums, atol=1e-12)


@pytest.mark.parametrize("scale", [30.0, 100.0, 300.0, 1000.0])
def test_rows_with_large_scores_of_opposite_signs_equal_enumeration(scale):
    rng = np.random.default_rng(int(scale))
    for _ in range(60):
        n_labels = int(rng.integers(2, 7))
        every = np.stack(np.triu_indices(n_labels, 1), axis=1)
        pairs = every[rng.random(len(every)) < 0.6]
        # Large scores that nearly cancel: what one table forbids another one makes up for.
        on = scale * rng.integers(-2, 3, size=(5, n_labels)) + rng.normal(size=(5, n_labels))
        tables = scale * rng.integers(-2, 3, size=(len(pairs), 4)) + rng.normal(
            size=(len(pairs), 4)
        )
        c = rng.random(5)
        log_z, marginals, sums = LabelRows(n_labels, pairs).marginals(on, tables, c)
        expected = np.zeros((len(pairs), 4))
        for i in range(5):
            true_log_z, true_marginals, joint = enumerated_marginals(on[i], pairs, tables)
            assert log_z[i] == pytest.approx(true_log_z, rel=1e-12, abs=1e-9)
            np.testing.assert_allclose(marginals[i], true_marginals, atol=1e-9)
            expected += c[i] * joint
        np.testing.assert_allclose(sums, expected, atol=1e-8)


def test_block_mixes_rows_done_with_products_and_with_logarithms():
    pairs = np.array([[0, 1], [1, 2]])
    tables = np.array([[0.0, 0.0, -450.0, 0.0], [0.0, 0.0, -800.0, -800.0]]) / 400
    on = np.tile([[0.3, -0.2, 0.1], [900.0, -900.0, 900.0]], (40, 1))
    c = np.linspace(0.5, 1.5, len(on))
    log_z, marginals, sums = LabelRows(3, pairs).marginals(on, tables, c)
    expected = np.zeros((2, 4))
    for i in range(len(on)):
        true_log_z, true_marginals, joint = enumerated_marginals(on[i], pairs, tables)
        assert log_z[i] == pytest.approx(true_log_z, rel=1e-12)
        np.testing.assert_allclose(marginals[i], true_marginals, atol=1e-12)
        expected += c[i] * joint
    np.testing.assert_allclose(sums, expected, atol=1e-10)


def test_graphs_of_small_tables_are_narrow():
    path = np.stack([np.arange(99), np.arange(1, 100)], axis=1)
    assert is_narrow(100, path) and is_narrow(100, path[:0])
    assert is_narrow(5, np.stack(np.triu_indices(5, 1), axis=1))
    assert not is_narrow(30, np.stack(np.triu_indices(30, 1), axis=1))
