"""Graphs: training and prediction on grids of pixels."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

import cliquewise as cw
from benchmarks.defaults.rows import Row
from cliquewise.data.images import grids


class Images(NamedTuple):
    """Noisy images of regions whose classes come in layers, as graphs with directed edges."""

    X: list[Any]
    y: list[Any]
    test_X: list[Any]
    test_y: list[Any]


def images(n: int = 12, size: int = 20, k: int = 4, noise: float = 0.7, seed: int = 0) -> Images:
    """Drawn images: which class a region has depends on its height, up to noise."""
    rng = np.random.default_rng(seed)
    down, right = np.mgrid[0:size, 0:size]
    X, y = [], []
    for _ in range(4 * n):
        centers = rng.uniform(0, size, (2 * k, 2))
        far = (down[..., None] - centers[:, 0]) ** 2 + (right[..., None] - centers[:, 1]) ** 2
        layers = centers[:, 0] / size * k + rng.normal(0, 0.5, 2 * k)
        labels = np.clip(layers.astype(int), 0, k - 1)[far.argmin(axis=-1)]
        X.append(np.eye(k)[labels] + noise * rng.normal(size=(size, size, k)))
        y.append(labels)
    graphs = grids(X)
    return Images(graphs[:n], y[:n], graphs[n:], y[n:])


def accuracy(labeler: Any, data: Images, **options: Any) -> float:
    """Share of test pixels with the right label."""
    found = np.concatenate(labeler.predict(data.test_X, **options))
    return float(np.mean(found == np.concatenate([y.ravel() for y in data.test_y])))


def trained() -> tuple[Any, Images]:
    """A likelihood model; only its predictions are timed."""
    data = images()
    return cw.GraphLabeler(tol=1e-2, random_state=0).fit(data.X, data.y), data


def predicted(given: tuple[Any, Images], method: str | None = None) -> float:
    """Accuracy by a method."""
    return accuracy(*given, method=method)


def hinge(data: Images, solver: Any = "auto", seconds: float = 40.0) -> float:
    """Accuracy of a structural SVM, training included."""
    labeler = cw.GraphLabeler("hinge", solver=solver, max_seconds=seconds, random_state=0)
    return accuracy(labeler.fit(data.X, data.y), data)


def _warm(data: Images) -> None:
    small = images(2, 6)
    hinge(small)
    hinge(small, "idal", 1.0)


ROWS: list[Row] = [
    Row(
        "GraphLabeler, grids with edge features: prediction",
        "accuracy",
        trained,
        predicted,
        {
            "trw-s": lambda given: predicted(given, "trw-s"),
            "relaxed": lambda given: predicted(given, "relaxed"),
        },
        warm=lambda given: [given[0].predict(given[1].X, m) for m in ("relaxed", "trw-s", None)],
    ),
    Row(
        "GraphLabeler, hinge",
        "accuracy",
        images,
        hinge,
        {
            "bcfw with trw-s": lambda data: hinge(data, cw.solvers.BCFW(map_method="trw-s")),
            "idal": lambda data: hinge(data, "idal"),
        },
        warm=_warm,
    ),
]
