"""Matcher: match rows to columns, such as the words of two sentences."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from sklearn.utils.validation import check_is_fitted

from cliquewise.data.labels import Labelings
from cliquewise.errors import DataError, UnsupportedError, warn_user
from cliquewise.estimators._base import Estimator, rollback_on_error
from cliquewise.estimators._inputs import (
    bounded_k,
    check_sample_weight,
    listed,
    same_length,
    threads,
)
from cliquewise.estimators._stored import Arrays, Header, checked_weights
from cliquewise.estimators.parameters import MatcherParameters, check_integer
from cliquewise.estimators.results import Labeling
from cliquewise.metrics import pair_f1
from cliquewise.models.matching import MatchingModel, PairTables, row_and_column_choices
from cliquewise.oracles.matching import Assignment, k_best_assignments, max_matching
from cliquewise.problems.base import Problem
from cliquewise.problems.candidates import CandidateProblem
from cliquewise.problems.matching import MatchingProblem, check_truth
from cliquewise.ragged import Floats, Ints
from cliquewise.report.blocks import Block

#: Thresholds that are tried: quantiles of the scores of true pairs.
THRESHOLDS = 25


@dataclass(eq=False, repr=False)
class Matcher(MatcherParameters, Estimator):
    """Predict bipartite matchings with linear scores of pairs.

    Parameters
    ----------
    loss : {"auto", "pseudo_likelihood", "hinge"}, default="auto"
        ``pseudo_likelihood`` is the mean of two likelihoods: that of each row's column, and that
        of each column's row, where "none" is one more choice. (The normalizer of the likelihood
        of a whole matching is a permanent, which is intractable.) After training, ``threshold_``
        is set to maximize the F1 score of the training data; the certificate does not refer to
        it. ``hinge`` is the structured hinge loss, which predicts no pair at all if features do
        not separate true pairs from the best of many wrong ones. ``auto`` is
        ``pseudo_likelihood``, except with ``partial=False``, costs other than 1, an L1 part, or a
        solver by name, where it is ``hinge``.
    C : float, default=1.0
        Weight of the sum of the losses relative to the penalty, ``1/2 ||w||^2`` or, with
        ``l1_ratio``, an elastic net as in :class:`SequenceTagger` (not supported by
        the solvers of matchings).
    partial : bool, default=True
        Whether rows and columns may remain unmatched, at score 0; otherwise all of the smaller
        side is matched.
    intercept : bool, default=True
        Adds a constant weight to all pairs; with ``partial`` it sets the threshold of a match.
    cost_missing, cost_wrong : float, default=1.0
        Cost of a missing true pair, and of a wrong matched pair. A row with a wrong partner costs
        both. If true pairs are rare, raise ``cost_missing``.
    solver, tol, max_epochs, max_seconds, n_jobs, max_memory, random_state, verbose
        As in :class:`SequenceTagger`.

    Attributes
    ----------
    coef_ : ndarray
        One weight per feature, then the intercept.
    loss_ : str
        The loss that was minimized.
    threshold_ : float
        Pairs need a score above it; :meth:`decision_function` subtracts it.
    certificate_ : Certificate
    trace_ : Trace

    Examples
    --------
    Match numbers with the nearest ones; the feature of a pair is its distance.

    >>> import numpy as np
    >>> from cliquewise import Matcher
    >>> left, right = np.array([1.0, 5.0]), np.array([4.8, 1.1, 9.0])
    >>> X = [np.abs(left[:, None] - right)[:, :, None]]
    >>> matcher = Matcher(C=10.0, random_state=0).fit(X, [[1, 0]])
    >>> matcher.predict(X)
    [array([1, 0])]
    """

    @rollback_on_error
    def fit(self, X: Any, y: Any, sample_weight: Any = None) -> Matcher:
        """Train.

        Parameters
        ----------
        X : list of (p, q, d) arrays, or of lists of p CSR matrices (q, d)
            Features of the pairs of each example; p and q may differ from example to example.
        y : list of int arrays (p,), or of lists of (row, column) pairs
            The column of every row, -1 for none; or the matched pairs.
        sample_weight : array (n,), optional

        Returns
        -------
        self
        """
        self._check_parameters()
        examples, truths = same_length(X, y)
        data = PairTables.from_examples(examples)
        self._set(data.features.n_features)
        columns = _columns(truths, data.shapes)
        weights = check_sample_weight(sample_weight, len(data))
        self.loss_, self.threshold_ = self._chosen_loss(), 0.0
        problem: Problem = MatchingProblem(
            self.model_, data, columns, self.C, "hinge", threads(self.n_jobs), self.cost_missing,
            self.cost_wrong, weights,
        )  # fmt: skip
        if self.loss_ == "pseudo_likelihood":
            sets, truth = row_and_column_choices(data, columns, self.model_.intercept)
            each = np.repeat(0.5 * weights, data.shapes.sum(axis=1))
            problem = CandidateProblem(sets, truth, None, self.C, "log", threads(self.n_jobs), each)
        self.coef_ = self._train(problem).weights
        if self.loss_ == "pseudo_likelihood":
            self.threshold_ = self._best_threshold(data, columns, weights)
        self._warn_if_nothing_is_matched(data, truths)
        return self

    def _chosen_loss(self) -> str:
        """Return the loss to minimize, after a check that it is supported."""
        costs = self.cost_missing != 1 or self.cost_wrong != 1
        if self.loss == "pseudo_likelihood" and (costs or not self.partial):
            raise UnsupportedError(
                'loss="pseudo_likelihood" needs partial=True, and has no costs; use loss="hinge"'
            )
        by_name = not (isinstance(self.solver, str) and self.solver == "auto")
        if self.loss != "auto":
            return self.loss
        hinge = costs or not self.partial or self.l1_ratio > 0 or by_name
        return "hinge" if hinge else "pseudo_likelihood"

    def _best_threshold(self, data: PairTables, columns: list[Ints], weights: Floats) -> float:
        """Return the threshold with the largest F1 score on the training data."""
        scores = _tables_of(self.model_.potentials(self.coef_, data), data)
        true = [s[np.flatnonzero(c >= 0), c[c >= 0]] for s, c in zip(scores, columns, strict=True)]
        flat = np.concatenate([np.empty(0), *true])
        if not len(flat):
            return 0.0
        candidates = [0.0, *np.quantile(flat, np.linspace(0.02, 0.98, THRESHOLDS)).tolist()]
        f1 = []
        for threshold in candidates:
            found = [max_matching(s - threshold, self.model_.alone).columns for s in scores]
            f1.append(pair_f1(columns, found, weights))
        return float(candidates[int(np.argmax(f1))])

    def _warn_if_nothing_is_matched(self, data: PairTables, truths: list[Any]) -> None:
        """Warn if all scores are negative, so the model matches nothing in its training data."""
        if (
            not self.partial
            or self.model_.potentials(self.coef_, data).max(initial=-np.inf) > self.threshold_
        ):
            return
        if any((columns >= 0).any() for columns in _columns(truths, data.shapes)):
            warn_user(
                "the trained model matches no pair of its training data: the features do not "
                "separate true pairs from the best wrong ones; raise cost_missing or C, or add "
                "features"
            )

    def _set(self, n_features: int) -> None:
        self.n_features_in_ = n_features
        self.model_ = MatchingModel(n_features, bool(self.intercept), bool(self.partial))

    def _sections(self, X: Any, y: Any) -> list[Block]:
        from cliquewise.estimators._output_reports import matching_sections

        return matching_sections(self, X, y)

    def _to_file(self) -> tuple[Arrays, Header]:
        state = {"loss": self.loss_, "threshold": self.threshold_}
        return {"coef": self.coef_}, {"n_features": self.n_features_in_, "state": state}

    def _from_file(self, arrays: Arrays, header: Header) -> None:
        self._set(check_integer(header["n_features"], "its number of features"))
        self.coef_ = checked_weights(arrays, self.model_.dimension)
        state = header.get("state", {"loss": "hinge", "threshold": 0.0})  # none in version 1
        self.loss_, self.threshold_ = str(state["loss"]), float(state["threshold"])
        if self.loss_ not in ("hinge", "pseudo_likelihood") or not np.isfinite(self.threshold_):
            raise DataError("its loss or threshold is not valid")

    def decision_function(self, X: Any) -> list[Floats]:
        """Return the scores (p, q) of the pairs of every example, less ``threshold_``."""
        check_is_fitted(self, "coef_")
        data = PairTables.from_examples(listed(X, "X"), self.n_features_in_)
        return _tables_of(self.model_.potentials(self.coef_, data) - self.threshold_, data)

    def _assignments(self, X: Any) -> list[Assignment]:
        return [Assignment(scores, self.model_.alone) for scores in self.decision_function(X)]

    def map(self, X: Any) -> list[Labeling]:
        """Return the best matching of every example with its score; assignments are always exact.

        Examples
        --------
        >>> import numpy as np
        >>> from cliquewise import Matcher
        >>> X = [np.array([[[1.0], [-1.0]], [[-1.0], [1.0]]])]
        >>> result = Matcher(random_state=0).fit(X, [[0, 1]]).map(X)[0]
        >>> result.labels.tolist(), result.exact
        ([0, 1], True)
        """
        found = [best[0] for best in self.predict_top_k(X, 1)]
        return [Labeling(columns, score, score, True, "assignment") for score, columns in found]

    def predict(self, X: Any) -> list[Ints]:
        """Return the column of every row of every example, -1 for none."""
        return Labelings(best.labels for best in self.map(X))

    def predict_top_k(self, X: Any, k: int) -> list[list[tuple[float, Ints]]]:
        """Return the ``k`` best matchings of every example, best first, as (score, columns)."""
        out = []
        for problem in self._assignments(X):
            rows, columns = problem.shape
            most = bounded_k(k, columns + 1, rows, 8.0 * rows + 200.0, self.max_memory)
            found = [problem.matching(*one) for one in k_best_assignments(problem, most)]
            out.append([(m.score, m.columns) for m in found])
        return out

    def score(self, X: Any, y: Any, sample_weight: Any = None) -> float:
        """Return the F1 score of the matched pairs, weighted by example.

        See :func:`cliquewise.metrics.pair_f1`.
        """
        examples, truths = same_length(X, y)
        weights = check_sample_weight(sample_weight, len(examples))
        return pair_f1(self._true_columns(examples, truths), self.predict(examples), weights)

    def _true_columns(self, X: Any, y: Any) -> list[Ints]:
        """Return the true matchings as the column of every row."""
        check_is_fitted(self, "coef_")
        examples, truths = same_length(X, y)
        return _columns(truths, PairTables.from_examples(examples, self.n_features_in_).shapes)


def _tables_of(flat: Floats, data: PairTables) -> list[Floats]:
    """Return the scores of all pairs as one table (p, q) per example."""
    o = data.offsets
    return [flat[o[i] : o[i + 1]].reshape(shape) for i, shape in enumerate(data.shapes)]


def _columns(truths: list[Any], shapes: Ints) -> list[Ints]:
    """Return matchings in either form as the column of every row."""
    out = []
    for i, (given, p) in enumerate(zip(truths, shapes[:, 0].tolist(), strict=True)):
        try:
            array = np.asarray(given)
            whole = array.size == 0 or bool(np.all(np.equal(np.floor(array), array)))
        except (TypeError, ValueError):
            whole = False
        if not whole:
            raise DataError(f"example {i}: a matching must be integers or pairs of integers")
        if array.ndim != 2 and not (array.size == 0 and p > 0):
            out.append(array.astype(np.int64))
            continue
        if array.size and array.shape[1] != 2:
            raise DataError(f"example {i}: pairs are (row, column), not of shape {array.shape}")
        columns = np.full(p, -1, dtype=np.int64)
        pairs = array.astype(np.int64).reshape(-1, 2)
        if len(pairs) and (pairs.min() < 0 or pairs[:, 0].max() >= p):
            raise DataError(f"example {i}: its pairs name rows or columns that it does not have")
        if len(np.unique(pairs[:, 0])) < len(pairs):
            raise DataError(f"example {i}: a row is matched twice")
        columns[pairs[:, 0]] = pairs[:, 1]
        out.append(columns)
    return check_truth(out, shapes, True)
