"""Best Max-Marginal First: the K best labelings from any oracle that gives max-marginals."""

from __future__ import annotations

from dataclasses import replace
from typing import Any, ClassVar

import numpy as np

from cliquewise.errors import UnsupportedError
from cliquewise.graph.factor_graph import FactorGraph
from cliquewise.oracles.base import Oracle, register, registered
from cliquewise.oracles.results import MapResult
from cliquewise.ragged import Floats, owner_of


@register
class BestMaxMarginalFirst(Oracle):
    """K best labelings by splitting on the next best max-marginal (Yanover and Weiss).

    The labelings are kept in disjoint sets, each with its best member and its
    max-marginals. The next best labeling is where a max-marginal of some set is highest
    at a state that its best member does not have; the set is split on that state
    (Algorithm 9 of casimir). Each labeling costs one MAP and two max-marginal calls.
    """

    name = "bmmf"
    provides: ClassVar[frozenset[str]] = frozenset({"top_k"})
    rank = 80
    has_limits = True

    @staticmethod
    def _bases(graph: FactorGraph) -> list[Oracle]:
        needed = ("map", "max_marginals")
        return [
            o
            for o in registered()
            if o.exact
            and o.automatic
            and not o.needs_zeros
            and all(o.refusal(graph, want) is None for want in needed)
            and all(o.too_large(graph.structure, want, {}) is None for want in needed)
        ]

    def refuses_tables(self, graph: FactorGraph, want: str = "map") -> str | None:
        """Refuse where no exact oracle gives max-marginals."""
        if want == "top_k" and not self._bases(graph):
            return "needs an exact method for max-marginals, and none accepts this graph"
        return None

    def top_k(
        self, graph: FactorGraph, k: int, base: str = "auto", **options: Any
    ) -> list[MapResult]:
        """Split the best set k - 1 times."""
        offsets, masked = graph.structure.node_offsets, graph.structure.with_unaries
        bases = [o for o in self._bases(graph) if base in ("auto", o.name)]
        if not bases:
            raise UnsupportedError(f"base = {base!r} has no exact max-marginals of this graph")
        small = (o for o in bases if o.too_large(masked, "max_marginals", options) is None)
        oracle = next(small, bases[0])
        options = oracle.known_limits(options)

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
            replace(f, upper_bound=f.score, exact=True, method=f"{self.name} over {oracle.name}")
            for f in found
        ]
        return sorted(exact, key=lambda result: -result.score)
