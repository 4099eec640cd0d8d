"""The steps of a MAP question: each may prove the answer, and costs more than those before.

A step that may fail gets a part of what the next certain one costs, so that trying never
takes much longer than not trying.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from cliquewise._kernels import clock
from cliquewise.errors import TooLargeError
from cliquewise.graph.factor_graph import FactorGraph
from cliquewise.oracles._pairwise import table_bound
from cliquewise.oracles.base import NO_LIMITS, Limits, Oracle, Verdict
from cliquewise.oracles.graph_cut import flow_seconds
from cliquewise.oracles.icm import climb, unary_labels
from cliquewise.oracles.junction_tree import elimination_oracle, search_budget
from cliquewise.oracles.portfolio import ROUNDS, Race
from cliquewise.oracles.registry import get
from cliquewise.oracles.results import MapResult, map_result, tolerance
from cliquewise.oracles.sparse import (
    FEW_ZEROS,
    MAX_VARIABLES,
    PACE,
    SparseOrders,
    impossible_share,
    planning_seconds,
)
from cliquewise.oracles.trw_s import iteration_seconds
from cliquewise.ragged import Ints

#: Without a limit of time the steps together end after so many seconds.
SECONDS = 60.0
#: Iterations of trw-s, at least and at most; it ends earlier where it stalls.
FEWEST, ITERATIONS = 10, 200
#: Sweeps of the first climb.
FIRST_SWEEPS = 5
#: Part of the cost of the certain method that an attempt may take, and of the time that there is.
ATTEMPT, PART = 0.25, 0.2
#: Elimination of more seconds than this lets a search try first.
LONG = 1.0
#: A good labeling for the search may take this part of the time, and so many seconds.
START, START_SECONDS = 0.05, 1.0
#: Estimates count double against a limit.
CAUTION = 2.0
#: A search gets this part of the time that is left, since it may stop late; and at least so much.
PUNCTUAL, SHORT = 0.9, 0.3
#: Rows may be so many times those expected.
SLACK = 4.0
#: Pairwise graphs with more table entries are not searched.
MODERATE = 200_000
#: Table entries that toulbar2 reads, and columns that HiGHS prepares, per second.
POSTED, PREPARED = 1e6, 1e5


class MapSteps:
    """The best labeling and the smallest bound so far, and the steps that improve them."""

    def __init__(self, graph: FactorGraph, seconds: float | None, gap: float, limits: Limits):
        self.graph, self.gap, self.limits = graph, gap, limits
        self.is_limited = seconds is not None and math.isfinite(seconds)
        self.started = clock.now()
        self.deadline = self.started + (SECONDS if seconds is None else seconds)
        self.labels: Ints = np.zeros(graph.n_variables, dtype=np.int64)
        self.score, self.bound = -math.inf, table_bound(graph)
        self.exact, self.rounding = False, graph.rounding
        self.found_by = self.bound_by = "tables"
        self.steps: list[dict[str, Any]] = []
        self.race: Race | None = None
        self.slow = 1.0

    # ---- the order of the steps

    def answer(self) -> MapResult:
        """One step after the other, until one proves the labeling or the time is over."""
        if self.graph.n_variables:
            for step in (self.first, self.messages, self.certain, self.search):
                step()
                if self.is_over:
                    break
        else:
            self.take("icm", self.labels, 0.0 + self.graph.score(self.labels), self.bound, True)
        info = {"steps": self.steps, "bound_by": self.bound_by}
        proved = self.is_proved
        bound = self.score if proved else self.bound
        method = self.bound_by if proved else self.found_by
        return map_result(self.graph, self.labels, bound, method, info, proved)

    @property
    def left(self) -> float:
        """Seconds until the deadline."""
        return max(0.0, self.deadline - clock.now())

    @property
    def is_proved(self) -> bool:
        """Whether nothing is better."""
        return self.exact or self.bound - self.score <= tolerance(self.score, self.bound)

    @property
    def is_over(self) -> bool:
        """Whether there is nothing to do any more, or no time for it."""
        return self.is_proved or self.bound - self.score <= self.gap or self.left == 0.0

    def take(
        self, method: str, labels: Ints, score: float, bound: float, exact: bool = False
    ) -> None:
        """Keep what is better than before."""
        if score > self.score:
            self.labels, self.score, self.found_by = labels, score, method
        if bound < self.bound or exact:
            self.bound, self.bound_by = bound, method
        self.exact = self.exact or (exact and score >= self.score)
        seconds = clock.now() - self.started
        self.steps.append(
            {"method": method, "seconds": seconds, "score": self.score, "bound": self.bound}
        )

    # ---- the steps

    def first(self) -> None:
        """Some labeling, whatever the limit."""
        labels = unary_labels(self.graph)
        for _ in range(FIRST_SWEEPS):
            if self.left == 0.0:
                break
            before = labels
            labels, _ = climb(self.graph, labels, max_sweeps=1)
            if np.array_equal(before, labels):
                break
        self.take("icm", labels, float(self.graph.score(labels)), self.bound)

    def messages(self) -> None:
        """TRW-S, and roof duality on two states: milliseconds where the relaxation is tight."""
        if not self.graph.structure.is_pairwise:
            return
        self.race = race = Race(self.graph, self.left, 0)
        certain = self._certain(known=True)
        most, iterations = PART * self.left, ITERATIONS
        if certain is not None:
            # Counted, not timed: the same graph gets the same answer.
            most = min(most, ATTEMPT * certain[1])
            each = iteration_seconds(self.graph.structure) + 1e-9
            iterations = int(np.clip(most / each, FEWEST, ITERATIONS))
        # Half of what the race has goes to messages.
        begin = clock.now()
        race.deadline = begin + 2.0 * PART * self.left
        race.messages(iterations)
        made = len(race.course) * iteration_seconds(self.graph.structure)
        if made > 1e-3:  # a machine that others use too is slower than estimates
            self.slow = float(np.clip((clock.now() - begin) / made, 1.0, 10.0))
        self._from_race("trw-s")
        cut = 2.0 * flow_seconds(self.graph.structure)
        if not self.is_over and self.graph.structure.is_binary and CAUTION * cut < most:
            race.roof_duality()
            self._from_race("graph-cut" if "graph-cut" in race.bounds else "portfolio")

    def certain(self) -> None:
        """Elimination or a listing, if there is time; a search first, if it takes long."""
        found = self._certain()
        if found is None:
            self._by_rows()
            return
        oracle, seconds = found
        if seconds > LONG:
            self._start()
            self._prove(max(1.0, ATTEMPT * seconds))
        if not self.is_over and CAUTION * seconds <= self.left:
            options = {"limits": self.limits} if oracle.name == "junction-tree" else {}
            best = oracle.map(self.graph, **options)
            self.take(oracle.name, best.labels, best.score, best.score, True)

    def _by_rows(self) -> None:
        """Elimination over what is possible, where zeros leave little."""
        oracle, s = get("sparse"), self.graph.structure
        if s.n_variables > MAX_VARIABLES or impossible_share(self.graph) < FEW_ZEROS:
            return
        if CAUTION * planning_seconds(s) > PART * self.left:
            return
        orders = SparseOrders.of(self.graph)
        seconds = PACE["map"] * orders.rows
        if CAUTION * self.slow * seconds > PART * self.left:
            return
        most = SLACK * orders.rows
        if self.limits.max_operations is not None:
            most = min(most, self.limits.max_operations)
        limits = self.limits._replace(max_operations=most)
        try:
            best = oracle.map(self.graph, limits=limits, deadline=self.deadline)
        except TooLargeError:
            return
        self.take(oracle.name, best.labels, best.score, best.score, True)

    def search(self) -> None:
        """A good labeling, and a search for the proof; where none is promising, only the first."""
        prover = self._prover()
        self._start(alone=prover is None)
        if prover is not None and not self.is_over:
            self._prove(self.left)
        if self.is_limited and not self.is_over:
            self._start(alone=True)

    # ---- who proves

    def _certain(self, known: bool = False) -> tuple[Oracle, float] | None:
        """Return the cheapest exact method within all limits, and its seconds.

        ``known``: without a search for an elimination order.
        """
        s, found = self.graph.structure, []
        cover, tree = get("vertex-cover"), elimination_oracle()
        if (verdict := cover.consider(self.graph, "map", NO_LIMITS)).is_accepted:
            found.append((cover, self.slow * verdict.seconds))
        if not known or tree.ordering_seconds(s) == 0.0:
            verdict = self._elimination()
            if verdict.is_accepted:
                found.append((tree, self.slow * verdict.seconds))
        best = min(found, key=lambda one: one[1], default=None)
        return None if best is None or CAUTION * best[1] > self.left else best

    def _elimination(self) -> Verdict:
        """Return the verdict of the junction tree within the time that is left."""
        s, tree = self.graph.structure, elimination_oracle()
        if self.is_limited:
            planning = search_budget(self.deadline - self.started)
            return tree.estimate(s, "map", self.limits._replace(planning=planning))
        return tree.estimate(s, "map", self.limits._replace(seconds=self.left / CAUTION))

    def _prover(self) -> Oracle | None:
        """Who searches for a proof: toulbar2 where it is installed, else an integer program."""
        s = self.graph.structure
        toulbar2, milp = get("toulbar2"), get("milp")
        if toulbar2.consider(self.graph, "map", NO_LIMITS).is_accepted:
            entries = float(s.table_offsets[-1])
            is_searchable = not s.is_pairwise or entries <= MODERATE
            promising = is_searchable and CAUTION * entries / POSTED + SHORT <= self.left
            return toulbar2 if promising else None
        columns = float(s.table_offsets[-1] + s.node_offsets[-1])
        if (
            milp.consider(self.graph, "map", NO_LIMITS).is_accepted
            and CAUTION * columns / PREPARED <= self.left
        ):
            return milp
        return None

    def _prove(self, seconds: float) -> None:
        """Let the prover search for some time."""
        oracle = self._prover()
        if oracle is None or self.is_over:
            return
        start = {"init": self.labels} if oracle.name == "toulbar2" else {}
        best = oracle.map(self.graph, seconds=PUNCTUAL * min(seconds, self.left), **start)
        self.take(oracle.name, best.labels, best.score, best.upper_bound, best.exact)

    def _start(self, alone: bool = False) -> None:
        """Improve the labeling: for a moment before a search, or as long as there is time."""
        until = self.deadline
        if not alone:
            part = min(START_SECONDS, START * self.left)
            until = min(until, clock.now() + part)
        if self.race is None:
            self._climb(until, alone)
            return
        self.race.deadline = until
        self.race.search(None if alone and self.is_limited else ROUNDS)
        if alone and not self.graph.structure.is_binary and not self.race.is_over:
            self.race.moves()
        self._from_race("portfolio")

    def _climb(self, until: float, alone: bool) -> None:
        """Factors of any order: climbs from random labelings."""
        rng = np.random.default_rng(0)
        rounds = 2**62 if alone and self.is_limited else ROUNDS
        for _ in range(rounds):
            if clock.now() >= until:
                break
            labels, _ = climb(self.graph, rng.integers(0, self.graph.cardinalities))
            score = float(self.graph.score(labels))
            if score > self.score:
                self.take("icm", labels, score, self.bound)

    def _from_race(self, method: str) -> None:
        assert self.race is not None
        self.take(method, self.race.labels, self.race.score, self.race.bound)
