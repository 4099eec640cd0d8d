"""Examples that are trees, rooted: what the kernels of exact inference on them walk along."""

from __future__ import annotations

from typing import Any

import numpy as np
from scipy.sparse import csr_array
from scipy.sparse.csgraph import breadth_first_order, connected_components

from cliquewise.ragged import Ints


def forest_of(cliques: Any, owners: Ints) -> Any | None:
    """The trees of all examples, or None where one has a cycle or two edges between two nodes.

    Parameters
    ----------
    cliques : Cliques
    owners : int array
        The example of every node.
    """
    from cliquewise._kernels.graphs.forest import Forest

    n, left, right = len(owners), cliques.left, cliques.right
    if n == 0 or len(left) >= n:
        return None  # without a look at the components
    ones = np.ones(len(left), dtype=np.int8)
    count, part = connected_components(csr_array((ones, (left, right)), (n, n)), directed=False)
    if len(left) != n - count:
        return None
    roots = np.zeros(count, dtype=np.int64)
    roots[part[::-1]] = np.arange(n)[::-1]
    # One more node joins all roots, so that one walk reaches everything.
    rows = np.concatenate([left, right, np.full(count, n)])
    columns = np.concatenate([right, left, roots])
    joined = csr_array((np.ones(len(rows), dtype=np.int8), (rows, columns)), (n + 1, n + 1))
    walk, above = breadth_first_order(joined, n, directed=True)
    walk = walk[1:].astype(np.int64)
    walk = walk[np.argsort(owners[walk], kind="stable")]
    parent = np.where(above[:n] == n, -1, above[:n]).astype(np.int64)
    is_below = parent[left] == right
    child = np.where(is_below, left, right)
    edge, is_left = np.zeros(n, dtype=np.int64), np.zeros(n, dtype=bool)
    edge[child], is_left[child] = n + np.arange(len(left)), is_below
    return Forest(cliques.offsets, walk, parent, edge, is_left)
