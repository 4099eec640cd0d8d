"""Recognize graphs that are grids, by the numbers of their nodes or by their corners."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

#: Smallest share of the edges of a grid that must be present.
ENOUGH = 0.75


def numbered_grid(
    n: int, edges: NDArray[np.int64]
) -> tuple[NDArray[np.float64], NDArray[np.bool_]] | None:
    """Return positions on a grid numbered row by row, and which edges wrap around it.

    Edges join neighbors, also diagonally, or the two ends of a row or of a column (a torus).

    Parameters
    ----------
    n : int
    edges : (m, 2) ints

    Examples
    --------
    >>> import numpy as np
    >>> numbered_grid(4, np.array([[0, 1], [2, 3], [0, 2], [1, 3]]))[0].tolist()
    [[0.0, 0.0], [1.0, 0.0], [0.0, 1.0], [1.0, 1.0]]
    """
    distinct, place = np.unique(np.sort(edges, axis=1), axis=0, return_inverse=True)
    for width in [w for w in range(2, n // 2 + 1) if n % w == 0]:
        height = n // width
        across, down = (np.abs(at[:, 1] - at[:, 0]) for at in (distinct % width, distinct // width))
        straight = across + down == 1
        around = ((across == width - 1) & (down == 0) & (width > 2)) | (
            (down == height - 1) & (across == 0) & (height > 2)
        )
        near = (across <= 1) & (down <= 1)
        wanted = (width - 1) * height + width * (height - 1)
        if (near | around).all() and straight.sum() >= ENOUGH * wanted:
            at = np.stack([np.arange(n) % width, np.arange(n) // width], axis=1)
            return at.astype(np.float64), around[place.ravel()]
    return None


def cornered_grid(
    distances: NDArray[np.float64], edges: NDArray[np.int64]
) -> NDArray[np.float64] | None:
    """Return positions on a complete grid whose nodes are numbered arbitrarily.

    The distances of a node to two corners on one side determine its position.

    Parameters
    ----------
    distances : (n, n) numbers of edges between nodes
    edges : (m, 2) ints

    Examples
    --------
    >>> import numpy as np
    >>> square = np.array([[0, 1, 1, 2], [1, 0, 2, 1], [1, 2, 0, 1], [2, 1, 1, 0.0]])
    >>> cornered_grid(square, np.array([[0, 1], [0, 2], [1, 3], [2, 3]])).tolist()
    [[0.0, 0.0], [0.0, 1.0], [1.0, 0.0], [1.0, 1.0]]
    """
    corners = np.flatnonzero(np.sum(distances == 1, axis=1) == 2)
    if len(corners) != 4:
        return None
    first = corners[0]
    order = corners[np.argsort(distances[first, corners], kind="stable")]
    side = distances[first, order[2]]  # the longer of the two sides that meet here
    x = (distances[first] - distances[order[2]] + side) / 2
    at = np.stack([x, distances[first] - x], axis=1)
    size = at.max(axis=0) + 1
    steps = np.abs(at[edges[:, 1]] - at[edges[:, 0]]).sum(axis=1)
    is_grid = (
        np.prod(size) == len(at)
        and (at >= 0).all()
        and (at == np.round(at)).all()
        and len(np.unique(at, axis=0)) == len(at)
        and (steps == 1).all()
    )
    return at if is_grid else None
