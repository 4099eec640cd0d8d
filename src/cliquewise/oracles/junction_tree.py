"""Junction tree: exact inference by elimination, on any graph of small treewidth."""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Any, ClassVar, NamedTuple

import numpy as np
from scipy.sparse import csr_array
from scipy.sparse.csgraph import reverse_cuthill_mckee

from cliquewise._kernels.graphs import elimination
from cliquewise._kernels.graphs import junction_tree as passes
from cliquewise.errors import InfeasibleError, TooLargeError
from cliquewise.graph.evidence import INFEASIBLE
from cliquewise.graph.factor_graph import FactorGraph
from cliquewise.graph.structure import Structure
from cliquewise.oracles.base import (
    HURRY,
    MAX_MEMORY,
    QUESTIONS,
    Cost,
    Oracle,
    over_limits,
    register,
)
from cliquewise.oracles.results import MapResult, MarginalResult, MaxMarginalResult
from cliquewise.ragged import Floats, Ints, Ragged, offsets_of

#: Refuse above this, unless the caller sets ``max_operations``.
MAX_OPERATIONS = 1e11
#: A greedy order is given up once a table exceeds this many entries (e**33 = 2e14).
HOPELESS_LOG_SIZE = 33.0
#: The quick order is given up later: careful ones are at times better by a factor of e**10.
HOPELESS_QUICK_ORDER = 45.0
#: Greedy orders to try: how many without a gain and at most, the share of the time of the answer
#: that they may cost, and the seconds that they may cost in any case.
PATIENCE, MOST_TRIES, SHARE, MOST_SECONDS = 50, 500, 0.2, 2.0
ENTRIES_PER_SECOND, SECONDS_PER_STEP = 1e8, 5e-8
#: Tables this often too large stay so: a few tries will do.
OUT_OF_REACH, FEW_TRIES = 256.0, 6
#: Tables of more entries than this are worth a look at other kinds of orders, for graphs of up to
#: so many variables (such orders may have separators of all of them).
DEAR, LONGEST_BAND = 1e6, 3000
#: What more orders save at most, mostly.
GAIN = 4.0
#: In a hurry the search for orders gets this part of the time.
HURRIED_PART = 0.1
#: Seconds per table entry of each question, and per table.
PACE = {"map": 4e-9, "top_k": 5e-9, "max_marginals": 1e-8, "sample": 1.2e-8, "marginals": 2.2e-8}
PER_TABLE = 2e-6
#: Marginals keep their tables from the way up for the way down, 1.4 times as fast, where they have
#: so many entries together and ``max_memory`` has room; beyond, memory is too slow.
KEPT = 2**23
#: Seconds of the first orders per variable and edge.
PER_STEP = 2e-6
#: An order of more variables takes longer than an attempt to do without.
LONG_ORDER = 300


class Sketch(NamedTuple):
    """An elimination order and what it would cost, before anything large is allocated."""

    order: Ints
    place: Ints
    parent: Ints
    sep_offsets: Ints
    seps: Ints
    clique_sizes: Floats
    sep_sizes: Floats
    log_size: float

    @property
    def is_complete(self) -> bool:
        """Whether the order was followed to its end."""
        return bool(len(self.order) == 0 or self.order[-1] >= 0)

    @property
    def operations(self) -> float:
        """Table entries to fill, a lower bound where the order was given up."""
        return float(self.clique_sizes.sum()) if self.is_complete else float(np.exp(self.log_size))

    def memory(self, keep_tables: bool) -> float:
        """Bytes for one question: all messages and one table, or (for draws) all tables."""
        if not self.is_complete:
            return 8.0 * self.operations
        tables = self.clique_sizes.sum() if keep_tables else self.clique_sizes.max(initial=0)
        return 8.0 * float(tables + self.sep_sizes.sum())


def follow(structure: Structure, order: Ints, log_size: float) -> Sketch:
    """What an order costs; -1 at its end says that it was given up at a table of this log size."""
    if len(order) and order[-1] < 0:
        none, empty = np.empty(0, dtype=np.int64), np.empty(0)
        return Sketch(order, none, none, none, none, empty, empty, log_size)
    s = structure
    place, parent, sep_offsets, seps, clique_sizes, sep_sizes = elimination.separators(
        order, s.cardinalities, s.scopes, s.scope_offsets
    )
    return Sketch(order, place, parent, sep_offsets, seps, clique_sizes, sep_sizes, log_size)


def wired(structure: Structure, sketch: Sketch) -> Any:
    """Flat wiring of a complete order for the kernels."""
    s, sk = structure, sketch
    cards = s.cardinalities[sk.order]
    sep_sizes = sk.sep_sizes.astype(np.int64)
    message_offsets = offsets_of(sep_sizes)[:-1]
    wiring = elimination.operands(
        sk.place, sk.parent, cards, sk.sep_offsets, sk.seps, message_offsets,
        s.scopes, s.scope_offsets, s.table_offsets,
    )  # fmt: skip
    return elimination.Plan(
        sk.order, cards, sk.parent, sk.sep_offsets, sk.seps,
        sk.clique_sizes.astype(np.int64), sep_sizes, message_offsets, *wiring,
    )  # fmt: skip


class Elimination(Oracle):
    """Exact inference along an elimination order; subclasses say which order."""

    provides: ClassVar[frozenset[str]] = frozenset(QUESTIONS)
    only_adds = True
    has_limits = True

    def order(self, structure: Structure, most: float = MOST_SECONDS) -> tuple[Ints, float]:
        """Elimination order, from about so many seconds, and the log size of its largest table."""
        raise NotImplementedError

    # ---- the plan of a structure, made once

    def sketch(self, structure: Structure, seconds: float = math.inf) -> Sketch:
        """Order and costs; kept with the structure. With little time, of the first orders."""
        found = structure.memo.get((self.name, "sketch"))
        if found is None:
            hurried = seconds < HURRY
            key = (self.name, "hurried sketch" if hurried else "sketch")
            found = structure.memo.get(key)
            if found is None:
                most = HURRIED_PART * seconds if hurried else MOST_SECONDS
                found = follow(structure, *self.order(structure, most))
                structure.memo[key] = found
        return found

    def known(self, structure: Structure) -> Sketch:
        """The best order found so far; one is searched for where there is none."""
        hurried = structure.memo.get((self.name, "hurried sketch"))
        if hurried is not None and (self.name, "sketch") not in structure.memo:
            return hurried  # type: ignore[no-any-return]
        return self.sketch(structure)

    def at_least(self, structure: Structure, want: str = "map") -> float:
        """By the first orders: more of them seldom save more than three quarters."""
        if (self.name, "sketch") in structure.memo:
            return self.cost(structure, want).seconds
        rough = self.sketch(structure, 0.0)
        return 2e-5 + PACE[want] * rough.operations / GAIN

    def known_cost(self, structure: Structure, options: dict[str, Any]) -> Cost | None:
        """That of a MAP answer by what is known of orders; None if nothing, or too much."""
        if not self.has_order(structure):
            return None
        if self._over_limits(structure, self.known(structure), "map", options) is not None:
            return None
        return self.cost(structure, "map")

    def has_order(self, structure: Structure) -> bool:
        """Whether an order was found already."""
        return any((self.name, kind) in structure.memo for kind in ("sketch", "hurried sketch"))

    def plan(self, structure: Structure) -> Any:
        """Flat wiring for the kernels; kept with the structure."""
        key, sk = (self.name, "plan"), self.known(structure)
        made_for, plan = structure.memo.get(key, (None, None))
        if made_for is not sk:
            plan = wired(structure, sk)
            structure.memo[key] = sk, plan
        return plan

    def too_large(
        self, structure: Structure, want: str, options: dict[str, Any]
    ) -> TooLargeError | None:
        """The refusal that states memory and operations, if they exceed the limits."""
        seconds = options.get("seconds")
        if seconds is not None and not self.has_order(structure):
            ordering = PER_STEP * float(structure.n_variables + len(structure.edges))
            if ordering > HURRIED_PART * seconds:
                n = structure.n_variables
                return TooLargeError(
                    f"needs about {ordering:.2g} s to look for an order of {n} variables, too much "
                    f"of the {seconds:g} s that there are", math.nan, math.nan,
                )  # fmt: skip
        sk = self.known(structure) if seconds is None else self.sketch(structure, seconds)
        refusal = self._over_limits(structure, sk, want, options)
        if refusal is not None and seconds is None and sk is not self.sketch(structure):
            refusal = self._over_limits(structure, self.sketch(structure), want, options)
        return refusal

    def _over_limits(
        self, structure: Structure, sk: Sketch, want: str, options: dict[str, Any]
    ) -> TooLargeError | None:
        at_least = "" if sk.is_complete else "at least "
        memory = self._memory(structure, sk, want)
        return over_limits(want, memory, sk.operations, options, MAX_OPERATIONS, at_least)

    def cost(self, structure: Structure, want: str = "map") -> Cost:
        """Proportional to the entries of the tables; many small ones cost for being many."""
        sk = self.known(structure)
        seconds = 2e-5 + PER_TABLE * len(sk.order) + PACE[want] * sk.operations
        return Cost(seconds, self._memory(structure, sk, want))

    @staticmethod
    def _memory(structure: Structure, sk: Sketch, want: str) -> float:
        answer = structure.table_offsets[-1] + structure.node_offsets[-1]
        return sk.memory(want == "sample") + 8.0 * float(answer) * (want == "marginals")

    def _start(self, graph: FactorGraph, want: str, options: dict[str, Any]) -> Any:
        advice = (
            "; methods without such tables: barrier-fw or trw-bp for marginals, toulbar2, trw-s "
            "or portfolio for MAP"
        )
        self.check_limits(graph.structure, want, options, advice)
        return self.plan(graph.structure)

    # ---- the questions

    @staticmethod
    def room(plan: Any) -> tuple[Floats, Floats]:
        """Uninitialized messages, and one table."""
        return (
            np.empty(int(plan.sep_sizes.sum())),
            np.empty(int(plan.clique_sizes.max(initial=0))),
        )

    def _upward_max(self, graph: FactorGraph, plan: Any) -> tuple[Floats, Floats, float]:
        messages, work = self.room(plan)
        score = passes.upward_max(plan, graph.tables, messages, work)
        if score == -np.inf:
            raise InfeasibleError(INFEASIBLE)
        return messages, work, score

    def map(self, graph: FactorGraph, **options: Any) -> MapResult:
        """Max-sum and one walk down."""
        plan = self._start(graph, "map", options)
        messages, _, _ = self._upward_max(graph, plan)
        return self.best(graph, passes.best_labels(plan, graph.tables, messages))

    def top_k(self, graph: FactorGraph, k: int, **options: Any) -> list[MapResult]:
        """Max-sum and k walks down."""
        plan = self._start(graph, "top_k", options)
        messages, _, score = self._upward_max(graph, plan)
        log_count = np.log(graph.cardinalities.astype(float)).sum()
        most = k if log_count > 40 else min(k, round(np.exp(log_count)))
        places, _ = passes.k_best(plan, graph.tables, messages, score, most)
        labels = np.empty_like(places)
        labels[:, plan.order] = places
        results = [self.best(graph, row) for row in labels]
        return sorted(results, key=lambda result: -result.score)

    def marginals(self, graph: FactorGraph, **options: Any) -> MarginalResult:
        """Sum-product up and down."""
        plan = self._start(graph, "marginals", options)
        s = graph.structure
        answer = 8.0 * float(s.table_offsets[-1] + s.node_offsets[-1])
        needed = self.known(s).memory(True) + answer
        limit = float(options.get("max_memory", MAX_MEMORY))
        keep = bool(plan.clique_sizes.sum() <= KEPT and needed <= limit)
        messages, cliques, starts = self._tables(plan, keep)
        log_z = passes.upward_sum(plan, graph.tables, messages, cliques, starts, keep)
        if log_z == -np.inf:
            raise InfeasibleError(INFEASIBLE)
        nodes, factors = np.empty(int(s.node_offsets[-1])), np.empty(int(s.table_offsets[-1]))
        passes.downward_sum(
            plan, graph.tables, messages, cliques, starts, keep, s.node_offsets, nodes, factors
        )
        return MarginalResult.from_flat(graph, nodes, factors, log_z, self.name)

    def _tables(self, plan: Any, keep: bool) -> tuple[Floats, Floats, Ints]:
        """Room for messages and for one table or all of them, and where each begins."""
        if not keep:
            return *self.room(plan), np.zeros(len(plan.order), dtype=np.int64)
        starts = offsets_of(plan.clique_sizes)
        return self.room(plan)[0], np.empty(int(starts[-1])), starts[:-1]

    def max_marginals(self, graph: FactorGraph, **options: Any) -> MaxMarginalResult:
        """Max-sum up and down."""
        plan = self._start(graph, "max_marginals", options)
        messages, work, score = self._upward_max(graph, plan)
        s = graph.structure
        nodes = np.empty(int(s.node_offsets[-1]))
        passes.downward_max(plan, graph.tables, messages, work, score, s.node_offsets, nodes)
        tables = Ragged(nodes, s.node_offsets)
        return MaxMarginalResult(tables, score, True, self.name, graph.rounding)

    def sample(self, graph: FactorGraph, n: int, rng: np.random.Generator, **options: Any) -> Ints:
        """Sum-product up, and draws on the way down."""
        plan = self._start(graph, "sample", options)
        messages, cliques, starts = self._tables(plan, True)
        log_z = passes.upward_sum(plan, graph.tables, messages, cliques, starts, True)
        if log_z == -np.inf:
            raise InfeasibleError(INFEASIBLE)
        labels = np.empty((n, graph.n_variables), dtype=np.int64)
        block = max(1, 4_000_000 // max(graph.n_variables, 1))
        for first in range(0, n, block):
            part = labels[first : first + block]
            passes.draw(plan, cliques, starts, rng.random(part.shape), part)
        return labels


@register
class JunctionTree(Elimination):
    """Exact by elimination, in the best of several greedy orders."""

    name = "junction-tree"
    rank = 30

    def avoids(self, structure: Structure, want: str = "map") -> str | None:
        """Why ``auto`` asks others first: the search for an order alone takes its time."""
        known = self.has_order(structure)
        if want != "map" or structure.n_variables <= LONG_ORDER or known:
            return None
        return (
            f"would have to order {structure.n_variables} variables first: cheaper methods may "
            "prove the same before"
        )

    def order(self, structure: Structure, most: float = MOST_SECONDS) -> tuple[Ints, float]:
        """Min-weight, then min-fill with ties broken at random, as long as that pays.

        More tries cost a share of what the answer itself would take, and end once they no longer
        help. On pedigrees the best of fifty has a quarter of the entries of the first, or less.
        Where min-weight is hopeless, nothing else is tried.
        """
        adjacency = structure.adjacency
        logs = np.log(structure.cardinalities.astype(float))
        rng, spent = np.random.default_rng(0), 0.0
        best: Sketch | None = None
        gained, rule = 0, elimination.MIN_WEIGHT
        for tried in range(MOST_TRIES):
            # Ties are broken by number: other numbers, other ties.
            names = rng.permutation(len(logs)) if tried > 1 else np.arange(len(logs))
            limit = HOPELESS_LOG_SIZE if tried else HOPELESS_QUICK_ORDER
            found = follow(structure, *greedy(adjacency, names, logs, rule, limit))
            rule = elimination.MIN_FILL
            if best is None or found.operations < best.operations:
                gained = (
                    tried if best is None or found.operations < 0.9 * best.operations else gained
                )
                best = found
            # By count, not by clock: the same graph always gets the same order.
            spent += SECONDS_PER_STEP * float((np.diff(found.sep_offsets) ** 2.0 + 100).sum())
            worth = min(SHARE * best.operations / ENTRIES_PER_SECOND, most)
            patience = FEW_TRIES if best.memory(False) > OUT_OF_REACH * MAX_MEMORY else PATIENCE
            if not best.is_complete or (tried and (tried - gained > patience or spent > worth)):
                break
        assert best is not None
        if best.operations > DEAR:
            for order in band_orders(structure):
                found = follow(structure, order, 0.0)
                if found.operations < best.operations:
                    best = found._replace(log_size=float(np.log(found.clique_sizes.max())))
        return best.order, best.log_size


def band_orders(structure: Structure) -> Iterator[Ints]:
    """Orders from one end of the graph to the other, for those that are long and thin.

    Greedy orders of a process that is unrolled in time can be worse by many powers of two.
    """
    n = structure.n_variables
    if 0 < n <= LONGEST_BAND:
        band = reverse_cuthill_mckee(structure.adjacency.tocsr(), symmetric_mode=True)
        along = np.asarray(band, dtype=np.int64)
        yield from (along, along[::-1].copy(), np.arange(n), np.arange(n)[::-1].copy())


def greedy(
    adjacency: csr_array, names: Ints, logs: Floats, rule: int, limit: float
) -> tuple[Ints, float]:
    """A greedy order of the graph whose vertex ``names[i]`` is called ``i``."""
    n = len(names)
    number, degrees = np.empty(n, dtype=np.int64), np.diff(adjacency.indptr)
    number[names] = np.arange(n)
    # Rows and columns in one key: for small graphs a tenth of the time of SciPy's indexing.
    keys = np.sort(np.repeat(number, degrees) * n + number[adjacency.indices])
    indptr, indices = offsets_of(degrees[names].astype(np.int64)), keys % max(n, 1)
    order, log_size = elimination.greedy_order(indptr, indices, logs[names], rule, limit)
    return np.where(order >= 0, names[order], -1) if n else order, log_size
