"""Regularization paths: one training run per C, each from the last one's solution."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from sklearn.base import clone

from cliquewise.errors import DataError


def regularization_path(
    estimator: Any, X: Any, y: Any, Cs: Iterable[float], **fit: Any
) -> list[Any]:
    """Fit an estimator for several ``C``, with warm starts.

    The dual distributions of one ``C`` are feasible for any other, so each run starts where
    the one before ended and proves its own gap.

    Parameters
    ----------
    estimator : SequenceTagger
        Its parameters; it is not changed.
    X, y
        Training data.
    Cs : iterable of float
        Tried in the given order (ascending is quickest).
    **fit
        Further arguments of ``fit``.

    Returns
    -------
    list of fitted estimators, one per C

    Examples
    --------
    >>> from cliquewise import SequenceTagger, regularization_path
    >>> X, y = [[["a"], ["b"]]], [["A", "B"]]
    >>> path = regularization_path(SequenceTagger(), X, y, [0.1, 1.0])
    >>> [bool(e.certificate_.gap <= 1e-3) for e in path]
    [True, True]
    """
    values = [float(C) for C in Cs]
    if not values:
        raise DataError("Cs is empty; give at least one value of C")
    fitted: list[Any] = []
    for C in values:
        model = clone(estimator).set_params(C=C)
        if not fitted:
            model.fit(X, y, **fit)
        else:
            before = fitted[-1]
            data, partial, state = before._training
            warm = state if before.solver_ == "sdca" else None
            model._fit(before.encoder_, before.labels_, (data, partial), warm)
        fitted.append(model)
    return fitted
