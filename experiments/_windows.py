"""Generated images, the windows in them as candidates, and what is known of each window."""

from __future__ import annotations

from typing import Any

import numpy as np


def images(n: int, seed: int, side: int = 40, words: int = 16, windows: int = 150) -> Any:
    """Grids of words with one textured box each; windows, their histograms and their IoU."""
    from cliquewise.metrics import iou

    rng = np.random.default_rng(seed)
    # The textures are those of the task, whatever the images drawn.
    taste = np.random.default_rng(1)
    texture, clutter = taste.dirichlet(np.full(words, 0.5)), taste.dirichlet(np.ones(words), 4)
    texture = 0.5 * texture + 0.5 * clutter.mean(axis=0)
    features, overlaps, boxes = [], [], []
    for _ in range(n):
        picture = rng.choice(words, (side, side), p=clutter[0])
        for patch in clutter[1:]:
            top, left = rng.integers(0, side - 10, 2)
            picture[top : top + 12, left : left + 12] = rng.choice(words, (12, 12), p=patch)[
                : side - top, : side - left
            ]
        high, wide = rng.integers(10, 20, 2)
        top, left = rng.integers(0, side - high), rng.integers(0, side - wide)
        picture[top : top + high, left : left + wide] = rng.choice(words, (high, wide), p=texture)
        truth = np.array([left, top, left + wide, top + high], dtype=float)
        corner = rng.integers(0, side - 8, (windows, 2))
        size = rng.integers(8, 24, (windows, 2))
        some = np.hstack([corner, np.minimum(corner + size, side)]).astype(float)
        near = np.clip(truth + rng.integers(-3, 4, (10, 4)), 0, side)
        near[:, 2:] = np.minimum(np.maximum(near[:, 2:], near[:, :2] + 4), side)
        near[:, :2] = np.minimum(near[:, :2], near[:, 2:] - 4)
        every = np.vstack([some, near])
        features.append(histograms(picture, every, words))
        overlaps.append(np.array([iou(truth, b) for b in every]))
        boxes.append(every)
    return features, overlaps, boxes


def histograms(picture: np.ndarray, boxes: np.ndarray, words: int) -> np.ndarray:
    """Shares of the words inside each box, and in the frame of three pixels around it."""
    sums = np.zeros((picture.shape[0] + 1, picture.shape[1] + 1, words))
    sums[1:, 1:] = np.cumsum(np.cumsum(picture[..., None] == np.arange(words), axis=0), axis=1)

    def counts(b: np.ndarray) -> np.ndarray:
        x0, y0, x1, y1 = b.astype(int).T
        return sums[y1, x1] - sums[y0, x1] - sums[y1, x0] + sums[y0, x0]

    wider = np.clip(boxes + np.array([-3, -3, 3, 3]), 0, picture.shape[0])
    inside, outer = counts(boxes), counts(wider)
    frame = outer - inside
    return np.hstack([
        inside / np.maximum(inside.sum(axis=1, keepdims=True), 1),
        frame / np.maximum(frame.sum(axis=1, keepdims=True), 1), inside.sum(axis=1)[:, None] / 400,
    ])  # fmt: skip
