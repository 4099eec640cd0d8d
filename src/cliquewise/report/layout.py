"""Layout of graphs: distances in the drawing are like distances along edges."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from cliquewise.report.grids import cornered_grid, numbered_grid

#: Largest number of iterations.
ROUNDS = 120


class Layout(NamedTuple):
    """Positions of the nodes, and which edges wrap around a grid."""

    places: NDArray[np.float64]
    around: NDArray[np.bool_]


def layout(n: int, edges: Any) -> Layout:
    """Return (n, 2) positions: components side by side, neighbors at a distance of about 1.

    Grids are recognized. Other graphs use stress majorization, initialized by classical scaling,
    and are rotated to make most edges horizontal or vertical.

    Parameters
    ----------
    n : int
    edges : (m, 2) ints

    Examples
    --------
    >>> import numpy as np
    >>> at = layout(4, [(0, 1), (1, 2), (2, 3)]).places
    >>> bool(np.allclose(np.linalg.norm(np.diff(at, axis=0), axis=1), 1, atol=0.01))
    True
    >>> layout(4, [(0, 1), (2, 3), (0, 2), (1, 3)]).places.tolist()
    [[0.0, 0.0], [1.0, 0.0], [0.0, 1.0], [1.0, 1.0]]
    """
    from scipy.sparse import coo_matrix
    from scipy.sparse.csgraph import connected_components, shortest_path

    pairs = np.asarray(edges, dtype=np.int64).reshape(-1, 2)
    links = coo_matrix((np.ones(len(pairs)), (pairs[:, 0], pairs[:, 1])), shape=(n, n)).tocsr()
    _, part = connected_components(links, directed=False)
    out, around = np.zeros((n, 2)), np.zeros(len(pairs), dtype=bool)
    boxes, own = [], np.zeros(n, dtype=np.int64)
    for p in range(int(part.max(initial=-1)) + 1):
        mine, within = np.flatnonzero(part == p), np.flatnonzero(part[pairs[:, 0]] == p)
        own[mine] = np.arange(len(mine))
        inside = own[pairs[within]]
        found = numbered_grid(len(mine), inside)
        if found is None:
            distances = shortest_path(links[mine][:, mine], directed=False, unweighted=True)
            at = cornered_grid(distances, inside)
            at = _turned(_stress(distances), inside) if at is None else at
        else:
            at, around[within] = found
        out[mine] = at - at.min(axis=0)
        boxes.append((mine, out[mine].max(axis=0) + 1.0))
    _pack(out, boxes)
    return Layout(out, around)


def _turned(at: NDArray[np.float64], edges: NDArray[np.int64]) -> NDArray[np.float64]:
    """Rotate positions: edges become axis-parallel if possible, otherwise the width is largest."""
    at = at - at.mean(axis=0)
    turn = np.linalg.svd(at, full_matrices=False)[2].T if len(at) > 1 else np.eye(2)
    steps = (at[edges[:, 1]] - at[edges[:, 0]]) @ np.array([1.0, 1.0j])
    spread = np.sum(steps**4 / np.maximum(np.abs(steps), 1e-9) ** 3)  # the same for all four
    if np.abs(spread) > 0.5 * np.abs(steps).sum():
        angle = np.angle(spread) / 4
        turn = np.array([[np.cos(angle), -np.sin(angle)], [np.sin(angle), np.cos(angle)]])
    at = at @ turn
    return at if np.ptp(at[:, 0]) >= np.ptp(at[:, 1]) else at[:, ::-1]


def _stress(distances: NDArray[np.float64]) -> NDArray[np.float64]:
    """Return positions whose distances are close to the given ones, weighted by proximity."""
    n = len(distances)
    if n == 1:
        return np.zeros((1, 2))
    squares = distances**2
    centered = squares - squares.mean(axis=0) - squares.mean(axis=1)[:, None] + squares.mean()
    values, vectors = np.linalg.eigh(-0.5 * centered)
    at = vectors[:, -2:] * np.sqrt(np.maximum(values[-2:], 1e-9))
    at += 1e-3 * np.random.default_rng(0).normal(
        size=at.shape
    )  # separates nodes with equal distances
    with np.errstate(divide="ignore"):
        weights = np.where(distances > 0, distances**-2.0, 0.0)
    laplacian = np.diag(weights.sum(axis=0)) - weights
    inverse = np.linalg.inv(laplacian + 1.0 / n) - 1.0 / n  # its pseudoinverse
    for _ in range(ROUNDS):
        apart = np.hypot(*(at[:, None] - at[None]).transpose(2, 0, 1))
        ratio = weights * distances / np.maximum(apart, 1e-9)
        moved = inverse @ (ratio.sum(axis=0)[:, None] * at - ratio @ at)
        done = np.abs(moved - at).max() < 1e-3
        at = moved
        if done:
            break
    return np.asarray(at)


def _pack(out: NDArray[np.float64], boxes: list[Any]) -> None:
    """Arrange components in rows, the tallest first, with a width of about 1.5 times the height."""
    area = sum(float(size[0] * size[1]) for _, size in boxes)
    width = max(np.sqrt(1.5 * area), max((float(size[0]) for _, size in boxes), default=1.0))
    x = y = tall = 0.0
    for mine, size in sorted(boxes, key=lambda box: -float(box[1][1])):
        if x > 0 and x + size[0] > width:
            x, y, tall = 0.0, y + tall, 0.0
        out[mine] += [x, y]
        x, tall = x + float(size[0]), max(tall, float(size[1]))
