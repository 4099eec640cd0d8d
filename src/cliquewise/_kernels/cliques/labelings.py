"""Convex combinations of labelings of graphs, for structural support vector machines.

Example i keeps labelings ``a`` with weights ``alpha[i, a]`` on a simplex; the first one is the
truth. With ``w = C sum_i sum_a alpha[i, a] B_i (y_i - e_a)`` the score of a labeling is
``cost_a + <w, B_i e_a>``, and moving mass from v to s lowers the score of b by
``C (gram[s, b] - gram[v, b])``, where ``gram`` holds the products of the images ``B_i e_a``. All
moves among the labelings at hand therefore cost no look at the features.
"""

from __future__ import annotations

from collections import namedtuple

import numpy as np

from cliquewise._kernels import kernel
from cliquewise._kernels.cliques.features import _add, _widest, example_scores

#: ``labels[v, a]`` is the label of node v in labeling a of its example, ``cost`` the cost of it.
Labelings = namedtuple("Labelings", ["labels", "count", "alpha", "cost", "gram"])

#: Where the examples' nodes and edges begin.
Ranges = namedtuple("Ranges", ["nodes", "edges"])


@kernel(helper=True)
def _state(g, labels, slot, c):
    """State of a clique in a labeling; an edge's follows from its ends."""
    n_nodes = len(g.degree)
    if c < n_nodes:
        return np.int64(labels[c, slot])
    i, j = g.left[c - n_nodes], g.right[c - n_nodes]
    return labels[i, slot] * (g.offsets[j + 1] - g.offsets[j]) + labels[j, slot]


@kernel(helper=True)
def _clique(n_nodes, nodes, edges, q):
    """The q-th clique of an example: nodes first."""
    own = nodes[1] - nodes[0]
    return nodes[0] + q if q < own else n_nodes + edges[0] + q - own


@kernel(helper=True)
def _total(g, labels, slot, nodes, edges, scores):
    """Sum of the scores (one per state of the example) that a labeling picks."""
    total, at = 0.0, 0
    for q in range(nodes[1] - nodes[0] + edges[1] - edges[0]):
        c = _clique(len(g.degree), nodes, edges, q)
        total += scores[at + _state(g, labels, slot, c)]
        at += g.offsets[c + 1] - g.offsets[c]
    return total


@kernel(helper=True)
def _image(g, labels, slot, nodes, edges, scale, out):
    """``out += scale B e_a``; with ``scale = 0`` the entries that it touches become zero."""
    for q in range(nodes[1] - nodes[0] + edges[1] - edges[0]):
        c = _clique(len(g.degree), nodes, edges, q)
        t, r = g.type[c], g.row[c]
        p = g.tie[g.tie_start[t] + _state(g, labels, slot, c)]
        if p < 0:
            continue
        for f in range(g.indptr[r], g.indptr[r + 1]):
            at = g.base[t] + g.indices[f] * g.params[t] + p
            out[at] = out[at] + scale * g.values[f] if scale != 0.0 else 0.0


@kernel(helper=True)
def _node_costs(g, pool, i, slot, nodes):
    total = 0.0
    if len(g.cost):
        for v in range(nodes[0], nodes[1]):
            total += g.cost[g.offsets[v] + pool.labels[v, slot]]
    pool.cost[i, slot] = total


@kernel(helper=True)
def _slot(pool, i, nodes, labels):
    """Where a labeling is or should go, and whether it is new; -1 if there is no room."""
    count = pool.count[i]
    idle = -1
    for a in range(count):
        same = True
        for v in range(nodes[0], nodes[1]):
            if pool.labels[v, a] != labels[v - nodes[0]]:
                same = False
                break
        if same:
            return a, False
        if a > 0 and pool.alpha[i, a] == 0.0:
            idle = a
    if count < pool.alpha.shape[1]:
        pool.count[i] = count + 1
        return count, True
    return idle, True


@kernel
def insert(g, ranges, pool, i, labels, scratch, scores):
    """Keep a labeling of example i, with weight 0; an idle one may make room.

    Returns 0 if it was there, 1 if it is new, -1 if all the others are in use. ``scratch`` has
    one entry per weight, all zero; ``scores`` one per state of the example.
    """
    nodes = (ranges.nodes[i], ranges.nodes[i + 1])
    edges = (ranges.edges[i], ranges.edges[i + 1])
    slot, new = _slot(pool, i, nodes, labels)
    if slot < 0 or not new:
        return np.int64(slot if slot < 0 else 0)
    for v in range(nodes[0], nodes[1]):
        pool.labels[v, slot] = labels[v - nodes[0]]
    pool.alpha[i, slot] = 0.0
    _node_costs(g, pool, i, slot, nodes)
    _image(g, pool.labels, slot, nodes, edges, 1.0, scratch)
    example_scores(g, scratch, nodes, edges, scores)
    for a in range(pool.count[i]):
        product = _total(g, pool.labels, a, nodes, edges, scores)
        pool.gram[i, slot, a] = product
        pool.gram[i, a, slot] = product
    _image(g, pool.labels, slot, nodes, edges, 0.0, scratch)
    return np.int64(1)


@kernel(helper=True)
def _exchange(pool, i, C, rounds, score, moved):
    """Pairwise steps between the best labeling and the worst one in use; returns the rise.

    ``score`` follows the moves; ``moved`` adds up what each labeling gained.
    """
    rise, first = 0.0, -1.0
    for _ in range(rounds):
        s, v = 0, -1
        for a in range(pool.count[i]):
            if score[a] > score[s]:
                s = a
            if pool.alpha[i, a] > 0.0 and (v < 0 or score[a] < score[v]):
                v = a
        slope = score[s] - score[v]
        if slope <= max(1e-3 * first, 1e-14 * (1.0 + abs(score[s]))):
            break
        first = max(first, slope)
        bend = C * (pool.gram[i, s, s] + pool.gram[i, v, v] - 2.0 * pool.gram[i, s, v])
        step = pool.alpha[i, v]
        if bend * step > slope:
            step = slope / bend
        rise += step * (slope - 0.5 * step * bend)
        pool.alpha[i, s] += step
        # Exactly zero when all of it goes, so that the labeling counts as idle.
        pool.alpha[i, v] = max(pool.alpha[i, v] - step, 0.0)
        moved[s] += step
        moved[v] -= step
        for a in range(pool.count[i]):
            score[a] -= C * step * (pool.gram[i, s, a] - pool.gram[i, v, a])
    return rise


@kernel(helper=True)
def _shift(g, pool, i, moved, nodes, edges, C, d, w):
    """``w -= C sum_a moved_a B e_a``; cliques on which all labelings agree are passed by."""
    for q in range(nodes[1] - nodes[0] + edges[1] - edges[0]):
        c = _clique(len(g.degree), nodes, edges, q)
        for s in range(g.offsets[c + 1] - g.offsets[c]):
            d[s] = 0.0
        state, differ = -1, False
        for a in range(pool.count[i]):
            if moved[a] != 0.0:
                s = _state(g, pool.labels, a, c)
                d[s] += moved[a]
                differ = differ or (state >= 0 and s != state)
                state = s
        if differ:
            _add(g, c, d, -C, w)


@kernel
def improve(g, ranges, pool, w, C, order, rounds, scores):
    """Re-weigh the labelings at hand, example by example; returns the rise of the dual sum."""
    cap = pool.alpha.shape[1]
    score, moved, d = np.empty(cap), np.empty(cap), np.empty(_widest(g))
    rise = 0.0
    for q in range(len(order)):
        i = order[q]
        if pool.count[i] < 2:
            continue
        nodes = (ranges.nodes[i], ranges.nodes[i + 1])
        edges = (ranges.edges[i], ranges.edges[i + 1])
        example_scores(g, w, nodes, edges, scores)
        for a in range(pool.count[i]):
            total = _total(g, pool.labels, a, nodes, edges, scores)
            score[a] = total + pool.cost[i, a]
            moved[a] = 0.0
        rise += _exchange(pool, i, C, rounds, score, moved)
        _shift(g, pool, i, moved, nodes, edges, C, d, w)
    return rise


@kernel
def value_in_use(g, ranges, pool, i, scores):
    """``sum_a alpha_a (cost_a + <scores, e_a>)`` of example i, scores without costs."""
    nodes = (ranges.nodes[i], ranges.nodes[i + 1])
    edges = (ranges.edges[i], ranges.edges[i + 1])
    total = 0.0
    for a in range(pool.count[i]):
        if pool.alpha[i, a] > 0.0:
            one = _total(g, pool.labels, a, nodes, edges, scores)
            total += pool.alpha[i, a] * (one + pool.cost[i, a])
    return total


@kernel
def weights_of_labelings(g, ranges, pool, C, w):
    """``w = C sum_i sum_a alpha[i, a] B_i (y_i - e_a)``; returns the sum of the mean costs."""
    total = 0.0
    for p in range(len(w)):
        w[p] = 0.0
    for i in range(len(pool.count)):
        nodes = (ranges.nodes[i], ranges.nodes[i + 1])
        edges = (ranges.edges[i], ranges.edges[i + 1])
        norm = 0.0
        for a in range(pool.count[i]):
            norm += pool.alpha[i, a]
        rest = 0.0
        for a in range(1, pool.count[i]):
            pool.alpha[i, a] /= norm
            share = pool.alpha[i, a]
            if share > 0.0:
                _image(g, pool.labels, a, nodes, edges, -C * share, w)
                total += share * pool.cost[i, a]
                rest += share
        pool.alpha[i, 0] = pool.alpha[i, 0] / norm
        if rest > 0.0:
            _image(g, pool.labels, 0, nodes, edges, C * rest, w)
        total += pool.alpha[i, 0] * pool.cost[i, 0]
    return total


@kernel
def add_labeling(g, ranges, labels, slot, i, scale, w):
    """``w += scale B_i e_a``, a labeling given as a column over all nodes."""
    nodes = (ranges.nodes[i], ranges.nodes[i + 1])
    edges = (ranges.edges[i], ranges.edges[i + 1])
    _image(g, labels, slot, nodes, edges, scale, w)
