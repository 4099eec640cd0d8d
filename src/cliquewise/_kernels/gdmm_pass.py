"""Passes of GDMM over chains: factor searches, block steps on active sets, multipliers.

The augmented Lagrangian (Eq. 12 of gdmm), with ``a`` for the masses of tokens, ``b`` for those of
edges and ``n = M b`` for the marginals of an edge:

    1/2 ||w(a, b)||^2 - sum of a over wrong labels + sum <lam, n - a> + rho/2 ||n - a||^2

A token's scores are ``<w, x> + cost + sum over its edges of m``, an edge's ``v - m - m`` with
``m = lam + rho (n - a)``; what is greatest is what the gradient falls along. For a token the
Hessian is diagonal and a projection solves the block; for an edge pairwise steps do.
"""

import numpy as np

from cliquewise._kernels import kernel
from cliquewise._kernels.gdmm_lists import (
    LAM_LEFT,
    LAM_RIGHT,
    LEFT,
    MASS,
    NORM,
    PAIR_FREE,
    PAIR_MASS,
    PAIR_OLD,
    PAIR_VALUE,
    RIGHT,
    add_label,
    add_pair,
    drop_pair,
)
from cliquewise._kernels.gdmm_pairs import (
    add_to_pair,
    search_all_pairs,
    search_pairs,
    table_room,
)
from cliquewise._kernels.gdmm_rows import add_to_weights, can_take, growth, score_all, score_label

#: What a pass counts: gaps of tokens and edges, squared residual, squared change of the tokens'
#: masses, <m, n - a>, work (numbers read), searches at tokens, 1 if a pool was too small, entries
#: with mass, squared norm of the multipliers.
GAP_NODES, GAP_EDGES, RESIDUAL, CHANGE, COUPLING, WORK, SEARCHES, FULL, SQUARES, LAMS = range(10)
N_STATS = 10

#: Step rules.
BLOCK, AWAY, GREEDY = range(3)
#: Factor searches.
SUBLINEAR, WHOLE, SAMPLED = range(3)


@kernel(helper=True)
def _message(cell, p, side, rho):
    """Message between a token and its left (0) or right (1) edge at one label."""
    return cell[p, LAM_LEFT + side] + rho * (cell[p, LEFT + side] - cell[p, MASS])


@kernel(helper=True)
def _search_token(chains, rows, support, token, n_labels, group, groups, scores, marks):
    """Best label outside a token's list with its score (cost included); -1 if there is none.

    ``scores`` holds those of all labels; with several groups only one of them is searched.
    """
    begin, count = support.start[token], support.count[token]
    for p in range(begin, begin + count):
        marks[support.label[p]] = 1
    masked = chains.allowed.shape[0] > 0
    best, found = -np.inf, np.int64(-1)
    for j in range(group, n_labels, groups):
        if scores[j] > best and marks[j] == 0 and (not masked or chains.allowed[token, j]):
            best, found = scores[j], np.int64(j)
    for p in range(begin, begin + count):
        marks[support.label[p]] = 0
    return best + 1.0, found


@kernel(helper=True)
def _project(work, count, total):
    """Masses that minimise ``sum -c d + H/2 d^2`` on the simplex: ``work`` rows are a, c, H, new.

    Michelot's rounds with weights: drop what cannot be positive, and repeat.
    """
    left, top = count, 0.0
    for k in range(count):
        work[3, k] = 1.0
    while True:
        top, bottom = -total, 0.0
        for k in range(count):
            if work[3, k] > 0:
                top += work[0, k] + work[1, k] / work[2, k]
                bottom += 1.0 / work[2, k]
        level = top / bottom
        kept = 0
        for k in range(count):
            if work[3, k] > 0:
                if work[0, k] + (work[1, k] - level) / work[2, k] > 0:
                    kept += 1
                else:
                    work[3, k] = 0.0
        if kept == left or kept == 0:
            break
        left = kept
    for k in range(count):
        if work[3, k] > 0:
            work[3, k] = max(work[0, k] + (work[1, k] - level) / work[2, k], 0.0)


@kernel(helper=True)
def _one_step(work, count):
    """A pairwise step with exact line search: from the worst label with mass to the best."""
    up, down = 0, -1
    for k in range(count):
        work[3, k] = work[0, k]
        if work[1, k] > work[1, up]:
            up = k
        if work[0, k] > 0 and (down < 0 or work[1, k] < work[1, down]):
            down = k
    if down < 0 or up == down:
        return
    step = (work[1, up] - work[1, down]) / (work[2, up] + work[2, down])
    step = min(step, work[0, down])
    work[3, up] += step
    work[3, down] -= step
    if work[3, down] < 1e-14 * work[0, down]:
        work[3, up] += work[3, down]
        work[3, down] = 0.0


@kernel(helper=True)
def visit_token(
    chains, rows, support, token, first, last, mass, rho, n_labels, rule, group, groups, wanted,
    scores, marks, work, places, stats,
):  # fmt: skip
    """Search (if wanted) and block step of one token; 1 if the search found a new label."""
    has_left, has_right = token > first, token < last - 1
    edges = (1 if has_left else 0) + (1 if has_right else 0)
    new = 0
    best = -np.inf
    if wanted:
        stats[WORK] += score_all(chains, rows, token, n_labels, scores)
        stats[SEARCHES] += 1
        best, label = _search_token(
            chains, rows, support, token, n_labels, group, groups, scores, marks
        )
    begin, cell = support.start[token], support.cell
    high = -np.inf
    count = 0
    for p in range(begin, begin + support.count[token]):
        if p > begin and not wanted and cell[p, MASS] + cell[p, LEFT] + cell[p, RIGHT] <= 0:
            continue
        y = np.int64(support.label[p])
        c = scores[y] if wanted else score_label(chains, rows, token, y)
        if p > begin:
            c += 1.0
        if has_left:
            c += _message(cell, p, 0, rho)
        if has_right:
            c += _message(cell, p, 1, rho)
        if c > high:
            high = c
        places[count] = p - begin
        work[0, count] = cell[p, MASS]
        work[1, count] = c
        work[2, count] = cell[p, NORM] + rho * edges
        count += 1
        if count == places.shape[0] - 1:
            break
    if wanted and best > high and label >= 0:
        if can_take(chains, rows, token, 1, n_labels):
            p = add_label(chains, rows, support, token, label)
            if p >= 0:
                places[count] = p
                work[0, count] = 0.0
                work[1, count] = best
                work[2, count] = cell[support.start[token] + p, NORM] + rho * edges
                count += 1
                new = 1
        if new == 0:
            stats[FULL] = 1
    begin = support.start[token]
    high = max(high, best)
    gap = 0.0
    for k in range(count):
        gap += work[0, k] * (high - work[1, k])
        work[2, k] = max(work[2, k], 1e-12)
    stats[GAP_NODES] += gap
    stats[WORK] += count * (chains.indptr[token + 1] - chains.indptr[token])
    if count == 1:
        return new
    if rule == AWAY:
        _one_step(work, count)
    else:
        _project(work, count, mass)
    fresh = 0
    for k in range(1, count):
        if work[0, k] == 0.0 and work[3, k] != 0.0:
            fresh += 1
            if not can_take(chains, rows, token, fresh + 1, n_labels):
                # No room for a label that had no mass: its share goes to the true one.
                stats[FULL] = 1
                work[3, k] = 0.0
    total = 0.0
    for k in range(1, count):
        total += work[3, k]
    work[3, 0] = max(mass - total, 0.0)
    for k in range(count):
        change = work[3, k] - work[0, k]
        if change != 0.0:
            y = np.int64(support.label[begin + places[k]])
            add_to_weights(chains, rows, token, y, -change, n_labels)
            cell[begin + places[k], MASS] = work[3, k]
            stats[CHANGE] += change * change
    return new


@kernel(helper=True)
def _set_messages(support, token, side, rho, messages, marks):
    """Messages of a token's labels to one edge into ``messages``; their positions + 1 as marks."""
    begin = support.start[token]
    for p in range(begin, begin + support.count[token]):
        messages[support.label[p]] = _message(support.cell, p, side, rho)
        marks[support.label[p]] = p - begin + 1


@kernel(helper=True)
def _clear_messages(support, token, messages, marks):
    begin = support.start[token]
    for p in range(begin, begin + support.count[token]):
        messages[support.label[p]] = 0.0
        marks[support.label[p]] = 0


@kernel(helper=True)
def _pair_score(support, pairs, edge, at, rho):
    l = support.start[edge - 1] + pairs.left[at]
    r = support.start[edge] + pairs.right[at]
    return (
        pairs.cell[at, PAIR_VALUE]
        - _message(support.cell, l, 1, rho)
        - _message(support.cell, r, 0, rho)
    )


@kernel(helper=True)
def _pairwise_steps(support, pairs, edge, rho, rounds):
    """Mass from the worst active pair to the best one, exactly as much as helps; repeatedly."""
    cell = support.cell
    begin, count = pairs.start[edge], pairs.count[edge]
    first = -1.0
    for _ in range(rounds):
        up, down = begin, np.int64(-1)
        high, low = -np.inf, np.inf
        for at in range(begin, begin + count):
            c = _pair_score(support, pairs, edge, at, rho)
            if c > high:
                high, up = c, at
            if pairs.cell[at, PAIR_MASS] > 0 and c < low:
                low, down = c, at
        gap = high - low
        if first < 0:
            first = gap
        if down < 0 or up == down or gap <= 1e-3 * first or gap <= 1e-13:
            return
        curvature = pairs.cell[up, PAIR_FREE] + pairs.cell[down, PAIR_FREE]
        if pairs.left[up] != pairs.left[down]:
            curvature += 2.0 * rho
        if pairs.right[up] != pairs.right[down]:
            curvature += 2.0 * rho
        step = min(gap / curvature, pairs.cell[down, PAIR_MASS])
        rest = pairs.cell[down, PAIR_MASS] - step
        if rest < 1e-14 * step:
            step, rest = pairs.cell[down, PAIR_MASS], 0.0
        pairs.cell[down, PAIR_MASS] = rest
        pairs.cell[up, PAIR_MASS] += step
        pairs.cell[up, PAIR_VALUE] -= step * pairs.cell[up, PAIR_FREE]
        pairs.cell[down, PAIR_VALUE] += step * pairs.cell[down, PAIR_FREE]
        l, r = support.start[edge - 1], support.start[edge]
        cell[l + pairs.left[up], RIGHT] += step
        cell[l + pairs.left[down], RIGHT] -= step
        cell[r + pairs.right[up], LEFT] += step
        cell[r + pairs.right[down], LEFT] -= step


@kernel(helper=True)
def _find_pair_to_add(
    chains, table, support, edge, rho, n_labels, search, high, messages, marks, spans, stack
):  # fmt: skip
    """The best pair of labels, if it beats ``high``; (score, left, right), -1 if none does."""
    _set_messages(support, edge - 1, 1, rho, messages[0], marks[0])
    _set_messages(support, edge, 0, rho, messages[1], marks[1])
    spans[0] = support.start[edge - 1]
    spans[1] = spans[0] + support.count[edge - 1]
    spans[2] = support.start[edge]
    spans[3] = spans[2] + support.count[edge]
    if search == WHOLE:
        found = search_all_pairs(table, n_labels, messages, chains.allowed, edge - 1, high)
    else:
        found = search_pairs(
            table, n_labels, support.label, spans, messages, marks, chains.allowed, edge - 1,
            high, stack,
        )  # fmt: skip
    score, i, j = found
    l, r = np.int64(-1), np.int64(-1)
    if i >= 0:
        l, r = np.int64(marks[0, i] - 1), np.int64(marks[1, j] - 1)
    _clear_messages(support, edge - 1, messages[0], marks[0])
    _clear_messages(support, edge, messages[1], marks[1])
    return score, i, j, l, r


@kernel(helper=True)
def _admit(chains, rows, table, support, pairs, edge, i, j, l, r, n_labels, stats):
    """Put a found pair into the edge's list (and its labels into the tokens')."""
    if not table_room(table):
        stats[FULL] = 1
        return
    if l < 0:
        l = add_label(chains, rows, support, edge - 1, i)
    if r < 0 and l >= 0:
        r = add_label(chains, rows, support, edge, j)
    at = np.int64(-1)
    if l >= 0 and r >= 0:
        at = add_pair(pairs, edge, l, r)
    if at < 0:
        stats[FULL] = 1
        return
    pairs.cell[at, PAIR_VALUE] = table.values[i * n_labels + j]
    pairs.cell[at, PAIR_FREE] = table.free[i * n_labels + j]


@kernel(helper=True)
def visit_edge(
    chains, rows, table, support, pairs, edge, rho, n_labels, rule, search, messages, marks,
    spans, stack, stats,
):  # fmt: skip
    """Search and block step of the edge between ``edge - 1`` and ``edge``."""
    begin = pairs.start[edge]
    l, r = support.start[edge - 1], support.start[edge]
    high, inner, mass = -np.inf, 0.0, 0.0
    for at in range(begin, begin + pairs.count[edge]):
        i, j = support.label[l + pairs.left[at]], support.label[r + pairs.right[at]]
        pairs.cell[at, PAIR_OLD] = pairs.cell[at, PAIR_MASS]
        pairs.cell[at, PAIR_VALUE] = table.values[np.int64(i) * n_labels + j]
        pairs.cell[at, PAIR_FREE] = table.free[np.int64(i) * n_labels + j]
        c = _pair_score(support, pairs, edge, at, rho)
        high = max(high, c)
        inner += c * pairs.cell[at, PAIR_MASS]
        mass += pairs.cell[at, PAIR_MASS]
    score, i, j, pl, pr = _find_pair_to_add(
        chains, table, support, edge, rho, n_labels, search, high, messages, marks, spans, stack
    )
    stats[GAP_EDGES] += max(score, high) * mass - inner
    if i >= 0:
        _admit(chains, rows, table, support, pairs, edge, i, j, pl, pr, n_labels, stats)
    count = pairs.count[edge]
    stats[WORK] += 30 + 4 * count
    if count == 1:
        return
    _pairwise_steps(support, pairs, edge, rho, 1 if rule == AWAY else 3 * count + 4)
    l, r = support.start[edge - 1], support.start[edge]
    at = pairs.start[edge] + count - 1
    while at >= pairs.start[edge]:
        change = pairs.cell[at, PAIR_MASS] - pairs.cell[at, PAIR_OLD]
        if change != 0.0:
            i, j = support.label[l + pairs.left[at]], support.label[r + pairs.right[at]]
            add_to_pair(table, n_labels, np.int64(i), np.int64(j), -change)
        if pairs.cell[at, PAIR_MASS] <= 0 and at > pairs.start[edge]:
            if pairs.cell[at, PAIR_OLD] <= 0 or rule != AWAY:
                drop_pair(pairs, edge, at)
        at -= 1


@kernel(helper=True)
def move_multipliers(support, token, first, last, step, rho, stats):
    """Eq. 13 of gdmm for both sides of a token, and what the residuals are."""
    cell = support.cell
    begin = support.start[token]
    for p in range(begin, begin + support.count[token]):
        mass = cell[p, MASS]
        if p > begin:
            stats[SQUARES] += mass * mass
        for side in range(2):
            if (side == 0 and token == first) or (side == 1 and token == last - 1):
                continue
            residual = cell[p, LEFT + side] - mass
            stats[RESIDUAL] += residual * residual
            stats[COUPLING] += residual * _message(cell, p, side, rho)
            cell[p, LAM_LEFT + side] += step * residual
            stats[LAMS] += cell[p, LAM_LEFT + side] * cell[p, LAM_LEFT + side]


@kernel(helper=True)
def _lacks_room(chains, rows, table, support, pairs, first, last, n_labels):
    """Whether a sequence could ask for more than the pools have."""
    if not table_room(table):
        return True
    labels, couples, weights = 0, 0, 0
    for t in range(first, last):
        labels += 2 * support.capacity[t] + 4
        couples += 2 * pairs.capacity[t] + 2
        for e in range(chains.indptr[t], chains.indptr[t + 1]):
            weights += growth(rows, chains.indices[e], 0)
    return (
        support.label.shape[0] - support.used[0] < labels
        or pairs.left.shape[0] - pairs.used[0] < couples
        or rows.value.shape[0] - rows.used[0] < weights + n_labels
    )


@kernel
def run_pass(
    chains, rows, table, support, pairs, masses, order, wait, delay, longest_delay, n_labels, rho,
    eta, rule, search, groups, salt, stats,
):  # fmt: skip
    """Visit the sequences of ``order``; how many were done before a pool was too small.

    ``wait`` counts the visits until a token is searched again: ``delay`` doubles, up to
    ``longest_delay``, as long as searches find nothing new.
    """
    scores = np.zeros(n_labels)
    messages = np.zeros((2, n_labels))
    marks = np.zeros((2, n_labels), np.int64)
    work = np.zeros((4, n_labels + 2))
    places = np.zeros(n_labels + 2, np.int64)
    spans = np.zeros(4, np.int64)
    stack = np.zeros(256, np.int64)
    if search != SAMPLED:
        groups = 1
    for done in range(order.shape[0]):
        s = order[done]
        first, last = chains.offsets[s], chains.offsets[s + 1]
        if masses[s] <= 0 or last == first:
            continue
        if _lacks_room(chains, rows, table, support, pairs, first, last, n_labels):
            return done
        for t in range(first, last):
            if t > first:
                visit_edge(
                    chains, rows, table, support, pairs, t, rho, n_labels, rule, search, messages,
                    marks, spans, stack, stats,
                )  # fmt: skip
            group = ((t + salt) * 2654435769 >> 7) % groups
            wanted = wait[t] == 0
            new = visit_token(
                chains, rows, support, t, first, last, masses[s], rho, n_labels, rule, group,
                groups, wanted, scores, marks[0], work, places, stats,
            )  # fmt: skip
            if wanted:
                delay[t] = 0 if new == 1 else min(2 * delay[t] + 1, longest_delay)
                wait[t] = delay[t]
            else:
                wait[t] -= 1
        for t in range(first, last):
            move_multipliers(support, t, first, last, eta * rho, rho, stats)
    return order.shape[0]


@kernel
def rebuild_weights(chains, rows, table, support, pairs, masses, n_labels):
    """All weights from the masses afresh (both tables empty before); False if a pool is full."""
    for s in range(chains.offsets.shape[0] - 1):
        first, last = chains.offsets[s], chains.offsets[s + 1]
        for t in range(first, last):
            begin = support.start[t]
            for p in range(begin, begin + support.count[t]):
                change = -support.cell[p, MASS]
                if p == begin:
                    change = 0.0
                    for q in range(begin + 1, begin + support.count[t]):
                        change += support.cell[q, MASS]
                if change != 0.0:
                    y = np.int64(support.label[p])
                    if not can_take(chains, rows, t, 1, n_labels):
                        return False
                    add_to_weights(chains, rows, t, y, change, n_labels)
            if t == first:
                continue
            before = support.start[t - 1]
            for at in range(pairs.start[t], pairs.start[t] + pairs.count[t]):
                change = -pairs.cell[at, PAIR_MASS]
                if at == pairs.start[t]:
                    change = 0.0
                    for q in range(at + 1, at + pairs.count[t]):
                        change += pairs.cell[q, PAIR_MASS]
                if change != 0.0:
                    i = np.int64(support.label[before + pairs.left[at]])
                    j = np.int64(support.label[begin + pairs.right[at]])
                    if not add_to_pair(table, n_labels, i, j, change):
                        return False
    return True
