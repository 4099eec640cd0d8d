"""Metrics of boxes, rankings and matchings."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from sklearn.metrics import average_precision_score

from cliquewise.errors import DataError
from cliquewise.metrics import average_precision, corloc, iou, pair_f1


@given(st.integers(0, 10**6))
def test_iou_counts_cells(seed):
    rng = np.random.default_rng(seed)
    masks, boxes = [], []
    for _ in range(2):
        (top, bottom), (left, right) = (np.sort(rng.choice(9, 2, replace=False)) for _ in range(2))
        mask = np.zeros((8, 8), dtype=bool)
        mask[top:bottom, left:right] = True
        masks.append(mask)
        boxes.append((top, left, bottom, right))
    expected = (masks[0] & masks[1]).sum() / (masks[0] | masks[1]).sum()
    assert iou(*boxes) == pytest.approx(expected)
    assert iou(boxes[0], [boxes[1], boxes[0]]).tolist() == pytest.approx([expected, 1.0])


@given(st.integers(0, 10**6), st.booleans())
def test_average_precision_is_that_of_scikit_learn(seed, with_ties):
    rng = np.random.default_rng(seed)
    n = int(rng.integers(1, 30))
    right = rng.random(n) < 0.5
    scores = rng.integers(0, 4, n) / 1.0 if with_ties else rng.normal(size=n)
    if not right.any():
        assert average_precision(right, scores) == 0.0
        return
    assert average_precision(right, scores) == pytest.approx(average_precision_score(right, scores))
    infinite = np.where(scores == scores.max(), np.inf, scores)  # the same order
    assert average_precision(right, infinite) == pytest.approx(average_precision(right, scores))
    # What was never predicted lowers the recall.
    double = average_precision(right, scores, 2 * int(right.sum()))
    assert double == pytest.approx(average_precision(right, scores) / 2)


def test_corloc_is_strict_about_its_threshold():
    assert iou((0, 0, 1, 2), (0, 0, 1, 1)) == 0.5
    assert corloc([(0, 0, 1, 2)], [(0, 0, 1, 1)]) == 0.0
    assert corloc([(0, 0, 1, 2)], [(0, 0, 1, 1)], threshold=0.4) == 1.0
    assert corloc([], []) == 0.0


def test_pair_f1_counts_pairs_and_not_the_lonely():
    assert pair_f1([[1, -1]], [[1, 0]]) == pytest.approx(2 / 3)
    assert pair_f1([[-1]], [[-1]]) == 1.0
    assert pair_f1([[0]], [[-1]]) == 0.0


@pytest.mark.parametrize(
    "call",
    [
        lambda: iou((0, 0, 0, 1), (0, 0, 1, 1)),
        lambda: iou((0, 0, 1), (0, 0, 1, 1)),
        lambda: iou((0, 0, np.nan, 1), (0, 0, 1, 1)),
        lambda: corloc([(0, 0, 1, 1)], []),
        lambda: average_precision([True], [np.nan]),
        lambda: average_precision([True], [1.0, 2.0]),
        lambda: average_precision([True], [1.0], 0),
        lambda: pair_f1([[0]], []),
        lambda: pair_f1([[0]], [[0, 1]]),
    ],
)
def test_bad_input_is_rejected(call):
    with pytest.raises(DataError):
        call()
