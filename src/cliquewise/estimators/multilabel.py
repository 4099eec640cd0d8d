"""MultiLabelClassifier: sets of labels per row, with a table for every pair of labels."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import KW_ONLY, dataclass
from typing import Any

import numpy as np
from scipy.sparse import csr_matrix
from sklearn.base import ClassifierMixin
from sklearn.utils.validation import check_is_fitted

from cliquewise.data.graphs import GraphDataset
from cliquewise.data.label_sets import LabelSets, restored
from cliquewise.errors import DataError, UnsupportedError
from cliquewise.estimators._base import Arrays, Header
from cliquewise.estimators._graphs import GraphEstimator
from cliquewise.estimators._inputs import check_sample_weight, checked_rows
from cliquewise.estimators._parameters import whole
from cliquewise.models.label_sets import (
    check_size,
    label_pairs,
    multilabel_data,
    multilabel_model,
    row_bytes,
)
from cliquewise.oracles.relaxed_label_sets import relaxed_labels
from cliquewise.problems.label_sets import MultiLabelProblem
from cliquewise.ragged import Floats
from cliquewise.solvers.base import accepts


@dataclass(eq=False, repr=False)
class MultiLabelClassifier(ClassifierMixin, GraphEstimator):  # type: ignore[misc]
    """Multilabel classification with dependent labels, after Finley and Joachims (2008).

    Parameters
    ----------
    loss, C, gamma, entropy, epsilon, solver, inference
        As in :class:`~cliquewise.GraphLabeler`. With up to about 20 labels exact training
        and exact prediction are possible, too.
    label_graph : {"complete", "none", "tree"}, int or pairs of label numbers, default="complete"
        The pairs of labels that have a table. ``none`` makes the labels independent; ``tree`` is
        the spanning tree of largest mutual information between labels, a number that many pairs
        of largest mutual information. With hundreds of labels the complete graph is refused for
        want of memory.
    pairs : {"table", "co-occurrence"}, default="table"
        What a pair of labels has: a 2 x 2 table, or one weight for both being on. The second
        says as much with fewer weights, and ``loss="hinge"`` with ``solver="gdmm"`` then trains
        on hundreds of labels, all of them interacting, in memory and time that do not grow with
        the pairs.
    tol, max_epochs, max_seconds, max_memory, random_state, verbose
        As in :class:`~cliquewise.SequenceTagger`.
    intercept : bool, default=True

    Attributes
    ----------
    n_labels_ : int
    label_names_ : list of str or None
        Their names, where ``y`` had some.
    coef_ : ndarray
        All weights; ``unary(l)`` and ``table(i, j)`` pick out those of labels, by number or name.
    certificate_, trace_
        What was proved, and how it went.

    Examples
    --------
    >>> import cliquewise as cw
    >>> X = [[1.0, 0.0], [0.0, 1.0], [1.0, 1.0], [0.0, 0.0]]
    >>> Y = [[1, 0, 1], [0, 1, 0], [1, 1, 1], [0, 0, 0]]
    >>> classifier = cw.MultiLabelClassifier(C=10.0, random_state=0).fit(X, Y)
    >>> classifier.predict([[1.0, 0.1]]).tolist()
    [[1, 0, 1]]
    """

    _: KW_ONLY
    label_graph: Any = "complete"
    pairs: str = "table"

    def fit(self, X: Any, y: Any, sample_weight: Any = None) -> MultiLabelClassifier:
        """Train.

        Parameters
        ----------
        X : (n, d), dense or sparse
        y : (n, L) of 0 and 1, or a list with the names of the labels of every row
            A data frame's columns are the names. From lists of names, ``predict`` gives such
            lists.
        sample_weight : array (n,), optional
            One weight per row for its loss.
        """
        self._check_parameters()
        X = checked_rows(self, X, True)
        labels, targets = LabelSets.fit(y)
        if targets.shape[0] != X.shape[0]:
            raise DataError(f"X has {X.shape[0]} rows and y has {targets.shape[0]}")
        self.n_labels_ = labels.n_labels
        self._set_labels(labels)
        self.classes_ = [np.array([0, 1])] * self.n_labels_
        if self.pairs not in ("table", "co-occurrence"):
            raise DataError(f'pairs is "table" or "co-occurrence", not {self.pairs!r}')
        pairs = label_pairs(self.n_labels_, self.label_graph, targets)
        model = multilabel_model(self.n_labels_, X.shape[1], pairs, self.intercept, self.pairs)
        weights = check_sample_weight(sample_weight, X.shape[0])
        problem = self._sparse_problem(X, targets, pairs)
        if problem is not None:
            if np.ptp(weights) > 0 or weights.max(initial=1.0) != 1.0:
                raise UnsupportedError(
                    'pairs="co-occurrence" with gdmm takes no sample_weight; use pairs="table"'
                )
            self._fit_problem(problem, model)
        else:
            check_size(X.shape[0], self.n_labels_, pairs, self.max_memory)
            data = multilabel_data(csr_matrix(X), self.n_labels_, pairs, targets)
            self._fit_graphs(model, data, weights)
        return self

    def _set_labels(self, labels: LabelSets) -> None:
        self._labels_of_rows = labels
        self.label_names_ = None if labels.names is None else list(labels.names)

    def _sparse_problem(self, X: Any, targets: Any, pairs: Any) -> MultiLabelProblem | None:
        """The problem that never lists the pairs of a row, where model and solver allow it."""
        n = self.n_labels_
        if self.loss != "hinge" or self.pairs == "table" or len(pairs) != n * (n - 1) // 2:
            return None
        problem = MultiLabelProblem(csr_matrix(X), targets, self.C, self.intercept)
        return problem if accepts(problem, self.solver) else None

    def _checked(self, X: Any) -> csr_matrix:
        check_is_fitted(self, "coef_")
        return csr_matrix(checked_rows(self, X, False))

    def _parts(self, X: csr_matrix) -> Iterator[GraphDataset]:
        """The rows as graphs, in as many parts as ``max_memory`` asks for."""
        pairs = self.model_.pair_list
        size = max(1, int(self.max_memory * 2**30 / row_bytes(self.n_labels_, pairs)))
        for first in range(0, X.shape[0], size):
            yield multilabel_data(X[first : first + size], self.n_labels_, pairs)

    def _sparse_beliefs(self, X: csr_matrix, method: str | None) -> Floats | None:
        """Beliefs without a list of pairs, where the model allows that."""
        n = self.n_labels_
        if self._method(method) != "relaxed" or self.loss != "hinge":
            return None
        if self.model_.pairwise != "co-occurrence":
            return None
        if not np.array_equal(self.model_.pair_list, label_pairs(n)):
            return None
        return relaxed_labels(X, self.coef_, n, intercept=self.model_.intercept)[0]

    def predict(self, X: Any, method: str | None = None, **options: Any) -> Any:
        """The labels of every row: (n, L) of 0 and 1, or lists of names if ``fit`` had such.

        Parameters
        ----------
        X : (n, d)
        method : str, optional
            In place of ``inference``.
        **options
            For the method.
        """
        rows = self._checked(X)
        beliefs = self._sparse_beliefs(rows, method)
        if beliefs is not None:
            return self._labels_of_rows.decode((beliefs > 0.5).astype(np.int64))
        found = [self._labels(part, method, **options) for part in self._parts(rows)]
        return self._labels_of_rows.decode(np.concatenate(found).reshape(-1, self.n_labels_))

    def predict_proba(self, X: Any, method: str | None = None, **options: Any) -> Floats:
        """Probability (or relaxed belief) of every label, (n, L)."""
        rows = self._checked(X)
        sparse = self._sparse_beliefs(rows, method)
        if sparse is not None:
            return sparse
        beliefs = [self._beliefs(part, method, **options) for part in self._parts(rows)]
        return np.asarray(np.concatenate(beliefs).reshape(-1, self.n_labels_, 2)[:, :, 1])

    def score(self, X: Any, y: Any, sample_weight: Any = None) -> float:
        """Share of rows whose set of labels is right."""
        right = self._labels_of_rows.right(y, self.predict(X))
        return float(np.average(right, weights=check_sample_weight(sample_weight, len(right))))

    def unary(self, label: int | str) -> Floats:
        """(features, 2) weights of a label (a number or a name); the last row is the intercept."""
        check_is_fitted(self, "coef_")
        return self.model_.unary(self.coef_, self._labels_of_rows.number(label))

    def table(self, i: int | str, j: int | str) -> Floats:
        """(2, 2) scores of a pair of labels (numbers or names)."""
        check_is_fitted(self, "coef_")
        i, j = self._labels_of_rows.number(i), self._labels_of_rows.number(j)
        low, high = min(i, j), max(i, j)
        found = np.flatnonzero((self.model_.pair_list == [low, high]).all(axis=1))
        if not len(found):
            raise DataError(f"labels {i} and {j} have no table in the label graph")
        table = self.model_.tables(self.coef_, int(found[0]))[0]
        return np.asarray(table if i <= j else table.T)

    def _to_file(self) -> tuple[Arrays, Header]:
        arrays, header = super()._to_file()
        labels = self._labels_of_rows
        state = {
            "n_labels": self.n_labels_,
            "names": self.label_names_,
            "as_lists": labels.as_lists,
        }
        return arrays, {**header, "state": state}

    def _from_file(self, arrays: Arrays, header: Header) -> None:
        super()._from_file(arrays, header)
        model = self.model_
        state = header["state"]
        self.n_labels_ = whole(state["n_labels"], "its number of labels", 1)
        self._set_labels(restored(self.n_labels_, state.get("names"), state.get("as_lists")))
        if len(model.cardinalities) != self.n_labels_ or set(model.cardinalities) != {2}:
            raise DataError("its labels do not fit the model")
        if (model.pair_list[:, 0] == model.pair_list[:, 1]).any() or model.n_edge_features:
            raise DataError("its pairs of labels do not fit the model")
        self.classes_ = [np.array([0, 1])] * self.n_labels_

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.input_tags.sparse = True
        tags.classifier_tags.multi_class = False
        tags.target_tags.multi_output = True
        tags.target_tags.single_output = False
        return tags
