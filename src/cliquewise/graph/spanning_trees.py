"""The spanning-tree polytope: probabilities with which the edges of a graph appear in a tree.

A vector ``rho`` of edge probabilities lies in it if some distribution over spanning trees
(over spanning forests that join what is connected, if the graph is not) has it as its means.
That is what makes the tree-reweighted entropy concave and its bound true.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import ArrayLike
from scipy.sparse import coo_array, csr_array
from scipy.sparse.csgraph import (
    breadth_first_order,
    connected_components,
    maximum_flow,
)

from cliquewise.errors import GraphError
from cliquewise.ragged import Floats, Ints, offsets_of

#: Parts of at most this many variables get exact probabilities from a dense inverse.
DENSE = 1500
#: Trees drawn for larger ones.
TREES = 200
#: Roots of breadth-first orders.
ROOTS = 8
#: A weight counts as at least this part of the largest, so that every edge appears.
FLOOR = 1e-2


def edge_probabilities(
    n_nodes: int, edges: ArrayLike, weights: ArrayLike | None = None, random_state: Any = 0
) -> Floats:
    """Return the probability of each edge in a random spanning tree.

    A tree has a probability proportional to the product of its edges' weights. By the
    matrix-tree theorem an edge then appears with its weight times the effective resistance
    between its ends. On parts of more than 1,500 variables the mean of 200 drawn trees (and of
    a few more, until every edge was in one) takes the place of the inverse: it lies in the
    polytope as well.

    Parameters
    ----------
    n_nodes : int
    edges : array-like of int, shape (m, 2)
        Each pair once.
    weights : array-like, shape (m,), optional
        Not negative; equal by default. Weights below 1 % of the largest are raised to that.
    random_state : int or Generator, default=0
        For drawn trees.

    Examples
    --------
    >>> edge_probabilities(3, [(0, 1), (1, 2), (0, 2)]).round(4)
    array([0.6667, 0.6667, 0.6667])
    """
    pairs, w = _checked(n_nodes, edges, weights)
    rho = np.ones(len(pairs))
    if not len(pairs):
        return rho
    _, part = _components(n_nodes, pairs)
    sizes = np.bincount(part)
    cyclic = np.bincount(part[pairs[:, 0]], minlength=len(sizes)) >= sizes
    large = sizes > DENSE
    for c in np.flatnonzero(cyclic & ~large):
        mine = np.flatnonzero(part[pairs[:, 0]] == c)
        rho[mine] = _matrix_tree(pairs[mine], w[mine])
    drawn = np.flatnonzero((cyclic & large)[part[pairs[:, 0]]])
    if len(drawn):
        rho[drawn] = _mean_tree(n_nodes, pairs[drawn], w[drawn], random_state)
    return rho


def parent_probabilities(
    n_nodes: int, edges: ArrayLike, weights: ArrayLike | None = None, random_state: Any = 0
) -> Floats:
    """Return a point of the polytope in linear time: every variable has a random parent.

    Variables are ordered breadth first from a random root. Each one but the first of its part
    draws one of its edges to earlier variables, which makes a spanning tree; so an edge appears
    with its share of the weights of these edges of its later end. Means over a few roots.

    Parameters
    ----------
    n_nodes : int
    edges : array-like of int, shape (m, 2)
    weights : array-like, shape (m,), optional
        As in :func:`edge_probabilities`.
    random_state : int or Generator, default=0

    Examples
    --------
    >>> float(parent_probabilities(3, [(0, 1), (1, 2), (0, 2)]).sum().round(12))
    2.0
    """
    pairs, w = _checked(n_nodes, edges, weights)
    rho = np.zeros(len(pairs))
    if not len(pairs):
        return rho
    rng = np.random.default_rng(random_state)
    count, part = _components(n_nodes, pairs)
    place, roots = np.empty(n_nodes + 1, dtype=np.int64), np.empty(count, dtype=np.int64)
    for _ in range(ROOTS):
        mixed = rng.permutation(n_nodes)
        roots[part[mixed]] = mixed
        rows = np.concatenate([pairs[:, 0], np.full(count, n_nodes)])
        columns = np.concatenate([pairs[:, 1], roots])
        joined = csr_array((np.ones(len(rows)), (rows, columns)), (n_nodes + 1, n_nodes + 1))
        walk = breadth_first_order(joined, n_nodes, directed=False, return_predecessors=False)
        place[walk] = np.arange(n_nodes + 1)
        later = np.where(place[pairs[:, 0]] > place[pairs[:, 1]], pairs[:, 0], pairs[:, 1])
        rho += w / np.bincount(later, weights=w, minlength=n_nodes)[later]
    return rho / ROOTS


def maximum_spanning_tree(n_nodes: int, edges: ArrayLike, weights: ArrayLike) -> Floats:
    """Return the indicator of the spanning forest of largest weight, a vertex.

    Examples
    --------
    >>> maximum_spanning_tree(3, [(0, 1), (1, 2), (0, 2)], [3.0, 1.0, 2.0])
    array([1., 0., 1.])
    """
    from cliquewise._kernels.graphs.spanning_trees import kruskal

    pairs, _ = _checked(n_nodes, edges, None)
    values = np.asarray(weights, dtype=np.float64)
    chosen = np.zeros(len(pairs))
    kruskal(np.argsort(-values, kind="stable"), pairs, n_nodes, chosen)
    return chosen


def in_spanning_tree_polytope(
    n_nodes: int, edges: ArrayLike, rho: ArrayLike, tolerance: float = 1e-6
) -> bool:
    """Return whether ``rho`` has the edge probabilities of a distribution over trees.

    Edmonds' inequalities, ``rho(E(S)) <= |S| - 1`` for every set S of variables and equality
    for each connected part, by one minimum cut per variable.

    Examples
    --------
    >>> triangle = [(0, 1), (1, 2), (0, 2)]
    >>> in_spanning_tree_polytope(3, triangle, [1.0, 0.5, 0.5])
    True
    >>> in_spanning_tree_polytope(3, triangle, [1.0, 1.0, 1.0])
    False
    """
    pairs, _ = _checked(n_nodes, edges, None)
    p = np.asarray(rho, dtype=np.float64)
    if p.shape != (len(pairs),) or not np.all((p >= -tolerance) & (p <= 1 + tolerance)):
        return False
    count, part = _components(n_nodes, pairs)
    totals = np.bincount(part[pairs[:, 0]], weights=p, minlength=count)
    if np.any(np.abs(totals - (np.bincount(part, minlength=count) - 1)) > tolerance * n_nodes):
        return False
    touched = np.unique(pairs)
    return all(_closure_excess(n_nodes, pairs, p, int(v)) <= tolerance * n_nodes for v in touched)


def _closure_excess(n: int, pairs: Ints, p: Floats, root: int) -> float:
    """Return the maximum of rho(E(S)) - |S| + 1 over sets S that contain ``root``.

    Choosing an edge forces its ends: a closure problem. Source to edge with its probability,
    edge to both ends without limit, variable to sink with 1 (the root costs nothing).
    """
    scale = 2**20
    m = len(pairs)
    source, sink = n + m, n + m + 1
    edge = n + np.arange(m)
    units = np.rint(p * scale).astype(np.int64)
    most = int(units.sum()) + 1
    cost = np.full(n, scale, dtype=np.int64)
    cost[root] = 0
    rows = np.concatenate([np.full(m, source), edge, edge, np.arange(n)])
    cols = np.concatenate([edge, pairs[:, 0], pairs[:, 1], np.full(n, sink)])
    caps = np.concatenate([units, np.full(2 * m, most), cost])
    if most > 2**31 - 1:
        raise GraphError(f"{m} edges are too many to check membership in the polytope")
    network = csr_array((caps.astype(np.int32), (rows, cols)), shape=(n + m + 2, n + m + 2))
    flow = maximum_flow(network, source, sink).flow_value
    return float(units.sum() - flow) / scale


def _checked(n: int, edges: ArrayLike, weights: ArrayLike | None) -> tuple[Ints, Floats]:
    pairs = np.asarray(edges, dtype=np.int64).reshape(-1, 2)
    if len(pairs) and (pairs.min() < 0 or pairs.max() >= n or (pairs[:, 0] == pairs[:, 1]).any()):
        raise GraphError(f"edges join two different variables out of 0..{n - 1}")
    w = np.ones(len(pairs)) if weights is None else np.asarray(weights, dtype=np.float64)
    if w.shape != (len(pairs),) or not np.all((w >= 0) & np.isfinite(w)):
        raise GraphError("weights need one finite number per edge, none negative")
    top = float(w.max(initial=0.0))
    return pairs, np.ones(len(pairs)) if top == 0.0 else np.maximum(w / top, FLOOR)


def _components(n: int, pairs: Ints) -> tuple[int, Ints]:
    ones = np.ones(len(pairs), dtype=np.int8)
    count, part = connected_components(
        coo_array((ones, (pairs[:, 0], pairs[:, 1])), shape=(n, n)), directed=False
    )
    return int(count), part


def _matrix_tree(pairs: Ints, weights: Floats) -> Floats:
    """Return weight times effective resistance, on one connected component."""
    nodes, local = np.unique(pairs, return_inverse=True)
    a, b = local.reshape(-1, 2).T
    k = len(nodes)
    laplacian = np.zeros((k, k))
    np.add.at(laplacian, (a, b), -weights)
    np.add.at(laplacian, (b, a), -weights)
    laplacian[np.arange(k), np.arange(k)] = -laplacian.sum(axis=1)
    inverse = np.linalg.inv(laplacian + 1.0 / k)  # that of the pseudo-inverse, plus a constant
    d = np.diagonal(inverse)
    rho = np.clip(weights * (d[a] + d[b] - 2.0 * inverse[a, b]), 0.0, 1.0)
    return np.asarray(rho * ((k - 1) / rho.sum())).clip(0.0, 1.0)


def _mean_tree(n: int, pairs: Ints, weights: Floats, random_state: Any) -> Floats:
    """Return the mean of random trees that together contain every edge."""
    from cliquewise._kernels.graphs.spanning_trees import wilson

    rng = np.random.default_rng(random_state)
    ends = np.concatenate([pairs[:, 0], pairs[:, 1]])
    order = np.argsort(ends, kind="stable")
    links = np.tile(np.arange(len(pairs)), 2)[order]
    others = np.concatenate([pairs[:, 1], pairs[:, 0]])[order]
    starts = offsets_of(np.bincount(ends, minlength=n))
    total = np.cumsum(weights[links])
    before = np.concatenate(([0.0], total))[starts]
    owner = ends[order]
    steps = (total - before[owner]) / (before[owner + 1] - before[owner])
    _, part = _components(n, pairs)
    _, roots = np.unique(part, return_index=True)
    sequence = np.arange(n)
    sequence[roots] = -roots - 1
    counts = np.zeros(len(pairs))
    wilson(TREES, int(rng.integers(2**31)), sequence, starts, links, others, steps, counts)
    made = TREES
    while counts.min() == 0:
        counts += maximum_spanning_tree(n, pairs, (counts == 0) + 0.5 * rng.random(len(pairs)))
        made += 1
    return counts / made
