"""Portfolio: several approximate methods, the best labeling of all, the tightest bound."""

from __future__ import annotations

import math
import time
from typing import Any, ClassVar

import numpy as np

from cliquewise.core import INFEASIBLE
from cliquewise.errors import InfeasibleError
from cliquewise.graph import FactorGraph
from cliquewise.oracles._cuts import fuse, ising, minimum_cut
from cliquewise.oracles._pairwise import Pairwise, compile_pairwise, not_pairwise, table_bound
from cliquewise.oracles.base import MapResult, Oracle, register
from cliquewise.oracles.graph_cut import move, roof_duality
from cliquewise.oracles.icm import climb, unary_labels
from cliquewise.oracles.trw_s import reject_options, run_trw_s, tolerance
from cliquewise.structure import Ints, Structure

#: Rounds of relabelling a random forest, and entries of tables that one round may look at.
ROUNDS = 200
#: Rounds between two looks at the clock.
AT_ONCE = 20


@register
class Portfolio(Oracle):
    """Best of trw-s, roof duality, moves, icm and relabelled forests; the smallest bound."""

    name = "portfolio"
    provides: ClassVar[frozenset[str]] = frozenset({"map"})
    exact = False
    rank = 60

    def refuses(self, structure: Structure, want: str = "map") -> str | None:
        """Refuse factors of three or more variables."""
        return not_pairwise(structure)

    def map(
        self,
        graph: FactorGraph,
        max_iterations: int = 200,
        rounds: int = ROUNDS,
        seconds: float = math.inf,
        init: Ints | None = None,
        random_state: Any = 0,
        **options: Any,
    ) -> MapResult:
        """Run the methods one after the other; stop as soon as a labeling meets the bound.

        Parameters
        ----------
        graph : FactorGraph
        max_iterations : int, default=200
            Of trw-s.
        rounds : int, default=200
            How often a random forest of variables is relabelled optimally given the others.
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
        >>> from cliquewise.builders import complete
        >>> g = complete(np.zeros((3, 2)), [[0.0, 1.0], [1.0, 0.0]])
        >>> g.map("portfolio").score
        2.0
        """
        reject_options(self.name, options)
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
        return race.result(self.name)


class Race:
    """The best labeling and the smallest bound so far, and the methods that improve them."""

    def __init__(self, graph: FactorGraph, seconds: float, random_state: Any):
        self.graph = graph
        self.pairwise: Pairwise = compile_pairwise(graph)
        self.penalty = self.pairwise.penalty
        self.deadline = time.perf_counter() + seconds
        self.rng = np.random.default_rng(random_state)
        self.labels = unary_labels(graph)
        self.score = float(graph.score(self.labels))
        self.bound = table_bound(graph)
        self.scores: dict[str, float] = {}
        self.bounds: dict[str, float] = {}

    @property
    def is_over(self) -> bool:
        """Whether the bound is met or the time is up."""
        return self.is_proved or time.perf_counter() >= self.deadline

    @property
    def is_proved(self) -> bool:
        """Whether the best labeling meets the bound."""
        return self.bound - self.score <= tolerance(self.score, self.bound)

    @property
    def seconds_left(self) -> float:
        """Until the deadline."""
        return max(0.0, self.deadline - time.perf_counter())

    def offer(self, method: str, labels: Ints) -> None:
        """Climb from a labeling, and fuse the result with the best one."""
        graph = self.graph
        labels, _ = climb(graph, labels)
        score = float(graph.score(labels))
        self.scores[method] = max(score, self.scores.get(method, -math.inf))
        if score > self.score:
            labels, self.labels = self.labels, labels
            score, self.score = self.score, score
        if score == -math.inf or np.array_equal(labels, self.labels):
            return
        fused = fuse(self.pairwise, self.labels, labels, self.labels, self.penalty)
        fused_score = float(graph.score(fused))
        if fused_score > self.score:
            self.labels, self.score = fused, fused_score

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
        self.bounds["trw-s"] = run.bound
        self.bound = min(self.bound, run.bound)
        self.offer("trw-s", run.labels)

    def search(self, rounds: int) -> None:
        """Relabel random forests, half of the rounds with falling noise."""
        labels = search_forests(
            self.pairwise, self.labels, rounds, self.seconds_left, self.rng
        )
        self.offer("forests", labels)

    def moves(self) -> None:
        """Expansion moves from the best labeling."""
        labels, _ = move(self.pairwise, self.labels, "expansion", 5, self.seconds_left)
        self.offer("expansion", labels)

    def result(self, method: str) -> MapResult:
        """What came out."""
        bound = max(self.bound, self.score)
        info = {"scores": self.scores, "bounds": self.bounds}
        return MapResult(self.labels, self.score, bound, self.is_proved, method, info)


def search_forests(
    pairwise: Pairwise,
    labels: Ints,
    rounds: int,
    seconds: float,
    rng: np.random.Generator,
) -> Ints:
    """Relabel random forests of variables optimally given the others; the best labeling seen.

    The noise on the scores falls to zero within each cycle of rounds: annealing by trees.
    """
    from cliquewise._kernels.icm import forest_search

    t = pairwise.topology
    deadline = time.perf_counter() + seconds
    best_labels, current = labels.copy(), labels.copy()
    best, done = -np.inf, 0
    finite = pairwise.tables[np.isfinite(pairwise.tables)]
    warm = float(finite.std()) if len(finite) else 0.0
    while done < rounds:
        ask = min(AT_ONCE, rounds - done)
        part = (done + np.arange(ask)) / max(rounds, 1)
        heat = np.where(part < 0.9, warm * (1.0 - part / 0.9), 0.0)
        best = forest_search(
            ask, int(rng.integers(2**31)), heat, current, best_labels, best, pairwise.nodes,
            t.node_offsets, t.edges, t.edge_offsets, pairwise.tables, t.cards, t.starts, t.links,
        )  # fmt: skip
        done += ask
        if time.perf_counter() >= deadline:
            break
    return best_labels


def quick_labels(graph: FactorGraph, seconds: float) -> Ints:
    """A good labeling in a moment, for methods that want a start."""
    if graph.structure.is_pairwise and seconds > 0:
        race = Race(graph, seconds, 0)
        race.messages(30)
        race.search(60)
        return race.labels
    return climb(graph, unary_labels(graph))[0]
