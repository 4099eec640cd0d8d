"""Why a tagger chose a tag: what speaks for it and against it, beside another tag."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from cliquewise.estimators._report_measures import CORRECT
from cliquewise.estimators.tagger.inspection import _Emissions
from cliquewise.estimators.tagger.tagged_text import TaggedText, take
from cliquewise.ragged import Floats, Ints, offsets_of
from cliquewise.report.page import number

#: Tags that reasons are kept for, and features on each side of one.
MOST_TAGS, MOST_FEATURES = 6000, 5
#: A tag is doubtful below this probability.
DOUBT = 0.9
#: Labelings of a sentence, and sentences, that the next best are kept for.
N_BEST, MOST_SENTENCES = 4, 3000


class Reasons(NamedTuple):
    """By token: the other label, features for and against, transitions, likely labels."""

    features: list[str]
    by_token: dict[int, list[Any]]


def reasons(text: TaggedText) -> Reasons:
    """Reasons for the tags that are wrong or doubtful, the worst first if these are many."""
    chosen = _chosen(text)
    if not len(chosen):
        return Reasons([], {})
    tagger, model = text.tagger, text.tagger.model_
    sentence = np.searchsorted(text.offsets, chosen, side="right") - 1
    used, place = np.unique(sentence, return_inverse=True)
    data = tagger._encode(take(text.X, used))
    form = model.form(data, learn=False)
    chains, (_, trans) = form.chains, form.potentials(tagger._packed)
    n_links = np.maximum(data.lengths - 1, 0)
    if data.edges is None:
        trans = np.broadcast_to(trans, (int(n_links.sum()), *trans.shape[1:]))
    links = offsets_of(n_links)
    names, emissions = tagger.feature_names(), _Emissions(model, tagger.coef_)
    index: dict[str, int] = {}
    out: dict[int, list[Any]] = {}
    for token, s, i in zip(chosen.tolist(), place.tolist(), sentence.tolist(), strict=True):
        t = token - int(text.offsets[i])
        at = int(data.offsets[s]) + t
        own, other = int(text.own[token]), _rival(text, token)
        if other < 0:
            continue
        span = slice(int(chains.indptr[at]), int(chains.indptr[at + 1]))
        attributes = chains.indices[span].tolist()
        values = chains.values[span].tolist() if len(chains.values) else [1.0] * len(attributes)
        parts = [
            (a, v * (emissions.weight(a, own) - emissions.weight(a, other)))
            for a, v in zip(attributes, values, strict=True)
        ]
        parts.sort(key=lambda part: part[1])
        pro = [p for p in reversed(parts) if p[1] > 0]
        contra = [p for p in parts if p[1] < 0]
        sides = []
        for side in (pro, contra):
            best = side[:MOST_FEATURES]
            sides.append(
                [x for a, d in best for x in (index.setdefault(names[a], len(index)), _short(d))]
            )
        rest = sum(d for side in (pro, contra) for _, d in side[MOST_FEATURES:])
        steps = _steps(trans[links[s] : links[s + 1]], text, token, t, other)
        out[token] = [other, *sides, _short(rest), *steps, _alternatives(text, token)]
    return Reasons(list(index), out)


def _chosen(text: TaggedText) -> Ints:
    """Tokens whose tag is wrong, in a wrong span, or doubtful."""
    asked = text.is_wrong.copy()
    if text.spans is not None:
        for rows in (text.spans.true, text.spans.own):
            for first, end, _, _ in rows[rows[:, 3] != CORRECT].tolist():
                asked[first:end] = True
    urgency = 2.0 * asked
    if text.has_probabilities:
        asked |= text.probability < DOUBT
        urgency += 1.0 - text.probability
    chosen = np.flatnonzero(asked)
    best = chosen[np.argsort(-urgency[chosen], kind="stable")[:MOST_TAGS]]
    return np.sort(best)


def _rival(text: TaggedText, token: int) -> int:
    """The label to compare with: the true one, or the most probable other one."""
    n = len(text.tagger.classes_)
    if text.is_wrong[token] and text.gold[token] < n:
        return int(text.gold[token])
    if text.has_probabilities:
        others = [c for c in text.likely[token].tolist() if c != text.own[token]]
        return others[0] if others else -1
    return next((c for c in range(n) if c != text.own[token]), -1)


def _steps(trans: Floats, text: TaggedText, token: int, t: int, other: int) -> list[float | None]:
    """What the transitions from the tag before and to the tag behind add; None: forbidden."""
    own = int(text.own[token])
    ends = text.offsets[np.searchsorted(text.offsets, token, side="right")] == token + 1
    before = after = 0.0
    if t > 0:
        row = trans[t - 1, int(text.own[token - 1])].tolist()
        before = row[own] - row[other]
    if not ends:
        column = trans[t, :, int(text.own[token + 1])].tolist()
        after = column[own] - column[other]
    return [number(before, 3), number(after, 3)]


def _alternatives(text: TaggedText, token: int) -> list[Any]:
    if not text.has_probabilities:
        return []
    pairs = zip(text.likely[token].tolist(), text.likelihoods[token].tolist(), strict=True)
    return [x for c, p in pairs for x in (c, _short(p))]


def labelings(text: TaggedText) -> dict[int, list[Any]]:
    """The best labelings of sentences with errors: probability, and what differs from the best."""
    if not text.has_probabilities:
        return {}
    wrong = np.flatnonzero(text.is_wrong)
    sentences = np.unique(np.searchsorted(text.offsets, wrong, side="right") - 1)[:MOST_SENTENCES]
    if not len(sentences):
        return {}
    index = {c: i for i, c in enumerate(text.tagger.classes_)}
    out: dict[int, list[Any]] = {}
    best = text.tagger.predict_top_k(take(text.X, sentences), N_BEST)
    for i, found in zip(sentences.tolist(), best, strict=True):
        own = text.own[text.offsets[i] : text.offsets[i + 1]].tolist()
        rows = []
        for probability, tags in found:
            differs = [(t, index[tag]) for t, tag in enumerate(tags) if index[tag] != own[t]]
            rows.append([number(probability, 3), [x for pair in differs for x in pair]])
        out[i] = rows
    return out


def _short(value: float) -> float | None:
    return number(value, 3)
