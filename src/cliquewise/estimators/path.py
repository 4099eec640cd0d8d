"""Regularization paths: one training run per C, each from the last one's solution."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

from sklearn.base import clone

from cliquewise.errors import DataError, UnsupportedError
from cliquewise.estimators.sequence import SequenceTagger


def regularization_path(
    estimator: SequenceTagger,
    X: Any,
    y: Any,
    Cs: Iterable[float],
    *,
    callback: Callable[..., Any] | None = None,
    **fit: Any,
) -> list[SequenceTagger]:
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
    callback : callable, optional
        Called with every row of the trace of every run.
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
    if not isinstance(estimator, SequenceTagger):
        raise UnsupportedError(f"a {type(estimator).__name__} has no path; use a SequenceTagger")
    fitted: list[SequenceTagger] = []
    for C in values:
        model = clone(estimator).set_params(C=C)
        if fitted:
            model._fit_like(fitted[-1], callback)
        else:
            model.fit(X, y, callback=callback, **fit)
        fitted.append(model)
    return fitted
