"""Sequences with gold and predicted labels, as reports and plots need them."""

from __future__ import annotations

from itertools import chain as concatenate
from itertools import pairwise
from typing import Any

import numpy as np
from numpy.typing import NDArray

from cliquewise.data.columns import Columns
from cliquewise.data.dataset import Dataset
from cliquewise.errors import DataError
from cliquewise.estimators._report_measures import Spans
from cliquewise.estimators.tagger.chain_tagger import ChainTagger
from cliquewise.estimators.tagger.tables import read_labeled_table, read_table
from cliquewise.ragged import Floats, Ints, offsets_of
from cliquewise.report.notebook import Marked, MarkedText

#: Largest number of marginals in one block (64 MB in float64).
BLOCK = 8_000_000

#: Names of features that hold the text of a token, in order of preference.
_WORDS = ("word", "token", "form", "text", "w", "w[0]", "word.lower()", "word.lower", "lower")


class TaggedText:
    """Sequences with their gold and predicted labels, and the probabilities of the latter.

    Parameters
    ----------
    chain : ChainTagger
    X, y
        Sequences or a table, and gold labels; None marks an unknown label.
    tokens : list of lists of str, optional
        The text of the tokens.
    """

    def __init__(self, chain: ChainTagger, X: Any, y: Any, tokens: Any = None):
        X, y = read_labeled_table(chain, X, y)
        self.chain, self.X = chain, X
        predicted = chain.predict(X)
        truth = [list(s) for s in y]
        lengths = list(map(len, predicted))
        if list(map(len, truth)) != lengths:
            raise DataError("y needs one label for each token of X")
        self.offsets = offsets_of(lengths)
        if not lengths or self.offsets[-1] == 0:
            raise DataError("X has no tokens")
        self.truth = list(concatenate.from_iterable(truth))
        self.predicted = list(concatenate.from_iterable(predicted))
        known = {c: i for i, c in enumerate(chain.classes_)}
        for label in self.truth:
            if label is not None:
                known.setdefault(label, len(known))
        self.names = [str(c) for c in known]
        self.gold = np.array([-1 if c is None else known[c] for c in self.truth], dtype=np.int64)
        self.own = np.array([known[c] for c in self.predicted], dtype=np.int64)
        self.words = words_of(X, lengths, tokens)
        self.spans = Spans.of(self.truth, self.predicted, self.offsets)
        self.has_probabilities = chain.has_probabilities
        if self.has_probabilities:
            self._compute_probabilities()

    @property
    def is_known(self) -> NDArray[np.bool_]:
        """Tokens whose gold label is known."""
        known: NDArray[np.bool_] = self.gold >= 0
        return known

    @property
    def is_wrong(self) -> NDArray[np.bool_]:
        """Tokens whose gold label is known and differs from the predicted one."""
        wrong: NDArray[np.bool_] = self.is_known & (self.gold != self.own)
        return wrong

    def _compute_probabilities(self) -> None:
        """Compute the probabilities of the predicted labels and spans, and the likeliest labels."""
        k = len(self.chain.classes_)
        self.probability = np.empty(len(self.own))
        self.likely = np.empty((len(self.own), min(3, k)), dtype=np.int64)
        self.likelihoods = np.empty(self.likely.shape)
        first, n, n_tokens = 0, len(self.offsets) - 1, max(BLOCK // k, 1)
        while first < n:
            last = int(np.searchsorted(self.offsets, self.offsets[first] + n_tokens, "right")) - 1
            last = min(max(last, first + 1), n)
            found = self.chain.predict_marginals(take(self.X, np.arange(first, last)))
            at = slice(int(self.offsets[first]), int(self.offsets[last]))
            nodes = np.concatenate(found)
            best = np.argsort(-nodes, axis=1, kind="stable")[:, : self.likely.shape[1]]
            self.probability[at] = nodes[np.arange(len(nodes)), self.own[at]]
            self.likely[at], self.likelihoods[at] = best, np.take_along_axis(nodes, best, axis=1)
            first = last
        self.span_probability = self._span_probabilities()

    def _span_probabilities(self) -> Floats:
        """Return the probability of every predicted span; NaN if a tie was broken differently."""
        if self.spans is None or not len(self.spans.own):
            return np.empty(0)
        types = self.spans.types
        known = {
            (begin + s.start, begin + s.end, s.type): s.probability
            for begin, found in zip(
                self.offsets.tolist(), self.chain.predict_spans(self.X, proba=True)
            )
            for s in found
        }
        rows = self.spans.own.tolist()
        return np.array([known.get((a, b, types[kind]), np.nan) for a, b, kind, _ in rows])


def take(X: Any, chosen: Ints) -> Any:
    """Return some of the sequences, for every type of X."""
    if isinstance(X, Columns):
        return X.take(chosen.tolist())
    if isinstance(X, Dataset):
        return X.subset(chosen)
    return X[chosen] if isinstance(X, np.ndarray) else [X[int(i)] for i in chosen]


def words_of(X: Any, lengths: list[int], tokens: Any = None) -> list[str]:
    """Return the text of all tokens: as given, from a feature that names a word, or a number."""
    if tokens is not None:
        if list(map(len, tokens)) != lengths:
            raise DataError("tokens needs one string for each token of X")
        return [str(word) for word in concatenate.from_iterable(tokens)]
    if isinstance(X, Columns):
        return list(X.columns[0])
    is_nested = isinstance(X, list | tuple) and all(isinstance(x, list | tuple) for x in X)
    if not is_nested:
        return [str(t + 1) for n in lengths for t in range(n)]
    return [_word(token, t) for x in X for t, token in enumerate(x)]


def _word(token: Any, t: int) -> str:
    """Return the text of one token."""
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


def mark_up(chain: ChainTagger, X: Any, tokens: Any = None) -> MarkedText:
    """Return the predictions as marked-up text; see ``SequenceTagger.show``."""
    _, X = read_table(chain, X)
    tags = chain.predict(X)
    words = words_of(X, list(map(len, tags)), tokens)
    proba = chain.has_probabilities
    try:
        spans: list[list[Any]] = [
            [(s.start, s.end, s.type, s.probability if proba else None) for s in found]
            for found in chain.predict_spans(X, proba=proba)
        ]
    except DataError:  # the labels do not encode spans: mark every token
        index = {c: i for i, c in enumerate(chain.classes_)}
        tables = chain.predict_marginals(X) if proba else [None] * len(tags)
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
