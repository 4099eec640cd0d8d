"""Sparse elimination: exact on models full of zeros, where dense tables would be too large.

Tables are sorted lists of the possible combinations of states. Eliminating a variable joins the
tables that contain it, and sums rows that agree on all other variables. The number of rows is only
known while the elimination runs; it stops when a limit is exceeded.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from cliquewise._kernels import clock
from cliquewise._kernels.graphs import elimination
from cliquewise._kernels.graphs import sparse_joins as joins
from cliquewise._kernels.graphs.sparse_orders import expected_rows
from cliquewise.errors import InfeasibleError, TooLargeError
from cliquewise.graph.evidence import INFEASIBLE
from cliquewise.graph.factor_graph import FactorGraph
from cliquewise.graph.structure import Structure
from cliquewise.oracles._sparse_tables import Possible, wire
from cliquewise.oracles.base import NO_LIMITS, Cost, Limits, Oracle, Question, Verdict
from cliquewise.oracles.junction_tree import (
    MANY_ENTRIES,
    SECONDS_PER_STEP,
    analyze_order,
    band_orders,
    greedy,
)
from cliquewise.oracles.registry import register
from cliquewise.oracles.results import MapResult, MarginalResult, MaxMarginalResult, proved_map
from cliquewise.ragged import Floats, Ints

#: Index arrays are built in Python, in some tenths of a millisecond per variable.
MAX_VARIABLES = 10_000
#: Default limit of the rows to join.
MAX_ROWS = 2e10
#: Seconds per joined row, for each question.
PACE = {"map": 5e-8, "max_marginals": 1e-7, "sample": 5e-8, "marginals": 1e-7}
#: Search for orders: tries at most, tries without improvement, fraction of the estimated time of
#: the answer, seconds at most.
MAX_TRIES, PATIENCE, SHARE, MAX_SEARCH_SECONDS = 1000, 100, 0.1, 1.0
#: An order is abandoned at a dense table of this log size, because completing it takes minutes.
HOPELESS_LOG_SIZE = 100.0
#: Weight of the table sizes relative to fill edges, in every other order.
SIZE_WEIGHT = 3e5
#: Seconds that the planner allows for samples and max-marginals.
MAX_SECONDS = 60.0
#: Below this share of impossible entries, dense tables are at least as fast.
FEW_ZEROS = 0.2
#: All orders are tried up to these numbers of rows; an estimate may be wrong by this factor.
ATTEMPTS, SLACK = (2.0**19, 2.0**22), 8.0
#: When a table does not fit, allocate this many more rows, and this multiple of the rows so far.
EXTRA_ROWS, GROWTH = 4096, 1.5


@dataclass(frozen=True, eq=False)
class SparseOrders:
    """Possible states of a graph, elimination orders (best first), and the rows of the first."""

    possible: Possible
    orders: list[Ints]
    rows: float

    @classmethod
    def of(cls, graph: FactorGraph) -> SparseOrders:
        """Search for greedy orders, as long as that pays.

        Costs are counted in operations, not measured, so a graph always gets the same order.
        """
        possible = Possible.of(graph)
        s, n = possible.core.graph.structure, len(possible.cards)
        logs, rng = possible.log_cards, np.random.default_rng(0)
        best, rows, improved, spent = np.arange(n), np.inf, 0, 0.0

        def expected(order: Ints) -> tuple[float, float]:
            """Return the expected rows, and the seconds to find a greedy order like this one."""
            found = analyze_order(s, order)
            widths = np.diff(found.sep_offsets)
            rows = expected_rows(order, found.sep_offsets, found.seps, logs, possible.subsets)
            return float(rows), SECONDS_PER_STEP * float((widths**2.0 + 100).sum())

        for tried in range(MAX_TRIES):
            # Fill alone, or with a preference for small tables.
            scale = 1.0 if tried % 2 else 1.0 + SIZE_WEIGHT
            names = rng.permutation(n)
            limit = HOPELESS_LOG_SIZE * scale
            order, _ = greedy(s.adjacency, names, scale * logs, elimination.MIN_FILL, limit)
            if n and order[-1] < 0:
                break
            found, seconds = expected(order)
            spent += seconds
            improved = tried if found < 0.9 * rows else improved
            best, rows = (order, found) if found < rows else (best, rows)
            worth = min(SHARE * PACE["marginals"] * rows, MAX_SEARCH_SECONDS)
            if tried - improved > PATIENCE or spent > worth:
                break
        if rows <= MANY_ENTRIES:
            return cls(possible, [best], rows)
        bands = [(expected(order)[0], i, order) for i, order in enumerate(band_orders(s))]
        ranked = sorted([(rows, -1, best), *bands])
        return cls(possible, [order for _, _, order in ranked], ranked[0][0])

    def run(
        self, mode: int, question: Question, limits: Limits, deadline: float = math.inf
    ) -> tuple[SparseElimination, float]:
        """Pass all messages up; return the tables, and log Z or the best score.

        A small estimate is reliable. A large one ignores the combinations that messages rule out,
        which may be most of them. Therefore every order is tried up to a small number of rows, and
        then up to a larger one, before the first order gets the full limit.

        Raises
        ------
        TooLargeError
            If a limit or the deadline is exceeded.
        """
        most = MAX_ROWS if limits.max_operations is None else limits.max_operations
        attempts = [(order, few) for few in ATTEMPTS for order in self.orders]
        if self.rows <= ATTEMPTS[-1]:
            attempts.insert(0, (self.orders[0], SLACK * self.rows + ATTEMPTS[0]))
        for order, few in attempts if len(self.orders) > 1 else ():
            if few >= most or clock.now() >= deadline:
                continue
            smaller = limits._replace(max_operations=few)
            run = SparseElimination(self.possible, order, question, smaller, deadline)
            try:
                return run, run.up(mode)
            except TooLargeError:
                continue
        full = limits._replace(max_operations=most)
        run = SparseElimination(self.possible, self.orders[0], question, full, deadline)
        return run, run.up(mode)


def planning_seconds(structure: Structure) -> float:
    """Return the estimated time of the search for orders."""
    degrees = np.diff(structure.adjacency.indptr)
    return MAX_SEARCH_SECONDS + SECONDS_PER_STEP * float((degrees**2.0 + 100).sum())


def impossible_share(graph: FactorGraph) -> float:
    """Return the share of the table entries that are impossible."""
    return float(np.isneginf(graph.tables).mean()) if len(graph.tables) else 0.0


class SparseElimination:
    """The tables of all factors and messages along one order."""

    def __init__(
        self,
        possible: Possible,
        order: Ints,
        question: Question,
        limits: Limits,
        deadline: float = math.inf,
    ):
        self.possible, self.question, self.limits = possible, question, limits
        self.deadline = deadline
        self.wiring, self.keys, self.values, self.row_orders = wire(possible, order)
        self.n_keys, self.n_values = len(self.keys), len(self.values)
        self.n = len(order)
        self.first = len(self.wiring.words) - self.n
        self.rows = 0
        self.most = MAX_ROWS if limits.max_operations is None else limits.max_operations

    def up(self, mode: int) -> float:
        """Compute all messages; return log Z or the best score."""
        w, total, unused = self.wiring, 0.0, np.empty(0)
        for b in range(self.n):
            t = self.first + b
            w.key_start[t], w.value_start[t] = self.n_keys, self.n_values
            while True:
                # One bucket may take long: the rows that still fit the time limit it.
                left = self.most - self.rows
                if self.deadline < math.inf:
                    seconds = self.deadline - clock.now()
                    left = min(left, max(seconds, 0.0) / PACE[self.question])
                status, made, rows = joins.walk(
                    w, b, mode, self.keys, self.values, unused, unused, self.n_keys,
                    self.n_values, left,
                )  # fmt: skip
                if status == joins.DONE:
                    break
                if status == joins.TOO_MANY:
                    self._stop(8.0 * (len(self.keys) + len(self.values)), self.rows + rows)
                self._grow(int(w.words[t]))
            if made == 0:
                raise InfeasibleError(INFEASIBLE)
            w.rows[t] = made
            self.rows += rows
            self.n_keys += made * int(w.words[t])
            self.n_values += made
            if not w.words[t]:
                total += self.values[w.value_start[t]]
        return float(total)

    def _grow(self, words: int) -> None:
        """Allocate more rows of so many words."""
        more = int(GROWTH * len(self.values)) + EXTRA_ROWS - self.n_values
        keys, values = self.n_keys + words * more, self.n_values + more
        downward = self.question in ("marginals", "max_marginals")
        memory = 8.0 * (keys + values * (1 + downward))
        if memory > self.limits.max_memory:
            self._stop(memory, self.rows)
        # In place where possible: two copies of everything would need twice the memory.
        self.keys.resize(max(keys, len(self.keys)), refcheck=False)
        self.values.resize(max(values, len(self.values)), refcheck=False)

    def _stop(self, memory: float, rows: float) -> None:
        """Raise TooLargeError for the limit that is exceeded."""
        cost = Cost(PACE[self.question] * rows, memory, rows)
        excess = self.limits.excess(self.question, cost, MAX_ROWS, "at least ")
        reason = excess or f"needs more than {rows:.3g} rows: the time is over"
        raise TooLargeError(f"method 'sparse' {reason}", memory, rows)

    def down(self, mode: int, top: float) -> tuple[Floats, list[Floats]]:
        """Return the marginals or max-marginals of all states, and of all rows of each factor.

        ``top`` is 1 for probabilities, or the best score for max-marginals.
        """
        w, s = self.wiring, self.possible.core.graph.structure
        nothing = 0.0 if mode == joins.SUM_DOWN else -np.inf
        shares = np.full(self.n_values, nothing)
        nodes = np.full(int(s.node_offsets[-1]), nothing)
        for b in range(self.n - 1, -1, -1):
            t, v = self.first + b, int(w.order[b])
            begin = int(w.value_start[t])
            share = shares[begin : begin + int(w.rows[t])]
            if not w.words[t]:
                share[:] = top
            elif mode == joins.SUM_DOWN:
                share /= share.sum()  # rounding errors would accumulate along a path
            node = nodes[s.node_offsets[v] : s.node_offsets[v + 1]]
            joins.walk(w, b, mode, self.keys, self.values, shares, node, 0, begin, np.inf)
        factors = []
        for t, rows in enumerate(self.row_orders):
            begin = int(w.value_start[t])
            share = np.empty(len(rows))
            share[rows] = shares[begin : begin + len(rows)]
            factors.append(share)
        return nodes, factors

    def decode(self, uniforms: Floats) -> Ints:
        """Return sampled labelings; the best one where the uniform numbers are negative."""
        labels = np.zeros(uniforms.shape, dtype=np.int64)
        joins.draw(self.wiring, self.keys, self.values, uniforms, labels)
        return self.possible.labels(labels)


@register
class Sparse(Oracle):
    """Exact by elimination over the possible combinations of states."""

    name = "sparse"
    provides: ClassVar[frozenset[Question]] = frozenset(
        {"map", "marginals", "max_marginals", "sample"}
    )
    rank = 32
    only_adds = True

    def consider(self, graph: FactorGraph, question: Question, limits: Limits) -> Verdict:
        """Estimate the cost from the expected number of rows, where many entries are impossible."""
        s = graph.structure
        if s.n_variables > MAX_VARIABLES:
            return Verdict.reject(
                f"takes at most {MAX_VARIABLES} variables (here {s.n_variables}); "
                'use "junction-tree"'
            )
        if impossible_share(graph) < FEW_ZEROS:
            share = impossible_share(graph)
            reason = f"pays where many entries are zero (here {share:.0%})"
            return Verdict.defer(reason).for_tables()
        if question in ("map", "marginals"):
            return Verdict.defer("is a step of anytime, where zeros make it cheap").for_tables()
        most = min(MAX_SECONDS, limits.seconds)
        if (planning := planning_seconds(s)) > most:
            reason = f"would take {planning:.2g} s to find an order of {s.n_variables} variables"
            return Verdict.defer(reason).for_tables()
        try:
            rows = SparseOrders.of(graph).rows
        except InfeasibleError:
            rows = 0.0
        cost = Cost(planning + rows * PACE[question], 24.0 * rows, rows)
        if cost.seconds > most:
            return Verdict.defer(f"expects to join {rows:.2g} rows", cost).for_tables()
        return Verdict.accept(*cost).for_tables()

    def map(
        self, graph: FactorGraph, limits: Limits = NO_LIMITS, deadline: float = math.inf
    ) -> MapResult:
        """Pass max-sum messages up, then decode from the root."""
        run, _ = SparseOrders.of(graph).run(joins.MAX, "map", limits, deadline)
        return proved_map(graph, run.decode(np.full((1, run.n), -1.0))[0], self.name)

    def marginals(self, graph: FactorGraph, limits: Limits = NO_LIMITS) -> MarginalResult:
        """Pass sum-product messages up and down."""
        return self.answer(SparseOrders.of(graph), limits)

    def answer(
        self, orders: SparseOrders, limits: Limits, deadline: float = math.inf
    ) -> MarginalResult:
        """Compute marginals along the orders of a graph."""
        run, log_z = orders.run(joins.SUM, "marginals", limits, deadline)
        nodes, shares = run.down(joins.SUM_DOWN, 1.0)
        return run.possible.marginals(nodes, shares, log_z, self.name, info={"rows": run.rows})

    def max_marginals(self, graph: FactorGraph, limits: Limits = NO_LIMITS) -> MaxMarginalResult:
        """Pass max-sum messages up and down."""
        run, score = SparseOrders.of(graph).run(joins.MAX, "max_marginals", limits)
        nodes, _ = run.down(joins.MAX_DOWN, score)
        return run.possible.max_marginals(nodes, score, self.name)

    def sample(
        self, graph: FactorGraph, n: int, rng: np.random.Generator, limits: Limits = NO_LIMITS
    ) -> Ints:
        """Pass sum-product messages up, then sample on the way down."""
        run, _ = SparseOrders.of(graph).run(joins.SUM, "sample", limits)
        labels = np.empty((n, graph.n_variables), dtype=np.int64)
        block = max(1, 4_000_000 // max(run.n, 1))
        for first in range(0, n, block):
            part = labels[first : first + block]
            part[:] = run.decode(rng.random((len(part), run.n)))
        return labels
