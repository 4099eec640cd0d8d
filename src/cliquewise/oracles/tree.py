"""Trees and forests: elimination from the leaves, without a search for an order."""

from __future__ import annotations

import numpy as np
from scipy.sparse import csr_array
from scipy.sparse.csgraph import breadth_first_order

from cliquewise.graph.structure import Structure
from cliquewise.oracles.base import register
from cliquewise.oracles.junction_tree import Elimination
from cliquewise.ragged import Ints


@register
class Tree(Elimination):
    """Exact on trees and forests, from the leaves to the roots and back."""

    name = "tree"
    rank = 20
    is_quickest = True

    def refuses(self, structure: Structure, want: str = "map") -> str | None:
        """Refuse cycles and factors of three or more variables."""
        if not structure.is_pairwise:
            return f"needs factors of at most two variables; one here has {structure.max_order}"
        if not structure.is_forest:
            return "needs a graph without cycles"
        return None

    def at_least(self, structure: Structure, want: str = "map") -> float:
        """Nothing: the order is known."""
        return 0.0

    def has_order(self, structure: Structure) -> bool:
        """There is one, and it takes no search."""
        return True

    def order(self, structure: Structure, most: float = 0.0) -> tuple[Ints, float]:
        """Breadth first from a root joined to one variable of each tree, backwards."""
        n = structure.n_variables
        count, part = structure.components
        roots = np.zeros(count, dtype=np.int64)
        roots[part[::-1]] = np.arange(n)[::-1]
        edges = structure.adjacency.tocoo()
        rows = np.concatenate([edges.row, np.full(count, n)])
        columns = np.concatenate([edges.col, roots])
        rooted = csr_array((np.ones(len(rows), dtype=np.int8), (rows, columns)), (n + 1, n + 1))
        walk = breadth_first_order(rooted, n, directed=True, return_predecessors=False)
        return walk[:0:-1].astype(np.int64), 0.0
