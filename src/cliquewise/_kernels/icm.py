"""Local search: one variable at a time on any graph, one forest at a time on pairwise graphs."""

import numpy as np

from cliquewise._kernels import kernel


@kernel
def icm(labels, max_sweeps, cards, scopes, scope_offsets, strides, table_offsets, tables,
        starts, members, positions):
    """Set each variable to its best state given the others until nothing changes; in place.

    Forbidden entries are counted apart: fewer of them always wins, so that a start that
    breaks rules climbs out of them where it can. Returns the number of sweeps.
    """
    n = len(cards)
    largest = 1
    for v in range(n):
        largest = max(largest, cards[v])
    value, broken = np.empty(largest), np.empty(largest, dtype=np.int64)
    for sweep in range(max_sweeps):
        changed = False
        for v in range(n):
            k = cards[v]
            if k == 1:
                continue
            value[:k] = 0.0
            broken[:k] = 0
            for at in range(starts[v], starts[v + 1]):
                f = members[at]
                base = table_offsets[f]
                for p in range(scope_offsets[f], scope_offsets[f + 1]):
                    if scopes[p] != v:
                        base += strides[p] * labels[scopes[p]]
                step = strides[positions[at]]
                for x in range(k):
                    entry = tables[base + x * step]
                    if entry == -np.inf:
                        broken[x] += 1
                    else:
                        value[x] += entry
            best = labels[v]
            for x in range(k):
                if broken[x] < broken[best] or (
                    broken[x] == broken[best] and value[x] > value[best]
                ):
                    best = x
            if best != labels[v]:
                labels[v] = best
                changed = True
        if not changed:
            return sweep + 1
    return max_sweeps


@kernel
def find(roots, v):
    """Root of ``v`` in a union-find forest, halving the path."""
    while roots[v] != v:
        roots[v] = roots[roots[v]]
        v = roots[v]
    return v


@kernel
def grow_forest(order, edges, starts, links, roots, inside, sequence):
    """Choose a maximal set of variables, in random order, that contains no cycle.

    A variable joins if its chosen neighbours lie in different trees. Returns the size;
    ``sequence`` lists the members.
    """
    n = len(order)
    for v in range(n):
        roots[v] = v
        inside[v] = False
    count = 0
    seen = np.empty(n, dtype=np.int64)
    for at in range(n):
        v = order[at]
        fits, trees = True, 0
        for a in range(starts[v], starts[v + 1]):
            e = links[a]
            u = edges[e, 0] + edges[e, 1] - v
            if not inside[u]:
                continue
            r = find(roots, u)
            for s in range(trees):
                if seen[s] == r:
                    fits = False
                    break
            if not fits:
                break
            seen[trees] = r
            trees += 1
        if not fits:
            continue
        inside[v] = True
        for s in range(trees):
            roots[seen[s]] = v
        sequence[count] = v
        count += 1
    return count


@kernel
def hang_forest(count, sequence, edges, starts, links, inside, visited, parent, order):
    """Order the members breadth first from a root of each tree; ``parent`` is the edge up."""
    for at in range(count):
        visited[sequence[at]] = False
    begin, end = 0, 0
    for at in range(count):
        root = sequence[at]
        if visited[root]:
            continue
        visited[root] = True
        parent[root] = -1
        order[end] = root
        end += 1
        while begin < end:
            v = order[begin]
            begin += 1
            for a in range(starts[v], starts[v + 1]):
                e = links[a]
                u = edges[e, 0] + edges[e, 1] - v
                if inside[u] and not visited[u]:
                    visited[u] = True
                    parent[u] = e
                    order[end] = u
                    end += 1


@kernel
def solve_forest(count, order, parent, inside, labels, heat, nodes, node_offsets, edges,
                 edge_offsets, tables, cards, starts, links, belief):
    """Relabel a forest given everything outside it; in place.

    With heat 0 the new labels are the best ones; otherwise they are a draw from the
    distribution proportional to exp(score / heat), by filtering up and sampling down.
    """
    for at in range(count):
        v = order[at]
        k, o = cards[v], node_offsets[v]
        for x in range(k):
            belief[o + x] = nodes[o + x]
        for a in range(starts[v], starts[v + 1]):
            e = links[a]
            u = edges[e, 0] + edges[e, 1] - v
            if inside[u]:
                continue
            if u < v:
                base, step = edge_offsets[e] + labels[u] * k, 1
            else:
                base, step = edge_offsets[e] + labels[u], cards[u]
            for x in range(k):
                belief[o + x] += tables[base + x * step]
    for at in range(count - 1, -1, -1):
        v = order[at]
        e = parent[v]
        if e < 0:
            continue
        u = edges[e, 0] + edges[e, 1] - v
        k, o = cards[v], node_offsets[v]
        if u < v:
            step_u, step_v = k, 1
        else:
            step_u, step_v = 1, cards[u]
        for y in range(cards[u]):
            base = edge_offsets[e] + y * step_u
            top = -np.inf
            for x in range(k):
                top = max(top, belief[o + x] + tables[base + x * step_v])
            if heat > 0.0 and top > -np.inf:
                total = 0.0
                for x in range(k):
                    lag = belief[o + x] + tables[base + x * step_v] - top
                    if lag > -40.0 * heat:
                        total += np.exp(lag / heat)
                top += heat * np.log(total)
            belief[node_offsets[u] + y] += top
    for at in range(count):
        v = order[at]
        e = parent[v]
        k, o = cards[v], node_offsets[v]
        base, step = 0, 0
        if e >= 0:
            u = edges[e, 0] + edges[e, 1] - v
            if u < v:
                base, step = edge_offsets[e] + labels[u] * k, 1
            else:
                base, step = edge_offsets[e] + labels[u], cards[u]
        best, best_value = 0, -np.inf
        for x in range(k):
            value = belief[o + x]
            if e >= 0:
                value += tables[base + x * step]
            if heat > 0.0:
                value -= heat * np.log(-np.log(1.0 - np.random.random()))
            if value > best_value:
                best, best_value = x, value
        labels[v] = best


@kernel
def forest_search(heat, seed, labels, best_labels, best, nodes, node_offsets, edges,
                  edge_offsets, tables, cards, starts, links):
    """Relabel one random forest per entry of ``heat``; returns the best score seen."""
    np.random.seed(seed)
    n, m = len(cards), len(edges)
    roots = np.empty(n, dtype=np.int64)
    sequence, order = np.empty(n, dtype=np.int64), np.empty(n, dtype=np.int64)
    parent = np.empty(n, dtype=np.int64)
    inside, visited = np.zeros(n, dtype=np.bool_), np.zeros(n, dtype=np.bool_)
    belief = np.empty(node_offsets[n])
    shuffled = np.arange(n)
    for r in range(len(heat)):
        for at in range(n - 1, 0, -1):
            other = np.random.randint(0, at + 1)
            shuffled[at], shuffled[other] = shuffled[other], shuffled[at]
        count = grow_forest(shuffled, edges, starts, links, roots, inside, sequence)
        hang_forest(count, sequence, edges, starts, links, inside, visited, parent, order)
        solve_forest(count, order, parent, inside, labels, heat[r], nodes, node_offsets, edges,
                     edge_offsets, tables, cards, starts, links, belief)
        score = 0.0
        for v in range(n):
            score += nodes[node_offsets[v] + labels[v]]
        for e in range(m):
            i, j = edges[e, 0], edges[e, 1]
            score += tables[edge_offsets[e] + labels[i] * cards[j] + labels[j]]
        if score > best:
            best = score
            best_labels[:] = labels
    return best


@kernel
def anneal(heat, seed, labels, best_labels, best, nodes, node_offsets, edges, edge_offsets,
           tables, cards, starts, links):
    """Simulated annealing, one sweep per entry of ``heat``; returns the best score seen.

    ``belief`` holds every state's score given the neighbours, so that a refused proposal costs
    nothing but a comparison. All tables must be finite.
    """
    np.random.seed(seed)
    n, m = len(cards), len(edges)
    belief = nodes.copy()
    score = 0.0
    for e in range(m):
        i, j = edges[e, 0], edges[e, 1]
        base, width = edge_offsets[e], cards[j]
        for x in range(cards[i]):
            belief[node_offsets[i] + x] += tables[base + x * width + labels[j]]
        for y in range(width):
            belief[node_offsets[j] + y] += tables[base + labels[i] * width + y]
        score += tables[base + labels[i] * width + labels[j]]
    for v in range(n):
        score += nodes[node_offsets[v] + labels[v]]
    for sweep in range(len(heat)):
        temperature = heat[sweep]
        for v in range(n):
            k, o, old = cards[v], node_offsets[v], labels[v]
            if k == 1:
                continue
            if k == 2:
                new = 1 - old
            else:
                new = np.random.randint(0, k - 1)
                if new >= old:
                    new += 1
            gain = belief[o + new] - belief[o + old]
            if gain < 0.0 and (
                gain < -40.0 * temperature or np.random.random() >= np.exp(gain / temperature)
            ):
                continue
            labels[v] = new
            score += gain
            for a in range(starts[v], starts[v + 1]):
                e = links[a]
                u = edges[e, 0] + edges[e, 1] - v
                to = node_offsets[u]
                if u < v:
                    base = edge_offsets[e]
                    for x in range(cards[u]):
                        at = base + x * k
                        belief[to + x] += tables[at + new] - tables[at + old]
                else:
                    gained = edge_offsets[e] + new * cards[u]
                    lost = edge_offsets[e] + old * cards[u]
                    for x in range(cards[u]):
                        belief[to + x] += tables[gained + x] - tables[lost + x]
        if score > best:
            best = score
            best_labels[:] = labels
    return best
