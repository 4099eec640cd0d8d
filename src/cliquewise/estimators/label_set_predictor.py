"""A trained model of label sets: inference for many rows at once, without scikit-learn."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.sparse import csr_matrix

from cliquewise.data.graphs import GraphDataset
from cliquewise.errors import UnsupportedError
from cliquewise.estimators.graph_predictor import GraphPredictor
from cliquewise.estimators.results import LabelSetMarginals, LabelSetResult
from cliquewise.models.label_sets import label_pairs, multilabel_data, row_bytes
from cliquewise.oracles.label_rows import LabelRows, is_narrow
from cliquewise.oracles.relaxed_label_sets import relaxed_labels
from cliquewise.problems.label_graph import Features
from cliquewise.ragged import Floats, Ints

#: Methods of exact inference that :class:`LabelRows` applies to all rows together.
_ROW_METHODS = ("auto", "tree", "junction-tree")


@dataclass(frozen=True, eq=False)
class LabelSetPredictor:
    """A model of label sets, its calibration, and its decision threshold.

    Attributes
    ----------
    trained : GraphPredictor
        The model and the weights that the certificate refers to.
    calibration : (float, float, float)
        Factor and offset of the scores of all labels, and factor of the tables of pairs.
    threshold : float
        A label is predicted if its probability is above it.
    max_memory : float
        In GiB; rows are processed in parts of that size where their pairs are listed.
    """

    trained: GraphPredictor
    calibration: tuple[float, float, float] = (1.0, 0.0, 1.0)
    threshold: float = 0.5
    max_memory: float = 8.0

    @property
    def n_labels(self) -> int:
        """Number of labels."""
        return len(self.trained.model.cardinalities)

    @property
    def pairs(self) -> Ints:
        """Pairs of labels that have a table."""
        return self.trained.model.pair_list

    @cached_property
    def calibrated(self) -> GraphPredictor:
        """The predictor with calibrated weights."""
        scale, shift, tables = self.calibration
        model, trained = self.trained.model, self.trained.weights
        weights = tables * trained
        unary = self._unary(weights)
        unary[:] = scale * self._unary(trained)
        if model.intercept:
            unary[:, -1] += [-0.5 * shift, 0.5 * shift]
        return replace(self.trained, weights=weights)

    @cached_property
    def is_narrow(self) -> bool:
        """Whether exact inference takes small tables, for all rows together."""
        return is_narrow(self.n_labels, self.pairs)

    @cached_property
    def rows(self) -> LabelRows:
        """Exact inference over the label graph."""
        return LabelRows(self.n_labels, self.pairs)

    def _unary(self, weights: Floats) -> Floats:
        """View of the weights of the labels: (labels, features, [off, on])."""
        size = 2 * self.n_labels * self.trained.model.node_columns
        return weights[:size].reshape(self.n_labels, -1, 2)

    def coefficients(self) -> tuple[Floats, Floats]:
        """Return the trained coefficients (labels, features) and intercepts of being on."""
        unary = self._unary(self.trained.weights)
        on = unary[:, :, 1] - unary[:, :, 0]
        if self.trained.model.intercept:
            return on[:, :-1].copy(), on[:, -1].copy()
        return on, np.zeros(self.n_labels)

    def scores(self, X: Any) -> tuple[Floats, Floats]:
        """Return the scores (n, L) of being on, relative to off, and the tables (pairs, 4)."""
        predictor = self.calibrated
        model, weights = predictor.model, predictor.weights
        unary = self._unary(weights)
        on = Features(X, model.intercept).scores((unary[:, :, 1] - unary[:, :, 0]).T)
        tables = [model.tables(weights, k).reshape(-1) for k in range(len(self.pairs))]
        return on, np.array(tables).reshape(-1, 4)

    # ---- inference

    def map(self, X: Any, method: str = "auto", **options: Any) -> LabelSetResult:
        """Return the most probable set of every row (0/1 matrix), scores, bounds and proofs."""
        if self.is_narrow and method in _ROW_METHODS and not options:
            on, tables = self.scores(X)
            labels = self.rows.best(on, tables)
            offset = self._scores_when_off(X)
            score = offset + self._set_scores(labels, on, tables)
            return LabelSetResult(labels, score, score, np.ones(len(labels), bool), method)
        found = [
            one
            for part in self._parts(csr_matrix(X))
            for one in self.calibrated.map(part, method, **options)
        ]
        flat = np.concatenate([np.empty(0, dtype=np.int64), *(one.labels for one in found)])
        return LabelSetResult(
            flat.reshape(-1, self.n_labels),
            np.array([one.score for one in found], dtype=np.float64),
            np.array([one.upper_bound for one in found], dtype=np.float64),
            np.array([one.exact for one in found], dtype=bool),
            method,
        )

    def _scores_when_off(self, X: Any) -> Floats:
        """By row, the sum of the scores of all labels being off."""
        off = self._unary(self.calibrated.weights)[:, :, 0].sum(axis=0)
        return Features(X, self.trained.model.intercept).scores(off[:, None])[:, 0]

    def _set_scores(self, labels: Ints, on: Floats, tables: Floats) -> Floats:
        """Scores of label sets, relative to all unary scores being off."""
        left, right = self.pairs.T
        states = 2 * labels[:, left] + labels[:, right]
        of_pairs = tables[np.arange(len(tables)), states].sum(axis=1)
        return np.asarray((labels * on).sum(axis=1) + of_pairs)

    def marginals(self, X: Any, method: str = "auto", **options: Any) -> LabelSetMarginals:
        """Return the probability of every label of every row, with flags and bounds."""
        hinge = self.trained.loss == "hinge"
        if self.is_narrow and method in _ROW_METHODS and not options and not hinge:
            on, tables = self.scores(X)
            gamma = float(self.trained.gamma)
            log_z, p, _ = self.rows.marginals(on / gamma, tables / gamma, np.ones(len(on)))
            log_z = log_z + self._scores_when_off(X) / gamma
            bounds = np.stack([log_z, log_z], axis=1)
            return LabelSetMarginals(p, np.ones(len(p), bool), log_z, bounds, method)
        if method == "auto" and (self.trained.relaxed or hinge):
            method = "relaxed"
        if method == "relaxed" and not options and self._skips_pairs:
            model = self.trained.model
            p = relaxed_labels(
                csr_matrix(X), self.trained.weights, self.n_labels, intercept=model.intercept
            )[0]
            return _without_bounds(p, method)
        if hinge and method != "relaxed":
            raise UnsupportedError(
                'a structural SVM (loss="hinge") has no probabilities; train with loss="log", or '
                'use method="relaxed" for the beliefs of the relaxation'
            )
        found = [
            one
            for part in self._parts(csr_matrix(X))
            for one in self.calibrated.marginals(part, method, **options)
        ]
        flat = np.concatenate([np.empty(0), *(one.nodes.flat[1::2] for one in found)])
        return LabelSetMarginals(
            flat.reshape(-1, self.n_labels),
            np.array([one.exact for one in found], dtype=bool),
            np.array([one.log_z for one in found], dtype=np.float64),
            np.array([one.log_z_bounds for one in found], dtype=np.float64).reshape(-1, 2),
            method,
        )

    def predict(self, X: Any, method: str = "auto", **options: Any) -> Ints:
        """Return 0/1 labels: by their probabilities for ``auto``, else the best set of a method."""
        if method == "auto" and not options and self.trained.loss != "hinge":
            return (self.marginals(X).probabilities > self.threshold).astype(np.int64)
        narrow = self.is_narrow and method in _ROW_METHODS
        if method == "relaxed" or (method == "auto" and not narrow):
            return (self.marginals(X, "relaxed", **options).probabilities > 0.5).astype(np.int64)
        return np.asarray(self.map(X, method, **options).labels)

    def decision_function(self, X: Any) -> Floats:
        """Return scores of the labels that are positive where a label is predicted.

        Log-odds less those of the threshold; for structural SVMs the gain in score by a label
        being on when all other labels are as predicted.
        """
        if self.trained.loss != "hinge":
            p = self.marginals(X).probabilities
            return np.asarray(_log_odds(p) - _log_odds(np.array(self.threshold)))
        on, tables = self.scores(X)
        labels = self.predict(X)
        for (i, j), table in zip(self.pairs.tolist(), tables.reshape(-1, 2, 2), strict=True):
            on[:, i] += (table[1] - table[0])[labels[:, j]]
            on[:, j] += (table[:, 1] - table[:, 0])[labels[:, i]]
        return on

    @property
    def _skips_pairs(self) -> bool:
        """Whether relaxed inference can do without a list of each row's pairs."""
        return (
            self.trained.loss == "hinge"
            and self.trained.model.pairwise == "co-occurrence"
            and np.array_equal(self.pairs, label_pairs(self.n_labels))
        )

    def _parts(self, X: csr_matrix) -> Iterator[GraphDataset]:
        """Yield the rows as graphs, in parts that fit into ``max_memory``."""
        size = max(1, int(self.max_memory * 2**30 / row_bytes(self.n_labels, self.pairs)))
        for first in range(0, X.shape[0], size):
            yield multilabel_data(X[first : first + size], self.n_labels, self.pairs)


def _log_odds(p: NDArray[np.float64]) -> NDArray[np.float64]:
    tiny = np.finfo(np.float64).tiny
    return np.asarray(np.log(np.maximum(p, tiny)) - np.log(np.maximum(1.0 - p, tiny)))


def _without_bounds(p: NDArray[np.float64], method: str) -> LabelSetMarginals:
    n = len(p)
    unbounded = np.tile([-np.inf, np.inf], (n, 1))
    return LabelSetMarginals(p, np.zeros(n, bool), np.full(n, np.nan), unbounded, method)
