"""Factorwise steps of GDMM on graphs, for cliques whose states are all stored.

The objective, the flat cliques and the running ``A mu`` are those of
:mod:`cliquewise._kernels.cliques.ascent`; what differs is the step at a clique and, with BGCD,
which cliques of an example are visited at all. The paper has ``gamma = 0``; with an entropy its
curvature ``bend`` is part of every step.
"""

from __future__ import annotations

from collections import namedtuple

import numpy as np

from cliquewise._kernels import kernel
from cliquewise._kernels.cliques.ascent import (
    MultiplierStep,
    _line_search,
    _move,
    _random_below,
    _scratch,
    _smooth_gradient,
    add_inflow,
)
from cliquewise._kernels.cliques.features import _add
from cliquewise._kernels.common.simplex import project_simplex

BCFW, AWAY, GREEDY = 0, 1, 2

#: What happens at a clique: one of the steps above; into how many random parts a search divides
#: states (GREEDY: cliques); the share of the best gain with which an idle clique joins.
Rule = namedtuple("Rule", ["step", "parts", "share"])

#: Away steps at one clique until one of them is not a drop step (Algorithm 2 of gdmm).
MOST_DROPS = 32


@kernel
def _search(t, m, parts, random):
    """The best state; with ``parts`` > 1 among the active ones and one part of the others."""
    part = _random_below(random, parts) if parts > 1 else 0
    best = -1
    for s in range(len(m)):
        if parts > 1 and m[s] == 0.0 and s % parts != part:
            continue
        if best < 0 or t[s] > t[best]:
            best = s
    return best


@kernel
def _corrective(t, m, best, step, bend, new, d):
    """Eq. 25 of gdmm: the proximal problem on the active states and the best one; fills d."""
    k = len(m)
    count = 0
    for s in range(k):
        if m[s] > 0.0 or s == best:
            new[count] = m[s] + t[s] / (step + bend)
            count += 1
    project_simplex(new[:count], 1.0)
    count = 0
    for s in range(k):
        d[s] = 0.0
        if m[s] > 0.0 or s == best:
            d[s] = new[count] - m[s]
            count += 1


@kernel
def _away(t, m, best, new):
    """Direction of Eq. 17 (forward or away from a corner) and the longest step along it."""
    k = len(m)
    mean, worst = 0.0, -1
    for s in range(k):
        mean += t[s] * m[s]
        if m[s] > 0.0 and (worst < 0 or t[s] < t[worst]):
            worst = s
    if t[best] - mean >= mean - t[worst] or m[worst] >= 1.0:
        for s in range(k):
            new[s] = -m[s]
        new[best] += 1.0
        return 1.0, -1
    for s in range(k):
        new[s] = m[s]
    new[worst] -= 1.0
    return m[worst] / (1.0 - m[worst]), worst


@kernel
def _apply(g, terms, x, rho, c, d, a_side, b_side):
    """Move a clique by d: mean parameters, weights and inflows."""
    o = g.offsets[c]
    k = g.offsets[c + 1] - o
    _add(g, c, d, -terms.C, x.w)
    for s in range(k):
        x.mu[o + s] = max(x.mu[o + s] + d[s], 0.0)
    add_inflow(g, x, c, d, rho, a_side, b_side)


@kernel
def _factor_step(g, terms, x, rho, steps, c, rule, random, gaps, scratch):
    """One step at a clique (Algorithm 4, or 2 with its drop steps)."""
    t, d, new, a_side, b_side = scratch
    o = g.offsets[c]
    k = g.offsets[c + 1] - o
    m = x.mu[o : o + k]
    bend = 2.0 * terms.gamma * terms.curvature[c]
    for turn in range(MOST_DROPS if rule.step == AWAY else 1):
        _smooth_gradient(g, terms, x, rho, c, t, a_side, b_side)
        mean = 0.0
        for s in range(k):
            t[s] -= bend * m[s]
        best = _search(t, m, rule.parts, random)
        for s in range(k):
            mean += t[s] * m[s]
        if turn == 0:
            gaps[c] = max(t[best] - mean, 0.0)
        dropped = -1
        if rule.step == AWAY:
            longest, dropped = _away(t, m, best, new)
            # The parabola along d, cut off at 1 by the search: scaled so that 1 is the longest.
            for s in range(k):
                new[s] *= longest
            size = _line_search(g, terms, rho, c, t[:k], m, new[:k], d, a_side, b_side)
            for s in range(k):
                d[s] = size * new[s]
            if size < 1.0:
                dropped = -1
        else:
            _corrective(t, m, best, max(steps[c], 1e-12), bend, new, d)
        moved = False
        for s in range(k):
            moved = moved or d[s] != 0.0
        if not moved:
            return
        _apply(g, terms, x, rho, c, d, a_side, b_side)
        if dropped < 0:
            return
        m[dropped] = 0.0


@kernel
def _gain(g, terms, x, rho, steps, c, scratch):
    """Return the increase that a projected gradient step guarantees (Eq. 18 of gdmm)."""
    t, _, new, a_side, b_side = scratch
    o = g.offsets[c]
    k = g.offsets[c + 1] - o
    _smooth_gradient(g, terms, x, rho, c, t, a_side, b_side)
    bend = 2.0 * terms.gamma * terms.curvature[c]
    step = max(steps[c], 1e-12) + bend
    for s in range(k):
        t[s] -= bend * x.mu[o + s]
        new[s] = x.mu[o + s] + t[s] / step
    project_simplex(new[:k], 1.0)
    gain = 0.0
    for s in range(k):
        d = new[s] - x.mu[o + s]
        gain += d * (t[s] - 0.5 * step * d)
    return gain


@kernel
def _activate(g, terms, x, rho, steps, span, order, active, rule, random, gaps, scratch):
    """Cliques of one example that gain at least ``rule.share`` of the best become active."""
    begin, end = span
    part = _random_below(random, rule.parts) if rule.parts > 1 else 0
    top = 0.0
    for q in range(begin, end):
        c = order[q]
        gaps[c] = 0.0
        if active[c] or (rule.parts > 1 and q % rule.parts != part):
            continue
        gaps[c] = _gain(g, terms, x, rho, steps, c, scratch)
        top = max(top, gaps[c])
    if top <= 0.0:
        return
    for q in range(begin, end):
        c = order[q]
        if not active[c] and gaps[c] >= rule.share * top:
            active[c] = True


@kernel
def factor_sweep(g, terms, x, rho, steps, rule, gaps, active, tour, length, random):
    """One pass, example by example: its multipliers move, then its cliques in a random order.

    BGCD visits the active cliques only; the others are looked at to find those that join.
    Returns the visits and ``||A mu||^2``.
    """
    scratch = _scratch(g)
    step, order = MultiplierStep(length, 0.0, np.empty(0)), tour.order
    visits, apart = 0, 0.0
    for i in tour.examples:
        nodes = (tour.node_offsets[i], tour.node_offsets[i + 1])
        edges = (tour.edge_offsets[i], tour.edge_offsets[i + 1])
        if length > 0.0:
            one, _ = _move(g, x, rho, step, nodes, edges, scratch.a_side, scratch.b_side)
            apart += one
        begin, end = nodes[0] + edges[0], nodes[1] + edges[1]
        if rule.step == GREEDY:
            span = begin, end
            _activate(g, terms, x, rho, steps, span, order, active, rule, random, gaps, scratch)
        for q in range(begin, end):
            r = q + _random_below(random, end - q)
            order[q], order[r] = order[r], order[q]
            c = order[q]
            if rule.step == GREEDY and not active[c]:
                continue
            _factor_step(g, terms, x, rho, steps, c, rule, random, gaps, scratch)
            visits += 1
    return visits, apart
