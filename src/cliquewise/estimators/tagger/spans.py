"""Spans that a fitted chain predicts, and their probabilities."""

from __future__ import annotations

from collections.abc import Callable
from functools import lru_cache
from typing import TYPE_CHECKING, Any

import numpy as np

from cliquewise.data.dataset import Dataset
from cliquewise.data.spans import SpanLabels, read_spans
from cliquewise.errors import DataError
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

if TYPE_CHECKING:
    from cliquewise.estimators.tagger.chain_tagger import ChainTagger

__all__ = ["check_choice", "listed", "read_spans", "score_best", "search", "span_labels"]

#: Raises an error if a log partition function of a block cannot be trusted.
Check = Callable[[Floats], None]


@lru_cache(maxsize=8)
def span_labels(classes: tuple[Any, ...]) -> SpanLabels:
    """Return the classes as prefixes and types; raise an error if they do not encode spans."""
    try:
        return SpanLabels.of(list(classes))
    except DataError as error:
        raise DataError(f"predict_spans reads spans from labels, and {error}") from None


@lru_cache(maxsize=8)
def _rules(classes: tuple[Any, ...]) -> Any:
    """Return the same in the form of the kernels."""
    return span_rules(span_labels(classes))


def score_best(chain: ChainTagger, data: Dataset) -> Found:
    """Return the spans of the best labelings, with probabilities."""
    classes = tuple(chain.classes_)
    labels, rules = span_labels(classes), _rules(classes)

    def block(chains: Chains, first: int, check: Check) -> Found:
        best = np.empty(len(chains.nodes), dtype=np.int64)
        chain.decode_block(*chains, best, first)
        return score_spans(chains, rules, labels.read(best, chains.offsets), check)

    return _over_blocks(chain, data, block)


def search(chain: ChainTagger, data: Dataset, threshold: float, k: int | None) -> Found:
    """Return all spans above the threshold, or enough to include the k most probable ones."""
    rules, limit = _rules(tuple(chain.classes_)), (chain.max_memory, "max_memory = ")

    def block(chains: Chains, first: int, check: Check) -> Found:
        return search_spans(chains, rules, threshold, k, check, limit)

    return _over_blocks(chain, data, block)


def _over_blocks(
    chain: ChainTagger, data: Dataset, block: Callable[[Chains, int, Check], Found]
) -> Found:
    """Return the spans of all blocks, with token numbers that count from the first sequence."""
    found: list[Found] = []

    def work(nodes: Floats, offsets: Ints, trans: Floats, first: int, last: int) -> None:
        chains = Chains(nodes, offsets, trans)
        part = block(chains, first, lambda log_z: chain.check_resolved(log_z, first))
        found.append(part.moved(data.offsets[first]))

    chain.for_each_block(data, work)
    return Found.joined(found)
