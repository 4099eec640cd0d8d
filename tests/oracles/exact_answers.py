"""Answers in exact arithmetic: every labeling is listed, and scores are added as fractions."""

from __future__ import annotations

import math
from fractions import Fraction
from itertools import product
from typing import Any

import numpy as np

from cliquewise.graph.factor_graph import FactorGraph


class ExactAnswers:
    """Scores of all possible labelings, and what follows from them without rounding.

    Probabilities and log Z take the logarithms of differences alone, so that they are right to
    1e-14 whatever the size of the scores.
    """

    def __init__(self, graph: FactorGraph):
        self.graph = graph
        tables = [
            (scope, [None if x == -np.inf else Fraction(x) for x in table.ravel().tolist()])
            for scope, table in graph.factors
        ]
        self.scores: dict[tuple[int, ...], Fraction] = {}
        for labels in product(*(range(k) for k in graph.cardinalities.tolist())):
            picked = [
                table[_position(labels, scope, graph.cardinalities)] for scope, table in tables
            ]
            observed = all(labels[v] == x for v, x in graph.evidence.items())
            if observed and None not in picked:
                self.scores[labels] = sum((x for x in picked if x is not None), Fraction(0))
        peaks = [
            max((x for x in table if x is not None), default=Fraction(0)) for _, table in tables
        ]
        self.peaks = sum(peaks, Fraction(0))

    @property
    def feasible(self) -> bool:
        return bool(self.scores)

    @property
    def best(self) -> Fraction:
        return max(self.scores.values())

    @property
    def scale(self) -> Fraction:
        """What the best labeling loses against the tables' largest entries, at least 1."""
        return max(Fraction(1), self.peaks - self.best)

    def weights(self) -> dict[tuple[int, ...], float]:
        """exp(score - best score)."""
        best = self.best
        return {y: _exp(score - best) for y, score in self.scores.items()}

    def log_z(self) -> Fraction:
        return self.best + Fraction(math.log(math.fsum(self.weights().values())))

    def nodes(self) -> Any:
        """Probabilities of all states, flat."""
        weights, offsets = self.weights(), self.graph.structure.node_offsets
        flat = np.zeros(int(offsets[-1]))
        for labels, weight in weights.items():
            flat[offsets[:-1] + np.array(labels, dtype=int)] += weight
        return flat / math.fsum(weights.values())

    def max_marginals(self) -> list[Fraction | None]:
        """The best score with each state, flat; None where it is impossible."""
        offsets = self.graph.structure.node_offsets
        flat: list[Fraction | None] = [None] * int(offsets[-1])
        for labels, score in self.scores.items():
            for at in (offsets[:-1] + np.array(labels, dtype=int)).tolist():
                known = flat[at]
                flat[at] = score if known is None else max(known, score)
        return flat


def _position(labels: tuple[int, ...], scope: tuple[int, ...], cards: Any) -> int:
    at = 0
    for v in scope:
        at = at * int(cards[v]) + labels[v]
    return at


def _exp(difference: Fraction) -> float:
    return math.exp(float(difference)) if difference > -800 else 0.0
