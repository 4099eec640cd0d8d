"""Message passing along an elimination plan (see :mod:`cliquewise._kernels.graphs.elimination`).

Upward, bucket ``b`` builds its table ``t(v, separator)`` of logarithms and sends its log-sum-exp or
maximum over ``v``. Downward the table is ``p(v | separator)``: kept from the way up, or, where all
tables together are large, built once more; never by a subtraction of large logarithms. The
marginals of a child's separator overwrite the child's message.
"""

from __future__ import annotations

import numpy as np

from cliquewise._kernels import REASSOCIATE, kernel
from cliquewise._kernels.common.math import exp, log
from cliquewise._kernels.graphs.buckets import (
    build,
    forget,
    new_counter,
    raise_to,
    spread_maxima,
    spread_sums,
    total_of,
)

#: Table entries that are normalized together: 16 kB, half of a first-level cache.
CHUNK = 2048


@kernel
def upward_max(plan, tables, messages, work):
    """Do max-sum towards the roots; return the best score."""
    counter = new_counter()
    total = 0.0
    for b in range(len(plan.order)):
        build(plan, b, tables, messages, work, 0, counter)
        m, width = plan.message_offsets[b], plan.sep_sizes[b]
        message = messages[m : m + width]
        for s in range(width):
            message[s] = work[s]
        for row in range(width, plan.clique_sizes[b], width):
            raise_to(message, work[row : row + width])
        if plan.parent[b] < 0:
            total += message[0]
    return total


@kernel(fastmath=REASSOCIATE)
def _exp_row(row, top, mass):
    """Compute ``row = exp(row - top)`` and ``mass += row``."""
    for s in range(row.shape[0]):
        x = exp(row[s] - top[s])
        row[s] = x
        mass[s] += x


@kernel(fastmath=REASSOCIATE)
def _scale_row(row, scale):
    """Multiply a row by ``scale``; return its sum."""
    total = 0.0
    for s in range(row.shape[0]):
        x = row[s] * scale[s]
        row[s] = x
        total += x
    return total


@kernel
def _exponentiate(table, base, end, width, count, top, mass):
    """Compute ``exp(table - top)`` of ``count`` columns; top is their maximum, mass their sum."""
    for s in range(count):
        top[s] = table[base + s]
    for row in range(base + width, end, width):
        raise_to(top, table[row : row + count])
    for s in range(count):
        # Where nothing is possible, 0 - and not the NaN of -inf - (-inf).
        top[s] = top[s] if top[s] > -np.inf else 0.0
    mass[:] = 0.0
    for row in range(base, end, width):
        _exp_row(table[row : row + count], top, mass)


@kernel
def _log_masses(top, mass, message):
    for s in range(message.shape[0]):
        message[s] = top[s] + log(mass[s])


@kernel
def _divide(share, mass):
    """Compute ``share / mass`` in ``mass``, 0 where the mass is 0."""
    for s in range(mass.shape[0]):
        mass[s] = share[s] / mass[s] if mass[s] > 0.0 else 0.0


@kernel
def upward_sum(plan, tables, messages, cliques, clique_offsets, keep):
    """Do sum-product towards the roots; return log Z. ``keep`` stores p(v | separator)."""
    counter = new_counter()
    buffers = np.empty((2, CHUNK))
    ones = np.ones(CHUNK)
    total = 0.0
    for b in range(len(plan.order)):
        base, end = clique_offsets[b], clique_offsets[b] + plan.clique_sizes[b]
        build(plan, b, tables, messages, cliques, base, counter)
        width, m = plan.sep_sizes[b], plan.message_offsets[b]
        step = max(CHUNK // plan.cards[b], 8)
        for first in range(0, width, step):
            count = min(step, width - first)
            top, mass = buffers[0, :count], buffers[1, :count]
            _exponentiate(cliques, base + first, end, width, count, top, mass)
            _log_masses(top, mass, messages[m + first : m + first + count])
            if keep:
                _divide(ones, mass)
                for row in range(base + first, end, width):
                    _scale_row(cliques[row : row + count], mass)
        if plan.parent[b] < 0:
            total += messages[m]
    return total


@kernel
def downward_sum(
    plan, tables, messages, cliques, clique_offsets, kept, node_offsets, nodes, factors
):
    """Do sum-product from the roots: add up ``p(v | separator) p(separator)``."""
    counter = new_counter()
    buffers = np.empty((2, CHUNK))
    factors[:] = 0.0
    nodes[:] = 0.0
    for b in range(len(plan.order) - 1, -1, -1):
        width, m, base = plan.sep_sizes[b], plan.message_offsets[b], clique_offsets[b]
        share = messages[m : m + width]
        if plan.parent[b] < 0:
            share[0] = 1.0
        if not kept:
            build(plan, b, tables, messages, cliques, base, counter)
        forget(plan, b, messages, 0.0)
        # Rounding errors would add up along a path of many thousand buckets.
        scale = 1.0 / total_of(share)
        for s in range(width):
            share[s] *= scale
        node = node_offsets[plan.order[b]]
        step = max(CHUNK // plan.cards[b], 8)
        for first in range(0, width, step):
            count = min(step, width - first)
            part = share[first : first + count]
            if not kept:
                top, mass = buffers[0, :count], buffers[1, :count]
                end = base + plan.clique_sizes[b]
                _exponentiate(cliques, base + first, end, width, count, top, mass)
                _divide(part, mass)
                part = mass
            for v in range(plan.cards[b]):
                row = base + v * width + first
                nodes[node + v] += _scale_row(cliques[row : row + count], part)
        spread_sums(plan, b, cliques, base, factors, messages, counter)


@kernel
def _subtract_possible(best, top):
    """Compute ``best - top``, the score of the rest of the graph; -inf stays -inf."""
    for s in range(top.shape[0]):
        x = top[s]
        top[s] = best[s] - x if x > -np.inf else -np.inf


@kernel
def _add_row(row, rest):
    """Add ``rest`` to a row; return its maximum."""
    high = -np.inf
    for s in range(row.shape[0]):
        x = row[s] + rest[s]
        row[s] = x
        high = x if x > high else high
    return high


@kernel
def downward_max(plan, tables, messages, work, total, node_offsets, nodes):
    """Do max-sum from the roots: the best total score of every table entry, and its maxima."""
    counter = new_counter()
    buffer = np.empty(CHUNK)
    nodes[:] = -np.inf
    for b in range(len(plan.order) - 1, -1, -1):
        width, m = plan.sep_sizes[b], plan.message_offsets[b]
        if plan.parent[b] < 0:
            messages[m] = total
        build(plan, b, tables, messages, work, 0, counter)
        forget(plan, b, messages, -np.inf)
        node = node_offsets[plan.order[b]]
        step = max(CHUNK // plan.cards[b], 8)
        for first in range(0, width, step):
            count = min(step, width - first)
            top = buffer[:count]
            for s in range(count):
                top[s] = work[first + s]
            for row in range(width + first, plan.clique_sizes[b], width):
                raise_to(top, work[row : row + count])
            _subtract_possible(messages[m + first : m + first + count], top)
            for v in range(plan.cards[b]):
                row = v * width + first
                high = _add_row(work[row : row + count], top)
                nodes[node + v] = max(nodes[node + v], high)
        spread_maxima(plan, b, work, 0, messages, counter)


@kernel
def _column(plan, b, places):
    """Return the column of the separator's current states in bucket b's table."""
    s = 0
    for i in range(plan.sep_offsets[b], plan.sep_offsets[b + 1]):
        p = plan.seps[i]
        s = s * plan.cards[p] + places[p]
    return s


@kernel
def _entry(plan, b, tables, messages, v, s):
    """Entry (v, s) of bucket b's table, without making the table."""
    x = 0.0
    for o in range(plan.op_offsets[b], plan.op_offsets[b + 1]):
        at, rest = plan.op_start[o] + v * plan.op_step[o], s
        for d in range(plan.dim_offsets[o], plan.dim_offsets[o + 1]):
            length = plan.lengths[d]
            at += (rest % length) * plan.strides[d]
            rest //= length
        x += tables[at] if plan.op_factor[o] >= 0 else messages[at]
    return x


@kernel
def _descend(plan, tables, messages, places, start):
    """Best states of buckets start, start - 1, ..., 0 given those above."""
    for b in range(start, -1, -1):
        s = _column(plan, b, places)
        best = -np.inf
        places[b] = 0
        for v in range(plan.cards[b]):
            x = _entry(plan, b, tables, messages, v, s)
            if x > best:
                best = x
                places[b] = v


@kernel
def best_labels(plan, tables, messages):
    """The labeling that the max-sum messages lead to."""
    n = len(plan.order)
    places = np.zeros(n, dtype=np.int64)
    _descend(plan, tables, messages, places, n - 1)
    labels = np.empty(n, dtype=np.int64)
    for b in range(n):
        labels[plan.order[b]] = places[b]
    return labels


@kernel
def k_best(plan, tables, messages, best_score, k):
    """The k best labelings by deviations.

    The labelings other than ``x`` fall into disjoint sets: those that follow ``x`` from the
    root down to some bucket and take another state there. The messages give the best of
    each set without a search (what is lost at that bucket), so that after one upward pass
    each further labeling costs one walk down the buckets.
    """
    n = len(plan.order)
    found = np.zeros((k, n), dtype=np.int64)
    scores = np.full(k, -np.inf)
    # Candidates, best first: score, labeling to deviate from, bucket, state.
    c_score = np.full(k, -np.inf)
    c_from = np.zeros(k, dtype=np.int64)
    c_bucket = np.zeros(k, dtype=np.int64)
    c_state = np.zeros(k, dtype=np.int64)
    waiting = 1
    c_score[0] = best_score
    c_bucket[0] = n
    for r in range(k):
        if waiting == 0:
            return found[:r], scores[:r]
        score, source, bucket, state = c_score[0], c_from[0], c_bucket[0], c_state[0]
        waiting -= 1
        for i in range(waiting):
            c_score[i], c_from[i] = c_score[i + 1], c_from[i + 1]
            c_bucket[i], c_state[i] = c_bucket[i + 1], c_state[i + 1]
        scores[r] = score
        found[r] = found[source]
        if bucket < n:
            found[r, bucket] = state
        _descend(plan, tables, messages, found[r], bucket - 1)
        room = k - r - 1
        for b in range(bucket - 1, -1, -1):
            s = _column(plan, b, found[r])
            here = _entry(plan, b, tables, messages, found[r, b], s)
            for v in range(plan.cards[b]):
                if v == found[r, b]:
                    continue
                x = score - (here - _entry(plan, b, tables, messages, v, s))
                if x == -np.inf or (waiting >= room and (room == 0 or x <= c_score[room - 1])):
                    continue
                i = min(waiting, room - 1)
                while i > 0 and c_score[i - 1] < x:
                    c_score[i], c_from[i] = c_score[i - 1], c_from[i - 1]
                    c_bucket[i], c_state[i] = c_bucket[i - 1], c_state[i - 1]
                    i -= 1
                c_score[i], c_from[i], c_bucket[i], c_state[i] = x, r, b, v
                waiting = min(waiting + 1, room)
        waiting = min(waiting, room)
    return found, scores


@kernel
def draw(plan, cliques, clique_offsets, uniforms, labels):
    """Sample one labeling per row of ``uniforms`` from the tables p(v | separator)."""
    n = len(plan.order)
    places = np.zeros(n, dtype=np.int64)
    for r in range(len(uniforms)):
        for b in range(n - 1, -1, -1):
            s = _column(plan, b, places)
            u = uniforms[r, b]
            v, last = 0, 0
            for v in range(plan.cards[b]):
                p = cliques[clique_offsets[b] + v * plan.sep_sizes[b] + s]
                if p > 0.0:
                    last = v
                    u -= p
                    if u < 0.0:
                        break
            places[b] = last
            labels[r, plan.order[b]] = last
