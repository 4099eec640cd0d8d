"""Spanning trees: random ones by loop-erased walks (Wilson 1996), the best one by Kruskal."""

import numpy as np

from cliquewise._kernels import kernel


@kernel
def wilson(n_trees, seed, order, starts, links, others, steps, counts):
    """Draw spanning forests and count how often each edge is used.

    ``links[starts[v]:starts[v + 1]]`` are the edges of ``v``, ``others`` their far ends and
    ``steps`` the cumulated probabilities of walking along them. ``order`` has the variables,
    the first of each connected part marked by a negative sign (``-v - 1``): it is a root.
    """
    np.random.seed(seed)  # noqa: NPY002 (the generator that compiled code has)
    n = len(order)
    in_tree = np.empty(n, dtype=np.bool_)
    way = np.empty(n, dtype=np.int64)
    for _ in range(n_trees):
        for at in range(n):
            v = order[at]
            in_tree[v if v >= 0 else -v - 1] = v < 0
        for at in range(n):
            if order[at] < 0:
                continue
            v = order[at]
            while not in_tree[v]:
                r = np.random.random()  # noqa: NPY002
                a = starts[v]
                last = starts[v + 1] - 1
                while a < last and steps[a] <= r:
                    a += 1
                way[v] = a
                v = others[a]
            v = order[at]
            while not in_tree[v]:
                in_tree[v] = True
                counts[links[way[v]]] += 1
                v = others[way[v]]


@kernel
def kruskal(order, edges, n_nodes, chosen):
    """Mark the edges, taken in ``order``, that join what is not joined yet."""
    parent = np.arange(n_nodes)
    for at in range(len(order)):
        e = order[at]
        i, j = edges[e, 0], edges[e, 1]
        while parent[i] != i:
            parent[i] = parent[parent[i]]
            i = parent[i]
        while parent[j] != j:
            parent[j] = parent[parent[j]]
            j = parent[j]
        if i != j:
            parent[i] = j
            chosen[e] = 1.0
