"""Max-marginals of an assignment problem, all at once (Algorithm 12 of casimir).

All rows are assigned to different columns; columns may stay free. Whoever is forced
out of a column takes another's, and so on, until somebody takes the column that was left: a
path in the graph of rows, whose edge (a, b) says what changes if row a takes row b's column.
One more node stands for all free columns together.
"""

import numpy as np

from cliquewise._kernels import kernel


@kernel(helper=True)
def _exchanges(scores, columns, is_used, edges):
    """What row a gains by taking row b's column, or (last column) the best free one."""
    n_rows, n_columns = scores.shape
    for a in range(n_rows):
        own = scores[a, columns[a]]
        for b in range(n_rows):
            edges[a, b] = scores[a, columns[b]] - own
        free = -np.inf
        for c in range(n_columns):
            if not is_used[c] and scores[a, c] > free:
                free = scores[a, c]
        edges[a, n_rows] = free - own
        edges[n_rows, a] = 0.0
        edges[a, a] = 0.0
    edges[n_rows, n_rows] = 0.0


@kernel(helper=True)
def _potentials(edges, potential):
    """Longest paths to every node from anywhere (Bellman and Ford)."""
    n = edges.shape[0]
    for _ in range(n):
        changed = False
        for a in range(n):
            for b in range(n):
                longer = potential[a] + edges[a, b]
                # A rounding error may make a cycle look like a gain: the loop must end.
                if longer > potential[b] + 1e-12 * abs(potential[b]):
                    potential[b] = longer
                    changed = True
        if not changed:
            break


@kernel(helper=True)
def _longest_paths(edges):
    """All pairs (Floyd and Warshall), in place; no entry may be positive."""
    n = edges.shape[0]
    for k in range(n):
        for a in range(n):
            first = edges[a, k]
            if first > -np.inf and a != k:
                for b in range(n):
                    longer = first + edges[k, b]
                    edges[a, b] = longer if longer > edges[a, b] else edges[a, b]


@kernel
def assignment_max_marginals(scores, columns, value, pairs, spared):
    """Best total with each row in each column, and with each column left free.

    Parameters
    ----------
    scores : array (p, m), p <= m
        ``-inf`` where a row may not take a column.
    columns : int array (p,)
        The best assignment.
    value : float
        Its total.
    pairs : array (p, m)
        Overwritten.
    spared : array (m,)
        Overwritten; ``-inf`` for a column that no assignment can leave free.
    """
    n_rows, n_columns = scores.shape
    owner = np.full(n_columns, -1, np.int64)
    for a in range(n_rows):
        owner[columns[a]] = a
    edges = np.empty((n_rows + 1, n_rows + 1))
    potential = np.zeros(n_rows + 1)
    _exchanges(scores, columns, owner >= 0, edges)
    _potentials(edges, potential)
    # No cycle gains, so with potentials no edge does, up to rounding.
    for a in range(n_rows + 1):
        for b in range(n_rows + 1):
            edges[a, b] = min(edges[a, b] + potential[a] - potential[b], 0.0)
    _longest_paths(edges)
    for a in range(n_rows + 1):
        for b in range(n_rows + 1):
            edges[a, b] += potential[b] - potential[a]
    for i in range(n_rows):
        own = scores[i, columns[i]]
        for c in range(n_columns):
            b = owner[c] if owner[c] >= 0 else n_rows
            change = 0.0 if b == i else scores[i, c] - own + edges[b, i]
            pairs[i, c] = value + min(change, 0.0)
    for c in range(n_columns):
        spared[c] = value if owner[c] < 0 else value + min(edges[owner[c], n_rows], 0.0)
