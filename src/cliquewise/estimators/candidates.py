"""CandidateRanker: choose one of many candidates."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray
from sklearn.utils.validation import check_is_fitted

from cliquewise.data.matrices import first_beyond
from cliquewise.errors import DataError, UnsupportedError
from cliquewise.estimators._base import Estimator, rollback_on_error
from cliquewise.estimators._inputs import check_sample_weight, listed, same_length, threads
from cliquewise.estimators._stored import Arrays, Header, checked_weights
from cliquewise.estimators.parameters import CandidateRankerParameters, check_integer
from cliquewise.models.candidates import CandidateSets
from cliquewise.oracles.candidates import candidate_marginals, top_k_candidates
from cliquewise.problems.candidates import CandidateProblem
from cliquewise.ragged import Floats
from cliquewise.report.blocks import Block


@dataclass(eq=False, repr=False)
class CandidateRanker(CandidateRankerParameters, Estimator):
    """Rank the candidates of each example by linear scores.

    Parameters
    ----------
    loss : {"hinge", "log"}, default="hinge"
        Structured hinge loss with the cost of each candidate as margin, or the negative
        log-likelihood of the true candidate, which gives probabilities.
    C : float, default=1.0
        Weight of the sum of the losses relative to the penalty, ``1/2 ||w||^2`` or, with
        ``l1_ratio``, an elastic net as in :class:`SequenceTagger` (loss ``log`` only).
    solver, tol, max_epochs, max_seconds, n_jobs, max_memory, random_state, verbose
        As in :class:`SequenceTagger`.

    Attributes
    ----------
    coef_ : ndarray (d,)
    certificate_ : Certificate
    trace_ : Trace

    Examples
    --------
    >>> from cliquewise import CandidateRanker
    >>> X = [[[1.0, 0.0], [0.0, 1.0]], [[0.2, 0.9], [0.8, 0.1], [0.5, 0.5]]]
    >>> ranker = CandidateRanker(C=10.0, random_state=0).fit(X, [0, 1])
    >>> ranker.predict([[[0.1, 0.3], [0.9, 0.3]]])
    array([1])
    >>> bool(ranker.certificate_.gap <= 1e-3)
    True
    """

    @rollback_on_error
    def fit(
        self, X: Any, y: Any, sample_weight: Any = None, *, costs: Any = None
    ) -> CandidateRanker:
        """Train.

        Parameters
        ----------
        X : list of (m_i, d) arrays or CSR matrices
            Features of the candidates of each example.
        y : int array (n,), or list of float arrays (m_i,)
            Index of the true candidate; or the cost of each candidate (such as 1 - IoU), where
            the cheapest is the true one. One-hot rows raise an error.
        sample_weight : array (n,), optional
        costs : list of float arrays (m_i,), optional
            Cost of each candidate if ``y`` has indices; by default 1 for wrong candidates.

        Returns
        -------
        self
        """
        self._check_parameters()
        examples, truths = same_length(X, y)
        data = CandidateSets.from_examples(examples)
        tables = None if costs is None else _cost_tables(costs, data)
        if np.ndim(truths[0]) > 0:
            if costs is not None:
                raise DataError("y has costs already; pass costs only once")
            tables = _costs_as_truth(truths, data)
            truth = np.array([int(np.argmin(t)) for t in tables])
        else:
            truth = _indices(truths)
        if self.loss == "log" and costs is not None:
            raise UnsupportedError('loss "log" has no costs; use loss="hinge", or leave them out')
        problem = CandidateProblem(
            data,
            truth,
            None if tables is None else np.concatenate(tables),
            self.C,
            self.loss,
            threads(self.n_jobs),
            check_sample_weight(sample_weight, len(data)),
        )
        self.coef_ = self._train(problem).weights
        self.n_features_in_ = data.features.n_features
        return self

    def _sections(self, X: Any, y: Any) -> list[Block]:
        from cliquewise.estimators._output_reports import candidate_sections

        return candidate_sections(self, X, y)

    def _to_file(self) -> tuple[Arrays, Header]:
        return {"coef": self.coef_}, {"n_features": self.n_features_in_}

    def _from_file(self, arrays: Arrays, header: Header) -> None:
        self.n_features_in_ = check_integer(header["n_features"], "its number of features")
        self.coef_ = checked_weights(arrays, self.n_features_in_)

    def _data(self, X: Any) -> CandidateSets:
        check_is_fitted(self, "coef_")
        return CandidateSets.from_examples(listed(X, "X"), self.n_features_in_)

    def decision_function(self, X: Any) -> list[Floats]:
        """Return the scores of the candidates of every example."""
        data = self._data(X)
        return data.split(data.features.scores(self.coef_))

    def predict(self, X: Any) -> NDArray[np.int64]:
        """Return the index of the best candidate of every example."""
        return np.array([int(np.argmax(s)) for s in self.decision_function(X)], dtype=np.int64)

    def predict_proba(self, X: Any) -> list[Floats]:
        """Return the probabilities of each example's candidates (``loss="log"`` only)."""
        check_is_fitted(self, "coef_")
        if self.loss != "log":
            raise UnsupportedError(
                'the hinge loss gives scores, not probabilities; train with loss="log"'
            )
        return [candidate_marginals(s)[0] for s in self.decision_function(X)]

    def predict_top_k(self, X: Any, k: int) -> list[list[tuple[float, int]]]:
        """Return the ``k`` best candidates of every example, best first, as (score, index)."""
        return [
            [(float(s[c]), int(c)) for c in top_k_candidates(s, k)]
            for s in self.decision_function(X)
        ]

    def score(self, X: Any, y: Any, sample_weight: Any = None) -> float:
        """Return the share of right choices; if ``y`` has costs, minus their mean."""
        examples, truths = same_length(X, y)
        weights = check_sample_weight(sample_weight, len(examples))
        chosen = self.predict(examples)
        if np.ndim(truths[0]) > 0:
            tables = _costs_as_truth(truths, self._data(examples))
            costs = [t[c] for t, c in zip(tables, chosen, strict=True)]
            return -float(np.average(costs, weights=weights))
        return float(np.average(chosen == _indices(truths), weights=weights))


def _indices(truths: list[Any]) -> NDArray[np.int64]:
    numbers = np.asarray(truths)
    if numbers.ndim != 1 or not np.issubdtype(numbers.dtype, np.number):
        raise DataError(
            "y must have the index of the true candidate, or a list of costs, of each example"
        )
    if not np.all(np.equal(np.floor(numbers), numbers)):
        raise DataError("y must be integers: the index of the true candidate of each example")
    return numbers.astype(np.int64)


def _costs_as_truth(truths: list[Any], data: CandidateSets) -> list[Floats]:
    """Return the costs in ``y``; raise an error for one-hot rows, which mean the opposite."""
    tables = _cost_tables(truths, data)
    marks = np.concatenate(tables)
    if np.all((marks == 0) | (marks == 1)) and all(t.sum() == 1 for t in tables):
        raise DataError(
            "y marks one candidate of each example by 1; as costs, this would make all others "
            "right: pass the index of the true one, np.argmax of each, or costs with 0 for it"
        )
    return tables


def _cost_tables(costs: Any, data: CandidateSets) -> list[Floats]:
    try:
        tables = [np.asarray(c, dtype=np.float64) for c in costs]
    except (TypeError, ValueError) as error:
        raise DataError(f"costs must be lists of numbers ({error})") from None
    sizes = np.diff(data.offsets).tolist()
    if len(tables) != len(sizes):
        raise DataError(f"{len(sizes)} examples and {len(tables)} lists of costs")
    for i, (table, size) in enumerate(zip(tables, sizes, strict=True)):
        if table.shape != (size,) or first_beyond(table) is not None:
            raise DataError(
                f"example {i} has {size} candidates; its costs must be as many finite numbers, "
                f"not of shape {table.shape}"
            )
    return tables
