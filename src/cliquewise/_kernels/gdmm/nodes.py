"""Visits of tokens: the search over labels and the step on a token's active labels.

The Hessian of a token's block is diagonal, so that a projection solves it (Eq. 25 of gdmm).
"""

import numpy as np

from cliquewise._kernels import kernel
from cliquewise._kernels.common.simd import padded
from cliquewise._kernels.gdmm.lists import LEFT, MASS, NORM, RIGHT, add_label
from cliquewise._kernels.gdmm.messages import (
    AWAY,
    CHANGE,
    FULL,
    GAP_NODES,
    LOOK,
    MASS_NODES,
    SEARCHES,
    WORK,
    message,
)
from cliquewise._kernels.gdmm.rows import (
    add_to_weights,
    can_take,
    score_all,
    score_briefly,
    score_labels,
)

#: A curvature that changes scores by less than this share of them, over all the mass, is none.
FLAT = 1e-11


@kernel(helper=True)
def _search_token(chains, support, token, part, most, scores, marks, found):
    """The (at most ``most``) best labels of a part outside a token's list; how many.

    ``scores`` holds those of the part, ``found`` takes how far they are from its first.
    """
    first, last = part
    begin, count = support.start[token], support.count[token]
    for p in range(begin, begin + count):
        marks[support.label[p]] = 1
    masked = chains.allowed.shape[0] > 0
    size = 0
    least = -np.inf
    for j in range(last - first):
        if (
            scores[j] > least
            and marks[first + j] == 0
            and (not masked or chains.allowed[token, first + j])
        ):
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
def part_of(token, salt, groups, n_labels):
    """First and last of the labels that a token searches in the pass with this salt."""
    width = padded((n_labels + groups - 1) // groups)
    parts = (n_labels + width - 1) // width
    first = ((token + salt) * 2654435769 >> 7) % parts * width
    return first, min(first + width, n_labels)


@kernel(inline=True)
def _search(chains, rows, support, token, told, count, desk, stats):
    """Labels to add to a token's list into ``desk.found``, their scores to ``desk.scores``.

    Returns how many. Scores of the ``count`` labels at ``desk.places`` go to ``desk.score``.
    """
    n_labels, found, score, names = told.n_labels, desk.found, desk.score, desk.names
    part = part_of(token, told.salt, told.groups, n_labels)
    briefly = rows.values_f32.shape[0] > 0
    if briefly:
        cost = score_briefly(chains, rows, token, part[0], part[1], desk.values_f32)
    else:
        cost = score_all(chains, rows, token, n_labels, desk.scores)
    stats[WORK] += cost
    stats[SEARCHES] += 1
    # Several labels only where searches are rare: else the next one sees the first's effect.
    own = 500 + 10 * count * (chains.indptr[token + 1] - chains.indptr[token])
    most = found.shape[0] if cost >= own else 1
    marks = desk.marks[0]
    if briefly:
        size = _search_token(chains, support, token, part, most, desk.values_f32, marks, found)
    else:
        scores = desk.scores[part[0] :]
        size = _search_token(chains, support, token, part, most, scores, marks, found)
    for r in range(size):
        found[r] += part[0]
    if told.groups == 1 or not briefly:
        for r in range(size):
            if briefly:
                desk.scores[found[r]] = desk.values_f32[found[r]]
        for k in range(count):
            y = support.label[desk.places[k]]
            score[k] = desk.values_f32[y] if briefly else desk.scores[y]
        return size
    score_labels(chains, rows, token, found, size, score)
    for r in range(size):
        desk.scores[found[r]] = score[r]
    for k in range(count):
        names[k] = support.label[desk.places[k]]
    score_labels(chains, rows, token, names, count, score)
    return size


@kernel(inline=True)
def _fill_flat(desk, count, total):
    """Mass to the best of the labels without curvature, up to where the others stop gaining.

    Marks with 1 the labels that share what is left (with 0 those that get nothing); whether all
    is settled. Without attributes and edges (or with tiny ones) the curvature is below what the
    scores resolve: dividing by it would make masses out of rounding errors.
    """
    old, score, bend, new = desk.old, desk.score, desk.bend, desk.new
    best = -1
    for k in range(count):
        new[k] = 1.0
        if bend[k] * total <= FLAT * (1.0 + abs(score[k])):
            new[k] = 0.0
            if best < 0 or score[k] > score[best]:
                best = k
    if best < 0:
        return False
    rest = total
    for k in range(count):
        if new[k] > 0:
            rest -= max(old[k] + (score[k] - score[best]) / bend[k], 0.0)
    if rest <= 0:
        return False
    for k in range(count):
        if new[k] > 0:
            new[k] = max(old[k] + (score[k] - score[best]) / bend[k], 0.0)
    new[best] = rest
    return True


@kernel(inline=True)
def _project(desk, count, total):
    """New masses of a token that minimize ``sum -score d + bend/2 d^2``.

    Michelot's rounds with weights: drop what cannot be positive, and repeat.
    """
    if _fill_flat(desk, count, total):
        return
    old, score, bend, new = desk.old, desk.score, desk.bend, desk.new
    left, top = count, 0.0
    while True:
        top, bottom = -total, 0.0
        for k in range(count):
            if new[k] > 0:
                top += old[k] + score[k] / bend[k]
                bottom += 1.0 / bend[k]
        level = top / bottom
        kept = 0
        for k in range(count):
            if new[k] > 0:
                if old[k] + (score[k] - level) / bend[k] > 0:
                    kept += 1
                else:
                    new[k] = 0.0
        if kept == left or kept == 0:
            break
        left = kept
    for k in range(count):
        if new[k] > 0:
            new[k] = max(old[k] + (score[k] - level) / bend[k], 0.0)


@kernel(inline=True)
def _one_step(desk, count):
    """A pairwise step with exact line search: from the worst label with mass to the best."""
    old, score, bend, new = desk.old, desk.score, desk.bend, desk.new
    up, down = 0, -1
    for k in range(count):
        new[k] = old[k]
        if score[k] > score[up]:
            up = k
        if old[k] > 0 and (down < 0 or score[k] < score[down]):
            down = k
    if down < 0 or up == down:
        return
    step, curvature = old[down], bend[up] + bend[down]
    if curvature * old[down] > score[up] - score[down]:
        step = (score[up] - score[down]) / curvature
    new[up] += step
    new[down] -= step
    if new[down] < 1e-14 * old[down]:
        new[up] += new[down]
        new[down] = 0.0


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


@kernel(inline=True)
def _admit_labels(chains, rows, support, token, n_labels, size, count, floor, desk, stats):
    """Add the labels found whose scores are above ``floor`` to a token's list; the new count."""
    for r in range(size):
        y = desk.found[r]
        if not desk.scores[y] + 1.0 > floor:
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
                desk.places[k] += moved
        desk.places[count] = support.start[token] + p
        desk.score[count] = desk.scores[y] + 1.0
        count += 1
    return count


@kernel(inline=True)
def visit_token(chains, rows, support, token, span, mass, told, rule, wanted, desk, stats):
    """Search (if wanted) and block step of one token of a sequence (``span``); its gap before.

    ``rule`` is that of the pass, or LOOK.
    """
    rho, n_labels = told.rho, told.n_labels
    scores, found, places, score = desk.scores, desk.found, desk.places, desk.score
    has_left, has_right = token > span[0], token < span[1] - 1
    edges = (1 if has_left else 0) + (1 if has_right else 0)
    cell = support.cell
    size = 0
    count = _candidates(support, token, wanted, places)
    if wanted:
        size = _search(chains, rows, support, token, told, count, desk, stats)
    else:
        for k in range(count):
            desk.names[k] = support.label[places[k]]
        score_labels(chains, rows, token, desk.names, count, score)
    high = -np.inf
    for k in range(count):
        p = places[k]
        if k > 0:
            score[k] += 1.0
        if has_left:
            score[k] += message(cell, p, 0, rho)
        if has_right:
            score[k] += message(cell, p, 1, rho)
        high = max(high, score[k])
    if size > 0:
        if rule != LOOK:
            count = _admit_labels(
                chains, rows, support, token, n_labels, size, count, high, desk, stats
            )
        high = max(high, scores[found[0]] + 1.0)
    gap = 0.0
    for k in range(count):
        desk.old[k] = cell[places[k], MASS]
        desk.bend[k] = cell[places[k], NORM] + rho * edges
        gap += desk.old[k] * (high - score[k])
    if rule == LOOK:
        return gap
    if wanted:
        stats[GAP_NODES] += gap
        stats[MASS_NODES] += mass
    stats[WORK] += 500 + 8 * count * (chains.indptr[token + 1] - chains.indptr[token])
    if count > 1:
        if rule == AWAY:
            _one_step(desk, count)
        else:
            _project(desk, count, mass)
        _write_masses(chains, rows, support, token, mass, n_labels, count, desk, stats)
    return gap


@kernel(inline=True)
def _write_masses(chains, rows, support, token, mass, n_labels, count, desk, stats):
    """The new masses of a token's labels, and the weights that change with them."""
    old, new, names, places = desk.old, desk.new, desk.names, desk.places
    fresh, total = 0, 0.0
    for k in range(1, count):
        if old[k] == 0.0 and new[k] != 0.0:
            fresh += 1
            if not can_take(chains, rows, token, fresh + 1, n_labels):
                # No space for a label that had no mass: its share goes to the gold one.
                stats[FULL] = 1
                new[k] = 0.0
        total += new[k]
    if total > mass:
        # By rounding; the wrong labels may never have more than there is.
        for k in range(1, count):
            new[k] *= mass / total
        total = mass
    new[0] = mass - total
    changed = 0
    for k in range(count):
        change = new[k] - old[k]
        if change != 0.0:
            support.cell[places[k], MASS] = new[k]
            stats[CHANGE] += change * change
            names[changed] = support.label[places[k]]
            old[changed] = change
            changed += 1
    add_to_weights(chains, rows, token, names, old, changed, n_labels)
