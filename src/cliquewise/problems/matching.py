"""MatchingProblem: learn to match rows with columns."""

from __future__ import annotations

from collections.abc import Iterator
from functools import cached_property
from typing import Any

import numpy as np

from cliquewise.errors import DataError
from cliquewise.models.matching import MatchingModel, PairTables
from cliquewise.oracles.matching import Assignment, k_best_assignments, no_exp_oracle
from cliquewise.problems.base import check_weights
from cliquewise.problems.examples import ExampleProblem, Rows, stacked
from cliquewise.ragged import Floats, Ints


class MatchingProblem(ExampleProblem):
    """Structured hinge loss over matchings, with an L2 penalty.

    Parameters
    ----------
    model : MatchingModel
    data : PairTables
    truth : list of int arrays
        The column of every row of every example; -1 for none.
    C, loss, n_jobs
        As in :class:`ExampleProblem`.
    cost_missing, cost_wrong : float, default=1.0
        What a true pair costs that is not matched, and a matched pair that is not true.
    sample_weight : array (n,), optional

    Examples
    --------
    >>> data = PairTables.from_examples([np.eye(2)[:, :, None]])
    >>> problem = MatchingProblem(MatchingModel(1), data, [np.array([0, 1])])
    >>> problem.losses(np.zeros(2))              # two pairs missing, two wrong
    array([4.])
    """

    kind = "matching"

    def __init__(
        self,
        model: MatchingModel,
        data: PairTables,
        truth: list[Ints],
        C: float = 1.0,
        loss: str = "hinge",
        n_jobs: int = 1,
        cost_missing: float = 1.0,
        cost_wrong: float = 1.0,
        sample_weight: Any = None,
    ):
        if loss in ("log", "softmax_margin"):
            raise no_exp_oracle()
        super().__init__(len(data), model.dimension, C, loss, n_jobs)
        if not (
            np.isfinite([cost_missing, cost_wrong]).all() and min(cost_missing, cost_wrong) >= 0
        ):
            raise DataError(
                f"cost_missing = {cost_missing}, cost_wrong = {cost_wrong}; "
                "both must be numbers that are not negative"
            )
        self.model, self.data = model, data
        self.truth = check_truth(truth, data.shapes, model.is_partial)
        self.costs = float(cost_missing), float(cost_wrong)
        self.weights = check_weights(sample_weight, len(data))
        self.true_pairs = [_pairs(t, int(q)) for t, q in zip(self.truth, data.shapes[:, 1])]

    # ---- one example

    def _table(self, scores: Floats, i: int) -> tuple[Floats, float]:
        """Scores plus costs of the pairs of example i, and what is added to their sum."""
        missing, wrong = self.costs
        true = self.true_pairs[i]
        constant = missing * len(true) - float(scores[true].sum())
        table = scores + wrong
        table[true] = scores[true] - missing
        return table.reshape(self.data.shapes[i]), constant

    def _best(self, scores: Floats, i: int, k: int) -> tuple[Floats, list[Ints]]:
        """Psi of the k best matchings, and their columns."""
        table, constant = self._table(scores, i)
        problem = Assignment(table, self.model.alone)
        found = [problem.matching(*one) for one in k_best_assignments(problem, k)]
        psi = self.weights[i] * np.array([m.score + constant for m in found])
        return psi, [m.columns for m in found]

    def _row(self, i: int, columns: Ints) -> tuple[Ints, Floats]:
        """Features of a matching less those of the truth: only the pairs that differ count."""
        own, true = _pairs(columns, int(self.data.shapes[i, 1])), self.true_pairs[i]
        new, old = np.setdiff1d(own, true), np.setdiff1d(true, own)
        rows = self.data.offsets[i] + np.concatenate([new, old])
        if not len(rows):
            return np.empty(0, dtype=np.int64), np.empty(0)
        factors = self.weights[i] * np.repeat([1.0, -1.0], [len(new), len(old)])
        return self.model.combination(self.data, rows, factors)

    def top_k(self, w: Floats, i: int, k: int) -> tuple[Floats, Rows]:
        """The k best matchings."""
        return self._top_k(self.model.potentials(w, self.data, i, i + 1), i, k)

    def _top_k(self, scores: Floats, i: int, k: int) -> tuple[Floats, Rows]:
        psi, matchings = self._best(scores, i, k)
        return psi, stacked([self._row(i, columns) for columns in matchings])

    @property
    def row_entries(self) -> float:
        """Those of two matchings."""
        pairs = float(self.data.shapes.min(axis=1).mean()) if self.n_examples else 0.0
        return min(2 * pairs * self.data.features.row_entries, float(self.dimension))

    @cached_property
    def reach(self) -> Floats:
        """By weight: the sum of all pairs' |features|, twice."""
        each = np.repeat(self.weights, np.diff(self.data.offsets))
        constant = [each.sum()] if self.model.intercept else []
        return 2.0 * np.append(self.data.features.sizes(each), constant)

    @property
    def roundings(self) -> float:
        """Also those of a sum over the pairs of a matching, and of its dual."""
        return super().roundings + 8.0 * float(self.data.shapes.max(initial=0))

    def fingerprint_parts(self, n: int) -> Iterator[tuple[str, Any]]:
        """Pairs (by a random projection), costs, truths and weights."""
        yield "features", self.data.shapes[:n]
        probe = np.random.default_rng(0).normal(size=self.dimension)
        yield "features", self.model.potentials(probe, self.data, 0, n)
        yield "constraints", np.array([self.model.is_partial])
        for columns in self.truth[:n]:
            yield "labels", columns
        yield "weights", self.weights[:n]
        yield "costs", np.array(self.costs)

    # ---- all examples

    def top_k_all(self, w: Floats, k: int) -> list[tuple[Floats, Rows]]:
        """The k best matchings of every example; the scores are made all at once."""
        scores, o = self.model.potentials(w, self.data), self.data.offsets

        def part(first: int, last: int) -> list[tuple[Floats, Rows]]:
            return [self._top_k(scores[o[i] : o[i + 1]], i, k) for i in range(first, last)]

        return [found for several in self.over_examples(part) for found in several]

    def losses(self, w: Floats) -> Floats:
        """Exact loss of every example."""
        scores, o = self.model.potentials(w, self.data), self.data.offsets

        def part(first: int, last: int) -> Floats:
            best = [self._best(scores[o[i] : o[i + 1]], i, 1)[0][0] for i in range(first, last)]
            return np.array(best, dtype=np.float64)

        return np.concatenate(self.over_examples(part))

    def exp(self, w: Floats, i: int, mu: float = 1.0) -> tuple[float, float, Rows]:
        """Refused: it is a permanent."""
        raise no_exp_oracle()


def _pairs(columns: Ints, n_columns: int) -> Ints:
    """Positions of the matched pairs in a flat table."""
    rows = np.flatnonzero(columns >= 0)
    return np.asarray(rows * n_columns + columns[rows], dtype=np.int64)


def check_truth(truth: Any, shapes: Ints, is_partial: bool) -> list[Ints]:
    """Every truth is a matching of its example, and a complete one unless partial ones are."""
    if len(truth) != len(shapes):
        raise DataError(f"{len(shapes)} examples and {len(truth)} matchings")
    out = []
    for i, (given, (p, q)) in enumerate(zip(truth, shapes.tolist(), strict=True)):
        columns = np.asarray(given, dtype=np.int64)
        if columns.shape != (p,):
            raise DataError(f"example {i} has {p} rows, and its matching {columns.shape} columns")
        own = columns[columns >= 0]
        if len(own) and own.max() >= q:
            raise DataError(f"example {i}: column {own.max()} is not in 0..{q - 1}")
        if len(np.unique(own)) < len(own):
            twice = int(np.argmax(np.bincount(own)))
            raise DataError(f"example {i}: column {twice} is matched twice; it may have one row")
        if not is_partial and len(own) < min(p, q):
            raise DataError(
                f"example {i}: {len(own)} of {min(p, q)} possible pairs are matched; "
                "use partial=True where matchings may be partial"
            )
        out.append(np.where(columns >= 0, columns, -1))
    return out
