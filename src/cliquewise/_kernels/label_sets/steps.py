"""Passes of GDMM over examples with many interacting labels; see ``search.py``."""

from __future__ import annotations

import numpy as np

from cliquewise._kernels import kernel
from cliquewise._kernels.label_sets.search import (
    _desk,
    _join_label,
    _join_pairs,
    _lay_out,
    _move_pair,
    _search,
    _unary,
)


@kernel
def _threshold4(a, b, c, d):
    """What to take off four numbers so that their positive parts sum to one.

    The largest of (sum of the k largest - 1) / k, by a sorting network: without a branch.
    """
    a, b = max(a, b), min(a, b)
    c, d = max(c, d), min(c, d)
    a, c = max(a, c), min(a, c)
    b, d = max(b, d), min(b, d)
    b, c = max(b, c), min(b, c)
    one = a - 1.0
    two = one + b
    three = two + c
    return max(max(one, 0.5 * two), max(three / 3.0, 0.25 * (three + d)))


@kernel
def _pair_step(plan, sets, s, e, desk, v):
    """The proximal problem of one pair with the weight v (Eq. 19 of gdmm); returns the new one."""
    a, b = sets.ends[e, 0], sets.ends[e, 1]
    q10, q01, q11 = sets.pairs[e, 0], sets.pairs[e, 1], sets.pairs[e, 2]
    to_a = -sets.pairs[e, 3] + plan.rho * (sets.p[s + a] - q10 - q11)
    to_b = -sets.pairs[e, 4] + plan.rho * (sets.p[s + b] - q01 - q11)
    step = 1.0 / (plan.C + plan.rho)
    t00 = 1.0 - q10 - q01 - q11
    t10, t01 = q10 + step * to_a, q01 + step * to_b
    t11 = q11 + step * (v + to_a + to_b)
    tau = _threshold4(t00, t10, t01, t11)
    t10, t01, t11 = max(t10 - tau, 0.0), max(t01 - tau, 0.0), max(t11 - tau, 0.0)
    sets.pairs[e, 0], sets.pairs[e, 1], sets.pairs[e, 2] = t10, t01, t11
    desk.inflow[a] += plan.rho * (t10 + t11 - q10 - q11)
    desk.inflow[b] += plan.rho * (t01 + t11 - q01 - q11)
    return v + plan.C * (q11 - t11)


@kernel
def _multipliers(sets, i, rho, length, desk):
    """Do ``xi -= length (p - belief of the pair)``; recompute inflows and degrees."""
    s, first = sets.start[i, 0], sets.start[i, 1]
    apart = 0.0
    for a in range(sets.count[i, 0]):
        desk.inflow[a] = desk.degree[a] = 0.0
    for e in range(first, first + sets.count[i, 1]):
        a, b = sets.ends[e, 0], sets.ends[e, 1]
        left = sets.pairs[e, 0] + sets.pairs[e, 2]
        right = sets.pairs[e, 1] + sets.pairs[e, 2]
        da, db = sets.p[s + a] - left, sets.p[s + b] - right
        apart += da * da + db * db
        sets.pairs[e, 3] -= length * da
        sets.pairs[e, 4] -= length * db
        desk.inflow[a] += sets.pairs[e, 3] + rho * left
        desk.inflow[b] += sets.pairs[e, 4] + rho * right
        desk.degree[a] += 1.0
        desk.degree[b] += 1.0
    return apart


@kernel
def _rounds(rows, w, plan, sets, i, desk, v):
    """Multipliers, labels and pairs of one example, several times; U is left for later.

    ``v`` has space for the weights of its pairs, each of which only one pair changes.
    """
    s, m, first, pairs = sets.start[i, 0], sets.count[i, 0], sets.start[i, 1], sets.count[i, 1]
    for c in range(pairs):
        a, b = sets.ends[first + c, 0], sets.ends[first + c, 1]
        v[c] = w.V[sets.label[s + a], sets.label[s + b]]
    bend = 2.0 * plan.C * rows.norms[i]
    apart = 0.0
    for _ in range(plan.rounds):
        apart = _multipliers(sets, i, plan.rho, plan.length, desk)
        for a in range(m):
            k, p = sets.label[s + a], sets.p[s + a]
            sign = -1.0 if sets.truth[s + a] else 1.0
            pull = plan.rho * desk.degree[a]
            slope = sign * plan.cost + desk.u[k] + desk.inflow[a] - pull * p
            if bend + pull > 0.0:
                new = min(max(p + slope / (bend + pull), 0.0), 1.0)
            else:
                new = 1.0 if slope > 0.0 else (0.0 if slope < 0.0 else p)
            desk.u[k] -= bend * (new - p)
            sets.p[s + a] = new
        for c in range(pairs):
            v[c] = _pair_step(plan, sets, s, first + c, desk, v[c])
    for c in range(pairs):
        j = sets.label[s + sets.ends[first + c, 0]]
        k = sets.label[s + sets.ends[first + c, 1]]
        if v[c] != w.V[j, k]:
            _move_pair(w, j, k, v[c] - w.V[j, k])
    return apart


@kernel
def _write_back(rows, w, C, sets, i, desk):
    """U follows the beliefs of example i."""
    s = sets.start[i, 0]
    for a in range(sets.count[i, 0]):
        d = C * (desk.old[a] - sets.p[s + a])
        if d != 0.0:
            k = sets.label[s + a]
            for q in range(rows.indptr[i], rows.indptr[i + 1]):
                w.U[rows.indices[q], k] += d * rows.values[q]


@kernel
def greedy_sweep(rows, w, plan, sets, examples, begin, random):
    """Visit ``examples[begin:]`` (Algorithm 3 of gdmm); stops early where an arena is full.

    Returns the place in ``examples`` that was reached, the factors visited and the disagreement.
    """
    desk = _desk(w.V.shape[0])
    v = np.empty(64)
    visits, apart, first = 0, 0.0, random[0]
    for n in range(begin, len(examples)):
        i = examples[n]
        if plan.C == 0.0:
            random[0] = first  # no example learns from another: what it gets is its own
        _unary(rows, w.U, i, desk.u)
        _lay_out(sets, i, desk, True)
        full = _search(w, plan, sets, i, desk, random) < 0
        full = full or _join_pairs(w, plan, sets, i, desk) < 0
        if full:
            _lay_out(sets, i, desk, False)
            if plan.C == 0.0:
                random[0] = first
            return n, visits, apart
        s = sets.start[i, 0]
        for a in range(sets.count[i, 0]):
            desk.old[a] = sets.p[s + a]
        if sets.count[i, 1] > len(v):
            v = np.empty(2 * sets.count[i, 1])
        apart += _rounds(rows, w, plan, sets, i, desk, v)
        _lay_out(sets, i, desk, False)
        visits += sets.count[i, 0] + sets.count[i, 1]
        if plan.C > 0.0:
            _write_back(rows, w, plan.C, sets, i, desk)
    return len(examples), visits, apart


@kernel
def start_at_truth(sets, true_start, true_label):
    """Make the gold labels of every example and their pairs active; there must be space."""
    for i in range(len(true_start) - 1):
        m = true_start[i + 1] - true_start[i]
        sets.start[i, 0], sets.start[i, 1] = sets.used[0], sets.used[1]
        sets.capacity[i, 0], sets.capacity[i, 1] = m, m * (m - 1) // 2
        sets.used[0] += m
        sets.used[1] += m * (m - 1) // 2
        sets.count[i, 0] = sets.count[i, 1] = 0
        for q in range(true_start[i], true_start[i + 1]):
            _join_label(sets, i, true_label[q], 1.0)
        for a in range(m):
            for b in range(a):
                e = sets.start[i, 1] + sets.count[i, 1]
                sets.ends[e, 0], sets.ends[e, 1] = a, b
                for f in range(5):
                    sets.pairs[e, f] = 1.0 if f == 2 else 0.0
                sets.count[i, 1] += 1


@kernel
def tidy(w, sets, least, small):
    """Drop pairs that would be the same if they were not active, and labels that are off.

    Such a pair gives nothing to both being on, has a V up to ``least`` and multipliers up to
    ``small``.
    """
    place = np.zeros(w.V.shape[0] + 1, dtype=np.int64)
    for i in range(len(sets.count)):
        s, first = sets.start[i, 0], sets.start[i, 1]
        m, kept = sets.count[i, 0], 0
        for a in range(m):
            place[a] = 1 if sets.truth[s + a] or sets.p[s + a] > 0.0 else 0
        for e in range(first, first + sets.count[i, 1]):
            a, b = sets.ends[e, 0], sets.ends[e, 1]
            true = sets.truth[s + a] and sets.truth[s + b]
            quiet = max(abs(sets.pairs[e, 3]), abs(sets.pairs[e, 4])) <= small
            off = sets.pairs[e, 2] <= 0.0 and w.V[sets.label[s + a], sets.label[s + b]] <= least
            if not true and off and quiet and sets.p[s + a] + sets.p[s + b] <= 1.0:
                continue
            place[a] = place[b] = 1
            at = first + kept
            sets.ends[at, 0], sets.ends[at, 1] = a, b
            for f in range(5):
                sets.pairs[at, f] = sets.pairs[e, f]
            kept += 1
        sets.count[i, 1] = kept
        kept = 0
        for a in range(m):
            if place[a] > 0:
                sets.label[s + kept] = sets.label[s + a]
                sets.truth[s + kept] = sets.truth[s + a]
                sets.p[s + kept] = sets.p[s + a]
                place[a] = kept
                kept += 1
        sets.count[i, 0] = kept
        for e in range(first, first + sets.count[i, 1]):
            sets.ends[e, 0], sets.ends[e, 1] = place[sets.ends[e, 0]], place[sets.ends[e, 1]]
