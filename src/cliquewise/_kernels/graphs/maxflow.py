"""Maximum flow with two search trees (Boykov and Kolmogorov 2004), on undirected or directed arcs.

Arcs lie in CSR order by tail: ``first[i]:first[i + 1]`` leave node ``i``, ``head`` is where an
arc leads, ``sister`` the reverse arc, ``residual`` what it can still carry. ``terminal[i]`` is
the residual capacity from the source to ``i`` if positive, from ``i`` to the sink if negative.

Trees: ``parent[i]`` is the arc from ``i`` towards its root (for either tree), or one of the
marks below. ``stamp`` and ``distance`` cache how far the root is known to be.
"""

from collections import namedtuple

import numpy as np

from cliquewise._kernels import kernel

FREE = -1
ROOT = -2
ORPHAN = -3
FAR = np.int32(2**30)

Arcs = namedtuple("Arcs", ["first", "head", "sister", "residual"])
Forest = namedtuple("Forest", ["parent", "in_sink", "stamp", "distance"])
#: Nodes to look at, in a ring, and whether each is in it.
Queue = namedtuple("Queue", ["ring", "waiting"])


@kernel
def arcs_of(n, left, right):
    """CSR arrays (first, head, sister, arc) of edges; edge e has arcs arc[2e] and arc[2e+1]."""
    m = len(left)
    first = np.zeros(n + 1, dtype=np.int32)
    for e in range(m):
        first[left[e] + 1] += 1
        first[right[e] + 1] += 1
    for i in range(n):
        first[i + 1] += first[i]
    fill = first[:-1].copy()
    head = np.empty(2 * m, dtype=np.int32)
    sister = np.empty(2 * m, dtype=np.int32)
    arc = np.empty(2 * m, dtype=np.int32)
    for e in range(m):
        i, j = left[e], right[e]
        a, b = fill[i], fill[j]
        fill[i] += 1
        fill[j] += 1
        head[a], head[b] = j, i
        sister[a], sister[b] = b, a
        arc[2 * e], arc[2 * e + 1] = a, b
    return first, head, sister, arc


@kernel
def augment(i, j, bridge, terminal, residual, head, sister, parent, orphans):
    """Send flow along root - i - bridge - j - root; saturated links make orphans.

    ``i`` is in the source tree, ``j`` in the sink tree. Returns (flow, number of orphans).
    """
    flow = residual[bridge]
    at = i
    while parent[at] != ROOT:
        a = parent[at]
        flow = min(flow, residual[sister[a]])
        at = head[a]
    flow = min(flow, terminal[at])
    at = j
    while parent[at] != ROOT:
        a = parent[at]
        flow = min(flow, residual[a])
        at = head[a]
    flow = min(flow, -terminal[at])

    count = 0
    residual[bridge] -= flow
    residual[sister[bridge]] += flow
    at = i
    while parent[at] != ROOT:
        a = parent[at]
        b = sister[a]
        residual[a] += flow
        residual[b] -= flow
        if residual[b] <= 0.0:
            parent[at] = ORPHAN
            orphans[count] = at
            count += 1
        at = head[a]
    terminal[at] -= flow
    if terminal[at] <= 0.0:
        parent[at] = ORPHAN
        orphans[count] = at
        count += 1
    at = j
    while parent[at] != ROOT:
        a = parent[at]
        residual[sister[a]] += flow
        residual[a] -= flow
        if residual[a] <= 0.0:
            parent[at] = ORPHAN
            orphans[count] = at
            count += 1
        at = head[a]
    terminal[at] += flow
    if terminal[at] >= 0.0:
        parent[at] = ORPHAN
        orphans[count] = at
        count += 1
    return flow, count


@kernel
def origin_distance(j, clock, head, parent, stamp, distance):
    """Distance of ``j`` from its root, FAR if it hangs on an orphan; caches it along the way."""
    d = np.int32(0)
    at = j
    while True:
        if stamp[at] == clock:
            d += distance[at]
            break
        a = parent[at]
        d += np.int32(1)
        if a == ROOT:
            stamp[at] = clock
            distance[at] = 1
            break
        if a == ORPHAN:
            return FAR
        at = head[a]
    back = d
    at = j
    while stamp[at] != clock:
        stamp[at] = clock
        distance[at] = back
        back -= np.int32(1)
        at = head[parent[at]]
    return d


@kernel
def adopt(i, clock, first, head, sister, residual, parent, in_sink, stamp, distance):
    """Find a new parent of orphan ``i`` in its own tree; returns whether there was one."""
    best, best_distance = FREE, FAR
    sink = in_sink[i]
    for a in range(first[i], first[i + 1]):
        capacity = residual[a] if sink else residual[sister[a]]
        if capacity <= 0.0:
            continue
        j = head[a]
        if in_sink[j] != sink or parent[j] == FREE or parent[j] == ORPHAN:
            continue
        d = origin_distance(j, clock, head, parent, stamp, distance)
        if d < best_distance:
            best, best_distance = a, d
    parent[i] = best
    if best == FREE:
        return False
    stamp[i] = clock
    distance[i] = best_distance + np.int32(1)
    return True


@kernel(inline=True)
def wait_in(queue, j, end):
    """Put a node that is not waiting into the ring of those to look at; the ring's new end."""
    if queue.waiting[j]:
        return end
    queue.waiting[j] = True
    queue.ring[end] = j
    return end + 1 if end + 1 < len(queue.ring) else 0


@kernel(inline=True)
def expand(i, arcs, forest, queue, end):
    """Grow the tree of node ``i``; an arc to the other tree (-1 if none) and the queue's end."""
    first, head, sister, residual = arcs
    parent, in_sink, stamp, distance = forest
    sink = in_sink[i]
    bridge = -1
    for a in range(first[i], first[i + 1]):
        capacity = residual[sister[a]] if sink else residual[a]
        if capacity <= 0.0:
            continue
        j = head[a]
        if parent[j] == FREE:
            in_sink[j] = sink
            parent[j] = sister[a]
            stamp[j] = stamp[i]
            distance[j] = distance[i] + np.int32(1)
            end = wait_in(queue, j, end)
        elif in_sink[j] != sink:
            bridge = a
            break
        elif stamp[j] <= stamp[i] and distance[j] > distance[i]:
            parent[j] = sister[a]  # a shorter way to the root
            stamp[j] = stamp[i]
            distance[j] = distance[i] + np.int32(1)
    return bridge, end


@kernel(inline=True)
def settle(orphans, count, clock, arcs, forest, queue, end):
    """Adopt the orphans or set them free; the queue's new end.

    They are taken in the order of the list, those that they make from its end.
    """
    first, head, sister, residual = arcs
    parent, in_sink, stamp, distance = forest
    at = 0
    while at < count:
        o = orphans[at]
        at += 1
        if adopt(o, clock, first, head, sister, residual, parent, in_sink, stamp, distance):
            continue
        side = in_sink[o]
        for a in range(first[o], first[o + 1]):
            j = head[a]
            if in_sink[j] != side or parent[j] == FREE:
                continue
            capacity = residual[a] if side else residual[sister[a]]
            if capacity > 0.0:
                end = wait_in(queue, j, end)
            if parent[j] >= 0 and head[parent[j]] == o:
                parent[j] = ORPHAN
                if count == len(orphans):
                    # Free space: the part already processed is not needed.
                    count -= at
                    for k in range(count):
                        orphans[k] = orphans[at + k]
                    at = 0
                orphans[count] = j
                count += 1
    return end


@kernel
def max_flow(first, head, sister, residual, terminal, in_source):
    """Push all flow; ``residual`` and ``terminal`` become those of the flow.

    ``in_source[i]`` is set to whether the source still reaches ``i`` (the smallest minimum
    cut). Returns the flow.
    """
    n = len(terminal)
    parent, in_sink = np.full(n, FREE, dtype=np.int32), np.zeros(n, dtype=np.bool_)
    stamp, distance = np.zeros(n, dtype=np.int32), np.zeros(n, dtype=np.int32)
    queue = Queue(np.empty(n + 1, dtype=np.int32), np.zeros(n, dtype=np.bool_))
    orphans = np.empty(max(2 * n, 4), dtype=np.int32)
    arcs, forest = Arcs(first, head, sister, residual), Forest(parent, in_sink, stamp, distance)
    begin, end = 0, 0
    for i in range(n):
        if terminal[i] != 0.0:
            parent[i] = ROOT
            in_sink[i] = terminal[i] < 0.0
            distance[i] = 1
            end = wait_in(queue, i, end)
    total = 0.0
    clock = np.int32(0)
    current = -1
    while True:
        # A node that found a path is looked at again before the next one.
        if current >= 0 and parent[current] == FREE:
            current = -1
        while current < 0 and begin != end:
            i = queue.ring[begin]
            begin = begin + 1 if begin + 1 < len(queue.ring) else 0
            queue.waiting[i] = False
            if parent[i] != FREE:
                current = i
        if current < 0:
            break
        i = current
        bridge, end = expand(i, arcs, forest, queue, end)
        if bridge < 0:
            current = -1
            continue
        clock += np.int32(1)
        source_end, sink_end, arc = i, head[bridge], bridge
        if in_sink[i]:
            source_end, sink_end, arc = head[bridge], i, sister[bridge]
        flow, count = augment(
            source_end, sink_end, arc, terminal, residual, head, sister, parent, orphans
        )
        total += flow
        end = settle(orphans, count, clock, arcs, forest, queue, end)
    for i in range(n):
        in_source[i] = parent[i] != FREE and not in_sink[i]
    return total


@kernel
def cut_max_marginals(first, head, sister, residual, terminal, labels, penalty, loss):
    """How much the best score falls when each node is forced to the other side.

    Starts every time from the residual graph of the optimal flow, so that only the extra
    flow is computed (Algorithm 11 of casimir, warm started).
    """
    n = len(terminal)
    in_source = np.empty(n, dtype=np.bool_)
    for i in range(n):
        r, t = residual.copy(), terminal.copy()
        # A node on the source side (label 0) is tied to the sink, and the other way round.
        t[i] += -penalty if labels[i] == 0 else penalty
        # Terminal residuals of both signs cancel: that much flow passes through the node.
        through = min(abs(terminal[i]), penalty) if terminal[i] * t[i] < 0.0 else 0.0
        loss[i] = through + max_flow(first, head, sister, r, t, in_source)
