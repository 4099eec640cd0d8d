"""The best and the K best derivations of a directed acyclic hypergraph.

The arrays are those of ``sums.py``. The K best are found by the lazy algorithm (Algorithm 3) of
Huang and Chiang, "Better k-best parsing" (2005): a node keeps a heap of candidates, and looks for
its next derivation only if a derivation above it needs one. A candidate is an edge with the rank
of the derivation of each of its tails. Its successors raise one rank, at or after the last nonzero
rank, so every combination has exactly one predecessor.
"""

from collections import namedtuple

import numpy as np

from cliquewise._kernels import kernel

#: Arrays of a search for the K best. Candidates of node ``v`` are numbered from ``starts[v]``;
#: ``edges``, ``ranks`` (one row per candidate) and ``keys`` describe them, ``heap`` orders those
#: not taken yet, and ``ranked[v]`` lists the best ones. By node: ``counts`` of ranked ones,
#: ``sizes`` of heaps (-1 before they exist), and ``pending``, the next tail whose rank is to be
#: raised in the last ranked one (-1 if none). ``stack`` holds nodes and the counts they need.
Search = namedtuple("Search", "starts edges ranks keys heap ranked counts sizes pending stack")


@kernel
def best(edge_offsets, tail_offsets, tails, parts, scores, delta, chosen):
    """Fill the best score of every node, and the edge that attains it (-1 if there is none)."""
    for v in range(len(edge_offsets) - 1):
        high, edge = -np.inf, -1
        for e in range(edge_offsets[v], edge_offsets[v + 1]):
            score = scores[parts[e]]
            for i in range(tail_offsets[e], tail_offsets[e + 1]):
                score += delta[tails[i]]
            if score > high:
                high, edge = score, e
        delta[v] = high
        chosen[v] = edge


@kernel
def follow(tail_offsets, tails, chosen, root, stack, found):
    """List the edges of the best derivation, parents first; return their number, or -1."""
    stack[0] = root
    depth, count = 1, 0
    while depth > 0:
        depth -= 1
        edge = chosen[stack[depth]]
        room = depth + tail_offsets[edge + 1] - tail_offsets[edge]
        if count >= len(found) or room > len(stack):
            return -1
        found[count] = edge
        count += 1
        for i in range(tail_offsets[edge + 1] - 1, tail_offsets[edge] - 1, -1):
            stack[depth] = tails[i]
            depth += 1
    return count


@kernel(inline=True)
def _sift_up(heap, keys, start, at):
    """Restore the heap after the entry at position ``at`` was added; the best key comes first."""
    entry = heap[start + at]
    while at > 0:
        parent = (at - 1) // 2
        if keys[heap[start + parent]] >= keys[entry]:
            break
        heap[start + at] = heap[start + parent]
        at = parent
    heap[start + at] = entry


@kernel(inline=True)
def _pop(heap, keys, start, size):
    """Remove and return the best entry of a heap of the given size."""
    top = heap[start]
    entry = heap[start + size - 1]
    size -= 1
    at = 0
    while True:
        child = 2 * at + 1
        if child >= size:
            break
        if child + 1 < size and keys[heap[start + child + 1]] > keys[heap[start + child]]:
            child += 1
        if keys[heap[start + child]] <= keys[entry]:
            break
        heap[start + at] = heap[start + child]
        at = child
    if size > 0:
        heap[start + at] = entry
    return top


@kernel
def top_k(edge_offsets, tail_offsets, tails, parts, scores, delta, root, k, search):
    """Find the ``k`` best derivations of the root; return their number."""
    starts, edges, ranks, keys = search.starts, search.edges, search.ranks, search.keys
    heap, ranked, counts = search.heap, search.ranked, search.counts
    sizes, pending, stack = search.sizes, search.pending, search.stack
    made = np.zeros(len(edge_offsets) - 1, dtype=np.int64)
    for v in range(len(sizes)):
        sizes[v], counts[v], pending[v] = -1, 0, -1
    stack[0, 0], stack[0, 1] = root, k
    depth = 1
    while depth > 0:
        v, wanted = stack[depth - 1, 0], stack[depth - 1, 1]
        start = starts[v]
        if sizes[v] < 0:  # the candidates that use the best derivation of every tail
            sizes[v] = 0
            for e in range(edge_offsets[v], edge_offsets[v + 1]):
                score = scores[parts[e]]
                for i in range(tail_offsets[e], tail_offsets[e + 1]):
                    score += delta[tails[i]]
                if score > -np.inf:
                    c = start + made[v]
                    made[v] += 1
                    edges[c], keys[c] = e, score
                    for i in range(ranks.shape[1]):
                        ranks[c, i] = 0
                    heap[start + sizes[v]] = c
                    sizes[v] += 1
                    _sift_up(heap, keys, start, sizes[v] - 1)
        if counts[v] >= wanted:
            depth -= 1
            continue
        waiting = False
        while pending[v] >= 0:
            last = ranked[v, counts[v] - 1]
            e = edges[last]
            i = pending[v]
            if i >= tail_offsets[e + 1] - tail_offsets[e]:
                pending[v] = -1
                break
            t = tails[tail_offsets[e] + i]
            rank = ranks[last, i] + 1
            if counts[t] <= rank and (sizes[t] != 0 or pending[t] >= 0):
                stack[depth, 0], stack[depth, 1] = t, rank + 1
                depth += 1
                waiting = True
                break
            if counts[t] > rank:
                c = start + made[v]
                made[v] += 1
                edges[c] = e
                score = scores[parts[e]]
                for j in range(tail_offsets[e + 1] - tail_offsets[e]):
                    ranks[c, j] = ranks[last, j]
                    if j == i:
                        ranks[c, j] = rank
                    tail = tails[tail_offsets[e] + j]
                    if ranks[c, j] == 0:
                        score += delta[tail]
                    else:
                        score += keys[ranked[tail, ranks[c, j]]]
                keys[c] = score
                heap[start + sizes[v]] = c
                sizes[v] += 1
                _sift_up(heap, keys, start, sizes[v] - 1)
            pending[v] = i + 1
        if waiting:
            continue
        if sizes[v] == 0:
            depth -= 1  # there are no more derivations of this node
            continue
        c = _pop(heap, keys, start, sizes[v])
        sizes[v] -= 1
        ranked[v, counts[v]] = c
        counts[v] += 1
        e = edges[c]
        first = 0
        for i in range(tail_offsets[e + 1] - tail_offsets[e]):
            if ranks[c, i] > 0:
                first = i
        pending[v] = first if tail_offsets[e + 1] > tail_offsets[e] else -1
    return counts[root]


@kernel
def follow_ranked(tail_offsets, tails, search, root, rank, chosen, stack, found):
    """List the edges of the derivation of a given rank; return their number, or -1.

    ``chosen`` holds the best edge of the nodes that were not ranked.
    """
    edges, ranks, ranked, counts = search.edges, search.ranks, search.ranked, search.counts
    stack[0, 0], stack[0, 1] = root, rank
    depth, count = 1, 0
    while depth > 0:
        depth -= 1
        v, r = stack[depth, 0], stack[depth, 1]
        c = np.int64(-1)
        if counts[v] > r:
            c = ranked[v, r]
        edge = edges[c] if c >= 0 else chosen[v]
        room = depth + tail_offsets[edge + 1] - tail_offsets[edge]
        if count >= len(found) or room > len(stack):
            return -1
        found[count] = edge
        count += 1
        for i in range(tail_offsets[edge + 1] - tail_offsets[edge] - 1, -1, -1):
            stack[depth, 0] = tails[tail_offsets[edge] + i]
            stack[depth, 1] = ranks[c, i] if c >= 0 else 0
            depth += 1
    return count
