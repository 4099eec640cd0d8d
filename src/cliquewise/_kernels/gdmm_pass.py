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
from cliquewise._kernels.chain import longest
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
from cliquewise._kernels.gdmm_rows import add_to_weights, can_take, growth, score_all, score_labels
from cliquewise._kernels.simd import padded

#: What a pass counts: gaps of tokens (at searches) and edges, squared residual, squared change of
#: the tokens' masses, <m, n - a>, work (numbers read), searches at tokens, 1 if a pool was too
#: small, squared masses of wrong labels, squared multipliers, mass of the tokens searched and of
#: the edges visited.
(
    GAP_NODES, GAP_EDGES, RESIDUAL, CHANGE, COUPLING, WORK, SEARCHES, FULL, SQUARES, LAMS,
    MASS_NODES, MASS_EDGES, N_STATS,
) = range(13)  # fmt: skip
#: Gaps and masses of tokens and of edges.
GAPS = (GAP_NODES, MASS_NODES), (GAP_EDGES, MASS_EDGES)

#: Step rules; LOOK measures the gap of a factor and moves nothing.
BLOCK, AWAY, GREEDY, LOOK = range(4)
#: Columns of ``calm_*``: visits to pass over, how many that was last, whether a greedy pass has
#: taken the factor up.
REST, LAST_REST, TAKEN = range(3)
#: A greedy pass takes up factors whose gap is at least this share of the sequence's greatest.
GREEDY_SHARE = 0.5
#: A factor wakes its neighbours when it moves more than this share of its mass; and how long it
#: may rest.
WAKE, LONGEST_REST = 0.01, 7
#: Visits without a search, at most, that follow one which found something.
MOST_CHEAP = 5
#: Factor searches.
SUBLINEAR, WHOLE, SAMPLED = range(3)


@kernel(helper=True)
def _message(cell, p, side, rho):
    """Message between a token and its left (0) or right (1) edge at one label."""
    return cell[p, LAM_LEFT + side] + rho * (cell[p, LEFT + side] - cell[p, MASS])


@kernel(helper=True)
def _search_token(chains, support, token, n_labels, group, groups, scores, marks, found):
    """The best labels outside a token's list into ``found``, best first; how many.

    ``scores`` holds those of all labels; with several groups only one of them is searched.
    """
    begin, count = support.start[token], support.count[token]
    for p in range(begin, begin + count):
        marks[support.label[p]] = 1
    masked = chains.allowed.shape[0] > 0
    size, most = 0, found.shape[0]
    least = -np.inf
    for j in range(group, n_labels, groups):
        if scores[j] > least and marks[j] == 0 and (not masked or chains.allowed[token, j]):
            if size < most:
                size += 1
            at = size - 1
            while at > 0 and scores[j] > scores[found[at - 1]]:
                found[at] = found[at - 1]
                at -= 1
            found[at] = j
            if size == most:
                least = scores[found[most - 1]]
    for p in range(begin, begin + count):
        marks[support.label[p]] = 0
    return size


@kernel(helper=True)
def part_of(token, salt, groups):
    """The part of the labels that a token searches in the pass with this salt."""
    return ((token + salt) * 2654435769 >> 7) % groups


@kernel
def find_labels(chains, rows, support, token, n_labels, salt, groups, found, scores):
    """The search of a token by itself (tests): labels into ``found``; how many."""
    score_all(chains, rows, token, n_labels, scores)
    group = part_of(token, salt, groups)
    marks = np.zeros(n_labels, np.int64)
    return _search_token(chains, support, token, n_labels, group, groups, scores, marks, found)


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
def _candidates(support, token, everything, places):
    """Places of the labels that a visit looks at: the true one and those with any mass."""
    cell, begin = support.cell, support.start[token]
    count = 0
    for p in range(begin, begin + support.count[token]):
        if everything or p == begin or cell[p, MASS] + cell[p, LEFT] + cell[p, RIGHT] > 0:
            places[count] = p
            count += 1
    return count


@kernel(helper=True)
def _admit_labels(
    chains, rows, support, token, n_labels, scores, found, size, count, floor, places, work, stats
):  # fmt: skip
    """Add the labels found whose scores are above ``floor`` to a token's list; the new count."""
    for r in range(size):
        y = found[r]
        if not scores[y] + 1.0 > floor:
            break
        moved = support.start[token]
        p = np.int64(-1)
        if can_take(chains, rows, token, r + 1, n_labels):
            p = add_label(chains, rows, support, token, y)
        if p < 0:
            stats[FULL] = 1
            break
        moved = support.start[token] - moved
        if moved != 0:
            for k in range(count):
                places[k] += moved
        places[count] = support.start[token] + p
        work[1, count] = scores[y] + 1.0
        count += 1
    return count


@kernel(helper=True)
def visit_token(
    chains, rows, support, token, first, last, mass, rho, n_labels, rule, group, groups, wanted,
    scores, marks, found, work, places, names, stats,
):  # fmt: skip
    """Search (if wanted) and block step of one token; its gap before."""
    has_left, has_right = token > first, token < last - 1
    edges = (1 if has_left else 0) + (1 if has_right else 0)
    cell = support.cell
    size = 0
    count = _candidates(support, token, wanted, places)
    if wanted:
        stats[WORK] += score_all(chains, rows, token, n_labels, scores)
        stats[SEARCHES] += 1
        size = _search_token(
            chains, support, token, n_labels, group, groups, scores, marks, found
        )
        for k in range(count):
            work[1, k] = scores[support.label[places[k]]]
    else:
        for k in range(count):
            names[k] = support.label[places[k]]
        score_labels(chains, rows, token, names, count, work[1])
    high = -np.inf
    for k in range(count):
        p = places[k]
        if k > 0:
            work[1, k] += 1.0
        if has_left:
            work[1, k] += _message(cell, p, 0, rho)
        if has_right:
            work[1, k] += _message(cell, p, 1, rho)
        high = max(high, work[1, k])
    if size > 0:
        if rule != LOOK:
            count = _admit_labels(
                chains, rows, support, token, n_labels, scores, found, size, count, high,
                places, work, stats,
            )  # fmt: skip
        high = max(high, scores[found[0]] + 1.0)
    gap = 0.0
    for k in range(count):
        work[0, k] = cell[places[k], MASS]
        work[2, k] = max(cell[places[k], NORM] + rho * edges, 1e-12)
        gap += work[0, k] * (high - work[1, k])
    if rule == LOOK:
        return gap
    if wanted:
        stats[GAP_NODES] += gap
        stats[MASS_NODES] += mass
    stats[WORK] += count * (chains.indptr[token + 1] - chains.indptr[token])
    if count > 1:
        if rule == AWAY:
            _one_step(work, count)
        else:
            _project(work, count, mass)
        _write_masses(
            chains, rows, support, token, mass, n_labels, count, work, places, names, stats
        )
    return gap


@kernel(helper=True)
def _write_masses(
    chains, rows, support, token, mass, n_labels, count, work, places, names, stats
):  # fmt: skip
    """The new masses of a token's labels, and the weights that change with them."""
    fresh, total = 0, 0.0
    for k in range(1, count):
        if work[0, k] == 0.0 and work[3, k] != 0.0:
            fresh += 1
            if not can_take(chains, rows, token, fresh + 1, n_labels):
                # No room for a label that had no mass: its share goes to the true one.
                stats[FULL] = 1
                work[3, k] = 0.0
        total += work[3, k]
    work[3, 0] = max(mass - total, 0.0)
    changed = 0
    for k in range(count):
        change = work[3, k] - work[0, k]
        if change != 0.0:
            support.cell[places[k], MASS] = work[3, k]
            stats[CHANGE] += change * change
            names[changed] = support.label[places[k]]
            work[0, changed] = change
            changed += 1
    add_to_weights(chains, rows, token, names, work[0], changed, n_labels)


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
    """Search and block step of the edge before token ``edge``; its gap before, and how far it moved.

    The latter is the sum of the squared changes of its masses.
    """
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
    gap = max(score, high) * mass - inner
    if rule == LOOK:
        return gap, 0.0
    stats[GAP_EDGES] += gap
    stats[MASS_EDGES] += mass
    if i >= 0:
        _admit(chains, rows, table, support, pairs, edge, i, j, pl, pr, n_labels, stats)
    count = pairs.count[edge]
    stats[WORK] += 30 + 4 * count
    if count == 1:
        return gap, 0.0
    moved = 0.0
    _pairwise_steps(support, pairs, edge, rho, 1 if rule == AWAY else 3 * count + 4)
    l, r = support.start[edge - 1], support.start[edge]
    at = pairs.start[edge] + count - 1
    while at >= pairs.start[edge]:
        change = pairs.cell[at, PAIR_MASS] - pairs.cell[at, PAIR_OLD]
        if change != 0.0:
            i, j = support.label[l + pairs.left[at]], support.label[r + pairs.right[at]]
            add_to_pair(table, n_labels, np.int64(i), np.int64(j), -change)
            moved += change * change
        if pairs.cell[at, PAIR_MASS] <= 0 and at > pairs.start[edge]:
            if pairs.cell[at, PAIR_OLD] <= 0 or rule != AWAY:
                drop_pair(pairs, edge, at)
        at -= 1
    return gap, moved


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
    """Whether a sequence could ask for more than the pools have: 1 weights, 2 the rest."""
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
    calm[which, LAST_REST] = min(2 * calm[which, LAST_REST] + 1, LONGEST_REST) if gap <= quiet else 0
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
def _next_search(chains, support, token, found, work, wait, delay):
    """After a search that cost ``work``: how many visits go by until the next one.

    As many as make it cheap beside them; and twice as many each time it finds nothing new.
    """
    own = 10 * support.count[token] * (chains.indptr[token + 1] - chains.indptr[token]) + 1
    cheap = np.int64(work / own)
    delay[token] = 0 if found else min(2 * delay[token] + 1, LONGEST_REST)
    wait[token] = max(delay[token], min(cheap, MOST_CHEAP)) if cheap > 0 else 0


@kernel
def run_pass(
    chains, rows, table, support, pairs, masses, order, wait, delay, calm_nodes, calm_edges, quiet,
    n_labels, rho, eta, rule, search, groups, salt, n_found, stats,
):  # fmt: skip
    """Visit the sequences of ``order``; how many were done before a pool was too small.

    ``wait`` counts the visits until a token is searched again, ``calm_*`` the visits until a
    factor is visited again whose gap was below ``quiet`` (tokens, edges); it wakes up when a
    neighbour moves.
    """
    scores = np.zeros(padded(n_labels))
    messages = np.zeros((2, n_labels))
    marks = np.zeros((2, n_labels), np.int64)
    work = np.zeros((4, n_labels + 2))
    places, names = np.zeros(n_labels + 2, np.int64), np.zeros(n_labels + 2, np.int64)
    spans = np.zeros(4, np.int64)
    found = np.zeros(n_found, np.int64)
    stack = np.zeros(256, np.int64)
    gaps = np.zeros((2, 1 if rule != GREEDY else longest(chains.offsets)))
    if search != SAMPLED:
        groups = 1
    greedy = rule == GREEDY
    for done in range(order.shape[0]):
        s = order[done]
        first, last = chains.offsets[s], chains.offsets[s + 1]
        mass = masses[s]
        if mass <= 0 or last == first:
            continue
        if _lacks_room(chains, rows, table, support, pairs, first, last, n_labels) > 0:
            return done
        # Algorithm 3: look at the factors not taken up yet, and take up the worst ones.
        for phase in range(0 if greedy else 1, 2):
            here = LOOK if phase == 0 else rule
            for t in range(first, last):
                if t > first and (
                    calm_edges[t, TAKEN] == 0 if phase == 0 else _may_visit(calm_edges, t, greedy)
                ):
                    gap, moved = visit_edge(
                        chains, rows, table, support, pairs, t, rho, n_labels, here, search,
                        messages, marks, spans, stack, stats,
                    )  # fmt: skip
                    if phase == 0:
                        gaps[1, t - first] = gap
                    else:
                        _rest(calm_edges, t, gap, quiet[1] * mass)
                        if moved > (WAKE * mass) ** 2:
                            calm_nodes[t - 1, REST] = 0
                            calm_nodes[t, REST] = 0
                if not (
                    calm_nodes[t, TAKEN] == 0 if phase == 0 else _may_visit(calm_nodes, t, greedy)
                ):
                    continue
                group = part_of(t, salt, groups)
                wanted = wait[t] == 0 or phase == 0
                read, moved, had = stats[WORK], stats[CHANGE], support.count[t]
                gap = visit_token(
                    chains, rows, support, t, first, last, mass, rho, n_labels, here, group,
                    groups, wanted, scores, marks[0], found, work, places, names, stats,
                )  # fmt: skip
                if phase == 0:
                    gaps[0, t - first] = gap
                    continue
                if wanted:
                    new = support.count[t] > had
                    read = stats[WORK] - read
                    _next_search(chains, support, t, new, read, wait, delay)
                    _rest(calm_nodes, t, gap, quiet[0] * mass)
                else:
                    wait[t] -= 1
                if stats[CHANGE] - moved > (WAKE * mass) ** 2:
                    calm_edges[t, REST] = 0
                    if t + 1 < last:
                        calm_edges[t + 1, REST] = 0
            if phase == 0:
                _take_up(gaps, calm_nodes, calm_edges, first, last)
        for t in range(first, last):
            move_multipliers(support, t, first, last, eta * rho, rho, stats)
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
    """All weights from the masses afresh (both tables empty before); False if a pool is full."""
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
