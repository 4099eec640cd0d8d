"""Greedy dual ascent for many labels that are on or off, every pair of them interacting.

Example i has the score ``sum_k y_k u_k + sum_{j<k} y_j y_k V_jk`` with ``u = 2 x'U``. Stored are
its *active* labels (the true ones, and those that were worth switching on) with beliefs ``p_k``,
and its *active* pairs with tables ``(q10, q01, q11)`` and the multipliers ``xi`` of both ends. Any
other label has belief 0. Any other pair gives nothing to both being on, which agrees with its
labels as long as ``p_j + p_k <= 1``; a pair that breaks this becomes active.

Pairs that are not active still need messages in the bound of Eq. 8 of gdmm, or each would
count ``max(V_jk, 0)``. They get them by rule: all of it is moved to the end that is not active, or
a half to each of two such ends. No such pair is violated then, and among the
factors that are not active the most violated one is the label with the largest

    cost + u_k + S_k + sum over active j of max(V_jk, 0) / 2,
    S_k = sum over all j of max(V_jk, 0) / 2,

or a pair of active labels with ``V_jk > 0``. S is kept under changes of V, and ``near`` lists for
each label those that it ever had a weight with: no search looks at all pairs of labels. (Most of S
is about labels that are far from being on; the search leaves it out as long as the bound does
not suffer from that, see ``thorough``.)
"""

from __future__ import annotations

from collections import namedtuple

import numpy as np

from cliquewise._kernels import REASSOCIATE, kernel
from cliquewise._kernels.cliques.ascent import _random_below

#: Feature rows with their squared norms.
Rows = namedtuple("Rows", ["indptr", "indices", "values", "norms"])

#: Active labels and pairs of all examples in two arenas. Those of example i begin at
#: ``start[i, 0]`` and ``start[i, 1]``; ``count`` and ``capacity`` likewise. ``ends`` are a pair's
#: two places among its example's labels; ``pairs`` has q10, q01, q11 and the multipliers of both
#: ends. ``used`` is the end of both arenas.
Sets = namedtuple(
    "Sets", ["start", "count", "capacity", "label", "truth", "p", "ends", "pairs", "used"]
)

#: U (features, labels), V symmetric, background S; ``near[j, :degree[j]]`` are the labels that j
#: ever had a weight with.
Weights = namedtuple("Weights", ["U", "V", "S", "near", "degree"])

#: C, penalty, step of the multipliers, cost of a wrong label, rounds at one example, the share of
#: the largest violation that a label needs to join, the V that a pair needs, how many labels may
#: join at one visit, the kind of search and its parts, and whether to look at messages by rule.
Plan = namedtuple(
    "Plan",
    ["C", "rho", "length", "cost", "rounds", "share", "least", "most", "search", "parts",
     "thorough"],
)  # fmt: skip

#: Where an example is worked on: scores, messages by rule, inflows, degrees and old beliefs of
#: labels; ``place[k]`` is one more than the place of label k among the active; ``listed[j, k]``
#: says that a pair is active.
Desk = namedtuple("Desk", ["u", "delta", "inflow", "degree", "old", "place", "listed"])

SUBLINEAR, FULL, SAMPLED = 0, 1, 2


@kernel
def _desk(n):
    return Desk(
        np.empty(n), np.empty(n), np.empty(n), np.empty(n), np.empty(n),
        np.zeros(n, dtype=np.int64), np.zeros((n, n), dtype=np.bool_),
    )  # fmt: skip


@kernel(fastmath=REASSOCIATE)
def _unary(rows, U, i, u):
    """u = 2 x'U."""
    n = len(u)
    for k in range(n):
        u[k] = 0.0
    for q in range(rows.indptr[i], rows.indptr[i + 1]):
        f, v = rows.indices[q], 2.0 * rows.values[q]
        for k in range(n):
            u[k] += v * U[f, k]


@kernel
def _lay_out(sets, i, desk, present):
    """Fill ``place`` and ``listed`` with example i, or clear them again."""
    s, e = sets.start[i, 0], sets.start[i, 1]
    for a in range(sets.count[i, 0]):
        desk.place[sets.label[s + a]] = a + 1 if present else 0
    for c in range(e, e + sets.count[i, 1]):
        j, k = sets.label[s + sets.ends[c, 0]], sets.label[s + sets.ends[c, 1]]
        desk.listed[j, k] = desk.listed[k, j] = present


@kernel
def _by_rule(w, sets, i, desk, thorough):
    """What pairs add to the score of labels that are not active.

    Thorough: all messages by rule. Else what the beliefs of the active labels allow.
    """
    for k in range(len(desk.delta)):
        desk.delta[k] = w.S[k] if thorough else 0.0
    s = sets.start[i, 0]
    for a in range(s, s + sets.count[i, 0]):
        j, p = sets.label[a], sets.p[a]
        if not thorough and p == 0.0:
            continue
        share = 0.5 if thorough else p
        for c in range(w.degree[j]):
            k = w.near[j, c]
            desk.delta[k] += share * max(w.V[j, k], 0.0)


@kernel
def _by_rule_in_full(w, sets, i, desk, thorough):
    """The same numbers by a look at every pair."""
    n, s = len(desk.delta), sets.start[i, 0]
    for k in range(n):
        total = 0.0
        for j in range(n):
            if j != k:
                a = desk.place[j] - 1
                if thorough:
                    share = 1.0 if a >= 0 else 0.5
                else:
                    share = sets.p[s + a] if a >= 0 else 0.0
                total += share * max(w.V[k, j], 0.0)
        desk.delta[k] = total


@kernel
def _most_violated(desk, cost, part, parts):
    """The label that is not active with the largest violation, and that."""
    best, top = -1, 0.0
    for k in range(len(desk.u)):
        if parts > 1 and k % parts != part:
            continue
        value = cost + desk.u[k] + desk.delta[k]
        if value > top and desk.place[k] == 0:
            best, top = k, value
    return best, top


# ---- growth


@kernel
def _has_room(sets, i, labels, pairs):
    """Reserve space for more labels and pairs of example i; return False if the arenas are full."""
    m, c = sets.count[i, 0], sets.count[i, 1]
    if m + labels > sets.capacity[i, 0]:
        new, at, s = max(2 * sets.capacity[i, 0], m + labels), sets.used[0], sets.start[i, 0]
        if at + new > len(sets.p):
            return False
        for a in range(m):
            sets.label[at + a] = sets.label[s + a]
            sets.truth[at + a] = sets.truth[s + a]
            sets.p[at + a] = sets.p[s + a]
        sets.start[i, 0], sets.capacity[i, 0] = at, new
        sets.used[0] = at + new
    if c + pairs > sets.capacity[i, 1]:
        new, at, s = max(2 * sets.capacity[i, 1], c + pairs), sets.used[1], sets.start[i, 1]
        if at + new > len(sets.pairs):
            return False
        for e in range(c):
            sets.ends[at + e, 0], sets.ends[at + e, 1] = sets.ends[s + e, 0], sets.ends[s + e, 1]
            for f in range(5):
                sets.pairs[at + e, f] = sets.pairs[s + e, f]
        sets.start[i, 1], sets.capacity[i, 1] = at, new
        sets.used[1] = at + new
    return True


@kernel
def _join_label(sets, i, k, p):
    """Make label k active, with belief 0, or 1 if it is gold; there must be space."""
    m = sets.count[i, 0]
    at = sets.start[i, 0] + m
    sets.label[at], sets.truth[at], sets.p[at] = k, p > 0.0, p
    sets.count[i, 0] = m + 1


@kernel
def _join_pair(w, plan, sets, i, a, b, to_a, to_b):
    """Make the pair of two places active, consistent with its labels; there must be space.

    What it gives to both being on is the best that its labels allow.
    """
    s, c = sets.start[i, 0], sets.count[i, 1]
    e = sets.start[i, 1] + c
    pa, pb = sets.p[s + a], sets.p[s + b]
    j, k = sets.label[s + a], sets.label[s + b]
    both = max(pa + pb - 1.0, 0.0)
    if w.V[j, k] > 0.0:
        high = min(pa, pb)
        both = high if plan.C == 0.0 else min(max(w.V[j, k] / plan.C, both), high)
    sets.ends[e, 0], sets.ends[e, 1] = a, b
    sets.pairs[e, 0], sets.pairs[e, 1], sets.pairs[e, 2] = pa - both, pb - both, both
    sets.pairs[e, 3], sets.pairs[e, 4] = to_a, to_b
    sets.count[i, 1] = c + 1
    if plan.C > 0.0 and both > 0.0:
        _move_pair(w, j, k, -plan.C * both)


@kernel
def _move_pair(w, j, k, d):
    """V_jk += d, and with it the background and the lists of neighbors."""
    old = w.V[j, k]
    new = old + d
    if old == 0.0:
        _meet(w, j, k)
    w.V[j, k] = w.V[k, j] = new
    change = max(new, 0.0) - max(old, 0.0)
    w.S[k] += 0.5 * change
    w.S[j] += 0.5 * change


@kernel
def _meet(w, j, k):
    """Labels j and k are neighbors from now on."""
    for c in range(w.degree[j]):
        if w.near[j, c] == k:
            return
    w.near[j, w.degree[j]], w.near[k, w.degree[k]] = k, j
    w.degree[j] += 1
    w.degree[k] += 1


# ---- search


@kernel
def _search(w, plan, sets, i, desk, random):
    """Labels that join example i (Eq. 18 of gdmm); -1 if the arena is full."""
    if plan.search == FULL:
        _by_rule_in_full(w, sets, i, desk, plan.thorough)
    else:
        _by_rule(w, sets, i, desk, plan.thorough)
    parts = plan.parts if plan.search == SAMPLED else 1
    part = _random_below(random, parts) if parts > 1 else 0
    best, top = _most_violated(desk, plan.cost, part, parts)
    if best < 0:
        return 0
    n, found = len(desk.u), 0
    for k in range(n):
        if desk.place[k] == 0 and plan.cost + desk.u[k] + desk.delta[k] >= plan.share * top:
            found += 1
    if not _has_room(sets, i, min(found, plan.most), 0):
        return -1
    found = 0
    first = _random_below(random, n)
    for q in range(n):
        # From a random place on, for the first ones found may be all that may join.
        k = best if q == 0 else (first + q) % n
        if found == plan.most or desk.place[k] > 0 or (parts > 1 and k % parts != part):
            continue
        if plan.cost + desk.u[k] + desk.delta[k] < plan.share * top:
            continue
        _join_label(sets, i, k, 0.0)
        desk.place[k] = sets.count[i, 0]
        found += 1
        if plan.cost + desk.u[k] <= 0.0 and not _join_supporters(w, plan, sets, i, k, desk):
            return -1
    return found


@kernel
def _join_supporters(w, plan, sets, i, k, desk):
    """Pairs join that may switch label k on, though its own score does not."""
    s, b = sets.start[i, 0], desk.place[k] - 1
    for c in range(w.degree[k]):
        j = w.near[k, c]
        a = desk.place[j] - 1
        if a < 0 or a == b or w.V[j, k] <= plan.least or desk.listed[j, k]:
            continue
        if sets.p[s + a] == 0.0 and not plan.thorough:
            continue
        if not _has_room(sets, i, 0, 1):
            return False
        # The message by rule is at the end that is off.
        _join_pair(w, plan, sets, i, a, b, 0.0, w.V[j, k])
        desk.listed[j, k] = desk.listed[k, j] = True
    return True


@kernel
def _join_pairs(w, plan, sets, i, desk):
    """Pairs of a label that is on join if V > 0 and the other is on or violated, and pairs that
    cannot be off with these beliefs.
    """
    s, m = sets.start[i, 0], sets.count[i, 0]
    found = 0
    for a in range(m):
        if sets.p[s + a] == 0.0:
            continue
        j = sets.label[s + a]
        for c in range(w.degree[j]):
            k = w.near[j, c]
            b = desk.place[k] - 1
            if b < 0 or w.V[j, k] <= plan.least or desk.listed[j, k]:
                continue
            if sets.p[s + b] == 0.0 and plan.cost + desk.u[k] + desk.delta[k] <= 0.0:
                continue
            if not _has_room(sets, i, 0, 1):
                return -1
            _join_pair(w, plan, sets, i, a, b, 0.0, 0.0)
            desk.listed[j, k] = desk.listed[k, j] = True
            found += 1
    for a in range(m):
        if sets.p[s + a] <= 0.5:
            continue
        j = sets.label[s + a]
        for b in range(m):
            k = sets.label[s + b]
            if a == b or sets.p[s + a] + sets.p[s + b] <= 1.0 or desk.listed[j, k]:
                continue
            if not _has_room(sets, i, 0, 1):
                return -1
            _join_pair(w, plan, sets, i, a, b, 0.0, 0.0)
            desk.listed[j, k] = desk.listed[k, j] = True
            found += 1
    return found
