"""Images as graphs, and back."""

from __future__ import annotations

import warnings

import numpy as np
import pytest

import cliquewise as cw
from cliquewise.data.images import grid, grids, to_image, to_images
from cliquewise.errors import DataError


@pytest.mark.parametrize("neighbors", [4, 8])
@pytest.mark.parametrize(("height", "width"), [(1, 1), (1, 4), (3, 1), (3, 5)])
def test_edges_connect_neighbors_once_with_their_direction(height, width, neighbors):
    image = np.random.default_rng(0).normal(size=(height, width, 2))
    example = grid(image, neighbors, differences=True)
    steps = {(0, 1): 0, (1, 0): 1, (1, 1): 2, (1, -1): 3}
    expected = set()
    for a in range(height):
        for b in range(width):
            for (down, right), direction in steps.items():
                inside = a + down < height and 0 <= b + right < width
                if inside and (neighbors == 8 or direction < 2):
                    expected.add((a * width + b, (a + down) * width + b + right, direction))
    found = set()
    for (i, j), row in zip(example["edges"], example["edge_features"], strict=True):
        n = neighbors // 2
        assert sorted(row[:n]) == [0] * (n - 1) + [1]
        found.add((int(i), int(j), int(row[:n].argmax())))
        apart = np.abs(image.reshape(-1, 2)[i] - image.reshape(-1, 2)[j])
        np.testing.assert_allclose(row[n:], apart)
    assert found == expected and len(example["edges"]) == len(expected)
    np.testing.assert_array_equal(to_image(example["features"], image), image)


def test_labels_of_images_of_different_sizes_have_image_shape():
    rng = np.random.default_rng(1)
    truth = [np.where(np.arange(w) < w // 2, "sky", "sea") * np.ones((h, 1), int).astype(object)
             for h, w in ((3, 4), (2, 6))]  # fmt: skip
    images = [(y == "sky")[:, :, None] + 0.1 * rng.normal(size=(*y.shape, 1)) for y in truth]
    labeler = cw.GraphLabeler(C=10.0, random_state=0).fit(grids(images), truth)
    for y, x, found in zip(
        truth, images, to_images(labeler.predict(grids(images)), images), strict=True
    ):
        assert found.shape == x.shape[:2] and (found == y).all()
    chances = to_images(labeler.predict_marginals(grids(images)), images)
    assert chances[1].shape == (2, 6, 2)
    assert labeler.score(grids(images), truth) == 1.0


def test_each_direction_has_a_separate_table():
    rng = np.random.default_rng(2)
    stripes = [np.repeat((np.arange(6) + rng.integers(2)) % 2, 6).reshape(6, 6) for _ in range(12)]
    images = [y + 0.8 * rng.normal(size=y.shape) for y in stripes]
    labeler = cw.GraphLabeler(C=1.0, random_state=0).fit(cw.data.images.grids(images), stripes)
    right, down = labeler.tables()[:2]
    assert np.trace(right) > right.sum() / 2 and np.trace(down) < down.sum() / 2


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: grid(np.zeros((2, 2)), neighbors=6), "4 or 8"),
        (lambda: grid(np.zeros(4)), "H x W"),
        (lambda: grid(np.zeros((2, 2, 2, 2))), "grids"),
        (lambda: grid([["a"]]), "numbers"),
        (lambda: grid(np.zeros((0, 3))), "shape"),
        (lambda: to_image([1, 2, 3], (2, 2)), "3 labels for an image of 2 x 2"),
        (lambda: to_images([[1]], []), "1 images, and 0"),
    ],
)
def test_invalid_images_raise_clear_errors(call, message):
    with pytest.raises(DataError, match=message):
        call()


@pytest.mark.parametrize(("dtype", "most"), [("uint8", 255), ("uint16", 65535)])
def test_only_integer_images_are_scaled(dtype, most):
    image = np.array([[0, most], [most // 5, 3]])
    expected = np.array([0, most, most // 5, 3]) / most
    bytes_ = cw.data.images.grid(image.astype(dtype), differences=True)
    np.testing.assert_allclose(bytes_["features"].ravel(), expected)
    np.testing.assert_allclose(bytes_["edge_features"][0, -1], 1.0)
    for other in (image, image.astype(float), image.tolist()):
        np.testing.assert_array_equal(cw.data.images.grid(other)["features"], image.reshape(4, 1))
    on = np.array([[True, False]])
    np.testing.assert_array_equal(cw.data.images.grid(on)["features"].ravel(), [1.0, 0.0])


def test_binary_byte_images_issue_a_warning():
    mask, dark = np.eye(2, dtype=np.uint8), np.zeros((2, 2), dtype=np.uint8)
    with pytest.warns(UserWarning, match=r"image.astype\(float\)"):
        cw.data.images.grids([mask, dark])
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        cw.data.images.grids([mask, dark + 7])
        cw.data.images.grids([dark])
