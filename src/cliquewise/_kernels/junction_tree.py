"""Message passing along an elimination plan (see :mod:`cliquewise._kernels.elimination`).

Upward, bucket ``b`` adds up its factors and its children's messages into a table
``t(v, separator)`` of logarithms and sends its log-sum-exp or maximum over ``v``. For
marginals the table is left as the conditional probability ``p(v | separator)``, so that
the downward pass only multiplies: one exponential per table entry in all, and no
subtraction of large logarithms.
"""

from __future__ import annotations

import numpy as np

from cliquewise._kernels import REASSOCIATE, kernel
from cliquewise._kernels.math import exp, log


@kernel
def _add(out, base, src, start, lengths, strides, first, last, counter):
    """out[base + i] += src[start + offset(i)] for all entries i of a bucket's table."""
    n = last - first
    inner = lengths[first] if n > 0 else 1
    s0 = strides[first] if n > 0 else 0
    middle = lengths[first + 1] if n > 1 else 1
    s1 = strides[first + 1] if n > 1 else 0
    for d in range(2, n):
        counter[d] = 0
    at, origin = base, start
    while True:
        for j in range(middle):
            o = origin + j * s1
            if s0 == 0:
                x = src[o]
                for i in range(inner):
                    out[at + i] += x
            elif s0 == 1:
                for i in range(inner):
                    out[at + i] += src[o + i]
            else:
                for i in range(inner):
                    out[at + i] += src[o + i * s0]
            at += inner
        d = 2
        while d < n:
            counter[d] += 1
            origin += strides[first + d]
            if counter[d] < lengths[first + d]:
                break
            origin -= counter[d] * strides[first + d]
            counter[d] = 0
            d += 1
        if d >= n:
            return


@kernel(fastmath=REASSOCIATE)
def _sum_into(dst, start, src, base, lengths, strides, first, last, counter):
    """The adjoint of ``_add``: dst[start + offset(i)] += src[base + i]."""
    n = last - first
    inner = lengths[first] if n > 0 else 1
    s0 = strides[first] if n > 0 else 0
    middle = lengths[first + 1] if n > 1 else 1
    s1 = strides[first + 1] if n > 1 else 0
    for d in range(2, n):
        counter[d] = 0
    at, origin = base, start
    while True:
        for j in range(middle):
            o = origin + j * s1
            if s0 == 0:
                x = 0.0
                for i in range(inner):
                    x += src[at + i]
                dst[o] += x
            elif s0 == 1:
                for i in range(inner):
                    dst[o + i] += src[at + i]
            else:
                for i in range(inner):
                    dst[o + i * s0] += src[at + i]
            at += inner
        d = 2
        while d < n:
            counter[d] += 1
            origin += strides[first + d]
            if counter[d] < lengths[first + d]:
                break
            origin -= counter[d] * strides[first + d]
            counter[d] = 0
            d += 1
        if d >= n:
            return


@kernel
def _max_into(dst, start, src, base, lengths, strides, first, last, counter):
    """Like ``_sum_into`` with a maximum."""
    n = last - first
    inner = lengths[first] if n > 0 else 1
    s0 = strides[first] if n > 0 else 0
    for d in range(1, n):
        counter[d] = 0
    at, origin = base, start
    while True:
        for i in range(inner):
            o = origin + i * s0
            dst[o] = max(dst[o], src[at + i])
        at += inner
        d = 1
        while d < n:
            counter[d] += 1
            origin += strides[first + d]
            if counter[d] < lengths[first + d]:
                break
            origin -= counter[d] * strides[first + d]
            counter[d] = 0
            d += 1
        if d >= n:
            return


@kernel
def _collect(plan, b, tables, messages, cliques, base, counter):
    """The table of bucket b: the sum of its factors and messages."""
    size = plan.clique_sizes[b]
    for i in range(base, base + size):
        cliques[i] = 0.0
    for o in range(plan.op_offsets[b], plan.op_offsets[b + 1]):
        src = tables if plan.op_factor[o] >= 0 else messages
        _add(
            cliques, base, src, plan.op_start[o], plan.lengths, plan.strides,
            plan.dim_offsets[o], plan.dim_offsets[o + 1], counter,
        )  # fmt: skip


@kernel
def upward_max(plan, tables, cliques, clique_offsets, messages):
    """Max-sum towards the roots; returns the best score."""
    counter = np.empty(128, dtype=np.int64)
    total = 0.0
    for b in range(len(plan.order)):
        base = clique_offsets[b]
        _collect(plan, b, tables, messages, cliques, base, counter)
        rows, width = plan.cards[b], plan.sep_sizes[b]
        m = plan.message_offsets[b]
        for s in range(width):
            messages[m + s] = cliques[base + s]
        for v in range(1, rows):
            row = base + v * width
            for s in range(width):
                messages[m + s] = max(messages[m + s], cliques[row + s])
        if plan.parent[b] < 0:
            total += messages[m]
    return total


@kernel(fastmath=REASSOCIATE)
def upward_sum(plan, tables, cliques, clique_offsets, messages, normalise):
    """Sum-product towards the roots; returns log Z and leaves p(v | separator) in the tables."""
    counter = np.empty(128, dtype=np.int64)
    widest = 1
    for b in range(len(plan.order)):
        widest = max(widest, plan.sep_sizes[b])
    top = np.empty(widest)
    total = 0.0
    for b in range(len(plan.order)):
        base = clique_offsets[b]
        _collect(plan, b, tables, messages, cliques, base, counter)
        rows, width = plan.cards[b], plan.sep_sizes[b]
        m = plan.message_offsets[b]
        if width == 1:
            value = -np.inf
            for v in range(rows):
                value = max(value, cliques[base + v])
            shift = value if value > -np.inf else 0.0
            mass = 0.0
            for v in range(rows):
                cliques[base + v] = exp(cliques[base + v] - shift)
                mass += cliques[base + v]
            messages[m] = shift + log(mass)
            if normalise:
                scale = 1.0 / mass if mass > 0.0 else 0.0
                for v in range(rows):
                    cliques[base + v] *= scale
        else:
            for s in range(width):
                top[s] = cliques[base + s]
            for v in range(1, rows):
                row = base + v * width
                for s in range(width):
                    top[s] = max(top[s], cliques[row + s])
            for s in range(width):
                top[s] = top[s] if top[s] > -np.inf else 0.0
                messages[m + s] = 0.0
            for v in range(rows):
                row = base + v * width
                for s in range(width):
                    x = exp(cliques[row + s] - top[s])
                    cliques[row + s] = x
                    messages[m + s] += x
            if normalise:
                for v in range(rows):
                    row = base + v * width
                    for s in range(width):
                        mass = messages[m + s]
                        cliques[row + s] *= (1.0 / mass) if mass > 0.0 else 0.0
            for s in range(width):
                messages[m + s] = top[s] + log(messages[m + s])
        if plan.parent[b] < 0:
            total += messages[m]
    return total


@kernel(fastmath=REASSOCIATE)
def downward_sum(plan, cliques, clique_offsets, separators, node_offsets, nodes,
                 factors):  # fmt: skip
    """From the roots down: joint = p(v | separator) p(separator), and its sums."""
    counter = np.empty(128, dtype=np.int64)
    separators[:] = 0.0
    factors[:] = 0.0
    for b in range(len(plan.order) - 1, -1, -1):
        base, rows, width = clique_offsets[b], plan.cards[b], plan.sep_sizes[b]
        m = plan.message_offsets[b]
        if plan.parent[b] < 0:
            separators[m] = 1.0
        mass = 0.0
        for s in range(width):
            mass += separators[m + s]
        # Rounding errors would add up along a path of many thousand buckets.
        scale = 1.0 / mass
        for s in range(width):
            separators[m + s] *= scale
        node = node_offsets[plan.order[b]]
        for v in range(rows):
            row = base + v * width
            p = 0.0
            for s in range(width):
                x = cliques[row + s] * separators[m + s]
                cliques[row + s] = x
                p += x
            nodes[node + v] = p
        for o in range(plan.op_offsets[b], plan.op_offsets[b + 1]):
            dst = factors if plan.op_factor[o] >= 0 else separators
            _sum_into(
                dst, plan.op_start[o], cliques, base, plan.lengths, plan.strides,
                plan.dim_offsets[o], plan.dim_offsets[o + 1], counter,
            )  # fmt: skip


@kernel
def downward_max(plan, cliques, clique_offsets, messages, best, node_offsets, nodes):
    """From the roots down: the best total score for every table entry, and its maxima."""
    counter = np.empty(128, dtype=np.int64)
    best[:] = -np.inf
    total = 0.0
    for b in range(len(plan.order)):
        if plan.parent[b] < 0:
            total += messages[plan.message_offsets[b]]
    for b in range(len(plan.order) - 1, -1, -1):
        base, rows, width = clique_offsets[b], plan.cards[b], plan.sep_sizes[b]
        m = plan.message_offsets[b]
        if plan.parent[b] < 0:
            best[m] = total
        for s in range(width):
            # What the rest of the graph adds; where the message forbids, all is forbidden.
            up = messages[m + s]
            best[m + s] = best[m + s] - up if up > -np.inf else -np.inf
        node = node_offsets[plan.order[b]]
        for v in range(rows):
            row = base + v * width
            x = -np.inf
            for s in range(width):
                cliques[row + s] += best[m + s]
                x = max(x, cliques[row + s])
            nodes[node + v] = x
        for o in range(plan.op_offsets[b], plan.op_offsets[b + 1]):
            if plan.op_factor[o] < 0:
                _max_into(
                    best, plan.op_start[o], cliques, base, plan.lengths, plan.strides,
                    plan.dim_offsets[o], plan.dim_offsets[o + 1], counter,
                )  # fmt: skip


@kernel
def _column(plan, b, places):
    """Where the separator's present states stand in a row of bucket b's table."""
    s = 0
    for i in range(plan.sep_offsets[b], plan.sep_offsets[b + 1]):
        p = plan.seps[i]
        s = s * plan.cards[p] + places[p]
    return s


@kernel
def _entry(plan, b, tables, messages, index):
    """One entry of bucket b's table, without making the table."""
    x = 0.0
    for o in range(plan.op_offsets[b], plan.op_offsets[b + 1]):
        at, rest = plan.op_start[o], index
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
            x = _entry(plan, b, tables, messages, v * plan.sep_sizes[b] + s)
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
            width = plan.sep_sizes[b]
            here = _entry(plan, b, tables, messages, found[r, b] * width + s)
            for v in range(plan.cards[b]):
                if v == found[r, b]:
                    continue
                x = score - (here - _entry(plan, b, tables, messages, v * width + s))
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
    """One labeling per row of ``uniforms``, from the tables p(v | separator)."""
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
