"""Report blocks about labels, shared by several kinds of models."""

from __future__ import annotations

from typing import Any

import numpy as np

from cliquewise.estimators._report_measures import bootstrap, calibration, interval, ratios
from cliquewise.ragged import Floats, Ints
from cliquewise.report import blocks
from cliquewise.report.blocks import Block

#: Largest number of labels in a matrix; others with fewer errors (or weights) are left out.
MOST_LABELS = 40
#: Number of weights in a list.
MOST_WEIGHTS = 20


def figure(name: str, value: Any, draws: Any) -> tuple[str, str, str]:
    """Return a headline figure: a share with its bootstrap interval."""
    v, low, high = interval(float(value), np.asarray(draws))
    return name, f"{100 * v:.2f} %", f"{100 * low:.2f} to {100 * high:.2f}"


def token_shares(wrong: Any, known: Any, owner: Ints, n: int) -> list[tuple[float, Floats]]:
    """Return token and example accuracy, each with its bootstrap samples."""
    bad, counted = np.bincount(owner, wrong, n), np.bincount(owner, known, n)
    draws = bootstrap(np.stack([bad, counted, bad == 0, np.ones(n)], axis=1))
    return [
        (1 - bad.sum() / max(counted.sum(), 1), 1 - draws[:, 0] / np.maximum(draws[:, 1], 1)),
        (float(np.mean(bad == 0)), draws[:, 2] / draws[:, 3]),
    ]


def label_table(caption: str, gold: Ints, own: Ints, names: list[str]) -> Block:
    """Return a table of precision, recall and F1 of every label that occurs."""
    k = len(names)
    true, given = np.bincount(gold, minlength=k), np.bincount(own, minlength=k)
    right = np.bincount(own[own == gold], minlength=k)
    return measures_table(caption, names, np.stack([true, given, right], axis=1))


def measures_table(caption: str, names: list[str], counts: Ints) -> Block:
    """Return the table for (labels, 3) counts of true, predicted and correct labels."""
    measures = np.round(ratios(counts), 4)
    rows = [
        [names[c], *measures[:, c].tolist(), int(counts[c, 0]), int(counts[c, 1])]
        for c in range(len(names))
        if counts[c].any()
    ]
    columns = [("label", "text"), ("precision", "share"), ("recall", "share"), ("F1", "share")]
    return blocks.table(caption, [*columns, ("true", "count"), ("predicted", "count")], rows)


def label_confusion(what: str, gold: Ints, own: Ints, names: list[str]) -> Block:
    """Return the confusion matrix, limited to the labels with the most errors."""
    k = len(names)
    matrix = np.bincount(gold * k + own, minlength=k * k).reshape(k, k)
    used, note = confused_labels(matrix)
    caption = f"{what}: true and predicted label{note}"
    shown = [names[c] for c in used]
    cells = matrix[np.ix_(used, used)].tolist()
    return blocks.heatmap(caption, shown, shown, cells, axes=("true", "predicted"), share=True)


def confused_labels(matrix: Ints) -> tuple[Ints, str]:
    """Return the labels that a confusion matrix shows, and a note if some are left out."""
    used = np.flatnonzero(matrix.sum(axis=0) + matrix.sum(axis=1))
    if len(used) <= MOST_LABELS:
        return used, ""
    errors = matrix - np.diag(np.diag(matrix))
    worst = np.argsort(-(errors.sum(axis=0) + errors.sum(axis=1)), kind="stable")[:MOST_LABELS]
    return np.sort(worst), f" (the {MOST_LABELS} of {len(used)} labels with the most errors)"


def shown_transitions(tagger: Any) -> tuple[Ints, Floats, str]:
    """Return the labels and weights of a transition matrix, and a note if labels are left out.

    Forbidden transitions are NaN.
    """
    model = tagger.model_
    weights = model.transitions(tagger.coef_)
    allowed = model.edge_allowed if len(model.edge_allowed) else np.ones_like(model.edge_free)
    used, note = np.arange(model.n_labels), ""
    if model.n_labels > MOST_LABELS:
        strength = np.abs(np.where(allowed, weights, 0.0))
        order = np.argsort(-(strength.max(axis=0) + strength.max(axis=1)), kind="stable")
        used = np.sort(order[:MOST_LABELS])
        note = f" ({MOST_LABELS} of {model.n_labels} labels, those with the largest weights)"
    return used, np.where(allowed, weights, np.nan)[np.ix_(used, used)], note


def reliability(what: str, probability: Any, right: Any) -> Block:
    """Return a reliability diagram."""
    bins, error = calibration(np.asarray(probability, dtype=np.float64), np.asarray(right))
    return blocks.reliability(what, bins, error, len(right))


def weight_bars(caption: str, groups: list[tuple[str, Any]], names: list[str]) -> Block:
    """Return bars of the largest weights of each group (a label)."""
    out = []
    for label, weights in groups:
        w = np.asarray(weights, dtype=np.float64)
        best = np.argsort(-np.abs(w), kind="stable")[:MOST_WEIGHTS]
        out.append((label, [(names[i], float(w[i])) for i in best if w[i]]))
    return blocks.bars(caption, out)


def feature_names(estimator: Any, *more: str) -> list[str]:
    """Return the names of the columns of X, followed by ``more``."""
    named = getattr(estimator, "feature_names_in_", None)
    n = estimator.n_features_in_
    return [*([f"x{i}" for i in range(n)] if named is None else map(str, named)), *more]
