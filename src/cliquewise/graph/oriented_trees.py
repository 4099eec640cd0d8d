"""Gini entropies of pairwise graphs, and the random oriented spanning trees behind one of them."""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike
from scipy.sparse import coo_array

from cliquewise.errors import DataError, TooLargeError, UnsupportedError
from cliquewise.ragged import Floats, Ints

ENTROPIES = ("gini", "gini-otrw")
#: Connected parts of more nodes are refused: each needs a dense inverse.
MOST_NODES = 3000


def check_entropy(entropy: str, epsilon: float) -> None:
    """Raise an error for an unknown entropy."""
    if entropy not in ENTROPIES:
        raise UnsupportedError(f"entropy is one of {', '.join(ENTROPIES)}, not {entropy!r}")
    if not 0 <= epsilon <= 1:
        raise DataError(f"epsilon = {epsilon}; it must be in [0, 1]")


def gini_curvatures(
    cards: Ints,
    edges: Ints,
    node_offsets: Ints,
    edge_offsets: Ints,
    entropy: str = "gini",
    epsilon: float = 0.9,
) -> tuple[Floats, Floats]:
    """Return the curvatures h and a of the entropy of concatenated pairwise graphs.

    ``H(mu) = sum_c h_c (1 - ||mu_c||^2) - sum_ei a_ei (1 - ||A_i mu_e||^2)`` over cliques c and
    ends i of edges e: ones and nothing for "gini"; Eq. 10 of idal for "gini-otrw", of whose
    nodes' entropies the share ``epsilon`` is taken off.

    Parameters
    ----------
    cards : int array (n_nodes)
        States of every node of all graphs.
    edges : int array (n_edges, 2)
    node_offsets, edge_offsets : int arrays (n_graphs + 1)
        Where the nodes and the edges of each graph begin.
    entropy : {"gini", "gini-otrw"}, default="gini"
    epsilon : float, default=0.9

    Returns
    -------
    h : array (n_nodes + n_edges)
    a : array (n_edges, 2), or (0, 2) where all are zero

    Examples
    --------
    >>> one = np.array([2, 2]), np.array([[0, 1]]), np.array([0, 2]), np.array([0, 1])
    >>> gini_curvatures(*one, "gini-otrw", 1.0)
    (array([1., 1., 4.]), array([[1., 1.]]))
    """
    check_entropy(entropy, epsilon)
    if entropy == "gini":
        return np.ones(len(cards) + len(edges)), np.empty((0, 2))
    roots, forward, backward = np.zeros(len(cards)), np.zeros(len(edges)), np.zeros(len(edges))
    seen: dict[tuple[int, bytes], tuple[Floats, Floats, Floats]] = {}
    for i in range(len(node_offsets) - 1):
        v = slice(int(node_offsets[i]), int(node_offsets[i + 1]))
        e = slice(int(edge_offsets[i]), int(edge_offsets[i + 1]))
        local = edges[e] - v.start
        key = (v.stop - v.start, local.tobytes())
        if key not in seen:
            seen[key] = oriented_tree_probabilities(v.stop - v.start, local)
        roots[v], forward[e], backward[e] = seen[key]
    size = cards.astype(np.float64)
    left, right = size[edges[:, 0]], size[edges[:, 1]]
    # Left -> right has the entropy H(edge) - H(left).
    h = np.concatenate([size * roots, left * right * (forward + backward)])
    return h, epsilon * np.stack([left * forward, right * backward], axis=1)


def oriented_tree_probabilities(n_nodes: int, edges: ArrayLike) -> tuple[Floats, Floats, Floats]:
    """Return appearance probabilities under uniform oriented spanning trees.

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
    from scipy.sparse.csgraph import connected_components

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
    """Return the probabilities of one connected component."""
    laplacian = np.zeros((n, n))
    a, b = pairs[:, 0], pairs[:, 1]
    laplacian[a, b] = laplacian[b, a] = -1.0
    laplacian[np.arange(n), np.arange(n)] = -laplacian.sum(axis=0)
    laplacian[0] = 1.0
    inverse: Floats = np.linalg.inv(laplacian).astype(np.float64)

    def arc(h: Ints, m: Ints) -> Floats:
        return np.where(m != 0, inverse[m, m], 0.0) - np.where(h != 0, inverse[m, h], 0.0)

    return inverse[:, 0].copy(), np.clip(arc(a, b), 0, 1), np.clip(arc(b, a), 0, 1)
