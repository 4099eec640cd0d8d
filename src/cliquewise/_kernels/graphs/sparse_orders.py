"""How many rows the joins of sparse tables are expected to have.

The rows of a clique are estimated variable by variable: a factor with some of the variables so far
leaves the next one as many states as its own rows do, on average; the factor that leaves fewest
counts. Many factors together leave fewer: the estimate errs on the side of too many.
"""

from __future__ import annotations

from collections import namedtuple

import numpy as np

from cliquewise._kernels import kernel

#: Factors of variable v: ``factor[offsets[v]:offsets[v + 1]]``, where it is ``bit``. Bits of
#: several variables are a subset of a factor's variables: ``log_rows[starts[f] + subset]`` says
#: how many combinations of their states are possible.
Subsets = namedtuple("Subsets", ["offsets", "factor", "bit", "starts", "log_rows"])


@kernel
def count_rows(possible, cards, start, log_rows):
    """Log number of combinations that a table allows, for every subset of its variables.

    ``possible`` has a row of states per combination; ``log_rows`` is filled from ``start`` on.
    """
    order = len(cards)
    for subset in range(1, 1 << order):
        size = 1
        for i in range(order):
            if subset >> i & 1:
                size *= cards[i]
        seen = np.zeros(size, dtype=np.bool_)
        count = 0
        for r in range(len(possible)):
            at = 0
            for i in range(order):
                if subset >> i & 1:
                    at = at * cards[i] + possible[r, i]
            if not seen[at]:
                seen[at] = True
                count += 1
        log_rows[start + subset] = np.log(count)


@kernel
def expected_rows(order, sep_offsets, seps, log_cards, subsets):
    """Expected rows of all joins along an order whose separators are known."""
    seen = np.zeros(len(subsets.starts), dtype=np.int64)
    total = 0.0
    for b in range(len(order)):
        rows = 0.0
        count = sep_offsets[b + 1] - sep_offsets[b]
        for i in range(count + 1):
            u = order[b] if i == count else order[seps[sep_offsets[b] + i]]
            least = log_cards[u]
            for j in range(subsets.offsets[u], subsets.offsets[u + 1]):
                f = subsets.factor[j]
                at = subsets.starts[f] + seen[f]
                least = min(least, subsets.log_rows[at + subsets.bit[j]] - subsets.log_rows[at])
                seen[f] += subsets.bit[j]
            rows += least
        for i in range(count + 1):
            u = order[b] if i == count else order[seps[sep_offsets[b] + i]]
            for j in range(subsets.offsets[u], subsets.offsets[u + 1]):
                seen[subsets.factor[j]] = 0
        total += np.exp(rows)
    return total
