"""Brute force: enumerate all labelings. The reference for tests of all other oracles."""

from __future__ import annotations

from typing import ClassVar

import numpy as np

from cliquewise.errors import InfeasibleError
from cliquewise.graph.evidence import INFEASIBLE
from cliquewise.graph.factor_graph import FactorGraph
from cliquewise.oracles.base import QUESTIONS, Cost, Limits, Oracle, Question, Verdict
from cliquewise.oracles.registry import register
from cliquewise.oracles.results import MapResult, MarginalResult, MaxMarginalResult, map_result
from cliquewise.ragged import Floats, Ints, Ragged

#: More labelings than this are not listed.
MAX_LABELINGS = 1 << 20


@register
class BruteForce(Oracle):
    """Enumeration of all labelings, for tiny graphs and tests."""

    name = "brute-force"
    provides: ClassVar[frozenset[Question]] = frozenset(QUESTIONS)
    rank = 900
    only_adds = True

    def consider(self, graph: FactorGraph, question: Question, limits: Limits) -> Verdict:
        """Count the labelings."""
        s = graph.structure
        digits = float(np.log10(s.cardinalities.astype(float)).sum())
        if digits > np.log10(MAX_LABELINGS) + 1e-9:
            return Verdict.reject(
                f"would list 10^{digits:.1f} labelings; its limit is {MAX_LABELINGS}"
            )
        seconds = 1e-4 + 1e-8 * 10.0**digits * max(1, s.n_factors)
        cost = Cost(seconds, 8.0 * 10.0**digits * (s.n_variables + 1))
        return Verdict.defer("is a reference for tests", cost)

    @staticmethod
    def _list(graph: FactorGraph) -> tuple[Ints, Floats]:
        cards = graph.cardinalities
        # Mixed radix by hand: unravel_index knows at most 64 variables.
        steps = np.concatenate((np.cumprod(cards[::-1])[::-1], [1])).astype(np.int64)
        labelings = np.arange(steps[0])[:, None] // steps[1:] % cards
        scores = graph.score(labelings)
        if not np.any(scores > -np.inf):
            raise InfeasibleError(INFEASIBLE)
        return labelings, scores

    def map(self, graph: FactorGraph) -> MapResult:
        """Return the best labeling."""
        return self.top_k(graph, 1)[0]

    def top_k(self, graph: FactorGraph, k: int) -> list[MapResult]:
        """Return the k best labelings."""
        labelings, scores = self._list(graph)
        best = np.argsort(-scores, kind="stable")[:k]
        return [
            map_result(graph, labelings[i], float(scores[i]), self.name, exact=True)
            for i in best
            if scores[i] > -np.inf
        ]

    def marginals(self, graph: FactorGraph) -> MarginalResult:
        """Sum over all labelings."""
        labelings, scores = self._list(graph)
        top = scores.max()
        weights = np.exp(scores - top)
        total = weights.sum()
        p = weights / total
        s = graph.structure
        nodes = np.zeros(int(s.node_offsets[-1]))
        np.add.at(nodes, s.node_offsets[:-1] + labelings, p[:, None])
        factors = np.zeros(int(s.table_offsets[-1]))
        for entries in graph._entries(labelings):
            np.add.at(factors, entries, p[:, None])
        log_z = float(top + np.log(total))
        return MarginalResult.from_flat(graph, nodes, factors, log_z, self.name)

    def max_marginals(self, graph: FactorGraph) -> MaxMarginalResult:
        """Maximize over all labelings."""
        labelings, scores = self._list(graph)
        s = graph.structure
        flat = np.full(int(s.node_offsets[-1]), -np.inf)
        for v in range(s.n_variables):
            np.maximum.at(flat, s.node_offsets[v] + labelings[:, v], scores)
        best, nodes = float(scores.max()), Ragged(flat, s.node_offsets)
        return MaxMarginalResult(nodes, best, True, self.name, graph.rounding)

    def sample(self, graph: FactorGraph, n: int, rng: np.random.Generator) -> Ints:
        """Sample from the list of all labelings."""
        labelings, scores = self._list(graph)
        p = np.exp(scores - scores.max())
        return labelings[rng.choice(len(p), size=n, p=p / p.sum())]
