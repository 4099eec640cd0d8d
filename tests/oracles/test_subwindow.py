"""Subwindow search: the boxes of exhaustive search, for a small share of its work."""

from __future__ import annotations

from fractions import Fraction
from itertools import combinations

import numpy as np
import pytest

from cliquewise.errors import DataError, TooLargeError
from cliquewise.metrics import iou
from cliquewise.oracles.subwindow import best_subwindows, exhaustive_subwindows, n_boxes


def weight_map(rng: np.random.Generator, side: int = 40) -> np.ndarray:
    """Evidence of a linear classifier: words of a texture on an object, others in the clutter.

    Every cell has one of 32 visual words; an object prefers 8 of them, the background the rest,
    and clutter puts patches of object words elsewhere. The weights of the words are those that
    counting would give, with noise.
    """
    words = rng.choice(32, (side, side), p=np.r_[np.full(8, 0.03), np.full(24, 0.76 / 24)])
    height, width = rng.integers(side // 4, side // 2, 2)
    top, left = rng.integers(0, side - height), rng.integers(0, side - width)
    inside = words[top : top + height, left : left + width]
    is_object = rng.random(inside.shape) < 0.6
    inside[is_object] = rng.integers(0, 8, int(is_object.sum()))
    for _ in range(3):
        y, x = rng.integers(0, side - 5, 2)
        words[y : y + 4, x : x + 4] = rng.integers(0, 16, (4, 4))
    weights = np.where(np.arange(32) < 8, 1.0, -0.6) + 0.3 * rng.normal(size=32)
    return weights[words]


def test_same_boxes_as_exhaustive_search_on_200_images_for_less_than_a_percent_of_the_work():
    rng = np.random.default_rng(0)
    shares = []
    for _ in range(200):
        weights = weight_map(rng)
        found, expected = best_subwindows(weights)[0], exhaustive_subwindows(weights)[0]
        assert found.box == expected.box
        assert found.score == pytest.approx(expected.score)
        shares.append(found.visited / n_boxes(*weights.shape))
    assert np.mean(shares) < 0.01


def test_boxes_for_training_add_their_cost():
    rng = np.random.default_rng(1)
    for _ in range(10):
        weights = weight_map(rng, 24)
        truth = (3, 4, 12, 15)
        found = best_subwindows(weights, 3, truth, cost=50.0)
        expected = exhaustive_subwindows(weights, 3, truth, cost=50.0)
        assert [b.box for b in found] == [b.box for b in expected]
        top, left, bottom, right = found[0].box
        by_hand = weights[top:bottom, left:right].sum() + 50.0 * (1 - iou(found[0].box, truth))
        assert found[0].score == pytest.approx(by_hand)


def test_one_pixel_and_all_negative():
    assert best_subwindows([[-3.0]])[0].box == (0, 0, 1, 1)
    found = best_subwindows([[-3.0, -1.0], [-2.0, -5.0]])[0]
    assert (found.box, found.score) == ((0, 1, 1, 2), -1.0)


def test_k_may_exceed_the_number_of_boxes():
    found = best_subwindows(np.ones((2, 3)), 1000)
    assert len(found) == n_boxes(2, 3) == 18
    assert [b.score for b in found] == sorted((b.score for b in found), reverse=True)


def test_a_search_that_is_too_long_is_given_up_with_a_count():
    with pytest.raises(TooLargeError, match="max_sets"):
        best_subwindows(np.random.default_rng(0).normal(size=(30, 30)), max_sets=50)


@pytest.mark.parametrize(
    ("weights", "options"),
    [
        ([1.0, 2.0], {}),
        (np.empty((0, 3)), {}),
        ([[np.nan]], {}),
        ([[1.0]], {"k": 0}),
        ([[1.0]], {"truth": (0, 0, 2, 1)}),
        ([[1.0]], {"truth": (0, 0, 0, 1)}),
        ([[1.0]], {"truth": (0.5, 0, 1, 1)}),
        ([[1.0]], {"truth": (0, 0, 1, 1), "cost": -1.0}),
    ],
)
def test_bad_images_and_boxes_are_rejected(weights, options):
    with pytest.raises(DataError):
        best_subwindows(weights, **options)


@pytest.mark.parametrize("seed", range(4))
def test_weights_of_mixed_sizes_are_right_up_to_the_stated_rounding(seed):
    rng = np.random.default_rng(seed)
    weights = rng.standard_normal((3, 4)) * 10.0 ** rng.uniform(-3.0, 290.0, (3, 4))
    found = best_subwindows(weights)[0]
    sums = [
        sum(map(Fraction, weights[t:b, le:r].ravel().tolist()))
        for t, b in combinations(range(4), 2)
        for le, r in combinations(range(5), 2)
    ]
    t, le, b, r = found.box
    own = sum(map(Fraction, weights[t:b, le:r].ravel().tolist()))
    assert max(sums) - own <= 2 * Fraction(found.rounding)
    assert abs(Fraction(found.score) - own) <= Fraction(found.rounding)
    with pytest.raises(DataError, match="their sum below"):
        best_subwindows(np.full((3, 3), 1e308))
