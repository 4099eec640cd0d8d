"""Check arguments that several estimators share: weights, threads, lists of examples."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from numbers import Integral
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.sparse import issparse

from cliquewise.data.matrices import LARGEST, check_values, checked_matrix, first_beyond
from cliquewise.errors import DataError, TooLargeError
from cliquewise.oracles.matching import check_k
from cliquewise.ragged import Floats


def checked_rows(estimator: Any, X: Any, reset: bool, y: Any = None) -> Any:
    """Validate ``X`` (n, d) by scikit-learn's conventions and for the kernels; with ``y``, both."""
    from sklearn.utils.validation import validate_data

    if issparse(X):
        X = checked_matrix(X, "X")
    options = {"accept_sparse": "csr", "dtype": np.float64, "reset": reset}
    names = getattr(X, "columns", None)
    try:
        if y is None:
            X = validate_data(estimator, X, **options)
        else:
            X, y = validate_data(estimator, X, y, **options)
    except ValueError as error:
        if "could not convert" not in str(error):
            raise
        raise DataError(
            f"X must be numbers ({error}); code other values as columns of numbers, for example "
            "by sklearn.preprocessing.OneHotEncoder"
        ) from None
    check_values(X, names=names)
    return X if y is None else (X, y)


def threads(n_jobs: Any) -> int:
    """Return the number of threads for ``n_jobs``, by joblib's conventions.

    Examples
    --------
    >>> threads(None), threads(3)
    (1, 3)
    """
    if n_jobs is None or n_jobs == 1:  # avoids importing joblib
        return 1
    if n_jobs is not None and (not isinstance(n_jobs, Integral) or n_jobs == 0):
        raise DataError(f"n_jobs = {n_jobs!r}; it must be None or an integer other than 0")
    import joblib

    return int(joblib.effective_n_jobs(n_jobs))


def class_weights(class_weight: Any, classes: Sequence[Any], labels: NDArray[Any]) -> Floats:
    """Return one weight per class for scikit-learn's ``class_weight``; -1 marks unknown labels."""
    from sklearn.utils.class_weight import compute_class_weight

    known = labels[labels >= 0]
    numbers = np.arange(len(classes))
    if isinstance(class_weight, dict):
        index = {c: i for i, c in enumerate(classes)}
        unknown = [c for c in class_weight if c not in index]
        if unknown:
            raise DataError(f"class_weight names {unknown[0]!r}, which is not a class")
        class_weight = {index[c]: weight for c, weight in class_weight.items()}
    elif class_weight is not None:  # only classes that occur can be balanced
        numbers = np.unique(known)
    weights = np.ones(len(classes))
    try:
        weights[numbers] = compute_class_weight(class_weight, classes=numbers, y=known)
    except (TypeError, ValueError) as error:
        raise DataError(
            f'class_weight must be None, "balanced" or a dict, not {class_weight!r} ({error})'
        ) from None
    if not np.all(np.isfinite(weights)) or (weights < 0).any():
        raise DataError("class_weight must be finite and not negative")
    return weights


def bounded_k(k: Any, choices: int, length: int, size: float, max_memory: float) -> int:
    """Return ``k`` or the number of possible outputs if smaller; check the memory they need.

    Parameters
    ----------
    k : int
        Number of requested outputs.
    choices, length : int
        An output consists of ``length`` choices, each among ``choices`` values.
    size : float
        Bytes per output.
    max_memory : float
        Limit in GiB.

    Examples
    --------
    >>> bounded_k(10**9, 2, 3, 8.0, 1.0)
    8
    """
    check_k(k)
    if length * math.log2(max(choices, 1)) < 62:
        k = min(k, choices**length)
    if k * size > max_memory * 2**30:
        raise TooLargeError(
            f"the {k} best outputs need about {k * size / 2**30:.3g} GiB (limit: max_memory = "
            f"{max_memory:g} GiB); request fewer, or predict fewer examples at a time",
            k * size,
        )
    return int(k)


def check_sample_weight(sample_weight: Any, n: int) -> Floats:
    """Return one nonnegative weight per example."""
    if sample_weight is None:
        return np.ones(n)
    try:
        weights = np.asarray(sample_weight, dtype=np.float64)
    except (TypeError, ValueError) as error:
        raise DataError(f"sample_weight must be {n} numbers ({error})") from None
    if weights.shape != (n,) or first_beyond(weights) is not None or (n and weights.min() < 0):
        raise DataError(
            f"sample_weight must be {n} finite numbers (up to {LARGEST:g}) that are not negative"
        )
    if n and not weights.any():
        raise DataError("every sample_weight is zero; at least one example must count")
    return weights


def mean_by_example(values: Floats, offsets: Any) -> Floats:
    """Return the mean value of each example, delimited by ``offsets``; 1 for empty examples."""
    sums = np.concatenate(([0.0], np.cumsum(values)))
    sizes = np.diff(offsets)
    return np.where(sizes > 0, np.diff(sums[offsets]) / np.maximum(sizes, 1), 1.0)


def listed(values: Any, name: str) -> list[Any]:
    """Return the entries, one per example, as a list."""
    if values is None and name == "y":
        raise DataError("training requires y to be passed, but the target y is None")
    if issparse(values) or isinstance(values, str | dict) or not isinstance(values, Iterable):
        kind = "a sparse matrix" if issparse(values) else type(values).__name__
        raise DataError(f"{name} must be a list with one entry per example, not {kind}")
    return list(values)


def same_length(X: Any, y: Any) -> tuple[list[Any], list[Any]]:
    """Return both as lists of equal length."""
    examples, truths = listed(X, "X"), listed(y, "y")
    if len(examples) != len(truths):
        raise DataError(f"{len(examples)} examples in X and {len(truths)} in y")
    if not examples:
        raise DataError("X has no examples")
    return examples, truths
