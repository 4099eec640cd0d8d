"""Trees and forests: elimination from the leaves, without a search for an order."""

from __future__ import annotations

import numpy as np
from scipy.sparse import csr_array
from scipy.sparse.csgraph import breadth_first_order

from cliquewise.graph.factor_graph import FactorGraph
from cliquewise.graph.structure import Structure
from cliquewise.oracles.base import Limits, Question, Verdict
from cliquewise.oracles.junction_tree import Elimination, EliminationOrder, analyze_order
from cliquewise.oracles.registry import register


@register
class Tree(Elimination):
    """Exact on trees and forests, from the leaves to the roots and back."""

    name = "tree"
    rank = 20
    is_fastest = True

    def consider(self, graph: FactorGraph, question: Question, limits: Limits) -> Verdict:
        """Reject cycles and factors of three or more variables."""
        s = graph.structure
        if not s.is_pairwise:
            return Verdict.reject(
                f"needs factors of at most two variables; one here has {s.max_order}"
            )
        if not s.is_forest:
            return Verdict.reject("needs a graph without cycles")
        return self.estimate(s, question, limits)

    def ordering_seconds(self, structure: Structure) -> float:
        """Return 0: the order takes no search."""
        return 0.0

    def find_order(self, structure: Structure, budget: float) -> EliminationOrder:
        """Return the reverse of a breadth-first walk from one variable of each tree."""
        n = structure.n_variables
        count, part = structure.components
        roots = np.zeros(count, dtype=np.int64)
        roots[part[::-1]] = np.arange(n)[::-1]
        edges = structure.adjacency.tocoo()
        rows = np.concatenate([edges.row, np.full(count, n)])
        columns = np.concatenate([edges.col, roots])
        # Vertex n is joined to all roots, so one walk visits all trees.
        rooted = csr_array((np.ones(len(rows), dtype=np.int8), (rows, columns)), (n + 1, n + 1))
        walk = breadth_first_order(rooted, n, directed=True, return_predecessors=False)
        return analyze_order(structure, walk[:0:-1].astype(np.int64))
