"""MulticlassClassifier: one label per row, as a chain of one token."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.sparse import csr_matrix, issparse
from sklearn.base import ClassifierMixin
from sklearn.utils.metaestimators import available_if
from sklearn.utils.validation import check_is_fitted

from cliquewise.data.dataset import Dataset
from cliquewise.errors import DataError
from cliquewise.estimators._base import Estimator, rollback_on_error
from cliquewise.estimators._inputs import check_sample_weight, checked_rows, class_weights
from cliquewise.estimators._stored import (
    Arrays,
    Header,
    listed_classes,
    listed_weights,
    plain_classes,
    saved_weights,
)
from cliquewise.estimators.parameters import MulticlassParameters
from cliquewise.estimators.tagger.sequence_tagger import SequenceTagger
from cliquewise.ragged import Floats
from cliquewise.report.blocks import Block


def _has_probabilities(classifier: MulticlassClassifier) -> bool:
    if classifier.loss != "log":
        raise AttributeError('loss="hinge" gives no probabilities; train with loss="log"')
    return True


@dataclass(eq=False, repr=False)
class MulticlassClassifier(ClassifierMixin, MulticlassParameters, Estimator):  # type: ignore[misc]
    """Multinomial logistic regression, or a multiclass SVM, with a certificate of optimality.

    Parameters
    ----------
    C : float, default=1.0
        Weight of the sum of the losses relative to the penalty, as in scikit-learn. The penalty
        includes the intercept.
    loss : {"log", "hinge"}, default="log"
        Negative log-likelihood, or the multiclass hinge loss of Crammer and Singer (2001), which
        gives no probabilities.
    l1_ratio, solver, tol, max_epochs, max_seconds, n_jobs, dtype, max_memory
    class_weight, random_state, verbose
        As in :class:`SequenceTagger`.
    intercept : bool, default=True

    Examples
    --------
    >>> from sklearn.datasets import load_iris
    >>> X, y = load_iris(return_X_y=True)
    >>> classifier = MulticlassClassifier(random_state=0).fit(X, y)
    >>> bool(classifier.score(X, y) > 0.9)
    True
    """

    @rollback_on_error
    def fit(self, X: Any, y: Any, sample_weight: Any = None) -> MulticlassClassifier:
        """Train.

        Parameters
        ----------
        X : (n, d), dense or sparse
        y : (n,)
            One label per row.
        sample_weight : (n,), optional
            Weight of each row's loss.
        """
        from sklearn.utils.multiclass import check_classification_targets

        if y is None:
            raise DataError("training requires y to be passed, but the target y is None")
        X, y = checked_rows(self, X, True, y)
        check_classification_targets(y)
        self.classes_, numbers = np.unique(y, return_inverse=True)
        weights = check_sample_weight(sample_weight, len(numbers))
        if self.class_weight is not None:
            weights *= class_weights(self.class_weight, self.classes_.tolist(), numbers)[numbers]
        self._set_fitted(self._tagger().fit(_dataset(X), numbers[:, None].tolist(), weights))
        return self

    def _tagger(self) -> SequenceTagger:
        """Return a tagger that treats every row as a sequence of one token."""
        parameters = self.get_params(deep=False) | {"class_weight": None}
        return SequenceTagger(boundary_weights=False, **parameters)

    def _set_fitted(self, tagger: SequenceTagger) -> None:
        self.tagger_ = tagger
        self.certificate_, self.solver_ = tagger.certificate_, tagger.solver_
        self.trace_, self.n_iter_ = tagger.trace_, tagger.n_iter_
        self.stop_reason_, self.provenance_ = tagger.stop_reason_, tagger.provenance_
        self.metadata_: dict[str, Any] = {}
        self._record_parameters()
        k, d = len(self.classes_), self.n_features_in_
        weights = tagger.model_.emissions(tagger.coef_)
        self.coef_ = weights[:d].T.copy()
        self.intercept_ = weights[d].copy() if self.intercept else np.zeros(k)

    def _rows(self, X: Any) -> Dataset:
        check_is_fitted(self, "coef_")
        return _dataset(checked_rows(self, X, False))

    def _scores(self, X: Any) -> Floats:
        data = self._rows(X)
        return self.tagger_.model_.potentials(self.tagger_.coef_, data)[0]

    def decision_function(self, X: Any) -> Floats:
        """Return scores (n, K) of the classes; with two classes the difference (n,) of scores."""
        scores = self._scores(X)
        return scores[:, 1] - scores[:, 0] if scores.shape[1] == 2 else scores

    def predict(self, X: Any) -> NDArray[Any]:
        """Return the class with the highest score for every row."""
        best = np.argmax(self._scores(X), axis=1)
        return np.asarray(self.classes_[best])

    @available_if(_has_probabilities)  # type: ignore[untyped-decorator]
    def predict_proba(self, X: Any) -> Floats:
        """Return the probabilities of the classes (``loss="log"`` only)."""
        return np.asarray(np.exp(self.predict_log_proba(X)))

    @available_if(_has_probabilities)  # type: ignore[untyped-decorator]
    def predict_log_proba(self, X: Any) -> Floats:
        """Return the logarithms of the probabilities (``loss="log"`` only)."""
        scores = self._scores(X)
        top = scores.max(axis=1, keepdims=True)
        return np.asarray(scores - top - np.log(np.exp(scores - top).sum(axis=1, keepdims=True)))

    def score(self, X: Any, y: Any, sample_weight: Any = None) -> float:
        """Return the share of rows with the right class."""
        if sample_weight is not None:
            sample_weight = check_sample_weight(sample_weight, len(y))
        return float(super().score(X, y, sample_weight=sample_weight))

    def _sections(self, X: Any, y: Any) -> list[Block]:
        from cliquewise.estimators._output_reports import class_sections

        return class_sections(self, X, y)

    def _to_file(self) -> tuple[Arrays, Header]:
        arrays, header = self.tagger_._to_file()
        classes = plain_classes(self.classes_.tolist())
        header |= {"classes": classes, "dtype": self.classes_.dtype.str}
        return arrays, header | saved_weights(self.class_weight, classes)

    def _from_file(self, arrays: Arrays, header: Header) -> None:
        self.classes_ = _classes(listed_classes(header["classes"]).classes, header.get("dtype"))
        if "class_weight" in header:
            self.class_weight = listed_weights(header["class_weight"], self.classes_.tolist())
        tagger = self._tagger()
        tagger.certificate_, tagger.solver_ = self.certificate_, self.solver_
        tagger.trace_, tagger.n_iter_ = self.trace_, self.n_iter_
        tagger.stop_reason_, tagger.provenance_ = self.stop_reason_, self.provenance_
        tagger.metadata_ = {}
        params = header["params"] | {"boundary_weights": False}
        own = {"classes": list(range(len(self.classes_))), "params": params}
        left = {name: part for name, part in header.items() if name != "class_weight"}
        tagger._from_file(arrays, left | own)
        tagger._record_parameters()
        model = tagger.model_
        if tagger.encoder_.n_features_in is None:
            raise DataError("its features are not numeric")
        if not (model.begin_allowed.all() and model.end_allowed.all()):
            raise DataError("it forbids some of its classes")
        self.n_features_in_ = tagger.encoder_.n_features
        self._set_fitted(tagger)

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.input_tags.sparse = True
        return tags


def _classes(classes: list[Any], dtype: Any) -> NDArray[Any]:
    """Return the classes of a file in the type that it names (files of version 1 name none)."""
    plain = np.array(classes)
    if dtype is None:
        return plain
    named = np.dtype(str(dtype))
    fits = named.kind == "O" or (named.kind in "biuf" and plain.dtype.kind in "biuf")
    if named.kind == plain.dtype.kind == "U":  # the file also states its size
        fits = named.itemsize * len(classes) <= max(plain.nbytes, 1 << 24)
    if not fits:
        raise DataError(f"its classes have the type {str(dtype)!r:.40}")
    found = np.array(classes, dtype=named)
    if len(set(found.tolist())) < len(classes):
        raise DataError("the list of classes names a class twice")
    return found


def _dataset(X: Any) -> Dataset:
    matrix: Any = X if issparse(X) else csr_matrix(X)
    if matrix.shape[1] == 0:
        raise DataError("X has no features")
    return Dataset.from_matrix(matrix, np.arange(matrix.shape[0] + 1))
