"""The relaxed loss as a smooth function of weights and messages: one pass over all cliques.

With messages ``delta`` the relaxed loss at w is at most (Prop. 5 of idal)

    sum_c max over mu_c <theta_c(w) + cost_c + (A' delta)_c, mu_c> + gamma h_c (1 - ||mu_c||^2)
          - theta_c(w)(y_c)

and its minimum over delta is the relaxed loss itself. The maxima are projections, so that the sum
is smooth for gamma > 0, with the gradients ``sum_c B_c (mu_c - y_c)`` and ``A mu``.
"""

from __future__ import annotations

import numpy as np

from cliquewise._kernels import kernel
from cliquewise._kernels.cliques.features import _add, _scores, _widest
from cliquewise._kernels.common.simplex import project_simplex


@kernel(helper=True)
def _reparametrize(g, messages, theta):
    """Add ``cost + A' messages`` to ``theta``."""
    n_nodes = len(g.degree)
    for s in range(len(g.cost)):
        theta[s] += g.cost[s]
    for e in range(len(g.left)):
        i, j, q, o = g.left[e], g.right[e], g.message[e], g.offsets[n_nodes + e]
        oi, oj = g.offsets[i], g.offsets[j]
        ki, kj = g.offsets[i + 1] - oi, g.offsets[j + 1] - oj
        for a in range(ki):
            theta[oi + a] += messages[q + a]
        for b in range(kj):
            theta[oj + b] += messages[q + ki + b]
        for a in range(ki):
            for b in range(kj):
                theta[o + a * kj + b] -= messages[q + a] + messages[q + ki + b]


@kernel(helper=True)
def _disagreement(g, mu, apart):
    """Compute ``apart = A mu``: marginals of nodes less those of their edges."""
    n_nodes = len(g.degree)
    for e in range(len(g.left)):
        i, j, q, o = g.left[e], g.right[e], g.message[e], g.offsets[n_nodes + e]
        oi, oj = g.offsets[i], g.offsets[j]
        ki, kj = g.offsets[i + 1] - oi, g.offsets[j + 1] - oj
        for a in range(ki):
            apart[q + a] = mu[oi + a]
        for b in range(kj):
            apart[q + ki + b] = mu[oj + b]
        for a in range(ki):
            for b in range(kj):
                v = mu[o + a * kj + b]
                apart[q + a] -= v
                apart[q + ki + b] -= v


@kernel
def relaxed_loss(g, curvature, gamma, w, messages, order, mu, gradient, apart):
    """The sum above, and the same without the entropy; fills mu, and the gradients.

    ``order`` lists the cliques, those of a type one after the other: the weights of a type stay in
    the cache. Cliques without curvature belong to examples without weight and are left out.
    """
    widest = _widest(g)
    t, d = np.empty(widest), np.empty(widest)
    for c in order:
        _scores(g, w, c, mu[g.offsets[c] : g.offsets[c + 1]])
    truth = 0.0
    for c in range(len(g.type)):
        truth += mu[g.offsets[c] + g.truth[c]] if curvature[c] > 0.0 else 0.0
    _reparametrize(g, messages, mu)
    smooth = plain = 0.0
    for c in range(len(g.type)):
        o = g.offsets[c]
        k = g.offsets[c + 1] - o
        m = mu[o : o + k]
        if curvature[c] <= 0.0:
            for s in range(k):
                m[s] = 1.0 / k
            continue
        top = m[0]
        for s in range(1, k):
            top = max(top, m[s])
        bend = 2.0 * gamma * curvature[c]
        for s in range(k):
            t[s] = m[s] - top
            m[s] = t[s] / bend
        project_simplex(m, 1.0)
        value = 0.5 * bend
        for s in range(k):
            value += m[s] * (t[s] - 0.5 * bend * m[s])
        plain += top
        smooth += top + value
    for p in range(len(gradient)):
        gradient[p] = 0.0
    for c in order:
        if curvature[c] <= 0.0:
            continue
        o = g.offsets[c]
        for s in range(g.offsets[c + 1] - o):
            d[s] = mu[o + s]
        d[g.truth[c]] -= 1.0
        _add(g, c, d, 1.0, gradient)
    _disagreement(g, mu, apart)
    return smooth - truth, plain - truth
