"""Bounds of the relaxed objective: a feasible primal value and a feasible dual point."""

from __future__ import annotations

import numpy as np

from cliquewise._kernels import kernel
from cliquewise._kernels.cliques.ascent import _ends, _smooth_gradient
from cliquewise._kernels.cliques.features import _scores, _widest
from cliquewise._kernels.common.simplex import project_simplex, simplex_threshold

#: Steps for the conjugate of an edge whose entropy is not a plain square.
CONJUGATE_STEPS = 30


@kernel
def _conjugate(theta, bend, work):
    """``max over the simplex of <theta, m> - bend/2 (||m||^2 - 1)``."""
    k = len(theta)
    if bend <= 0.0:
        best = theta[0]
        for s in range(1, k):
            best = max(best, theta[s])
        return best
    for s in range(k):
        work[s] = theta[s] / bend
    high, tau = simplex_threshold(work[:k], 1.0)
    value = 0.0
    for s in range(k):
        m = max((work[s] - high) - tau, 0.0)
        value += m * (theta[s] - 0.5 * bend * m)
    return value + 0.5 * bend


@kernel
def _edge_conjugate(theta, m, bend, ai, aj, ki, kj, work, a_side, b_side):
    """An upper bound of the same maximum with ``+ ai/2 (||A_i m||^2 - 1) + aj/2 (...)``.

    Projected gradient steps from m with Nesterov's momentum, then the linear bound
    ``f(m) + max_s <f'(m), e_s - m>``: true wherever the steps stopped. ``work`` has 3 rows.
    """
    k = ki * kj
    point, old, step = work[0], work[1], work[2]
    for s in range(k):
        point[s] = old[s] = m[s]
    for it in range(CONJUGATE_STEPS):
        last = it == CONJUGATE_STEPS - 1
        source = old if last else point
        for b in range(kj):
            b_side[b] = 0.0
        for a in range(ki):
            a_side[a] = 0.0
            for b in range(kj):
                a_side[a] += source[a * kj + b]
                b_side[b] += source[a * kj + b]
        if last:
            break
        for a in range(ki):
            for b in range(kj):
                s = a * kj + b
                slope = theta[s] - bend * point[s] + ai * a_side[a] + aj * b_side[b]
                step[s] = point[s] + slope / bend
        project_simplex(step[:k], 1.0)
        beta = (it + 1.0) / (it + 4.0)
        for s in range(k):
            point[s] = step[s] + beta * (step[s] - old[s])
            old[s] = step[s]
    value, top, mean = 0.5 * (bend - ai - aj), -np.inf, 0.0
    for a in range(ki):
        value += 0.5 * ai * a_side[a] * a_side[a]
        for b in range(kj):
            s = a * kj + b
            value += old[s] * (theta[s] - 0.5 * bend * old[s])
            slope = theta[s] - bend * old[s] + ai * a_side[a] + aj * b_side[b]
            top = max(top, slope)
            mean += slope * old[s]
    for b in range(kj):
        value += 0.5 * aj * b_side[b] * b_side[b]
    return value + max(top - mean, 0.0)


@kernel
def entropy(g, terms, mu):
    """H(mu); see the head of ``_kernels/cliques/ascent.py``."""
    n_nodes = len(g.degree)
    widest = _widest(g)
    a_side, b_side = np.empty(widest), np.empty(widest)
    total = 0.0
    for c in range(len(g.type)):
        norm = 0.0
        for s in range(g.offsets[c], g.offsets[c + 1]):
            norm += mu[s] * mu[s]
        total += terms.curvature[c] * (1.0 - norm)
        if c >= n_nodes and len(terms.slack):
            e = c - n_nodes
            ki, kj = _ends(g, e, mu[g.offsets[c] : g.offsets[c + 1]], a_side, b_side)
            left = right = 1.0
            for a in range(ki):
                left -= a_side[a] * a_side[a]
            for b in range(kj):
                right -= b_side[b] * b_side[b]
            total -= terms.slack[e, 0] * left + terms.slack[e, 1] * right
    return total


@kernel
def _messages(g, x, rho, a_side, b_side):
    """The sum of the messages ``xi - A mu / rho`` at each node's states, term by term.

    The running inflows will not do: they hold ``A_i mu_e / rho``, which rounds to nothing useful
    when rho is small.
    """
    n_nodes = len(g.degree)
    out = np.zeros(g.offsets[n_nodes])
    for e in range(len(g.left)):
        o, end = g.offsets[n_nodes + e], g.offsets[n_nodes + e + 1]
        ki, kj = _ends(g, e, x.mu[o:end], a_side, b_side)
        oi, oj, q = g.offsets[g.left[e]], g.offsets[g.right[e]], g.message[e]
        for a in range(ki):
            out[oi + a] += x.xi[q + a] - (x.mu[oi + a] - a_side[a]) / rho
        for b in range(kj):
            out[oj + b] += x.xi[q + ki + b] - (x.mu[oj + b] - b_side[b]) / rho
    return out


@kernel
def upper_bound(g, terms, x, rho):
    """Bounds of the sum of the relaxed losses at w, from the messages xi - A mu / rho.

    Any messages give a bound (Prop. 5 of idal); these are the ones that are optimal for mu.
    Returns the bound, ``||A mu||^2`` and the gap of the inner problem (Eq. 31).
    """
    n_nodes = len(g.degree)
    widest = _widest(g)
    t, plain, work = np.empty(widest), np.empty(widest), np.empty((3, widest))
    a_side, b_side = np.empty(widest), np.empty(widest)
    inflow = _messages(g, x, rho, a_side, b_side)
    loss = inner = apart = 0.0
    for c in range(len(g.type)):
        o = g.offsets[c]
        k = g.offsets[c + 1] - o
        m = x.mu[o : o + k]
        if c < n_nodes:
            _scores(g, x.w, c, t)
            for s in range(k):
                t[s] += inflow[o + s] + (g.cost[o + s] if len(g.cost) else 0.0)
        else:
            _smooth_gradient(g, terms, x, rho, c, t, a_side, b_side)
        bend = 2.0 * terms.gamma * terms.curvature[c]
        norm = mean = 0.0
        own = 0.0
        ai = aj = 0.0
        if c >= n_nodes:
            e = c - n_nodes
            i, j = g.left[e], g.right[e]
            ki, kj = g.offsets[i + 1] - g.offsets[i], g.offsets[j + 1] - g.offsets[j]
            if len(terms.slack):
                ai = 2.0 * terms.gamma * terms.slack[e, 0]
                aj = 2.0 * terms.gamma * terms.slack[e, 1]
                own -= 0.5 * (ai + aj)
                for a in range(ki):
                    for b in range(kj):
                        t[a * kj + b] -= ai * a_side[a] + aj * b_side[b]
            for a in range(ki):
                gone = x.mu[g.offsets[i] + a] - a_side[a]
                apart += gone * gone
                own += 0.5 * ai * a_side[a] * a_side[a]
            for b in range(kj):
                gone = x.mu[g.offsets[j] + b] - b_side[b]
                apart += gone * gone
                own += 0.5 * aj * b_side[b] * b_side[b]
        for s in range(k):
            norm += m[s] * m[s]
            mean += m[s] * t[s]
        own += mean + 0.5 * bend * (1.0 - norm)
        if ai + aj > 0.0:
            value = _edge_conjugate(t, m, bend, ai, aj, ki, kj, work, a_side, b_side)
        else:
            value = _conjugate(t[:k], bend, work[0])
        _scores(g, x.w, c, plain)
        loss += value - plain[g.truth[c]]
        inner += value - own
    return loss, apart, inner


@kernel
def repair(g, mu, out):
    """A point of the local polytope near mu.

    A node's marginal is the mean of all beliefs about it. Each edge table has its rows, then
    its columns scaled down to these marginals, and the missing mass is added as a table of
    rank one (the rounding to a transport polytope).
    """
    n_nodes = len(g.degree)
    widest = _widest(g)
    a_side, b_side = np.empty(widest), np.empty(widest)
    for s in range(g.offsets[n_nodes]):
        out[s] = mu[s]
    for e in range(len(g.left)):
        o = g.offsets[n_nodes + e]
        ki, kj = _ends(g, e, mu[o : g.offsets[n_nodes + e + 1]], a_side, b_side)
        oi, oj = g.offsets[g.left[e]], g.offsets[g.right[e]]
        for a in range(ki):
            out[oi + a] += a_side[a]
        for b in range(kj):
            out[oj + b] += b_side[b]
    for c in range(n_nodes):
        total = 0.0
        for s in range(g.offsets[c], g.offsets[c + 1]):
            total += out[s]
        for s in range(g.offsets[c], g.offsets[c + 1]):
            out[s] /= total
    for e in range(len(g.left)):
        o, end = g.offsets[n_nodes + e], g.offsets[n_nodes + e + 1]
        table = out[o:end]
        for s in range(end - o):
            table[s] = mu[o + s]
        ki, kj = _ends(g, e, table, a_side, b_side)
        oi, oj = g.offsets[g.left[e]], g.offsets[g.right[e]]
        for a in range(ki):
            if a_side[a] > out[oi + a]:
                share = out[oi + a] / a_side[a]
                for b in range(kj):
                    table[a * kj + b] *= share
        _ends(g, e, table, a_side, b_side)
        for b in range(kj):
            if b_side[b] > out[oj + b]:
                share = out[oj + b] / b_side[b]
                for a in range(ki):
                    table[a * kj + b] *= share
        _ends(g, e, table, a_side, b_side)
        missing = 0.0
        for a in range(ki):
            a_side[a] = max(out[oi + a] - a_side[a], 0.0)
            missing += a_side[a]
        if missing > 0.0:
            for b in range(kj):
                b_side[b] = max(out[oj + b] - b_side[b], 0.0) / missing
            for a in range(ki):
                for b in range(kj):
                    table[a * kj + b] += a_side[a] * b_side[b]


@kernel
def node_costs(g, mu):
    """<cost, mu>."""
    total = 0.0
    for s in range(len(g.cost)):
        total += g.cost[s] * mu[s]
    return total
