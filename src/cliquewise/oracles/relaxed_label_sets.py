"""Inference on the local polytope for many labels that all interact, one active set per row.

The kernels of :mod:`cliquewise.solvers.gdmm_multilabel` with the weights held fixed: memory and
time grow with the labels that are on or near it, and not with the pairs of labels.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from scipy.sparse import csr_matrix

from cliquewise.graph.factor_graph import Floats
from cliquewise.problems.label_sets import MultiLabelProblem, feature_rows, unpack_weights
from cliquewise.solvers.gdmm_multilabel import (
    ROUNDS,
    SHARE,
    ActiveSets,
    empty_sets,
    empty_weights,
    sweep,
)

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
    state, gap, _, beliefs = _solve(rows, U, V, none, 0.0, tol, max_sweeps)
    out = np.zeros((X.shape[0], n_labels))
    sets = state.sets
    counts = sets.count[:, 0]
    at = np.repeat(sets.start[:, 0] - np.cumsum(counts) + counts, counts)
    at = at + np.arange(int(counts.sum()))
    out[np.repeat(np.arange(len(counts)), counts), sets.label[at]] = beliefs[at]
    return out, gap


def relaxed_primal(
    problem: MultiLabelProblem, w: Floats, *, tol: float = 1e-3, max_sweeps: int = 200
) -> tuple[float, float]:
    """Lower and upper bound of the relaxed objective at any weights.

    Examples
    --------
    >>> problem = MultiLabelProblem(csr_matrix([[1.0], [2.0]]), [[0, 1], [1, 1]])
    >>> relaxed_primal(problem, np.zeros(problem.dimension))
    (2.0, 2.0)
    """
    U, V = unpack_weights(w, problem.n_labels, problem.n_columns)
    U = np.ascontiguousarray(U[problem.used])
    _, _, bounds, _ = _solve(problem.rows, U, V, problem.Y, 1.0, tol, max_sweeps)
    norm = float(w @ w)
    return problem.value(norm, bounds[0]), problem.value(norm, bounds[1])


def _solve(
    rows: Any, U: Floats, V: Floats, Y: csr_matrix, cost: float, tol: float, max_sweeps: int
) -> tuple[ActiveSets, float, tuple[float, float], Floats]:
    """Active sets at fixed weights, the mean gap, both bounds of the sum, and beliefs."""
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
    state = ActiveSets(sets, weights, rho)
    rng = np.random.default_rng(0)
    upper, lower, alarms = np.zeros(n), np.zeros(n), np.zeros(n_labels)
    beliefs, gap = np.zeros(len(sets.p)), 0.0
    for done in range(1, max_sweeps + 1):
        plan = Plan(
            0.0, rho, rho, cost, ROUNDS, SHARE, 1e-12, MOST, 0, 1, done > SWEEPS
        )  # fmt: skip
        sweep(rows, plan, state, n, rng)
        if done % SWEEPS == 0 or done == max_sweeps:
            beliefs = np.zeros(len(state.sets.p))
            loss_bound(rows, weights, plan, state.sets, upper, alarms)
            value_of_sets(rows, weights, state.sets, 1.0, cost, beliefs, lower)
            gap = float((upper - lower).sum()) / max(n, 1)
            if gap <= tol:
                break
    return state, gap, (float(lower.sum()), float(upper.sum())), beliefs
