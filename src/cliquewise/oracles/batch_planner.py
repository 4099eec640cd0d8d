"""The part of the planner for many MAP calls: batches of graphs, and repeated calls."""

from __future__ import annotations

import math
from typing import Any, NamedTuple

import numpy as np

from cliquewise._kernels.graphs.elimination import MIN_WEIGHT, greedy_order
from cliquewise.graph.factor_graph import FactorGraph
from cliquewise.graph.structure import Structure
from cliquewise.oracles.base import Limits, Oracle
from cliquewise.oracles.junction_tree import elimination_oracle, search_budget
from cliquewise.oracles.registry import get
from cliquewise.oracles.results import MapResult
from cliquewise.oracles.vertex_cover import cover_of

#: Batches of MAP calls: table entries that elimination fills in the time in which TRW-S reads one
#: entry in each of about 25 iterations.
ENTRIES_PER_MESSAGE = 130.0
#: Batches: where messages prove nothing, eliminate up to so many table entries (below 0.1 s).
BATCH_ENTRIES = 2e7
#: Repeated calls: eliminate up to so many table entries (one second per call), for runs of a
#: minute; less for shorter runs.
REPEATED_ENTRIES, REPEATED_SECONDS = 5e8, 60.0
#: Additions of vertex-cover in the time of one table entry of elimination.
COVER_SPEED = 20.0


class BatchPlan(NamedTuple):
    """The method for MAP in a batch, and the one to try where that proves nothing."""

    first: str
    then: str | None


def batch_plan(structure: Structure) -> BatchPlan:
    """Choose the methods for MAP on many graphs with this structure, by their cost.

    Examples
    --------
    >>> clique = [(i, j) for i in range(20) for j in range(i)]
    >>> batch_plan(Structure([3] * 20, clique))
    BatchPlan(first='trw-s', then=None)
    """
    return structure.once(_batch_plan)


def _batch_plan(structure: Structure) -> BatchPlan:
    if structure.is_forest:
        return BatchPlan("auto", None)
    operations = elimination_entries(structure)
    if operations <= ENTRIES_PER_MESSAGE * float(structure.table_offsets[-1]):
        return BatchPlan("junction-tree", None)
    return BatchPlan("trw-s", "junction-tree" if operations <= BATCH_ENTRIES else None)


def elimination_entries(structure: Structure) -> float:
    """Return the table entries that elimination fills; infinite if that is far too many.

    A good order for tables of gigabytes would take seconds to find.

    Examples
    --------
    >>> elimination_entries(Structure([2] * 3, [(0, 1), (1, 2)]))
    10.0
    """
    return structure.once(_elimination_entries)


def _elimination_entries(structure: Structure) -> float:
    adjacency, logs = structure.adjacency, np.log(structure.cardinalities.astype(np.float64))
    indptr, indices = adjacency.indptr.astype(np.int64), adjacency.indices.astype(np.int64)
    order, _ = greedy_order(indptr, indices, logs, MIN_WEIGHT, float(np.log(BATCH_ENTRIES)))
    if len(order) and order[-1] < 0:
        return np.inf
    return elimination_oracle().best_order(structure).operations


def quick_map(graph: FactorGraph, enough: float = 0.0) -> MapResult:
    """Return the MAP labeling of a pairwise graph where a proof is cheap; else a good labeling.

    For training and prediction, with thousands of graphs of few structures. Stops at a labeling
    whose score is within ``enough`` of its bound.

    Examples
    --------
    >>> ring = [((v, (v + 1) % 4), [[0.0, 1.0], [2.0, 0.0]]) for v in range(4)]
    >>> answer = quick_map(FactorGraph([2] * 4, ring))
    >>> answer.score, answer.exact
    (6.0, True)
    """
    first, then = batch_plan(graph.structure)
    options: dict[str, Any] = {"gap": enough} if first == "trw-s" and enough > 0 else {}
    found = graph.map(first, **options)
    if found.exact or then is None or found.gap <= enough:
        return found
    return graph.map(then)


def repeated_map(structure: Structure, seconds: float = math.inf) -> Oracle | None:
    """Choose the fastest exact MAP method without a search, for many calls on one structure.

    Returns None where its tables would be too large, which is sooner with less time.

    Examples
    --------
    >>> repeated_map(Structure([2] * 3, [(0, 1), (1, 2)])).name
    'tree'
    """
    if structure.is_forest:
        return get("tree")
    tree, cover = elimination_oracle(), cover_of(structure)
    most = min(REPEATED_ENTRIES, REPEATED_ENTRIES * seconds / REPEATED_SECONDS)
    limits = Limits(max_operations=most, planning=search_budget(seconds))
    verdict = tree.estimate(structure, "map", limits)
    operations = math.inf if verdict.cost is None else verdict.cost.operations
    if cover.operations < COVER_SPEED * min(operations, most):
        return get("vertex-cover")
    return tree if verdict.is_accepted else None
