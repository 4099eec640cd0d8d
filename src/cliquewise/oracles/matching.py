"""Bipartite matchings: the best one, max-marginals of all pairs, and the k best.

Plain functions on a table of scores: a matching as a factor graph would need one factor over
all variables (no column twice), so that these are no methods of a graph.

The exp oracle is missing for a reason: the sum over all matchings is a permanent, which is
#P-hard (Proposition 14 of casimir).
"""

from __future__ import annotations

import heapq
from dataclasses import dataclass
from itertools import count
from typing import Any

import numpy as np

from cliquewise.errors import DataError, InfeasibleError, TooLargeError, UnsupportedError
from cliquewise.graph.sizes import EPSILON, LARGEST, largest_finite
from cliquewise.oracles.base import MAX_MEMORY
from cliquewise.oracles.results import Proved
from cliquewise.ragged import Floats, Ints


@dataclass(frozen=True)
class Matching(Proved):
    """Pairs of rows and columns.

    Attributes
    ----------
    columns : int array
        The column of every row; -1 for a row that is not matched.
    score : float
    rounding : float
        No matching scores higher by more: scores are relative to the largest of all.
    """

    columns: Ints
    score: float
    rounding: float = 0.0

    @property
    def pairs(self) -> list[tuple[int, int]]:
        """The matched rows and columns."""
        return [(i, int(c)) for i, c in enumerate(self.columns) if c >= 0]


@dataclass(frozen=True)
class MatchingMaxMarginals:
    """The best score with each decision made.

    Attributes
    ----------
    pairs : array (p, q)
        With row i matched to column j; ``-inf`` where impossible.
    rows, columns : arrays (p,), (q,)
        With the row, or the column, not matched.
    value : float
        The best score of all.
    rounding : float
        What rounding may have added to or taken from them.
    """

    pairs: Floats
    rows: Floats
    columns: Floats
    value: float
    rounding: float = 0.0


class Assignment:
    """An equivalent problem with every row assigned: ``scores`` is (p, m), p <= m.

    Column ``q + i`` means that row i stays alone (where that is allowed), and what a column
    scores alone is taken off its pairs and put into ``constant``. With more rows than columns,
    and no partial matchings, rows and columns change places.
    """

    def __init__(self, scores: Any, unmatched_rows: Any = None, unmatched_columns: Any = None):
        table = _table(scores)
        p, q = table.shape
        self.shape, self.constant = (p, q), 0.0
        self.is_partial = unmatched_rows is not None or unmatched_columns is not None
        self.is_transposed = not self.is_partial and p > q
        if self.is_transposed:
            table = table.T
        if self.is_partial:
            rows = _alone("unmatched_rows", unmatched_rows, p)
            columns = _alone("unmatched_columns", unmatched_columns, q)
            if not np.all(np.isfinite(columns)):
                raise DataError(
                    "unmatched_columns must be finite; to force columns, exchange rows and columns"
                )
            memory = 8.0 * p * (p + q)
            if memory > MAX_MEMORY:
                raise TooLargeError(
                    f"partial matchings of {p} rows and {q} columns need a table of "
                    f"{memory / 2**30:.3g} GiB (limit: {MAX_MEMORY / 2**30:g}); exchange rows and "
                    "columns, or cut the problem",
                    memory,
                )
            alone = np.full((p, p), -np.inf)
            np.fill_diagonal(alone, rows)
            table = np.concatenate([table - columns, alone], axis=1)
            self.constant = float(columns.sum())
        self.scores = np.ascontiguousarray(table)
        # Every row is assigned along a path of at most p + q sums, and its potentials add up.
        largest = max(largest_finite(self.scores), abs(self.constant))
        self.rounding = 8.0 * EPSILON * (p + q) ** 2 * largest

    def best(self, scores: Floats | None = None) -> tuple[Ints, float] | None:
        """Return the best assignment and its total without the constant; None if infeasible."""
        from scipy.optimize import linear_sum_assignment

        table = self.scores if scores is None else scores
        try:
            columns = linear_sum_assignment(table, maximize=True)[1].astype(np.int64)
        except ValueError as error:
            if "infeasible" in str(error):
                return None
            raise
        return columns, float(table[np.arange(len(table)), columns].sum())

    def solved(self) -> tuple[Ints, float]:
        """Return :meth:`best`; raise InfeasibleError if there is none."""
        best = self.best()
        if best is None:
            p, q = self.shape
            raise InfeasibleError(
                f"no matching of {p} rows and {q} columns is possible: too many pairs are -inf; "
                "allow partial matchings with unmatched_rows=0.0"
            )
        return best

    def max_marginals(self, columns: Ints, value: float, scores: Floats) -> tuple[Floats, Floats]:
        """Return the totals with each row in each column, and with each column free."""
        from cliquewise._kernels.graphs.matching import assignment_max_marginals

        pairs, spared = np.empty_like(scores), np.empty(scores.shape[1])
        assignment_max_marginals(scores, columns, value, pairs, spared)
        return pairs, spared

    def matching(self, columns: Ints, value: float) -> Matching:
        """Translate an assignment to the matrix of the caller."""
        if self.is_transposed:
            own = np.full(self.shape[0], -1, dtype=np.int64)
            own[columns] = np.arange(self.shape[1])
        else:
            own = np.where(columns < self.shape[1], columns, -1)
        return Matching(own, value + self.constant, self.rounding)


def _table(scores: Any) -> Floats:
    try:
        table = np.asarray(scores, dtype=np.float64)
    except (TypeError, ValueError) as error:
        raise DataError(f"scores must be a table of numbers ({error})") from None
    if table.ndim != 2:
        raise DataError(f"scores must be a table (rows, columns), not {table.ndim}-dimensional")
    if not largest_finite(table) <= LARGEST:
        raise DataError(
            f"scores must be numbers up to {LARGEST:g} or -inf (a pair that cannot be), not NaN "
            "or inf"
        )
    return table


def _alone(name: str, given: Any, n: int) -> Floats:
    values = np.asarray(0.0 if given is None else given, dtype=np.float64)
    if values.ndim > 1 or (values.ndim == 1 and len(values) != n):
        raise DataError(f"{name} must be a number or {n} numbers, not of shape {values.shape}")
    if not largest_finite(values) <= LARGEST:
        raise DataError(f"{name} must be numbers up to {LARGEST:g} or -inf, not NaN or inf")
    return np.broadcast_to(values, (n,))


def max_matching(
    scores: Any, unmatched_rows: Any = None, unmatched_columns: Any = None
) -> Matching:
    """Return the matching with the greatest sum of scores.

    Parameters
    ----------
    scores : array (p, q)
        Of pairs; ``-inf`` for one that cannot be.
    unmatched_rows, unmatched_columns : float or array, optional
        Score of a row (p) or a column (q) that is not matched. If either is given, matchings may
        be partial (the other is 0); if not, all of the smaller side is matched.

    Raises
    ------
    InfeasibleError
        If there is no such matching.

    Examples
    --------
    >>> max_matching([[3.0, 2.0], [2.0, 0.0]]).pairs
    [(0, 1), (1, 0)]
    >>> max_matching([[3.0, -2.0], [2.0, -1.0]], unmatched_rows=0.0).pairs
    [(0, 0)]
    """
    problem = Assignment(scores, unmatched_rows, unmatched_columns)
    return problem.matching(*problem.solved())


def matching_max_marginals(
    scores: Any, unmatched_rows: Any = None, unmatched_columns: Any = None
) -> MatchingMaxMarginals:
    """Return the best score with each pair matched, from one assignment and shortest paths.

    That is O(p^3) in all, where an assignment per pair would cost O(p^5).

    Parameters
    ----------
    scores, unmatched_rows, unmatched_columns
        As in :func:`max_matching`.

    Examples
    --------
    >>> matching_max_marginals([[3.0, 2.0], [2.0, 0.0]]).pairs
    array([[3., 4.],
           [4., 3.]])
    """
    problem = Assignment(scores, unmatched_rows, unmatched_columns)
    best = problem.solved()
    pairs, spared = problem.max_marginals(*best, problem.scores)
    pairs, spared = pairs + problem.constant, spared + problem.constant
    p, q = problem.shape
    value = best[1] + problem.constant
    if problem.is_transposed:
        none = np.full(q, -np.inf)
        return MatchingMaxMarginals(pairs.T, spared, none, value, problem.rounding)
    rows = np.diagonal(pairs[:, q:]).copy() if problem.is_partial else np.full(p, -np.inf)
    return MatchingMaxMarginals(pairs[:, :q], rows, spared[:q], value, problem.rounding)


class _Set:
    """The matchings with some pairs and without others, and the best of them."""

    def __init__(
        self, problem: Assignment, fixed: tuple[tuple[int, int], ...],
        banned: tuple[tuple[int, int], ...], best: tuple[Ints, float] | None = None,
    ):  # fmt: skip
        self.problem, self.fixed, self.banned = problem, fixed, banned
        found = problem.best(self.scores()) if best is None else best
        assert found is not None  # a set is only made where a max-marginal is finite
        self.columns, self.value = found

    def scores(self) -> Floats:
        """Return the scores with -inf for excluded pairs."""
        table = self.problem.scores.copy()
        for i, c in self.fixed:
            kept = table[i, c]
            table[i] = -np.inf
            table[i, c] = kept
        for i, c in self.banned:
            table[i, c] = -np.inf
        return table

    def look_ahead(self) -> None:
        """Return the best score of the other matchings, and a pair that only they contain."""
        pairs, _ = self.problem.max_marginals(self.columns, self.value, self.scores())
        pairs[np.arange(len(pairs)), self.columns] = -np.inf
        at = int(np.argmax(pairs))
        self.second = float(pairs.flat[at])
        self.entry = at // pairs.shape[1], at % pairs.shape[1]

    def split(self) -> _Set:
        """Split off the matchings that contain the pair."""
        new = _Set(self.problem, (*self.fixed, self.entry), self.banned)
        self.banned = (*self.banned, self.entry)
        return new


def k_best_assignments(problem: Assignment, k: int) -> list[tuple[Ints, float]]:
    """Return the k best, or all, by splitting on max-marginals (Algorithm 10 of casimir)."""
    sets = [_Set(problem, (), (), problem.solved())]
    changed, numbers = [sets[0]], count()
    heap: list[tuple[float, int, _Set]] = []
    while len(sets) < k and problem.scores.size:
        for one in changed:
            one.look_ahead()
            if one.second > -np.inf:
                heapq.heappush(heap, (-one.second, next(numbers), one))
        if not heap:
            break
        top = heapq.heappop(heap)[2]
        changed = [top, top.split()]
        sets.append(changed[1])
    sets.sort(key=lambda one: -one.value)
    return [(one.columns, one.value) for one in sets]


def top_k_matchings(
    scores: Any, k: int, unmatched_rows: Any = None, unmatched_columns: Any = None
) -> list[Matching]:
    """Return the k best matchings, best first.

    Parameters
    ----------
    scores, unmatched_rows, unmatched_columns
        As in :func:`max_matching`.
    k : int
        Fewer are returned if there are fewer.

    Examples
    --------
    >>> [m.score for m in top_k_matchings([[3.0, 2.0], [2.0, 0.0]], 5)]
    [4.0, 3.0]
    """
    check_k(k)
    problem = Assignment(scores, unmatched_rows, unmatched_columns)
    return [problem.matching(*found) for found in k_best_assignments(problem, k)]


def check_k(k: Any) -> None:
    """Return k as a positive integer, or raise an error."""
    if isinstance(k, bool) or not isinstance(k, int | np.integer) or k < 1:
        raise DataError(f"k = {k!r}; it must be a whole number, at least 1")


def no_exp_oracle() -> UnsupportedError:
    """Return the error for probabilities of matchings, which are not supported."""
    return UnsupportedError(
        "the sum over all matchings is a permanent, which is #P-hard: there is no exp oracle, no "
        "log-likelihood and no entropy smoothing; use the hinge loss, or smooth with top-K"
    )
