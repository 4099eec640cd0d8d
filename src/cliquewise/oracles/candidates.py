"""Lists of candidates: the best, the k best, and probabilities."""

from __future__ import annotations

from typing import Any

import numpy as np

from cliquewise.errors import DataError, InfeasibleError
from cliquewise.graph.sizes import LARGEST, largest_finite
from cliquewise.oracles.matching import check_k
from cliquewise.ragged import Floats, Ints


def top_k_candidates(scores: Any, k: int = 1) -> Ints:
    """Return the indices of the k best candidates, best first; ties in list order.

    Candidates of score ``-inf`` are impossible and never listed.

    Examples
    --------
    >>> top_k_candidates([0.5, 2.0, 1.0], 2)
    array([1, 2])
    """
    check_k(k)
    values = _scores(scores)
    if k == 1:
        return np.array([np.argmax(values)], dtype=np.int64)
    if k < len(values):
        # All that equal the k-th stay in the race, so that the first of them wins.
        least = -np.partition(-values, k - 1)[k - 1]
        at = np.flatnonzero(values >= least)
    else:
        at = np.arange(len(values))
    at = at[values[at] > -np.inf]
    return at[np.argsort(-values[at], kind="stable")][:k].astype(np.int64)


def candidate_marginals(scores: Any, temperature: float = 1.0) -> tuple[Floats, float]:
    """Return the softmax of the candidates, and ``temperature * log sum exp(s / t)``.

    Examples
    --------
    >>> probabilities, value = candidate_marginals([0.0, 0.0])
    >>> probabilities, round(value, 4)
    (array([0.5, 0.5]), 0.6931)
    """
    if not (np.isfinite(temperature) and temperature > 0):
        raise DataError(f"temperature = {temperature}; it must be a positive number")
    values = _scores(scores)
    high = values.max()
    weights = np.exp((values - high) / temperature)
    total = weights.sum()
    return weights / total, float(high + temperature * np.log(total))


def _scores(scores: Any) -> Floats:
    values = np.asarray(scores, dtype=np.float64)
    if values.ndim != 1 or len(values) == 0:
        raise DataError(f"scores must be a list of at least one number, not {values.shape}")
    if not largest_finite(values) <= LARGEST:
        raise DataError(f"scores must be numbers up to {LARGEST:g} or -inf, not NaN or inf")
    if values.max() == -np.inf:
        raise InfeasibleError("every candidate has score -inf")
    return values
