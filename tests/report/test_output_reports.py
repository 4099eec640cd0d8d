"""Reports of models whose outputs are no sequences: their figures are those of score()."""

from __future__ import annotations

import numpy as np
import pytest
from test_tagger_report import block_of, data_of

import cliquewise as cw

RNG = np.random.default_rng(0)
ROWS = RNG.normal(size=(40, 3))
SETS = (ROWS @ RNG.normal(size=(3, 4)) > 0).astype(int)
GRAPHS = [(RNG.normal(size=(4, 2)), [(0, 1), (1, 2), (2, 3)]) for _ in range(6)]
NODES = [np.where(x[:, 0] > 0, "up", "down").tolist() for x, _ in GRAPHS]
PAIRS = [RNG.normal(size=(3, 4, 2)) for _ in range(6)]
LISTS = [RNG.normal(size=(5, 2)) for _ in range(8)]
QUICK = {"tol": 0.1, "random_state": 0}

CASES = {
    "classes": (cw.MulticlassClassifier(**QUICK), ROWS, np.where(SETS[:, 0], "yes", "no"), 0),
    "nodes": (cw.GraphLabeler(**QUICK), GRAPHS, NODES, 0),
    "svm": (cw.GraphLabeler("hinge", **QUICK), GRAPHS, NODES, 0),
    "sets": (cw.MultiLabelClassifier(C=1.0, label_graph="tree", **QUICK), ROWS, SETS, 2),
    "named sets": (
        cw.MultiLabelClassifier(C=1.0, label_graph="none", **QUICK),
        ROWS,
        [[f"<b>{j}" for j in np.flatnonzero(row)] for row in SETS],
        2,
    ),
    "matchings": (
        cw.Matcher(**QUICK),
        PAIRS,
        [[int(x[0, :, 0].argmax()), -1, -1] for x in PAIRS],
        0,
    ),
    "candidates": (
        cw.CandidateRanker("log", **QUICK),
        LISTS,
        [int(x[:, 0].argmax()) for x in LISTS],
        0,
    ),
}


@pytest.mark.parametrize("name", CASES)
def test_report_figures_match_score(name, tmp_path):
    estimator, X, y, at = CASES[name]
    estimator.fit(X, y).report(X, y, tmp_path / "r.html")
    page = data_of(tmp_path / "r.html")
    shown = block_of(page, "scores", "figures")["items"][at][1]
    assert float(shown.removesuffix(" %")) == pytest.approx(100 * estimator.score(X, y), abs=0.006)
    assert block_of(page, "proof", "badge")["facts"][0][0] == "objective of this model"
    weights = block_of(page, "model", "bars")["groups"]
    assert all(np.isfinite(w) for _, items in weights for _, w in items)


def test_costs_of_candidates_are_reported(tmp_path):
    costs = [1 - x[:, 0] / 5 for x in LISTS]
    ranker = cw.CandidateRanker(**QUICK).fit(LISTS, costs)
    ranker.report(LISTS, costs, tmp_path / "r.html")
    items = block_of(data_of(tmp_path / "r.html"), "scores", "figures")["items"]
    assert float(items[1][1]) == pytest.approx(-ranker.score(LISTS, costs), rel=1e-3)
