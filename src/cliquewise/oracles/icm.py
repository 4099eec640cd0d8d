"""Iterated conditional modes: the simplest local search, on any graph."""

from __future__ import annotations

import math
from typing import Any, ClassVar

import numpy as np

from cliquewise._kernels import clock
from cliquewise.graph.factor_graph import FactorGraph
from cliquewise.graph.structure import Structure
from cliquewise.oracles._pairwise import table_bound
from cliquewise.oracles.base import ESTIMATE, Limits, Oracle, Question, Verdict
from cliquewise.oracles.registry import register
from cliquewise.oracles.results import MapResult, map_result
from cliquewise.ragged import Ints, first_best, gather, offsets_of


@register
class ICM(Oracle):
    """Iterated conditional modes: a local optimum of any graph, with a coarse bound."""

    name = "icm"
    provides: ClassVar[frozenset[Question]] = frozenset({"map"})
    exact = False
    guarantee = ESTIMATE
    rank = 95

    def consider(self, graph: FactorGraph, question: Question, limits: Limits) -> Verdict:
        """Assume ten sweeps over all tables."""
        entries = float(graph.structure.table_offsets[-1])
        return Verdict.accept(1e-4 + 1e-7 * entries, 16.0 * entries)

    def map(
        self,
        graph: FactorGraph,
        init: Ints | None = None,
        restarts: int = 0,
        max_sweeps: int = 1000,
        seconds: float = math.inf,
        random_state: Any = 0,
    ) -> MapResult:
        """Set each variable to its best state given the others until nothing changes.

        Parameters
        ----------
        graph : FactorGraph
        init : array-like of int, optional
            Labeling to start from; by default each variable's best state by the factors that
            it has alone.
        restarts : int, default=0
            Further runs from random labelings; the best one counts.
        max_sweeps : int, default=1000
        seconds : float, default=inf
            No further restart after this time.
        random_state : int or Generator, default=0

        Returns
        -------
        MapResult
            ``upper_bound`` is the sum of the tables' largest entries: true, rarely tight.

        Examples
        --------
        >>> g = FactorGraph([2, 2], [((0,), [0., 1.]), ((0, 1), [[1., 0.], [0., 1.]])])
        >>> g.map("icm").labels
        array([1, 1])
        """
        deadline = clock.now() + seconds
        start = unary_labels(graph) if init is None else np.array(init, dtype=np.int64)
        labels, score = start, float(graph.score(start))
        rng = np.random.default_rng(random_state)
        sweeps, runs = 0, 0
        for run in range(restarts + 1):
            if run and clock.now() >= deadline:
                break
            tried = start if run == 0 else rng.integers(0, graph.cardinalities)
            tried, made = climb(graph, tried, max_sweeps)
            sweeps, runs = sweeps + made, runs + 1
            reached = float(graph.score(tried))
            if run == 0 or reached > score:
                labels, score = tried, reached
        return map_result(
            graph, labels, table_bound(graph), self.name, {"sweeps": sweeps, "runs": runs}
        )


def climb(graph: FactorGraph, labels: Ints, max_sweeps: int = 1000) -> tuple[Ints, int]:
    """Return the local optimum reached from ``labels``, and the number of sweeps."""
    from cliquewise._kernels.graphs.icm import icm

    reached = np.array(labels, dtype=np.int64)
    sweeps = icm(reached, max_sweeps, graph.structure.once(flat_factors), graph.tables)
    return reached, int(sweeps)


def unary_labels(graph: FactorGraph) -> Ints:
    """Return the best state of each variable by its unary factors."""
    s = graph.structure
    total = np.zeros(int(s.node_offsets[-1]))
    alone = np.flatnonzero(s.orders == 1)
    owner = s.scopes[s.scope_offsets[alone]]
    into, _ = gather(s.node_offsets, owner)
    np.add.at(total, into, graph.tables[gather(s.table_offsets, alone)[0]])
    return first_best(total, s.node_offsets)


def flat_factors(s: Structure) -> Any:
    """Return the strides of each scope position, and the factors of each variable."""
    from cliquewise._kernels.graphs.icm import Factors

    positions = np.argsort(s.scopes, kind="stable").astype(np.int64)
    owner = np.repeat(np.arange(s.n_factors), s.orders).astype(np.int64)
    counts = np.bincount(s.scopes, minlength=s.n_variables)
    return Factors(
        s.cardinalities, s.scopes, s.scope_offsets, s.strides, s.table_offsets,
        offsets_of(counts), owner[positions], positions,
    )  # fmt: skip
