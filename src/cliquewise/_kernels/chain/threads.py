"""Dual ascent in several threads: what each of them visits, and the copies that it works on.

Threads share one weight vector and take no locks. Most rows are read and written by one thread at a
time, just because they are rare. Frequent ones, and the transitions, would travel between the
processors' caches at every visit, so each thread has its own copies: rows past the end of
the shared ones, which the attributes of its examples are renumbered to (`own_rows`). How often
copies are exchanged goes by how often a visit meets them: what a thread does not know of the
others costs passes, and telling each other costs time.
"""

from __future__ import annotations

from collections import namedtuple

from cliquewise._kernels import kernel
from cliquewise._kernels.common.sum_tree import draw_leaf, set_leaf

#: The part of an epoch that one thread makes. It visits ``members``; ``place`` says where in that
#: list an example is (both are empty for all examples in one thread). Its copies are the weights
#: from ``start`` on, the most frequent last. Threads tell each other what they have ``added`` to
#: them, in a row each, this one in that of its ``number``; ``others`` is what the other rows
#: summed to when it looked last. All ``every`` visits (0: never) the copies from ``tiers[0]`` on
#: are exchanged, every second time those from ``tiers[1]`` on, every fourth time those from
#: ``tiers[2]`` on, and so on. The weights of token pairs, if any, begin at ``pairs``.
Part = namedtuple(
    "Part", ["members", "place", "added", "others", "tiers", "number", "start", "every", "pairs"]
)


@kernel(helper=True)
def exchange(part, w, first):
    """Add this thread's changes to the shared weights, and copy the other threads' changes.

    Every row has one writer, so no update is lost.
    """
    others, mine = part.others[first:], part.added[part.number, first:]
    # Slices from their beginning: loops over them are vectorized.
    own = w[part.start + first : part.start + part.others.size]
    for k in range(others.size):
        mine[k] = own[k] - others[k]
        others[k] = 0.0
    for thread in range(part.added.shape[0]):
        if thread != part.number:
            row = part.added[thread, first:]
            for k in range(others.size):
                others[k] += row[k]
    for k in range(others.size):
        own[k] = mine[k] + others[k]


@kernel(helper=True)
def exchange_when_due(part, w, step):
    """Exchange weights with other threads before a visit, if that is due."""
    if part.every == 0 or step == 0 or step % part.every != 0:
        return
    turn, tier = step // part.every, 0
    while turn % 2 == 0 and tier < part.tiers.shape[0] - 1:
        turn //= 2
        tier += 1
    exchange(part, w, part.tiers[tier])


@kernel(helper=True)
def draw_member(duals, part, u, n):
    """Return a random example of this thread, with probability proportional to its last gap."""
    if part.members.shape[0] == 0:
        return draw_leaf(duals.tree, u, n)
    return part.members[draw_leaf(duals.tree, u, part.members.shape[0])]


@kernel(inline=True)
def keep_gap(duals, part, i, gap):
    """Store the gap of an example, for sampling."""
    duals.gaps[i] = gap
    if duals.tree.shape[0] > 0:
        set_leaf(duals.tree, i if part.place.shape[0] == 0 else part.place[i], gap)


@kernel
def own_rows(chains, members, rank, first, out):
    """Renumber the attributes of a thread's examples: one of rank r becomes ``first + r``.

    Those of rank -1 keep their numbers.
    """
    for i in members:
        begin, end = chains.indptr[chains.offsets[i]], chains.indptr[chains.offsets[i + 1]]
        for e in range(begin, end):
            a = chains.indices[e]
            out[e] = a if rank[a] < 0 else first + rank[a]
