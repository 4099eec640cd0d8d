"""PairwiseModel: scores are linear in the weights, and accumulate is the adjoint."""

from __future__ import annotations

import numpy as np
import pytest

from cliquewise.data.graphs import GraphDataset
from cliquewise.models.pairwise import PAIRWISE, PairwiseModel

CASES = [(p, i, e) for p in PAIRWISE for i in (True, False) for e in (0, 2)]


def example(
    pairwise: str, intercept: bool, edge_features: int
) -> tuple[PairwiseModel, GraphDataset]:
    """Two graphs over two node types, of which only tables take unequal numbers of labels."""
    rng = np.random.default_rng(len(pairwise) + 2 * intercept + edge_features)
    cards = [3, 3] if pairwise in ("symmetric", "potts") else [2, 3]
    graphs = []
    for n, edges in ((4, [(0, 1), (1, 2), (3, 0)]), (2, [(1, 0)])):
        on_edges = rng.standard_normal((len(edges), edge_features)) if edge_features else None
        types = rng.integers(0, 2, n)
        graphs.append((rng.standard_normal((n, 3)), edges, on_edges, types))
    data = GraphDataset.from_examples(graphs)
    return PairwiseModel(cards, 3, edge_features, pairwise, intercept), data


@pytest.mark.parametrize(("pairwise", "intercept", "edge_features"), CASES)
def test_accumulate_is_the_adjoint_of_potentials(pairwise, intercept, edge_features) -> None:
    model, data = example(pairwise, intercept, edge_features)
    rng = np.random.default_rng(0)
    w = rng.standard_normal(model.dimension)
    scores = model.potentials(w, data)
    mu, out = rng.random(len(scores)), np.ones(model.dimension)
    model.accumulate(mu, data, out)
    assert (out - 1.0) @ w == pytest.approx(scores @ mu)


@pytest.mark.parametrize(("pairwise", "intercept", "edge_features"), CASES)
def test_differences_of_scores_are_what_accumulate_adds_up(
    pairwise, intercept, edge_features
) -> None:
    model, data = example(pairwise, intercept, edge_features)
    rng = np.random.default_rng(1)
    w, cliques = rng.standard_normal(model.dimension), model.cliques(data)
    base = model.potentials(w, cliques)
    mu, gradient = rng.random(len(base)), np.zeros(model.dimension)
    model.accumulate(mu, cliques, gradient)
    for p in range(model.dimension):
        moved = w.copy()
        moved[p] += 0.5
        slope = (model.potentials(moved, cliques) - base) @ mu / 0.5
        assert slope == pytest.approx(gradient[p], abs=1e-9)


@pytest.mark.parametrize(("pairwise", "intercept", "edge_features"), CASES)
def test_scores_are_those_of_features_times_the_tables_of_the_weights(
    pairwise, intercept, edge_features
) -> None:
    """The layout said again, plainly: one table of weights per type and feature."""
    model, data = example(pairwise, intercept, edge_features)
    w = np.random.default_rng(2).standard_normal(model.dimension)
    expected = []
    x = np.asarray(data.features.todense())
    x = np.hstack([x, np.ones((len(x), 1))]) if intercept else x
    for v, t in enumerate(data.node_types.tolist()):
        expected.append(x[v] @ model.unary(w, t))
    _, types = model.oriented(data)
    for e in range(data.n_edges):
        z = np.ones(1)
        if edge_features:
            z = np.asarray(data.edge_features.todense())[e]
            z = np.append(z, 1.0) if intercept else z
        tables = model.tables(w, int(types[e]) - model.n_node_types)
        expected.append(np.tensordot(z, tables, 1).ravel())
    np.testing.assert_allclose(model.potentials(w, data), np.concatenate(expected))
