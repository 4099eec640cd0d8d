"""Visits of edges: the search over pairs and pairwise steps on an edge's active pairs."""

import numpy as np

from cliquewise._kernels import kernel
from cliquewise._kernels.gdmm.lists import (
    LEFT,
    PAIR_FREE,
    PAIR_MASS,
    PAIR_OLD,
    PAIR_VALUE,
    RIGHT,
    add_label,
    add_pair,
    drop_pair,
)
from cliquewise._kernels.gdmm.messages import (
    AWAY,
    FULL,
    GAP_EDGES,
    LOOK,
    MASS_EDGES,
    WHOLE,
    WORK,
    message,
)
from cliquewise._kernels.gdmm.pairs import (
    add_to_pair,
    search_all_pairs,
    search_pairs,
    table_room,
)


@kernel(helper=True)
def _set_messages(support, token, side, rho, messages, marks):
    """Messages of a token's labels to one edge into ``messages``; their positions + 1 as marks."""
    begin = support.start[token]
    for p in range(begin, begin + support.count[token]):
        messages[support.label[p]] = message(support.cell, p, side, rho)
        marks[support.label[p]] = p - begin + 1


@kernel(helper=True)
def _clear_messages(support, token, messages, marks):
    begin = support.start[token]
    for p in range(begin, begin + support.count[token]):
        messages[support.label[p]] = 0.0
        marks[support.label[p]] = 0


@kernel(helper=True)
def _pair_score(support, pairs, edge, at, rho):
    lhs = support.start[edge - 1] + pairs.left[at]
    r = support.start[edge] + pairs.right[at]
    return (
        pairs.cell[at, PAIR_VALUE]
        - message(support.cell, lhs, 1, rho)
        - message(support.cell, r, 0, rho)
    )


@kernel(helper=True)
def _pairwise_steps(support, pairs, edge, rho, rounds):
    """Mass from the worst active pair to the best one, exactly as much as helps; repeatedly."""
    cell = support.cell
    begin, count = pairs.start[edge], pairs.count[edge]
    first = -1.0
    for _ in range(rounds):
        up, down = begin, begin - 1
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
        if down < begin or up == down or gap <= 1e-3 * first or gap <= 1e-13:
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
        lhs, r = support.start[edge - 1], support.start[edge]
        cell[lhs + pairs.left[up], RIGHT] += step
        cell[lhs + pairs.left[down], RIGHT] -= step
        cell[r + pairs.right[up], LEFT] += step
        cell[r + pairs.right[down], LEFT] -= step


@kernel(inline=True)
def _find_pair_to_add(chains, table, support, edge, told, high, desk):
    """The best pair of labels, if it beats ``high``: score, labels, and places in the lists.

    Labels are -1 if none does, places -1 of labels not in the lists.
    """
    rho, n_labels = told.rho, told.n_labels
    messages, marks, spans = desk.messages, desk.marks, desk.spans
    _set_messages(support, edge - 1, 1, rho, messages[0], marks[0])
    _set_messages(support, edge, 0, rho, messages[1], marks[1])
    spans[0] = support.start[edge - 1]
    spans[1] = spans[0] + support.count[edge - 1]
    spans[2] = support.start[edge]
    spans[3] = spans[2] + support.count[edge]
    if told.search == WHOLE:
        found = search_all_pairs(table, n_labels, messages, chains.allowed, edge - 1, high)
    else:
        found = search_pairs(
            table, n_labels, support.label, spans, messages, marks, chains.allowed, edge - 1,
            high, desk.stack,
        )  # fmt: skip
    score, i, j = found
    lhs, r = np.int64(-1), np.int64(-1)
    if i >= 0:
        lhs, r = np.int64(marks[0, i] - 1), np.int64(marks[1, j] - 1)
    _clear_messages(support, edge - 1, messages[0], marks[0])
    _clear_messages(support, edge, messages[1], marks[1])
    return score, (np.int64(i), np.int64(j), lhs, r)


@kernel(inline=True)
def _admit(chains, rows, table, support, pairs, edge, pair, n_labels, stats):
    """Put a found pair into the edge's list (and its labels into the tokens')."""
    i, j, lhs, r = pair
    if not table_room(table):
        stats[FULL] = 1
        return
    if lhs < 0:
        lhs = add_label(chains, rows, support, edge - 1, i)
    if r < 0 and lhs >= 0:
        r = add_label(chains, rows, support, edge, j)
    at = np.int64(-1)
    if lhs >= 0 and r >= 0:
        at = add_pair(pairs, edge, lhs, r)
    if at < 0:
        stats[FULL] = 1
        return
    pairs.cell[at, PAIR_VALUE] = table.values[i * n_labels + j]
    pairs.cell[at, PAIR_FREE] = table.free[i * n_labels + j]


@kernel(inline=True)
def visit_edge(chains, rows, table, support, pairs, edge, told, rule, desk, stats):
    """Search and block step of the edge before token ``edge``; its gap, and how far it moved.

    The latter is the sum of the squared changes of its masses. ``rule`` is that of the pass, or
    LOOK.
    """
    rho, n_labels = told.rho, told.n_labels
    begin = pairs.start[edge]
    lhs, r = support.start[edge - 1], support.start[edge]
    high, inner, mass = -np.inf, 0.0, 0.0
    for at in range(begin, begin + pairs.count[edge]):
        i, j = support.label[lhs + pairs.left[at]], support.label[r + pairs.right[at]]
        pairs.cell[at, PAIR_OLD] = pairs.cell[at, PAIR_MASS]
        pairs.cell[at, PAIR_VALUE] = table.values[np.int64(i) * n_labels + j]
        pairs.cell[at, PAIR_FREE] = table.free[np.int64(i) * n_labels + j]
        c = _pair_score(support, pairs, edge, at, rho)
        high = max(high, c)
        inner += c * pairs.cell[at, PAIR_MASS]
        mass += pairs.cell[at, PAIR_MASS]
    score, found = _find_pair_to_add(chains, table, support, edge, told, high, desk)
    gap = max(score, high) * mass - inner
    if rule == LOOK:
        return gap, 0.0
    stats[GAP_EDGES] += gap
    stats[MASS_EDGES] += mass
    if found[0] >= 0:
        _admit(chains, rows, table, support, pairs, edge, found, n_labels, stats)
    count = pairs.count[edge]
    stats[WORK] += 1500 + 150 * count
    if count == 1:
        return gap, 0.0
    moved = 0.0
    _pairwise_steps(support, pairs, edge, rho, 1 if rule == AWAY else 3 * count + 4)
    lhs, r = support.start[edge - 1], support.start[edge]
    at = pairs.start[edge] + count - 1
    while at >= pairs.start[edge]:
        change = pairs.cell[at, PAIR_MASS] - pairs.cell[at, PAIR_OLD]
        if change != 0.0:
            i, j = support.label[lhs + pairs.left[at]], support.label[r + pairs.right[at]]
            add_to_pair(table, n_labels, np.int64(i), np.int64(j), -change)
            moved += change * change
        if pairs.cell[at, PAIR_MASS] <= 0 and at > pairs.start[edge]:
            drop_pair(pairs, edge, at)
        at -= 1
    return gap, moved
