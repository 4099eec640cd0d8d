"""Spans of chains with tensor scores on any device, by the kernels of the package."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, TypeVar

import numpy as np
import torch

from cliquewise.data.spans import Places, SpanLabels
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
from cliquewise.oracles._rescaling import check_chains_resolved, level_chains
from cliquewise.ragged import Floats, Ints, offsets_of
from cliquewise.torch._numba import find_invalid_chains, flatten
from cliquewise.torch._scores import Scores, check_best_scores
from cliquewise.torch._tags import label_names
from cliquewise.torch.chain import decode

Spans = TypeVar("Spans", Places, Found)

#: Memory limit for the spans of one call, in GiB.
MOST = 8.0


def span_labels(labels: Sequence[str] | Mapping[int, str] | None, n_tags: int) -> SpanLabels:
    """Parse tag names into prefixes and types."""
    if labels is None:
        raise DataError(
            'predict_spans needs the names of the tags: pass labels=["O", "B-PER", ...], or create '
            "the layer with ChainCRF.from_scheme"
        )
    names = label_names(labels)
    if len(names) != n_tags:
        raise DataError(f"labels has {len(names)} names for {n_tags} tags")
    try:
        return SpanLabels.of(names)
    except DataError as error:
        raise DataError(f"predict_spans reads spans from labels, and {error}") from None


def find_spans(
    scores: Scores,
    labels: SpanLabels,
    proba: bool,
    candidates: str,
    threshold: float | None,
    k: int | None,
) -> list[list[Any]]:
    """Return the spans of every chain; positions count gaps. Needs one shared transition table."""
    check_choice(candidates, threshold, k)
    size, length = scores.nodes.shape[:2]
    mask = np.ones((size, length), dtype=np.bool_)
    if scores.mask is not None:
        mask = scores.mask.cpu().numpy()
    at, rows = np.flatnonzero(mask), length * np.arange(size + 1)
    if candidates == "best":
        value, best = decode(scores)
        check_best_scores(value)
        places = labels.read(best.cpu().numpy()[mask], offsets_of(mask.sum(1)))
        if not proba and threshold is None and k is None:
            return labels.named(_placed(places, at), rows)
        found = score_spans(_chains(scores), span_rules(labels), places, _check)
    else:
        least, rules = 0.0 if threshold is None else threshold, span_rules(labels)
        found = search_spans(_chains(scores), rules, least, k, _check, (MOST, ""))
    if threshold is not None:
        found = found.only(found.probabilities >= threshold)
    return listed(_placed(found, at), rows, labels.types, k)


def _chains(scores: Scores) -> Chains:
    """Return existing positions in float64 on the CPU, the only type of the kernels."""
    own = scores.each(lambda x: x.detach().cpu().double())
    mask = None if scores.mask is None else scores.mask.cpu()
    arrays = flatten(own._replace(mask=mask))
    bad = find_invalid_chains(arrays)
    if bad is not None:
        check_best_scores(torch.from_numpy(np.where(bad, np.nan, 0.0)))
    nodes, offsets, trans = arrays
    nodes, trans = level_chains(nodes, trans)
    return Chains(nodes, offsets, trans)


def _placed(spans: Spans, at: Ints) -> Spans:
    """Translate spans of existing positions to spans of all positions."""
    return spans._replace(starts=at[spans.starts], ends=at[spans.ends - 1] + 1)


def _check(log_z: Floats) -> None:
    check_best_scores(torch.from_numpy(log_z))
    check_chains_resolved(log_z)
