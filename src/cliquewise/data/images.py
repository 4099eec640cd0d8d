"""Images as graphs: a node per pixel, edges between neighbors, and labels back as images."""

from __future__ import annotations

from collections.abc import Iterable
from functools import lru_cache
from typing import Any

import numpy as np
from numpy.typing import NDArray

from cliquewise.errors import DataError, warn_user
from cliquewise.ragged import Floats, Ints

#: Steps (down, right) from the first end of an edge to the second, one per direction.
DIRECTIONS = {4: ((0, 1), (1, 0)), 8: ((0, 1), (1, 0), (1, 1), (1, -1))}
#: Types whose values are divided by the largest number of the type.
SCALED = (np.uint8, np.uint16)


def grid(image: Any, neighbors: int = 4, differences: bool = False) -> dict[str, Any]:
    """Return an image as an example for :class:`~cliquewise.GraphLabeler`.

    Parameters
    ----------
    image : array (H, W, d) or (H, W)
        Features of the pixels, which are the nodes, row by row. Values of type uint8 or uint16 are
        divided by the largest number of the type, as in scikit-image; others are not scaled.
    neighbors : {4, 8}, default=4
        Number of neighbors of a pixel: 8 includes diagonals.
    differences : bool, default=False
        Add the absolute differences of the pixels' features to the features of an edge.

    Returns
    -------
    dict
        ``features`` (H W, d), ``edges``, and ``edge_features``: one column per direction (right,
        down, down and right, down and left), which is 1 for edges in that direction, so a model
        learns a table for each; then the differences.

    Examples
    --------
    >>> example = grid([[0.0, 1.0], [0.0, 5.0]], differences=True)
    >>> example["edges"].tolist()
    [[0, 1], [2, 3], [0, 2], [1, 3]]
    >>> example["edge_features"][:, -1]
    array([1., 5., 0., 4.])
    """
    _warn_of_binary_bytes([image])
    return _grid(image, neighbors, differences)


def _grid(image: Any, neighbors: int, differences: bool) -> dict[str, Any]:
    pixels = _pixels(image, "the image")
    height, width, depth = pixels.shape
    edges, directions = _edges(height, width, _checked_neighbors(neighbors))
    features = pixels.reshape(height * width, depth)
    on_edges = directions
    if differences:
        apart = np.abs(features[edges[:, 0]] - features[edges[:, 1]])
        on_edges = np.concatenate([directions, apart], axis=1)
    return {"features": features, "edges": edges, "edge_features": on_edges}


def grids(
    images: Iterable[Any], neighbors: int = 4, differences: bool = False
) -> list[dict[str, Any]]:
    """Return :func:`~cliquewise.data.images.grid` of several images, of any sizes.

    :meth:`GraphLabeler.fit <cliquewise.GraphLabeler.fit>` accepts labels as images as well.

    Examples
    --------
    >>> import cliquewise as cw
    >>> images = [[[2.0, 1.5], [-1.0, -2.0]], [[-2.0, 3.0]]]
    >>> labels = [np.array([[1, 1], [0, 0]]), np.array([[0, 1]])]
    >>> labeler = cw.GraphLabeler().fit(grids(images), labels)
    >>> to_images(labeler.predict(grids(images)), images)[0]
    array([[1, 1],
           [0, 0]])
    """
    listed = list(images)
    _warn_of_binary_bytes(listed)
    return [_grid(image, neighbors, differences) for image in listed]


def to_image(labels: Any, image: Any) -> NDArray[Any]:
    """Return labels of pixels (or rows of probabilities) in the shape of the image.

    Parameters
    ----------
    labels : array (H W,) or (H W, k)
        Result of :meth:`GraphLabeler.predict <cliquewise.GraphLabeler.predict>` or
        ``predict_marginals`` for :func:`~cliquewise.data.images.grid`.
    image : array (H, W, ...) or (int, int)
        The image, or its height and width.

    Examples
    --------
    >>> to_image(["sky", "sky", "sea", "sea"], (2, 2)).tolist()
    [['sky', 'sky'], ['sea', 'sea']]
    """
    is_shape = isinstance(image, tuple) and all(isinstance(x, int | np.integer) for x in image)
    height, width = image if is_shape and len(image) == 2 else np.shape(image)[:2]
    flat = np.asarray(labels)
    if flat.ndim < 1 or len(flat) != height * width:
        raise DataError(f"{len(flat)} labels for an image of {height} x {width} pixels")
    return flat.reshape(height, width, *flat.shape[1:])


def to_images(labels: Iterable[Any], images: Iterable[Any]) -> list[NDArray[Any]]:
    """Return :func:`~cliquewise.data.images.to_image` of several images."""
    listed, shapes = list(labels), list(images)
    if len(listed) != len(shapes):
        raise DataError(f"labels of {len(listed)} images, and {len(shapes)} images")
    return [to_image(y, x) for y, x in zip(listed, shapes, strict=True)]


def _checked_neighbors(neighbors: Any) -> int:
    if neighbors not in DIRECTIONS:
        raise DataError(f"neighbors = {neighbors!r}; it must be 4 or 8")
    return int(neighbors)


def _warn_of_binary_bytes(images: list[Any]) -> None:
    """Warn if bytes are only 0 and 1: scaling would make them very small."""
    highest = [np.max(x) for x in images if getattr(x, "dtype", None) in SCALED and np.size(x)]
    if highest and max(highest) == 1:
        warn_user(
            "these images of type uint8 or uint16 have only 0 and 1, which are divided by 255 or "
            "65535; use image.astype(float) if they are not brightness values"
        )


def _pixels(image: Any, what: str) -> Floats:
    try:
        pixels = np.asarray(image, dtype=np.float64)
        if getattr(image, "dtype", None) in SCALED:
            pixels = pixels / np.iinfo(image.dtype).max
    except (TypeError, ValueError):
        raise DataError(f"{what} must be an array of numbers, H x W or H x W x d") from None
    if pixels.ndim == 2:
        pixels = pixels[:, :, None]
    if pixels.ndim != 3 or 0 in pixels.shape[:2]:
        raise DataError(
            f"{what} has shape {np.shape(image)}; it must be H x W or H x W x d (several images "
            "are for grids)"
        )
    return pixels


@lru_cache(maxsize=64)
def _edges(height: int, width: int, neighbors: int) -> tuple[Ints, Floats]:
    """Return the edges, sorted by direction, and the one-hot directions of the edges."""
    nodes = np.arange(height * width).reshape(height, width)
    parts = []
    for down, right in DIRECTIONS[neighbors]:
        first = nodes[: height - down, max(-right, 0) : width - max(right, 0)]
        second = nodes[down:, max(right, 0) : width - max(-right, 0)]
        parts.append(np.stack([first.ravel(), second.ravel()], axis=1))
    directions = np.repeat(np.eye(len(parts)), [len(part) for part in parts], axis=0)
    edges = np.concatenate(parts)
    for array in (edges, directions):
        array.setflags(write=False)
    return edges, directions
