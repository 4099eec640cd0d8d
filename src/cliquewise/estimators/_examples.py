"""What Matcher and CandidateRanker share: training and files."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import asdict
from pathlib import Path
from typing import Any

import numpy as np
from scipy.sparse import issparse
from sklearn.base import BaseEstimator
from sklearn.utils.validation import check_is_fitted

from cliquewise.certificate import Certificate
from cliquewise.errors import DataError, FormatError
from cliquewise.estimators import _training
from cliquewise.persistence import write_arrays

_NOT_SAVED = {"verbose", "solver", "random_state", "n_jobs"}


class ExampleEstimator(BaseEstimator):  # type: ignore[misc]
    """Base of the estimators whose outputs come from an oracle; ``coef_`` is the fitted state."""

    def _train(self, problem: Any, n_features: int) -> None:
        fit = _training.train(self, problem)
        self.coef_ = fit.weights
        self._set(n_features)

    def _set(self, n_features: int) -> None:
        """Keep what follows from the parameters and the number of features."""
        self.n_features_in_ = n_features

    def save(self, path: str | Path) -> None:
        """Write the model to one file; see :func:`cliquewise.load`."""
        check_is_fitted(self, "coef_")
        params = {k: v for k, v in self.get_params(deep=False).items() if k not in _NOT_SAVED}
        header = {
            "kind": type(self).__name__,
            "params": {k: v.item() if isinstance(v, np.generic) else v for k, v in params.items()},
            "certificate": asdict(self.certificate_),
            "solver": self.solver_,
            "n_features": self.n_features_in_,
        }
        write_arrays(path, {"coef": self.coef_}, header)

    def _dimension(self, n_features: int) -> int:
        """How many weights a model of so many features has."""
        return n_features


def restore(cls: type[ExampleEstimator], arrays: Any, header: dict[str, Any], path: Any) -> Any:
    """An estimator from a file that :meth:`ExampleEstimator.save` wrote."""
    estimator = cls(**header["params"])
    coef = np.array(arrays["coef"])
    n_features = int(header["n_features"])
    sound = coef.dtype == np.float64 and coef.shape == (estimator._dimension(n_features),)
    if not sound or not np.all(np.isfinite(coef)):
        raise FormatError("the model is damaged: its arrays do not fit together", path)
    estimator.coef_ = coef
    estimator.certificate_ = Certificate(**header["certificate"])
    estimator.solver_ = header["solver"]
    estimator._set(n_features)
    return estimator


def same_length(X: Any, y: Any) -> tuple[list[Any], list[Any]]:
    """Both as lists, one entry per example."""
    if y is None:
        raise DataError("y is missing; training needs the true outputs")
    if issparse(X) or isinstance(X, str | dict) or not isinstance(X, Iterable):
        raise DataError("X must be a list with one entry per example")
    examples, truths = list(X), list(y)
    if len(examples) != len(truths):
        raise DataError(f"{len(examples)} examples in X and {len(truths)} in y")
    if not examples:
        raise DataError("X has no examples")
    return examples, truths
