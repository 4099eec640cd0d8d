"""Elimination orders, and the flat wiring of bucket elimination along one of them.

Variables are renamed by their place in the order: bucket ``b`` eliminates variable
``order[b]``. Its table has one row per state of ``b``, and a row has the axes of the separator,
sorted, the last one fastest. So a reduction over ``b`` adds up long contiguous rows, and a
message has the axes of its separator in the same order.

A row is built from its fastest axes outwards. The operands of a bucket (factors and
children's messages) are sorted by the slowest axis they have; the first ``op_size[o]`` entries of
a row are all that operand ``o`` needs, and only when the next one needs more is the row grown,
by copies of its entries. A bucket with a hundred pairwise factors then costs about two
additions per entry, not a hundred.
"""

from __future__ import annotations

import heapq
from collections import namedtuple

import numpy as np

from cliquewise._kernels import kernel
from cliquewise._kernels.common.simd import copy

MIN_FILL, MIN_WEIGHT = 0, 1

#: One operand (a factor or a child's message) per row of ``op_*``: where it starts, its step from
#: one state of the bucket's variable to the next, and the entries of a row it spans. Its merged
#: axes are ``dim_offsets[o]:dim_offsets[o + 1]`` of ``lengths`` and ``strides``, fastest first;
#: from ``dim_split[o]`` on they are axes by which the row grows.
Plan = namedtuple(
    "Plan",
    [
        "order", "cards", "parent", "sep_offsets", "seps", "clique_sizes", "sep_sizes",
        "message_offsets", "op_offsets", "op_factor", "op_child", "op_start", "op_step", "op_size",
        "dim_offsets", "dim_split", "lengths", "strides",
    ],
)  # fmt: skip


@kernel
def _merge(a, na, b, nb, skip1, skip2, out):
    """Sorted union of two sorted lists without two values; returns its length."""
    i = j = n = 0
    while i < na or j < nb:
        if j >= nb or (i < na and a[i] <= b[j]):
            x = a[i]
            if j < nb and b[j] == x:
                j += 1
            i += 1
        else:
            x = b[j]
            j += 1
        if x != skip1 and x != skip2:
            out[n] = x
            n += 1
    return n


@kernel
def _contains(pool, start, count, x):
    low, high = start, start + count
    while low < high:
        middle = (low + high) // 2
        if pool[middle] < x:
            low = middle + 1
        else:
            high = middle
    return low < start + count and pool[low] == x


@kernel
def _fill(pool, start, count, v):
    """Number of pairs of neighbors of v that are not adjacent."""
    missing = 0
    for i in range(count[v]):
        a = pool[start[v] + i]
        for j in range(i):
            if not _contains(pool, start[a], count[a], pool[start[v] + j]):
                missing += 1
    return missing


@kernel
def _key(rule, fill, weight):
    # Ties of min-fill are broken by the size of the clique.
    return fill + 1e-6 * weight if rule == 0 else weight


@kernel
def greedy_order(indptr, indices, log_cards, rule, max_log_size):
    """Greedy elimination order by min-fill or min-weight.

    Returns the order and the largest log clique size met; stops early, with an order
    that is incomplete (filled with -1), once a clique exceeds ``max_log_size``.
    """
    n = len(indptr) - 1
    pool = np.empty(max(4 * len(indices), 1024), dtype=np.int64)
    for at in range(len(indices)):
        pool[at] = indices[at]
    used = len(indices)
    start = indptr[:-1].copy()
    count = indptr[1:] - indptr[:-1]
    alive = np.ones(n, dtype=np.bool_)
    fill = np.zeros(n, dtype=np.float64)
    weight = np.empty(n)
    heap = [(0.0, 0)]
    heap.pop()
    for v in range(n):
        weight[v] = log_cards[v]
        for i in range(count[v]):
            weight[v] += log_cards[pool[start[v] + i]]
        if rule == 0:
            fill[v] = _fill(pool, start, count, v)
        heap.append((_key(rule, fill[v], weight[v]), v))
    heapq.heapify(heap)
    order = np.full(n, -1, dtype=np.int64)
    touched = np.full(n, -1, dtype=np.int64)
    scratch = np.empty(n, dtype=np.int64)
    largest = 0.0
    done = 0
    while done < n:
        key, v = heapq.heappop(heap)
        if not alive[v] or key != _key(rule, fill[v], weight[v]):
            continue
        largest = max(largest, weight[v])
        if largest > max_log_size:
            return order, largest
        order[done] = v
        alive[v] = False
        nv = count[v]
        neighbors = pool[start[v] : start[v] + nv].copy()
        for i in range(nv):
            touched[neighbors[i]] = done
        if rule == 0 and fill[v] > 0:
            # Every new edge lowers the fill of the common neighbors outside the clique.
            for i in range(nv):
                a = neighbors[i]
                for j in range(i):
                    b = neighbors[j]
                    if _contains(pool, start[a], count[a], b):
                        continue
                    for t in range(count[a]):
                        w = pool[start[a] + t]
                        if w != v and touched[w] != done and _contains(pool, start[b], count[b], w):
                            fill[w] -= 1
                            heapq.heappush(heap, (_key(rule, fill[w], weight[w]), w))
        for i in range(nv):
            a = neighbors[i]
            if rule == 0 and fill[v] == 0:
                # The neighbors are a clique: a loses v, and the pairs of v with the others.
                fill[a] -= count[a] - nv
            m = _merge(pool[start[a] :], count[a], neighbors, nv, a, v, scratch)
            if m > count[a]:
                if used + m > len(pool):
                    bigger = np.empty(2 * (used + m), dtype=np.int64)
                    copy(pool[:used], bigger)
                    pool = bigger
                start[a] = used
                used += m
            pool[start[a] : start[a] + m] = scratch[:m]
            count[a] = m
            weight[a] = log_cards[a]
            for t in range(m):
                weight[a] += log_cards[scratch[t]]
        for i in range(nv):
            a = neighbors[i]
            if rule == 0 and fill[v] > 0:
                fill[a] = _fill(pool, start, count, a)
            heapq.heappush(heap, (_key(rule, fill[a], weight[a]), a))
        done += 1
    return order, largest


@kernel
def separators(order, cards, scopes, scope_offsets):
    """Separator of every bucket, the bucket that receives its message, and table sizes."""
    n, m = len(order), len(scope_offsets) - 1
    place = np.empty(n, dtype=np.int64)
    for b in range(n):
        place[order[b]] = b
    factor_next = np.full(m, -1, dtype=np.int64)
    factor_head = np.full(n, -1, dtype=np.int64)
    for f in range(m - 1, -1, -1):
        first = n
        for i in range(scope_offsets[f], scope_offsets[f + 1]):
            first = min(first, place[scopes[i]])
        factor_next[f] = factor_head[first]
        factor_head[first] = f
    child_head = np.full(n, -1, dtype=np.int64)
    child_next = np.full(n, -1, dtype=np.int64)
    parent = np.full(n, -1, dtype=np.int64)
    offsets = np.zeros(n + 1, dtype=np.int64)
    seps = np.empty(max(4 * n, 16), dtype=np.int64)
    mark = np.full(n, -1, dtype=np.int64)
    found = np.empty(n, dtype=np.int64)
    sizes = np.empty(n)
    sep_sizes = np.empty(n)
    for b in range(n):
        mark[b] = b
        k = 0
        f = factor_head[b]
        while f >= 0:
            for i in range(scope_offsets[f], scope_offsets[f + 1]):
                p = place[scopes[i]]
                if mark[p] != b:
                    mark[p] = b
                    found[k] = p
                    k += 1
            f = factor_next[f]
        c = child_head[b]
        while c >= 0:
            for i in range(offsets[c], offsets[c + 1]):
                p = seps[i]
                if mark[p] != b:
                    mark[p] = b
                    found[k] = p
                    k += 1
            c = child_next[c]
        if offsets[b] + k > len(seps):
            bigger = np.empty(2 * (offsets[b] + k), dtype=np.int64)
            bigger[: offsets[b]] = seps[: offsets[b]]
            seps = bigger
        sep = np.sort(found[:k])
        seps[offsets[b] : offsets[b] + k] = sep
        offsets[b + 1] = offsets[b] + k
        size = 1.0
        for i in range(k):
            size *= cards[order[sep[i]]]
        sep_sizes[b] = size
        sizes[b] = size * cards[order[b]]
        if k:
            parent[b] = sep[0]
            child_next[b] = child_head[sep[0]]
            child_head[sep[0]] = b
    return place, parent, offsets, seps[: offsets[n]].copy(), sizes, sep_sizes


@kernel
def _sort_by(keys, n_keys, items):
    """Stable counting sort of ``items`` by ``keys[item]``."""
    cursor = np.zeros(n_keys + 1, dtype=np.int64)
    for i in items:
        cursor[keys[i] + 1] += 1
    for k in range(n_keys):
        cursor[k + 1] += cursor[k]
    result = np.empty_like(items)
    for i in items:
        result[cursor[keys[i]]] = i
        cursor[keys[i]] += 1
    return result


@kernel
def _homes(place, parent, sep_offsets, seps, scopes, scope_offsets):
    """Bucket and slowest separator axis of every factor, then of every bucket's message.

    The axis is a place in the order; ``n`` if there is none. A root's message goes to
    bucket ``n``.
    """
    n, m = len(parent), len(scope_offsets) - 1
    home = np.full(m + n, n, dtype=np.int64)
    axis = np.full(m + n, n, dtype=np.int64)
    for f in range(m):
        for i in range(scope_offsets[f], scope_offsets[f + 1]):
            p = place[scopes[i]]
            if p < home[f]:
                axis[f] = home[f]
                home[f] = p
            elif p < axis[f]:
                axis[f] = p
    for c in range(n):
        if parent[c] >= 0:
            home[m + c] = parent[c]
            if sep_offsets[c + 1] - sep_offsets[c] > 1:
                axis[m + c] = seps[sep_offsets[c] + 1]
    return home, axis


@kernel
def _merge_axes(cards, axes, size, stride_of, before, lengths, strides, at):
    """Merge the axes, fastest first, that an operand steps through evenly.

    Returns the ends of the axes within the first ``before`` entries and of all ``size``.
    """
    begin, covered, i = at, 1, len(axes) - 1
    split = -1
    while covered < size:
        if covered == before and split < 0:
            split = at
        p = axes[i]
        i -= 1
        if cards[p] == 1:
            continue
        covered *= cards[p]
        merges = at > begin and at != split
        if merges and stride_of[p] == strides[at - 1] * lengths[at - 1]:
            lengths[at - 1] *= cards[p]
        else:
            lengths[at] = cards[p]
            strides[at] = stride_of[p]
            at += 1
    return (at if split < 0 else split), at


@kernel
def _set_strides(axes, cards, stride_of):
    """Strides of a table with these axes, the last one fastest."""
    step = 1
    for i in range(len(axes) - 1, -1, -1):
        stride_of[axes[i]] = step
        step *= cards[axes[i]]


@kernel
def operands(place, parent, cards, sep_offsets, seps, message_offsets,
             scopes, scope_offsets, table_offsets):  # fmt: skip
    """Which factors and messages each bucket adds up, in which order, with which strides."""
    n, m = len(parent), len(scope_offsets) - 1
    home, axis = _homes(place, parent, sep_offsets, seps, scopes, scope_offsets)
    rows = _sort_by(home, n + 1, _sort_by(n - axis, n + 1, np.arange(m + n)))
    total = 0
    op_offsets = np.zeros(n + 1, dtype=np.int64)
    dims = 0
    for i in rows:
        if home[i] < n:
            op_offsets[home[i] + 1] += 1
            total += 1
            dims += sep_offsets[home[i] + 1] - sep_offsets[home[i]]
    for b in range(n):
        op_offsets[b + 1] += op_offsets[b]
    op_factor = np.full(total, -1, dtype=np.int64)
    op_child = np.full(total, -1, dtype=np.int64)
    op_start = np.zeros(total, dtype=np.int64)
    op_step = np.zeros(total, dtype=np.int64)
    op_size = np.ones(total, dtype=np.int64)
    dim_offsets = np.zeros(total + 1, dtype=np.int64)
    dim_split = np.zeros(total, dtype=np.int64)
    lengths = np.empty(dims, dtype=np.int64)
    strides = np.empty(dims, dtype=np.int64)
    stride_of = np.zeros(n, dtype=np.int64)
    at = 0
    for b in range(n):
        separator = seps[sep_offsets[b] : sep_offsets[b + 1]]
        grown = len(separator)
        size = 1
        for o in range(op_offsets[b], op_offsets[b + 1]):
            i = rows[o]
            if i < m:
                op_factor[o] = i
                op_start[o] = table_offsets[i]
                axes = place[scopes[scope_offsets[i] : scope_offsets[i + 1]]]
            else:
                op_child[o] = i - m
                op_start[o] = message_offsets[i - m]
                axes = seps[sep_offsets[i - m] : sep_offsets[i - m + 1]].copy()
            _set_strides(axes, cards, stride_of)
            before = size
            while grown > 0 and separator[grown - 1] >= axis[i]:
                grown -= 1
                size *= cards[separator[grown]]
            op_size[o] = size
            op_step[o] = stride_of[b]
            dim_split[o], at = _merge_axes(
                cards, separator, size, stride_of, before, lengths, strides, at
            )
            dim_offsets[o + 1] = at
            for p in axes:
                stride_of[p] = 0
    return (
        op_offsets, op_factor, op_child, op_start, op_step, op_size, dim_offsets, dim_split,
        lengths[:at].copy(), strides[:at].copy(),
    )  # fmt: skip
