"""Report sections for classes, nodes of graphs, label sets, matchings and candidates."""

from __future__ import annotations

from typing import Any

import numpy as np

from cliquewise.data.node_labels import flat_labels
from cliquewise.errors import DataError
from cliquewise.estimators._inputs import listed
from cliquewise.estimators._report_labels import (
    feature_names,
    figure,
    label_confusion,
    label_table,
    measures_table,
    reliability,
    token_shares,
    weight_bars,
)
from cliquewise.estimators._report_measures import bootstrap, ratios
from cliquewise.metrics import pair_f1
from cliquewise.ragged import Ints
from cliquewise.report import blocks
from cliquewise.report.blocks import Block

#: At most this number of labels is listed with weights.
MOST_GROUPS = 200
#: Number of ranks of the true candidate that are listed.
RANKS = 10


def _labeled(truth: list[Any], own: list[Any], classes: list[Any]) -> tuple[Ints, Ints, list[str]]:
    """Return the numbers of true and predicted labels, and all names."""
    known = {c: i for i, c in enumerate(classes)}
    for label in truth:
        known.setdefault(label, len(known))
    gold, given = (np.array([known[c] for c in labels], np.int64) for labels in (truth, own))
    return gold, given, [str(c) for c in known]


def class_sections(classifier: Any, X: Any, y: Any) -> list[Block]:
    """Return the sections of a MulticlassClassifier."""
    truth, classes = np.asarray(y).tolist(), classifier.classes_.tolist()
    own = classifier.predict(X).tolist()
    if len(truth) != len(own) or not own:
        raise DataError(f"X has {len(own)} rows and y {len(truth)}; a report needs some of both")
    gold, given, names = _labeled(truth, own, classes)
    wrong, n = gold != given, len(own)
    shares = token_shares(wrong, np.ones(n), np.arange(n), n)
    figures = [figure("accuracy", *shares[0]), ("rows", f"{n:,}", f"{len(names)} classes")]
    has_probabilities = classifier.loss == "log"
    weights = zip(map(str, classes), classifier.coef_)
    groups = [(name, [*w, b]) for (name, w), b in zip(weights, classifier.intercept_)]
    columns = feature_names(classifier, "(intercept)")
    return [
        blocks.section(
            "scores",
            "Scores",
            [blocks.figures(figures), label_table("Rows by class", gold, given, names)],
        ),
        blocks.section("confusion", "Confusions", [label_confusion("Rows", gold, given, names)]),
        *(
            [_calibration("Rows", classifier.predict_proba(X).max(axis=1), ~wrong)]
            if has_probabilities
            else []
        ),
        blocks.section(
            "model",
            "The model",
            [weight_bars("Largest weights of a class", groups[:MOST_GROUPS], columns)],
        ),
    ]


def _calibration(what: str, p: Any, right: Any) -> Block:
    """Return the section with the reliability diagram."""
    return blocks.section("calibration", "Calibration", [reliability(what, p, right)])


def node_sections(labeler: Any, X: Any, y: Any) -> list[Block]:
    """Return the sections of a GraphLabeler."""
    data = labeler._new_data(X)
    flat, labeled = flat_labels(listed(y, "y"), data, labeler.ignore_label)
    truth = flat[labeled].tolist()
    if not truth:
        raise DataError("no node has a label: a report needs some")
    own = np.concatenate(labeler.predict(data))[labeled].tolist()
    classes = list(dict.fromkeys(c for labels in labeler.labels_ for c in labels.classes))
    gold, given, names = _labeled(truth, own, classes)
    wrong, n = gold != given, len(data)
    owner = np.repeat(np.arange(n), np.diff(data.node_offsets))[labeled]
    shares = token_shares(wrong, np.ones(len(own)), owner, n)
    words = ("node accuracy", "graph accuracy")
    figures = [figure(name, *share) for name, share in zip(words, shares, strict=True)]
    figures.append(("graphs", f"{n:,}", f"{len(own):,} nodes"))
    out = [
        blocks.section(
            "scores",
            "Scores",
            [blocks.figures(figures), label_table("Nodes by label", gold, given, names)],
        ),
        blocks.section("confusion", "Confusions", [label_confusion("Nodes", gold, given, names)]),
    ]
    if labeler.loss != "hinge":
        found = labeler.marginals(data)
        rows = np.array([row for part in found for row in part.probabilities], dtype=object)
        types = data.node_types[labeled]
        numbers = [labeler.labels_[t].encode([[c]], [0, 1])[0][0] for c, t in zip(own, types)]
        p = [float(row[i]) for row, i in zip(rows[labeled], numbers, strict=True)]
        inexact = sum(not part.exact for part in found)
        note = f"Approximate for {inexact} of {n} graphs." if inexact else ""
        out.append(
            blocks.section("calibration", "Calibration", [reliability("Nodes", p, ~wrong)], note)
        )
    out.append(blocks.section("model", "The model", _graph_model(labeler)))
    return out


def _graph_model(labeler: Any) -> list[Block]:
    more = ("(intercept)",) if labeler.model_.intercept else ()
    names = feature_names(labeler, *more)
    out = []
    for t, labels in enumerate(labeler.labels_):
        weights = labeler.unary(t)
        groups = [(str(c), weights[:, i]) for i, c in enumerate(labels.classes)]
        what = "a label" if len(labeler.labels_) == 1 else f"a label of type {t}"
        out.append(weight_bars(f"Largest node weights of {what}", groups[:MOST_GROUPS], names))
    if len(labeler.labels_) == 1 and len(labeler.labels_[0]) <= 40:
        shown = [str(c) for c in labeler.labels_[0].classes]
        table = np.round(labeler.tables(0)[-1], 4).tolist()
        caption = "Edge weights: labels of the two ends" + (
            " (of the constant feature)" if labeler.model_.n_edge_features else ""
        )
        out.append(blocks.heatmap(caption, shown, shown, table, axes=("one", "other"), signed=True))
    return out


def set_sections(classifier: Any, X: Any, y: Any) -> list[Block]:
    """Return the sections of a MultiLabelClassifier."""
    labels = classifier._label_sets
    truth, own = (np.asarray(labels.matrix(v)) for v in (y, classifier.predict(X)))
    if truth.shape != own.shape or not len(own):
        raise DataError(f"X has {len(own)} rows and y {len(truth)}; a report needs some of both")
    names = [str(c) for c in classifier.label_names_ or range(classifier.n_labels_)]
    counts = np.stack([truth.sum(axis=0), own.sum(axis=0), (truth & own).sum(axis=0)], axis=1)
    rows = np.stack([truth.sum(axis=1), own.sum(axis=1), (truth & own).sum(axis=1)], axis=1)
    drawn = bootstrap(rows)
    exact = (truth == own).all(axis=1)
    owner = np.repeat(np.arange(len(own)), own.shape[1])
    shares = token_shares((truth != own).ravel(), np.ones(own.size), owner, len(own))
    figures = [
        figure("F1 of all labels", ratios(counts.sum(axis=0))[2], ratios(drawn)[2]),
        figure("label accuracy", *shares[0]),
        figure("set accuracy", float(exact.mean()), shares[1][1]),
        ("rows", f"{len(own):,}", f"{len(names):,} labels"),
    ]
    blocks_of = [blocks.figures(figures), measures_table("Labels", names, counts)]
    out = [blocks.section("scores", "Scores", blocks_of)]
    if classifier.loss != "hinge":
        chances = classifier.predict_proba(X)
        what = reliability("Labels of rows", chances.ravel(), (truth == 1).ravel())
        out.append(blocks.section("calibration", "Calibration", [what]))
    return [*out, blocks.section("model", "The model", _set_model(classifier, names))]


def _set_model(classifier: Any, names: list[str]) -> list[Block]:
    more = ("(intercept)",) if classifier.model_.intercept else ()
    columns = feature_names(classifier, *more)
    weights = [classifier.unary(c) for c in range(min(len(names), MOST_GROUPS))]
    groups = [(name, w[:, 1] - w[:, 0]) for name, w in zip(names, weights)]
    out = [weight_bars("Largest weights of a label", groups, columns)]
    pairs = classifier.model_.pair_list.tolist()
    if pairs:
        tables = [classifier.table(i, j) for i, j in pairs]
        ties = [t[0, 0] + t[1, 1] - t[0, 1] - t[1, 0] for t in tables]
        words = [f"{names[i]} and {names[j]}" for i, j in pairs]
        out.append(
            weight_bars(
                "Interactions of labels (negative: they exclude each other)", [("all", ties)], words
            )
        )
    selection = classifier.selection_
    if selection.description:
        out.append(blocks.text(selection.description))
    return out


def matching_sections(matcher: Any, X: Any, y: Any) -> list[Block]:
    """Return the sections of a Matcher."""
    own = matcher.predict(X)
    truth = matcher._true_columns(X, y)
    if not own:
        raise DataError("there are no examples: a report needs some")
    counts = np.array(
        [
            [np.sum(a >= 0), np.sum(b >= 0), np.sum((a == b) & (a >= 0))]
            for a, b in zip(truth, own, strict=True)
        ]
    )
    exact = np.array([np.array_equal(a, b) for a, b in zip(truth, own, strict=True)], dtype=float)
    drawn, all_right = bootstrap(counts), bootstrap(exact[:, None])[:, 0] / len(own)
    figures = [
        figure("F1 of pairs", pair_f1(truth, own), ratios(drawn)[2]),
        figure("precision", ratios(counts.sum(axis=0))[0], ratios(drawn)[0]),
        figure("recall", ratios(counts.sum(axis=0))[1], ratios(drawn)[1]),
        figure("matching accuracy", exact.mean(), all_right),
        ("examples", f"{len(own):,}", f"{int(counts[:, 0].sum()):,} true pairs"),
    ]
    more = ("(intercept)",) if matcher.model_.intercept else ()
    bars = weight_bars("Weights", [("all", matcher.coef_)], feature_names(matcher, *more))
    return [
        blocks.section("scores", "Scores", [blocks.figures(figures)]),
        blocks.section("model", "The model", [bars]),
    ]


def candidate_sections(ranker: Any, X: Any, y: Any) -> list[Block]:
    """Return the sections of a CandidateRanker."""
    scores = ranker.decision_function(X)
    truth = [int(np.argmin(t)) if np.ndim(t) else int(t) for t in y]
    if len(truth) != len(scores) or not truth:
        raise DataError(
            f"X has {len(scores)} examples and y {len(truth)}; a report needs some of both"
        )
    bad = [i for i, (s, t) in enumerate(zip(scores, truth)) if not 0 <= t < len(s)]
    if bad:
        raise DataError(f"example {bad[0]} has no candidate {truth[bad[0]]}")
    ranks = np.array([1 + int(np.sum(s > s[t])) for s, t in zip(scores, truth)])
    own = ranker.predict(X)
    right = own == np.array(truth)
    shares = bootstrap(np.stack([right, 1 / ranks], axis=1)) / len(right)
    figures = [
        figure("accuracy", right.mean(), shares[:, 0]),
        figure("mean reciprocal rank", np.mean(1 / ranks), shares[:, 1]),
        ("examples", f"{len(right):,}", f"{sum(map(len, scores)):,} candidates"),
    ]
    if np.ndim(y[0]):
        cost = np.mean([t[c] for t, c in zip(y, own, strict=True)])
        figures.insert(1, ("mean cost", f"{cost:.4g}", "of the chosen candidates"))
    rows = [
        [str(r), int(np.sum(ranks == r)), float(np.round(np.mean(ranks <= r), 4))]
        for r in range(1, 1 + min(RANKS, max(map(len, scores))))
    ]
    columns = [
        ("rank of the true candidate", "text"),
        ("examples", "count"),
        ("cumulative", "share"),
    ]
    out = [
        blocks.section(
            "scores",
            "Scores",
            [
                blocks.figures(figures),
                blocks.table("Rank of the true candidate", columns, rows),
            ],
        )
    ]
    if ranker.loss == "log":
        chances = [float(p.max()) for p in ranker.predict_proba(X)]
        out.append(
            blocks.section("calibration", "Calibration", [reliability("Choices", chances, right)])
        )
    bars = weight_bars("Weights", [("all", ranker.coef_)], feature_names(ranker))
    return [*out, blocks.section("model", "The model", [bars])]
