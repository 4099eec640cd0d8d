"""Elimination orders with bounded tables: maximize some variables early, or fix some."""

from __future__ import annotations

import heapq
from itertools import chain

import numpy as np
from numpy.typing import NDArray

from cliquewise.graph.structure import Structure
from cliquewise.ragged import Ints

Mask = NDArray[np.bool_]


class Shrinking:
    """A graph whose variables are eliminated or fixed one by one, cheapest first."""

    def __init__(self, structure: Structure, group: Mask):
        n, adjacency = structure.n_variables, structure.adjacency
        self.logs = np.log(structure.cardinalities.astype(float)).tolist()
        starts, indices = adjacency.indptr.tolist(), adjacency.indices.tolist()
        self.neighbors = [set(indices[starts[v] : starts[v + 1]]) for v in range(n)]
        self.weight = [
            log + sum(self.logs[u] for u in near)
            for log, near in zip(self.logs, self.neighbors, strict=True)
        ]
        self.group = group.astype(int).tolist()
        self.heaps: tuple[list[tuple[float, int]], ...] = ([], [])
        for v in range(n):
            self.heaps[self.group[v]].append((self.weight[v], v))
        for heap in self.heaps:
            heapq.heapify(heap)
        self.gone = [False] * n

    def cheapest(self, group: int) -> int | None:
        """Return the variable of a group with the smallest table."""
        heap = self.heaps[group]
        while heap and (self.gone[heap[0][1]] or heap[0][0] != self.weight[heap[0][1]]):
            heapq.heappop(heap)
        return heap[0][1] if heap else None

    def eliminate(self, v: int) -> None:
        """Eliminate a variable: its neighbors then share a table."""
        self.gone[v] = True
        for u in self.neighbors[v]:
            new = self.neighbors[v] - self.neighbors[u] - {u}
            self.neighbors[u] |= new
            self._lose(u, v, sum(self.logs[w] for w in new))

    def fix(self, v: int) -> None:
        """Fix a variable: it disappears from all tables."""
        self.gone[v] = True
        for u in self.neighbors[v]:
            self._lose(u, v, 0.0)

    def _lose(self, u: int, v: int, gained: float) -> None:
        self.neighbors[u].discard(v)
        self.weight[u] += gained - self.logs[v]
        heapq.heappush(self.heaps[self.group[u]], (self.weight[u], u))


def mixed_order(structure: Structure, is_max: Mask, most: float) -> tuple[Ints, int]:
    """Order sums first while tables have a log size of at most ``most``, then maxima.

    Eliminated in this order, which is an upper bound of a marginal MAP, the first so many leave
    only maxima.
    """
    graph, order = Shrinking(structure, is_max), []
    while True:
        sums, maxima = graph.cheapest(0), graph.cheapest(1)
        fits = [v for v in (sums, maxima) if v is not None and graph.weight[v] <= most]
        if sums is None or not fits:
            break
        graph.eliminate(fits[0])
        order.append(fits[0])
    rest = [v for v in range(structure.n_variables) if not graph.gone[v]]
    rest.sort(key=lambda v: (is_max[v], graph.weight[v]))
    both = np.fromiter(chain(order, rest), np.int64, structure.n_variables)
    return both, structure.n_variables - sum(1 for v in rest if is_max[v])


def narrowing(structure: Structure, is_given: Mask, most: float) -> Mask:
    """Choose more variables to fix, to keep sums over the others within ``most``."""
    graph = Shrinking(structure, is_given)
    for given in np.flatnonzero(is_given).tolist():
        graph.fix(given)
    fixed = np.zeros(structure.n_variables, dtype=bool)
    while (v := graph.cheapest(0)) is not None:
        if graph.weight[v] <= most:
            graph.eliminate(v)
            continue
        # Who has most neighbors stands in the way of most tables.
        hub = max((v, *graph.neighbors[v]), key=lambda u: (len(graph.neighbors[u]), u))
        graph.fix(hub)
        fixed[hub] = True
    return fixed
