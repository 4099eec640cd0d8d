"""The report of a tagger: scores, confusions, calibration, every sentence, the model."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from cliquewise.estimators._report_labels import (
    figure,
    label_confusion,
    label_table,
    shown_transitions,
    token_shares,
)
from cliquewise.estimators._report_measures import (
    BOTH,
    CORRECT,
    KINDS,
    Spans,
    bootstrap,
    calibration,
    interval,
    ratios,
    span_counts,
)
from cliquewise.estimators.tagger.live_page import live_block
from cliquewise.estimators.tagger.report_reasons import Reasons, labelings, reasons
from cliquewise.estimators.tagger.tagged_text import TaggedText
from cliquewise.ragged import Floats, Ints
from cliquewise.report import blocks
from cliquewise.report.blocks import Block
from cliquewise.report.page import numbers

if TYPE_CHECKING:
    from cliquewise.estimators.tagger.sequence_tagger import SequenceTagger

#: Features of each label in the section about the model.
LARGEST = 15

# ---- sections


def tagger_sections(
    tagger: SequenceTagger, X: Any, y: Any, tokens: Any = None, live: bool = False
) -> list[Block]:
    """Return the sections about a tagger and its predictions on labeled sentences."""
    own = [blocks.section("try", "Try it", [live_block(tagger.chain_)])] if live else []
    text = TaggedText(tagger.chain_, X, y, tokens)
    found = reasons(text)
    return [
        blocks.section("sentences", "Sentences", [sentences_block(text, found)]),
        blocks.section("scores", "Scores", _scores(text)),
        blocks.section("confusion", "Confusions", _confusions(text)),
        blocks.section("calibration", "Calibration", _calibrations(text)),
        *own,
        blocks.section("model", "The model", _model(tagger)),
    ]


def _scores(text: TaggedText) -> list[Block]:
    sequence = np.repeat(np.arange(len(text.offsets) - 1), np.diff(text.offsets))
    shares = token_shares(text.is_wrong, text.is_known, sequence, len(text.offsets) - 1)
    names = ("token accuracy", "sentence accuracy")
    items = [figure(name, *share) for name, share in zip(names, shares, strict=True)]
    counts = None if text.spans is None else span_counts(text.spans, text.offsets)
    if counts is not None and len(counts[0]):
        totals, drawn = counts.sum(axis=(0, 1)), bootstrap(counts.sum(axis=1))
        items.insert(0, figure("span F1", ratios(totals)[2], ratios(drawn)[2]))
    items.append(("sentences", f"{len(text.offsets) - 1:,}", f"{len(text.own):,} tokens"))
    out = [blocks.figures(items)]
    if counts is not None and len(counts[0]):
        out.append(_span_table(text, counts))
    known = text.is_known
    out.append(label_table("Tokens by label", text.gold[known], text.own[known], text.names))
    return out


def _span_table(text: TaggedText, counts: Ints) -> Block:
    assert text.spans is not None
    draws = bootstrap(counts)
    rows = []
    order = np.argsort(text.spans.types)
    whole = [("all", counts.sum(axis=(0, 1)), draws.sum(axis=1))]
    each = [(text.spans.types[t], counts[:, t].sum(axis=0), draws[:, t]) for t in order]
    for name, own, drawn in each + whole:
        measures = [interval(float(v), d) for v, d in zip(ratios(own), ratios(drawn), strict=True)]
        rows.append([name, *measures, *map(int, own)])
    columns = [("type", "text"), ("precision", "share"), ("recall", "share"), ("F1", "share")]
    columns += [("gold", "count"), ("predicted", "count"), ("correct", "count")]
    return blocks.table(
        "Spans by type, with 95 % intervals (1,000 bootstrap samples of sentences)", columns, rows
    )


def _confusions(text: TaggedText) -> list[Block]:
    known = text.is_known
    out = [label_confusion("Tokens", text.gold[known], text.own[known], text.names)]
    if text.spans is not None and text.spans.types:
        out += _span_confusions(text.spans)
    return out


def _span_confusions(spans: Spans) -> list[Block]:
    k = len(spans.types)
    table = np.zeros((k + 1, k + 1), dtype=np.int64)
    a, b = spans.pairs.T
    rows = np.where(a < 0, k, spans.true[:, 2][a] if len(spans.true) else k)
    columns = np.where(b < 0, k, spans.own[:, 2][b] if len(spans.own) else k)
    np.add.at(table, (rows, columns), 1)
    kinds = np.bincount(spans.true[:, 3], minlength=len(KINDS))
    kinds[len(KINDS) - 1] = int(np.sum(a < 0))
    order = [*np.argsort(spans.types).tolist(), k]
    names = [*spans.types, ""]
    shown = table[np.ix_(order, order)].tolist()
    shown[-1][-1] = None
    explained = (
        "first and last token and type agree",
        "the tokens agree, but not the type",
        "the type agrees, but not the first or the last token",
        "overlaps a gold span, but neither the type nor the ends agree",
        "a gold span that no predicted span overlaps",
        "a predicted span that overlaps no gold span",
    )
    n = max(int(kinds.sum()), 1)
    listed = [
        [KINDS[i], int(kinds[i]), round(int(kinds[i]) / n, 4), explained[i]]
        for i in range(len(KINDS))
    ]
    return [
        blocks.heatmap(
            "Spans: gold type and predicted type",
            [names[i] or "(spurious)" for i in order],
            [names[i] or "(missed)" for i in order],
            shown,
            axes=("gold", "predicted"),
            share=True,
        ),
        blocks.table(
            "Kinds of errors",
            [("kind", "text"), ("spans", "count"), ("share", "share"), ("meaning", "prose")],
            listed,
        ),
    ]


def _calibrations(text: TaggedText) -> list[Block]:
    if not text.has_probabilities:
        return [blocks.text("The model has scores but no probabilities, because of its loss.")]
    known = text.is_known
    bins, error = calibration(text.probability[known], ~text.is_wrong[known])
    out = [blocks.reliability("Tokens", bins, error, int(known.sum()))]
    if text.spans is not None and len(text.spans.own):
        at = np.isfinite(text.span_probability)
        bins, error = calibration(text.span_probability[at], text.spans.own[at, 3] == CORRECT)
        out.append(blocks.reliability("Predicted spans", bins, error, int(at.sum())))
    return out


def _model(tagger: SequenceTagger) -> list[Block]:
    model, w = tagger.model_, tagger.coef_
    largest = tagger.top_features(n=LARGEST)
    names = [str(c) for c in tagger.classes_]
    counts = {
        "epochs": tagger.n_iter_,
        "labels": model.n_labels,
        "attributes": model.n_attributes,
        "weights": int(w.size),
        "weights that are not zero": int(np.count_nonzero(w)),
    }
    facts = [["loss", tagger.loss], ["C", f"{tagger.C_:g}"], ["solver", tagger.solver_]]
    facts += [[name, f"{count:,}"] for name, count in counts.items()]
    out = [blocks.table("Model summary", [("property", "text"), ("value", "text")], facts)]
    if tagger.C == "auto":
        out.append(_c_path(tagger))
    groups = [(str(label), items) for label, items in largest.items()]
    out.append(blocks.bars("Largest weights of a label", groups))
    used, weights, note = shown_transitions(tagger)
    shown = [names[c] for c in used]
    caption = f"Transition weights, from a label to the next{note}"
    cells = numbers(weights, 3)
    out.append(blocks.heatmap(caption, shown, shown, cells, axes=("from", "to"), signed=True))
    n_forbidden = int(np.sum(~model.edge_allowed))
    if n_forbidden:
        out.append(blocks.text(f"{n_forbidden:,} transitions are forbidden (crossed out above)."))
    return out


def _c_path(tagger: SequenceTagger) -> Block:
    """Return the table of the values of C that were compared."""
    columns = [("C", "text"), ("score", "share"), ("within one standard error", "text")]
    columns += [("relative gap", "text"), ("nonzero weights", "count")]
    best = max(point.score for point in tagger.C_path_)
    rows = [
        [
            f"{p.C:g}",
            round(p.score, 4),
            "yes" if best - p.score <= p.difference_error else "no",
            f"{p.gap:.2g}",
            p.n_nonzero,
        ]
        for p in tagger.C_path_
    ]
    return blocks.table(f"Choice of C = {tagger.C_:g} on held-out sentences", columns, rows)


# ---- the sentences


def sentences_block(text: TaggedText, found: Reasons) -> Block:
    """Return all sentences as flat lists of numbers, which index lists of strings."""
    index: dict[str, int] = {}
    tokens = [index.setdefault(word, len(index)) for word in text.words]
    changed = np.flatnonzero(text.own != text.gold)
    block: Block = {
        "kind": "sentences",
        "labels": text.names,
        "words": list(index),
        "lengths": np.diff(text.offsets).tolist(),
        "tokens": tokens,
        "gold": text.gold.tolist(),
        "changed": np.stack([changed, text.own[changed]], axis=1).ravel().tolist(),
        "probability": None,
        "spans": None,
        "kinds": list(KINDS),
        "features": found.features,
        "reasons": found.by_token,
        "n_reasons": len(found.by_token),
        "labelings": labelings(text),
    }
    if text.has_probabilities:
        block["probability"] = _per_mille(text.probability)
    if text.spans is not None and text.spans.types:
        s = text.spans
        known = text.has_probabilities
        sure = _per_mille(text.span_probability) if known else [-1] * len(s.own)
        block["spans"] = {
            "types": s.types,
            "true": s.true.ravel().tolist(),
            "own": np.column_stack([s.own, np.array(sure, dtype=np.int64)]).ravel().tolist(),
            "overlap": BOTH,
        }
    return block


def _per_mille(p: Floats) -> list[int]:
    return np.where(np.isfinite(p), np.floor(1000 * p + 0.5), -1).astype(np.int64).tolist()  # type: ignore[no-any-return]
