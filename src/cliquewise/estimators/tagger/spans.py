"""Spans that a fitted chain predicts, and the probabilities of these and of others."""

from __future__ import annotations

from collections.abc import Callable
from functools import cached_property
from typing import Any

import numpy as np

from cliquewise.data.dataset import Dataset
from cliquewise.data.spans import SpanLabels, read_spans
from cliquewise.errors import DataError
from cliquewise.estimators.tagger.chain_tagger import ChainPrediction
from cliquewise.estimators.tagger.tables import as_spans, takes_tables
from cliquewise.oracles._chain_spans import (
    Chains,
    Found,
    check_choice,
    listed,
    score_spans,
    search_spans,
    span_rules,
)
from cliquewise.ragged import Floats, Ints

Check = Callable[[Floats], None]


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
        return span_rules(self._span_labels)

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
        check_choice(candidates, threshold, k)
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
        return listed(found, data.offsets, types, k)

    def _scored(self, data: Dataset) -> Found:
        """The spans of the best labelings, with probabilities."""
        labels, rules = self._span_labels, self._span_rules

        def block(chains: Chains, first: int, check: Check) -> Found:
            best = np.empty(len(chains.nodes), dtype=np.int64)
            self._best_of_block(*chains, best, first)
            return score_spans(chains, rules, labels.read(best, chains.offsets), check)

        return self._of_blocks(data, block)

    def _searched(self, data: Dataset, threshold: float, k: int | None) -> Found:
        """All spans above the threshold, or as many as have the k most probable among them."""
        rules, most = self._span_rules, (self.max_memory, "max_memory = ")

        def block(chains: Chains, first: int, check: Check) -> Found:
            return search_spans(chains, rules, threshold, k, check, most)

        return self._of_blocks(data, block)

    def _of_blocks(self, data: Dataset, block: Callable[[Chains, int, Check], Found]) -> Found:
        """The spans of all blocks, among all tokens."""
        found: list[Found] = []

        def work(nodes: Floats, offsets: Ints, trans: Floats, first: int, last: int) -> None:
            chains = Chains(nodes, offsets, trans)
            part = block(chains, first, lambda log_z: self._check_probable(log_z, first))
            found.append(part.moved(data.offsets[first]))

        self._each_block(data, work)
        return Found.joined(found)
