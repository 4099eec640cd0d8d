"""Cliquewise dual ascent on the local polytope: whole passes over the cliques in one call.

All nodes and edges of all examples are one list of cliques, nodes first. With mean parameters
``mu_c`` on the simplex of each clique's states the kernels climb (Eq. 5 of idal)

    D_rho(mu, xi) = <cost, mu> + gamma H(mu) + <xi, A mu> - ||A mu||^2 / (2 rho)
                    - C/2 ||sum_c B_c (y_c - mu_c)||^2

where ``A mu`` at the end i of edge e is ``mu_i - A_i mu_e``. Running along are the weights
``w = C sum_c B_c (y_c - mu_c)`` and, per node, the inflow ``sum_e xi_ei + A_i mu_e / rho``, so
that a visit of a node costs nothing per edge.

``H(mu) = sum_c h_c (1 - ||mu_c||^2) - sum_ei a_ei (1 - ||A_i mu_e||^2)``: h = 1, a = 0 is the
Gini entropy, other numbers give the Gini-OTRW entropy (Eq. 10).
"""

from __future__ import annotations

from collections import namedtuple

import numpy as np

from cliquewise._kernels import kernel
from cliquewise._kernels.cliques.features import (
    _add,
    _scores,
    _squared_features,
    _squared_image,
    _widest,
)
from cliquewise._kernels.common.simplex import project_simplex

#: Numbers that define the objective: curvature h of each clique and a of both ends of each
#: edge (empty if zero), then C and gamma.
Terms = namedtuple("Terms", ["curvature", "slack", "C", "gamma"])

#: Where the ascent stands.
Point = namedtuple("Point", ["mu", "xi", "inflow", "w"])

#: A pass over examples: the nodes and edges of each, the order in which examples come, the cliques
#: of each in random order, and how far that was followed.
Tour = namedtuple("Tour", ["node_offsets", "edge_offsets", "examples", "order", "place"])

#: How multipliers move: ``xi -= length A mu``, extrapolated from ``previous`` (before the last
#: extrapolation; empty without momentum). Length 0 leaves them alone.
MultiplierStep = namedtuple("MultiplierStep", ["length", "momentum", "previous"])

#: Scratch for one clique: its gradient, its change, a new point, marginals at both ends of an edge.
Scratch = namedtuple("Scratch", ["t", "d", "new", "a_side", "b_side"])

PROXIMAL, FRANK_WOLFE = 0, 1


@kernel(helper=True)
def _scratch(g):
    k = _widest(g)
    return Scratch(np.empty(k), np.empty(k), np.empty(k), np.empty(k), np.empty(k))


@kernel
def _ends(g, e, m, a_side, b_side):
    """Marginals of an edge table at both ends; returns the two cardinalities."""
    i, j = g.left[e], g.right[e]
    ki, kj = g.offsets[i + 1] - g.offsets[i], g.offsets[j + 1] - g.offsets[j]
    for b in range(kj):
        b_side[b] = 0.0
    for a in range(ki):
        total = 0.0
        for b in range(kj):
            v = m[a * kj + b]
            total += v
            b_side[b] += v
        a_side[a] = total
    return ki, kj


@kernel
def _smooth_gradient(g, terms, x, rho, c, t, a_side, b_side):
    """Gradient at one clique of all of D_rho but the curvature ``-gamma h ||mu_c||^2``.

    For an edge ``a_side`` and ``b_side`` receive its marginals.
    """
    _scores(g, x.w, c, t)
    n_nodes = len(g.degree)
    o = g.offsets[c]
    k = g.offsets[c + 1] - o
    if c < n_nodes:
        pull = g.degree[c] / rho
        for s in range(k):
            t[s] += x.inflow[o + s] - pull * x.mu[o + s]
        if len(g.cost):
            for s in range(k):
                t[s] += g.cost[o + s]
        return
    e = c - n_nodes
    ki, kj = _ends(g, e, x.mu[o : o + k], a_side, b_side)
    oi, oj, q = g.offsets[g.left[e]], g.offsets[g.right[e]], g.message[e]
    ai = aj = 0.0
    if len(terms.slack):
        ai, aj = 2.0 * terms.gamma * terms.slack[e, 0], 2.0 * terms.gamma * terms.slack[e, 1]
    for a in range(ki):
        da = x.xi[q + a] - (x.mu[oi + a] - a_side[a]) / rho - ai * a_side[a]
        for b in range(kj):
            t[a * kj + b] -= da
    for b in range(kj):
        db = x.xi[q + ki + b] - (x.mu[oj + b] - b_side[b]) / rho - aj * b_side[b]
        for a in range(ki):
            t[a * kj + b] -= db


@kernel
def lipschitz(g, terms, rho, spread, out):
    """Smoothness of ``mu_c -> -D_rho`` without its curvature term, on the simplex.

    Differences of points of a simplex sum to zero; on such tables A_i'A_i and A_j'A_j have the
    eigenvalues k_j and k_i on orthogonal spaces, so that the larger counts and not their sum.
    ``spread`` is the largest eigenvalue of a type's tie.
    """
    n_nodes = len(g.degree)
    for c in range(len(g.type)):
        out[c] = terms.C * _squared_features(g, c) * spread[g.type[c]]
        if c < n_nodes:
            out[c] += g.degree[c] / rho
        else:
            e = c - n_nodes
            i, j = g.left[e], g.right[e]
            ki, kj = g.offsets[i + 1] - g.offsets[i], g.offsets[j + 1] - g.offsets[j]
            si = sj = 0.0
            if len(terms.slack):
                si = 2.0 * terms.gamma * terms.slack[e, 0]
                sj = 2.0 * terms.gamma * terms.slack[e, 1]
            out[c] += max(kj * max(1.0 / rho - si, 0.0), ki * max(1.0 / rho - sj, 0.0))


@kernel
def _line_search(g, terms, rho, c, full, m, d, work, a_side, b_side):
    """Best step along d, on which D_rho is a parabola."""
    k = g.offsets[c + 1] - g.offsets[c]
    n_nodes = len(g.degree)
    slope = norm = 0.0
    for s in range(k):
        slope += full[s] * d[s]
        norm += d[s] * d[s]
    bend = terms.C * _squared_image(g, c, d, work) + 2.0 * terms.gamma * terms.curvature[c] * norm
    if c < n_nodes:
        bend += g.degree[c] / rho * norm
    else:
        e = c - n_nodes
        ki, kj = _ends(g, e, d, a_side, b_side)
        ai = aj = 1.0 / rho
        if len(terms.slack):
            ai -= 2.0 * terms.gamma * terms.slack[e, 0]
            aj -= 2.0 * terms.gamma * terms.slack[e, 1]
        for a in range(ki):
            bend += ai * a_side[a] * a_side[a]
        for b in range(kj):
            bend += aj * b_side[b] * b_side[b]
    if slope <= 0.0:
        return 0.0
    return 1.0 if bend <= slope else slope / bend


@kernel(helper=True)
def add_inflow(g, x, c, d, rho, a_side, b_side):
    """Add the change ``d`` of clique ``c`` to the inflows of its nodes, if it is an edge."""
    n_nodes = len(g.degree)
    if c < n_nodes:
        return
    e = c - n_nodes
    ki, kj = _ends(g, e, d[: g.offsets[c + 1] - g.offsets[c]], a_side, b_side)
    oi, oj = g.offsets[g.left[e]], g.offsets[g.right[e]]
    for a in range(ki):
        x.inflow[oi + a] += a_side[a] / rho
    for b in range(kj):
        x.inflow[oj + b] += b_side[b] / rho


@kernel
def _block_step(g, terms, x, rho, steps, c, method, gaps, scratch):
    """Update the beliefs of one clique; store its duality gap before the update in ``gaps``."""
    t, d, new, a_side, b_side = scratch
    o = g.offsets[c]
    k = g.offsets[c + 1] - o
    m = x.mu[o : o + k]
    _smooth_gradient(g, terms, x, rho, c, t, a_side, b_side)
    bend = 2.0 * terms.gamma * terms.curvature[c]
    best, mean = 0, 0.0
    for s in range(k):
        d[s] = t[s] - bend * m[s]
        mean += d[s] * m[s]
        if d[s] > d[best]:
            best = s
    gaps[c] = max(d[best] - mean, 0.0)
    if method == FRANK_WOLFE:
        for s in range(k):
            t[s], new[s] = d[s], -m[s]
        new[best] += 1.0
        eta = _line_search(g, terms, rho, c, t[:k], m, new[:k], d, a_side, b_side)
        for s in range(k):
            d[s] = eta * new[s]
    else:
        step = max(steps[c], 1e-12)
        for s in range(k):
            new[s] = (step * m[s] + t[s]) / (step + bend)
        project_simplex(new[:k], 1.0)
        for s in range(k):
            d[s] = new[s] - m[s]
    moved = False
    for s in range(k):
        moved = moved or d[s] != 0.0
    if not moved:
        return
    _add(g, c, d, -terms.C, x.w)
    for s in range(k):
        m[s] += d[s]
    add_inflow(g, x, c, d, rho, a_side, b_side)


@kernel
def visit(g, terms, x, rho, steps, order, method, gaps):
    """One block step at each clique of ``order``.

    ``steps`` are the constants of :func:`lipschitz`. PROXIMAL: Algorithm 2 of idal, with the
    Gini entropy a projection. FRANK_WOLFE: towards the best state, with an exact line search.
    """
    scratch = _scratch(g)
    for n in range(len(order)):
        _block_step(g, terms, x, rho, steps, order[n], method, gaps, scratch)


@kernel
def _move(g, x, rho, step, nodes, edges, a_side, b_side):
    """Multipliers of a range of edges, and the inflows of the nodes that they join."""
    length, momentum, previous = step
    n_nodes = len(g.degree)
    for s in range(g.offsets[nodes[0]], g.offsets[nodes[1]]):
        x.inflow[s] = 0.0
    total = along = 0.0
    for e in range(edges[0], edges[1]):
        o = g.offsets[n_nodes + e]
        ki, kj = _ends(g, e, x.mu[o : g.offsets[n_nodes + e + 1]], a_side, b_side)
        for side in range(2):
            node = g.left[e] if side == 0 else g.right[e]
            belief = a_side if side == 0 else b_side
            q = g.message[e] + (0 if side == 0 else ki)
            at = g.offsets[node]
            for s in range(ki if side == 0 else kj):
                apart = x.mu[at + s] - belief[s]
                total += apart * apart
                now = x.xi[q + s] - length * apart
                if len(previous):
                    change = now - previous[q + s]
                    along += apart * change
                    previous[q + s] = now
                    now += momentum * change
                x.xi[q + s] = now
                x.inflow[at + s] += now + belief[s] / rho
    return total, along


@kernel
def multipliers(g, x, rho, length, momentum, previous):
    """Do ``xi -= length A mu`` (with Nesterov's extrapolation), and recompute the inflows.

    ``previous`` holds the multipliers before the last extrapolation; it may be empty when
    ``momentum`` is 0. Returns ``||A mu||^2`` and ``<A mu, xi - previous>``, whose sign tells
    when momentum should restart.
    """
    a_side, b_side = np.empty(_widest(g)), np.empty(_widest(g))
    nodes, edges = (0, len(g.degree)), (0, len(g.left))
    step = MultiplierStep(length, momentum, previous)
    return _move(g, x, rho, step, nodes, edges, a_side, b_side)


@kernel
def _random_below(state, bound):
    """A number in 0..bound-1, from splitmix64."""
    state[0] += np.uint64(0x9E3779B97F4A7C15)
    z = state[0]
    z = (z ^ (z >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    z = (z ^ (z >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    z = z ^ (z >> np.uint64(31))
    return np.int64((z >> np.uint64(33)) % np.uint64(bound))


@kernel
def sweep(g, terms, x, rho, steps, method, gaps, tour, inner, step, random):
    """Example by example: its multipliers move, then the next share of its cliques.

    The same steps as :func:`multipliers` and :func:`visit` on one example at a time, whose
    numbers stay in the cache meanwhile. ``inner`` is the share of cliques visited; at the end of
    an example's order it is shuffled again. ``step`` is that of the multipliers. Returns the number
    of visits, ``||A mu||^2`` as it was met, and the sign test of the momentum.
    """
    scratch = _scratch(g)
    order, place = tour.order, tour.place
    visits = 0
    apart = along = 0.0
    for i in tour.examples:
        nodes = (tour.node_offsets[i], tour.node_offsets[i + 1])
        edges = (tour.edge_offsets[i], tour.edge_offsets[i + 1])
        if step.length > 0.0:
            one, two = _move(g, x, rho, step, nodes, edges, scratch.a_side, scratch.b_side)
            apart += one
            along += two
        begin, end = nodes[0] + edges[0], nodes[1] + edges[1]
        size = end - begin
        count = max(int(np.ceil(inner * size - 1e-9)), 1) if size > 0 else 0
        for _ in range(count):
            if place[i] == 0:
                for q in range(begin, end):
                    r = q + _random_below(random, end - q)
                    order[q], order[r] = order[r], order[q]
            c = order[begin + place[i]]
            place[i] = (place[i] + 1) % size
            _block_step(g, terms, x, rho, steps, c, method, gaps, scratch)
        visits += count
    return visits, apart, along


@kernel
def cliques_by_example(n_nodes, node_offsets, edge_offsets, out):
    """The cliques of each example in a row, nodes before edges."""
    for i in range(len(node_offsets) - 1):
        at = node_offsets[i] + edge_offsets[i]
        for c in range(node_offsets[i], node_offsets[i + 1]):
            out[at] = c
            at += 1
        for e in range(edge_offsets[i], edge_offsets[i + 1]):
            out[at] = n_nodes + e
            at += 1
