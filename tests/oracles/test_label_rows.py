"""Rows over one graph of labels, all at once, against a list of all labelings of each."""

from __future__ import annotations

import numpy as np
import pytest

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


def test_graphs_of_small_tables_are_narrow():
    path = np.stack([np.arange(99), np.arange(1, 100)], axis=1)
    assert is_narrow(100, path) and is_narrow(100, path[:0])
    assert is_narrow(5, np.stack(np.triu_indices(5, 1), axis=1))
    assert not is_narrow(30, np.stack(np.triu_indices(30, 1), axis=1))
