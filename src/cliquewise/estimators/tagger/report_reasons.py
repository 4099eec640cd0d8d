"""Explain predicted tags in a report: the features for and against a tag, compared to another."""

from __future__ import annotations

from functools import partial
from typing import Any, NamedTuple

import numpy as np

from cliquewise.estimators._report_measures import CORRECT
from cliquewise.estimators.tagger.inspection import emission_weight, feature_names
from cliquewise.estimators.tagger.tagged_text import TaggedText, take
from cliquewise.ragged import Floats, Ints, offsets_of
from cliquewise.report.page import number

#: Largest number of explained tags, and of features on each side of one. Bounds the page's size.
MOST_TAGS, MOST_FEATURES = 6000, 5
#: Correct tags with a smaller probability are explained as well.
DOUBTFUL = 0.9
#: Number of labelings per sentence, and largest number of sentences that have them.
N_BEST, MOST_SENTENCES = 4, 3000


class Reasons(NamedTuple):
    """Explanations by token number.

    An explanation lists the other tag, the features for the predicted tag and against it (pairs of
    a number in ``features`` and a contribution), the sum of the remaining contributions, those of
    the two transitions, and the likeliest tags with their probabilities.
    """

    features: list[str]
    by_token: dict[int, list[Any]]


def reasons(text: TaggedText) -> Reasons:
    """Return explanations of the tags that are wrong or doubtful."""
    chosen = _tokens_to_explain(text)
    if not len(chosen):
        return Reasons([], {})
    chain, model = text.chain, text.chain.model_
    sentence = np.searchsorted(text.offsets, chosen, side="right") - 1
    used, place = np.unique(sentence, return_inverse=True)
    data = chain.encode(take(text.X, used))
    form = model.form(data, learn=False)
    chains, (_, trans) = form.chains, form.potentials(chain.prepared.packed)
    n_links = np.maximum(data.lengths - 1, 0)
    if data.edges is None:
        trans = np.broadcast_to(trans, (int(n_links.sum()), *trans.shape[1:]))
    links = offsets_of(n_links)
    names, weight = feature_names(chain), partial(emission_weight, model, chain.coef_)
    others = _tags_to_compare(text, chosen)
    index: dict[str, int] = {}
    out: dict[int, list[Any]] = {}
    rows = zip(chosen.tolist(), place.tolist(), sentence.tolist(), others, strict=True)
    for token, s, i, other in rows:
        if other < 0:
            continue
        t = token - int(text.offsets[i])
        at, own = int(data.offsets[s]) + t, int(text.own[token])
        span = slice(int(chains.indptr[at]), int(chains.indptr[at + 1]))
        attributes = chains.indices[span].tolist()
        values = chains.values[span].tolist() if len(chains.values) else [1.0] * len(attributes)
        contributions = [
            (a, v * (weight(a, own) - weight(a, other)))
            for a, v in zip(attributes, values, strict=True)
        ]
        contributions.sort(key=lambda part: part[1])
        sides = (
            [p for p in reversed(contributions) if p[1] > 0],
            [p for p in contributions if p[1] < 0],
        )
        shown = [
            [
                x
                for a, d in side[:MOST_FEATURES]
                for x in (index.setdefault(names[a], len(index)), number(d, 3))
            ]
            for side in sides
        ]
        rest = number(sum(d for side in sides for _, d in side[MOST_FEATURES:]), 3)
        steps = _transition_scores(trans[links[s] : links[s + 1]], text, token, t, other)
        out[token] = [other, *shown, rest, *steps, _alternatives(text, token)]
    return Reasons(list(index), out)


def _tokens_to_explain(text: TaggedText) -> Ints:
    """Return the tokens whose tag is wrong, in a wrong span, or doubtful; the worst MOST_TAGS."""
    is_chosen = text.is_wrong.copy()
    if text.spans is not None:
        for rows in (text.spans.true, text.spans.own):
            for first, end, _, _ in rows[rows[:, 3] != CORRECT].tolist():
                is_chosen[first:end] = True
    urgency = 2.0 * is_chosen
    if text.has_probabilities:
        is_chosen |= text.probability < DOUBTFUL
        urgency += 1.0 - text.probability
    chosen = np.flatnonzero(is_chosen)
    best = chosen[np.argsort(-urgency[chosen], kind="stable")[:MOST_TAGS]]
    return np.sort(best)


def _tags_to_compare(text: TaggedText, tokens: Ints) -> list[int]:
    """Return for each token the gold tag, or the most probable other tag if that was predicted.

    -1 means that there is none.
    """
    n, is_wrong = len(text.chain.classes_), text.is_wrong
    out = []
    for token in tokens.tolist():
        own = int(text.own[token])
        candidates = text.likely[token].tolist() if text.has_probabilities else range(n)
        other = next((c for c in candidates if c != own), -1)
        is_known = is_wrong[token] and text.gold[token] < n
        out.append(int(text.gold[token]) if is_known else other)
    return out


def _transition_scores(
    trans: Floats, text: TaggedText, token: int, t: int, other: int
) -> list[float | None]:
    """Return what the transitions from the previous and to the next tag add; None if forbidden."""
    own = int(text.own[token])
    is_last = text.offsets[np.searchsorted(text.offsets, token, side="right")] == token + 1
    before = after = 0.0
    if t > 0:
        row = trans[t - 1, int(text.own[token - 1])].tolist()
        before = row[own] - row[other]
    if not is_last:
        column = trans[t, :, int(text.own[token + 1])].tolist()
        after = column[own] - column[other]
    return [number(before, 3), number(after, 3)]


def _alternatives(text: TaggedText, token: int) -> list[Any]:
    """Return the likeliest tags of a token, each followed by its probability."""
    if not text.has_probabilities:
        return []
    pairs = zip(text.likely[token].tolist(), text.likelihoods[token].tolist(), strict=True)
    return [x for c, p in pairs for x in (c, number(p, 3))]


def labelings(text: TaggedText) -> dict[int, list[Any]]:
    """Return the best labelings of sentences with errors, as differences from the prediction.

    A labeling is a pair of its probability and a list of token numbers and tags.
    """
    if not text.has_probabilities:
        return {}
    wrong = np.flatnonzero(text.is_wrong)
    sentences = np.unique(np.searchsorted(text.offsets, wrong, side="right") - 1)[:MOST_SENTENCES]
    if not len(sentences):
        return {}
    index = {c: i for i, c in enumerate(text.chain.classes_)}
    out: dict[int, list[Any]] = {}
    best = text.chain.predict_top_k(take(text.X, sentences), N_BEST)
    for i, found in zip(sentences.tolist(), best, strict=True):
        own = text.own[text.offsets[i] : text.offsets[i + 1]].tolist()
        rows = []
        for probability, tags in found:
            differs = [(t, index[tag]) for t, tag in enumerate(tags) if index[tag] != own[t]]
            rows.append([number(probability, 3), [x for pair in differs for x in pair]])
        out[i] = rows
    return out
