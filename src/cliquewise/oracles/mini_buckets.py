"""Factors of any order: marginals of loopy belief propagation, bounds of weighted mini-buckets."""

from __future__ import annotations

import math
import time
from typing import Any, ClassVar

import numpy as np

from cliquewise._kernels.graphs import elimination
from cliquewise.graph.factor_graph import FactorGraph
from cliquewise.graph.structure import Structure
from cliquewise.oracles._factor_messages import FactorMessages
from cliquewise.oracles._mini_buckets import TooLate, mini_bucket_bound
from cliquewise.oracles._pairwise import table_bound
from cliquewise.oracles.base import Oracle, register
from cliquewise.oracles.icm import climb
from cliquewise.oracles.results import MarginalResult
from cliquewise.ragged import Floats, Ints, first_best
from cliquewise.trace import Trace

#: Entries of the smallest tables tried, and the factor by which they grow.
FIRST, GROWTH = 256, 8
#: Part of the time that belief propagation may take.
MESSAGES = 0.4
#: Variables up to which an order by fill is worth its time; others go by their degree.
ORDERED = 20_000

#: Log size of tables beyond any use, and variables that are quickly ordered whatever they touch.
HOPELESS, SMALL = 45.0, 300


@register
class MiniBuckets(Oracle):
    """Estimates for factors of any order, and certified bounds of log Z that tighten with time."""

    name = "mini-buckets"
    provides: ClassVar[frozenset[str]] = frozenset({"marginals"})
    exact = False
    automatic = False
    rank = 215

    def marginals(
        self,
        graph: FactorGraph,
        seconds: float = 10.0,
        gap: float = 0.0,
        max_entries: float = 2.0**24,
        tol: float = 1e-6,
        max_iterations: int = 1000,
        **options: Any,
    ) -> MarginalResult:
        """Belief propagation, then mini-buckets of growing size.

        Parameters
        ----------
        graph : FactorGraph
        seconds : float, default=10
            Limit for all of it.
        gap : float, default=0
            Stop when the bounds are this close.
        max_entries : float, default=2**24
            Largest table of a mini-bucket.
        tol : float, default=1e-6
            Messages have converged when no probability in them changes by more.
        max_iterations : int, default=1000

        Returns
        -------
        MarginalResult
            ``log_z`` is Bethe's estimate, moved into the bounds. ``info`` has ``converged``,
            ``iterations``, ``bethe``, and ``entries`` of the last mini-buckets.

        Examples
        --------
        >>> import numpy as np
        >>> g = FactorGraph([2, 2, 2], [((0, 1, 2), np.arange(8.0).reshape(2, 2, 2))])
        >>> rough = g.marginals("mini-buckets")
        >>> bool(abs(rough.log_z - g.marginals().log_z) < 1e-9)
        True
        """
        self.reject(options)
        started = time.perf_counter()
        deadline = started + seconds
        messages = FactorMessages(graph)
        converged, sweeps = messages.run(tol, max_iterations, started + MESSAGES * seconds)
        nodes, factors, bethe = messages.answer()
        trace = Trace(("seconds", "lower", "upper"))
        lower, upper = self._labeling(graph, nodes), self._free(graph)
        entries, exact = float(FIRST), False
        order = elimination_order(graph.structure)
        spent = 0.0
        while not exact and upper - lower > gap and entries <= max_entries:
            begin = time.perf_counter()
            if begin + GROWTH * spent > deadline:
                break
            try:
                high = mini_bucket_bound(graph, order, entries, True, deadline)
                upper, exact = min(upper, high.value), high.exact
                low = high if exact else mini_bucket_bound(graph, order, entries, False, deadline)
                lower = max(lower, low.value if low.value < math.inf else -math.inf)
            except TooLate:
                break
            now = time.perf_counter()
            spent = now - begin
            trace.append(seconds=now - started, lower=lower, upper=upper)
            entries *= GROWTH
        lower = min(lower, upper)
        info = {"converged": converged, "iterations": sweeps, "bethe": bethe,
                "entries": entries / GROWTH}  # fmt: skip
        value = upper if exact else min(max(bethe, lower), upper)
        return MarginalResult.from_flat(
            graph, nodes, factors, value, self.name, (lower, upper), trace=trace, info=info
        )

    @staticmethod
    def _labeling(graph: FactorGraph, nodes: Floats) -> float:
        """Score of a good labeling: log Z is no smaller."""
        s = graph.structure
        labels = first_best(nodes, s.node_offsets) if s.n_variables else np.empty(0, dtype=np.int64)
        labels, _ = climb(graph, labels, max_sweeps=10)
        return float(graph.score(labels))

    @staticmethod
    def _free(graph: FactorGraph) -> float:
        """As if all tables were constant at their largest entry."""
        return table_bound(graph) + float(np.log(graph.cardinalities.astype(float)).sum())


def elimination_order(structure: Structure) -> Ints:
    """Min-fill; on wide graphs min-weight as far as tables can be, then the degrees."""
    adjacency = structure.adjacency
    indptr, indices = adjacency.indptr.astype(np.int64), adjacency.indices.astype(np.int64)
    logs = np.log(structure.cardinalities.astype(float))
    by_degree = np.argsort(np.diff(indptr), kind="stable")
    if structure.n_variables > ORDERED:
        return by_degree
    quick, _ = elimination.greedy_order(indptr, indices, logs, elimination.MIN_WEIGHT, HOPELESS)
    placed = quick[quick >= 0]
    if len(placed) < len(quick) and structure.n_variables > SMALL:
        # Min-fill takes minutes where hundreds of variables are left that all touch each other.
        return np.concatenate([placed, by_degree[~np.isin(by_degree, placed)]])
    order, _ = elimination.greedy_order(indptr, indices, logs, elimination.MIN_FILL, 1e9)
    return np.asarray(order)
