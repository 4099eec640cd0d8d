"""The bigram table with its nonzero entries by row and by column, and the factor search on it.

Only pairs that were true or active somewhere have a weight; all others are exactly zero. The
greatest entries of rows and columns are kept as upper bounds: an increase raises them at once, a
fall of the greatest entry only marks them, and the row is read again when someone asks. A
tournament tree over the rows finds those that can beat a given score (Appendix C-1 of gdmm).
"""

from collections import namedtuple

import numpy as np

from cliquewise._kernels import kernel

#: ``values`` (K * K), ``free``: whether an entry may be nonzero; ``stored``: whether it is in the
#: lists; ``start``, ``count``, ``capacity``: lists of rows (0..K-1) and columns (K..2K-1) in the
#: pool ``label``, ``value``; ``top``, ``arg``, ``exact``: greatest entry of a list, an upper
#: bound unless exact; ``tree``: tournament over the rows' ``top``; ``used``: pool taken, longest
#: capacity.
Table = namedtuple(
    "Table",
    ["values", "free", "stored", "start", "count", "capacity", "label", "value", "top", "arg",
     "exact", "tree", "used"],
)  # fmt: skip


@kernel(helper=True)
def _climb(tree, leaf):
    """Repair the tree above a leaf."""
    node = leaf // 2
    while node >= 1:
        high = max(tree[2 * node], tree[2 * node + 1])
        if tree[node] == high:
            break
        tree[node] = high
        node //= 2


@kernel(helper=True)
def _set_top(table, n_labels, which, value, label, exact):
    table.top[which] = value
    table.arg[which] = label
    table.exact[which] = exact
    if which < n_labels:
        leaf = table.tree.shape[0] // 2 + which
        table.tree[leaf] = value
        _climb(table.tree, leaf)


@kernel(helper=True)
def _append(table, which, label, value):
    count = table.count[which]
    if count == table.capacity[which]:
        capacity = max(4, 2 * count)
        old, new = table.start[which], table.used[0]
        table.used[0] += capacity
        table.used[1] = max(table.used[1], capacity)
        for p in range(count):
            table.label[new + p] = table.label[old + p]
            table.value[new + p] = table.value[old + p]
        table.start[which] = new
        table.capacity[which] = capacity
    table.label[table.start[which] + count] = label
    table.value[table.start[which] + count] = value
    table.count[which] = count + 1


@kernel(helper=True)
def _put(table, n_labels, which, label, value, is_new):
    """Set one entry of a list, and what is known of its greatest one."""
    if is_new:
        _append(table, which, label, value)
    else:
        p = table.start[which]
        while table.label[p] != label:
            p += 1
        table.value[p] = value
    if value >= table.top[which]:
        _set_top(table, n_labels, which, value, label, 1)
    elif table.arg[which] == label:
        table.exact[which] = 0


@kernel(helper=True)
def table_room(table):
    """Whether any one more entry fits into the pool."""
    return table.label.shape[0] - table.used[0] >= 4 * table.used[1] + 8


@kernel(helper=True)
def add_to_pair(table, n_labels, i, j, change):
    """Entry (i, j) += change, if it is free; False where the pool is full."""
    at = i * n_labels + j
    if table.free[at] == 0:
        return True
    is_new = table.stored[at] == 0
    if is_new and not table_room(table):
        return False
    table.stored[at] = 1
    value = table.values[at] + change
    table.values[at] = value
    _put(table, n_labels, i, j, value, is_new)
    _put(table, n_labels, n_labels + j, i, value, is_new)
    return True


@kernel
def clear_table(table):
    """Set all entries to zero, and empty all lists."""
    n_labels = table.start.shape[0] // 2
    for i in range(n_labels):
        for p in range(table.start[i], table.start[i] + table.count[i]):
            at = i * n_labels + table.label[p]
            table.values[at] = 0.0
            table.stored[at] = 0
    for which in range(2 * n_labels):
        table.count[which] = 0
        table.top[which] = -np.inf
        table.arg[which] = -1
        table.exact[which] = 1
    for node in range(table.tree.shape[0]):
        table.tree[node] = -np.inf


@kernel(helper=True)
def _refresh(table, n_labels, which):
    """Read a list again for its greatest entry."""
    high, arg = -np.inf, np.int64(-1)
    for p in range(table.start[which], table.start[which] + table.count[which]):
        if table.value[p] > high:
            high, arg = table.value[p], np.int64(table.label[p])
    _set_top(table, n_labels, which, high, arg, 1)


@kernel(helper=True)
def _zero_in_row(table, n_labels, i, marks, mask, token):
    """A label j without a message whose entry (i, j) is zero; -1 if there is none."""
    masked = mask.shape[0] > 0
    for j in range(n_labels):
        is_free = marks[j] == 0 and (not masked or mask[token, j])
        if is_free and table.values[i * n_labels + j] == 0.0:
            return j
    return -1


@kernel(helper=True)
def _zero_in_column(table, n_labels, j, marks, mask, token):
    """A label i without a message whose entry (i, j) is zero; -1 if there is none."""
    masked = mask.shape[0] > 0
    for i in range(n_labels):
        is_free = marks[i] == 0 and (not masked or mask[token, i])
        if is_free and table.values[i * n_labels + j] == 0.0:
            return i
    return -1


@kernel(helper=True)
def _rows_with_messages(table, n_labels, labels, s, messages, marks, mask, token, best):
    """Cases (iii) and (iv): pairs whose left label has a message."""
    score, left, right = best
    masked = mask.shape[0] > 0
    lowest = 0.0
    for q in range(s[2], s[3]):
        lowest = min(lowest, messages[1, labels[q]])
    for p in range(s[0], s[1]):
        i = labels[p]
        base = -messages[0, i]
        if table.top[i] + base - lowest > score:
            high, arg = -np.inf, np.int64(-1)
            for e in range(table.start[i], table.start[i] + table.count[i]):
                j, v = table.label[e], table.value[e]
                if v > high:
                    high, arg = v, np.int64(j)
                if v + base - messages[1, j] > score and (not masked or mask[token + 1, j]):
                    score, left, right = v + base - messages[1, j], np.int64(i), np.int64(j)
            if table.exact[i] == 0:
                _set_top(table, n_labels, i, high, arg, 1)
        if base - lowest > score:
            for q in range(s[2], s[3]):
                j = labels[q]
                if base - messages[1, j] > score and table.values[i * n_labels + j] == 0.0:
                    score, left, right = base - messages[1, j], np.int64(i), np.int64(j)
        if base > score:
            j = _zero_in_row(table, n_labels, i, marks[1], mask, token + 1)
            if j >= 0:
                score, left, right = base, np.int64(i), np.int64(j)
    return score, left, right


@kernel(helper=True)
def _columns_with_messages(table, n_labels, labels, s, messages, marks, mask, token, best):
    """Case (ii): pairs whose right label alone has a message."""
    score, left, right = best
    masked = mask.shape[0] > 0
    for q in range(s[2], s[3]):
        j = labels[q]
        base, which = -messages[1, j], n_labels + labels[q]
        if table.top[which] + base > score:
            high, arg = -np.inf, np.int64(-1)
            for e in range(table.start[which], table.start[which] + table.count[which]):
                i, v = table.label[e], table.value[e]
                if v > high:
                    high, arg = v, np.int64(i)
                if v + base > score and marks[0, i] == 0 and (not masked or mask[token, i]):
                    score, left, right = v + base, np.int64(i), np.int64(j)
            if table.exact[which] == 0:
                _set_top(table, n_labels, which, high, arg, 1)
        if base > score:
            i = _zero_in_column(table, n_labels, j, marks[0], mask, token)
            if i >= 0:
                score, left, right = base, np.int64(i), np.int64(j)
    return score, left, right


@kernel(helper=True)
def _pairs_without_messages(table, n_labels, marks, mask, token, best, stack):
    """Case (i): rows that can beat the best so far, the most promising first."""
    score, left, right = best
    masked = mask.shape[0] > 0
    half = table.tree.shape[0] // 2
    stack[0] = 1
    size = 1
    while size > 0:
        size -= 1
        node = stack[size]
        if not table.tree[node] > score:
            continue
        if node < half:
            a, b = 2 * node, 2 * node + 1
            if table.tree[a] > table.tree[b]:
                a, b = b, a
            stack[size] = a
            stack[size + 1] = b
            size += 2
            continue
        i = node - half
        if marks[0, i] != 0 or (masked and not mask[token, i]):
            continue
        if table.exact[i] == 0:
            _refresh(table, n_labels, i)
            if not table.top[i] > score:
                continue
        j = table.arg[i]
        if marks[1, j] == 0 and not masked:
            score, left, right = table.top[i], np.int64(i), np.int64(j)
            continue
        for e in range(table.start[i], table.start[i] + table.count[i]):
            j, v = table.label[e], table.value[e]
            if v > score and marks[1, j] == 0 and (not masked or mask[token + 1, j]):
                score, left, right = v, np.int64(i), np.int64(j)
    if score < 0.0:
        for i in range(n_labels):
            if marks[0, i] == 0 and (not masked or mask[token, i]):
                j = _zero_in_row(table, n_labels, i, marks[1], mask, token + 1)
                if j >= 0:
                    return 0.0, np.int64(i), np.int64(j)
    return score, left, right


@kernel(helper=True)
def search_pairs(table, n_labels, labels, s, messages, marks, mask, token, score, stack):
    """The pair of greatest ``v(i, j) - messages[0, i] - messages[1, j]``, if above ``score``.

    ``labels[s[0]:s[1]]`` and ``labels[s[2]:s[3]]`` are those with messages on the left and on the
    right, ``marks`` is nonzero at them, ``messages`` zero elsewhere. ``mask`` says what tokens
    ``token`` (left) and ``token + 1`` may be, which is true of all labels with messages; it is
    empty if they may be anything.
    """
    best = score, np.int64(-1), np.int64(-1)
    best = _rows_with_messages(table, n_labels, labels, s, messages, marks, mask, token, best)
    best = _columns_with_messages(table, n_labels, labels, s, messages, marks, mask, token, best)
    return _pairs_without_messages(table, n_labels, marks, mask, token, best, stack)


@kernel(helper=True)
def search_all_pairs(table, n_labels, messages, mask, token, score):
    """The same by reading the whole table."""
    masked = mask.shape[0] > 0
    left, right = np.int64(-1), np.int64(-1)
    for i in range(n_labels):
        if masked and not mask[token, i]:
            continue
        base, row = -messages[0, i], i * n_labels
        high = -np.inf
        for j in range(n_labels):
            high = max(high, table.values[row + j] - messages[1, j])
        if high + base > score:
            for j in range(n_labels):
                value = table.values[row + j] + base - messages[1, j]
                if value > score and (not masked or mask[token + 1, j]):
                    score, left, right = value, np.int64(i), np.int64(j)
    return score, left, right
