"""Barrier Frank-Wolfe on a pairwise graph: gradient, line search, correction.

A point ``x`` has one entry per state of each variable and, after those, per entry of each
edge's table. It is a mixture ``sum_a weights[a] v_a + weights[-1] u0`` of visited vertices and
of an inner point ``u0``. ``coef`` is the entropy's coefficient of each entry's table, so that

    TRW(x) = <theta, x> - sum coef * x * log(x).

As every table of x sums to one, the gradient may be taken as ``theta - coef * log(x)``, which
differs from the true one by a constant per table. Then <gradient, x> = TRW(x), and the largest
<gradient, v> over the vertices is an upper bound of TRW everywhere.
"""

from collections import namedtuple

import numpy as np

from cliquewise._kernels import REASSOCIATE, kernel
from cliquewise._kernels.common.math import log
from cliquewise._kernels.graphs.pairwise import most_states

#: The points that x is a mixture of: ``u0`` and the first ``n_atoms`` vertices, which are labelings
#: (rows of ``labels``) or, over the local polytope, points (rows of ``dense``); one has no rows.
Hull = namedtuple("Hull", ["labels", "dense", "n_atoms", "u0"])
#: The objective: see TRW above.
Objective = namedtuple("Objective", ["theta", "coef"])

TINY = 1e-300
#: Corrections between two looks at all vertices; those in between look at promising ones.
LAZY = 10


@kernel(fastmath=REASSOCIATE)
def gradient(x, theta, coef, out):
    """Fill ``out`` with theta - coef * log(x); returns TRW(x)."""
    total = 0.0
    for k in range(len(x)):
        out[k] = theta[k] - coef[k] * log(max(x[k], TINY))
        total += x[k] * out[k]
    return total


@kernel(fastmath=REASSOCIATE)
def dot(a, b):
    """Inner product."""
    total = 0.0
    for k in range(len(a)):
        total += a[k] * b[k]
    return total


@kernel(fastmath=REASSOCIATE)
def slopes(x, d, step, coef, linear):
    """First and second derivative of TRW(x + step * d) by step; ``linear`` is <theta, d>."""
    first, second = 0.0, 0.0
    for k in range(len(x)):
        at = max(x[k] + step * d[k], TINY)
        change = coef[k] * d[k]
        first += change * log(at)
        second += change * d[k] / at
    return linear - first, -second


@kernel
def line_search(x, d, coef, linear, first, limit):
    """Step in [0, limit] that maximizes the concave TRW(x + step * d); ``first`` = slope at 0.

    Newton steps inside a shrinking bracket, halved where Newton leaves it. Stops at a slope
    below 1/1000 of the first: the steps of Frank-Wolfe need no more.
    """
    if first <= 0.0:
        return 0.0
    slope, curve = slopes(x, d, limit, coef, linear)
    if slope >= 0.0:
        return limit
    low, high = 0.0, limit
    step = 0.5 * limit
    slope, curve = slopes(x, d, 0.0, coef, linear)
    if curve < 0.0 and -slope / curve < limit:
        step = -slope / curve
    for _ in range(50):
        slope, curve = slopes(x, d, step, coef, linear)
        if abs(slope) <= 1e-3 * first:
            break
        if slope > 0.0:
            low = step
        else:
            high = step
        if high - low <= 1e-12 * limit:
            break
        step = step - slope / curve if curve < 0.0 else -1.0
        if not (low < step < high):
            step = 0.5 * (low + high)
    return low if slope < 0.0 and low > 0.0 and high - low <= 1e-12 * limit else step


@kernel
def scores_of(asked, n_asked, g, out, hull, graph):
    """out[a] = <g, v_a> for the vertices asked for.

    In one call: tuples of many arrays are passed by value, which would cost more than a vertex of
    a small graph.
    """
    cards, edges, node_offsets = graph.cards, graph.edges, graph.node_offsets
    edge_offsets, shift = graph.edge_offsets, graph.node_offsets[-1]
    for at in range(n_asked):
        a = asked[at]
        if hull.dense.shape[0]:
            out[a] = dot(hull.dense[a], g)
            continue
        row, total = hull.labels[a], 0.0
        for v in range(len(cards)):
            total += g[node_offsets[v] + row[v]]
        for e in range(len(edges)):
            i, j = edges[e, 0], edges[e, 1]
            total += g[shift + edge_offsets[e] + row[i] * cards[j] + row[j]]
        out[a] = total


@kernel
def add_vertex(a, weight, out, hull, graph):
    """out += weight * v_a."""
    if hull.dense.shape[0]:
        point = hull.dense[a]
        for k in range(len(out)):
            out[k] += weight * point[k]
        return
    row, cards, edges = hull.labels[a], graph.cards, graph.edges
    for v in range(len(cards)):
        out[graph.node_offsets[v] + row[v]] += weight
    shift = graph.node_offsets[-1]
    for e in range(len(edges)):
        i, j = edges[e, 0], edges[e, 1]
        out[shift + graph.edge_offsets[e] + row[i] * cards[j] + row[j]] += weight


@kernel
def mixture(weights, out, hull, graph):
    """out = sum of the weighted vertices and of ``weights[-1] * u0``."""
    for k in range(len(out)):
        out[k] = weights[-1] * hull.u0[k]
    for a in range(hull.n_atoms):
        if weights[a] > 0.0:
            add_vertex(a, weights[a], out, hull, graph)


@kernel
def scores(g, out, hull, graph):
    """<g, v> for all vertices."""
    scores_of(np.arange(hull.n_atoms), hull.n_atoms, g, out, hull, graph)


@kernel
def extremes(asked, n_asked, value, delta, middle, weights):
    """Best contracted vertex, worst one in use, and their values; -1 stands for u0."""
    best, top = -1, middle
    worst, bottom = -1, np.inf
    if weights[-1] > delta * (1.0 + 1e-9) + 1e-15:
        bottom = middle
    for at in range(n_asked):
        a = asked[at]
        contracted = (1.0 - delta) * value[a] + delta * middle
        if contracted > top:
            best, top = a, contracted
        if weights[a] > 0.0 and contracted < bottom:
            worst, bottom = a, contracted
    return best, top, worst, bottom


@kernel
def move(atom, away, limit, first, delta, x, d, weights, objective, hull, graph):
    """Line search towards (or away from) a contracted vertex; updates x and the weights.

    ``atom`` is a vertex, or -1 for u0 itself; ``first`` is the slope at the start.
    """
    inner = 1.0 if atom < 0 else delta
    sign = -1.0 if away else 1.0
    for k in range(len(x)):
        d[k] = sign * (inner * hull.u0[k] - x[k])
    if atom >= 0:
        add_vertex(atom, sign * (1.0 - delta), d, hull, graph)
    step = line_search(x, d, objective.coef, dot(objective.theta, d), first, limit)
    if step <= 0.0:
        return 0.0
    for k in range(len(x)):
        x[k] = max(x[k] + step * d[k], 0.0)
    keep = 1.0 - sign * step
    for a in range(hull.n_atoms):
        weights[a] *= keep
    weights[-1] = weights[-1] * keep + sign * step * inner
    if atom >= 0:
        weights[atom] += sign * step * (1.0 - delta)
        if away and (step >= limit or weights[atom] < 0.0):
            weights[atom] = 0.0
    if weights[-1] < delta or (away and atom < 0 and step >= limit):
        weights[-1] = delta
    return step


@kernel
def step_and_correct(new, delta, iterations, tolerance, x, weights, objective, hull, graph):
    """A Frank-Wolfe step to vertex ``new`` (if it is not negative), then away-step corrections.

    The corrections maximize over the contracted hull of the vertices and stop when the pairwise
    gap is at most ``tolerance``. Returns (pairwise gap, corrections made, step to ``new``).
    """
    n_atoms, u0 = hull.n_atoms, hull.u0
    g, d, value = np.empty(len(x)), np.empty(len(x)), np.empty(n_atoms)
    asked, n_asked = np.empty(n_atoms, dtype=np.int64), 0
    taken = 0.0
    if new >= 0:
        trw = gradient(x, objective.theta, objective.coef, g)
        asked[0] = new
        scores_of(asked, 1, g, value, hull, graph)
        gain = (1.0 - delta) * value[new] + delta * dot(g, u0) - trw
        taken = move(new, False, 1.0, gain, delta, x, d, weights, objective, hull, graph)
    gap, made = np.inf, 0
    since, everyone = 0, True
    for made in range(iterations):  # noqa: B007 (it is returned)
        trw = gradient(x, objective.theta, objective.coef, g)
        middle = dot(g, u0)
        everyone = everyone or since == LAZY
        if everyone:
            n_asked, since = n_atoms, 0
            for a in range(n_atoms):
                asked[a] = a
        since += 1
        scores_of(asked, n_asked, g, value, hull, graph)
        best, top, worst, bottom = extremes(asked, n_asked, value, delta, middle, weights)
        gap = top - bottom
        if not gap > tolerance:
            if everyone:
                break
            everyone = True
            continue
        if everyone:
            # Those in use and those that promise an ascent; the others are asked again later.
            n_asked, everyone = 0, False
            for a in range(n_atoms):
                if weights[a] > 0.0 or value[a] > trw:
                    asked[n_asked] = a
                    n_asked += 1
        away = not top - trw >= trw - bottom
        atom, first, limit = best, top - trw, 1.0
        if away:
            part = (weights[-1] - delta if worst < 0 else weights[worst]) / (1.0 - delta)
            atom, first, limit = worst, trw - bottom, part / (1.0 - part) if part < 1.0 else 1e12
        if move(atom, away, limit, first, delta, x, d, weights, objective, hull, graph) <= 0.0:
            break
    total = 0.0
    for a in range(n_atoms):
        total += weights[a]
    total += weights[-1]
    for a in range(n_atoms):
        weights[a] /= total
    weights[-1] /= total
    mixture(weights, x, hull, graph)
    return gap, made, taken


@kernel
def mutual_information(x, graph, out):
    """H(i) + H(j) - H(ij) of every edge."""
    cards, node_offsets, edges = graph.cards, graph.node_offsets, graph.edges
    entropy = np.zeros(len(cards))
    for v in range(len(cards)):
        for k in range(node_offsets[v], node_offsets[v + 1]):
            if x[k] > 0.0:
                entropy[v] -= x[k] * log(x[k])
    shift = node_offsets[-1]
    for e in range(len(edges)):
        total = entropy[edges[e, 0]] + entropy[edges[e, 1]]
        for k in range(shift + graph.edge_offsets[e], shift + graph.edge_offsets[e + 1]):
            if x[k] > 0.0:
                total += x[k] * log(x[k])
        out[e] = max(total, 0.0)


@kernel
def mean_field(q, sweeps, graph):
    """Run coordinate ascent on the naive mean-field bound; update q and return the bound.

    With theta the scores of the graph, <theta, mu(q)> + H(q) is at most log Z for every product
    distribution q. -inf entries are not allowed.
    """
    cards, node_offsets, edges, edge_offsets, starts, _, links, nodes, tables = graph
    n, field = len(cards), np.empty(most_states(cards))
    for _ in range(sweeps):
        for v in range(n):
            k, o = cards[v], node_offsets[v]
            for s in range(k):
                field[s] = nodes[o + s]
            for at in range(starts[v], starts[v + 1]):
                e = links[at]
                i, j = edges[e, 0], edges[e, 1]
                base = edge_offsets[e]
                if i == v:
                    for s in range(k):
                        for t in range(cards[j]):
                            field[s] += tables[base + s * cards[j] + t] * q[node_offsets[j] + t]
                else:
                    for t in range(cards[i]):
                        for s in range(k):
                            field[s] += tables[base + t * k + s] * q[node_offsets[i] + t]
            top = field[:k].max()
            total = 0.0
            for s in range(k):
                field[s] = np.exp(field[s] - top)
                total += field[s]
            for s in range(k):
                q[o + s] = field[s] / total
    bound = 0.0
    for v in range(n):
        for k in range(node_offsets[v], node_offsets[v + 1]):
            if q[k] > 0.0:
                bound += q[k] * (nodes[k] - np.log(q[k]))
    for e in range(len(edges)):
        i, j = edges[e, 0], edges[e, 1]
        base = edge_offsets[e]
        for s in range(cards[i]):
            for t in range(cards[j]):
                bound += tables[base + s * cards[j] + t] * (
                    q[node_offsets[i] + s] * q[node_offsets[j] + t]
                )
    return bound
