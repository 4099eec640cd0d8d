"""Factors of any order: marginals of loopy belief propagation, bounds of weighted mini-buckets."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from cliquewise._kernels import clock
from cliquewise._kernels.graphs import elimination
from cliquewise.errors import UnsupportedError
from cliquewise.graph.factor_graph import FactorGraph
from cliquewise.graph.structure import Structure
from cliquewise.oracles._budget import Budget
from cliquewise.oracles._factor_messages import FactorMessages
from cliquewise.oracles._logz_lower_bound import sum_below
from cliquewise.oracles._mini_buckets import TooLate, mini_bucket_bound
from cliquewise.oracles._pairwise import table_bound
from cliquewise.oracles.base import NO_LIMITS, Limits, Oracle, Question, Verdict
from cliquewise.oracles.icm import climb
from cliquewise.oracles.registry import register
from cliquewise.oracles.results import MarginalResult
from cliquewise.ragged import Floats, Ints, first_best
from cliquewise.trace import Trace

#: Table entries of the first pass, and the factor by which they grow.
FIRST, GROWTH = 256, 8
#: Fraction of the time for belief propagation, and of the rest for a search for a possible
#: labeling; that search gets at least so many seconds.
MESSAGES, SEARCH, MOMENT = 0.4, 0.3, 0.1
#: Estimated seconds for one call without a time limit.
DEFAULT_SECONDS = 10.0
#: Seconds of a pass of mini-buckets and sums per factor and per table entry, and of a turn of
#: belief propagation per table entry and variable of the factor.
PER_FACTOR, PER_ENTRY, PER_MESSAGE = 3e-4, 1.2e-7, 5e-8
#: A pass holds about so many copies of its largest table.
COPIES = 8
#: Graphs with more variables are ordered by degree; an order by fill would take too long.
ORDERED = 20_000
#: Log size of tables beyond any use, and variables that are quickly ordered whatever they touch.
HOPELESS, SMALL = 45.0, 300


@register
class MiniBuckets(Oracle):
    """Estimates for factors of any order, and certified bounds of log Z that tighten with time."""

    name = "mini-buckets"
    provides: ClassVar[frozenset[Question]] = frozenset({"marginals"})
    exact = False
    rank = 215

    def consider(self, graph: FactorGraph, question: Question, limits: Limits) -> Verdict:
        """Accept every graph; tables grow until the time limit."""
        return Verdict.accept(math.inf, 16.0 * graph.structure.table_offsets[-1])

    def marginals(
        self,
        graph: FactorGraph,
        seconds: float | None = None,
        gap: float = 0.0,
        max_entries: float = 2.0**24,
        tol: float = 1e-6,
        max_iterations: int = 1000,
        limits: Limits = NO_LIMITS,
    ) -> MarginalResult:
        """Run belief propagation, then mini-buckets of growing size.

        Parameters
        ----------
        graph : FactorGraph
        seconds : float, optional
            Time limit. By default, a fixed number of operations (about ten seconds), so results
            do not depend on the speed of the machine.
        gap : float, default=0
            Stop when the bounds are this close.
        max_entries : float, default=2**24
            Largest table of a mini-bucket; less if ``max_memory`` requires it.
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
        budget = Budget.of(seconds, DEFAULT_SECONDS)
        messages = FactorMessages(graph)
        turn = PER_MESSAGE * float(np.diff(graph.structure.table_offsets) @ graph.structure.orders)
        turns = max_iterations
        if not budget.is_timed:
            turns = int(np.clip(MESSAGES * budget.total / (turn + 1e-9), 1, max_iterations))
        end = budget.started + MESSAGES * budget.total if budget.is_timed else math.inf
        converged, sweeps = messages.run(tol, turns, end)
        budget.spend(sweeps * turn)
        nodes, factors, bethe = messages.answer()
        labels = good_labels(graph, nodes, SEARCH * budget.left if budget.is_timed else None)
        trace = Trace(("seconds", "lower", "upper"))
        bounds = GrowingBounds(float(graph.score(labels)), self._trivial_bound(graph))
        largest = min(max_entries, limits.max_memory / (8.0 * COPIES))
        for _ in bounds.steps(graph, nodes, labels, budget, gap, largest):
            trace.append(seconds=budget.elapsed, lower=bounds.lower, upper=bounds.upper)
        lower, upper = min(bounds.lower, bounds.upper), bounds.upper
        info = {"converged": converged, "iterations": sweeps, "bethe": bethe,
                "entries": bounds.entries}  # fmt: skip
        value = upper if bounds.exact else min(max(bethe, lower), upper)
        return MarginalResult.from_flat(
            graph, nodes, factors, value, self.name, (lower, upper), trace=trace, info=info
        )

    @staticmethod
    def _trivial_bound(graph: FactorGraph) -> float:
        """Return the bound with all tables constant at their largest entry."""
        return table_bound(graph) + float(np.log(graph.cardinalities.astype(float)).sum())


@dataclass
class GrowingBounds:
    """Bounds of log Z from tables of growing size: mini-buckets from above, sums from below.

    Lower bounds by negative weights are looser everywhere, and fail where entries are forbidden.
    """

    lower: float = -math.inf
    upper: float = math.inf
    entries: float = 0.0
    exact: bool = False

    def steps(
        self,
        graph: FactorGraph,
        nodes: Floats,
        labels: Ints,
        budget: Budget,
        gap: float = 0.0,
        max_entries: float = 2.0**24,
    ) -> Iterator[None]:
        """Tighten the bounds step by step, around these marginals and this labeling."""
        order, entries = elimination_order(graph.structure), float(FIRST)
        fixed = PER_FACTOR * graph.n_factors
        needed, deadline = fixed, budget.deadline
        while not self.exact and self.upper - self.lower > gap and entries <= max_entries:
            if needed > budget.left and self.entries:
                return
            begin = clock.now()
            try:
                high = mini_bucket_bound(graph, order, entries, True, deadline)
                self.upper, self.exact = min(self.upper, high.value), high.exact
                self.lower = max(self.lower, high.value) if high.exact else self.lower
            except TooLate:
                return
            if not high.exact:
                low = sum_around(graph, order, entries, nodes, labels, deadline)
                self.lower = max(self.lower, low)
            self.entries = entries
            entries *= GROWTH
            estimated = fixed + PER_ENTRY * high.operations
            budget.spend(estimated)
            growing = PER_ENTRY * high.operations
            needed = fixed + GROWTH * growing
            if budget.is_timed:
                needed = GROWTH * (clock.now() - begin)
            yield


def sum_around(
    graph: FactorGraph,
    order: Ints,
    entries: float,
    nodes: Floats,
    labels: Ints,
    deadline: float = math.inf,
) -> float:
    """A lower bound of log Z around some marginals or around a labeling, whichever is larger.

    Marginals win where couplings are weak, and a labeling where they are strong.
    """
    best = float(graph.score(labels))
    fixed = np.zeros(len(nodes))
    fixed[graph.structure.node_offsets[:-1] + labels] = 1.0
    known = labels if best > -math.inf and np.isneginf(graph.tables).any() else None
    for q in (fixed, nodes):
        try:
            best = max(best, sum_below(graph, order, entries, q, known, deadline))
        except TooLate:
            break
    return best


def good_labels(graph: FactorGraph, nodes: Floats, seconds: float | None) -> Ints:
    """Return a labeling near the most probable states; a search finds one that is possible."""
    s = graph.structure
    labels = first_best(nodes, s.node_offsets) if s.n_variables else np.empty(0, dtype=np.int64)
    labels, _ = climb(graph, labels, max_sweeps=10)
    if graph.score(labels) > -np.inf:
        return labels
    try:
        limit = None if seconds is None else max(MOMENT, seconds)
        return graph.map("anytime", seconds=limit).labels
    except UnsupportedError:  # no possible labeling was found in time
        return labels


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
