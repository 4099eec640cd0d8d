"""Spans that a fitted chain predicts, and the probabilities of these and of others."""

from __future__ import annotations

from functools import cached_property
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from cliquewise.data.dataset import Dataset
from cliquewise.data.spans import ScoredSpan, SpanLabels, read_spans
from cliquewise.errors import DataError, TooLargeError
from cliquewise.estimators._prediction import ChainPrediction
from cliquewise.estimators._tables import as_spans, takes_tables
from cliquewise.oracles.matching import check_k
from cliquewise.ragged import Floats, Ints, offsets_of

#: Where the search for the k most probable spans of a sequence looks, until it has them.
LEVELS = (0.3, 0.03, 1e-3, 1e-6, 1e-12, 1e-24, 1e-48, 1e-96, 0.0)
#: More than any probability: a sequence that is done.
PASSED = 2.0
#: Bytes of one span that was found.
SPAN_BYTES = 200.0


class SpanPrediction(ChainPrediction):
    """What a fitted tagger says of spans."""

    @cached_property
    def _span_labels(self) -> SpanLabels:
        """The classes as prefixes and types; an error where they name no spans."""
        try:
            return SpanLabels.of(self.classes_)
        except DataError as error:
            raise DataError(f"predict_spans reads spans from labels, and {error}") from None

    @cached_property
    def _span_rules(self) -> Any:
        """The same for kernels."""
        from cliquewise._kernels.chain.spans import SpanRules

        labels = self._span_labels
        members, pairs = labels.members(), labels.continuing()
        sources = np.array([a for a, _ in pairs], dtype=np.int64)
        targets = np.array([b for _, b in pairs], dtype=np.int64)
        per_type = np.bincount(labels.kinds[sources], minlength=len(members))
        joined = np.concatenate([np.empty(0, np.int64), *members])
        offsets = offsets_of([len(m) for m in members])
        return SpanRules(sources, targets, offsets_of(per_type), joined, offsets)

    @takes_tables(as_spans)
    def predict_spans(
        self,
        X: Any,
        allowed: Any = None,
        *,
        proba: bool = False,
        candidates: str = "best",
        threshold: float | None = None,
        k: int | None = None,
    ) -> list[list[Any]]:
        """The spans (entities, chunks) of every input.

        Labels are O or ``<prefix>-<type>`` with the prefixes of BIO, BIOES, BILOU, IO or IOB1,
        read as :func:`cliquewise.metrics.span_scores` reads them.

        Parameters
        ----------
        X, allowed
            As in :meth:`predict`.
        proba : bool, default=False
            Add the probability that exactly this span with this type is there: that of all
            labelings that have it, whatever they say elsewhere. ``threshold``, ``k`` and
            ``candidates="all"`` imply it.
        candidates : {"best", "all"}, default="best"
            The spans of the best labeling, or all that are possible: these may overlap, and need
            a ``threshold`` or a ``k``.
        threshold : float, optional
            Leave out less probable spans.
        k : int, optional
            Leave out all but the k most probable spans of each sequence, which then come first.

        Returns
        -------
        list of lists of (start, end, type) or (start, end, type, probability)
            Named tuples; ``end`` is the token after the last. In the order of the text, or with
            ``k`` the most probable first. For a table one of its library, with a row per span; the
            column that tells sequences apart is called ``sequence`` where its name is taken.

        Examples
        --------
        >>> from cliquewise import SequenceTagger
        >>> X = [[["w=Anna"], ["w=sees"], ["w=Rome"]]] * 3
        >>> tagger = SequenceTagger(random_state=0).fit(X, [["B-PER", "O", "B-LOC"]] * 3)
        >>> tagger.predict_spans(X[:1])
        [[Span(start=0, end=1, type='PER'), Span(start=2, end=3, type='LOC')]]
        >>> [(s.type, s.probability > 0.5) for s in tagger.predict_spans(X, proba=True)[0]]
        [('PER', True), ('LOC', True)]
        """
        self._check_fitted()
        _check_choice(candidates, threshold, k)
        types = self._span_labels.types
        if not (proba or candidates == "all" or threshold is not None or k is not None):
            return read_spans(self.predict(X, allowed))
        self._need_probabilities()
        data = self._encode(X, allowed)
        if candidates == "best":
            found = self._scored(data)
        else:
            found = self._searched(data, 0.0 if threshold is None else threshold, k)
        if threshold is not None:
            found = found.only(found.probabilities >= threshold)
        return _listed(found, data.offsets, types, k)

    def _scored(self, data: Dataset) -> Found:
        """The spans of the best labelings, with probabilities."""
        from cliquewise._kernels.chain.spans import Spans, batch_span_probabilities

        labels, rules = self._span_labels, self._span_rules
        found: list[Found] = []

        def work(nodes: Floats, offsets: Ints, trans: Floats, first: int, last: int) -> None:
            best = np.empty(len(nodes), dtype=np.int64)
            self._best_of_block(nodes, offsets, trans, best, first)
            places = labels.read(best, offsets)
            log_z, out = np.zeros(last - first), np.zeros(len(places.starts))
            spans = Spans(_owners(places.starts, offsets), *places, out)
            batch_span_probabilities(nodes, offsets, trans, rules, spans, log_z)
            self._check_probable(log_z, first)
            found.append(Found(*places, out).moved(data.offsets[first]))

        self._each_block(data, work)
        return Found.joined(found)

    def _searched(self, data: Dataset, threshold: float, k: int | None) -> Found:
        """All spans above the threshold, or as many as have the k most probable among them."""
        found: list[Found] = []
        levels = [threshold] if k is None else [*(p for p in LEVELS if p > threshold), threshold]
        wanted = np.inf if k is None else k

        def work(nodes: Floats, offsets: Ints, trans: Floats, first: int, last: int) -> None:
            least = np.full(last - first, levels[0])
            for level, lower in zip(levels, [*levels[1:], PASSED], strict=True):
                part = self._above(nodes, offsets, trans, least, first)
                owners = _owners(part.starts, offsets)
                few = np.bincount(owners, minlength=last - first) < wanted
                few &= (least == level) & (lower != PASSED)
                found.append(part.only(~few[owners]).moved(data.offsets[first]))
                if not few.any():
                    break
                least = np.where(few, lower, PASSED)

        self._each_block(data, work)
        return Found.joined(found)

    def _above(
        self, nodes: Floats, offsets: Ints, trans: Floats, least: Floats, first: int
    ) -> Found:
        """The spans of one block that are at least so probable, by sequence."""
        from cliquewise._kernels.chain.spans import Spans, batch_spans_above

        log_z, count, room = np.zeros(len(least)), len(nodes), -1
        while count > room:
            room = count
            if room * SPAN_BYTES > self.max_memory * 2**30:
                raise TooLargeError(
                    f"{room} spans need about {room * SPAN_BYTES / 2**30:.3g} GiB (limit: "
                    f"max_memory = {self.max_memory:g} GiB); raise the threshold, or ask for "
                    "fewer sequences at a time",
                    room * SPAN_BYTES,
                )
            columns: Any = [np.empty(room, kind) for kind in (*[np.int64] * 4, np.float64)]
            spans = Spans(*columns)
            rules = self._span_rules
            count = int(batch_spans_above(nodes, offsets, trans, rules, least, spans, log_z))
        self._check_probable(log_z, first)
        return Found(*(column[:count] for column in spans[1:]))


class Found(NamedTuple):
    """Spans among all tokens, and their probabilities."""

    starts: Ints
    ends: Ints
    types: Ints
    probabilities: Floats

    def only(self, chosen: NDArray[np.bool_] | Ints) -> Found:
        """Some of them, or all in another order."""
        return Found(*(column[chosen] for column in self))  # type: ignore[arg-type]

    def moved(self, by: int) -> Found:
        """So many tokens later."""
        return self._replace(starts=self.starts + by, ends=self.ends + by)

    @classmethod
    def joined(cls, parts: list[Found]) -> Found:
        """All of several."""
        empty: tuple[Any, ...] = (*(np.empty(0, np.int64) for _ in range(3)), np.empty(0))
        return cls(*map(np.concatenate, zip(empty, *parts, strict=True)))


def _owners(starts: Ints, offsets: Ints) -> Ints:
    """The sequence of each span."""
    return np.searchsorted(offsets, starts, side="right") - 1


def _listed(found: Found, offsets: Ints, types: list[str], k: int | None) -> list[list[ScoredSpan]]:
    """Spans of each sequence: in the order of the text, or the k most probable."""
    owners = _owners(found.starts, offsets)
    by = [found.types, found.ends, found.starts]
    order = np.lexsort(by if k is None else [*by, -found.probabilities, owners])
    out: list[list[ScoredSpan]] = [[] for _ in range(len(offsets) - 1)]
    owners, found = owners[order], found.only(order)
    shift = offsets[owners]
    columns = (owners, found.starts - shift, found.ends - shift, found.types, found.probabilities)
    for i, start, end, kind, probability in zip(*(c.tolist() for c in columns), strict=True):
        if k is None or len(out[i]) < k:
            out[i].append(ScoredSpan(start, end, types[kind], probability))
    return out


def _check_choice(candidates: Any, threshold: Any, k: Any) -> None:
    if candidates not in ("best", "all"):
        raise DataError(f'candidates are "best" or "all", not {candidates!r}')
    if k is not None:
        check_k(k)
    if threshold is not None and not (
        isinstance(threshold, int | float | np.number) and 0.0 <= threshold <= 1.0
    ):
        raise DataError(f"threshold = {threshold!r}; it is a probability, from 0 to 1")
    if candidates == "all" and threshold is None and k is None:
        raise DataError(
            'candidates="all" needs a threshold or a k: a sequence has a span for every two of '
            "its tokens and every type"
        )
