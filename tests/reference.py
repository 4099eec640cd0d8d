"""Answers by listing every labeling, written without any of the library's inference."""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from cliquewise.graph.factor_graph import FactorGraph


@dataclass
class Reference:
    """The joint score of every labeling, one axis per variable, and what follows from it."""

    graph: FactorGraph

    @cached_property
    def joint(self) -> np.ndarray:
        cards = self.graph.cardinalities.tolist()
        joint = np.zeros(cards)
        for scope, table in self.graph.factors:
            order = np.argsort(scope).astype(int)
            shape = [1] * len(cards)
            for v in scope:
                shape[v] = cards[v]
            joint = joint + np.transpose(table, order).reshape(shape)
        for v, state in self.graph.evidence.items():
            elsewhere = np.arange(cards[v]) != state
            joint[(slice(None),) * v + (elsewhere,)] = -np.inf
        return joint

    @cached_property
    def scale(self) -> float:
        """Largest sum of absolute log-potentials, which sets the size of rounding errors."""
        finite = (t[np.isfinite(t)] for _, t in self.graph.factors)
        return max(1.0, sum(float(np.abs(t).max(initial=0.0)) for t in finite))

    @cached_property
    def best(self) -> float:
        return float(self.joint.max())

    @property
    def feasible(self) -> bool:
        return self.best > -np.inf

    @cached_property
    def sorted_scores(self) -> np.ndarray:
        """Scores of the possible labelings, best first."""
        flat = np.sort(self.joint.ravel())[::-1]
        return flat[flat > -np.inf]

    @cached_property
    def log_z(self) -> float:
        return self.best + math.log(float(np.exp(self.joint - self.best).sum()))

    @cached_property
    def probabilities(self) -> np.ndarray:
        p = np.exp(self.joint - self.best)
        return p / p.sum()

    def _others(self, scope: tuple[int, ...]) -> tuple[int, ...]:
        return tuple(v for v in range(self.joint.ndim) if v not in scope)

    @cached_property
    def node_marginals(self) -> np.ndarray:
        return _flat(self.probabilities.sum(axis=self._others((v,))) for v in self._variables)

    @cached_property
    def node_max_marginals(self) -> np.ndarray:
        return _flat(self.joint.max(axis=self._others((v,))) for v in self._variables)

    @cached_property
    def factor_marginals(self) -> np.ndarray:
        tables = []
        for scope, _ in self.graph.factors:
            sorted_axes = self.probabilities.sum(axis=self._others(scope))
            tables.append(np.transpose(sorted_axes, np.argsort(np.argsort(scope)).astype(int)))
        return _flat(t.ravel() for t in tables)

    @property
    def _variables(self) -> range:
        return range(self.joint.ndim)


def _flat(arrays) -> np.ndarray:
    return np.concatenate([np.empty(0), *arrays])


def forest_values(parents: np.ndarray, nodes: np.ndarray, edges: np.ndarray) -> tuple[float, float]:
    """Best score and log Z of a forest whose parents precede their children.

    ``edges[v]`` ties parent (axis 0) and child ``v``. Plain Python, one variable at a time.
    """
    k = nodes.shape[1]
    largest = nodes.tolist()
    summed = nodes.tolist()
    tables = edges.tolist()
    best, log_z = 0.0, 0.0
    for v in range(len(parents) - 1, -1, -1):
        p = int(parents[v])
        if p < 0:
            best += max(largest[v])
            log_z += _log_sum(summed[v])
            continue
        for a in range(k):
            row = tables[v][a]
            largest[p][a] += max(row[b] + largest[v][b] for b in range(k))
            summed[p][a] += _log_sum([row[b] + summed[v][b] for b in range(k)])
    return best, log_z


def _log_sum(values: list[float]) -> float:
    top = max(values)
    return top if top == -math.inf else top + math.log(sum(math.exp(x - top) for x in values))
