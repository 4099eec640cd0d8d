"""Block-coordinate Frank-Wolfe on chains: whole passes in one call.

The dual variable of example ``i`` is a convex combination of labelings. A labeling is the truth
but for some *segments*, maximal runs of wrong labels; segments of one labeling never meet: at
least one right token lies between two of them. So a labeling is a set of segments that share no
edge, and a combination of labelings is a weight ``alpha_s >= 0`` per segment such that the
segments over any edge weigh at most 1 together. Conversely every such choice of weights *is* a
combination of labelings: intervals over a line are a totally unimodular system, hence its
corners are 0/1, sets of segments that do not meet. That is the form in which the dual is kept:

* memory grows with the mistakes that matter, not with T x K marginals;
* a step on one segment touches the weights of its few tokens only, and segments in different
  places of a sentence take steps of different lengths, where Frank-Wolfe has one for all.

With the value of a segment, ``H_s = cost_s + <w, F(with s) - F(truth)>``, the value of a
labeling is the sum over its segments, and the steps on the dual have a closed form:
``gamma = sum_s beta_s H_s / (pull ||sum_s beta_s d_s||^2)`` along ``beta``, with

* one segment up (where its edges have slack) or down (away from it);
* one up and those in its way down (pairwise);
* towards the best labeling (Frank-Wolfe, Lacoste-Julien et al. 2013).

An exact visit asks Viterbi for the best labeling; a cached one makes do with the segments there
are (Shah et al. 2015), at the cost of a few tokens.
"""

from __future__ import annotations

import numpy as np

from cliquewise._kernels import kernel
from cliquewise._kernels.chain.hinge import most_violating, possible_transitions, search_room
from cliquewise._kernels.chain.segments import (
    LABELS,
    SEGMENTS,
    Visit,
    Weights,
    add_features_of,
    choose_path,
    choose_single,
    clear_features_of,
    gather,
    link_new,
    room_of,
    segment_value,
    shift,
)
from cliquewise._kernels.chain.sparse import read_links
from cliquewise._kernels.chain.sums import longest
from cliquewise._kernels.common.simd import no_unroll
from cliquewise._kernels.common.sum_tree import draw_leaf, set_leaf

#: Slack of an edge below which it counts as full.
FULL = 1e-12


@kernel(helper=True)
def _move(chains, pool, weights, visit, count, slope, most, first, last, pull):
    """Step up to ``most`` along ``visit.beta``; return the dual increase times n / c_i."""
    no_unroll()
    norm, mass = 0.0, 0.0
    for k in range(count):
        if visit.beta[k] != 0.0:
            change = add_features_of(
                chains, pool, visit.ids[k], first, last, visit.beta[k], weights.direction
            )
            norm += change
            mass += abs(change)
    gamma = most
    if norm > 1e-14 * mass:
        gamma = min(most, slope / (pull * norm))
    for k in range(count):
        if visit.beta[k] != 0.0:
            a = visit.ids[k]
            clear_features_of(chains, pool, a, first, last, weights.direction)
            shift(chains, pool, weights, visit, a, first, last, gamma * visit.beta[k], pull)
    return gamma * (slope - 0.5 * pull * gamma * max(norm, 0.0))


@kernel(helper=True)
def _swap(chains, pool, weights, visit, count, k, first, last, pull):
    """Raise segment ``k`` and lower those it overlaps; return the dual increase times n / c_i."""
    no_unroll()
    a = visit.ids[k]
    begin, end = pool.begin[a], pool.begin[a] + pool.length[a]
    low, high = end, begin
    for c in range(begin, end + 1):
        if 1.0 - visit.cover[c] <= FULL:
            low, high = min(low, c), max(high, c)
    alone = -1
    for j in range(count):
        visit.beta[j] = 0.0
        b = visit.ids[j]
        last_edge = pool.begin[b] + pool.length[b]
        if j != k and pool.alpha[b] > 0.0 and pool.begin[b] <= end and last_edge >= begin:
            visit.value[j] = segment_value(chains, pool, weights, b, first, last)
            whole = pool.begin[b] <= low and last_edge >= high
            if whole and (alone < 0 or visit.value[j] < visit.value[alone]):
                alone = j
    visit.beta[k] = 1.0
    slope, most = visit.value[k], 1.0
    # One that is in the way on all full edges, or else the worst on each of them.
    if alone >= 0 and slope > visit.value[alone]:
        visit.beta[alone] = -1.0
        slope -= visit.value[alone]
        most = pool.alpha[visit.ids[alone]]
    for c in range(pool.begin[a], pool.begin[a] + pool.length[a] + 1):
        worst, relieved = -1, False
        for j in range(count):
            b = visit.ids[j]
            if (
                j != k
                and pool.alpha[b] > 0.0
                and pool.begin[b] <= c <= pool.begin[b] + pool.length[b]
            ):
                relieved = relieved or visit.beta[j] < 0.0
                if worst < 0 or visit.value[j] < visit.value[worst]:
                    worst = j
        if relieved:
            continue
        room = 1.0 - visit.cover[c]
        if room > FULL:
            most = min(most, room)
            continue
        if worst < 0:
            return 0.0
        visit.beta[worst] = -1.0
        slope -= visit.value[worst]
        most = min(most, pool.alpha[visit.ids[worst]])
    if not slope > 1e-14 * (1.0 + abs(visit.value[k])):
        return 0.0
    return _move(chains, pool, weights, visit, count, slope, most, first, last, pull)


@kernel(helper=True)
def _improve(chains, pool, weights, visit, count, k, first, last, pull):
    """Take the best step on one segment; return the dual increase times n / c_i."""
    no_unroll()
    a = visit.ids[k]
    value = segment_value(chains, pool, weights, a, first, last)
    visit.value[k] = value
    if not abs(value) > 1e-14 * (1.0 + pool.length[a]):
        return 0.0
    if value > 0.0:
        most = room_of(pool, visit, a)
        if most <= FULL:
            return _swap(chains, pool, weights, visit, count, k, first, last, pull)
    else:
        most = pool.alpha[a]
        if most == 0.0:
            return 0.0
    amount = most
    if pool.norm[a] > 0.0:
        amount = min(most, abs(value) / (pull * pool.norm[a]))
    signed = amount if value > 0.0 else -amount
    shift(chains, pool, weights, visit, a, first, last, signed, pull)
    return amount * (abs(value) - 0.5 * pull * amount * pool.norm[a])


@kernel(helper=True)
def _frank_wolfe(chains, pool, weights, visit, count, least, first, last, pull):
    """Step towards the chosen labeling if that gains ``least``; return the dual increase."""
    no_unroll()
    slope = 0.0
    for k in range(count):
        a = visit.ids[k]
        visit.beta[k] = (1.0 if visit.chosen[k] else 0.0) - pool.alpha[a]
        if visit.beta[k] != 0.0:
            slope += visit.beta[k] * segment_value(chains, pool, weights, a, first, last)
    if not slope > least:
        return 0.0
    return _move(chains, pool, weights, visit, count, slope, 1.0, first, last, pull)


@kernel(helper=True)
def _search(chains, pool, weights, links, visit, count, i, room, segmentwise, pull):
    """Find the labeling of greatest loss and mark its segments; return (new count, gap).

    A gap that is only rounding error is returned as 0.
    """
    no_unroll()
    first, last, weight = chains.offsets[i], chains.offsets[i + 1], chains.weights[i]
    possible = possible_transitions(chains, weights.w, room.masked)
    if links is not None:
        read_links(links, possible)
    best = most_violating(chains, weights.w, possible, links, first, last, 1.0, room)
    gap = best
    for k in range(count):
        a = visit.ids[k]
        if pool.alpha[a] > 0.0:
            gap -= pool.alpha[a] * segment_value(chains, pool, weights, a, first, last)
    gap = max(gap, 0.0)
    pool.gaps[i] = weight * gap
    if pool.tree.shape[0] > 0:
        set_leaf(pool.tree, i, weight * gap)
    if gap <= 1e-14 * (1.0 + abs(best)):
        return count, 0.0
    count = choose_path(chains, pool, weights, visit, count, i, room, first, last, pull)
    if segmentwise:
        count = choose_single(
            chains, pool, weights, visit, count, i, room, possible, first, last, pull
        )
    if links is not None:
        link_new(chains, pool, visit, count, links, first, last)
    return count, gap


@kernel(helper=True)
def _improve_all(chains, pool, weights, visit, count, first, last, pull, exact, most_rounds):
    """Do rounds of steps on single segments until they gain little; return the dual increase."""
    no_unroll()
    total, before = 0.0, 0.0
    for _round in range(most_rounds):
        gained = 0.0
        for k in range(count):
            a = visit.ids[k]
            if (
                pool.alpha[a] > 0.0
                or visit.chosen[k]
                or visit.nearby[k]
                or (not exact and pool.idle[a] < 2)
            ):
                gained += _improve(chains, pool, weights, visit, count, k, first, last, pull)
        total += gained
        before = max(before, gained)
        if gained <= 0.1 * before:
            break
    return total


@kernel
def epoch(
    chains, pool, links, w, direction, strength, order, uniforms, exact, segmentwise,
    most_segments, most_rounds,
):  # fmt: skip
    """Visit examples; each visit improves the weights of one example's segments.

    Parameters
    ----------
    chains : Chains
    pool : Segments
        Changed in place.
    links : Links or None
        Pairs of labels that the truth and the segments have: all that transitions can weigh more
        or less than zero for. Changed in place. None where labels are few.
    w : array
        Weights ``-strength * sum_i c_i sum_s alpha_s d_s``, changed in place.
    direction : array
        Zeros, as many as ``w``; zeros again afterwards.
    strength : float
        1 / (lam n).
    order : int array
        Examples to visit; -1 to draw one by its last seen gap.
    exact : bool
        Ask Viterbi for a labeling; otherwise make do with the segments there are.
    segmentwise : bool
        Steps on single segments, and towards a labeling only where these stall; otherwise
        the latter alone.
    most_segments, most_rounds : int
        Segments per example, and rounds over them per visit.

    Returns
    -------
    (done, calls, rise)
        Visits (fewer if the pool or links are full), Viterbi passes, and the
        rise of ``n`` times the dual objective.
    """
    no_unroll()
    n, length = chains.offsets.shape[0] - 1, longest(chains.offsets)
    room = search_room(chains, w)
    visit = Visit(
        np.empty(most_segments, np.int64), np.zeros(most_segments), np.zeros(most_segments),
        np.zeros(most_segments, np.bool_), np.zeros(most_segments, np.bool_), np.zeros(length + 1),
    )  # fmt: skip
    weights = Weights(w, direction)
    calls, rise = 0, 0.0
    for number in range(order.shape[0]):
        if exact and (
            pool.used[SEGMENTS] + 2 * length > pool.next.shape[0]
            or pool.used[LABELS] + 2 * length > pool.labels.shape[0]
        ):
            return number, calls, rise
        if links is not None and links.full[0] == 1:
            return number, calls, rise
        i = order[number]
        if i < 0:
            i = draw_leaf(pool.tree, uniforms[number], n)
        first, last = chains.offsets[i], chains.offsets[i + 1]
        weight = chains.weights[i]
        if first == last or weight == 0.0 or (pool.head[i] < 0 and not exact):
            continue
        pull = weight * strength
        count = gather(pool, visit, i, last - first)
        gap = 0.0
        if exact:
            count, gap = _search(
                chains, pool, weights, links, visit, count, i, room, segmentwise, pull
            )
            calls += 1
            if gap == 0.0:
                continue
        if segmentwise:
            rise += weight * _improve_all(
                chains, pool, weights, visit, count, first, last, pull, exact, most_rounds
            )
        if exact:
            least = 0.1 * gap if segmentwise else 0.0
            rise += weight * _frank_wolfe(
                chains, pool, weights, visit, count, least, first, last, pull
            )
            for k in range(count):
                a = visit.ids[k]
                matters = pool.alpha[a] > 0.0 or visit.chosen[k] or visit.nearby[k]
                pool.idle[a] = 0 if matters else pool.idle[a] + 1
    return order.shape[0], calls, rise
