"""Sparse elimination: exact on models full of zeros, where dense tables would be too wide.

Tables are sorted lists of the combinations of states that are possible. Eliminating a variable
joins the tables that hold it, and sums up rows that agree on everything else. How many rows
there are shows while it runs: what exceeds the limits is refused then.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np

from cliquewise._kernels.graphs import elimination
from cliquewise._kernels.graphs import sparse_joins as joins
from cliquewise._kernels.graphs.sparse_orders import expected_rows
from cliquewise.errors import InfeasibleError, TooLargeError
from cliquewise.graph.evidence import INFEASIBLE
from cliquewise.graph.factor_graph import FactorGraph
from cliquewise.graph.structure import Structure
from cliquewise.oracles._sparse_tables import Possible, wire
from cliquewise.oracles.base import MAX_MEMORY, Oracle, over_limits, register
from cliquewise.oracles.junction_tree import DEAR, SECONDS_PER_STEP, band_orders, follow, greedy
from cliquewise.oracles.results import MapResult, MarginalResult, MaxMarginalResult
from cliquewise.ragged import Floats, Ints

#: Its tables are wired in Python, some tenths of a millisecond a variable.
MOST_VARIABLES = 10_000
#: Rows to join, unless the caller sets ``max_operations``.
MAX_ROWS = 2e10
#: Seconds per row that is joined, for each question.
PACE = {"map": 5e-8, "max_marginals": 1e-7, "sample": 5e-8, "marginals": 1e-7}
#: Orders to try: at most, how many without a gain, the share of the time of the answer that they
#: may cost, and the seconds that they may cost in any case.
MOST_TRIES, PATIENCE, SHARE, MOST_SECONDS = 1000, 100, 0.1, 1.0
#: An order ends at a dense table of more entries than e to this, whatever is possible in it: to
#: follow it further would take minutes.
HOPELESS = 100.0
#: Part of the logarithms of the states that is added to an edge's worth, in every other order.
WEIGHT = 3e5
#: Seconds that ``auto`` lets it take for draws and max-marginals.
LONGEST = 60.0
#: With a smaller share of zeros dense tables are at least as good.
FEW_ZEROS = 0.2
#: Rows up to which all orders are tried; how many times the rows expected are believed.
ATTEMPTS, SLACK = (2.0**19, 2.0**22), 8.0
#: Room for this many more rows whenever a table does not fit, and this many times the rows so far.
ROOM, GROWTH = 4096, 1.5


@dataclass(frozen=True, eq=False)
class Outlook:
    """What is possible in a graph, orders, the most promising first, and the rows of that one."""

    possible: Possible
    orders: list[Ints]
    rows: float

    @classmethod
    def of(cls, graph: FactorGraph) -> Outlook:
        """The best of several greedy orders, tried as long as that pays."""
        possible = Possible.of(graph)
        s, n = possible.core.graph.structure, len(possible.cards)
        logs, rng = possible.log_cards, np.random.default_rng(0)
        best, rows, gained, spent = np.arange(n), np.inf, 0, 0.0

        def expected(order: Ints) -> tuple[float, float]:
            """Rows, and seconds that a greedy order like this takes."""
            found = follow(s, order, 0.0)
            widths = np.diff(found.sep_offsets)
            rows = expected_rows(order, found.sep_offsets, found.seps, logs, possible.subsets)
            return float(rows), SECONDS_PER_STEP * float((widths**2.0 + 100).sum())

        for tried in range(MOST_TRIES):
            # Fill alone, or with a preference for small tables.
            scale = 1.0 if tried % 2 else 1.0 + WEIGHT
            names = rng.permutation(n)
            limit = HOPELESS * scale
            order, _ = greedy(s.adjacency, names, scale * logs, elimination.MIN_FILL, limit)
            if n and order[-1] < 0:
                break
            found, seconds = expected(order)
            spent += seconds
            gained = tried if found < 0.9 * rows else gained
            best, rows = (order, found) if found < rows else (best, rows)
            # By count, not by clock: the same graph always gets the same order.
            worth = min(SHARE * PACE["marginals"] * rows, MOST_SECONDS)
            if tried - gained > PATIENCE or spent > worth:
                break
        if rows <= DEAR:
            return cls(possible, [best], rows)
        bands = [(expected(order)[0], i, order) for i, order in enumerate(band_orders(s))]
        ranked = sorted([(rows, -1, best), *bands])
        return cls(possible, [order for _, _, order in ranked], ranked[0][0])

    def run(self, mode: int, want: str, options: dict[str, Any]) -> tuple[Run, float]:
        """Tables with all messages, and what they say of the whole graph.

        Few rows are believed. Otherwise estimates know nothing of what messages rule out, which
        may be most: every order is tried, to a few rows and then to some more. If none ends, the
        most promising goes on.
        """
        most = float(options.get("max_operations", MAX_ROWS))
        attempts = [(order, few) for few in ATTEMPTS for order in self.orders]
        if self.rows <= ATTEMPTS[-1]:
            attempts.insert(0, (self.orders[0], SLACK * self.rows + ATTEMPTS[0]))
        for order, few in attempts if len(self.orders) > 1 else ():
            if few >= most:
                continue
            run = Run(self.possible, order, want, {**options, "max_operations": few})
            try:
                return run, run.up(mode)
            except TooLargeError:
                continue
        run = Run(self.possible, self.orders[0], want, options)
        return run, run.up(mode)


def looking(structure: Structure) -> float:
    """Seconds that the search for orders may take, about."""
    degrees = np.diff(structure.adjacency.indptr)
    return MOST_SECONDS + SECONDS_PER_STEP * float((degrees**2.0 + 100).sum())


def zeros(graph: FactorGraph) -> float:
    """Share of the table entries that are impossible."""
    return float(np.isneginf(graph.tables).mean()) if len(graph.tables) else 0.0


class Run:
    """The tables of all factors and messages along one order."""

    def __init__(self, possible: Possible, order: Ints, want: str, options: dict[str, Any]):
        self.possible, self.want, self.options = possible, want, options
        self.wiring, self.keys, self.values, self.row_orders = wire(possible, order)
        self.n_keys, self.n_values = len(self.keys), len(self.values)
        self.n = len(order)
        self.first = len(self.wiring.words) - self.n
        self.rows = 0
        self.most = float(options.get("max_operations", MAX_ROWS))

    def up(self, mode: int) -> float:
        """All messages; log Z, or the best score."""
        w, total, nowhere = self.wiring, 0.0, np.empty(0)
        for b in range(self.n):
            t = self.first + b
            w.key_start[t], w.value_start[t] = self.n_keys, self.n_values
            while True:
                how, made, rows = joins.walk(
                    w, b, mode, self.keys, self.values, nowhere, nowhere, self.n_keys,
                    self.n_values, self.most - self.rows,
                )  # fmt: skip
                if how == joins.DONE:
                    break
                if how == joins.TOO_MANY:
                    self._refuse(8.0 * (len(self.keys) + len(self.values)), self.rows + rows)
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
        """Make room for more rows of so many words."""
        room = int(GROWTH * len(self.values)) + ROOM - self.n_values
        keys, values = self.n_keys + words * room, self.n_values + room
        downward = self.want in ("marginals", "max_marginals")
        memory = 8.0 * (keys + values * (1 + downward))
        if memory > float(self.options.get("max_memory", MAX_MEMORY)):
            self._refuse(memory, self.rows)
        # In place, mostly: two copies of everything would need twice the memory.
        self.keys.resize(max(keys, len(self.keys)), refcheck=False)
        self.values.resize(max(values, len(self.values)), refcheck=False)

    def _refuse(self, memory: float, rows: float) -> None:
        limits = {"max_memory": MAX_MEMORY, "max_operations": MAX_ROWS} | self.options
        refusal = over_limits(self.want, memory, rows, limits, at_least="at least ")
        assert refusal is not None
        message = f"method 'sparse' {refusal}"
        raise TooLargeError(message, refusal.memory_bytes, refusal.operations)

    def down(self, mode: int, top: float) -> tuple[Floats, list[Floats]]:
        """What the rest of the graph says of every state, and of every row of each factor.

        ``top`` is what the whole graph says: 1 for probabilities, or the best score.
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
                share /= share.sum()  # rounding errors would add up along a path
            node = nodes[s.node_offsets[v] : s.node_offsets[v + 1]]
            joins.walk(w, b, mode, self.keys, self.values, shares, node, 0, begin, np.inf)
        factors = []
        for t, rows in enumerate(self.row_orders):
            begin = int(w.value_start[t])
            share = np.empty(len(rows))
            share[rows] = shares[begin : begin + len(rows)]
            factors.append(share)
        return nodes, factors

    def draw(self, uniforms: Floats) -> Ints:
        """Labelings; the best one where uniforms are negative."""
        labels = np.zeros(uniforms.shape, dtype=np.int64)
        joins.draw(self.wiring, self.keys, self.values, uniforms, labels)
        return self.possible.labels(labels)


@register
class Sparse(Oracle):
    """Exact by elimination over the combinations of states that are possible."""

    name = "sparse"
    provides: ClassVar[frozenset[str]] = frozenset({"map", "marginals", "max_marginals", "sample"})
    rank = 32
    only_adds = True
    has_limits = True
    needs_zeros = True

    def refuses(self, structure: Structure, want: str = "map") -> str | None:
        """Refuse large graphs, which other methods solve where they can be solved."""
        if structure.n_variables > MOST_VARIABLES:
            return (
                f"takes at most {MOST_VARIABLES} variables (here {structure.n_variables}); "
                'use "junction-tree"'
            )
        return None

    def avoids(self, structure: Structure, want: str = "map") -> str | None:
        """Why ``auto`` does not ask it first: cheaper ways come before it in ``anytime``."""
        if want in ("map", "marginals"):
            return "is asked by anytime, where zeros make it cheap"
        return None

    def avoids_tables(self, graph: FactorGraph, want: str = "map") -> str | None:
        """Without many zeros rows are as many as entries, and dearer."""
        if zeros(graph) < FEW_ZEROS:
            return f"pays where many entries are zero (here {zeros(graph):.0%})"
        if want in ("map", "marginals"):  # anytime has its own limits
            return None
        if looking(graph.structure) > LONGEST:
            return f"would look for an order of {graph.n_variables} variables for minutes"
        try:
            rows = Outlook.of(graph).rows
        except InfeasibleError:
            return None
        if rows * PACE[want] > LONGEST:
            return f"expects to join {rows:.2g} rows"
        return None

    def _start(
        self, graph: FactorGraph, mode: int, want: str, options: dict[str, Any]
    ) -> tuple[Run, float]:
        self.check_limits(graph.structure, want, options)
        return Outlook.of(graph).run(mode, want, options)

    def map(self, graph: FactorGraph, **options: Any) -> MapResult:
        """Maxima, and one walk down."""
        run, _ = self._start(graph, joins.MAX, "map", options)
        return self.best(graph, run.draw(np.full((1, run.n), -1.0))[0])

    def marginals(self, graph: FactorGraph, **options: Any) -> MarginalResult:
        """Sums up and down."""
        self.check_limits(graph.structure, "marginals", options)
        return self.answer(Outlook.of(graph), options)

    def answer(self, outlook: Outlook, options: dict[str, Any]) -> MarginalResult:
        """Marginals by what is known of a graph."""
        run, log_z = outlook.run(joins.SUM, "marginals", options)
        nodes, shares = run.down(joins.SUM_DOWN, 1.0)
        return run.possible.marginals(nodes, shares, log_z, self.name, info={"rows": run.rows})

    def max_marginals(self, graph: FactorGraph, **options: Any) -> MaxMarginalResult:
        """Maxima up and down."""
        run, score = self._start(graph, joins.MAX, "max_marginals", options)
        nodes, _ = run.down(joins.MAX_DOWN, score)
        return run.possible.max_marginals(nodes, score, self.name)

    def sample(self, graph: FactorGraph, n: int, rng: np.random.Generator, **options: Any) -> Ints:
        """Sums, and draws on the way down."""
        run, _ = self._start(graph, joins.SUM, "sample", options)
        labels = np.empty((n, graph.n_variables), dtype=np.int64)
        block = max(1, 4_000_000 // max(run.n, 1))
        for first in range(0, n, block):
            part = labels[first : first + block]
            part[:] = run.draw(rng.random((len(part), run.n)))
        return labels
