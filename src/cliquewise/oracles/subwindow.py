"""Efficient Subwindow Search: the box of an image with the greatest sum of weights.

Branch and bound over sets of boxes (Lampert et al. 2008), with a bound from integral images.
A box is ``(top, left, bottom, right)`` with exclusive ends: ``weights[top:bottom, left:right]``.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from cliquewise.errors import DataError, TooLargeError
from cliquewise.graph.sizes import EPSILON, LARGEST, largest_finite
from cliquewise.oracles.matching import check_k
from cliquewise.oracles.results import Proved
from cliquewise.ragged import Floats, Ints

#: Give up after so many sets of boxes (about 90 bytes each).
MAX_SETS = 20_000_000


@dataclass(frozen=True)
class Box(Proved):
    """A box and its score.

    Attributes
    ----------
    box : tuple of int
        Top, left, bottom, right; the last two are exclusive.
    score : float
    visited : int
        Sets of boxes that the whole search bounded.
    rounding : float
        No box scores higher by more: sums are relative to the sum of all sizes.
    """

    box: tuple[int, int, int, int]
    score: float
    visited: int
    rounding: float = 0.0


def n_boxes(height: int, width: int) -> int:
    """How many boxes an image has.

    Examples
    --------
    >>> n_boxes(2, 3)
    18
    """
    return (height * (height + 1) // 2) * (width * (width + 1) // 2)


def best_subwindows(
    weights: Any, k: int = 1, truth: Any = None, cost: float = 1.0, max_sets: int = MAX_SETS
) -> list[Box]:
    """The k boxes with the greatest sums of weights, best first.

    Parameters
    ----------
    weights : array (height, width)
        Of pixels or cells, of either sign.
    k : int, default=1
        Fewer are returned if there are fewer.
    truth : (top, left, bottom, right), optional
        Score boxes by ``cost * (1 - IoU)`` with this one more: the oracle of training.
    cost : float, default=1.0
    max_sets : int, default=20,000,000
        Give up after so many sets of boxes.

    Examples
    --------
    >>> weights = -np.ones((6, 6))
    >>> weights[1:4, 2:5] = 1.0
    >>> best_subwindows(weights)[0].box
    (1, 2, 4, 5)
    """
    from cliquewise._kernels.graphs.subwindow import best_boxes

    images, box = _integrals(weights), _truth(truth, np.shape(weights))
    check_k(k)
    if not cost >= 0:
        raise DataError(f"cost = {cost}; it must not be negative")
    most = min(int(k), n_boxes(*np.shape(weights)))
    boxes, scores = np.empty((most, 4), dtype=np.int64), np.empty(most)
    price = 0.0 if truth is None else float(cost)
    found, visited = best_boxes(*images, box, price, int(max_sets), boxes, scores)
    if found < most:
        raise TooLargeError(
            f"{found} of {most} boxes were found when {visited} sets of boxes had been bounded; "
            f"raise max_sets (= {max_sets}), or use coarser cells",
            90.0 * visited,
            float(visited),
        )
    return _listed(boxes, scores, int(visited), _rounding(images, price))


def exhaustive_subwindows(
    weights: Any, k: int = 1, truth: Any = None, cost: float = 1.0
) -> list[Box]:
    """The same by looking at every box; for tests, and small images.

    Examples
    --------
    >>> exhaustive_subwindows([[1.0, -2.0], [3.0, -1.0]])[0].box
    (0, 0, 2, 1)
    """
    from cliquewise._kernels.graphs.subwindow import all_boxes

    images, box = _integrals(weights), _truth(truth, np.shape(weights))
    check_k(k)
    number = n_boxes(*np.shape(weights))
    most = min(int(k), number)
    boxes, scores = np.empty((most, 4), dtype=np.int64), np.empty(most)
    all_boxes(*images, box, 0.0 if truth is None else float(cost), boxes, scores)
    return _listed(boxes, scores, number, _rounding(images, cost))


def _rounding(images: tuple[Floats, Floats], cost: float) -> float:
    """What the differences of integral images may have lost."""
    positive, negative = images
    return 8.0 * EPSILON * sum(positive.shape) * float(positive[-1, -1] - negative[-1, -1] + cost)


def _listed(boxes: Ints, scores: Floats, visited: int, rounding: float) -> list[Box]:
    rows = zip(boxes.tolist(), scores.tolist(), strict=True)
    return [Box((r[0], r[1], r[2], r[3]), score, visited, rounding) for r, score in rows]


def _integrals(weights: Any) -> tuple[Floats, Floats]:
    """Sums of the positive and the negative weights above and left of each corner."""
    table = np.asarray(weights, dtype=np.float64)
    if table.ndim != 2 or table.size == 0:
        raise DataError(f"weights must be an image (height, width), not of shape {table.shape}")
    if not (np.isfinite(table).all() and largest_finite(table) * table.size <= LARGEST):
        raise DataError(f"weights must be finite numbers, and their sum below {LARGEST:g}")
    images = np.zeros((2, table.shape[0] + 1, table.shape[1] + 1))
    for image, part in zip(images, (np.maximum(table, 0), np.minimum(table, 0)), strict=True):
        image[1:, 1:] = part.cumsum(axis=0).cumsum(axis=1)
    return images[0], images[1]


def _truth(truth: Any, shape: tuple[int, ...]) -> Ints:
    if truth is None:
        return np.zeros(4, dtype=np.int64)
    box = np.asarray(truth)
    whole = box.shape == (4,) and bool(np.all(box == np.floor(box)))
    if not whole or not (0 <= box[0] < box[2] <= shape[0] and 0 <= box[1] < box[3] <= shape[1]):
        raise DataError(
            f"truth = {truth!r}; it must be (top, left, bottom, right) inside the image "
            f"{shape}, with exclusive ends"
        )
    return box.astype(np.int64)
