"""Portfolio: several approximate methods, the best labeling of all, the tightest bound."""

from __future__ import annotations

import math
from typing import Any, ClassVar

import numpy as np

from cliquewise._kernels import clock
from cliquewise.errors import InfeasibleError
from cliquewise.graph.evidence import INFEASIBLE
from cliquewise.graph.factor_graph import FactorGraph
from cliquewise.oracles._cuts import fuse, ising, minimum_cut
from cliquewise.oracles._local_search import MAX_PROPOSALS, PACE, SWEEPS, LocalSearch
from cliquewise.oracles._pairwise import Pairwise, compile_pairwise, require_pairwise, table_bound
from cliquewise.oracles.base import OFTEN_PROVED, Limits, Oracle, Question, Verdict
from cliquewise.oracles.graph_cut import move, roof_duality
from cliquewise.oracles.icm import climb, unary_labels
from cliquewise.oracles.registry import register
from cliquewise.oracles.results import MapResult, map_result, tolerance
from cliquewise.oracles.trw_s import iteration_seconds, run_trw_s
from cliquewise.ragged import Floats, Ints

#: Annealing: rounds without a time limit, and how many idle rounds end a lineage.
ROUNDS, IDLE = 10, 6
#: Rounds of annealing for the start of a search.
QUICK_ROUNDS = 2
#: Rounds start at a random temperature between this one and 1 (of the unit of LocalSearch).
WARM = 0.2
#: Sweeps of a climb where time is limited.
LIMITED_SWEEPS = 10
#: Ends of earlier lineages that are fused with every new best labeling.
POOL = 8


@register
class Portfolio(Oracle):
    """Best of trw-s, roof duality, moves, icm and local search, fused; the smallest bound."""

    name = "portfolio"
    provides: ClassVar[frozenset[Question]] = frozenset({"map"})
    exact = False
    guarantee = OFTEN_PROVED
    rank = 60

    def consider(self, graph: FactorGraph, question: Question, limits: Limits) -> Verdict:
        """Add up the messages and the rounds of annealing."""
        s = graph.structure
        if rejection := require_pairwise(s, question):
            return rejection
        proposals = min(MAX_PROPOSALS, float(SWEEPS * s.n_variables))
        seconds = 200 * iteration_seconds(s) + ROUNDS * proposals / PACE
        return Verdict.accept(seconds, 40.0 * s.table_offsets[-1])

    def map(
        self,
        graph: FactorGraph,
        max_iterations: int = 200,
        rounds: int | None = None,
        seconds: float = math.inf,
        init: Ints | None = None,
        random_state: Any = 0,
    ) -> MapResult:
        """Run the methods one after the other; stop as soon as a labeling meets the bound.

        Parameters
        ----------
        graph : FactorGraph
        max_iterations : int, default=200
            Of trw-s.
        rounds : int, optional
            Of local search, each fused with the best labeling. By default as many as the time
            allows, or 10 without a time limit.
        seconds : float, default=inf
        init : array-like of int, optional
            A labeling to improve.
        random_state : int or Generator, default=0

        Returns
        -------
        MapResult
            ``info`` has the score that each method reached and the bounds.

        Examples
        --------
        >>> import numpy as np
        >>> from cliquewise.graph.builders import complete
        >>> g = complete(np.zeros((3, 2)), [[0.0, 1.0], [1.0, 0.0]])
        >>> g.map("portfolio").score
        2.0
        """
        race = Race(graph, seconds, random_state)
        if init is not None:
            race.offer("init", np.array(init, dtype=np.int64))
        if graph.structure.is_binary:
            race.roof_duality()
        if not race.is_over:
            race.messages(max_iterations)
        if not race.is_over:
            race.offer("icm", unary_labels(graph))
            race.search(rounds)
        if not race.is_over and not graph.structure.is_binary:
            race.moves()
        info = {"scores": race.scores, "bounds": race.bounds}
        return map_result(graph, race.labels, race.bound, self.name, info)


class Race:
    """The best labeling and the smallest bound so far, and the methods that improve them."""

    def __init__(self, graph: FactorGraph, seconds: float, random_state: Any):
        self.graph = graph
        self.pairwise: Pairwise = compile_pairwise(graph)
        self.penalty = self.pairwise.penalty
        self.deadline = clock.now() + seconds
        self.rng = np.random.default_rng(random_state)
        self.labels = unary_labels(graph)
        self.score = float(graph.score(self.labels))
        self.bound = table_bound(graph)
        self.scores: dict[str, float] = {}
        self.bounds: dict[str, float] = {}
        self.course: Floats = np.empty(0)
        self.sweeps = 1000 if math.isinf(seconds) else LIMITED_SWEEPS

    @property
    def is_over(self) -> bool:
        """Whether the bound is met or the time is up."""
        return self.is_proved or clock.now() >= self.deadline

    @property
    def is_proved(self) -> bool:
        """Whether the best labeling meets the bound."""
        return self.bound - self.score <= tolerance(self.score, self.bound)

    @property
    def seconds_left(self) -> float:
        """Until the deadline."""
        return max(0.0, self.deadline - clock.now())

    def offer(self, method: str, labels: Ints) -> bool:
        """Climb from a labeling and fuse it with the best one; whether that got better."""
        labels, _ = climb(self.graph, labels, self.sweeps)
        score = float(self.graph.score(labels))
        if self.bound - score > tolerance(score, self.bound):
            labels, score = self.fused(labels, self.labels, self.score)
        self.scores[method] = max(score, self.scores.get(method, -math.inf))
        if score <= self.score:
            return False
        self.labels, self.score = labels, score
        return True

    def fused(self, labels: Ints, other: Ints, other_score: float) -> tuple[Ints, float]:
        """The best of two labelings and their fusion, and its score."""
        score = float(self.graph.score(labels))
        if score < other_score:
            labels, other, score = other, labels, other_score
        fused = fuse(self.pairwise, labels, other, labels, self.penalty)
        fused_score = float(self.graph.score(fused))
        return (fused, fused_score) if fused_score > score else (labels, score)

    def roof_duality(self) -> None:
        """A minimum cut where it is exact, else the roof dual; open variables stay as they are."""
        cards = self.pairwise.topology.cards
        first, second = np.zeros_like(cards), np.minimum(1, cards - 1)
        problem = ising(self.pairwise, first, second, self.penalty)
        if problem.is_submodular:
            labels = np.where(minimum_cut(problem).labels == 0, first, second)
            score = float(self.graph.score(labels))
            if score == -math.inf:
                raise InfeasibleError(INFEASIBLE)
            self.labels, self.score = labels, score
            self.scores["graph-cut"] = self.bounds["graph-cut"] = self.bound = score
            return
        labels, bound = roof_duality(self.pairwise)
        self.bounds["qpbo"] = bound
        self.bound = min(self.bound, bound)
        self.offer("qpbo", np.where(labels < 0, self.labels, labels))

    def messages(self, max_iterations: int) -> None:
        """TRW-S: the bound, and a labeling."""
        run = run_trw_s(self.pairwise, max_iterations, self.seconds_left / 2)
        self.course = run.bounds
        self.bounds["trw-s"] = run.bound
        self.bound = min(self.bound, run.bound)
        self.offer("trw-s", run.labels)

    def search(self, rounds: int | None) -> None:
        """Anneal a labeling again and again, fusing what comes out; then another lineage.

        Exact moves of regions repair what annealing leaves wrong at a scale beyond single
        variables. Where a round differs from the labeling in several places, the fusion takes
        the good ones and leaves the others: that is what makes it work on large graphs.
        """
        if rounds is None:
            rounds = ROUNDS if math.isinf(self.deadline) else 2**62
        local = LocalSearch(self.pairwise)
        pool: list[Ints] = []
        labels, score, idle = self.labels, self.score, 0
        for done in range(rounds):
            if self.is_over:
                break
            hot = 1.0 if idle < 0 or done == 0 else WARM ** self.rng.random()
            first, second = self.rng.integers(2**31, size=2).tolist()
            found = local.anneal(labels, hot, self.seconds_left, first)
            found = local.improve(found, self.seconds_left, second)
            climbed, _ = climb(self.graph, found, self.sweeps)
            labels, reached = self.fused(climbed, labels, score)
            idle = max(idle, 0) + 1 if reached <= score else 0
            score = reached
            if idle >= IDLE:
                self._close_lineage(labels, pool)
                labels, score = self.rng.integers(0, self.graph.cardinalities), -math.inf
                idle = -1
        self._close_lineage(labels, pool)

    def _close_lineage(self, labels: Ints, pool: list[Ints]) -> None:
        if self.offer("annealing", labels):
            for earlier in pool:
                self.offer("annealing", earlier)
        pool.append(labels)
        del pool[:-POOL]

    def moves(self) -> None:
        """Expansion moves from the best labeling."""
        labels, _ = move(self.pairwise, self.labels, "expansion", 5, self.seconds_left)
        self.offer("expansion", labels)


def quick_labels(graph: FactorGraph, seconds: float | None) -> Ints:
    """Return a good labeling to start a search, within a time limit or in a few rounds."""
    if graph.structure.is_pairwise and (seconds is None or seconds > 0):
        race = Race(graph, math.inf if seconds is None else seconds, 0)
        race.messages(30)
        race.search(ROUNDS if seconds is not None else QUICK_ROUNDS)
        return race.labels
    return climb(graph, unary_labels(graph))[0]
