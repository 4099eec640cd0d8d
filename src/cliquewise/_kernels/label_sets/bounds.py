"""Weights of stored beliefs, and bounds of the relaxed loss; see ``search.py``."""

from __future__ import annotations

import numpy as np

from cliquewise._kernels import kernel
from cliquewise._kernels.label_sets.search import _by_rule, _desk, _lay_out, _unary


@kernel
def background(w):
    """Recompute S and the neighbors from V."""
    n = w.V.shape[0]
    for k in range(n):
        w.S[k] = 0.0
        w.degree[k] = 0
    for j in range(n):
        for k in range(n):
            if w.V[j, k] != 0.0:
                w.near[j, w.degree[j]] = k
                w.degree[j] += 1
                w.S[k] += 0.5 * max(w.V[j, k], 0.0)


@kernel
def _agree(sets, i, weight, desk, both):
    """Beliefs of example i that agree, in ``desk.old`` and ``both``.

    A label's is the mean of its own (counted ``weight`` times) and its pairs'; what a pair gives to
    both being on is cut to what its labels allow.
    """
    s, m, first, c = sets.start[i, 0], sets.count[i, 0], sets.start[i, 1], sets.count[i, 1]
    for a in range(m):
        desk.old[a], desk.degree[a] = weight * sets.p[s + a], weight
    for e in range(first, first + c):
        a, b = sets.ends[e, 0], sets.ends[e, 1]
        desk.old[a] += sets.pairs[e, 0] + sets.pairs[e, 2]
        desk.old[b] += sets.pairs[e, 1] + sets.pairs[e, 2]
        desk.degree[a] += 1.0
        desk.degree[b] += 1.0
    for a in range(m):
        desk.old[a] = min(max(desk.old[a] / desk.degree[a], 0.0), 1.0)
    for e in range(c):
        pa, pb = desk.old[sets.ends[first + e, 0]], desk.old[sets.ends[first + e, 1]]
        low = max(pa + pb - 1.0, 0.0)
        both[e] = min(max(sets.pairs[first + e, 2], low), min(pa, pb))


@kernel
def weights_of_sets(rows, C, sets, weight, U, V):
    """``w = C sum B (y - mu)`` of the beliefs; returns their cost.

    Of those that agree (see ``_agree``) if ``weight`` is positive, else of those that are stored.
    """
    n = V.shape[0]
    desk = _desk(n)
    most = 0
    for i in range(len(sets.count)):
        most = max(most, sets.count[i, 1])
    both = np.empty(most)
    for j in range(n):
        for k in range(n):
            V[j, k] = 0.0
    for f in range(U.shape[0]):
        for k in range(n):
            U[f, k] = 0.0
    cost = 0.0
    for i in range(len(sets.count)):
        s, m, first, c = sets.start[i, 0], sets.count[i, 0], sets.start[i, 1], sets.count[i, 1]
        if weight > 0.0:
            _agree(sets, i, weight, desk, both)
        else:
            for a in range(m):
                desk.old[a] = sets.p[s + a]
            for e in range(c):
                both[e] = sets.pairs[first + e, 2]
        for a in range(m):
            d = (1.0 if sets.truth[s + a] else 0.0) - desk.old[a]
            cost += abs(d)
            if d != 0.0:
                for q in range(rows.indptr[i], rows.indptr[i + 1]):
                    U[rows.indices[q], sets.label[s + a]] += C * d * rows.values[q]
        for e in range(c):
            a, b = sets.ends[first + e, 0], sets.ends[first + e, 1]
            j, k = sets.label[s + a], sets.label[s + b]
            d = (1.0 if sets.truth[s + a] and sets.truth[s + b] else 0.0) - both[e]
            V[j, k] += C * d
            V[k, j] = V[j, k]
        if weight > 0.0:
            _add_forced(sets, i, C, desk, V)
    return cost


@kernel
def _add_forced(sets, i, C, desk, V):
    """Pairs that are not active but whose beliefs sum to more than one."""
    s, m = sets.start[i, 0], sets.count[i, 0]
    _lay_out(sets, i, desk, True)
    for a in range(m):
        if desk.old[a] <= 0.5:
            continue
        j = sets.label[s + a]
        for b in range(m):
            k = sets.label[s + b]
            over = desk.old[a] + desk.old[b] - 1.0
            if over <= 0.0 or a == b or desk.listed[j, k] or (desk.old[b] > 0.5 and b > a):
                continue
            V[j, k] -= C * over
            V[k, j] = V[j, k]
    _lay_out(sets, i, desk, False)


#: Sweeps of messages over the pairs of an example before its bound is taken: it falls by a third,
#: and the sweeps cost less than the scores.
POLISH = 4


@kernel
def loss_bound(rows, w, plan, sets, out, alarms):
    """An upper bound of the relaxed loss of every example (Eq. 8 of gdmm), from its messages.

    Those of active pairs start at ``xi - rho (p - belief)`` and are then improved, others are by
    rule; a pair that is not active though its labels are sends its message to the one with the
    smaller belief. ``alarms`` adds up what labels contribute that are not active. Returns
    ``||A mu||^2`` and the cost of the labels' beliefs.
    """
    n = w.V.shape[0]
    desk = _desk(n)
    most = 0
    for i in range(len(out)):
        most = max(most, sets.count[i, 1])
    to = np.empty((most, 3))
    apart, cost = 0.0, 0.0
    for i in range(len(out)):
        _unary(rows, w.U, i, desk.u)
        _lay_out(sets, i, desk, True)
        _by_rule(w, sets, i, desk, True)
        s, m, first = sets.start[i, 0], sets.count[i, 0], sets.start[i, 1]
        total = 0.0
        for k in range(n):
            alarm = plan.cost + desk.u[k] + desk.delta[k]
            if alarm > 0.0 and desk.place[k] == 0:
                total += alarm
                alarms[k] += alarm
        apart += _messages(w, plan, sets, i, desk, to)
        _polish(sets, i, desk, to)
        for e in range(sets.count[i, 1]):
            a, b = sets.ends[first + e, 0], sets.ends[first + e, 1]
            total += max(max(0.0, -to[e, 0]), max(-to[e, 1], to[e, 2] - to[e, 0] - to[e, 1]))
            if sets.truth[s + a] and sets.truth[s + b]:
                total -= to[e, 2]
        for a in range(m):
            total += max(0.0, desk.inflow[a])
            if sets.truth[s + a]:
                total += plan.cost - desk.u[sets.label[s + a]]
                cost += 1.0 - sets.p[s + a]
            else:
                cost += sets.p[s + a]
        _lay_out(sets, i, desk, False)
        out[i] = total
    return apart, plan.cost * cost


@kernel
def _messages(w, plan, sets, i, desk, to):
    """What active pairs send to both ends, and their V, in ``to``; what each active label has
    from being on, in ``desk.inflow``.
    """
    s, m, first = sets.start[i, 0], sets.count[i, 0], sets.start[i, 1]
    apart = 0.0
    for a in range(m):
        sign = -1.0 if sets.truth[s + a] else 1.0
        desk.inflow[a] = sign * plan.cost + desk.u[sets.label[s + a]]
    for c in range(sets.count[i, 1]):
        e = first + c
        a, b = sets.ends[e, 0], sets.ends[e, 1]
        da = sets.p[s + a] - sets.pairs[e, 0] - sets.pairs[e, 2]
        db = sets.p[s + b] - sets.pairs[e, 1] - sets.pairs[e, 2]
        apart += da * da + db * db
        to[c, 0] = sets.pairs[e, 3] - plan.rho * da
        to[c, 1] = sets.pairs[e, 4] - plan.rho * db
        to[c, 2] = w.V[sets.label[s + a], sets.label[s + b]]
        desk.inflow[a] += to[c, 0]
        desk.inflow[b] += to[c, 1]
    for a in range(m):
        j = sets.label[s + a]
        for c in range(w.degree[j]):
            k = w.near[j, c]
            b = desk.place[k] - 1
            if b > a and w.V[j, k] > 0.0 and not desk.listed[j, k]:
                desk.inflow[b if sets.p[s + b] < sets.p[s + a] else a] += w.V[j, k]
    return apart


@kernel
def _polish(sets, i, desk, to):
    """Exact minimization of the bound over the messages of one pair at a time, which is the
    max-product update of MPLP; to and fro.
    """
    first, pairs = sets.start[i, 1], sets.count[i, 1]
    for turn in range(POLISH):
        for c in range(pairs):
            e = c if turn % 2 == 0 else pairs - 1 - c
            a, b = sets.ends[first + e, 0], sets.ends[first + e, 1]
            one, two, v = desk.inflow[a] - to[e, 0], desk.inflow[b] - to[e, 1], to[e, 2]
            desk.inflow[a] = 0.5 * (one + max(0.0, two + v) - max(0.0, two))
            desk.inflow[b] = 0.5 * (two + max(0.0, one + v) - max(0.0, one))
            to[e, 0], to[e, 1] = desk.inflow[a] - one, desk.inflow[b] - two


@kernel
def value_of_sets(rows, w, sets, weight, cost, beliefs, out):
    """What beliefs that agree earn at fixed weights, relative to the truth: a lower bound of
    the relaxed loss of every example. ``beliefs`` is laid out as ``sets.p``.
    """
    n = w.V.shape[0]
    desk = _desk(n)
    forced = np.zeros((n, n))
    most = 0
    for i in range(len(out)):
        most = max(most, sets.count[i, 1])
    both = np.empty(most)
    for i in range(len(out)):
        _unary(rows, w.U, i, desk.u)
        _agree(sets, i, weight, desk, both)
        s, m, first = sets.start[i, 0], sets.count[i, 0], sets.start[i, 1]
        total = 0.0
        for a in range(m):
            u, p = desk.u[sets.label[s + a]], desk.old[a]
            beliefs[s + a] = p
            total += (1.0 - p) * (cost - u) if sets.truth[s + a] else p * (cost + u)
        for e in range(sets.count[i, 1]):
            a, b = sets.ends[first + e, 0], sets.ends[first + e, 1]
            true = 1.0 if sets.truth[s + a] and sets.truth[s + b] else 0.0
            total += w.V[sets.label[s + a], sets.label[s + b]] * (both[e] - true)
        _add_forced(sets, i, -1.0, desk, forced)
        for a in range(m):
            j = sets.label[s + a]
            for b in range(a):
                k = sets.label[s + b]
                if forced[j, k] > 0.0:
                    total += w.V[j, k] * forced[j, k]
                    forced[j, k] = forced[k, j] = 0.0
        out[i] = total
