"""Belief propagation on factors of any order, by urgency (Elidan et al. 2006).

A factor updates all of its messages at once, from one sum over its table. The next one is that
whose variables have changed most since its last update (the bound of Sutton and McCallum 2007), so
no message is computed only to find out whether it should be sent.

Sums are taken of exponentials relative to the largest entry of the table. A sum below `TINY` is
computed again relative to its own largest entry, so nothing that matters is lost by underflow.
"""

from collections import namedtuple

import numpy as np

from cliquewise._kernels import kernel
from cliquewise._kernels.graphs.pairwise import most_states

#: Logarithms of the messages to variables, each with its largest entry 0: the one of place p in
#: ``scopes`` begins at ``places[p]``. ``belief`` is their sum at every variable.
Flow = namedtuple("Flow", ["messages", "places", "belief", "node_offsets"])
#: Priority of each factor, a heap of factors with the largest on top, and the place of each in it.
Queue = namedtuple("Queue", ["urgency", "heap", "where"])
#: Scratch for one factor: incoming messages, sums for states of its variables, scores of its table.
Room = namedtuple("Room", ["said", "sums", "fresh", "scores", "digits", "starts", "moved"])

#: Sums below this share of the largest entry are computed again. Entries below 2e-308 underflow;
#: next to 1e-200 they do not matter.
TINY = 1e-200


@kernel(helper=True)
def rise(f, queue):
    """Restore the heap after the urgency of a factor has grown."""
    urgency, heap, where = queue
    at = where[f]
    while at > 0:
        above = (at - 1) // 2
        if urgency[heap[above]] >= urgency[f]:
            break
        heap[at] = heap[above]
        where[heap[at]] = at
        at = above
    heap[at] = f
    where[f] = at


@kernel(helper=True)
def sink(f, queue):
    """Restore the heap after the urgency of a factor has shrunk."""
    urgency, heap, where = queue
    at, n = where[f], len(heap)
    while 2 * at + 1 < n:
        below = 2 * at + 1
        if below + 1 < n and urgency[heap[below + 1]] > urgency[heap[below]]:
            below += 1
        if urgency[heap[below]] <= urgency[f]:
            break
        heap[at] = heap[below]
        where[heap[at]] = at
        at = below
    heap[at] = f
    where[f] = at


@kernel(helper=True)
def listen(f, factors, flow, room):
    """Collect the messages of the other factors of each variable; return False if one is zero.

    A message is -inf only where a state is impossible, and then remains so.
    """
    at, first = 0, factors.scope_offsets[f]
    for p in range(first, factors.scope_offsets[f + 1]):
        v = factors.scopes[p]
        k, own, sent = factors.cards[v], flow.node_offsets[v], flow.places[p]
        room.starts[p - first] = at
        top = -np.inf
        for x in range(k):
            value = flow.belief[own + x]
            value = value - flow.messages[sent + x] if value > -np.inf else -np.inf
            room.said[at + x] = value
            top = max(top, value)
        if top == -np.inf:
            return False
        for x in range(k):
            room.said[at + x] -= top
            room.sums[at + x] = 0.0
        at += k
    return True


@kernel(helper=True)
def add_up(f, factors, tables, room):
    """Compute scores of entries and their sums by state of each variable; return the largest."""
    first, last = factors.scope_offsets[f], factors.scope_offsets[f + 1]
    order, k = last - first, factors.cards[factors.scopes[last - 1]]
    base, end = factors.table_offsets[f], factors.table_offsets[f + 1]
    said, sums, scores, digits, starts = room.said, room.sums, room.scores, room.digits, room.starts
    inner, top = starts[order - 1], -np.inf
    for turn in range(2):  # scores, then sums below the largest of them
        for a in range(order):
            digits[a] = 0
        for row in range(0, end - base, k):
            if turn == 0:
                others = 0.0
                for a in range(order - 1):
                    others += said[starts[a] + digits[a]]
                for x in range(k):
                    scores[row + x] = tables[base + row + x] + others + said[inner + x]
                    top = max(top, scores[row + x])
            else:
                total = 0.0
                for x in range(k):
                    value = np.exp(scores[row + x] - top)
                    sums[inner + x] += value
                    total += value
                for a in range(order - 1):
                    sums[starts[a] + digits[a]] += total
            for a in range(order - 2, -1, -1):
                digits[a] += 1
                if digits[a] < factors.cards[factors.scopes[first + a]]:
                    break
                digits[a] = 0
        if top == -np.inf:
            break
    return top


@kernel(helper=True)
def log_sum_at(x, k, stride, size, scores):
    """Return the log-sum-exp of the entries with one state of one variable."""
    top, total = -np.inf, 0.0
    for e in range(size):
        if (e // stride) % k == x:
            top = max(top, scores[e])
    if top == -np.inf:
        return top
    for e in range(size):
        if (e // stride) % k == x:
            total += np.exp(scores[e] - top)
    return top + np.log(total)


@kernel(helper=True)
def renew(f, damping, factors, tables, flow, room):
    """Update the messages of a factor; return the largest change of a probability, or -1.

    -1 means that no state is possible.
    """
    if not listen(f, factors, flow, room):
        return -1.0
    top = add_up(f, factors, tables, room)
    if top == -np.inf:
        return -1.0
    first, fresh, worst = factors.scope_offsets[f], room.fresh, 0.0
    size = factors.table_offsets[f + 1] - factors.table_offsets[f]
    for p in range(first, factors.scope_offsets[f + 1]):
        v, at, sent = factors.scopes[p], room.starts[p - first], flow.places[p]
        k, own, peak = factors.cards[v], flow.node_offsets[v], -np.inf
        for x in range(k):
            said, total = room.said[at + x], room.sums[at + x]
            if said == -np.inf:
                fresh[x] = -np.inf
            elif total > TINY:
                fresh[x] = np.log(total) + top - said
            else:
                fresh[x] = log_sum_at(x, k, factors.strides[p], size, room.scores) - said
            peak = max(peak, fresh[x])
        if peak == -np.inf:
            return -1.0
        change, mixed = 0.0, -np.inf
        for x in range(k):
            fresh[x] -= peak
            old = flow.messages[sent + x]
            change = max(change, abs(np.exp(fresh[x]) - np.exp(old)))
            if fresh[x] > -np.inf:
                fresh[x] += damping * (old - fresh[x])
            mixed = max(mixed, fresh[x])
        for x in range(k):
            old, new = flow.messages[sent + x], fresh[x] - mixed
            flow.messages[sent + x] = new
            flow.belief[own + x] = flow.belief[own + x] + (new - old) if new > -np.inf else -np.inf
        room.moved[p - first] = change
        worst = max(worst, change)
    return worst


@kernel(helper=True)
def tell(f, damping, factors, queue, room):
    """Add the changes of a factor's messages to the urgency of its neighbors."""
    offsets = factors.scope_offsets
    for p in range(offsets[f], offsets[f + 1]):
        v, change = factors.scopes[p], (1.0 - damping) * room.moved[p - offsets[f]]
        for at in range(factors.starts[v], factors.starts[v + 1]):
            g = factors.members[at]
            if change > 0.0 and g != f and offsets[g + 1] - offsets[g] > 1:
                queue.urgency[g] += change
                rise(g, queue)


@kernel
def settle(most, tol, damping, factors, tables, flow, queue):
    """Renew up to so many factors, until no urgency is above ``tol``; how many, their changes.

    -1 factors: nothing is possible. Beliefs are taken from the messages first, so that rounding
    does not add up.
    """
    widest, order, largest = most_states(factors.cards), 1, 1
    for f in range(len(queue.heap)):
        order = max(order, factors.scope_offsets[f + 1] - factors.scope_offsets[f])
        largest = max(largest, factors.table_offsets[f + 1] - factors.table_offsets[f])
    room = Room(
        np.empty(order * widest), np.empty(order * widest), np.empty(widest), np.empty(largest),
        np.zeros(order, dtype=np.int64), np.zeros(order, dtype=np.int64), np.empty(order),
    )  # fmt: skip
    for i in range(len(flow.belief)):
        flow.belief[i] = 0.0
    for p in range(len(factors.scopes)):
        v = factors.scopes[p]
        for x in range(factors.cards[v]):
            flow.belief[flow.node_offsets[v] + x] += flow.messages[flow.places[p] + x]
    total = 0.0
    for made in range(most):
        f = queue.heap[0]
        if queue.urgency[f] <= tol:
            return made, total
        change = renew(f, damping, factors, tables, flow, room)
        if change < 0.0:
            return -1, total
        total += change
        queue.urgency[f] = damping * change
        sink(f, queue)
        tell(f, damping, factors, queue, room)
    return most, total
