"""Sentences with their true and predicted labels, as reports take them."""

from __future__ import annotations

from itertools import chain
from typing import Any

import numpy as np

from cliquewise.data.dataset import Dataset
from cliquewise.data.formats.conll import Columns
from cliquewise.errors import DataError
from cliquewise.estimators._report_measures import Spans
from cliquewise.ragged import Floats, Ints, offsets_of

#: Numbers in one block of pairwise marginals (64 MB).
ROOM = 8_000_000

#: Names of features, in order of preference, whose value is what a reader calls the token.
_WORDS = ("word", "token", "form", "text", "w", "w[0]", "word.lower()", "word.lower", "lower")


class TaggedText:
    """Sentences with their true and predicted labels, and how probable these are."""

    def __init__(self, tagger: Any, X: Any, y: Any, tokens: Any = None):
        self.tagger, self.X = tagger, X
        predicted = tagger.predict(X)
        truth = [list(s) for s in y]
        lengths = list(map(len, predicted))
        if list(map(len, truth)) != lengths:
            raise DataError("y needs one label for each token of X: the report compares them")
        self.offsets = offsets_of(lengths)
        if not lengths or self.offsets[-1] == 0:
            raise DataError("there are no tokens: a report needs some to be about")
        self.truth = list(chain.from_iterable(truth))
        self.predicted = list(chain.from_iterable(predicted))
        known = {c: i for i, c in enumerate(tagger.classes_)}
        for label in self.truth:
            if label is not None:
                known.setdefault(label, len(known))
        self.names = [str(c) for c in known]
        self.gold = np.array([-1 if c is None else known[c] for c in self.truth], dtype=np.int64)
        self.own = np.array([known[c] for c in self.predicted], dtype=np.int64)
        self.words = _words(X, lengths) if tokens is None else _checked_words(tokens, lengths)
        self.spans = Spans.of(self.truth, self.predicted, self.offsets)
        self.has_probabilities = tagger.loss == "log"
        if self.has_probabilities:
            self._measure()

    @property
    def is_known(self) -> Any:
        """Tokens whose true label is known."""
        return self.gold >= 0

    @property
    def is_wrong(self) -> Any:
        """Tokens whose label is known and another one."""
        return self.is_known & (self.gold != self.own)

    def _measure(self) -> None:
        """Probabilities of the labels and of the spans that were predicted."""
        k = len(self.tagger.classes_)
        self.probability = np.empty(len(self.own))
        self.likely = np.empty((len(self.own), min(3, k)), dtype=np.int64)
        self.likelihoods = np.empty(self.likely.shape)
        self.span_probability = np.ones(0 if self.spans is None else len(self.spans.own))
        # Neighbors matter to spans of several tokens and to where spans end.
        pairwise = self.spans is not None and k * k * int(np.diff(self.offsets).max()) <= ROOM
        room = max(ROOM // (k * k if pairwise else k), 1)
        first, n = 0, len(self.offsets) - 1
        while first < n:
            last = int(np.searchsorted(self.offsets, self.offsets[first] + room, "right")) - 1
            last = min(max(last, first + 1), n)
            found = self.tagger.predict_marginals(
                take(self.X, np.arange(first, last)), pairwise=pairwise
            )
            for i, part in enumerate(found, first):
                nodes, edges = part if pairwise else (part, None)
                self._keep(slice(int(self.offsets[i]), int(self.offsets[i + 1])), nodes, edges)
            first = last
        self.has_span_probabilities = pairwise

    def _keep(self, at: slice, nodes: Floats, edges: Floats | None) -> None:
        own = self.own[at]
        self.probability[at] = nodes[np.arange(len(nodes)), own]
        best = np.argsort(-nodes, axis=1, kind="stable")[:, : self.likely.shape[1]]
        self.likely[at], self.likelihoods[at] = best, np.take_along_axis(nodes, best, axis=1)
        if edges is None or self.spans is None:
            return
        begin, stop = np.searchsorted(self.spans.own[:, 0], [at.start, at.stop])
        for j in range(int(begin), int(stop)):
            span = self.spans.own[j, :2] - at.start
            self.span_probability[j] = _span_probability(
                nodes, edges, own, int(span[0]), int(span[1]), self._continues(own[span[1] - 1])
            )

    def _continues(self, label: int) -> Ints:
        """Labels that would go on with a span that so far ends with this one."""
        prefix, _, kind = self.names[label].partition("-")
        if prefix in ("E", "S", "L", "U"):
            return np.empty(0, dtype=np.int64)
        n = len(self.tagger.classes_)
        goes_on = {f"{p}-{kind}" for p in "IEL"}
        return np.array([c for c in range(n) if self.names[c] in goes_on], dtype=np.int64)


def _span_probability(
    nodes: Floats, edges: Floats, own: Ints, first: int, end: int, continues: Ints
) -> float:
    """That just these tokens have just these labels and the span ends there: chain rule."""
    p = nodes[first, own[first]]
    for t in range(first + 1, end):
        p *= edges[t - 1, own[t - 1], own[t]] / max(nodes[t - 1, own[t - 1]], 1e-300)
    if end < len(nodes) and len(continues):
        more = edges[end - 1, own[end - 1], continues].sum()
        p *= 1.0 - more / max(nodes[end - 1, own[end - 1]], 1e-300)
    return float(np.clip(p, 0.0, 1.0))


def take(X: Any, chosen: Ints) -> Any:
    """Some of the sequences, in whatever form they come."""
    if isinstance(X, Columns):
        parts = [slice(int(X.offsets[i]), int(X.offsets[i + 1])) for i in chosen]
        columns = [list(chain.from_iterable(c[p] for p in parts)) for c in X.columns]
        return Columns(columns, offsets_of([p.stop - p.start for p in parts]))
    if isinstance(X, Dataset):
        return X.subset(chosen)
    return X[chosen] if isinstance(X, np.ndarray) else [X[int(i)] for i in chosen]


def _checked_words(tokens: Any, lengths: list[int]) -> list[str]:
    if list(map(len, tokens)) != lengths:
        raise DataError("tokens needs one string for each token of X")
    return [str(word) for word in chain.from_iterable(tokens)]


def _words(X: Any, lengths: list[int]) -> list[str]:
    """What to call the tokens: a word where one can be told, their numbers otherwise."""
    if isinstance(X, Columns):
        return list(X.columns[0])
    plain = isinstance(X, list | tuple) and all(isinstance(x, list | tuple) for x in X)
    if not plain:
        return [str(t + 1) for n in lengths for t in range(n)]
    return [_word(token, t) for x in X for t, token in enumerate(x)]


def _word(token: Any, t: int) -> str:
    if isinstance(token, dict):
        named = {str(name).lower(): value for name, value in token.items()}
        found = next((named[name] for name in _WORDS if name in named), None)
        return str(t + 1) if found is None else str(found)
    strings = [a for a in token if isinstance(a, str)] if isinstance(token, list | tuple) else []
    named = dict(a.split("=", 1) for a in reversed(strings) if "=" in a)
    found = next((named[name] for name in _WORDS if name in named), None)
    if found is not None:
        return str(found)
    return strings[0] if strings else str(t + 1)
