"""Where to draw the nodes of a graph: distances on paper like those along edges."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

#: Rounds of moving the nodes, at most.
ROUNDS = 120


def layout(n: int, edges: Any) -> NDArray[np.float64]:
    """(n, 2) places, each part of the graph beside the others, neighbors about 1 apart.

    Stress majorization from classical scaling: grids come out as grids and trees unfold.

    Parameters
    ----------
    n : int
    edges : (m, 2) ints

    Examples
    --------
    >>> import numpy as np
    >>> at = layout(4, [(0, 1), (1, 2), (2, 3)])
    >>> bool(np.allclose(np.linalg.norm(np.diff(at, axis=0), axis=1), 1, atol=0.01))
    True
    """
    from scipy.sparse import coo_matrix
    from scipy.sparse.csgraph import connected_components, shortest_path

    pairs = np.asarray(edges, dtype=np.int64).reshape(-1, 2)
    links = coo_matrix((np.ones(len(pairs)), (pairs[:, 0], pairs[:, 1])), shape=(n, n)).tocsr()
    _, part = connected_components(links, directed=False)
    out = np.zeros((n, 2))
    boxes = []
    for p in range(int(part.max(initial=-1)) + 1):
        mine = np.flatnonzero(part == p)
        distances = shortest_path(links[mine][:, mine], directed=False, unweighted=True)
        at = _stress(distances)
        out[mine] = at - at.min(axis=0)
        boxes.append((mine, out[mine].max(axis=0) + 1.0))
    _pack(out, boxes)
    return out


def _stress(distances: NDArray[np.float64]) -> NDArray[np.float64]:
    """Places whose distances are near the given ones, near pairs first."""
    n = len(distances)
    if n == 1:
        return np.zeros((1, 2))
    squares = distances**2
    centered = squares - squares.mean(axis=0) - squares.mean(axis=1)[:, None] + squares.mean()
    values, vectors = np.linalg.eigh(-0.5 * centered)
    at = vectors[:, -2:] * np.sqrt(np.maximum(values[-2:], 1e-9))
    at += 1e-3 * np.random.default_rng(0).normal(size=at.shape)  # twins must part
    with np.errstate(divide="ignore"):
        weights = np.where(distances > 0, distances**-2.0, 0.0)
    laplacian = np.diag(weights.sum(axis=0)) - weights
    inverse = np.linalg.pinv(laplacian)
    for _ in range(ROUNDS):
        apart = np.linalg.norm(at[:, None] - at[None], axis=2)
        ratio = weights * distances / np.maximum(apart, 1e-9)
        moved = inverse @ (np.diag(ratio.sum(axis=0)) - ratio) @ at
        done = np.abs(moved - at).max() < 1e-3
        at = moved
        if done:
            break
    turned = np.linalg.svd(at - at.mean(axis=0), full_matrices=False)[2]
    return np.asarray((at - at.mean(axis=0)) @ turned.T)


def _pack(out: NDArray[np.float64], boxes: list[Any]) -> None:
    """Move the parts into rows, the tallest first, about half again as wide as high."""
    area = sum(float(size[0] * size[1]) for _, size in boxes)
    width = max(np.sqrt(1.5 * area), max((float(size[0]) for _, size in boxes), default=1.0))
    x = y = tall = 0.0
    for mine, size in sorted(boxes, key=lambda box: -float(box[1][1])):
        if x > 0 and x + size[0] > width:
            x, y, tall = 0.0, y + tall, 0.0
        out[mine] += [x, y]
        x, tall = x + float(size[0]), max(tall, float(size[1]))
