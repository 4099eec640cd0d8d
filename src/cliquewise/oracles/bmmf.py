"""Best Max-Marginal First: the K best labelings from any oracle that gives max-marginals."""

from __future__ import annotations

from dataclasses import replace
from typing import ClassVar

import numpy as np

from cliquewise.errors import UnsupportedError
from cliquewise.graph.factor_graph import FactorGraph
from cliquewise.oracles.base import NO_LIMITS, Fit, Limits, Oracle, Question, Verdict
from cliquewise.oracles.options import takes
from cliquewise.oracles.registry import register, registered
from cliquewise.oracles.results import MapResult
from cliquewise.ragged import Floats, owner_of


@register
class BestMaxMarginalFirst(Oracle):
    """K best labelings by splitting on the next best max-marginal (Yanover and Weiss).

    The labelings are kept in disjoint sets, each with its best member and its
    max-marginals. The next best labeling is where a max-marginal of some set is highest
    at a state that its best member does not have; the set is split on that state
    (Algorithm 10 of casimir). Each labeling costs one MAP and two max-marginal calls.
    """

    name = "bmmf"
    provides: ClassVar[frozenset[Question]] = frozenset({"top_k"})
    rank = 80

    def consider(self, graph: FactorGraph, question: Question, limits: Limits) -> Verdict:
        """Count one MAP and two max-marginal calls of the fastest base method per labeling."""
        bases = _bases(graph)
        if not bases:
            return Verdict.reject(
                "needs an exact method for max-marginals, and none accepts this graph"
            ).for_tables()
        each = min(seconds for _, seconds in bases)
        memory = 16.0 * graph.structure.table_offsets[-1] + 16.0 * limits.k * float(
            graph.structure.node_offsets[-1]
        )
        return Verdict.accept(limits.k * each, memory).for_tables()

    def top_k(
        self, graph: FactorGraph, k: int, base: str = "auto", limits: Limits = NO_LIMITS
    ) -> list[MapResult]:
        """Split the best set k - 1 times."""
        offsets, masked = graph.structure.node_offsets, graph.structure.with_unaries
        bases = [oracle for oracle, _ in _bases(graph) if base in ("auto", oracle.name)]
        if not bases:
            raise UnsupportedError(f"base = {base!r} has no exact max-marginals of this graph")
        largest = FactorGraph.from_structure(
            masked, np.append(graph.tables, np.zeros(int(offsets[-1])))
        )
        small = (
            o
            for o in bases
            if o.consider(largest, "max_marginals", limits).fit is not Fit.TOO_LARGE
        )
        oracle = next(small, bases[0])
        options = {"limits": limits} if takes(oracle, "map", "limits") else {}

        def restricted(mask: Floats) -> FactorGraph:
            return FactorGraph.from_structure(masked, np.append(graph.tables, mask))

        def describe(mask: Floats) -> tuple[MapResult, Floats]:
            best = oracle.map(restricted(mask), **options)
            return replace(best, score=graph.score(best.labels)), second(mask, best)

        def second(mask: Floats, best: MapResult) -> Floats:
            flat = np.array(oracle.max_marginals(restricted(mask), **options).nodes.flat)
            flat[offsets[:-1] + best.labels] = -np.inf
            return flat

        masks = [np.zeros(int(offsets[-1]))]
        first, runner_up = describe(masks[0])
        found, others = [first], [runner_up]
        while len(found) < k:
            heights = [o.max(initial=-np.inf) for o in others]
            which = int(np.argmax(heights))
            if heights[which] == -np.inf:
                break
            entry = int(np.argmax(others[which]))
            variable, _ = owner_of(offsets, entry)
            mask = masks[which].copy()
            mask[offsets[variable] : offsets[variable + 1]] = -np.inf
            mask[entry] = masks[which][entry]
            masks[which][entry] = -np.inf
            others[which] = second(masks[which], found[which])
            best, runner_up = describe(mask)
            masks.append(mask)
            found.append(best)
            others.append(runner_up)
        exact = [
            replace(
                f, upper_bound=f.score, exact=True, method=self.name, info={"base": oracle.name}
            )
            for f in found
        ]
        return sorted(exact, key=lambda result: -result.score)


def _bases(graph: FactorGraph) -> list[tuple[Oracle, float]]:
    """Return exact oracles for MAP and max-marginals, with the seconds per labeling of each."""
    found = []
    for oracle in registered():
        if not oracle.exact or not oracle.provides >= {"map", "max_marginals"}:
            continue
        best = oracle.consider(graph, "map", NO_LIMITS)
        second = oracle.consider(graph, "max_marginals", NO_LIMITS)
        # sparse defers MAP to anytime, but is too slow for repeated calls.
        if best.is_accepted and second.is_accepted:
            found.append((oracle, best.seconds + 2.0 * second.seconds))
    return found
