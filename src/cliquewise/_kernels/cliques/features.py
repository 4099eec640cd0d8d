"""The linear map of cliquewise models: weights to scores of cliques, and back."""

from __future__ import annotations

from collections import namedtuple

import numpy as np

from cliquewise._kernels import kernel

#: The cliques of a data set. Clique c has the states ``offsets[c]:offsets[c + 1]``, the feature
#: row ``row[c]`` and the type ``type[c]``; feature f of it weighs state s by
#: ``w[base + f * params + tie[s]]`` (no weight where tie is -1). Edge e joins the nodes
#: ``left[e]`` and ``right[e]``; its messages to them begin at ``message[e]``.
Cliques = namedtuple(
    "Cliques",
    ["offsets", "type", "row", "indptr", "indices", "values", "base", "params", "tie_start",
     "plain", "tie", "left", "right", "message", "degree", "truth", "cost"],
)  # fmt: skip


@kernel
def _scores(g, w, c, out):
    """Scores of the states of one clique."""
    k = g.offsets[c + 1] - g.offsets[c]
    t = g.type[c]
    base, params, first = g.base[t], g.params[t], g.tie_start[t]
    for s in range(k):
        out[s] = 0.0
    r = g.row[c]
    for q in range(g.indptr[r], g.indptr[r + 1]):
        at = base + g.indices[q] * params
        v = g.values[q]
        if g.plain[t]:
            for s in range(k):
                out[s] += v * w[at + s]
        else:
            for s in range(k):
                p = g.tie[first + s]
                if p >= 0:
                    out[s] += v * w[at + p]


@kernel
def _add(g, c, d, scale, w):
    """``w += scale B_c d``."""
    k = g.offsets[c + 1] - g.offsets[c]
    t = g.type[c]
    base, params, first = g.base[t], g.params[t], g.tie_start[t]
    r = g.row[c]
    for q in range(g.indptr[r], g.indptr[r + 1]):
        at = base + g.indices[q] * params
        v = g.values[q] * scale
        if g.plain[t]:
            for s in range(k):
                w[at + s] += v * d[s]
        else:
            for s in range(k):
                p = g.tie[first + s]
                if p >= 0:
                    w[at + p] += v * d[s]


@kernel
def _squared_features(g, c):
    r = g.row[c]
    total = 0.0
    for q in range(g.indptr[r], g.indptr[r + 1]):
        total += g.values[q] * g.values[q]
    return total


@kernel
def _squared_image(g, c, d, work):
    """``||B_c d||^2``."""
    k = g.offsets[c + 1] - g.offsets[c]
    t = g.type[c]
    total = 0.0
    if g.plain[t]:
        for s in range(k):
            total += d[s] * d[s]
    else:
        for p in range(g.params[t]):
            work[p] = 0.0
        for s in range(k):
            p = g.tie[g.tie_start[t] + s]
            if p >= 0:
                work[p] += d[s]
        for p in range(g.params[t]):
            total += work[p] * work[p]
    return total * _squared_features(g, c)


@kernel
def _widest(g):
    most = 1
    for c in range(len(g.type)):
        most = max(most, g.offsets[c + 1] - g.offsets[c], g.params[g.type[c]])
    return most


@kernel
def weights_of(g, C, mu, w):
    """``w = C sum_c B_c (y_c - mu_c)``."""
    widest = _widest(g)
    d = np.empty(widest)
    for p in range(len(w)):
        w[p] = 0.0
    for c in range(len(g.type)):
        o = g.offsets[c]
        k = g.offsets[c + 1] - o
        for s in range(k):
            d[s] = -mu[o + s]
        d[g.truth[c]] += 1.0
        _add(g, c, d, C, w)


@kernel
def all_scores(g, w, out):
    """Scores of all states of all cliques."""
    for c in range(len(g.type)):
        _scores(g, w, c, out[g.offsets[c] : g.offsets[c + 1]])


@kernel
def accumulate(g, mu, out):
    """``out += sum_c B_c mu_c``, the adjoint of :func:`all_scores`."""
    for c in range(len(g.type)):
        _add(g, c, mu[g.offsets[c] : g.offsets[c + 1]], 1.0, out)


@kernel
def example_scores(g, w, nodes, edges, out):
    """Scores of one example's states: its nodes', then its edges'."""
    n_nodes, at = len(g.degree), 0
    for c in range(nodes[0], nodes[1]):
        _scores(g, w, c, out[at:])
        at += g.offsets[c + 1] - g.offsets[c]
    for c in range(n_nodes + edges[0], n_nodes + edges[1]):
        _scores(g, w, c, out[at:])
        at += g.offsets[c + 1] - g.offsets[c]


@kernel
def add_example(g, d, nodes, edges, w):
    """``w += B d`` over one example's states, in the order of :func:`example_scores`."""
    n_nodes, at = len(g.degree), 0
    for c in range(nodes[0], nodes[1]):
        _add(g, c, d[at:], 1.0, w)
        at += g.offsets[c + 1] - g.offsets[c]
    for c in range(n_nodes + edges[0], n_nodes + edges[1]):
        _add(g, c, d[at:], 1.0, w)
        at += g.offsets[c + 1] - g.offsets[c]


@kernel
def collect_example(g, d, nodes, edges, sums, seen, indices):
    """``sums += B d`` over one example's states, and where: the number of places, listed.

    ``sums`` is zero and ``seen`` false before; the caller clears the places again.
    """
    n_nodes, at, count = len(g.degree), 0, 0
    n = nodes[1] - nodes[0]
    for q in range(n + edges[1] - edges[0]):
        c = nodes[0] + q if q < n else n_nodes + edges[0] + q - n
        k, t, r = g.offsets[c + 1] - g.offsets[c], g.type[c], g.row[c]
        for s in range(k):
            p = g.tie[g.tie_start[t] + s]
            if d[at + s] == 0.0 or p < 0:
                continue
            for e in range(g.indptr[r], g.indptr[r + 1]):
                j = g.base[t] + g.indices[e] * g.params[t] + p
                if not seen[j]:
                    seen[j] = True
                    indices[count] = j
                    count += 1
                sums[j] += g.values[e] * d[at + s]
        at += k
    return count
