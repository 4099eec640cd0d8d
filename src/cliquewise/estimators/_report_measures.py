"""Kinds of span errors, bootstrap intervals and calibration errors for reports."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from cliquewise.data.spans import SpanLabels
from cliquewise.data.value_index import ValueIndex
from cliquewise.errors import DataError
from cliquewise.ragged import Floats, Ints

#: Outcomes of a span, in the order of their numbers.
KINDS = ("correct", "type", "boundary", "type and boundary", "missed", "spurious")
CORRECT, TYPE, BOUNDARY, BOTH, MISSED, INVENTED = range(6)

#: Number of bootstrap resamples, and the number that is computed at once.
RESAMPLES, RESAMPLES_AT_ONCE = 1000, 50


class Spans(NamedTuple):
    """True and predicted spans: first token, end, type and kind of error of each."""

    types: list[str]
    true: Ints  # rows of (first, end, type, kind)
    own: Ints
    #: Matched pairs (true span, predicted span); -1 for none.
    pairs: Ints

    @classmethod
    def of(cls, truth: list[Any], predicted: list[Any], offsets: Ints) -> Spans | None:
        """Return the spans of labels of all tokens; None if the labels are not those of spans."""
        index = ValueIndex()
        numbers = [index.numbers(labels) for labels in (truth, predicted)]
        try:
            labels = SpanLabels.of(list(index))
        except DataError:
            return None
        found = [labels.read(own, offsets) for own in numbers]
        true, own = (np.stack([*places, np.zeros_like(places.starts)], axis=1) for places in found)
        return cls(labels.types, true, own, _compare(true, own))


def _compare(true: Ints, own: Ints) -> Ints:
    """Set the kinds of errors in place; return the matched pairs of spans.

    A true span is matched with the predicted one that is nearest to it: the same, the same tokens,
    the same type, or any that overlaps. A predicted span that overlaps none is spurious.
    """
    pairs, at = [], 0
    touched = np.zeros(len(own), dtype=bool)
    own[:, 3] = INVENTED
    for i, (first, end, kind, _) in enumerate(true.tolist()):
        while at < len(own) and own[at, 1] <= first:
            at += 1
        best, match, j = MISSED, -1, at
        while j < len(own) and own[j, 0] < end:
            same = own[j, 0] == first and own[j, 1] == end
            alike = own[j, 2] == kind
            found = (CORRECT if alike else TYPE) if same else (BOUNDARY if alike else BOTH)
            if found < best:
                best, match = found, j
            touched[j] = True
            own[j, 3] = min(own[j, 3], found)
            j += 1
        true[i, 3] = best
        pairs.append((i, match))
    pairs += [(-1, int(j)) for j in np.flatnonzero(~touched)]
    return np.array(pairs, dtype=np.int64).reshape(-1, 2)


def span_counts(spans: Spans, offsets: Ints) -> Ints:
    """Return the numbers of true, predicted and correct spans, (sequences, types, 3)."""
    n, k = len(offsets) - 1, len(spans.types)
    out = np.zeros((n, k, 3), dtype=np.int64)
    right = spans.true[spans.true[:, 3] == CORRECT]
    for column, rows in enumerate((spans.true, spans.own, right)):
        sequence = np.searchsorted(offsets, rows[:, 0], side="right") - 1
        np.add.at(out, (sequence, rows[:, 2], column), 1)
    return out


def bootstrap(counts: Any, random_state: int = 0) -> Floats:
    """Return sums over rows (sequences) sampled with replacement, one per resample.

    Examples
    --------
    >>> import numpy as np
    >>> bootstrap(np.ones((5, 2))).shape
    (1000, 2)
    """
    rng = np.random.default_rng(random_state)
    flat = np.asarray(counts, dtype=np.float64).reshape(len(counts), -1)
    n = len(flat)
    out = np.empty((RESAMPLES, flat.shape[1]))
    for first in range(0, RESAMPLES, RESAMPLES_AT_ONCE):
        drawn = rng.integers(0, max(n, 1), size=(RESAMPLES_AT_ONCE, n))
        times = np.stack([np.bincount(row, minlength=n) for row in drawn])
        out[first : first + RESAMPLES_AT_ONCE] = times @ flat
    return out.reshape(RESAMPLES, *np.shape(counts)[1:])


def interval(value: float, draws: Floats) -> list[float]:
    """Return a value and its central 95 % bootstrap interval, with four digits."""
    low, high = np.quantile(draws, [0.025, 0.975]) if len(draws) else (value, value)
    return [round(float(v), 4) for v in (value, low, high)]


def ratios(counts: Any) -> tuple[Floats, Floats, Floats]:
    """Return precision, recall and F1 from counts (..., 3) of true, predicted and correct.

    Ratios with denominator 0 are 0.
    """
    true, own, right = (np.asarray(counts)[..., i] for i in range(3))
    return (
        right / np.maximum(own, 1),
        right / np.maximum(true, 1),
        2.0 * right / np.maximum(true + own, 1),
    )


def calibration(
    probability: Floats, right: NDArray[np.bool_], n_bins: int = 10
) -> tuple[list[list[float]], float]:
    """Return bins (mean probability, share right, count) and the expected calibration error.

    Examples
    --------
    >>> import numpy as np
    >>> calibration(np.array([0.75, 0.75]), np.array([True, False]))
    ([[0.75, 0.5, 2]], 0.25)
    """
    at = np.minimum((probability * n_bins).astype(np.int64), n_bins - 1)
    counts = np.bincount(at, minlength=n_bins)
    means = np.bincount(at, probability, n_bins) / np.maximum(counts, 1)
    shares = np.bincount(at, right, n_bins) / np.maximum(counts, 1)
    error = float(np.abs(means - shares) @ counts / max(len(at), 1))
    bins = [[float(means[b]), float(shares[b]), int(counts[b])] for b in range(n_bins) if counts[b]]
    return bins, error
