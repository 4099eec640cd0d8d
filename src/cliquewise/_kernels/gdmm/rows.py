"""Unigram weights as one list of (label, value) per attribute, and the exact search over them.

A weight is zero unless its label was once active at a token with the attribute. So the scores of
all labels at a token are a sum of short lists, scattered into a vector of K numbers that stays in
the first-level cache. An index by open addressing finds a weight without a walk through its list.
A list that has grown to a tenth of the labels becomes a plain row of K numbers.

With many labels, rows do not fit into a cache, and a search costs what it reads. So it reads a
copy of the rows in single precision; certificates and visits without a search do not.
"""

from collections import namedtuple

import numpy as np

from cliquewise._kernels import kernel
from cliquewise._kernels.common.simd import LANES, fma, load, no_unroll, padded, splat, store

#: ``start``, ``count``, ``capacity``: where the list of an attribute lies; ``dense``: whether it
#: is a row of all labels; ``index``: at twice ``start``, positions + 1 by hash of the label;
#: ``used``: how much of the pool is taken; ``fixed``: whether weights may be added (below);
#: ``values_f32``: the values of rows of all labels in single precision, empty with few labels.
Rows = namedtuple(
    "Rows",
    [
        "start",
        "count",
        "capacity",
        "dense",
        "label",
        "value",
        "index",
        "used",
        "fixed",
        "values_f32",
    ],
)

#: Number of labels from which on there is a copy in single precision.
BRIEF = 512

#: Any weight may be added; none (those of the seen pairs are there); these are being added.
FREE, FIXED, FILLING = range(3)

#: A list becomes a row of all labels when it has 1 / DENSE of them.
DENSE = 10


@kernel(helper=True)
def find_weight(rows, attribute, label):
    """Place of a weight in the pool; -1 if it is not there."""
    base = rows.start[attribute]
    if rows.dense[attribute] == 1:
        return base + label
    mask = 2 * rows.capacity[attribute] - 1
    if mask < 0:
        return np.int64(-1)
    h = ((label * 2654435769) >> 12) & mask
    while True:
        p = rows.index[2 * base + h]
        if p == 0:
            return np.int64(-1)
        if rows.label[base + p - 1] == label:
            return base + p - 1
        h = (h + 1) & mask


@kernel(helper=True)
def _enter(rows, attribute, position):
    """Put a list's position into its index."""
    base = rows.start[attribute]
    mask = 2 * rows.capacity[attribute] - 1
    h = ((np.int64(rows.label[base + position]) * 2654435769) >> 12) & mask
    while rows.index[2 * base + h] != 0:
        h = (h + 1) & mask
    rows.index[2 * base + h] = position + 1


@kernel(helper=True)
def _move(rows, attribute, capacity):
    """Give a list a new place at the end of the pool."""
    old, new = rows.start[attribute], rows.used[0]
    rows.used[0] += capacity
    for p in range(rows.count[attribute]):
        rows.label[new + p] = rows.label[old + p]
        rows.value[new + p] = rows.value[old + p]
    for h in range(2 * new, 2 * (new + capacity)):
        rows.index[h] = 0
    rows.start[attribute] = new
    rows.capacity[attribute] = capacity
    for p in range(rows.count[attribute]):
        _enter(rows, attribute, p)


@kernel(helper=True)
def _make_dense(rows, attribute, n_labels):
    """Turn a list into a row of all labels at the end of the pool."""
    old, new = rows.start[attribute], rows.used[0]
    rows.used[0] += padded(n_labels)
    for j in range(padded(n_labels)):
        rows.value[new + j] = 0.0
    for p in range(rows.count[attribute]):
        rows.value[new + rows.label[old + p]] = rows.value[old + p]
    if rows.values_f32.shape[0] > 0:
        for j in range(padded(n_labels)):
            rows.values_f32[new + j] = rows.value[new + j]
    rows.start[attribute] = new
    rows.count[attribute] = n_labels
    rows.capacity[attribute] = n_labels
    rows.dense[attribute] = 1


@kernel(helper=True)
def growth(rows, attribute, n_labels):
    """Return the space in the pool that the next insertions into a list may take."""
    if rows.dense[attribute] == 1 or rows.fixed[0] == FIXED:
        return np.int64(0)
    return max(2 * rows.capacity[attribute], 4) + n_labels // DENSE + n_labels


@kernel(helper=True)
def insert_weight(rows, attribute, label, n_labels):
    """Place of a weight, which is added if it is not there; -1 if it cannot be."""
    at = find_weight(rows, attribute, label)
    if at >= 0 or rows.fixed[0] == FIXED:
        return at
    count = rows.count[attribute]
    room = rows.value.shape[0] - rows.used[0]
    if rows.fixed[0] == FREE and DENSE * (count + 1) >= n_labels:
        if room < padded(n_labels):
            return np.int64(-2)
        _make_dense(rows, attribute, n_labels)
        return rows.start[attribute] + label
    if count == rows.capacity[attribute]:
        wanted = max(2 * count, 4)
        if room < wanted:
            return np.int64(-2)
        _move(rows, attribute, wanted)
    at = rows.start[attribute] + count
    rows.label[at] = label
    rows.value[at] = 0.0
    rows.count[attribute] = count + 1
    _enter(rows, attribute, count)
    return at


@kernel(helper=True)
def can_take(chains, rows, token, n_new, n_labels):
    """Return whether the pool has space for the weights of ``n_new`` more labels at a token."""
    needed = 0
    if rows.fixed[0] == FIXED:
        return True
    for e in range(chains.indptr[token], chains.indptr[token + 1]):
        a = chains.indices[e]
        if rows.dense[a] == 0 and rows.count[a] + n_new > rows.capacity[a]:
            needed += 4 * (rows.count[a] + n_new) + 8
        if rows.dense[a] == 0 and DENSE * (rows.count[a] + n_new) >= n_labels:
            needed += padded(n_labels)
    return rows.value.shape[0] - rows.used[0] >= needed


@kernel(helper=True)
def add_to_weights(chains, rows, token, names, factors, count, n_labels):
    """Weights of the token's attributes with the labels ``names`` -= factors * their values."""
    ones, values_f32 = chains.values.shape[0] == 0, rows.values_f32.shape[0] > 0
    for e in range(chains.indptr[token], chains.indptr[token + 1]):
        a = chains.indices[e]
        x = 1.0 if ones else chains.values[e]
        if rows.dense[a] == 1:
            base = rows.start[a]
            for k in range(count):
                at = base + names[k]
                rows.value[at] -= x * factors[k]
                if values_f32:
                    rows.values_f32[at] = rows.value[at]
        else:
            for k in range(count):
                at = insert_weight(rows, a, names[k], n_labels)
                if at >= 0:
                    rows.value[at] -= x * factors[k]
                    if values_f32 and rows.dense[a] == 1:
                        rows.values_f32[at] = rows.value[at]


@kernel(helper=True)
def score_labels(chains, rows, token, names, count, out):
    """Scores of the labels ``names`` at a token."""
    ones = chains.values.shape[0] == 0
    for k in range(count):
        out[k] = 0.0
    for e in range(chains.indptr[token], chains.indptr[token + 1]):
        a = chains.indices[e]
        x = 1.0 if ones else chains.values[e]
        if rows.dense[a] == 1:
            base = rows.start[a]
            for k in range(count):
                out[k] += x * rows.value[base + names[k]]
        else:
            for k in range(count):
                at = find_weight(rows, a, names[k])
                if at >= 0:
                    out[k] += x * rows.value[at]


@kernel(helper=True)
def label_norm(chains, rows, token, label):
    """Squared length of the token's attributes that have a weight with ``label``."""
    ones = chains.values.shape[0] == 0
    total = 0.0
    for e in range(chains.indptr[token], chains.indptr[token + 1]):
        if rows.fixed[0] == FREE or find_weight(rows, chains.indices[e], label) >= 0:
            total += 1.0 if ones else chains.values[e] * chains.values[e]
    return total


@kernel(helper=True)
def _add_list(label, value, start, count, x, out):
    """out[labels] += x * values of a list. Unsigned indices need no test for negative ones."""
    first = np.uint64(start)
    for q in range(np.uint64(count)):
        p = first + q
        out[np.uint32(label[p])] += x * value[p]


@kernel(helper=True)
def _add_row(value, start, count, x, out):
    """out += x * a row of all labels, padded to whole vectors."""
    no_unroll()
    factor = splat(x)
    for j in range(0, count, LANES):
        store(out, j, fma(factor, load(value, start + j), load(out, j)))


@kernel(helper=True)
def _add_all_rows(chains, rows, token, width, out):
    """out = the sum of rows of all labels: a few vectors at a time stay in registers."""
    no_unroll()
    ones = chains.values.shape[0] == 0
    begin, end = chains.indptr[token], chains.indptr[token + 1]
    value = rows.value
    j = 0
    while j + 4 * LANES <= width:
        a = b = c = d = splat(0.0)
        for e in range(begin, end):
            at = rows.start[chains.indices[e]] + j
            x = splat(1.0 if ones else chains.values[e])
            a = fma(x, load(value, at), a)
            b = fma(x, load(value, at + LANES), b)
            c = fma(x, load(value, at + 2 * LANES), c)
            d = fma(x, load(value, at + 3 * LANES), d)
        store(out, j, a)
        store(out, j + LANES, b)
        store(out, j + 2 * LANES, c)
        store(out, j + 3 * LANES, d)
        j += 4 * LANES
    while j < width:
        a = splat(0.0)
        for e in range(begin, end):
            x = splat(1.0 if ones else chains.values[e])
            a = fma(x, load(value, rows.start[chains.indices[e]] + j), a)
        store(out, j, a)
        j += LANES


@kernel(helper=True)
def score_all(chains, rows, token, n_labels, out):
    """Scores of all labels at a token into ``out`` (padded); its cost in about nanoseconds."""
    ones = chains.values.shape[0] == 0
    width, begin, end = padded(n_labels), chains.indptr[token], chains.indptr[token + 1]
    lists = n_labels > 512
    for e in range(begin, end):
        lists = lists or rows.dense[chains.indices[e]] == 0
    if not lists:
        _add_all_rows(chains, rows, token, width, out)
        return (end - begin) * width // 6
    for j in range(width):
        out[j] = 0.0
    work = 0
    for e in range(begin, end):
        a = chains.indices[e]
        x = 1.0 if ones else chains.values[e]
        count = rows.count[a]
        if rows.dense[a] == 1:
            _add_row(rows.value, rows.start[a], width, x, out)
            work += count // 2
        else:
            _add_list(rows.label, rows.value, rows.start[a], count, x, out)
            work += count
    return work


@kernel(helper=True)
def _add_four(values_f32, at, factors, count, out):
    """out += four rows of single precision, each times its factor."""
    no_unroll()
    x, y, z, u = splat(factors[0]), splat(factors[1]), splat(factors[2]), splat(factors[3])
    a, b, c, d = at
    for j in range(0, count, LANES):
        left = fma(y, load(values_f32, b + j), fma(x, load(values_f32, a + j), load(out, j)))
        store(out, j, fma(u, load(values_f32, d + j), fma(z, load(values_f32, c + j), left)))


@kernel(helper=True)
def score_briefly(chains, rows, token, first, last, out):
    """Scores of the labels from ``first`` on (at least up to ``last``) in single precision.

    Into ``out`` from its start; returns the cost in about nanoseconds.
    """
    ones, width = chains.values.shape[0] == 0, padded(last - first)
    for j in range(width):
        out[j] = 0.0
    none = np.float32(0.0)
    nothing, start = (none, none, none, none), np.int64(0)
    at, factors = (start, start, start, start), nothing
    size, work = 0, 0
    for e in range(chains.indptr[token], chains.indptr[token + 1]):
        a = chains.indices[e]
        x = np.float32(1.0 if ones else chains.values[e])
        if rows.dense[a] == 0:
            base = rows.start[a]
            for p in range(base, base + rows.count[a]):
                j = rows.label[p] - first
                if 0 <= j < width:
                    out[j] += x * np.float32(rows.value[p])
            work += rows.count[a]
            continue
        at = (at[1], at[2], at[3], rows.start[a] + first)
        factors = (factors[1], factors[2], factors[3], x)
        size += 1
        if size == 4:
            _add_four(rows.values_f32, at, factors, width, out)
            size, factors = 0, nothing
        work += width // 4
    if size > 0:
        _add_four(rows.values_f32, at, factors, width, out)
    return work


@kernel
def clear_rows(rows):
    """Set all weights to zero, and empty lists that are not fixed."""
    for a in range(rows.start.shape[0]):
        base = rows.start[a]
        for p in range(base, base + rows.count[a]):
            rows.value[p] = 0.0
            if rows.dense[a] == 1 and rows.values_f32.shape[0] > 0:
                rows.values_f32[p] = 0.0
        if rows.dense[a] == 0 and rows.fixed[0] == FREE:
            rows.count[a] = 0
            for h in range(2 * base, 2 * (base + rows.capacity[a])):
                rows.index[h] = 0


@kernel
def add_seen_pairs(pair_start, pair_label, n_labels, rows):
    """Fill the lists with the seen pairs of a model; then no others can be added."""
    rows.fixed[0] = FILLING
    for a in range(pair_start.shape[0] - 1):
        for p in range(pair_start[a], pair_start[a + 1]):
            insert_weight(rows, a, np.int64(pair_label[p]), n_labels)
    rows.fixed[0] = FIXED


@kernel
def squared_norm(rows, largest):
    """Sum of the squares of all weights; the largest weight of each attribute."""
    total = 0.0
    for a in range(rows.start.shape[0]):
        part = most = 0.0
        for p in range(rows.start[a], rows.start[a] + rows.count[a]):
            part += rows.value[p] * rows.value[p]
            most = max(most, abs(rows.value[p]))
        total += part
        largest[a] = most
    return total


@kernel
def write_weights(rows, pair_start, pair_label, n_labels, out):
    """The lists as the emission part of a weight vector."""
    if pair_start.shape[0] == 0:
        for a in range(rows.start.shape[0]):
            base = rows.start[a]
            for p in range(rows.count[a]):
                y = p if rows.dense[a] == 1 else np.int64(rows.label[base + p])
                out[a * n_labels + y] = rows.value[base + p]
        return
    for a in range(rows.start.shape[0]):
        for p in range(pair_start[a], pair_start[a + 1]):
            at = find_weight(rows, a, np.int64(pair_label[p]))
            out[p] = rows.value[at] if at >= 0 else 0.0
