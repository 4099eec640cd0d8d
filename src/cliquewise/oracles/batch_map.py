"""MAP for training and prediction, which ask thousands of graphs of few structures.

The method is chosen by cost, once per structure, and no clock decides: the same graph gets the
same answer on every machine.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from cliquewise._kernels.graphs.elimination import MIN_WEIGHT, greedy_order
from cliquewise.graph.factor_graph import FactorGraph
from cliquewise.graph.structure import Structure
from cliquewise.oracles.base import get
from cliquewise.oracles.choice import ask
from cliquewise.oracles.results import MapResult

#: Table entries that elimination fills while TRW-S reads one entry in each of some 25 iterations.
PER_ENTRY = 130.0
#: Where messages prove nothing, eliminate up to this many table entries (less than 0.1 s).
REACH = 2e7


class Plan(NamedTuple):
    """The method to ask first, and the one to ask where that proves nothing."""

    first: str
    then: str | None


def plan_of(structure: Structure) -> Plan:
    """How graphs of a structure are asked for their best labelings; decided once.

    Examples
    --------
    >>> clique = [(i, j) for i in range(20) for j in range(i)]
    >>> plan_of(Structure([3] * 20, clique))
    Plan(first='trw-s', then=None)
    """
    return structure.once(_plan)


def elimination_entries(structure: Structure) -> float:
    """Table entries that elimination fills; infinite if a first order has a table beyond REACH.

    A good order for tables of gigabytes would take seconds to find.
    """
    return structure.once(_entries)


def _entries(structure: Structure) -> float:
    adjacency, logs = structure.adjacency, np.log(structure.cardinalities.astype(np.float64))
    indptr, indices = adjacency.indptr.astype(np.int64), adjacency.indices.astype(np.int64)
    order, _ = greedy_order(indptr, indices, logs, MIN_WEIGHT, float(np.log(REACH)))
    if len(order) and order[-1] < 0:
        return np.inf
    return float(get("junction-tree").sketch(structure).operations)  # type: ignore[attr-defined]


def _plan(structure: Structure) -> Plan:
    if structure.is_forest:
        return Plan("auto", None)
    operations = elimination_entries(structure)
    if operations <= PER_ENTRY * float(structure.table_offsets[-1]):
        return Plan("junction-tree", None)
    return Plan("trw-s", "junction-tree" if operations <= REACH else None)


def quick_map(graph: FactorGraph, enough: float = 0.0) -> MapResult:
    """The best labeling of a pairwise graph where a proof is cheap; else a good one, and a bound.

    A labeling whose score is within ``enough`` of its bound will do.

    Examples
    --------
    >>> ring = [((v, (v + 1) % 4), [[0.0, 1.0], [2.0, 0.0]]) for v in range(4)]
    >>> answer = quick_map(FactorGraph([2] * 4, ring))
    >>> answer.score, answer.exact
    (6.0, True)
    """
    first, then = plan_of(graph.structure)
    options = {"gap": enough} if first == "trw-s" and enough > 0 else {}
    found: MapResult = ask(graph, "map", first, **options)
    if found.exact or then is None or found.gap <= enough:
        return found
    return ask(graph, "map", then)  # type: ignore[no-any-return]
