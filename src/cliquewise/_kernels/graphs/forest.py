"""Sum-product on the trees of a data set: marginals of all its cliques in one call.

On the way up the table of an edge becomes the distribution of the child's state for every state of
its parent, whose normalizers are the message; on the way down it is multiplied with the parent's
marginal. So there is one exponential per entry of a table, and one logarithm per message.
"""

from __future__ import annotations

from collections import namedtuple

import numpy as np

from cliquewise._kernels import kernel

#: Forests whose cliques, first the nodes and then the edges, have the states ``offsets[c] :
#: offsets[c + 1]`` (those of an edge with its left node's in the slower axis). ``walk`` lists the
#: nodes example by example, parents first; ``parent`` is -1 for a root, ``edge`` is the clique that
#: joins a node with its parent, and ``is_left`` says that the node is the left one of it.
Forest = namedtuple("Forest", ["offsets", "walk", "parent", "edge", "is_left"])


@kernel
def _normalize(row, start, step, count):
    """Turn logarithms into a distribution, in place; return the logarithm of their sum."""
    top, mass = row[start], 0.0
    for y in range(1, count):
        top = max(top, row[start + y * step])
    for y in range(count):
        row[start + y * step] = np.exp(row[start + y * step] - top)
        mass += row[start + y * step]
    for y in range(count):
        row[start + y * step] /= mass
    return top + np.log(mass)


@kernel
def marginals(forest, first, last, node_start, edge_start, scores, beliefs, mu):
    """Compute marginals of the nodes ``walk[first:last]``, whole trees, and of their edges.

    Parameters
    ----------
    forest : Forest
    first, last : int
    node_start, edge_start : int
        Subtracted from the states of nodes and of edges to get their places in the arrays.
    scores : array
        Finite.
    beliefs : array
        Scratch, for the states of the nodes.
    mu : array
        Filled.

    Returns
    -------
    log_z : float
    """
    offsets, total = forest.offsets, 0.0
    for at in range(first, last):
        v = forest.walk[at]
        for s in range(offsets[v] - node_start, offsets[v + 1] - node_start):
            beliefs[s] = scores[s]
    for at in range(last - 1, first - 1, -1):
        v, p = forest.walk[at], forest.parent[forest.walk[at]]
        own, k = offsets[v] - node_start, offsets[v + 1] - offsets[v]
        if p < 0:
            for s in range(own, own + k):
                mu[s] = beliefs[s]
            total += _normalize(mu, own, 1, k)
            continue
        table, above = offsets[forest.edge[v]] - edge_start, offsets[p] - node_start
        n = offsets[p + 1] - offsets[p]
        along, across = (n, 1) if forest.is_left[v] else (1, k)
        for x in range(n):
            for y in range(k):
                s = table + x * across + y * along
                mu[s] = scores[s] + beliefs[own + y]
            beliefs[above + x] += _normalize(mu, table + x * across, along, k)
    for at in range(first, last):
        v, p = forest.walk[at], forest.parent[forest.walk[at]]
        if p < 0:
            continue
        own, k = offsets[v] - node_start, offsets[v + 1] - offsets[v]
        table, above = offsets[forest.edge[v]] - edge_start, offsets[p] - node_start
        n = offsets[p + 1] - offsets[p]
        along, across = (n, 1) if forest.is_left[v] else (1, k)
        for y in range(k):
            mass = 0.0
            for x in range(n):
                s = table + x * across + y * along
                mu[s] *= mu[above + x]
                mass += mu[s]
            mu[own + y] = mass
    return total


@kernel
def all_marginals(forest, node_offsets, scores, beliefs, mu, log_z):
    """Compute :func:`marginals` of all examples; ``node_offsets`` delimits their nodes."""
    for i in range(node_offsets.shape[0] - 1):
        log_z[i] = marginals(
            forest, node_offsets[i], node_offsets[i + 1], 0, 0, scores, beliefs, mu
        )
