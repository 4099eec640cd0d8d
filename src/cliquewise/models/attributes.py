"""Constant attributes of tokens, and the label pairs and transitions seen in data."""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np
from numpy.typing import NDArray

from cliquewise.data.dataset import Dataset
from cliquewise.errors import DataError
from cliquewise.ragged import Ints, offsets_of


def augment(data: Dataset, intercept: bool, boundaries: bool) -> Dataset:
    """Add the constant attributes: one on every token, one on the first, one on the last."""
    if not intercept and not boundaries:
        return data
    n = data.n_tokens
    filled = np.flatnonzero(data.lengths > 0)
    first, last = np.zeros(n, dtype=bool), np.zeros(n, dtype=bool)
    first[data.offsets[filled]] = True
    last[data.offsets[filled + 1] - 1] = True
    flags = ([np.ones(n, dtype=bool)] if intercept else []) + ([first, last] if boundaries else [])
    extra = np.sum(flags, axis=0, dtype=np.int64)
    indptr = data.indptr + offsets_of(extra)
    moved = np.repeat(indptr[:-1] - data.indptr[:-1], np.diff(data.indptr))
    indices = np.empty(int(indptr[-1]), dtype=np.int32)
    indices[np.arange(len(data.indices)) + moved] = data.indices
    values = None
    if data.values is not None:
        values = np.ones(len(indices))
        values[np.arange(len(data.indices)) + moved] = data.values
    place = indptr[:-1] + np.diff(data.indptr)
    for number, flag in enumerate(flags):
        indices[place[flag]] = data.n_features + number
        place = place + flag
    return Dataset.trusted(
        data.offsets, indptr, indices, values, data.n_features + len(flags),
        data.labels, data.allowed, data.weights, data.edges, data.costs,
    )  # fmt: skip


def seen_transitions(parts: Iterable[Dataset], n_labels: int) -> NDArray[np.bool_]:
    """Return a (K, K) mask of the transitions seen in the data."""
    seen = np.zeros((n_labels, n_labels), dtype=bool)
    for data in parts:
        assert data.labels is not None
        at = data.followers
        before, after = data.labels[at - 1], data.labels[at]
        known = (before >= 0) & (after >= 0)
        seen[before[known], after[known]] = True
    return seen


def label_pairs(
    parts: Iterable[Dataset], n_features: int, n_labels: int, feature_pairs: str
) -> tuple[Ints, NDArray[np.int32]]:
    """Return the labels with a weight for each attribute, as offsets and labels; empty for all."""
    if feature_pairs == "all":
        return np.empty(0, dtype=np.int64), np.empty(0, dtype=np.int32)
    if feature_pairs != "seen":
        raise DataError(f'feature_pairs is "all" or "seen", not {feature_pairs!r}')
    codes = np.empty(0, dtype=np.int64)
    cells = n_features * n_labels
    present = np.zeros(cells if cells <= 1 << 28 else 0, dtype=bool)
    for data in parts:
        assert data.labels is not None
        label = np.repeat(data.labels, np.diff(data.indptr))
        own = data.indices.astype(np.int64) * n_labels + label
        own = own[label >= 0]
        if len(present):
            present[own] = True
        else:
            codes = np.union1d(codes, own)
    if len(present):
        codes = np.flatnonzero(present)
    counts = np.bincount(codes // n_labels, minlength=n_features)
    start = offsets_of(counts)
    return start, (codes % n_labels).astype(np.int32)
