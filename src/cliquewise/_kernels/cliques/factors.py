"""Factorwise steps of GDMM on graphs, for cliques whose states are all stored.

The objective, the flat cliques and the running ``A mu`` are those of
:mod:`cliquewise._kernels.cliques.ascent`; what differs is the step at a clique and, with BGCD,
which cliques of an example are visited at all. The paper has ``gamma = 0``; with an entropy its
curvature ``bend`` is part of every step.
"""

from __future__ import annotations

import numpy as np

from cliquewise._kernels import kernel
from cliquewise._kernels.cliques.ascent import (
    _line_search,
    _move,
    _random_below,
    _smooth_gradient,
    add_inflow,
)
from cliquewise._kernels.cliques.features import _add, _widest
from cliquewise._kernels.common.simplex import project_simplex

BCFW, AWAY, GREEDY = 0, 1, 2

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
def _factor_step(g, terms, x, rho, steps, c, step, parts, random, gaps, work):
    """One step at a clique (Algorithm 4, or 2 with its drop steps)."""
    t, d, new, a_side, b_side = work[0], work[1], work[2], work[3], work[4]
    o = g.offsets[c]
    k = g.offsets[c + 1] - o
    m = x.mu[o : o + k]
    bend = 2.0 * terms.gamma * terms.curvature[c]
    for turn in range(MOST_DROPS if step == AWAY else 1):
        _smooth_gradient(g, terms, x, rho, c, t, a_side, b_side)
        mean = 0.0
        for s in range(k):
            t[s] -= bend * m[s]
        best = _search(t, m, parts, random)
        for s in range(k):
            mean += t[s] * m[s]
        if turn == 0:
            gaps[c] = max(t[best] - mean, 0.0)
        dropped = -1
        if step == AWAY:
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
def _gain(g, terms, x, rho, steps, c, work):
    """What Eq. 18 of gdmm promises at a clique."""
    t, new = work[0], work[2]
    o = g.offsets[c]
    k = g.offsets[c + 1] - o
    _smooth_gradient(g, terms, x, rho, c, t, work[3], work[4])
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
def _activate(g, terms, x, rho, steps, begin, end, order, active, share, parts, random, gaps, work):
    """Cliques of one example that gain at least ``share`` of the best become active (Eq. 18)."""
    part = _random_below(random, parts) if parts > 1 else 0
    top = 0.0
    for q in range(begin, end):
        c = order[q]
        gaps[c] = 0.0
        if active[c] or (parts > 1 and q % parts != part):
            continue
        gaps[c] = _gain(g, terms, x, rho, steps, c, work)
        top = max(top, gaps[c])
    if top <= 0.0:
        return
    for q in range(begin, end):
        c = order[q]
        if not active[c] and gaps[c] >= share * top:
            active[c] = True


@kernel
def factor_sweep(
    g, terms, x, rho, steps, step, parts, share, gaps, active, node_offsets, edge_offsets,
    examples, order, length, random,
):  # fmt: skip
    """One pass, example by example: its multipliers move, then its cliques in a random order.

    ``order`` holds the cliques of each example together. BGCD visits the active cliques only;
    the others are looked at to find those that join. Returns the visits and ``||A mu||^2``.
    """
    work = np.empty((5, _widest(g)))
    none = np.empty(0)
    visits, apart = 0, 0.0
    for n in range(len(examples)):
        i = examples[n]
        nodes = (node_offsets[i], node_offsets[i + 1])
        edges = (edge_offsets[i], edge_offsets[i + 1])
        if length > 0.0:
            one, _ = _move(g, x, rho, length, 0.0, none, nodes, edges, work[3], work[4])
            apart += one
        begin, end = nodes[0] + edges[0], nodes[1] + edges[1]
        if step == GREEDY:
            _activate(
                g, terms, x, rho, steps, begin, end, order, active, share, parts, random, gaps,
                work,
            )  # fmt: skip
        for q in range(begin, end):
            r = q + _random_below(random, end - q)
            order[q], order[r] = order[r], order[q]
            c = order[q]
            if step == GREEDY and not active[c]:
                continue
            _factor_step(g, terms, x, rho, steps, c, step, parts, random, gaps, work)
            visits += 1
    return visits, apart
