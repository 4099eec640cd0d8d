"""The steps of anytime MAP: each may prove the answer, and costs more than those before.

A step that may fail gets a fraction of the cost of the next exact one, so trying it never takes
much longer than not trying. A search is tried early with a small budget, and later with the rest.
"""

from __future__ import annotations

import math
from typing import Any, NamedTuple

import numpy as np

from cliquewise._kernels import clock
from cliquewise.errors import TooLargeError
from cliquewise.graph.factor_graph import FactorGraph
from cliquewise.oracles import toulbar2
from cliquewise.oracles._budget import Budget
from cliquewise.oracles._local_search import MAX_PROPOSALS, PACE, SWEEPS
from cliquewise.oracles._pairwise import table_bound
from cliquewise.oracles.base import NO_LIMITS, Limits, Oracle, Verdict
from cliquewise.oracles.graph_cut import flow_seconds
from cliquewise.oracles.icm import climb, unary_labels
from cliquewise.oracles.junction_tree import elimination_oracle, search_budget
from cliquewise.oracles.portfolio import QUICK_ROUNDS, ROUNDS, Race
from cliquewise.oracles.registry import get
from cliquewise.oracles.results import MapResult, map_result, tolerance
from cliquewise.oracles.sparse import (
    FEW_ZEROS,
    MAX_VARIABLES,
    SparseOrders,
    impossible_share,
    planning_seconds,
)
from cliquewise.oracles.sparse import PACE as ROW_SECONDS
from cliquewise.oracles.trw_s import iteration_seconds
from cliquewise.ragged import Ints

#: Without a time limit, all steps together get so many estimated seconds.
SECONDS = 60.0
#: Iterations of trw-s, at least and at most; it ends earlier where it stalls.
MIN_ITERATIONS, MAX_ITERATIONS = 10, 200
#: Sweeps of the first climb, and their seconds per table entry.
FIRST_SWEEPS, SWEEP_PACE = 5, 1e-8
#: An attempt may take this fraction of the cost of the exact method, and of the remaining time.
ATTEMPT, PART = 0.25, 0.2
#: A search is tried before an elimination of more seconds than this.
LONG = 1.0
#: The first search gets this fraction of the time, at least so many seconds.
EARLY, MIN_EARLY = 0.1, 1.0
#: Improving the labeling before a search gets this fraction of the time, and so many seconds.
START, MAX_START = 0.05, 1.0
#: Estimates count double against a time limit.
CAUTION = 2.0
#: A search gets this fraction of the remaining time, since it may stop late; and so many seconds.
PUNCTUAL, SHORT = 0.9, 0.3
#: The number of rows may exceed the estimate by this factor.
SLACK = 4.0
#: Table entries that toulbar2 reads, and columns that HiGHS prepares, per second.
POSTED, PREPARED = 1e6, 1e5
#: Without a time limit, integer programs of more columns are not tried: one node may take minutes.
MAX_UNTIMED_COLUMNS = 300_000


class Step(NamedTuple):
    """A row of the report: the best score and bound after a step."""

    method: str
    seconds: float
    score: float
    bound: float


class MapSteps:
    """The best labeling and the smallest bound so far, and the steps that improve them."""

    def __init__(self, graph: FactorGraph, seconds: float | None, gap: float, limits: Limits):
        self.graph, self.gap, self.limits = graph, gap, limits
        self.budget = Budget.of(seconds, SECONDS)
        self.labels: Ints = np.zeros(graph.n_variables, dtype=np.int64)
        self.score, self.bound = -math.inf, table_bound(graph)
        self.exact = False
        self.found_by = self.bound_by = "tables"
        self.steps: list[Step] = []
        self.race: Race | None = None
        #: Measured over estimated time; larger than one on a slow or busy machine.
        self.slowdown = 1.0

    # ---- the order of the steps

    def answer(self) -> MapResult:
        """Run the steps until one proves the labeling or the time is over."""
        if self.graph.n_variables:
            for step in (self.first, self.messages, self.early_search, self.exact_method,
                         self.search):  # fmt: skip
                step()
                if self.is_over:
                    break
        else:
            self.take("icm", self.labels, 0.0 + self.graph.score(self.labels), self.bound, True)
        info = {"steps": [step._asdict() for step in self.steps], "bound_by": self.bound_by}
        proved = self.is_proved
        bound = self.score if proved else self.bound
        method = self.bound_by if proved else self.found_by
        return map_result(self.graph, self.labels, bound, method, info, proved)

    @property
    def left(self) -> float:
        """Remaining seconds of the budget."""
        return self.budget.left

    @property
    def is_proved(self) -> bool:
        """Whether the labeling is optimal."""
        return self.exact or self.bound - self.score <= tolerance(self.score, self.bound)

    @property
    def is_over(self) -> bool:
        """Whether the goal is reached or the time is over."""
        return self.is_proved or self.bound - self.score <= self.gap or self.left == 0.0

    def take(
        self, method: str, labels: Ints, score: float, bound: float, exact: bool = False
    ) -> None:
        """Keep the labeling and the bound if they are better than before."""
        if score > self.score:
            self.labels, self.score, self.found_by = labels, score, method
        if bound < self.bound or exact:
            self.bound, self.bound_by = min(bound, self.bound), method
        self.exact = self.exact or (exact and score >= self.score)
        self.steps.append(Step(method, self.budget.elapsed, self.score, self.bound))

    # ---- cheap steps

    def first(self) -> None:
        """Find some labeling, whatever the limit."""
        labels = unary_labels(self.graph)
        for _ in range(FIRST_SWEEPS):
            if self.left == 0.0:
                break
            before = labels
            labels, _ = climb(self.graph, labels, max_sweeps=1)
            self.budget.spend(SWEEP_PACE * len(self.graph.tables))
            if np.array_equal(before, labels):
                break
        self.take("icm", labels, float(self.graph.score(labels)), self.bound)

    def messages(self) -> None:
        """Run TRW-S, and roof duality on two states: fast where the relaxation is tight."""
        prover = self._prover()
        if prover is not None and prover.name == "toulbar2":
            toulbar2.launch()  # it is ready when the messages are done
        if not self.graph.structure.is_pairwise:
            return
        s, each = self.graph.structure, iteration_seconds(self.graph.structure) + 1e-9
        self.race = race = Race(self.graph, self.budget.timed(self.left), 0)
        exact = self._exact_method(only_known=True)
        most, iterations = PART * self.left, MAX_ITERATIONS
        if exact is not None:
            most = min(most, ATTEMPT * exact[1])
            iterations = int(np.clip(most / each, MIN_ITERATIONS, MAX_ITERATIONS))
        begin = clock.now()
        # Half of the time of the race goes to messages.
        race.deadline = min(begin + 2.0 * PART * self.left, self.budget.deadline)
        if not self.budget.is_timed:
            race.deadline = math.inf
            iterations = int(np.clip(most / each, MIN_ITERATIONS, iterations))
        race.messages(iterations)
        estimated = len(race.course) * each
        self.budget.spend(estimated)
        if self.budget.is_timed and estimated > 1e-3:
            self.slowdown = float(np.clip((clock.now() - begin) / estimated, 1.0, 10.0))
        self._from_race("trw-s")
        cut = 2.0 * flow_seconds(s)
        if not self.is_over and s.is_binary and CAUTION * cut < most:
            race.roof_duality()
            self.budget.spend(cut)
            self._from_race("graph-cut" if "graph-cut" in race.bounds else "portfolio")

    # ---- exact methods

    def exact_method(self) -> None:
        """Eliminate or enumerate if there is time; search first if that takes long."""
        found = self._exact_method()
        if found is None:
            self._by_rows()
            return
        oracle, seconds = found
        if seconds > LONG:
            self._improve_labels()
            self._prove(max(1.0, ATTEMPT * seconds))
        if not self.is_over and CAUTION * seconds <= self.left:
            options = {"limits": self.limits} if oracle.name == "junction-tree" else {}
            best = oracle.map(self.graph, **options)
            self.budget.spend(seconds)
            self.take(oracle.name, best.labels, best.score, best.score, True)

    def _exact_method(self, only_known: bool = False) -> tuple[Oracle, float] | None:
        """Return the cheapest exact method within all limits, and its seconds.

        ``only_known``: without a search for an elimination order.
        """
        s, found = self.graph.structure, []
        cover, tree = get("vertex-cover"), elimination_oracle()
        if (verdict := cover.consider(self.graph, "map", NO_LIMITS)).is_accepted:
            found.append((cover, self.slowdown * verdict.seconds))
        if not only_known or tree.ordering_seconds(s) == 0.0:
            verdict = self._elimination()
            if verdict.is_accepted:
                found.append((tree, self.slowdown * verdict.seconds))
        best = min(found, key=lambda one: one[1], default=None)
        return None if best is None or CAUTION * best[1] > self.left else best

    def _elimination(self) -> Verdict:
        """Return the verdict of the junction tree within the remaining time."""
        s, tree = self.graph.structure, elimination_oracle()
        if self.budget.is_timed:
            planning = search_budget(self.budget.total)
            return tree.estimate(s, "map", self.limits._replace(planning=planning))
        return tree.estimate(s, "map", self.limits._replace(seconds=self.left / CAUTION))

    def _by_rows(self) -> None:
        """Eliminate over the possible combinations, where zeros leave few."""
        oracle, s = get("sparse"), self.graph.structure
        if s.n_variables > MAX_VARIABLES or impossible_share(self.graph) < FEW_ZEROS:
            return
        if CAUTION * planning_seconds(s) > PART * self.left:
            return
        orders = SparseOrders.of(self.graph)
        seconds = ROW_SECONDS["map"] * orders.rows
        if CAUTION * self.slowdown * seconds > PART * self.left:
            return
        most = SLACK * orders.rows
        if self.limits.max_operations is not None:
            most = min(most, self.limits.max_operations)
        limits = self.limits._replace(max_operations=most)
        self.budget.spend(planning_seconds(s) + seconds)
        try:
            best = oracle.map(self.graph, limits=limits, deadline=self.budget.deadline)
        except TooLargeError:
            return
        self.take(oracle.name, best.labels, best.score, best.score, True)

    # ---- searches

    def early_search(self) -> None:
        """Search for a proof with a small budget: large domains with tight bounds need no more."""
        prover = self._prover()
        if prover is None or prover.name != "toulbar2":
            return
        if self.race is not None:  # a tight upper limit of the cost saves most of the search
            self.race.deadline = min(clock.now() + START * self.left, self.budget.deadline)
            self.race.search(QUICK_ROUNDS)
            self.budget.spend(QUICK_ROUNDS * self._round_seconds)
            self._from_race("portfolio")
        self._prove(max(MIN_EARLY, EARLY * self.left))

    def search(self) -> None:
        """Improve the labeling, then search for a proof; without a prover, only the former."""
        prover = self._prover()
        self._improve_labels(to_the_end=prover is None)
        if prover is not None and not self.is_over:
            self._prove(self.left)
        if self.budget.is_timed and not self.is_over:
            self._improve_labels(to_the_end=True)

    def _prover(self) -> Oracle | None:
        """Return toulbar2 if it is installed, else integer programming; None without time."""
        s = self.graph.structure
        search, milp = get("toulbar2"), get("milp")
        if search.consider(self.graph, "map", NO_LIMITS).is_accepted:
            posting = CAUTION * float(s.table_offsets[-1]) / POSTED
            return search if posting + SHORT <= self.left else None
        columns = float(s.table_offsets[-1] + s.node_offsets[-1])
        if not self.budget.is_timed and columns > MAX_UNTIMED_COLUMNS:
            return None
        if milp.consider(self.graph, "map", NO_LIMITS).is_accepted and (
            CAUTION * columns / PREPARED <= self.left
        ):
            return milp
        return None

    def _prove(self, seconds: float) -> None:
        """Search for a proof, for some measured or estimated seconds."""
        oracle = self._prover()
        if oracle is None or self.is_over:
            return
        seconds = min(seconds, self.left)
        options: dict[str, Any] = {}
        if oracle.name == "toulbar2":
            options["init"] = self.labels
            if not self.budget.is_timed:
                options["backtracks"] = toulbar2.backtracks_for(self.graph.structure, seconds)
        if self.budget.is_timed:
            options["seconds"] = PUNCTUAL * seconds
        elif oracle.name == "milp":
            options["nodes"] = milp_nodes(self.graph, seconds)
        best = oracle.map(self.graph, **options)
        self.budget.spend(seconds)
        self.take(oracle.name, best.labels, best.score, best.upper_bound, best.exact)

    @property
    def _round_seconds(self) -> float:
        """Estimated time of one round of annealing."""
        return min(MAX_PROPOSALS, float(SWEEPS * self.graph.n_variables)) / PACE

    def _improve_labels(self, to_the_end: bool = False) -> None:
        """Improve the labeling: briefly before a search, or as long as there is time."""
        seconds = self.left if to_the_end else min(MAX_START, START * self.left)
        if self.race is None:
            self._climb(seconds, to_the_end)
            return
        each = self._round_seconds
        rounds: int | None = ROUNDS
        if self.budget.is_timed:
            self.race.deadline = min(clock.now() + seconds, self.budget.deadline)
            rounds = None if to_the_end else ROUNDS
        else:
            self.race.deadline = math.inf
            rounds = int(np.clip(seconds / each, 1, ROUNDS))
            self.budget.spend(rounds * each)
        self.race.search(rounds)
        if to_the_end and not self.graph.structure.is_binary and not self.race.is_over:
            flows = flow_seconds(self.graph.structure, 5 * self.graph.structure.max_cardinality)
            if self.budget.is_timed or flows <= self.left:
                self.race.moves()
                self.budget.spend(flows)
        self._from_race("portfolio")

    def _climb(self, seconds: float, to_the_end: bool) -> None:
        """Climb from random labelings, for factors of any order."""
        rng = np.random.default_rng(0)
        end = clock.now() + seconds if self.budget.is_timed else math.inf
        rounds = 2**62 if to_the_end and self.budget.is_timed else ROUNDS
        for _ in range(rounds):
            if clock.now() >= end or self.left == 0.0:
                break
            labels, sweeps = climb(self.graph, rng.integers(0, self.graph.cardinalities))
            self.budget.spend(SWEEP_PACE * sweeps * len(self.graph.tables))
            score = float(self.graph.score(labels))
            if score > self.score:
                self.take("icm", labels, score, self.bound)

    def _from_race(self, method: str) -> None:
        assert self.race is not None
        self.take(method, self.race.labels, self.race.score, self.race.bound)


def milp_nodes(graph: FactorGraph, seconds: float) -> int:
    """Return the nodes of branch and bound in so many estimated seconds."""
    columns = float(len(graph.tables) + graph.structure.node_offsets[-1])
    return max(1, int(seconds * PREPARED / max(1.0, columns)))
