"""Inference on rows of labels over one graph, with scores that nearly cancel, against a list."""

from __future__ import annotations

from itertools import product
from typing import Any

import numpy as np

from cliquewise.oracles.label_rows import LabelRows

from .drawing import Rng, number_near, pick
from .findings import Report, Trouble
from .objective import Long


def draw(rng: Rng) -> dict[str, Any]:
    """Rows and tables whose entries are multiples of a scale, and small differences."""
    n_labels, n_rows = int(rng.integers(1, 7)), int(rng.integers(1, 6))
    pairs = [[i, j] for j in range(n_labels) for i in range(j) if rng.random() < 0.5]
    scale = number_near(rng, 1e-2, 1e3, 0.0, 1e6)

    def scores(*shape: int) -> Any:
        multiples = scale * rng.integers(-2, 3, size=shape) * pick(rng, 0, 1, 1, 1)
        return np.round(multiples + rng.normal(size=shape), 3).tolist()

    return {
        "n_labels": n_labels,
        "pairs": pairs,
        "on": scores(n_rows, n_labels),
        "tables": scores(len(pairs), 4),
        "weights": rng.choice([0.0, 0.5, 1.0], n_rows).tolist(),
    }


def check(case: dict[str, Any]) -> Report:
    """Compare log Z, marginals, weighted sums and best sets of all rows."""
    n_labels = case["n_labels"]
    pairs = np.array(case["pairs"], dtype=np.int64).reshape(-1, 2)
    on = np.array(case["on"], dtype=float).reshape(-1, n_labels)
    tables = np.array(case["tables"], dtype=float).reshape(-1, 4)
    weights = np.array(case["weights"], dtype=float)
    rows = LabelRows(n_labels, pairs)
    log_z, marginals, sums = rows.marginals(on, tables, weights)
    best = rows.best(on, tables)
    every = np.array(list(product([0, 1], repeat=n_labels)))
    cells = 2 * every[:, pairs[:, 0]] + every[:, pairs[:, 1]]
    table_scores = tables.astype(Long)[np.arange(len(pairs)), cells].sum(axis=1)
    expected = np.zeros((len(pairs), 4))
    for i in range(len(on)):
        scores = every @ on[i].astype(Long) + table_scores
        size = np.abs(on[i]).sum() + np.abs(tables).sum()
        slack = 1e-9 + 1e-13 * float(size)
        true = scores.max() + np.log(np.exp(scores - scores.max()).sum())
        p = np.exp(scores - true)
        expected += weights[i] * np.stack([p @ (cells == c) for c in range(4)], axis=1).astype(
            float
        )
        if not abs(log_z[i] - true) <= slack:
            return Report(i, Trouble("a wrong log Z", f"row {i}: {log_z[i]!r}, not {true!r}"))
        if not np.all(np.abs(marginals[i] - p @ every) <= slack):
            return Report(
                i, Trouble("wrong marginals", f"row {i}: {marginals[i]}, not {p @ every}")
            )
        if scores[int("".join(map(str, best[i])), 2)] < scores.max() - slack:
            return Report(i, Trouble("a set that is not the best", f"row {i}: {best[i]}"))
    if not np.all(np.abs(sums - expected) <= 1e-8 + 1e-12 * float(np.abs(tables).sum())):
        return Report(len(on), Trouble("wrong sums of pairs", f"{sums}, not {expected}"))
    return Report(len(on))
