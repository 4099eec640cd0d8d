"""Active labels of tokens and active pairs of edges: lists in pools, which grow one at a time.

Masses are those of the paper's duals: the masses of a factor's labels sum to ``C c_i``. An entry of
a token also carries what its two edges say about the label, and the multipliers that make them
agree. Entry 0 of a token is its true label, entry 0 of an edge the true pair.
"""

from collections import namedtuple

import numpy as np

from cliquewise._kernels import kernel
from cliquewise._kernels.gdmm.rows import label_norm

#: Lists of labels per token; ``cell`` has the columns below.
Support = namedtuple("Support", ["start", "count", "capacity", "label", "cell", "used"])

#: Columns of a token's cells: its mass, the marginals of its left and right edges at the label,
#: their multipliers, and the squared length of the attributes.
MASS, LEFT, RIGHT, LAM_LEFT, LAM_RIGHT, NORM = range(6)

#: Lists of pairs per edge (numbered by its right token); ``left`` and ``right`` are positions in
#: the lists of its tokens.
Pairs = namedtuple("Pairs", ["start", "count", "capacity", "left", "right", "cell", "used"])

#: Columns of an edge's cells: mass, mass before the visit, weight, and 1 if that is free.
PAIR_MASS, PAIR_OLD, PAIR_VALUE, PAIR_FREE = range(4)


@kernel(helper=True)
def add_label(chains, rows, support, token, label):
    """Return the position of a label in a token's list, adding it; -1 if the pool is full."""
    count = support.count[token]
    if count == support.capacity[token]:
        capacity = max(4, 2 * count)
        if support.label.shape[0] - support.used[0] < capacity:
            return np.int64(-1)
        old, new = support.start[token], support.used[0]
        support.used[0] += capacity
        for p in range(count):
            support.label[new + p] = support.label[old + p]
            for c in range(6):
                support.cell[new + p, c] = support.cell[old + p, c]
        support.start[token] = new
        support.capacity[token] = capacity
    at = support.start[token] + count
    support.label[at] = label
    for c in range(5):
        support.cell[at, c] = 0.0
    support.cell[at, NORM] = label_norm(chains, rows, token, label)
    support.count[token] = count + 1
    return np.int64(count)


@kernel(helper=True)
def add_pair(pairs, edge, left, right):
    """Return the place of a pair in the pool, adding it; -1 if the pool is full."""
    count = pairs.count[edge]
    if count == pairs.capacity[edge]:
        capacity = max(2, 2 * count)
        if pairs.left.shape[0] - pairs.used[0] < capacity:
            return np.int64(-1)
        old, new = pairs.start[edge], pairs.used[0]
        pairs.used[0] += capacity
        for p in range(count):
            pairs.left[new + p] = pairs.left[old + p]
            pairs.right[new + p] = pairs.right[old + p]
            for c in range(4):
                pairs.cell[new + p, c] = pairs.cell[old + p, c]
        pairs.start[edge] = new
        pairs.capacity[edge] = capacity
    at = pairs.start[edge] + count
    pairs.left[at] = left
    pairs.right[at] = right
    for c in range(4):
        pairs.cell[at, c] = 0.0
    pairs.count[edge] = count + 1
    return at


@kernel(helper=True)
def drop_pair(pairs, edge, at):
    """Take a pair out of its list; the last one takes its place."""
    last = pairs.start[edge] + pairs.count[edge] - 1
    pairs.left[at] = pairs.left[last]
    pairs.right[at] = pairs.right[last]
    for c in range(4):
        pairs.cell[at, c] = pairs.cell[last, c]
    pairs.count[edge] -= 1


@kernel
def begin_lists(chains, rows, mass, support, pairs):
    """Make missing lists, of gold labels only; return False if a pool is full."""
    for s in range(chains.offsets.shape[0] - 1):
        for t in range(chains.offsets[s], chains.offsets[s + 1]):
            if support.count[t] > 0:
                continue
            if add_label(chains, rows, support, t, np.int64(chains.labels[t])) < 0:
                return False
            support.cell[support.start[t], MASS] = mass[s]
            if t > chains.offsets[s]:
                at = add_pair(pairs, t, 0, 0)
                if at < 0:
                    return False
                pairs.cell[at, PAIR_MASS] = mass[s]
                support.cell[support.start[t], LEFT] = mass[s]
                support.cell[support.start[t - 1], RIGHT] = mass[s]
    return True


@kernel
def restore_lists(chains, rows, support, pairs):
    """Marginals of the edges and lengths of the attributes, from the masses."""
    for s in range(chains.offsets.shape[0] - 1):
        first, last = chains.offsets[s], chains.offsets[s + 1]
        for t in range(first, last):
            begin = support.start[t]
            for p in range(begin, begin + support.count[t]):
                support.cell[p, LEFT] = support.cell[p, RIGHT] = 0.0
                y = np.int64(support.label[p])
                support.cell[p, NORM] = label_norm(chains, rows, t, y)
        for t in range(first + 1, last):
            for at in range(pairs.start[t], pairs.start[t] + pairs.count[t]):
                mass = pairs.cell[at, PAIR_MASS]
                support.cell[support.start[t - 1] + pairs.left[at], RIGHT] += mass
                support.cell[support.start[t] + pairs.right[at], LEFT] += mass
