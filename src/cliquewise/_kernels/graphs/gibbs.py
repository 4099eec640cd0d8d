"""Gibbs sampling on factors of any order: each variable is sampled given the others."""

import numpy as np

from cliquewise._kernels import kernel
from cliquewise._kernels.graphs.icm import scramble, unit
from cliquewise._kernels.graphs.pairwise import most_states


@kernel
def gibbs(sweeps, seed, labels, node_offsets, nodes, entries, factors, tables):
    """Do sweeps of one chain from a possible labeling, in place; count the visited states.

    ``nodes`` counts the states after each sweep, ``entries`` those of the tables; either may be
    empty. States that are forbidden given the others have probability zero.
    """
    cards, scopes, scope_offsets, strides, table_offsets, starts, members, positions = factors
    n, value = len(cards), np.empty(most_states(cards))
    random = np.uint64(seed) * np.uint64(2654435769) + np.uint64(88172645463325252)
    for _ in range(sweeps):
        for v in range(n):
            k = cards[v]
            if k == 1:
                continue
            for x in range(k):
                value[x] = 0.0
            for at in range(starts[v], starts[v + 1]):
                f = members[at]
                base = table_offsets[f]
                for p in range(scope_offsets[f], scope_offsets[f + 1]):
                    if scopes[p] != v:
                        base += strides[p] * labels[scopes[p]]
                step = strides[positions[at]]
                for x in range(k):
                    value[x] += tables[base + x * step]
            top = -np.inf
            for x in range(k):
                top = max(top, value[x])
            total = 0.0
            for x in range(k):
                total += np.exp(value[x] - top)
                value[x] = total
            random = scramble(random)
            limit, x = unit(random) * total, 0
            while x < k - 1 and value[x] <= limit:
                x += 1
            labels[v] = x
        if len(nodes):
            for v in range(n):
                nodes[node_offsets[v] + labels[v]] += 1.0
        if len(entries):
            for f in range(len(table_offsets) - 1):
                at = table_offsets[f]
                for p in range(scope_offsets[f], scope_offsets[f + 1]):
                    at += strides[p] * labels[scopes[p]]
                entries[at] += 1.0
