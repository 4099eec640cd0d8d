"""Inside-outside on directed acyclic hypergraphs: log Z, probabilities, entropy, samples.

Nodes are numbered so that the tails of an edge come before its head. The edges into node ``v`` are
``edge_offsets[v]:edge_offsets[v + 1]``, the tails of edge ``e`` are
``tails[tail_offsets[e]:tail_offsets[e + 1]]``, and its score is ``scores[parts[e]]``.

    inside    beta(v) = log sum_{e into v} exp(score(e) + sum_{t in tails(e)} beta(t))
    local     p(e)    = exp(score(e) + sum_{t in tails(e)} beta(t) - beta(head(e)))
    outside   mu(v)   = [v is a root] + sum_{e: v in tails(e)} mu(e),    mu(e) = mu(head(e)) p(e)
    entropy   H       = sum_v mu(v) H(p(. | v))

Every sum is taken relative to its largest term, so nothing overflows, and what underflows is less
than 1e-300 of the sum it belongs to. Each edge costs one exponential; the outside pass needs none.
"""

import math

import numpy as np

from cliquewise._kernels import kernel


@kernel
def inside(edge_offsets, tail_offsets, tails, parts, scores, beta, local):
    """Fill ``beta``, the log sums of all nodes, and ``local``, the probabilities given the head."""
    for v in range(len(edge_offsets) - 1):
        first, last = edge_offsets[v], edge_offsets[v + 1]
        high = -np.inf
        for e in range(first, last):
            score = scores[parts[e]]
            for i in range(tail_offsets[e], tail_offsets[e + 1]):
                score += beta[tails[i]]
            local[e] = score
            high = max(high, score)
        if high == -np.inf:
            beta[v] = -np.inf
            for e in range(first, last):
                local[e] = 0.0
            continue
        total = 0.0
        for e in range(first, last):
            local[e] = math.exp(local[e] - high)
            total += local[e]
        beta[v] = high + math.log(total)
        scale = 1.0 / total
        for e in range(first, last):
            local[e] *= scale


@kernel
def outside(edge_offsets, tail_offsets, tails, parts, local, nodes, edges, part_sums):
    """Fill the expected counts of edges and parts.

    ``nodes`` is one at the roots and zero elsewhere on entry, and holds the expected counts of the
    nodes on return; ``part_sums`` is zero on entry.
    """
    for v in range(len(edge_offsets) - 2, -1, -1):
        weight = nodes[v]
        for e in range(edge_offsets[v], edge_offsets[v + 1]):
            count = weight * local[e]
            edges[e] = count
            part_sums[parts[e]] += count
            for i in range(tail_offsets[e], tail_offsets[e + 1]):
                nodes[tails[i]] += count


@kernel
def entropy(edge_offsets, nodes, local):
    """Return ``- sum_e mu(e) log p(e)``, in which no large numbers cancel."""
    total = 0.0
    for v in range(len(edge_offsets) - 1):
        if nodes[v] > 0.0:
            own = 0.0
            for e in range(edge_offsets[v], edge_offsets[v + 1]):
                if local[e] > 0.0:
                    own -= local[e] * math.log(local[e])
            total += nodes[v] * own
    return total


@kernel
def divergence(edge_offsets, nodes, local, other):
    """Return the Kullback-Leibler divergence of two distributions over the same derivations."""
    total = 0.0
    for v in range(len(edge_offsets) - 1):
        if nodes[v] > 0.0:
            own = 0.0
            for e in range(edge_offsets[v], edge_offsets[v + 1]):
                if local[e] > 0.0:
                    if other[e] == 0.0:
                        return np.inf
                    own += local[e] * math.log(local[e] / other[e])
            total += nodes[v] * own
    return total


@kernel(inline=True)
def _next_uniform(state):
    """Advance a SplitMix64 generator; return its state and a uniform number in [0, 1)."""
    state = state + np.uint64(0x9E3779B97F4A7C15)
    z = state
    z = (z ^ (z >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    z = (z ^ (z >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    z = z ^ (z >> np.uint64(31))
    return state, (z >> np.uint64(11)) * (1.0 / 9007199254740992.0)


@kernel
def sample(edge_offsets, tail_offsets, tails, local, root, seed, stack, found):
    """Draw one derivation from the root down; return the number of edges, or -1 if too many.

    ``stack`` and ``found`` have room for the edges of one derivation.
    """
    state = seed
    stack[0] = root
    depth, count = 1, 0
    while depth > 0:
        depth -= 1
        v = stack[depth]
        state, u = _next_uniform(state)
        chosen = -1
        for e in range(edge_offsets[v], edge_offsets[v + 1]):
            if local[e] > 0.0:
                chosen = e
                u -= local[e]
                if u < 0.0:
                    break
        if count >= len(found) or depth + tail_offsets[chosen + 1] - tail_offsets[chosen] > len(
            stack
        ):
            return -1
        found[count] = chosen
        count += 1
        for i in range(tail_offsets[chosen + 1] - 1, tail_offsets[chosen] - 1, -1):
            stack[depth] = tails[i]
            depth += 1
    return count
