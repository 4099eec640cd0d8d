"""Segments, runs of wrong labels, as the dual variables of max-margin chains: their storage.

`chain.bcfw` explains why weights of segments are combinations of labelings.
"""

from __future__ import annotations

from collections import namedtuple

import numpy as np

from cliquewise._kernels import kernel
from cliquewise._kernels.chain.features import mask_rows
from cliquewise._kernels.chain.hinge import (
    add_segment,
    clear_segment,
    cost_of_labels,
    segment_score,
)
from cliquewise._kernels.chain.sparse import add_link
from cliquewise._kernels.chain.sums import longest
from cliquewise._kernels.common.simd import no_unroll

#: Segments of all examples: linked lists over one pool. ``head`` (-1: none) is per example;
#: ``next``, ``start`` (of its labels in ``labels``), ``begin`` (its first position), ``length``,
#: ``alpha``, ``norm`` (squared, of its features less those of the truth) and ``idle`` (exact
#: visits since it last mattered) are per segment; ``used`` counts segments and labels.
Segments = namedtuple(
    "Segments",
    ["head", "next", "start", "begin", "length", "alpha", "norm", "idle", "labels", "used",
     "gaps", "tree"],
)  # fmt: skip

#: What ``used`` counts.
SEGMENTS, LABELS = 0, 1

#: One example during a visit: its tokens, its segments, and scratch for each of them.
Visit = namedtuple("Visit", ["ids", "value", "beta", "chosen", "nearby", "cover"])

#: The weights, and zeros of the same size: scratch for directions of steps.
Weights = namedtuple("Weights", ["w", "direction"])


@kernel(helper=True)
def segment_cost(chains, pool, a, first):
    """Return the cost of the labels of segment ``a``, which are all wrong."""
    no_unroll()
    if chains.costs.shape[0] == 0:
        return float(pool.length[a])
    return cost_of_labels(chains, first + pool.begin[a], pool.labels, pool.start[a], pool.length[a])


@kernel(helper=True)
def segment_value(chains, pool, weights, a, first, last):
    """Return H, the cost plus the score, of segment ``a``."""
    no_unroll()
    return segment_cost(chains, pool, a, first) + segment_score(
        chains, weights.w, first, last, pool.labels, pool.start[a], pool.begin[a], pool.length[a]
    )


@kernel(helper=True)
def add_features_of(chains, pool, a, first, last, factor, out):
    """Add ``factor`` times the features of segment ``a`` less the gold ones to ``out``."""
    no_unroll()
    return add_segment(
        chains, first, last, pool.labels, pool.start[a], pool.begin[a], pool.length[a], factor, out
    )


@kernel(helper=True)
def clear_features_of(chains, pool, a, first, last, out):
    """Set the weights that `add_features_of` may have changed to zero."""
    no_unroll()
    clear_segment(
        chains, first, last, pool.labels, pool.start[a], pool.begin[a], pool.length[a], out
    )


@kernel(helper=True)
def shift(chains, pool, weights, visit, a, first, last, amount, pull):
    """Change the weight of segment ``a``, and w with it."""
    no_unroll()
    add_features_of(chains, pool, a, first, last, -pull * amount, weights.w)
    pool.alpha[a] = max(pool.alpha[a] + amount, 0.0)
    for c in range(pool.begin[a], pool.begin[a] + pool.length[a] + 1):
        visit.cover[c] += amount


@kernel(helper=True)
def room_of(pool, visit, a):
    """Return how much the weight of segment ``a`` may rise."""
    no_unroll()
    most = 0.0
    for c in range(pool.begin[a], pool.begin[a] + pool.length[a] + 1):
        most = max(most, visit.cover[c])
    return 1.0 - most


@kernel(helper=True)
def _find(pool, visit, count, labels, begin, length):
    """Return the number of the segment with these labels at this place, -1 if there is none."""
    no_unroll()
    for k in range(count):
        a = visit.ids[k]
        if pool.begin[a] == begin and pool.length[a] == length:
            same = True
            for t in range(length):
                same = same and pool.labels[pool.start[a] + t] == labels[begin + t]
            if same:
                return k
    return -1


@kernel(helper=True)
def _insert(chains, pool, weights, visit, count, i, labels, begin, length, first, last, pull):
    """Store a new segment, with weight zero; return (its number, the new count).

    Where an example has as many as it may, the lightest is given up for it.
    """
    no_unroll()
    if count < visit.ids.shape[0]:
        k, a = count, pool.used[SEGMENTS]
        pool.used[SEGMENTS] += 1
        pool.next[a] = pool.head[i]
        pool.head[i] = a
        visit.ids[k] = a
        visit.chosen[k] = visit.nearby[k] = False
        count += 1
        fits = False
    else:
        k = 0
        for j in range(count):
            if pool.alpha[visit.ids[j]] < pool.alpha[visit.ids[k]]:
                k = j
        a = visit.ids[k]
        if pool.alpha[a] > 0.0:
            shift(chains, pool, weights, visit, a, first, last, -pool.alpha[a], pull)
        fits = length <= pool.length[a]
    if not fits:
        pool.start[a] = pool.used[LABELS]
        pool.used[LABELS] += length
    pool.begin[a], pool.length[a], pool.alpha[a], pool.idle[a] = begin, length, 0.0, 0
    for t in range(length):
        pool.labels[pool.start[a] + t] = labels[begin + t]
    pool.norm[a] = add_features_of(chains, pool, a, first, last, 1.0, weights.direction)
    clear_features_of(chains, pool, a, first, last, weights.direction)
    return k, count


@kernel(helper=True)
def choose_path(chains, pool, weights, visit, count, i, room, first, last, pull):
    """Mark the segments of the labeling in ``room``, new ones included; the new count."""
    no_unroll()
    begin, labels = 0, room.labels
    while begin < last - first:
        end = begin
        while end < last - first and labels[end] != chains.labels[first + end]:
            end += 1
        if end > begin:
            k = _find(pool, visit, count, labels, begin, end - begin)
            if k < 0:
                k, count = _insert(
                    chains, pool, weights, visit, count, i, labels, begin, end - begin, first,
                    last, pull,
                )  # fmt: skip
            visit.chosen[k] = True
        begin = end + 1
    return count


@kernel(helper=True)
def choose_single(chains, pool, weights, visit, count, i, room, trans, first, last, pull):
    """Mark the best change of each single token that beats the gold labeling.

    Early on the best labeling is wrong almost everywhere: one long segment that has to go again.
    """
    no_unroll()
    labels, scores = room.labels, room.scores
    for t in range(last - first):
        truth = chains.labels[first + t]
        most, best = 0.0, -1
        for j in range(scores.shape[1]):
            if j != truth:
                value = scores[t, j] - scores[t, truth]
                if t > 0:
                    before = chains.labels[first + t - 1]
                    value += trans[0, before, j] - trans[0, before, truth]
                if first + t + 1 < last:
                    after = chains.labels[first + t + 1]
                    value += trans[0, j, after] - trans[0, truth, after]
                if value > most:
                    most, best = value, j
        if best >= 0:
            labels[t] = best
            k = _find(pool, visit, count, labels, t, 1)
            if k < 0:
                k, count = _insert(
                    chains, pool, weights, visit, count, i, labels, t, 1, first, last, pull
                )
            visit.nearby[k] = True
    return count


@kernel(helper=True)
def link_new(chains, pool, visit, count, links, first, last):
    """Add the label pairs of the marked segments, some of which are new, to the lists."""
    no_unroll()
    for k in range(count):
        if visit.chosen[k] or visit.nearby[k]:
            a = visit.ids[k]
            token = first + pool.begin[a]
            before = np.int64(chains.labels[token - 1]) if token > first else np.int64(-1)
            for t in range(pool.length[a] + 1):
                if token + t == last:
                    break
                inside = t < pool.length[a]
                new = np.int64(
                    pool.labels[pool.start[a] + t] if inside else chains.labels[token + t]
                )
                if before >= 0:
                    add_link(links, before, new)
                before = new


@kernel(helper=True)
def gather(pool, visit, i, size):
    """Write the segments of one example to ``visit.ids``, and their cover; return their number."""
    no_unroll()
    for c in range(size + 1):
        visit.cover[c] = 0.0
    count, a = 0, pool.head[i]
    while a >= 0:
        visit.ids[count] = a
        visit.chosen[count] = visit.nearby[count] = False
        if pool.alpha[a] > 0.0:
            for c in range(pool.begin[a], pool.begin[a] + pool.length[a] + 1):
                visit.cover[c] += pool.alpha[a]
        count += 1
        a = pool.next[a]
    return count


@kernel
def weights_of_segments(chains, pool, strength, w):
    """Recompute w from segment weights that add up to at most 1 over each edge.

    Returns the sums of c_i times the number, and the cost, of the labels that are expected wrong.
    """
    no_unroll()
    w[:] = 0.0
    cover = np.zeros(longest(chains.offsets) + 1)
    total, cost = 0.0, 0.0
    for i in range(chains.offsets.shape[0] - 1):
        first, last = chains.offsets[i], chains.offsets[i + 1]
        cover[: last - first + 1] = 0.0
        most, a = 1.0, pool.head[i]
        while a >= 0:
            for c in range(pool.begin[a], pool.begin[a] + pool.length[a] + 1):
                cover[c] += pool.alpha[a]
                most = max(most, cover[c])
            a = pool.next[a]
        a = pool.head[i]
        while a >= 0:
            if pool.alpha[a] > 0.0:
                pool.alpha[a] /= most
                share = chains.weights[i] * pool.alpha[a]
                total += share * pool.length[a]
                cost += share * segment_cost(chains, pool, a, first)
                add_features_of(chains, pool, a, first, last, -strength * share, w)
            a = pool.next[a]
    mask_rows(chains, w, 0, chains.row_mask.shape[0])
    return total, cost
