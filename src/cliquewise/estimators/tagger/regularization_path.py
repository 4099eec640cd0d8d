"""Regularization paths: train with several penalties, each run warm-started from the previous."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from itertools import product
from typing import Any

from sklearn.base import clone

from cliquewise.errors import DataError, UnsupportedError
from cliquewise.estimators.tagger.sequence_tagger import SequenceTagger


def regularization_path(
    estimator: SequenceTagger,
    X: Any,
    y: Any,
    Cs: Iterable[float],
    *,
    l1_ratios: Iterable[float] | None = None,
    callback: Callable[[dict[str, float]], Any] | None = None,
    **fit: Any,
) -> list[SequenceTagger]:
    """Fit a tagger for several values of ``C`` and ``l1_ratio``, with warm starts.

    The dual variables of one penalty are feasible for every other. Each run therefore starts from
    the previous solution and has its own certificate (``certificate_``).

    Parameters
    ----------
    estimator : SequenceTagger
        Provides the other parameters; it is not modified.
    X, y
        Training data.
    Cs : iterable of float
        Values in the order of training; ascending order is fastest.
    l1_ratios : iterable of float, optional
        Train with all ``Cs`` for each of these; the default is the estimator's ``l1_ratio``.
    callback : callable, optional
        Called with every row of the trace of every run.
    **fit
        Further arguments of ``fit``.

    Returns
    -------
    list of SequenceTagger
        One per (l1_ratio, C), with all ``Cs`` of the first ``l1_ratio`` first.

    Examples
    --------
    >>> from cliquewise import SequenceTagger, regularization_path
    >>> X, y = [[["a"], ["b"]]], [["A", "B"]]
    >>> path = regularization_path(SequenceTagger(), X, y, [0.1, 1.0])
    >>> [bool(e.certificate_.gap <= 1e-3) for e in path]
    [True, True]
    >>> path = regularization_path(SequenceTagger(), X, y, [0.3, 3.0], l1_ratios=[0.5])
    >>> [e.n_nonzero_ for e in path]
    [0, 9]
    """
    values = [float(C) for C in Cs]
    if not values:
        raise DataError("Cs is empty; give at least one value of C")
    ratios = [None] if l1_ratios is None else [float(ratio) for ratio in l1_ratios]
    if not ratios:
        raise DataError("l1_ratios is empty; give at least one value, or leave it out")
    if not isinstance(estimator, SequenceTagger):
        raise UnsupportedError(
            f"regularization_path needs a SequenceTagger, not a {type(estimator).__name__}"
        )
    early = {name: fit[name] for name in ("validation", "patience") if name in fit}
    fitted: list[SequenceTagger] = []
    for ratio, C in product(ratios, values):
        model = clone(estimator).set_params(C=C)
        if ratio is not None:
            model.set_params(l1_ratio=ratio)
        if fitted:
            model._fit_examples_of(fitted[-1], callback=callback, **early)
        else:
            model.fit(X, y, callback=callback, **fit)
        fitted.append(model)
    return fitted
