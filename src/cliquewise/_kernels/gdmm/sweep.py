"""Passes of GDMM over chains: choice of factors, multipliers, recomputation of weights.

See ``messages.py`` for the problem, ``nodes.py`` and ``edges.py`` for a visit.
"""

from collections import namedtuple

import numpy as np

from cliquewise._kernels import kernel
from cliquewise._kernels.chain.sums import longest
from cliquewise._kernels.common.simd import padded
from cliquewise._kernels.gdmm.edges import visit_edge
from cliquewise._kernels.gdmm.lists import LAM_LEFT, LEFT, MASS, PAIR_MASS
from cliquewise._kernels.gdmm.messages import (
    CHANGE,
    COUPLING,
    GREEDY,
    LAMS,
    LOOK,
    RESIDUAL,
    SQUARES,
    WORK,
    Desk,
    message,
)
from cliquewise._kernels.gdmm.nodes import visit_token
from cliquewise._kernels.gdmm.pairs import add_to_pair, table_room
from cliquewise._kernels.gdmm.rows import add_to_weights, can_take, growth

#: When tokens (and the edges before them) are visited and searched: ``wait``, visits until the next
#: search; ``delay``, how many that was after the last one that found nothing; ``calm_*``, visits
#: until the next visit of a factor whose gap was small: it wakes up when a neighbor moves.
Schedule = namedtuple("Schedule", ["wait", "delay", "calm_nodes", "calm_edges"])
#: Columns of ``calm_*``: visits to pass over, how many that was last, whether a greedy pass has
#: taken the factor up.
REST, LAST_REST, TAKEN = range(3)
#: A greedy pass takes up factors whose gap is at least this share of the sequence's greatest.
GREEDY_SHARE = 0.5
#: A factor wakes its neighbors when it moves more than this share of its mass; and how long it
#: may rest.
WAKE, LONGEST_REST = 0.01, 7
#: Visits without a search, at most, that follow one which found something.
MOST_CHEAP = 5


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
            stats[COUPLING] += residual * message(cell, p, side, rho)
            cell[p, LAM_LEFT + side] += step * residual
            stats[LAMS] += cell[p, LAM_LEFT + side] * cell[p, LAM_LEFT + side]


@kernel(helper=True)
def _lacks_room(chains, rows, table, support, pairs, first, last, n_labels):
    """Return whether a sequence may exceed the pools: 1 that of weights, 2 others, 0 none."""
    if not table_room(table):
        return 2
    labels, couples, weights = 0, 0, 0
    for t in range(first, last):
        labels += 2 * support.capacity[t] + 4
        couples += 2 * pairs.capacity[t] + 2
        for e in range(chains.indptr[t], chains.indptr[t + 1]):
            weights += growth(rows, chains.indices[e], 0)
    if (
        support.label.shape[0] - support.used[0] < labels
        or pairs.left.shape[0] - pairs.used[0] < couples
    ):
        return 2
    return 1 if rows.value.shape[0] - rows.used[0] < weights + n_labels else 0


@kernel(helper=True)
def _rest(calm, which, gap, quiet):
    """How many visits a factor may be passed over: 1, 3, 7 as long as its gap stays small."""
    calm[which, LAST_REST] = (
        min(2 * calm[which, LAST_REST] + 1, LONGEST_REST) if gap <= quiet else 0
    )
    calm[which, REST] = calm[which, LAST_REST]


@kernel(helper=True)
def _may_visit(calm, which, greedy):
    """Whether it is a factor's turn; counts its rest down."""
    if greedy and calm[which, TAKEN] == 0:
        return False
    if calm[which, REST] > 0:
        calm[which, REST] -= 1
        return False
    return True


@kernel(helper=True)
def _next_search(chains, support, token, found, work, schedule):
    """After a search that cost ``work``: how many visits go by until the next one.

    As many as make it cheap beside them; and twice as many each time it finds nothing new.
    """
    own = 500 + 10 * support.count[token] * (chains.indptr[token + 1] - chains.indptr[token])
    cheap = np.int64(work / own) - 1
    delay = 0 if found else min(2 * schedule.delay[token] + 1, LONGEST_REST)
    schedule.delay[token] = delay
    schedule.wait[token] = max(delay, min(cheap, MOST_CHEAP)) if cheap > 0 else 0


@kernel(helper=True)
def _desk(k, admit):
    size = k + 2
    return Desk(
        np.zeros(padded(k)), np.zeros(padded(k), np.float32), np.zeros(admit, np.int64),
        np.zeros(size, np.int64), np.zeros(size, np.int64),
        np.zeros(size), np.zeros(size), np.zeros(size), np.zeros(size),
        np.zeros((2, k)), np.zeros((2, k), np.int64), np.zeros(4, np.int64),
        np.zeros(256, np.int64),
    )  # fmt: skip


@kernel
def run_pass(chains, rows, table, support, pairs, masses, order, schedule, told, stats):
    """Visit the sequences of ``order``; how many were done before a pool was too small."""
    rho, desk = told.rho, _desk(told.n_labels, told.admit)
    wait, calm_nodes, calm_edges = schedule.wait, schedule.calm_nodes, schedule.calm_edges
    greedy = told.rule == GREEDY
    gaps = np.zeros((2, longest(chains.offsets) if greedy else 1))
    for done in range(order.shape[0]):
        s = order[done]
        first, last = chains.offsets[s], chains.offsets[s + 1]
        mass = masses[s]
        if mass <= 0 or last == first:
            continue
        if _lacks_room(chains, rows, table, support, pairs, first, last, told.n_labels) > 0:
            return done
        # Algorithm 3: look at the factors not taken up yet, and take up the worst ones.
        for phase in range(0 if greedy else 1, 2):
            rule = LOOK if phase == 0 else told.rule
            for t in range(first, last):
                if t > first and (
                    calm_edges[t, TAKEN] == 0 if phase == 0 else _may_visit(calm_edges, t, greedy)
                ):
                    gap, moved = visit_edge(
                        chains, rows, table, support, pairs, t, told, rule, desk, stats
                    )
                    if phase == 0:
                        gaps[1, t - first] = gap
                    else:
                        _rest(calm_edges, t, gap, told.quiet[1] * mass)
                        if moved > (WAKE * mass) ** 2:
                            calm_nodes[t - 1, REST] = 0
                            calm_nodes[t, REST] = 0
                if not (
                    calm_nodes[t, TAKEN] == 0 if phase == 0 else _may_visit(calm_nodes, t, greedy)
                ):
                    continue
                wanted = wait[t] == 0 or phase == 0
                read, moved, had = stats[WORK], stats[CHANGE], support.count[t]
                gap = visit_token(
                    chains, rows, support, t, (first, last), mass, told, rule, wanted, desk, stats
                )
                if phase == 0:
                    gaps[0, t - first] = gap
                    continue
                if wanted:
                    new = support.count[t] > had
                    read = stats[WORK] - read
                    _next_search(chains, support, t, new, read, schedule)
                    _rest(calm_nodes, t, gap, told.quiet[0] * mass)
                else:
                    wait[t] -= 1
                if stats[CHANGE] - moved > (WAKE * mass) ** 2:
                    calm_edges[t, REST] = 0
                    if t + 1 < last:
                        calm_edges[t + 1, REST] = 0
            if phase == 0:
                _take_up(gaps, calm_nodes, calm_edges, first, last)
        for t in range(first, last):
            move_multipliers(support, t, first, last, told.eta * rho, rho, stats)
    return order.shape[0]


@kernel(helper=True)
def _take_up(gaps, calm_nodes, calm_edges, first, last):
    """Mark the factors of a sequence whose gap is near its greatest."""
    high = 0.0
    for t in range(first, last):
        if calm_nodes[t, TAKEN] == 0:
            high = max(high, gaps[0, t - first])
        if t > first and calm_edges[t, TAKEN] == 0:
            high = max(high, gaps[1, t - first])
    if high <= 0:
        return
    for t in range(first, last):
        if calm_nodes[t, TAKEN] == 0 and gaps[0, t - first] >= GREEDY_SHARE * high:
            calm_nodes[t, TAKEN] = 1
        if t > first and calm_edges[t, TAKEN] == 0 and gaps[1, t - first] >= GREEDY_SHARE * high:
            calm_edges[t, TAKEN] = 1


@kernel
def rebuild_weights(chains, rows, table, support, pairs, masses, n_labels):
    """Recompute all weights from the masses (both tables are empty); False if a pool is full."""
    names, changes = np.zeros(n_labels + 1, np.int64), np.zeros(n_labels + 1)
    for s in range(chains.offsets.shape[0] - 1):
        first, last = chains.offsets[s], chains.offsets[s + 1]
        for t in range(first, last):
            begin, count = support.start[t], support.count[t]
            if not can_take(chains, rows, t, count, n_labels):
                return False
            total, fresh = 0.0, 0
            for k in range(count):
                mass = support.cell[begin + k, MASS]
                if k > 0 and mass != 0.0:
                    total += mass
                    fresh += 1
                    names[fresh] = support.label[begin + k]
                    changes[fresh] = mass
            names[0], changes[0] = support.label[begin], -total
            if fresh > 0:
                add_to_weights(chains, rows, t, names, changes, fresh + 1, n_labels)
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
