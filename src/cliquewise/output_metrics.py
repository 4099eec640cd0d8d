"""How good predictions are that are no labels of sequences: boxes, rankings, matchings."""

from __future__ import annotations

from typing import Any

import numpy as np

from cliquewise.errors import DataError
from cliquewise.ragged import Floats


def iou(a: Any, b: Any) -> Any:
    """Intersection over union of boxes ``(top, left, bottom, right)`` with exclusive ends.

    Parameters
    ----------
    a, b : arrays (..., 4)
        Of shapes that broadcast: one box against many, or pairs.

    Returns
    -------
    float or array

    Examples
    --------
    >>> iou((0, 0, 2, 2), (0, 1, 2, 3))
    0.333...
    >>> iou((0, 0, 2, 2), [(0, 0, 2, 2), (5, 5, 6, 6)])
    array([1., 0.])
    """
    one, two = _boxes(a), _boxes(b)
    top, left = (np.maximum(one[..., f], two[..., f]) for f in (0, 1))
    bottom, right = (np.minimum(one[..., f], two[..., f]) for f in (2, 3))
    common = np.maximum(bottom - top, 0.0) * np.maximum(right - left, 0.0)
    areas = [(x[..., 2] - x[..., 0]) * (x[..., 3] - x[..., 1]) for x in (one, two)]
    shares = common / (areas[0] + areas[1] - common)
    return float(shares) if shares.ndim == 0 else shares


def corloc(true_boxes: Any, boxes: Any, threshold: float = 0.5) -> float:
    """Share of images whose box overlaps the true one with an IoU above the threshold.

    Examples
    --------
    >>> corloc([(0, 0, 2, 2), (0, 0, 2, 2)], [(0, 0, 2, 2), (0, 1, 2, 3)])
    0.5
    """
    true, own = _boxes(true_boxes), _boxes(boxes)
    if true.shape != own.shape or true.ndim != 2:
        raise DataError(f"one box per image on both sides, not {true.shape} and {own.shape}")
    return float(np.mean(iou(true, own) > threshold)) if len(true) else 0.0


def average_precision(is_correct: Any, confidence: Any, n_positive: int | None = None) -> float:
    """Mean precision over the recalls that a falling threshold on the confidence reaches.

    Parameters
    ----------
    is_correct : bool array (n,)
        Of each prediction: for boxes, whether its IoU with the truth exceeds 0.5.
    confidence : array (n,)
        The predictions' scores; equal ones enter together.
    n_positive : int, optional
        How many right answers there are to be found, if predictions lack some.

    Examples
    --------
    >>> average_precision([True, False, True], [0.9, 0.8, 0.7])
    0.833...
    """
    from sklearn.metrics import average_precision_score

    right = np.asarray(is_correct, dtype=bool)
    scores = np.asarray(confidence, dtype=np.float64)
    if right.ndim != 1 or right.shape != scores.shape or np.isnan(scores).any():
        raise DataError("is_correct and confidence must be one truth and one number per prediction")
    total = int(right.sum()) if n_positive is None else int(n_positive)
    if total < right.sum():
        raise DataError(f"n_positive = {total}, but {right.sum()} predictions are right")
    if not right.any():
        return 0.0
    ranks = np.unique(scores, return_inverse=True)[1]  # so that scores may be infinite
    return float(average_precision_score(right, ranks) * right.sum() / total)


def pair_f1(y_true: Any, y_pred: Any, sample_weight: Any = None) -> float:
    """F1 of the pairs of matchings, over all examples together.

    Parameters
    ----------
    y_true, y_pred : lists of int arrays
        The column of every row, -1 for none. Where nothing is matched on either side it is 1.
    sample_weight : array (n,), optional
        How much the pairs of each example count.

    Examples
    --------
    >>> pair_f1([[0, 1, -1]], [[0, -1, -1]])
    0.666...
    """
    true, own = list(y_true), list(y_pred)
    if len(true) != len(own):
        raise DataError(f"{len(true)} true matchings, {len(own)} predicted ones")
    weights = np.ones(len(true)) if sample_weight is None else np.asarray(sample_weight)
    correct = total = 0.0
    for i, (a, b) in enumerate(zip(true, own, strict=True)):
        a, b = np.asarray(a), np.asarray(b)
        if a.shape != b.shape or a.ndim != 1:
            raise DataError(f"example {i} has {a.shape} true rows, {b.shape} predicted ones")
        correct += float(weights[i] * np.sum((a == b) & (a >= 0)))
        total += float(weights[i] * (np.sum(a >= 0) + np.sum(b >= 0)))
    return 2.0 * correct / total if total else 1.0


def _boxes(boxes: Any) -> Floats:
    array = np.asarray(boxes, dtype=np.float64)
    if array.size == 0:
        return np.empty((0, 4))
    if array.ndim == 0 or array.shape[-1] != 4 or not np.all(np.isfinite(array)):
        raise DataError(f"boxes are (top, left, bottom, right), not of shape {array.shape}")
    if np.any(array[..., 2] <= array[..., 0]) or np.any(array[..., 3] <= array[..., 1]):
        raise DataError("a box is empty: bottom and right must exceed top and left")
    return array
