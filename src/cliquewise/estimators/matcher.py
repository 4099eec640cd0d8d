"""Matcher: match rows to columns, such as the words of two sentences."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from sklearn.utils.validation import check_is_fitted

from cliquewise.data.labels import Labelings
from cliquewise.errors import DataError, warn_user
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
from cliquewise.models.matching import MatchingModel, PairTables
from cliquewise.oracles.matching import Assignment, k_best_assignments
from cliquewise.problems.matching import MatchingProblem, check_truth
from cliquewise.ragged import Floats, Ints
from cliquewise.report.blocks import Block


@dataclass(eq=False, repr=False)
class Matcher(MatcherParameters, Estimator):
    """Predict bipartite matchings with linear scores of pairs.

    Parameters
    ----------
    loss : {"hinge"}, default="hinge"
        Structured hinge loss. (The normalizer of a likelihood would be a permanent, which is
        intractable.)
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
        problem = MatchingProblem(
            self.model_,
            data,
            _columns(truths, data.shapes),
            self.C,
            self.loss,
            threads(self.n_jobs),
            self.cost_missing,
            self.cost_wrong,
            check_sample_weight(sample_weight, len(data)),
        )
        self.coef_ = self._train(problem).weights
        self._warn_if_nothing_is_matched(data, truths)
        return self

    def _warn_if_nothing_is_matched(self, data: PairTables, truths: list[Any]) -> None:
        """Warn if all scores are negative, so the model matches nothing in its training data."""
        if not self.partial or self.model_.potentials(self.coef_, data).max(initial=-np.inf) > 0:
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
        return {"coef": self.coef_}, {"n_features": self.n_features_in_}

    def _from_file(self, arrays: Arrays, header: Header) -> None:
        self._set(check_integer(header["n_features"], "its number of features"))
        self.coef_ = checked_weights(arrays, self.model_.dimension)

    def decision_function(self, X: Any) -> list[Floats]:
        """Return the scores (p, q) of the pairs of every example."""
        check_is_fitted(self, "coef_")
        data = PairTables.from_examples(listed(X, "X"), self.n_features_in_)
        flat = self.model_.potentials(self.coef_, data)
        o = data.offsets
        return [flat[o[i] : o[i + 1]].reshape(shape) for i, shape in enumerate(data.shapes)]

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
