"""Subwindow search beside exhaustive search: same boxes, share of the windows, seconds.

    python -m benchmarks.subwindow [--images 200] [--sides 40 64]

Images are weight maps of a linear classifier over 32 visual words: a textured object that
prefers 8 of them, on a background with patches of clutter. ``signal`` is the share of object
words on the object; the smaller it is, the harder the search.
"""

from __future__ import annotations

import argparse
import time

import numpy as np

from benchmarks.common import print_json, print_table
from cliquewise.oracles.subwindow import best_subwindows, exhaustive_subwindows, n_boxes


def weight_map(rng: np.random.Generator, side: int, signal: float) -> np.ndarray:
    """One image: weights of the visual words of its cells."""
    words = rng.choice(32, (side, side), p=np.r_[np.full(8, 0.03), np.full(24, 0.76 / 24)])
    height, width = rng.integers(side // 4, side // 2, 2)
    top, left = rng.integers(0, side - height), rng.integers(0, side - width)
    inside = words[top : top + height, left : left + width]
    is_object = rng.random(inside.shape) < signal
    inside[is_object] = rng.integers(0, 8, int(is_object.sum()))
    for _ in range(3):
        y, x = rng.integers(0, side - 5, 2)
        words[y : y + 4, x : x + 4] = rng.integers(0, 16, (4, 4))
    weights = np.where(np.arange(32) < 8, 1.0, -0.6) + 0.3 * rng.normal(size=32)
    return weights[words]


def measure(side: int, signal: float, n_images: int) -> dict[str, float]:
    """Over many images of one kind."""
    rng = np.random.default_rng(side)
    best_subwindows(np.ones((3, 3)))
    exhaustive_subwindows(np.ones((3, 3)))
    shares, ours, theirs, same = [], 0.0, 0.0, 0
    for _ in range(n_images):
        weights = weight_map(rng, side, signal)
        start = time.process_time()
        found = best_subwindows(weights)[0]
        middle = time.process_time()
        expected = exhaustive_subwindows(weights)[0]
        ours, theirs = ours + middle - start, theirs + time.process_time() - middle
        same += found.box == expected.box
        shares.append(found.visited / n_boxes(side, side))
    return {
        "side": side,
        "signal": signal,
        "images": n_images,
        "same_box": same,
        "mean_share": float(np.mean(shares)),
        "worst_share": float(np.max(shares)),
        "search_ms": 1e3 * ours / n_images,
        "exhaustive_ms": 1e3 * theirs / n_images,
    }


def main() -> None:
    """Print one line per kind of image."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--images", type=int, default=200)
    parser.add_argument("--sides", type=int, nargs="+", default=[40, 64])
    parser.add_argument("--signals", type=float, nargs="+", default=[0.4, 0.6, 0.8])
    options = parser.parse_args()
    rows = [measure(s, g, options.images) for s in options.sides for g in options.signals]
    print_table("subwindow search", list(rows[0]), [list(r.values()) for r in rows])
    print_json({"subwindow": rows})


if __name__ == "__main__":
    main()
