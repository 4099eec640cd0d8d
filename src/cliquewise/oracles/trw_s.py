"""TRW-S: a monotone upper bound, and labelings decoded from the messages."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from cliquewise._kernels import clock
from cliquewise.errors import InfeasibleError
from cliquewise.graph.evidence import INFEASIBLE
from cliquewise.graph.factor_graph import FactorGraph
from cliquewise.graph.structure import Structure
from cliquewise.oracles._pairwise import Pairwise, compile_pairwise, require_pairwise
from cliquewise.oracles.base import OFTEN_PROVED, Limits, Oracle, Question, Verdict
from cliquewise.oracles.registry import register
from cliquewise.oracles.results import CLOSED, MapResult, map_result, tolerance
from cliquewise.ragged import Floats, Ints, first_best, offsets_of

#: Iterations without a new best labeling after which slow progress ends the run.
PATIENCE = 20
#: Progress is slow when this many iterations close less than 1/1000 of the gap.
SLOW = 1e-3


@dataclass(frozen=True)
class Messages:
    """Result of a run of TRW-S: a labeling, a bound, and their history."""

    labels: Ints
    score: float
    bound: float
    bounds: Floats
    scores: Floats
    stopped: str


@register
class TRWS(Oracle):
    """Sequential tree-reweighted message passing: a monotone bound on any pairwise graph."""

    name = "trw-s"
    provides: ClassVar[frozenset[Question]] = frozenset({"map"})
    exact = False
    guarantee = OFTEN_PROVED
    rank = 65

    def consider(self, graph: FactorGraph, question: Question, limits: Limits) -> Verdict:
        """Assume forty iterations, which are typical where it ends with a proof."""
        s = graph.structure
        if rejection := require_pairwise(s, question):
            return rejection
        return Verdict.accept(1e-4 + 40 * iteration_seconds(s), 24.0 * s.table_offsets[-1])

    def map(
        self,
        graph: FactorGraph,
        max_iterations: int = 1000,
        seconds: float = math.inf,
        gap: float = 0.0,
    ) -> MapResult:
        """Pass messages until the gap closes, or progress, iterations or time run out.

        Parameters
        ----------
        graph : FactorGraph
        max_iterations : int, default=1000
            Each is one forward and one backward pass, linear in the size of the tables.
        seconds : float, default=inf
        gap : float, default=0
            Stop when the bound is this close to the best score.

        Returns
        -------
        MapResult
            ``exact`` if the gap is below 1e-9 of the scale of the scores; ``info`` has the
            ``bounds`` and best ``scores`` after each iteration, and why it ``stopped``.

        Examples
        --------
        >>> apart = [[0.0, 1.0], [2.0, 0.0]]
        >>> g = FactorGraph([2, 2, 2], [((0, 1), apart), ((1, 2), apart)])
        >>> g.map("trw-s").exact
        True
        """
        run = run_trw_s(compile_pairwise(graph), max_iterations, seconds, gap)
        info = {
            "iterations": len(run.bounds),
            "bounds": run.bounds,
            "scores": run.scores,
            "stopped": run.stopped,
        }
        return map_result(graph, run.labels, run.bound, self.name, info)


def iteration_seconds(structure: Structure) -> float:
    """Return the estimated time of one iteration."""
    return 1.5e-7 * len(structure.edges) + 1.5e-8 * float(structure.table_offsets[-1])


def run_trw_s(
    pairwise: Pairwise, max_iterations: int = 1000, seconds: float = math.inf, gap: float = 0.0
) -> Messages:
    """Run TRW-S on flat arrays.

    Raises
    ------
    InfeasibleError
        If some variable is left without a possible state.
    """
    from cliquewise._kernels.graphs.trw_s import Messages as Values
    from cliquewise._kernels.graphs.trw_s import trw_s

    started = clock.now()
    t = pairwise.topology
    if t.n_nodes == 0:
        return Messages(np.empty(0, np.int64), 0.0, 0.0, np.zeros(0), np.zeros(0), "gap")
    sizes = np.maximum(t.cards[t.edges[:, 0]], t.cards[t.edges[:, 1]])
    offsets = offsets_of(sizes)
    messages = Values(offsets, np.zeros(int(offsets[-1])))
    graph = pairwise.arrays._replace(nodes=pairwise.nodes.copy())
    labels = first_labels(pairwise)
    state = np.array([-np.inf, _sum_of_maxima(pairwise)])
    bounds, scores = np.empty(max(max_iterations, 0)), np.empty(max(max_iterations, 0))
    at_once = int(np.clip(500_000 // (len(pairwise.tables) + 1), 1, PATIENCE))
    done, stopped = 0, "max_iterations"
    while done < max_iterations:
        if clock.now() - started >= seconds:
            stopped = "seconds"
            break
        ask = min(at_once, max_iterations - done)
        closed = max(gap, tolerance(state[0], state[1]) / 2)
        made = trw_s(ask, closed, state, labels, bounds[done:], scores[done:], graph, messages)
        if made < 0:
            raise InfeasibleError(INFEASIBLE)
        done += made
        if state[1] - state[0] <= max(gap, tolerance(state[0], state[1]) / 2):
            stopped = "gap"
            break
        if _is_stalled(bounds[:done], scores[:done]):
            stopped = "stall"
            break
    return Messages(labels, float(state[0]), float(state[1]), bounds[:done], scores[:done], stopped)


def _is_stalled(bounds: Floats, scores: Floats) -> bool:
    if len(bounds) <= PATIENCE:
        return False
    gained = bounds[-1 - PATIENCE] - bounds[-1]
    remaining = bounds[-1] - scores[-1]
    if not math.isfinite(remaining):
        return bool(gained <= CLOSED * max(1.0, abs(bounds[-1])))
    return bool(gained < SLOW * remaining and scores[-1] == scores[-1 - PATIENCE])


def first_labels(pairwise: Pairwise) -> Ints:
    """Return the best state of each variable by its unary scores."""
    return first_best(pairwise.nodes, pairwise.topology.node_offsets)


def _sum_of_maxima(pairwise: Pairwise) -> float:
    """Return the bound before any message: each table at its largest entry."""
    t = pairwise.topology
    total = float(np.maximum.reduceat(pairwise.nodes, t.node_offsets[:-1]).sum())
    if t.n_edges:
        total += float(np.maximum.reduceat(pairwise.tables, t.edge_offsets[:-1]).sum())
    return total
