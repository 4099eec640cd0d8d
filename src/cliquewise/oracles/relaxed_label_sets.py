"""Inference on the local polytope for many labels that all interact, one active set per row.

Memory and time grow with the labels that are on or nearly so, and not with the pairs of labels.
GDMM trains with the same sweeps, moving the weights along.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from scipy.sparse import csr_matrix

from cliquewise.errors import PrecisionError
from cliquewise.models.label_sets import feature_rows, unpack_weights
from cliquewise.ragged import Floats, Ints

#: Rounds of multipliers, labels and pairs at one visit of a row: they are cheap beside the
#: scores of all labels.
ROUNDS = 8
#: A label joins a row if its violation is at least this share of the largest one.
SHARE = 0.3
#: Sweeps between two looks at the gap.
SWEEPS = 5
#: Labels that may join a row at one visit.
MOST = 32


def relaxed_labels(
    X: csr_matrix,
    w: Floats,
    n_labels: int,
    *,
    intercept: bool = True,
    tol: float = 1e-3,
    max_sweeps: int = 200,
) -> tuple[Floats, float]:
    """Beliefs that every label is on, by the linear programming relaxation.

    Parameters
    ----------
    X : csr_matrix (n, d)
    w : array
        Weights of a complete co-occurrence model, as ``MultiLabelClassifier.coef_``.
    n_labels : int
    intercept : bool, default=True
    tol : float, default=1e-3
        Stop at this gap of a row's score, in the mean.
    max_sweeps : int, default=200

    Returns
    -------
    beliefs : array (n, n_labels)
    gap : float
        The mean gap that was reached.

    Examples
    --------
    >>> w = np.array([-1.0, 1.0, 0.5, -0.5, 3.0])       # alone the second stays off
    >>> relaxed_labels(csr_matrix([[1.0]]), w, 2, intercept=False)[0].round(2).tolist()
    [[1.0, 1.0]]
    """
    none = csr_matrix((X.shape[0], n_labels))
    rows = feature_rows(X, intercept)
    size = len(w) - n_labels * (n_labels - 1) // 2
    U, V = unpack_weights(w, n_labels, size // (2 * n_labels))
    sets, beliefs, lower, upper = relaxed_sets(rows, U, V, none, 0.0, tol, max_sweeps)
    out = np.zeros((X.shape[0], n_labels))
    counts = sets.count[:, 0]
    at = np.repeat(sets.start[:, 0] - np.cumsum(counts) + counts, counts)
    at = at + np.arange(int(counts.sum()))
    out[np.repeat(np.arange(len(counts)), counts), sets.label[at]] = beliefs[at]
    return out, (upper - lower) / max(len(out), 1)


class RelaxedSets(NamedTuple):
    """Active sets, beliefs of their labels, and bounds of the sum over all rows."""

    sets: Any
    beliefs: Floats
    lower: float
    upper: float


def relaxed_sets(
    rows: Any, U: Floats, V: Floats, Y: csr_matrix, cost: float, tol: float, max_sweeps: int
) -> RelaxedSets:
    """Relaxed maximum of every row at fixed weights, with a cost for each label not as in ``Y``."""
    from cliquewise._kernels.label_sets.bounds import background, loss_bound, value_of_sets
    from cliquewise._kernels.label_sets.search import Plan
    from cliquewise._kernels.label_sets.steps import start_at_truth

    n, n_labels = Y.shape
    weights = empty_weights(0, n_labels)._replace(U=U, V=V)
    background(weights)
    pairs = np.abs(V[V != 0])
    rho = 0.5 * max(float(pairs.mean()) if len(pairs) else 0.0, 1e-3)
    sets = empty_sets(np.diff(Y.indptr))
    start_at_truth(sets, Y.indptr.astype(np.int64), Y.indices.astype(np.int64))
    still = np.arange(n)  # rows of which the gap is open: each stops by itself
    upper, lower, alarms = np.zeros(n), np.zeros(n), np.zeros(n_labels)
    beliefs = np.zeros(len(sets.p))
    for done in range(1, max_sweeps + 1):
        plan = Plan(0.0, rho, rho, cost, ROUNDS, SHARE, 1e-12, MOST, 0, 1, done > SWEEPS)
        seed = np.array([done], dtype=np.uint64)
        sets, _, _ = sweep(rows, weights, plan, sets, still, seed)
        if done % SWEEPS == 0 or done == max_sweeps:
            beliefs = np.zeros(len(sets.p))
            loss_bound(rows, weights, plan, sets, upper, alarms)
            value_of_sets(rows, weights, sets, 1.0, cost, beliefs, lower)
            _check_range(lower, upper)
            still = np.flatnonzero(upper - lower > tol)
            if not len(still):
                break
    return RelaxedSets(sets, beliefs, float(lower.sum()), float(upper.sum()))


def _check_range(lower: Floats, upper: Floats) -> None:
    wrong = ~(np.isfinite(lower) & np.isfinite(upper))
    if wrong.any():
        raise PrecisionError(
            f"row {int(np.argmax(wrong))}: the scores of its labels leave the range of float64: "
            "scale the features, or train with more regularization"
        )


def sweep(
    rows: Any, weights: Any, plan: Any, sets: Any, order: Ints, seed: Any
) -> tuple[Any, int, float]:
    """Visit rows in the given order; the arenas of the sets grow whenever one is full.

    Returns the sets, the number of visits and ``||A mu||^2`` as it was met.
    """
    from cliquewise._kernels.label_sets.steps import greedy_sweep

    n = len(order)
    at, visits, apart = 0, 0, 0.0
    while at < n:
        at, more, far = greedy_sweep(rows, weights, plan, sets, order, at, seed)
        visits, apart = visits + more, apart + far
        if at < n:
            sets = _larger(sets, len(weights.S))
    return sets, visits, apart


def empty_weights(n_columns: int, n_labels: int) -> Any:
    """No weights."""
    from cliquewise._kernels.label_sets.search import Weights

    square = (n_labels, n_labels)
    return Weights(
        np.zeros((n_columns, n_labels)), np.zeros(square), np.zeros(n_labels),
        np.zeros(square, dtype=np.int32), np.zeros(n_labels, dtype=np.int64),
    )  # fmt: skip


def empty_sets(counts: Any) -> Any:
    """Arenas with room for so many labels per example and their pairs, and as much again."""
    from cliquewise._kernels.label_sets.search import Sets

    room = np.asarray(counts, dtype=np.int64)
    n = len(room)
    labels, pairs = 2 * int(room.sum()) + 64, int((room * (room - 1)).sum()) + 64
    return Sets(
        np.zeros((n, 2), dtype=np.int64), np.zeros((n, 2), dtype=np.int64),
        np.zeros((n, 2), dtype=np.int64), np.zeros(labels, dtype=np.int32),
        np.zeros(labels, dtype=np.bool_), np.zeros(labels), np.zeros((pairs, 2), dtype=np.int32),
        np.zeros((pairs, 5)), np.zeros(2, dtype=np.int64),
    )  # fmt: skip


def _larger(sets: Any, n_labels: int) -> Any:
    """The full one of the two arenas twice as large, or more if one example may ask for more."""
    labels, pairs = len(sets.p), len(sets.pairs)
    if sets.used[0] + 2 * n_labels + 64 > labels:
        more = labels + 4 * n_labels + 64
        sets = sets._replace(
            label=np.concatenate([sets.label, np.zeros(more, dtype=np.int32)]),
            truth=np.concatenate([sets.truth, np.zeros(more, dtype=np.bool_)]),
            p=np.concatenate([sets.p, np.zeros(more)]),
        )
    if sets.used[1] + 2 * int(sets.capacity[:, 1].max()) + 64 > pairs:
        more = pairs + 4 * int(sets.capacity[:, 1].max()) + 64
        sets = sets._replace(
            ends=np.concatenate([sets.ends, np.zeros((more, 2), dtype=np.int32)]),
            pairs=np.concatenate([sets.pairs, np.zeros((more, 5))]),
        )
    return sets
