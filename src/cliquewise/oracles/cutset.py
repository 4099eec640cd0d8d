"""Cutset conditioning: exact where one junction tree would be too large for the memory.

First, states that no labeling of positive probability has are taken away. Then a few variables
are fixed, those that make the largest tables: one smaller junction tree for each combination of
their states, one after the other. Answers are put together from theirs, weighted by their share
of Z.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from itertools import product
from typing import Any, ClassVar

import numpy as np

from cliquewise.errors import InfeasibleError, TooLargeError
from cliquewise.graph.evidence import INFEASIBLE, Core
from cliquewise.graph.factor_graph import FactorGraph
from cliquewise.graph.structure import Structure
from cliquewise.graph.support import Support
from cliquewise.oracles.base import MAX_MEMORY, Oracle, get, over_limits, register
from cliquewise.oracles.junction_tree import MAX_OPERATIONS, JunctionTree, Sketch
from cliquewise.oracles.results import MapResult, MarginalResult
from cliquewise.ragged import Floats, Ints

#: Combinations of the states of fixed variables, at most.
MOST_PARTS = 4096


@dataclass(frozen=True)
class Split:
    """What is possible, without what is determined, and the variables to fix in it."""

    support: Support
    core: Core
    fixed: tuple[int, ...]
    memory: float
    operations: float

    @property
    def parts(self) -> Iterator[Core]:
        """The graph with the fixed variables observed, for all their states that are possible."""
        graph = self.core.graph
        shared: Structure | None = None
        for states in product(*(range(graph.cardinalities[v]) for v in self.fixed)):
            part = graph.condition(dict(zip(self.fixed, states, strict=True))).core
            if part.constant == -np.inf:
                continue
            if shared is None:
                shared = part.graph.structure
            else:  # an order of elimination is found once for all of them
                smaller = FactorGraph.from_structure(shared, part.graph.tables)
                part = replace(part, graph=smaller)
            yield part


@register
class Cutset(Oracle):
    """Exact by a junction tree for each possible state of a few variables that are fixed."""

    name = "cutset"
    provides: ClassVar[frozenset[str]] = frozenset({"map", "marginals"})
    rank = 31
    automatic = False
    only_adds = True
    has_limits = True

    def split(self, graph: FactorGraph, want: str, options: dict[str, Any]) -> Split:
        """How to divide the graph so that the limits are kept; or a TooLargeError."""
        support = Support.of(graph)
        core = support.graph.condition(support.determined).core
        if core.constant == -np.inf:
            raise InfeasibleError(INFEASIBLE)
        tree = get("junction-tree")
        assert isinstance(tree, JunctionTree)
        sketch = tree.sketch(core.graph.structure)
        limit = float(options.get("max_memory", MAX_MEMORY))
        most = float(options.get("max_operations", MAX_OPERATIONS))
        s = core.graph.structure
        answer = 8.0 * float(s.table_offsets[-1] + s.node_offsets[-1]) * (want == "marginals")
        fixed, memory, operations = _fixed(s, sketch, limit - answer, most)
        memory += answer
        large = over_limits(want, memory, operations, options, MAX_OPERATIONS)
        if large is not None:
            raise TooLargeError(f"method {self.name!r} {large}", memory, operations)
        return Split(support, core, fixed, memory, operations)

    def map(self, graph: FactorGraph, **options: Any) -> MapResult:
        """The best of the parts' best."""
        self.check_limits(graph.structure, "map", options)
        split, tree = self.split(graph, "map", options), get("junction-tree")
        best: MapResult | None = None
        for part in split.parts:
            try:
                found = part.translate("map", tree.map(part.graph, **options))
            except InfeasibleError:
                continue
            if best is None or found.score > best.score:
                best = found
        if best is None:
            raise InfeasibleError(INFEASIBLE)
        whole = split.support.translate("map", split.core.translate("map", best))
        return self.best(graph, whole.labels)

    def marginals(self, graph: FactorGraph, **options: Any) -> MarginalResult:
        """Those of the parts, weighted by their share of Z."""
        self.check_limits(graph.structure, "marginals", options)
        return self.answer(graph, self.split(graph, "marginals", options), options)

    def answer(self, graph: FactorGraph, split: Split, options: dict[str, Any]) -> MarginalResult:
        """Marginals by the parts of a split."""
        inner, tree = split.core.graph, get("junction-tree")
        s, total, largest = inner.structure, 0.0, -np.inf
        nodes, factors = np.zeros(int(s.node_offsets[-1])), np.zeros(int(s.table_offsets[-1]))
        for part in split.parts:
            try:
                found = part.translate("marginals", tree.marginals(part.graph, **options))
            except InfeasibleError:
                continue
            # Everything so far is scaled to the largest part.
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
            info={"fixed": len(split.fixed), "operations": split.operations},
        )  # fmt: skip


def _fixed(
    structure: Structure, sketch: Sketch, limit: float, most: float
) -> tuple[tuple[int, ...], float, float]:
    """Variables to fix, one after the other the one that frees most memory; memory, entries.

    Estimates are for the order of the whole graph; that of the parts is no worse, mostly.
    """
    if not sketch.is_complete:
        return (), sketch.memory(False), sketch.operations
    n = len(sketch.order)
    cards = structure.cardinalities.astype(float)
    place_of_row = np.repeat(np.arange(n), np.diff(sketch.sep_offsets))
    members: list[list[int]] = [[] for _ in range(n)]
    for row, place in zip(place_of_row.tolist(), sketch.seps.tolist(), strict=True):
        members[int(sketch.order[place])].append(row)
    cliques, seps = sketch.clique_sizes.copy(), sketch.sep_sizes.copy()
    fixed: list[int] = []
    parts = 1.0

    def memory(cliques: Floats, seps: Floats) -> float:
        return 8.0 * float(cliques.max(initial=0.0) + seps.sum())

    def without(v: int) -> tuple[Floats, Floats]:
        own, rows = int(sketch.place[v]), np.array(members[v], dtype=np.int64)
        c, s = cliques.copy(), seps.copy()
        c[rows] /= cards[v]
        s[rows] /= cards[v]
        c[own] /= cards[v]
        return c, s

    while memory(cliques, seps) > limit and parts < MOST_PARTS:
        candidates = [int(v) for v in _clique(sketch, int(np.argmax(cliques))) if v not in fixed]
        if not candidates:
            break
        # What counts is how much of the largest tables goes away per combination added.
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


def _clique(sketch: Sketch, row: int) -> Ints:
    """Variables of a clique."""
    places = sketch.seps[sketch.sep_offsets[row] : sketch.sep_offsets[row + 1]]
    return np.append(sketch.order[places], sketch.order[row])
