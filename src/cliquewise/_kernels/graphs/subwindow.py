"""Efficient Subwindow Search: the best boxes of an image, by best-first branch and bound.

A set of boxes is a range for each side: first and last top, bottom, left, right (bottom and
right are exclusive ends). The classical bound is the positive weight in the largest box plus
the negative weight in the smallest. Where the smallest is not empty, a better one is used: the
weight in it, plus what each side can add at best by moving out, one at a time. A strip beside
the smallest box is known exactly; one above it has between the smallest and the largest width.
"""

import numpy as np

from cliquewise._kernels import kernel


@kernel(helper=True)
def _sum(integral, top, bottom, left, right):
    """Sum over a box; 0 if it is empty."""
    if top >= bottom or left >= right:
        return 0.0
    return (
        integral[bottom, right]
        - integral[top, right]
        - integral[bottom, left]
        + integral[top, left]
    )


@kernel(helper=True)
def _overlap(a, b, c, d):
    """Length of the common part of [a, b) and [c, d)."""
    return max(min(b, d) - max(a, c), 0)


@kernel(helper=True)
def _outwards(positive, negative, low, high, inner0, inner1, outer0, outer1, is_row, is_end):
    """Most that a side adds by moving out over ``low : high``, across what may be wider.

    Rows (``is_row``) or columns are added from the side of the smallest box on: from ``low``
    (``is_end``) or from ``high``. Negative weight counts over ``inner``, positive over ``outer``.
    """
    best = 0.0
    for at in range(low, high + 1):
        first, last = (low, at) if is_end else (at, high)
        if is_row:
            total = _sum(positive, first, last, outer0, outer1)
            total += _sum(negative, first, last, inner0, inner1)
        else:
            total = _sum(positive, outer0, outer1, first, last)
            total += _sum(negative, inner0, inner1, first, last)
        if total > best:
            best = total
    return best


@kernel(helper=True)
def _by_sides(positive, negative, sets, s, rows_are_wide):
    """Bound from the four sides; rows or columns reach across the corners."""
    t0, t1, b0, b1 = sets[s, 0], sets[s, 1], sets[s, 2], sets[s, 3]
    l0, l1, r0, r1 = sets[s, 4], sets[s, 5], sets[s, 6], sets[s, 7]
    total = _sum(positive, t1, b0, l1, r0) + _sum(negative, t1, b0, l1, r0)
    wide = (l0, r1) if rows_are_wide else (l1, r0)
    total += _outwards(positive, negative, t0, t1, l1, r0, wide[0], wide[1], True, False)
    total += _outwards(positive, negative, b0, b1, l1, r0, wide[0], wide[1], True, True)
    wide = (t1, b0) if rows_are_wide else (t0, b1)
    total += _outwards(positive, negative, l0, l1, t1, b0, wide[0], wide[1], False, False)
    total += _outwards(positive, negative, r0, r1, t1, b0, wide[0], wide[1], False, True)
    return total


@kernel(helper=True)
def _costliest(truth, cost, sets, s):
    """``cost`` times the greatest 1 - IoU with the truth that a box of the set may have.

    IoU is at least the smallest box's overlap over the largest's union with the truth.
    """
    top0, top1, bottom0, bottom1 = sets[s, 0], sets[s, 1], sets[s, 2], sets[s, 3]
    left0, left1, right0, right1 = sets[s, 4], sets[s, 5], sets[s, 6], sets[s, 7]
    inner = 0
    if top1 < bottom0 and left1 < right0:
        inner = _overlap(top1, bottom0, truth[0], truth[2])
        inner *= _overlap(left1, right0, truth[1], truth[3])
    common = _overlap(top0, bottom1, truth[0], truth[2])
    common *= _overlap(left0, right1, truth[1], truth[3])
    area = (truth[2] - truth[0]) * (truth[3] - truth[1])
    union = (bottom1 - top0) * (right1 - left0) + area - common
    return cost * (1.0 - inner / union)


@kernel(helper=True)
def _bound(positive, negative, truth, cost, sets, s):
    """No box of set ``s`` scores higher; exact if there is one box only."""
    if sets[s, 1] < sets[s, 2] and sets[s, 5] < sets[s, 6]:
        total = min(
            _by_sides(positive, negative, sets, s, True),
            _by_sides(positive, negative, sets, s, False),
        )
    else:
        total = _sum(positive, sets[s, 0], sets[s, 3], sets[s, 4], sets[s, 7])
    if cost > 0:
        total += _costliest(truth, cost, sets, s)
    return total


@kernel(helper=True)
def _split(sets, s, other):
    """Halve the longest range of set ``s``; one half goes to ``other``. False for one box."""
    side, length = 0, 0
    for r in range(4):
        if sets[s, 2 * r + 1] - sets[s, 2 * r] > length:
            side, length = r, sets[s, 2 * r + 1] - sets[s, 2 * r]
    if length == 0:
        return False
    for f in range(8):
        sets[other, f] = sets[s, f]
    middle = sets[s, 2 * side] + length // 2
    sets[s, 2 * side + 1] = middle
    sets[other, 2 * side] = middle + 1
    for h in (s, other):
        # An end must come after its beginning.
        for r in (0, 4):
            sets[h, r + 1] = min(sets[h, r + 1], sets[h, r + 3] - 1)
            sets[h, r + 2] = max(sets[h, r + 2], sets[h, r] + 1)
    return True


@kernel(helper=True)
def _push(keys, ids, size, key, s):
    """Into a heap with the greatest key on top."""
    at = size
    while at > 0 and keys[(at - 1) // 2] < key:
        keys[at], ids[at] = keys[(at - 1) // 2], ids[(at - 1) // 2]
        at = (at - 1) // 2
    keys[at], ids[at] = key, s


@kernel(helper=True)
def _pop(keys, ids, size):
    """Remove the top of a heap of ``size``; its last entry moves down to its place."""
    key, s = keys[size - 1], ids[size - 1]
    last, at = size - 1, 0
    while 2 * at + 1 < last:
        child = 2 * at + 1
        if child + 1 < last and keys[child + 1] > keys[child]:
            child += 1
        if not keys[child] > key:
            break
        keys[at], ids[at] = keys[child], ids[child]
        at = child
    keys[at], ids[at] = key, s


@kernel
def best_boxes(positive, negative, truth, cost, max_sets, boxes, scores):
    """The k best boxes, best first.

    Parameters
    ----------
    positive, negative : arrays (height + 1, width + 1)
        Integral images of the positive and the negative parts of the weights.
    truth : int array (4,)
        Top, left, bottom, right of the true box.
    cost : float
        A box scores this much times (1 - IoU with the truth) more; 0 for none.
    max_sets : int
        Give up after so many sets.
    boxes : int array (k, 4)
        Overwritten: top, left, bottom, right.
    scores : array (k,)

    Returns
    -------
    found, visited : int
        How many boxes, and how many sets were bounded.
    """
    height, width = positive.shape[0] - 1, positive.shape[1] - 1
    capacity = min(max_sets, 1024) + 2
    keys, ids = np.empty(capacity), np.empty(capacity, np.int64)
    sets = np.empty((capacity, 8), np.int64)
    sides = (0, height - 1, 1, height, 0, width - 1, 1, width)
    for f in range(8):
        sets[0, f] = sides[f]
    keys[0], ids[0] = _bound(positive, negative, truth, cost, sets, 0), 0
    size, used, visited, found = 1, 1, 1, 0
    while size > 0 and found < scores.shape[0]:
        if used + 1 >= capacity:
            capacity *= 2
            new_keys, new_ids = np.empty(capacity), np.empty(capacity, np.int64)
            new_sets = np.empty((capacity, 8), np.int64)
            for i in range(used):
                new_keys[i], new_ids[i] = keys[i], ids[i]
                for f in range(8):
                    new_sets[i, f] = sets[i, f]
            keys, ids, sets = new_keys, new_ids, new_sets
        key, s = keys[0], ids[0]
        _pop(keys, ids, size)
        size -= 1
        if _split(sets, s, used):
            if visited + 2 > max_sets:
                break
            for h in (s, used):
                _push(keys, ids, size, _bound(positive, negative, truth, cost, sets, h), h)
                size += 1
            used += 1
            visited += 2
        else:
            boxes[found, 0], boxes[found, 1] = sets[s, 0], sets[s, 4]
            boxes[found, 2], boxes[found, 3] = sets[s, 2], sets[s, 6]
            scores[found] = key
            found += 1
    return found, visited


@kernel
def all_boxes(positive, negative, truth, cost, boxes, scores):
    """The k best boxes by looking at every one, best first; how many there are."""
    height, width = positive.shape[0] - 1, positive.shape[1] - 1
    k = scores.shape[0]
    sets = np.empty((1, 8), np.int64)
    found = 0
    for top in range(height):
        for bottom in range(top + 1, height + 1):
            for left in range(width):
                for right in range(left + 1, width + 1):
                    sides = (top, left, bottom, right)
                    for f in range(2):
                        sets[0, f], sets[0, 2 + f] = top, bottom
                        sets[0, 4 + f], sets[0, 6 + f] = left, right
                    score = _sum(positive, top, bottom, left, right)
                    score += _sum(negative, top, bottom, left, right)
                    if cost > 0:
                        score += _costliest(truth, cost, sets, 0)
                    if found == k and not score > scores[k - 1]:
                        continue
                    at = min(found, k - 1)
                    found = min(found + 1, k)
                    while at > 0 and scores[at - 1] < score:
                        scores[at] = scores[at - 1]
                        for f in range(4):
                            boxes[at, f] = boxes[at - 1, f]
                        at -= 1
                    scores[at] = score
                    for f in range(4):
                        boxes[at, f] = sides[f]
    return found
