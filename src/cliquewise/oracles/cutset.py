"""Cutset conditioning: exact where one junction tree would exceed the memory limit.

First, states without a labeling of positive probability are removed. Then a few variables are
fixed, those of the largest tables. For each combination of their states there is a smaller
junction tree; the marginals are averaged, weighted by their share of Z.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass, replace
from itertools import product
from typing import ClassVar

import numpy as np

from cliquewise.errors import InfeasibleError
from cliquewise.graph.evidence import INFEASIBLE, Core
from cliquewise.graph.factor_graph import FactorGraph
from cliquewise.graph.structure import Structure
from cliquewise.graph.support import Support
from cliquewise.oracles.base import (
    NO_LIMITS,
    Cost,
    Limits,
    Oracle,
    Question,
    Verdict,
    too_large_error,
)
from cliquewise.oracles.junction_tree import (
    ENTRIES_PER_SECOND,
    MAX_OPERATIONS,
    EliminationOrder,
    JunctionTree,
)
from cliquewise.oracles.registry import get, register
from cliquewise.oracles.results import MapResult, MarginalResult, proved_map
from cliquewise.ragged import Floats, Ints

#: Largest number of combinations of the states of the fixed variables.
MAX_PARTS = 4096


@dataclass(frozen=True)
class Split:
    """The possible states without the determined variables, and the variables to fix."""

    support: Support
    core: Core
    fixed: tuple[int, ...]
    cost: Cost

    @property
    def parts(self) -> Iterator[Core]:
        """Yield the graph with the fixed variables observed, for each possible combination."""
        graph = self.core.graph
        shared: Structure | None = None
        for states in product(*(range(graph.cardinalities[v]) for v in self.fixed)):
            part = graph.condition(dict(zip(self.fixed, states, strict=True))).core
            if part.constant == -np.inf:
                continue
            if shared is None:
                shared = part.graph.structure
            else:  # all parts share one elimination order
                smaller = FactorGraph.from_structure(shared, part.graph.tables)
                part = replace(part, graph=smaller)
            yield part


@register
class Cutset(Oracle):
    """Exact by a junction tree for each possible combination of the states of a few variables."""

    name = "cutset"
    provides: ClassVar[frozenset[Question]] = frozenset({"map", "marginals"})
    rank = 31
    only_adds = True

    def consider(self, graph: FactorGraph, question: Question, limits: Limits) -> Verdict:
        """Defer: the cost is known only after a search for the variables to fix."""
        return Verdict.defer(
            "is a step of anytime, where states are impossible",
            Cost(math.inf, 16.0 * graph.structure.table_offsets[-1]),
        )

    def split(self, graph: FactorGraph, question: Question, limits: Limits) -> Split:
        """Choose the variables to fix; raise TooLargeError if that does not meet the limits."""
        support = Support.of(graph)
        core = support.graph.condition(support.determined).core
        if core.constant == -np.inf:
            raise InfeasibleError(INFEASIBLE)
        tree = get("junction-tree")
        assert isinstance(tree, JunctionTree)
        order = tree.best_order(core.graph.structure)
        most = MAX_OPERATIONS if limits.max_operations is None else limits.max_operations
        s = core.graph.structure
        output = 8.0 * float(s.table_offsets[-1] + s.node_offsets[-1]) * (question == "marginals")
        fixed, memory, operations = _choose_fixed(s, order, limits.max_memory - output, most)
        cost = Cost(operations / ENTRIES_PER_SECOND, memory + output, operations)
        excess = limits.excess(question, cost, MAX_OPERATIONS)
        if excess is not None:
            raise too_large_error(self.name, Verdict.too_large(excess, cost))
        return Split(support, core, fixed, cost)

    def map(self, graph: FactorGraph, limits: Limits = NO_LIMITS) -> MapResult:
        """Return the best MAP labeling of all parts."""
        split, tree = self.split(graph, "map", limits), get("junction-tree")
        best: MapResult | None = None
        for part in split.parts:
            try:
                found = part.translate("map", tree.map(part.graph, limits))
            except InfeasibleError:
                continue
            if best is None or found.score > best.score:
                best = found
        if best is None:
            raise InfeasibleError(INFEASIBLE)
        whole = split.support.translate("map", split.core.translate("map", best))
        return proved_map(graph, whole.labels, self.name)

    def marginals(self, graph: FactorGraph, limits: Limits = NO_LIMITS) -> MarginalResult:
        """Average the marginals of the parts, weighted by their share of Z."""
        return self.answer(graph, self.split(graph, "marginals", limits), limits)

    def answer(self, graph: FactorGraph, split: Split, limits: Limits) -> MarginalResult:
        """Compute marginals from the parts of a split."""
        inner, tree = split.core.graph, get("junction-tree")
        s, total, largest = inner.structure, 0.0, -np.inf
        nodes, factors = np.zeros(int(s.node_offsets[-1])), np.zeros(int(s.table_offsets[-1]))
        for part in split.parts:
            try:
                found = part.translate("marginals", tree.marginals(part.graph, limits))
            except InfeasibleError:
                continue
            # All sums are relative to the largest part.
            if found.log_z > largest:
                scale = float(np.exp(largest - found.log_z))
                largest, total = found.log_z, total * scale
                nodes *= scale
                factors *= scale
            share = float(np.exp(found.log_z - largest))
            total += share
            nodes += share * found.nodes.flat
            factors += share * found.factors.flat
        if total == 0.0:
            raise InfeasibleError(INFEASIBLE)
        log_z = largest + float(np.log(total))
        answer = MarginalResult.from_flat(inner, nodes / total, factors / total, log_z, self.name)
        whole = split.support.translate("marginals", split.core.translate("marginals", answer))
        return MarginalResult.from_flat(
            graph, whole.nodes.flat, whole.factors.flat, whole.log_z, self.name,
            info={"fixed": len(split.fixed), "operations": split.cost.operations},
        )  # fmt: skip


def _choose_fixed(
    structure: Structure, order: EliminationOrder, limit: float, most: float
) -> tuple[tuple[int, ...], float, float]:
    """Fix variables greedily until the memory limit is met; return them, memory, and entries.

    Estimates are for the order of the whole graph; orders of the parts are usually no worse.
    """
    if not order.is_complete:
        return (), order.memory(False), order.operations
    n = len(order.order)
    cards = structure.cardinalities.astype(float)
    place_of_row = np.repeat(np.arange(n), np.diff(order.sep_offsets))
    members: list[list[int]] = [[] for _ in range(n)]
    for row, place in zip(place_of_row.tolist(), order.seps.tolist(), strict=True):
        members[int(order.order[place])].append(row)
    cliques, seps = order.clique_sizes.copy(), order.sep_sizes.copy()
    fixed: list[int] = []
    parts = 1.0

    def memory(cliques: Floats, seps: Floats) -> float:
        return 8.0 * float(cliques.max(initial=0.0) + seps.sum())

    def without(v: int) -> tuple[Floats, Floats]:
        own, rows = int(order.place[v]), np.array(members[v], dtype=np.int64)
        c, s = cliques.copy(), seps.copy()
        c[rows] /= cards[v]
        s[rows] /= cards[v]
        c[own] /= cards[v]
        return c, s

    while memory(cliques, seps) > limit and parts < MAX_PARTS:
        candidates = [int(v) for v in _clique(order, int(np.argmax(cliques))) if v not in fixed]
        if not candidates:
            break
        # Memory and operations after fixing, per combination added.
        left = {v: without(v) for v in candidates}
        best = min(
            candidates,
            key=lambda v: np.log(memory(*left[v])) + np.log(left[v][0].sum() * cards[v]),
        )
        cliques, seps = left[best]
        fixed.append(best)
        parts *= cards[best]
        if parts * cliques.sum() > 4.0 * most:
            break
    return tuple(fixed), memory(cliques, seps), parts * float(cliques.sum())


def _clique(order: EliminationOrder, row: int) -> Ints:
    """Return the variables of a clique."""
    places = order.seps[order.sep_offsets[row] : order.sep_offsets[row + 1]]
    return np.append(order.order[places], order.order[row])
