"""Junction tree: exact inference by variable elimination, for graphs of small treewidth."""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Any, ClassVar, NamedTuple

import numpy as np
from scipy.sparse import csr_array
from scipy.sparse.csgraph import reverse_cuthill_mckee

from cliquewise._kernels.graphs import elimination
from cliquewise._kernels.graphs import junction_tree as passes
from cliquewise.errors import InfeasibleError
from cliquewise.graph.evidence import INFEASIBLE
from cliquewise.graph.factor_graph import FactorGraph
from cliquewise.graph.structure import Structure
from cliquewise.oracles.base import (
    MAX_MEMORY,
    NO_LIMITS,
    QUESTIONS,
    Cost,
    Limits,
    Oracle,
    Question,
    Verdict,
    too_large_error,
)
from cliquewise.oracles.registry import get, register
from cliquewise.oracles.results import MapResult, MarginalResult, MaxMarginalResult, proved_map
from cliquewise.ragged import Floats, Ints, Ragged, offsets_of

#: Default limit of the table entries of one answer.
MAX_OPERATIONS = 1e11
#: A greedy order is abandoned once a table exceeds this log size (e**33 = 2e14 entries).
HOPELESS_LOG_SIZE = 33.0
#: The first order may be wider: better ones are sometimes smaller by a factor of e**10.
HOPELESS_FIRST_ORDER = 45.0
#: Search for orders: tries without improvement, tries at most, fraction of the estimated time of
#: the answer, seconds at most.
PATIENCE, MAX_TRIES, SHARE, MAX_SEARCH_SECONDS = 50, 500, 0.2, 2.0
ENTRIES_PER_SECOND, SECONDS_PER_STEP = 1e8, 5e-8
#: Seconds of the first two tries, which are always made: small graphs need no more.
FIRST_TRIES = 1e-4
#: Tables that exceed the memory by this factor stay too large: a few tries are enough.
OUT_OF_REACH, FEW_TRIES = 256.0, 6
#: Above this number of table entries, band orders are tried as well, for graphs with up to so many
#: variables (band orders may have separators of all of them).
MANY_ENTRIES, MAX_BAND_VARIABLES = 1e6, 3000
#: More tries seldom improve the first two orders by more than this factor.
GAIN = 4.0
#: Seconds per table entry for each question, and per table.
PACE = {"map": 4e-9, "top_k": 5e-9, "max_marginals": 1e-8, "sample": 1.2e-8, "marginals": 2.2e-8}
PER_TABLE, PER_ANSWER = 2e-6, 2e-5
#: Marginals keep the tables of the upward pass for the downward pass (1.4 times as fast) up to so
#: many entries in total; larger tables no longer fit the cache.
MAX_KEPT_ENTRIES = 2**23
#: Seconds for the first two orders, per variable and edge.
PER_STEP = 2e-6
#: With less time than this (seconds), the search for an order gets a fraction of the time.
SHORT_TIME, SEARCH_SHARE = 20.0, 0.1


class EliminationOrder(NamedTuple):
    """An elimination order, its cliques and separators, and their sizes.

    ``log_size`` is the log size of the table at which an incomplete order was abandoned.
    """

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
        """Whether the order has all variables."""
        return bool(len(self.order) == 0 or self.order[-1] >= 0)

    @property
    def operations(self) -> float:
        """Number of table entries; a lower bound if the order is incomplete."""
        return float(self.clique_sizes.sum()) if self.is_complete else float(np.exp(self.log_size))

    def memory(self, keep_tables: bool) -> float:
        """Return the bytes of all messages and of one table, or of all tables."""
        if not self.is_complete:
            return 8.0 * self.operations
        tables = self.clique_sizes.sum() if keep_tables else self.clique_sizes.max(initial=0)
        return 8.0 * float(tables + self.sep_sizes.sum())


def analyze_order(structure: Structure, order: Ints, log_size: float = 0.0) -> EliminationOrder:
    """Compute the cliques and separators of an order; -1 at its end marks an abandoned one."""
    if len(order) and order[-1] < 0:
        none, empty = np.empty(0, dtype=np.int64), np.empty(0)
        return EliminationOrder(order, none, none, none, none, empty, empty, log_size)
    s = structure
    place, parent, sep_offsets, seps, clique_sizes, sep_sizes = elimination.separators(
        order, s.cardinalities, s.scopes, s.scope_offsets
    )
    return EliminationOrder(
        order, place, parent, sep_offsets, seps, clique_sizes, sep_sizes, log_size
    )


def compile_order(structure: Structure, order: EliminationOrder) -> Any:
    """Return the index arrays of a complete order for the kernels."""
    s = structure
    cards = s.cardinalities[order.order]
    sep_sizes = order.sep_sizes.astype(np.int64)
    message_offsets = offsets_of(sep_sizes)[:-1]
    operands = elimination.operands(
        order.place, order.parent, cards, order.sep_offsets, order.seps, message_offsets,
        s.scopes, s.scope_offsets, s.table_offsets,
    )  # fmt: skip
    return elimination.Plan(
        order.order, cards, order.parent, order.sep_offsets, order.seps,
        order.clique_sizes.astype(np.int64), sep_sizes, message_offsets, *operands,
    )  # fmt: skip


def search_budget(seconds: float) -> float:
    """Return the seconds for the search of an order, given the time of the whole call."""
    return SEARCH_SHARE * seconds if seconds < SHORT_TIME else MAX_SEARCH_SECONDS


class Elimination(Oracle):
    """Exact inference along an elimination order; subclasses find the order."""

    provides: ClassVar[frozenset[Question]] = frozenset(QUESTIONS)
    only_adds = True

    def find_order(self, structure: Structure, budget: float) -> EliminationOrder:
        """Search for an elimination order, for about ``budget`` seconds."""
        raise NotImplementedError

    def ordering_seconds(self, structure: Structure) -> float:
        """Return the estimated time to find a first order; 0 if one is cached."""
        if self.known_order(structure) is not None:
            return 0.0
        return PER_STEP * float(structure.n_variables + len(structure.edges))

    # ---- orders, cached with the structure

    def known_order(self, structure: Structure) -> EliminationOrder | None:
        """Return the best order found so far."""
        found: tuple[float, EliminationOrder] | None = structure.memo.get((self.name, "order"))
        return None if found is None else found[1]

    def best_order(
        self, structure: Structure, budget: float = MAX_SEARCH_SECONDS
    ) -> EliminationOrder:
        """Return a cached order, or search for one if the budget allows more than earlier ones."""
        key = (self.name, "order")
        found: tuple[float, EliminationOrder] | None = structure.memo.get(key)
        if found is not None:
            spent, order = found
            worth = SHARE * order.operations / ENTRIES_PER_SECOND
            if budget <= spent or worth <= max(spent, FIRST_TRIES):
                return order
        order = self.find_order(structure, budget)
        if found is not None and found[1].operations < order.operations:
            order = found[1]
        structure.memo[key] = budget, order
        return order

    def plan(self, structure: Structure) -> Any:
        """Return the index arrays of the best known order for the kernels, cached."""
        key, order = (self.name, "plan"), self.known_order(structure) or self.best_order(structure)
        made_for, plan = structure.memo.get(key, (None, None))
        if made_for is not order:
            plan = compile_order(structure, order)
            structure.memo[key] = order, plan
        return plan

    # ---- costs

    def consider(self, graph: FactorGraph, question: Question, limits: Limits) -> Verdict:
        """Estimate the cost from an elimination order, which is found on the way."""
        return self.estimate(graph.structure, question, limits)

    def estimate(self, structure: Structure, question: Question, limits: Limits) -> Verdict:
        """Estimate the cost for all graphs with this structure."""
        ordering = self.ordering_seconds(structure)
        if ordering > limits.planning:
            return Verdict.defer(
                f"would take about {ordering:.2g} s to find an elimination order of "
                f"{structure.n_variables} variables"
            ).for_tables()
        if limits.seconds < math.inf:
            rough = self.known_order(structure) or self.best_order(structure, 0.0)
            cost = self._cost(structure, rough, question)
            least = PER_ANSWER + PACE[question] * rough.operations / GAIN
            if least > limits.seconds:
                return Verdict.defer(f"would take at least {least:.2g} s", cost).for_tables()
        order = self.best_order(structure, min(limits.planning, MAX_SEARCH_SECONDS))
        return self._verdict(structure, order, question, limits)

    def _verdict(
        self, structure: Structure, order: EliminationOrder, question: Question, limits: Limits
    ) -> Verdict:
        cost = self._cost(structure, order, question)
        prefix = "" if order.is_complete else "at least "
        excess = limits.excess(question, cost, MAX_OPERATIONS, prefix)
        return Verdict.accept(*cost) if excess is None else Verdict.too_large(excess, cost)

    def cost(self, structure: Structure, question: Question = "map") -> Cost:
        """Return the estimated cost along the best known order."""
        order = self.known_order(structure) or self.best_order(structure)
        return self._cost(structure, order, question)

    def _cost(self, structure: Structure, order: EliminationOrder, question: Question) -> Cost:
        """Return a cost proportional to the table entries, plus a constant per table."""
        seconds = PER_ANSWER + PER_TABLE * len(order.order) + PACE[question] * order.operations
        output = structure.table_offsets[-1] + structure.node_offsets[-1]
        memory = order.memory(question == "sample") + 8.0 * float(output) * (
            question == "marginals"
        )
        return Cost(seconds, memory, order.operations)

    def _prepare(self, structure: Structure, question: Question, limits: Limits) -> Any:
        """Return the plan of the best known order, or of a better one if that is too large."""
        order = self.known_order(structure) or self.best_order(structure)
        verdict = self._verdict(structure, order, question, limits)
        if not verdict.can_answer:
            verdict = self._verdict(structure, self.best_order(structure), question, limits)
        if not verdict.can_answer:
            advice = (
                "; methods without such tables: barrier-fw or trw-bp for marginals, toulbar2, "
                "trw-s or portfolio for MAP"
            )
            raise too_large_error(self.name, verdict, advice)
        return self.plan(structure)

    # ---- the questions

    @staticmethod
    def workspace(plan: Any) -> tuple[Floats, Floats]:
        """Return uninitialized arrays for the messages and for one table."""
        return (
            np.empty(int(plan.sep_sizes.sum())),
            np.empty(int(plan.clique_sizes.max(initial=0))),
        )

    def _upward_max(self, graph: FactorGraph, plan: Any) -> tuple[Floats, Floats, float]:
        messages, work = self.workspace(plan)
        score = passes.upward_max(plan, graph.tables, messages, work)
        if score == -np.inf:
            raise InfeasibleError(INFEASIBLE)
        return messages, work, score

    def map(self, graph: FactorGraph, limits: Limits = NO_LIMITS) -> MapResult:
        """Pass max-sum messages up, then decode from the root."""
        plan = self._prepare(graph.structure, "map", limits)
        messages, _, _ = self._upward_max(graph, plan)
        return proved_map(graph, passes.best_labels(plan, graph.tables, messages), self.name)

    def top_k(self, graph: FactorGraph, k: int, limits: Limits = NO_LIMITS) -> list[MapResult]:
        """Pass max-sum messages up, then decode the k best labelings."""
        plan = self._prepare(graph.structure, "top_k", limits)
        messages, _, score = self._upward_max(graph, plan)
        log_count = np.log(graph.cardinalities.astype(float)).sum()
        most = k if log_count > 40 else min(k, round(np.exp(log_count)))
        places, _ = passes.k_best(plan, graph.tables, messages, score, most)
        labels = np.empty_like(places)
        labels[:, plan.order] = places
        results = [proved_map(graph, row, self.name) for row in labels]
        return sorted(results, key=lambda result: -result.score)

    def marginals(self, graph: FactorGraph, limits: Limits = NO_LIMITS) -> MarginalResult:
        """Pass sum-product messages up and down."""
        s = graph.structure
        plan = self._prepare(s, "marginals", limits)
        order = self.known_order(s)
        assert order is not None
        output = 8.0 * float(s.table_offsets[-1] + s.node_offsets[-1])
        needed = order.memory(True) + output
        keep = bool(plan.clique_sizes.sum() <= MAX_KEPT_ENTRIES and needed <= limits.max_memory)
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
        """Return arrays for the messages and for one table or all, and the start of each table."""
        if not keep:
            return *self.workspace(plan), np.zeros(len(plan.order), dtype=np.int64)
        starts = offsets_of(plan.clique_sizes)
        return self.workspace(plan)[0], np.empty(int(starts[-1])), starts[:-1]

    def max_marginals(self, graph: FactorGraph, limits: Limits = NO_LIMITS) -> MaxMarginalResult:
        """Pass max-sum messages up and down."""
        plan = self._prepare(graph.structure, "max_marginals", limits)
        messages, work, score = self._upward_max(graph, plan)
        s = graph.structure
        nodes = np.empty(int(s.node_offsets[-1]))
        passes.downward_max(plan, graph.tables, messages, work, score, s.node_offsets, nodes)
        tables = Ragged(nodes, s.node_offsets)
        return MaxMarginalResult(tables, score, True, self.name, graph.rounding)

    def sample(
        self, graph: FactorGraph, n: int, rng: np.random.Generator, limits: Limits = NO_LIMITS
    ) -> Ints:
        """Pass sum-product messages up, then sample on the way down."""
        plan = self._prepare(graph.structure, "sample", limits)
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

    def find_order(self, structure: Structure, budget: float) -> EliminationOrder:
        """Try min-weight, then min-fill with random tie-breaking, as long as that pays.

        The tries cost a fraction of the estimated time of the answer, and end once they no longer
        help. On pedigrees the best of fifty has a quarter of the entries of the first, or less.
        Where min-weight is hopeless, nothing else is tried. Costs are counted in operations, not
        measured, so the same graph always gets the same order.
        """
        adjacency = structure.adjacency
        logs = np.log(structure.cardinalities.astype(float))
        rng, spent = np.random.default_rng(0), 0.0
        best: EliminationOrder | None = None
        improved, rule = 0, elimination.MIN_WEIGHT
        for tried in range(MAX_TRIES):
            # Ties are broken by number, so a permutation changes the order.
            names = rng.permutation(len(logs)) if tried > 1 else np.arange(len(logs))
            limit = HOPELESS_LOG_SIZE if tried else HOPELESS_FIRST_ORDER
            found = analyze_order(structure, *greedy(adjacency, names, logs, rule, limit))
            rule = elimination.MIN_FILL
            if best is None or found.operations < best.operations:
                if best is None or found.operations < 0.9 * best.operations:
                    improved = tried
                best = found
            spent += SECONDS_PER_STEP * float((np.diff(found.sep_offsets) ** 2.0 + 100).sum())
            worth = min(SHARE * best.operations / ENTRIES_PER_SECOND, budget)
            patience = FEW_TRIES if best.memory(False) > OUT_OF_REACH * MAX_MEMORY else PATIENCE
            if not best.is_complete or (tried and (tried - improved > patience or spent > worth)):
                break
        assert best is not None
        if best.operations > MANY_ENTRIES:
            for order in band_orders(structure):
                found = analyze_order(structure, order)
                if found.operations < best.operations:
                    best = found._replace(log_size=float(np.log(found.clique_sizes.max())))
        return best


def elimination_oracle() -> JunctionTree:
    """Return the registered junction tree."""
    tree = get(JunctionTree.name)
    assert isinstance(tree, JunctionTree)
    return tree


def band_orders(structure: Structure) -> Iterator[Ints]:
    """Yield orders from one end of the graph to the other, for long and narrow graphs.

    Greedy orders of a process that is unrolled in time can be worse by many powers of two.
    """
    n = structure.n_variables
    if 0 < n <= MAX_BAND_VARIABLES:
        band = reverse_cuthill_mckee(structure.adjacency.tocsr(), symmetric_mode=True)
        along = np.asarray(band, dtype=np.int64)
        yield from (along, along[::-1].copy(), np.arange(n), np.arange(n)[::-1].copy())


def greedy(
    adjacency: csr_array, names: Ints, logs: Floats, rule: int, limit: float
) -> tuple[Ints, float]:
    """Return a greedy order of the graph in which vertex ``names[i]`` has number ``i``."""
    n = len(names)
    number, degrees = np.empty(n, dtype=np.int64), np.diff(adjacency.indptr)
    number[names] = np.arange(n)
    # Row and column in one key: for small graphs ten times as fast as SciPy's indexing.
    keys = np.sort(np.repeat(number, degrees) * n + number[adjacency.indices])
    indptr, indices = offsets_of(degrees[names].astype(np.int64)), keys % max(n, 1)
    order, log_size = elimination.greedy_order(indptr, indices, logs[names], rule, limit)
    return np.where(order >= 0, names[order], -1) if n else order, log_size
