"""How often nodes are roots and edges point each way in a random oriented spanning tree."""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike
from scipy.sparse import coo_array
from scipy.sparse.csgraph import connected_components

from cliquewise.errors import TooLargeError
from cliquewise.graph.factor_graph import Floats
from cliquewise.graph.structure import Ints

#: Connected parts of more nodes are refused: each needs a dense inverse.
MOST_NODES = 3000


def oriented_tree_probabilities(n_nodes: int, edges: ArrayLike) -> tuple[Floats, Floats, Floats]:
    """Appearance probabilities under the uniform distribution over oriented spanning trees.

    By the directed matrix-tree theorem (Koo et al. 2007): with the first row of the Laplacian
    replaced by the weights of the roots, its inverse holds all of them.

    Parameters
    ----------
    n_nodes : int
    edges : array-like of int, shape (m, 2)

    Returns
    -------
    roots : array (n_nodes,)
        Probability of each node to be the root of its connected part.
    forward, backward : arrays (m,)
        Probability of ``edges[:, 0] -> edges[:, 1]``, and of the other direction.

    Examples
    --------
    >>> roots, forward, backward = oriented_tree_probabilities(3, [(0, 1), (1, 2)])
    >>> forward.round(3), backward.round(3)
    (array([0.333, 0.667]), array([0.667, 0.333]))
    """
    pairs = np.asarray(edges, dtype=np.int64).reshape(-1, 2)
    roots, forward, backward = np.zeros(n_nodes), np.zeros(len(pairs)), np.zeros(len(pairs))
    if n_nodes == 0:
        return roots, forward, backward
    ones = np.ones(len(pairs), dtype=np.int8)
    adjacency = coo_array((ones, (pairs[:, 0], pairs[:, 1])), shape=(n_nodes, n_nodes))
    count, part = connected_components(adjacency, directed=False)
    sizes = np.bincount(part)
    if sizes.max() > MOST_NODES:
        n = int(sizes.max())
        raise TooLargeError(
            f"gini-otrw needs the inverse of a {n} x {n} matrix (limit: {MOST_NODES}); use "
            'entropy="gini"',
            8.0 * n * n,
        )
    by_node, by_edge = np.argsort(part, kind="stable"), np.argsort(part[pairs[:, 0]], kind="stable")
    node_cut = np.cumsum(sizes)[:-1]
    edge_cut = np.cumsum(np.bincount(part[pairs[:, 0]], minlength=count))[:-1]
    local = np.empty(n_nodes, dtype=np.int64)
    for nodes, mine in zip(np.split(by_node, node_cut), np.split(by_edge, edge_cut), strict=True):
        local[nodes] = np.arange(len(nodes))
        roots[nodes], forward[mine], backward[mine] = _part(len(nodes), local[pairs[mine]])
    return roots, forward, backward


def _part(n: int, pairs: Ints) -> tuple[Floats, Floats, Floats]:
    """The same for one connected part."""
    laplacian = np.zeros((n, n))
    a, b = pairs[:, 0], pairs[:, 1]
    laplacian[a, b] = laplacian[b, a] = -1.0
    laplacian[np.arange(n), np.arange(n)] = -laplacian.sum(axis=0)
    laplacian[0] = 1.0
    inverse: Floats = np.linalg.inv(laplacian).astype(np.float64)

    def arc(h: Ints, m: Ints) -> Floats:
        return np.where(m != 0, inverse[m, m], 0.0) - np.where(h != 0, inverse[m, h], 0.0)

    return inverse[:, 0].copy(), np.clip(arc(a, b), 0, 1), np.clip(arc(b, a), 0, 1)
