"""The steps of marginal MAP: exact where sums are cheap; else bounds and a search.

Sums come before maxima. Where the sums are cheap, what they leave is a MAP question like any
other. Where not, mini-buckets leave one whose scores are all too high, or all too low: the best
labels of either are good candidates, and the best score of the first is a bound.
"""

from __future__ import annotations

import math
from functools import cached_property
from typing import Any, NamedTuple

import numpy as np

from cliquewise._kernels import clock
from cliquewise.errors import InfeasibleError, TooLargeError, UnsupportedError
from cliquewise.graph.evidence import INFEASIBLE
from cliquewise.graph.factor_graph import FactorGraph
from cliquewise.graph.structure import Structure
from cliquewise.oracles._conditional_sums import SumsGiven
from cliquewise.oracles._mini_buckets import Remains, TooLate, eliminate
from cliquewise.oracles._mixed_orders import mixed_order, narrowing
from cliquewise.oracles._pairwise import table_bound
from cliquewise.oracles._sum_elimination import Mask, plan_sums, sum_out
from cliquewise.oracles.base import Cost
from cliquewise.oracles.junction_tree import (
    MAX_OPERATIONS,
    PACE,
    elimination_oracle,
    search_budget,
)
from cliquewise.oracles.mini_buckets import FIRST, GROWTH, elimination_order
from cliquewise.oracles.options import limits_of
from cliquewise.oracles.results import MapResult, tolerance
from cliquewise.ragged import Ints, offsets_of

#: Without a limit of time: seconds that exact sums may take, and that bounds and a search take.
PATIENCE, SECONDS = 60.0, 20.0
#: Exact sums may take this part of a limit.
SHARE = 0.5
#: Parts of the time: a first labeling, the last moment of bounds, and of the search (the rest is
#: for a proof of its sum).
START, BOUNDS, SEARCH = 0.1, 0.6, 0.85
#: Part of the time in which the best labels of one relaxation are looked for.
SOLVE = 0.05
#: Part of the time when tables for that proof stop growing.
PROOF = 0.92
#: Entries of tables where variables are fixed to make sums narrow.
NARROW = 2.0**13
#: Largest table of a mini-bucket.
MOST_ENTRIES = 2.0**22
#: Labelings of the relaxation that are tried, best first; more at a time.
FEW, MORE, MANY = 8, 8, 4096
#: Part of the labels that a restart changes, and restarts without a gain that end a search.
KICK, RESTARTS = 0.15, 100


class Relaxed(NamedTuple):
    """A MAP problem whose scores plus a constant bound the sums, and an elimination order."""

    graph: FactorGraph
    variables: Ints
    order: Ints
    constant: float
    exact: bool
    rounding: float


class MarginalMapSteps:
    """The best labels and the smallest bound so far, and the steps that improve them."""

    def __init__(
        self, graph: FactorGraph, is_max: Mask, seconds: float | None, gap: float,
        options: dict[str, Any],
    ):  # fmt: skip
        self.graph, self.is_max, self.gap = graph, is_max, gap
        self.options, self.limits = options, limits_of(options)
        self.seconds = seconds
        self.started = clock.now()
        self.labels: Ints | None = None
        self.score, self.bound = -math.inf, math.inf
        self.exact, self.method = False, "local-search"
        self.bound_by = "tables"
        self.budget = self.deadline = math.inf
        self.eliminating = 0.0
        self.rounding = graph.rounding
        self.sums_are_exact = True
        self.maximum_by = ""
        self.steps: list[dict[str, Any]] = []

    # ---- the order of the steps

    def answer(self, method: str) -> None:
        """Answer exactly if possible, otherwise as the named method requires."""
        refusal = None if method == "mini-buckets" else self.sums()
        if method == "junction-tree" and refusal is not None:
            raise refusal
        if method == "mini-buckets" or refusal is not None:
            self.budget = SECONDS if self.seconds is None else self.seconds
            self.deadline = self.started + self.budget
            self.bounded()
        self.exact = self.exact or self.bound - self.score <= tolerance(self.score, self.bound)

    def bounded(self) -> None:
        """Compute bounds, then search."""
        cards = self.graph.cardinalities[~self.is_max].astype(float)
        self.offer_bound("tables", table_bound(self.graph) + float(np.log(cards).sum()))
        self.first(START * self.budget)
        self.sums_are_exact = False
        if not self.is_over:
            self.improve()
        if self.labels is None:
            raise UnsupportedError(
                "no labels of positive probability were found, and it is not proved that there "
                "are none; give it more time (seconds=)"
            )

    def improve(self) -> None:
        """Run the steps from the fastest to the slowest, while there is time."""
        relaxed = self.tighten()
        if self.is_over:
            return
        if relaxed is not None and not self.is_narrowed and not self.is_over:
            self.best_first(relaxed)
        if self.labels is None:
            self.first(SHARE * self.left)
        if not self.is_over:
            self.search()
        if not self.sums_are_exact and not self.is_over:
            self.prove_sum()

    @cached_property
    def given(self) -> SumsGiven:
        """Evaluates labels by conditional sums, which takes a while on large graphs.

        Where sums are too wide even then, some variables more are fixed, and their states are
        searched for as well: all that differs is that sums are lower bounds.
        """
        given = SumsGiven(self.graph, self.is_max, self.limits)
        self.sums_are_exact = given.is_exact
        if not given.is_exact:
            given = self._narrow(NARROW)
        if self.labels is not None:
            self.score = max(self.score, given.value(self.labels))
            self._note(self.method)
        return given

    @property
    def is_narrowed(self) -> bool:
        """Whether labels are evaluated by a lower bound of their sum."""
        return len(self.given.kept) > int(self.is_max.sum())

    def _narrow(self, entries: float) -> SumsGiven:
        fixed = narrowing(self.graph.structure, self.is_max, math.log(entries))
        return SumsGiven(self.graph, self.is_max | fixed, self.limits)

    @property
    def left(self) -> float:
        """Remaining seconds."""
        return max(0.0, self.deadline - clock.now())

    @property
    def is_over(self) -> bool:
        """Whether the goal is reached or the time is over."""
        slack = max(self.gap, tolerance(self.score, self.bound))
        return self.bound - self.score <= slack or self.left == 0.0

    def until(self, part: float) -> float:
        """Return the deadline of this fraction of the time."""
        return self.started + part * self.budget

    def offer_bound(self, method: str, bound: float) -> None:
        """Keep a bound if it is smaller."""
        if bound == -math.inf:
            raise InfeasibleError(INFEASIBLE)
        if bound < self.bound:
            self.bound, self.bound_by = bound, method
            self._note(method)

    def offer(self, method: str, labels: Ints) -> float:
        """Keep the labels if their sum is larger; return its value."""
        if self.is_narrowed:
            others = np.setdiff1d(self.given.kept, np.flatnonzero(self.is_max))
            self.given.climb(labels, np.random.default_rng(0), self.deadline, others)
        value = self.given.value(labels)
        self.keep(method, labels, value)
        return value

    def keep(self, method: str, labels: Ints, value: float) -> None:
        """Keep the labels if their sum (at least ``value``) exceeds the best one."""
        if value > self.score:
            self.labels, self.score, self.method = labels.copy(), value, method
            self._note(method)

    def _note(self, method: str) -> None:
        seconds = clock.now() - self.started
        self.steps.append(
            {"method": method, "seconds": seconds, "score": self.score, "bound": self.bound}
        )

    # ---- exact sums

    def sums(self) -> TooLargeError | None:
        """Sum exactly, then maximize; return an error if that is too large."""
        limit = PATIENCE if self.seconds is None else SHARE * self.seconds
        most = math.inf if self.seconds is None else self.seconds
        plan = plan_sums(self.graph.structure, self.is_max, most)
        if plan is None:
            return TooLargeError(
                "the sums need tables beyond any memory: a connected part of the variables that "
                "are summed out touches too many of the others", math.inf, math.inf,
            )  # fmt: skip
        seconds = PACE["sample"] * plan.operations
        cost = Cost(seconds, plan.memory, plan.operations)
        excess = self.limits.excess("marginal MAP", cost, MAX_OPERATIONS)
        if excess is None and seconds > limit:
            excess = f"takes about {seconds:.2g} s for the sums (limit: {limit:.2g} s)"
        if excess is not None:
            return TooLargeError(f"method 'junction-tree' {excess}", plan.memory, plan.operations)
        rest, constant = sum_out(self.graph, self.is_max, plan)
        if constant == -math.inf:
            raise InfeasibleError(INFEASIBLE)
        best = self._best(rest, self.seconds)
        self.labels = self._whole(np.flatnonzero(self.is_max), best.labels)
        self.score, self.bound = best.score + constant, best.upper_bound + constant
        self.rounding += best.rounding
        self.exact = best.exact
        self.method, self.maximum_by = "junction-tree", best.method
        self.bound_by = self.method
        self._note(self.method)
        return None

    def _best(self, graph: FactorGraph, seconds: float | None) -> MapResult:
        """Return the MAP labeling of the graph that the sums leave."""
        options: dict[str, Any] = {**self.options, "gap": self.gap}
        if seconds is not None:
            options["seconds"] = max(0.0, seconds - (clock.now() - self.started))
        return graph.map(**options)

    def _whole(self, variables: Ints, labels: Ints) -> Ints:
        """Return a labeling with these labels, the best known ones, and zero elsewhere."""
        n = self.graph.n_variables
        whole = np.zeros(n, dtype=np.int64) if self.labels is None else self.labels.copy()
        whole[variables] = labels
        return whole

    # ---- bounds and a search

    def first(self, seconds: float) -> None:
        """Start from the MAP labeling of all variables, whose score is a lower bound."""
        try:
            best = self.graph.map(seconds=seconds, **self.options)
        except UnsupportedError:
            return
        self.keep("map", best.labels, best.score)

    def tighten(self) -> Relaxed | None:
        """Tighten the bound with growing mini-buckets; return the last relaxation."""
        s = self.graph.structure
        plain = elimination_order(s)
        late = np.concatenate([plain[~self.is_max[plain]], plain[self.is_max[plain]]])
        count = int((~self.is_max).sum())
        entries, spent, last = float(FIRST), 0.0, None
        until = self.deadline  # the first ones are for all who have no bound yet
        while not self.is_over and entries <= MOST_ENTRIES:
            begin = clock.now()
            if begin + GROWTH * spent > until:
                break
            self.eliminating = 0.0
            try:
                found = self._relax(late, count, entries, True, until)
                last = found
                self._bound(found, entries, until)
                if found.exact or self.is_over:
                    break
                self._candidate(self._relax(late, count, entries, False, until))
                mixed, kept = mixed_order(s, self.is_max, math.log(entries))
                self._bound(self._relax(mixed, kept, entries, True, until), entries, until)
            except TooLate:
                break
            spent, until = self.eliminating, self.until(BOUNDS)
            entries *= GROWTH
        return last

    def _relax(self, order: Ints, count: int, entries: float, upper: bool, until: float) -> Relaxed:
        maximized = self.is_max if upper else None
        left = self._eliminate(self.graph, order, count, entries, upper, until, maximized)
        return _as_graph(self.graph, order[count:], left)

    def _eliminate(self, *question: Any) -> Remains:
        """Eliminate with mini-buckets, and record the time, which grows with their size."""
        begin = clock.now()
        left = eliminate(*question)
        self.eliminating += clock.now() - begin
        return left

    def _bound(self, relaxed: Relaxed, entries: float, until: float) -> None:
        """Offer the bound and the MAP labels of a relaxation."""
        g = relaxed.graph
        every = np.ones(g.n_variables, dtype=bool)
        rest = self._eliminate(g, relaxed.order, g.n_variables, entries, True, until, every)
        self.offer_bound("mini-buckets", rest.constant + relaxed.constant)
        best = self._candidate(relaxed)
        if best is not None:
            error = best.rounding if best.exact else 0.0
            self.offer_bound("mini-buckets", best.upper_bound + error + relaxed.constant)

    def _candidate(self, relaxed: Relaxed) -> MapResult | None:
        """Offer the MAP labels of a relaxation, and return them."""
        if self.is_over:
            return None
        try:
            best = relaxed.graph.map(seconds=min(SOLVE * self.budget, self.left), **self.options)
        except (UnsupportedError, InfeasibleError):  # whether it is infeasible, bounds say
            return None
        if self.left > 0.0:
            self.offer("mini-buckets", self._whole(relaxed.variables, best.labels))
        return best

    def best_first(self, relaxed: Relaxed) -> None:
        """Evaluate labels in the order of their bounds, until the best is proved."""
        tree, k, tried = elimination_oracle(), FEW, 0
        s = relaxed.graph.structure
        small = self.limits._replace(max_operations=1e7, planning=search_budget(self.left))
        if not len(relaxed.variables):
            return
        if not tree.estimate(s, "top_k", small).is_accepted:
            return
        top = -math.inf
        while not self.is_over and k <= MANY:
            found = relaxed.graph.top_k(k, "junction-tree")
            for one in found[tried:]:
                if clock.now() > self.until(SEARCH):
                    return
                labels = self._whole(relaxed.variables, one.labels)
                top = max(top, self.offer("mini-buckets", labels))
            last = found[-1].score + found[-1].rounding + relaxed.constant
            # All others have a bound no larger than the last; those tried have their sums.
            self.offer_bound("best-first", max(top, last if len(found) == k else -math.inf))
            if len(found) < k:
                return
            tried, k = len(found), k * MORE

    def search(self) -> None:
        """Repeat: change some labels at random, then climb."""
        rng, until = np.random.default_rng(0), self.until(SEARCH)
        if self.sums_are_exact:
            until = self.deadline
        variables, failed = self.given.kept, 0
        labels = self._whole(variables[:0], variables[:0])
        while len(variables) and failed < RESTARTS:
            whole = self.given.climb(labels, rng, until)
            before = self.score
            self.offer("local-search", labels)
            failed = 0 if self.score > before else failed + 1
            if not whole or self.is_over or clock.now() >= until:
                return
            labels = self._whole(variables[:0], variables[:0])
            changed = max(2, int(KICK * rng.random() * len(variables)))
            some = rng.choice(variables, min(changed, len(variables)), replace=False)
            labels[some] = rng.integers(0, self.graph.cardinalities[some])

    def prove_sum(self) -> None:
        """Improve the lower bound of the sum of the best labels in the remaining time."""
        if self.labels is None:
            return
        entries = NARROW * GROWTH
        while entries <= MOST_ENTRIES and not self.is_over:
            begin = clock.now()
            self.keep(self.method, self.labels, self._narrow(entries).value(self.labels))
            if begin + (1 + GROWTH) * (clock.now() - begin) > self.until(PROOF):
                break
            entries *= GROWTH
        fixed = {int(v): int(self.labels[v]) for v in np.flatnonzero(self.is_max)}
        found = self.graph.condition(fixed).marginals(seconds=self.left, **self.options)
        if found.bounds_certified[0]:
            self.keep(self.method, self.labels, found.log_z_bounds[0])


def _as_graph(graph: FactorGraph, order: Ints, left: Remains) -> Relaxed:
    """Return the remaining functions of an elimination as a graph of the remaining variables."""
    variables = np.sort(order)
    renumber = np.full(graph.n_variables, -1, dtype=np.int64)
    renumber[variables] = np.arange(len(variables))
    scopes = [renumber[list(f.scope)] for f in left.functions]
    structure = Structure.from_arrays(
        graph.cardinalities[variables],
        np.concatenate([np.empty(0, dtype=np.int64), *scopes]),
        offsets_of([len(scope) for scope in scopes]),
    )
    flat = np.concatenate([np.empty(0), *(f.table.ravel() for f in left.functions)])
    smaller = FactorGraph.from_structure(structure, flat)
    return Relaxed(smaller, variables, renumber[order], left.constant, left.exact, left.rounding)
