"""Sentences with their true and predicted labels, as reports take them."""

from __future__ import annotations

from itertools import chain, pairwise
from typing import Any

import numpy as np

from cliquewise.data.columns import Columns
from cliquewise.data.dataset import Dataset
from cliquewise.errors import DataError
from cliquewise.estimators._report_measures import Spans
from cliquewise.estimators.tagger.tables import labeled, laid_out
from cliquewise.ragged import Floats, Ints, offsets_of
from cliquewise.report.notebook import Marked, MarkedText

#: Numbers in one block of marginals (64 MB).
ROOM = 8_000_000

#: Names of features, in order of preference, whose value is what a reader calls the token.
_WORDS = ("word", "token", "form", "text", "w", "w[0]", "word.lower()", "word.lower", "lower")


class TaggedText:
    """Sentences with their true and predicted labels, and how probable these are."""

    def __init__(self, tagger: Any, X: Any, y: Any, tokens: Any = None):
        X, y = labeled(tagger, X, y)
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
        self.words = words_of(X, lengths, tokens)
        self.spans = Spans.of(self.truth, self.predicted, self.offsets)
        self.has_probabilities = tagger.has_probabilities
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
        first, n, room = 0, len(self.offsets) - 1, max(ROOM // k, 1)
        while first < n:
            last = int(np.searchsorted(self.offsets, self.offsets[first] + room, "right")) - 1
            last = min(max(last, first + 1), n)
            found = self.tagger.predict_marginals(take(self.X, np.arange(first, last)))
            at = slice(int(self.offsets[first]), int(self.offsets[last]))
            nodes = np.concatenate(found)
            best = np.argsort(-nodes, axis=1, kind="stable")[:, : self.likely.shape[1]]
            self.probability[at] = nodes[np.arange(len(nodes)), self.own[at]]
            self.likely[at], self.likelihoods[at] = best, np.take_along_axis(nodes, best, axis=1)
            first = last
        self.span_probability = self._of_spans()

    def _of_spans(self) -> Floats:
        """The probability of every predicted span; NaN where another of equal score is best."""
        if self.spans is None or not len(self.spans.own):
            return np.empty(0)
        types = self.spans.types
        known = {
            (begin + s.start, begin + s.end, s.type): s.probability
            for begin, found in zip(
                self.offsets.tolist(), self.tagger.predict_spans(self.X, proba=True)
            )
            for s in found
        }
        rows = self.spans.own.tolist()
        return np.array([known.get((a, b, types[kind]), np.nan) for a, b, kind, _ in rows])


def take(X: Any, chosen: Ints) -> Any:
    """Some of the sequences, in whatever form they come."""
    if isinstance(X, Columns):
        return X.take(chosen.tolist())
    if isinstance(X, Dataset):
        return X.subset(chosen)
    return X[chosen] if isinstance(X, np.ndarray) else [X[int(i)] for i in chosen]


def words_of(X: Any, lengths: list[int], tokens: Any = None) -> list[str]:
    """What to call the tokens: as given, a word where one can be told, or their numbers."""
    if tokens is not None:
        if list(map(len, tokens)) != lengths:
            raise DataError("tokens needs one string for each token of X")
        return [str(word) for word in chain.from_iterable(tokens)]
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


def marked(tagger: Any, X: Any, tokens: Any = None) -> MarkedText:
    """Predictions as marked-up sentences; see ``SequenceTagger.show``."""
    _, X = laid_out(tagger, X)
    tags = tagger.predict(X)
    words = words_of(X, list(map(len, tags)), tokens)
    sure = tagger.has_probabilities
    try:
        spans: list[list[Any]] = [
            [(s.start, s.end, s.type, s.probability if sure else None) for s in found]
            for found in tagger.predict_spans(X, proba=sure)
        ]
    except DataError:  # the labels name no spans: every token has its own
        index = {c: i for i, c in enumerate(tagger.classes_)}
        tables = tagger.predict_marginals(X) if sure else [None] * len(tags)
        spans = [
            [
                (t, t + 1, str(tag), None if table is None else float(table[t, index[tag]]))
                for t, tag in enumerate(row)
            ]
            for row, table in zip(tags, tables, strict=True)
        ]
    ends = offsets_of([len(row) for row in tags]).tolist()
    parts = [words[a:b] for a, b in pairwise(ends)]
    return MarkedText([Marked(w, s) for w, s in zip(parts, spans, strict=True)])
