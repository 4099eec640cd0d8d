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
from cliquewise.oracles._factor_messages import FactorMessages
from cliquewise.oracles._logz_lower_bound import sum_below
from cliquewise.oracles._mini_buckets import TooLate, mini_bucket_bound
from cliquewise.oracles._pairwise import table_bound
from cliquewise.oracles.base import Limits, Oracle, Question, Verdict
from cliquewise.oracles.icm import climb
from cliquewise.oracles.registry import register
from cliquewise.oracles.results import MarginalResult
from cliquewise.ragged import Floats, Ints, first_best
from cliquewise.trace import Trace

#: Entries of the smallest tables tried, and the factor by which they grow.
FIRST, GROWTH = 256, 8
#: Parts of the time that belief propagation may take, and of the rest, a search for a labeling
#: where the one at hand is impossible; it has a moment even when nothing is left.
MESSAGES, SEARCH, MOMENT = 0.4, 0.3, 0.1
#: Variables up to which an order by fill is worth its time; others go by their degree.
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
        seconds: float = 10.0,
        gap: float = 0.0,
        max_entries: float = 2.0**24,
        tol: float = 1e-6,
        max_iterations: int = 1000,
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
        started = clock.now()
        messages = FactorMessages(graph)
        converged, sweeps = messages.run(tol, max_iterations, started + MESSAGES * seconds)
        nodes, factors, bethe = messages.answer()
        left = started + seconds - clock.now()
        labels = good_labels(graph, nodes, SEARCH * left)
        trace = Trace(("seconds", "lower", "upper"))
        bounds = Growing(float(graph.score(labels)), self._free(graph))
        for _ in bounds.steps(graph, nodes, labels, started + seconds, gap, max_entries):
            now = clock.now() - started
            trace.append(seconds=now, lower=bounds.lower, upper=bounds.upper)
        lower, upper = min(bounds.lower, bounds.upper), bounds.upper
        info = {"converged": converged, "iterations": sweeps, "bethe": bethe,
                "entries": bounds.entries}  # fmt: skip
        value = upper if bounds.exact else min(max(bethe, lower), upper)
        return MarginalResult.from_flat(
            graph, nodes, factors, value, self.name, (lower, upper), trace=trace, info=info
        )

    @staticmethod
    def _free(graph: FactorGraph) -> float:
        """As if all tables were constant at their largest entry."""
        return table_bound(graph) + float(np.log(graph.cardinalities.astype(float)).sum())


@dataclass
class Growing:
    """Bounds of log Z from tables of growing size: upper ones of mini-buckets, lower ones of sums.

    Lower bounds by negative weights are looser everywhere, and lost where entries are forbidden.
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
        deadline: float,
        gap: float = 0.0,
        max_entries: float = 2.0**24,
    ) -> Iterator[None]:
        """Tighten the bounds step by step, around these marginals and this labeling."""
        order, entries, spent = elimination_order(graph.structure), float(FIRST), 0.0
        while not self.exact and self.upper - self.lower > gap and entries <= max_entries:
            begin = clock.now()
            if begin + GROWTH * spent > deadline:
                return
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
            spent = clock.now() - begin
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


def good_labels(graph: FactorGraph, nodes: Floats, seconds: float) -> Ints:
    """A labeling near the best states of the variables; a search finds one that is possible."""
    s = graph.structure
    labels = first_best(nodes, s.node_offsets) if s.n_variables else np.empty(0, dtype=np.int64)
    labels, _ = climb(graph, labels, max_sweeps=10)
    if graph.score(labels) > -np.inf:
        return labels
    try:
        return graph.map(seconds=max(MOMENT, seconds)).labels
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
