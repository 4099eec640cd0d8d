"""Factors of three nodes as nodes of their own: the same best labelings, and something to learn."""

from __future__ import annotations

from itertools import product

import numpy as np
import pytest

import cliquewise as cw
from cliquewise.data.factors import with_factors
from cliquewise.data.graphs import GraphDataset
from cliquewise.errors import DataError
from cliquewise.graph.factor_graph import FactorGraph
from cliquewise.models.pairwise import PairwiseModel


def test_hand_made_weights_have_the_best_labelings_of_the_factors_themselves():
    for seed in range(6):
        rng = np.random.default_rng(seed)
        n, k, strong = 5, 2, 50.0
        x, table = rng.normal(size=(n, k)), rng.normal(size=(k, k, k))
        scopes = [tuple(rng.choice(n, 3, replace=False).tolist()) for _ in range(3)]
        want = FactorGraph([k] * n, [*(((v,), x[v]) for v in range(n)),
                                     *((s, table) for s in scopes)]).map("brute-force")  # fmt: skip
        graphs, _ = with_factors([(x, [])], None, [scopes])
        g = graphs[0]
        data = GraphDataset.from_examples(
            [(g["features"], g["edges"], g["edge_features"], g["types"])]
        )
        model = PairwiseModel([k, k**3], k, 3, intercept=False)
        w = np.zeros(model.dimension)
        model.unary(w, 0)[:] = np.eye(k)
        ties = w[model.layout["base"][3] :][: 3 * k * k**3].reshape(3, k, k**3)
        for c, config in enumerate(product(range(k), repeat=3)):
            for place, state in enumerate(config):
                # The table is paid on the first edge: a state of the factor's node has no feature.
                ties[place, state, c] = strong + (table[config] if place == 0 else 0.0)
        graph = FactorGraph.from_structure(model.structures(data)[0], model.potentials(w, data))
        found = graph.map("brute-force" if n + 3 < 6 else "junction-tree")
        assert found.labels[:n].tolist() == want.labels.tolist()
        assert found.score - 9 * strong == pytest.approx(want.score)


def test_parities_of_three_are_learned_with_factors_and_not_with_pairs():
    rng = np.random.default_rng(0)
    X, y, scopes = [], [], []
    for _ in range(60):
        a, b = rng.integers(0, 2, 2)
        labels = np.array([a, b, a ^ b])
        seen = np.where(np.arange(3) < 2, 3.0, 0.0)  # nothing is seen of the third
        X.append((((2 * labels - 1) * seen + 0.3 * rng.normal(size=3))[:, None],
                  [(0, 1), (1, 2), (0, 2)]))  # fmt: skip
        y.append(labels)
        scopes.append([(0, 1, 2)])
    graphs, labels = with_factors(X, y, scopes)
    with_triples = cw.GraphLabeler(C=10.0, solver="relaxed_lbfgs", random_state=0)
    found = with_triples.fit(graphs, labels).predict(graphs)
    right = np.mean([list(f[:3]) == own[:3] for f, own in zip(found, labels, strict=True)])
    pairs = cw.GraphLabeler(C=10.0, solver="relaxed_lbfgs", random_state=0).fit(X, y)
    alone = np.mean([(p == t).all() for p, t in zip(pairs.predict(X), y, strict=True)])
    assert right > 0.95 and alone < 0.8
    assert with_triples.certificate_.gap < 1e-2


def test_what_does_not_fit_is_said():
    x = (np.zeros((3, 1)), [(0, 1)])
    with pytest.raises(DataError, match="same number"):
        with_factors([x], None, [[(0, 1, 2), (0, 1)]])
    with pytest.raises(DataError, match="names a node"):
        with_factors([x], None, [[(0, 1, 3)]])
    with pytest.raises(DataError, match="one is needed"):
        with_factors([x], None, [])
