"""Moves of many variables at once, exact by elimination: large steps of a local search.

A move picks a connected region at random, clamps everything else, and sets the region to its
best labels by eliminating one variable after the other. Whatever would need too large a table
is clamped too, so that a move costs little on any graph; on a grid, tables of 2^14 entries
let about 150 variables move together. With tables of one edge the free variables would form
trees (Hamze and de Freitas 2004); larger ones find what trees do not.

All functions take a ``PairwiseGraph`` with finite tables.
"""

import numpy as np

from cliquewise._kernels import kernel
from cliquewise._kernels.graphs.icm import scramble, unit

#: What has become of a variable.
CLAMPED, FREE, ELIMINATED = 0, 1, 2
#: Rows of the work space, each with one entry per variable; only FATE and MARK outlive a move.
FATE, MARK, HEAD, BUCKET, SPOT, SIZE, RANK, CHILD, STRIDE = range(9)
#: Variables with more neighbors than this are never freed: looking at them takes too long.
MOST_LINKS = 1000


@kernel(helper=True)
def grow(count, state, work, graph):
    """Free up to ``count`` connected variables around a random one, breadth first or ragged."""
    edges, cards, starts, links = graph.edges, graph.cards, graph.starts, graph.links
    fate = work[FATE]
    state = scramble(state)
    first = int(unit(state) * len(cards))
    region = np.empty(min(len(cards), count), np.int64)
    if cards[first] == 1 or starts[first + 1] - starts[first] > MOST_LINKS:
        return state, region[:0]
    region[0], length, at = first, 1, 0
    fate[first] = FREE
    state = scramble(state)
    ragged = unit(state) < 0.5
    while at < length and length < len(region):
        state = scramble(state)
        if ragged:
            other = at + int(unit(state) * (length - at))
            region[at], region[other] = region[other], region[at]
        v = region[at]
        at += 1
        degree = starts[v + 1] - starts[v]
        shift = int(unit(state) * degree)
        for a in range(degree):
            e = links[starts[v] + (a + shift) % degree]
            u = edges[e, 0] + edges[e, 1] - v
            is_new = fate[u] == CLAMPED and length < len(region)
            if is_new and cards[u] > 1 and starts[u + 1] - starts[u] <= MOST_LINKS:
                fate[u] = FREE
                region[length] = u
                length += 1
    return state, region[:length]


@kernel(helper=True)
def gather_scope(v, stamp, scope, work, cells, parents, scope_starts, scopes, graph):
    """Write the free variables that ``v`` shares a table with to ``scope``; their number."""
    edges, starts, links = graph.edges, graph.starts, graph.links
    fate, marks, heads = work[FATE], work[MARK], work[HEAD]
    size = 0
    marks[v] = stamp
    for a in range(starts[v], starts[v + 1]):
        u = edges[links[a], 0] + edges[links[a], 1] - v
        if fate[u] == FREE and marks[u] != stamp:
            marks[u] = stamp
            scope[size] = u
            size += 1
    before, cell = -1, heads[v]
    while cell >= 0:
        message, following = cells[cell, 0], cells[cell, 1]
        if parents[message] >= 0:  # part of another message by now: forget it
            if before < 0:
                heads[v] = following
            else:
                cells[before, 1] = following
        else:
            before = cell
            for p in range(scope_starts[message], scope_starts[message + 1]):
                u = scopes[p]
                if fate[u] == FREE and marks[u] != stamp:
                    marks[u] = stamp
                    scope[size] = u
                    size += 1
        cell = following
    return size


@kernel(helper=True)
def place(v, bucket, work, members, counts):
    """Move ``v`` to a bucket; -1 stands for none."""
    old, spot = work[BUCKET, v], work[SPOT]
    if old == bucket:
        return
    if old >= 0:
        counts[old] -= 1
        last = members[old, counts[old]]
        members[old, spot[v]] = last
        spot[last] = spot[v]
    work[BUCKET, v] = bucket
    if bucket >= 0:
        spot[v] = counts[bucket]
        members[bucket, counts[bucket]] = v
        counts[bucket] += 1


@kernel(helper=True)
def pick(state, work, members, counts):
    """A random variable of the first bucket that has any; of the last one, a wide one."""
    bucket = 0
    while counts[bucket] == 0:
        bucket += 1
    state = scramble(state)
    v = members[bucket, int(unit(state) * counts[bucket])]
    if bucket == len(counts) - 1:
        for _ in range(3):
            state = scramble(state)
            u = members[bucket, int(unit(state) * counts[bucket])]
            if work[SIZE, u] > work[SIZE, v]:
                v = u
    return state, v, bucket == len(counts) - 1


@kernel(helper=True)
def plan(limit, region, state, stamp, work, graph):
    """Eliminate the variable of the smallest table, at random among equals; clamp if too large.

    Returns ``state``, ``stamp``, the order of the eliminated variables, and for each place in
    the order the start of its scope in ``scopes`` and the variable that takes its message.
    """
    cards = graph.cards
    r, n_left, bits = len(region), len(region), int(np.ceil(np.log2(limit)))
    most = np.log2(limit) + 1e-9
    # Buckets by the logarithm of the table; the last one holds what is too large.
    members, counts = np.empty((bits + 2, r), np.int64), np.zeros(bits + 2, np.int64)
    scope, touched, n_touched = np.empty(r, np.int64), region.copy(), r
    order, parents = np.empty(r, np.int64), np.full(r, -1, np.int64)
    scope_starts, scopes = np.zeros(r + 1, np.int64), np.empty(r * bits, np.int64)
    cells, n_cells, done = np.empty((r * bits, 2), np.int64), 0, np.int64(0)
    for v in region:
        work[HEAD, v], work[BUCKET, v] = -1, -1
    while True:
        for u in touched[:n_touched]:
            stamp += 1
            d = gather_scope(u, stamp, scope, work, cells, parents, scope_starts, scopes, graph)
            size = np.log2(cards[u])
            for p in range(d):
                size += np.log2(cards[scope[p]])
            work[SIZE, u] = d
            place(u, bits + 1 if size > most else int(size), work, members, counts)
        if n_left == 0:
            break
        n_left -= 1
        state, v, is_too_large = pick(state, work, members, counts)
        stamp += 1
        n_touched = gather_scope(
            v, stamp, touched, work, cells, parents, scope_starts, scopes, graph
        )
        place(v, -1, work, members, counts)
        if is_too_large:
            work[FATE, v] = CLAMPED
            continue
        work[FATE, v] = ELIMINATED
        cell = work[HEAD, v]
        while cell >= 0:
            parents[cells[cell, 0]] = v
            cell = cells[cell, 1]
        begin = scope_starts[done]
        for p in range(n_touched):
            u = touched[p]
            scopes[begin + p] = u
            cells[n_cells, 0], cells[n_cells, 1] = done, work[HEAD, u]
            work[HEAD, u] = n_cells
            n_cells += 1
        order[done] = v
        done += 1
        scope_starts[done] = begin + n_touched
    drop_clamped(done, scope_starts, scopes, work[FATE])
    return state, stamp, order[:done], scope_starts[: done + 1], scopes, parents[:done]


@kernel(helper=True)
def drop_clamped(done, scope_starts, scopes, fate):
    """Take out of the scopes what was clamped after they were written."""
    at, begin = 0, 0
    for i in range(done):
        end = scope_starts[i + 1]
        for p in range(begin, end):
            if fate[scopes[p]] != CLAMPED:
                scopes[at] = scopes[p]
                at += 1
        begin, scope_starts[i + 1] = end, at


@kernel(helper=True)
def add_entries(out, e, v, u, y, graph):
    """Add to ``out`` the entries of edge ``e`` for all states of ``v`` at state ``y`` of ``u``."""
    edge_offsets, tables, cards = graph.edge_offsets, graph.tables, graph.cards
    k = cards[v]
    at, step = (edge_offsets[e] + y, cards[u]) if v < u else (edge_offsets[e] + y * k, 1)
    for x in range(k):
        out[x] += tables[at + x * step]


@kernel(helper=True)
def add_edge(table, total, inner, e, v, u, column, graph):
    """Add an edge to a table that has ``v`` outermost and ``u`` at stride ``inner``."""
    cards = graph.cards
    k = cards[u]
    for y in range(k):
        for x in range(cards[v]):
            column[x] = 0.0
        add_entries(column, e, v, u, y, graph)
        for x in range(cards[v]):
            value = column[x]
            for base in range(x * total + y * inner, (x + 1) * total, k * inner):
                for s in range(base, base + inner):
                    table[s] += value


@kernel(helper=True)
def add_message(table, total, v, scope, message, message_scope, strides, index, cards):
    """Add a message, whose scope holds ``v`` and some of ``scope``."""
    stride, filled = 1, 1
    for u in scope:
        strides[u] = 0
    for u in message_scope:
        strides[u] = stride
        stride *= cards[u]
    index[0] = 0
    for u in scope:
        step = strides[u]
        for y in range(1, cards[u]):
            for s in range(filled):
                index[y * filled + s] = index[s] + y * step
        filled *= cards[u]
    for x in range(cards[v]):
        base, shift = x * total, x * strides[v]
        for s in range(total):
            table[base + s] += message[index[s] + shift]


@kernel(helper=True)
def eliminate(order, scope_starts, scopes, siblings, offsets, largest, widest, belief, messages,
              labels, work, graph):  # fmt: skip
    """Forward pass: ``messages``, and each variable's ``belief`` given its clamped neighbors."""
    edges, cards, starts, links = graph.edges, graph.cards, graph.starts, graph.links
    table, index, column = np.empty(largest), np.empty(largest, np.int64), np.empty(widest)
    strides = work[STRIDE]
    for i in range(len(order)):
        v = order[i]
        k, total = cards[v], offsets[i + 1] - offsets[i]
        scope = scopes[scope_starts[i] : scope_starts[i + 1]]
        own = belief[i]
        for x in range(k):
            own[x] = graph.nodes[graph.node_offsets[v] + x]
        for a in range(starts[v], starts[v + 1]):
            u = edges[links[a], 0] + edges[links[a], 1] - v
            if work[FATE, u] == CLAMPED:
                add_entries(own, links[a], v, u, labels[u], graph)
        for x in range(k):
            for s in range(total):
                table[x * total + s] = own[x]
        stride = 1
        for u in scope:
            strides[u] = stride
            stride *= cards[u]
        for a in range(starts[v], starts[v + 1]):
            u = edges[links[a], 0] + edges[links[a], 1] - v
            if work[FATE, u] == ELIMINATED and work[RANK, u] > i:
                add_edge(table, total, strides[u], links[a], v, u, column, graph)
        child = work[CHILD, v]
        while child >= 0:
            add_message(table, total, v, scope, messages[offsets[child] : offsets[child + 1]],
                        scopes[scope_starts[child] : scope_starts[child + 1]],
                        strides, index, cards)  # fmt: skip
            child = siblings[child]
        out = messages[offsets[i] : offsets[i + 1]]
        for s in range(total):
            out[s] = table[s]
        for x in range(1, k):
            for s in range(total):
                out[s] = max(out[s], table[x * total + s])


@kernel(helper=True)
def read_off(order, scope_starts, scopes, siblings, offsets, belief, messages, labels, work, graph):
    """Backward pass: the best label of each variable given the later ones; else it stays."""
    edges, cards, starts, links = graph.edges, graph.cards, graph.starts, graph.links
    for i in range(len(order) - 1, -1, -1):
        v = order[i]
        own = belief[i]
        for a in range(starts[v], starts[v + 1]):
            u = edges[links[a], 0] + edges[links[a], 1] - v
            if work[FATE, u] == ELIMINATED and work[RANK, u] > i:
                add_entries(own, links[a], v, u, labels[u], graph)
        child = work[CHILD, v]
        while child >= 0:
            at, step, stride = offsets[child], 0, 1
            for u in scopes[scope_starts[child] : scope_starts[child + 1]]:
                if u == v:
                    step = stride
                else:
                    at += stride * labels[u]
                stride *= cards[u]
            for x in range(cards[v]):
                own[x] += messages[at + x * step]
            child = siblings[child]
        best = labels[v]
        for x in range(cards[v]):
            if own[x] > own[best]:
                best = x
        labels[v] = best


@kernel(helper=True)
def move(order, scope_starts, scopes, parents, labels, work, graph):
    """Set the eliminated variables to their best labels given all others, in place."""
    cards, done = graph.cards, len(order)
    offsets, siblings = np.zeros(done + 1, np.int64), np.empty(done, np.int64)
    largest, widest = np.int64(1), np.int64(1)
    for i in range(done):
        v = order[i]
        work[RANK, v], work[CHILD, v] = i, -1
        size = 1
        for u in scopes[scope_starts[i] : scope_starts[i + 1]]:
            size *= cards[u]
        offsets[i + 1] = offsets[i] + size
        largest, widest = max(largest, size * cards[v]), max(widest, cards[v])
    for i in range(done):
        if parents[i] >= 0:
            siblings[i] = work[CHILD, parents[i]]
            work[CHILD, parents[i]] = i
    belief, messages = np.empty((done, widest)), np.empty(offsets[done])
    eliminate(order, scope_starts, scopes, siblings, offsets, largest, widest, belief, messages,
              labels, work, graph)  # fmt: skip
    read_off(order, scope_starts, scopes, siblings, offsets, belief, messages, labels, work, graph)


@kernel
def block_moves(moves, limit, reach, seed, labels, graph):
    """Improve ``labels`` in place by a number of moves; the score never falls.

    ``limit`` bounds the entries of a table. The variables of a region are ``reach[0]``, which
    is kept, in place, where most of them fit.
    """
    n = len(labels)
    state = np.uint64(seed) * np.uint64(2654435769) + np.uint64(88172645463325252)
    # Typed zeros and ones here and above: plain ones make numba compile the callees twice.
    work, stamp = np.zeros((9, n), np.int64), np.int64(0)
    for _ in range(moves):
        state, region = grow(int(reach[0]), state, work, graph)
        state, stamp, order, scope_starts, scopes, parents = plan(
            limit, region, state, stamp, work, graph
        )
        move(order, scope_starts, scopes, parents, labels, work, graph)
        grown = reach[0] * (1.02 if len(order) == len(region) else 0.96)
        reach[0] = min(max(grown, 2.0), n)
        for v in region:
            work[FATE, v] = CLAMPED
