"""Bucket elimination over the rows of sparse tables that are possible.

A table is a sorted list of keys with a value each. A key packs the states of the table's
variables into words of 62 bits, the variable that is eliminated last first. So all tables are
sorted alike; the join of a bucket walks down them together, level by level, and finds its rows
in the order of their keys. The bucket's own variable is the last of its levels: rows that
differ in it alone follow each other, and one such group becomes one row of the message.

A level is a run of variables that the same tables hold. Nothing of a join is kept: downward it
is walked through once more, for which less memory is needed than for its rows.
"""

from __future__ import annotations

from collections import namedtuple

import numpy as np

from cliquewise._kernels import kernel
from cliquewise._kernels.common.math import exp, log

#: Tables are the factors, the checks, then the messages of the buckets. Per table: its number of
#: words and of rows, where its keys start, and where its values do. Bucket b joins the tables
#: ``op_table[op_offsets[b]:op_offsets[b + 1]]``: the first ``op_values[b]`` are its own, the others
#: only say which rows are possible. A level has ``level_bits`` bits, which go to ``level_word`` of
#: the message's key, and are read from ``part_word`` of the tables ``part_op`` (numbered within the
#: bucket). ``bits`` are those of the bucket's variable. A table's variables (places in the order)
#: are in ``var_word`` of its key.
Wiring = namedtuple(
    "Wiring",
    [
        "order", "cards", "bits", "words", "rows", "key_start", "value_start", "op_offsets",
        "op_table", "op_values", "level_offsets", "level_bits", "level_word", "level_shift",
        "part_offsets", "part_op", "part_word", "part_shift", "var_offsets", "var_place",
        "var_word", "var_shift",
    ],
)  # fmt: skip

#: One row per table and level of a bucket: where the level's bits are, the same table's row of the
#: level before, the rows that are left here, and those that have the present value.
Parts = namedtuple(
    "Parts", ["at", "width", "shift", "before", "cursor", "end", "low", "high"]
)  # fmt: skip

SUM, MAX, SUM_DOWN, MAX_DOWN = 0, 1, 2, 3
DONE, FULL, TOO_MANY = 0, 1, 2


@kernel(helper=True)
def _seek(keys, at, width, shift, mask, low, high, x):
    """First row from low up to high whose level has at least the value x."""
    step = 1
    while low < high and ((keys[at + low * width] >> shift) & mask) < x:
        low += step
        step *= 2
    step //= 2
    if step == 0:
        return low
    # The row before the last step was too small; the one found, or the end, is not.
    bottom, top = low - step + 1, min(low, high)
    while bottom < top:
        middle = (bottom + top) // 2
        if ((keys[at + middle * width] >> shift) & mask) < x:
            bottom = middle + 1
        else:
            top = middle
    return bottom


@kernel(helper=True)
def _parts_of(w, b):
    """The tables of a bucket, level by level."""
    begin = w.part_offsets[w.level_offsets[b]]
    n = w.part_offsets[w.level_offsets[b + 1]] - begin
    before = np.empty(n, dtype=np.int64)
    at, width, shift = np.empty_like(before), np.empty_like(before), np.empty_like(before)
    cursor, end = np.zeros_like(before), np.zeros_like(before)
    low, high = np.zeros_like(before), np.zeros_like(before)
    newest = np.full(w.op_offsets[b + 1] - w.op_offsets[b], -1, dtype=np.int64)
    for q in range(n):
        o = w.part_op[begin + q]
        t = w.op_table[w.op_offsets[b] + o]
        at[q] = w.key_start[t] + w.part_word[begin + q]
        width[q] = w.words[t]
        shift[q] = w.part_shift[begin + q]
        before[q] = newest[o]
        newest[o] = q
        end[q] = w.rows[t]
    return Parts(at, width, shift, before, cursor, end, low, high)


@kernel(helper=True)
def _agree(keys, p, begin, stop, mask):
    """The next value of a level that all its tables have; -1 if there is none."""
    q, agreed, x = begin, 0, np.int64(-1)
    while agreed < stop - begin:
        c = p.cursor[q]
        if c >= p.end[q]:
            return np.int64(-1)
        y = (keys[p.at[q] + c * p.width[q]] >> p.shift[q]) & mask
        if y < x:
            c = _seek(keys, p.at[q], p.width[q], p.shift[q], mask, c + 1, p.end[q], x)
            p.cursor[q] = c
            if c >= p.end[q]:
                return np.int64(-1)
            y = (keys[p.at[q] + c * p.width[q]] >> p.shift[q]) & mask
        if y == x:
            agreed += 1
        else:
            x, agreed = y, 1
        q = q + 1 if q + 1 < stop else begin
    return x


@kernel(helper=True)
def _enter(p, begin, stop):
    """Begin a level with the rows that the level before has left to each of its tables."""
    for q in range(begin, stop):
        r = p.before[q]
        if r >= 0:
            p.cursor[q], p.end[q] = p.low[r], p.high[r]
        else:
            p.cursor[q] = 0


@kernel(helper=True)
def _collect(mode, scores, count):
    """The value of a group of rows: their log-sum-exp, or the maximum."""
    top = scores[0]
    for i in range(1, count):
        top = max(top, scores[i])
    if mode == MAX or count == 1:
        return top
    mass = 0.0
    for i in range(count):
        mass += exp(scores[i] - top)
    return top + log(mass)


@kernel(helper=True)
def _spread(mode, scores, count, spots, owned, states, share, shares, node):
    """Distribute the share of a message's row to the rows of the tables."""
    top = scores[0]
    for i in range(1, count):
        top = max(top, scores[i])
    if mode == MAX_DOWN:
        for i in range(count):
            x = scores[i] - top + share
            node[states[i]] = max(node[states[i]], x)
            for o in range(owned):
                shares[spots[i, o]] = max(shares[spots[i, o]], x)
        return
    mass = 0.0
    for i in range(count):
        scores[i] = exp(scores[i] - top)
        mass += scores[i]
    for i in range(count):
        x = scores[i] * (share / mass)
        node[states[i]] += x
        for o in range(owned):
            shares[spots[i, o]] += x


@kernel
def walk(w, b, mode, keys, values, shares, node, key_at, value_at, most):
    """Join the tables of bucket b, and do what the mode says with each group of rows.

    Upward, keys and values of the message are written from ``key_at`` and ``value_at`` on.
    Downward, ``shares`` has what the rest of the graph says of each row of the message, and gets
    the same for the rows of the tables. Returns how it ended, rows of the message, and steps.
    """
    first, owned, cards = w.op_offsets[b], w.op_values[b], w.cards[b]
    base, last = w.level_offsets[b], w.level_offsets[b + 1] - w.level_offsets[b] - 1
    origin = w.part_offsets[base]
    p = _parts_of(w, b)
    words = w.words[len(w.words) - len(w.order) + b]
    prefix = np.zeros((last + 1, words + 1), dtype=np.int64)
    starts = np.empty(owned, dtype=np.int64)
    for o in range(owned):
        starts[o] = w.value_start[w.op_table[first + o]]
    spots = np.empty((cards, owned), dtype=np.int64)
    states, scores = np.empty(cards, dtype=np.int64), np.empty(cards)
    bits = w.bits[b]
    made, steps, d = 0, 0, 0
    while d >= 0:
        level = base + d
        begin, stop = w.part_offsets[level] - origin, w.part_offsets[level + 1] - origin
        mask = (1 << w.level_bits[level]) - 1
        if d < last:
            x = _agree(keys, p, begin, stop, mask)
            steps += 1
            if x < 0:
                d -= 1
                if steps > most:
                    return TOO_MANY, made, steps
                continue
            # Into the rows that have this value.
            for q in range(begin, stop):
                c = p.cursor[q]
                end = _seek(keys, p.at[q], p.width[q], p.shift[q], mask, c + 1, p.end[q], x + 1)
                p.low[q], p.high[q], p.cursor[q] = c, end, end
            for i in range(words):
                prefix[d + 1, i] = prefix[d, i]
            prefix[d + 1, w.level_word[level]] |= x << w.level_shift[level]
            d += 1
            _enter(p, stop, w.part_offsets[level + 2] - origin)
            continue
        x, count = _agree(keys, p, begin, stop, mask), 0
        while x >= 0:
            score = 0.0
            for o in range(owned):
                spots[count, o] = starts[o] + p.cursor[begin + o]
                score += values[spots[count, o]]
            for q in range(begin, stop):
                p.cursor[q] += 1
            states[count], scores[count] = x & ((1 << bits) - 1), score
            head, count, steps = x >> bits, count + 1, steps + 1
            x = _agree(keys, p, begin, stop, mask)
            if x >= 0 and x >> bits == head:
                continue
            # A group is complete.
            if mode >= SUM_DOWN:
                share = shares[value_at + made]
                _spread(mode, scores, count, spots, owned, states, share, shares, node)
            else:
                at = key_at + made * words
                if at + words > len(keys) or value_at + made >= len(values):
                    return FULL, made, steps
                for i in range(words):
                    keys[at + i] = prefix[d, i]
                if words:
                    keys[at + w.level_word[level]] |= head << w.level_shift[level]
                values[value_at + made] = _collect(mode, scores, count)
            made, count = made + 1, 0
        if steps > most:
            return TOO_MANY, made, steps
        d -= 1
    return DONE, made, steps


@kernel(helper=True)
def _lookup(w, t, keys, places, wanted):
    """First row of a table whose variables have at least the states that ``places`` says."""
    words, base = w.words[t], w.key_start[t]
    for i in range(words):
        wanted[i] = 0
    for i in range(w.var_offsets[t], w.var_offsets[t + 1]):
        wanted[w.var_word[i]] |= places[w.var_place[i]] << w.var_shift[i]
    bottom, top = 0, w.rows[t]
    while bottom < top:
        middle = (bottom + top) // 2
        less = False
        for i in range(words):
            x = keys[base + middle * words + i]
            if x != wanted[i]:
                less = x < wanted[i]
                break
        if less:
            bottom = middle + 1
        else:
            top = middle
    return bottom


@kernel(helper=True)
def _scores_of(w, b, keys, values, places, wanted, scores, hits):
    """Scores of the states of bucket b given those of later ones; how many tables have each."""
    for x in range(w.cards[b]):
        scores[x], hits[x] = 0.0, 0
    for o in range(w.op_offsets[b], w.op_offsets[b] + w.op_values[b]):
        t = w.op_table[o]
        words = w.words[t]
        # The states of b that this table has are the next rows.
        row = _lookup(w, t, keys, places, wanted)
        while row < w.rows[t]:
            at = w.key_start[t] + row * words
            same = True
            for i in range(words - 1):
                same = same and keys[at + i] == wanted[i]
            x = keys[at + words - 1] - wanted[words - 1]
            if not same or x >= w.cards[b]:
                break
            scores[x] += values[w.value_start[t] + row]
            hits[x] += 1
            row += 1


@kernel
def draw(w, keys, values, uniforms, labels):
    """One labeling per row of ``uniforms``; the best one where they are negative."""
    n = len(w.order)
    places = np.zeros(n, dtype=np.int64)
    most, longest = 1, 1
    for b in range(n):
        most = max(most, w.cards[b])
    for t in range(len(w.words)):
        longest = max(longest, w.words[t])
    scores, hits = np.empty(most), np.empty(most, dtype=np.int64)
    wanted = np.empty(longest, dtype=np.int64)
    for r in range(len(uniforms)):
        for b in range(n - 1, -1, -1):
            places[b] = 0
            _scores_of(w, b, keys, values, places, wanted, scores, hits)
            top, best = -np.inf, 0
            for x in range(w.cards[b]):
                if hits[x] == w.op_values[b] and scores[x] > top:
                    top, best = scores[x], x
            if uniforms[r, b] >= 0.0:
                mass = 0.0
                for x in range(w.cards[b]):
                    scores[x] = exp(scores[x] - top) if hits[x] == w.op_values[b] else 0.0
                    mass += scores[x]
                u = uniforms[r, b] * mass
                for x in range(w.cards[b]):
                    if scores[x] > 0.0:
                        best = x
                        u -= scores[x]
                        if u < 0.0:
                            break
            places[b] = best
            labels[r, w.order[b]] = best
