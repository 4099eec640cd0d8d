"""The steps of a question for marginals: exact where cheap; else an estimate and true bounds.

Loopy belief propagation gives the best marginals where couplings are weak, and nothing that
is certain. Tree-reweighted messages give an upper bound of log Z whatever happens; a value of
loopy propagation outside the bounds is wrong, and its marginals are not taken then.
"""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any

import numpy as np

from cliquewise._kernels import clock
from cliquewise.errors import TooLargeError, UnsupportedError
from cliquewise.graph.factor_graph import FactorGraph
from cliquewise.graph.spanning_trees import parent_probabilities
from cliquewise.oracles._barrier_parts import Parts
from cliquewise.oracles._barrier_run import Run, Settings
from cliquewise.oracles._trw import Mapper, Problem, interaction, problem
from cliquewise.oracles.base import Limits, Oracle
from cliquewise.oracles.cutset import Cutset
from cliquewise.oracles.gibbs import sweep_seconds as sweep_seconds_of_gibbs
from cliquewise.oracles.junction_tree import search_budget
from cliquewise.oracles.mini_buckets import Growing, good_labels
from cliquewise.oracles.registry import get
from cliquewise.oracles.results import MarginalResult
from cliquewise.oracles.sparse import (
    FEW_ZEROS,
    MAX_VARIABLES,
    PACE,
    Sparse,
    SparseOrders,
    impossible_share,
    planning_seconds,
)
from cliquewise.oracles.trw_bp import Messages, certified_bound, lower_bound, sweep_seconds
from cliquewise.ragged import Floats
from cliquewise.trace import Trace

#: Exact marginals may take so many seconds without a time limit, and this share of a time limit.
PATIENCE, SHARE = 5.0, 0.5
#: Converged when no log message changes by more; the most sweeps of one kind of messages.
TOL, MOST = 1e-6, 1000
#: Parts of the time that is left: to find what is possible, for loopy and for other messages.
SUPPORT, LOOPY, REWEIGHTED = 0.3, 0.3, 0.6
#: Without a limit, bounds are tightened for this part of the time so far.
TIGHTEN = 0.25
#: Edge probabilities are improved so often, while that closes this part of the gap; steps are
#: 2 / (k + 10): longer ones lean on a single tree, and its messages converge slowly.
UPDATES, WORTH, SLOWER = 20, 0.01, 10.0
#: Frank-Wolfe is not started for less time than this.
WORTHWHILE = 0.5
#: Part of the time that is left for tables of growing size, and seconds for each factor and pass.
BUCKETS, PER_FACTOR = 0.3, 1e-4
#: Part of the time for draws where messages do not settle, seconds at most, and how many sweeps
#: make them worth while.
GIBBS, LONGEST_DRAW, FEWEST_SWEEPS = 0.15, 10.0, 50
#: Frank-Wolfe splits the graph into so many parts, if the time allows it.
PARTS = 64
#: Seconds for factors of three or more variables where no limit is given.
ANY_ORDER = 10.0
#: Fixing variables for more seconds than this is compared with elimination by rows; where that
#: seems to take too long, it may try for this part of its time.
LONG, EXPLORE = 1.0, 0.2
#: Looking for variables to fix takes about so many seconds.
SPLITTING, PER_ENTRY = 0.2, 1e-5


class MarginalSteps:
    """Marginals and the tightest bounds so far, and the steps that improve them."""

    def __init__(self, graph: FactorGraph, seconds: float | None, gap: float, limits: Limits):
        self.graph, self.gap, self.limits = graph, gap, limits
        self.seconds = seconds
        self.started = clock.now()
        self.deadline = self.started + (math.inf if seconds is None else seconds)
        self.lower, self.upper = -math.inf, math.inf
        self.by = {"marginals": "trw-bp", "lower": "mean-field", "upper": "tables"}
        self.info: dict[str, Any] = {}
        self.trace = Trace(("seconds", "lower", "upper"))

    def answer(self) -> MarginalResult:
        """Exact, or the estimate and the bounds."""
        exact = self._exact()
        if exact is not None:
            return exact.marginals(self.graph, limits=self.limits)
        parts = self._parts()
        if parts is not None:
            return parts
        if not self.graph.structure.is_pairwise:
            return self._any_order()
        try:
            self.p = p = self._problem()
        except UnsupportedError:  # no possible labeling was found: messages need none
            return self._any_order()
        self.offer("tables", -math.inf, p.anything())
        loopy, bethe, converged = self.loopy()
        self.reweighted()
        settled = converged and self.lower <= bethe <= self.upper
        drawn = None if settled else self._draw(GIBBS * self.left)
        self.tighten()
        x, value = self.x, self.value
        # Bounds that nearly meet exclude every estimate: the nearer one is taken then.
        if converged and self._outside(bethe) <= self._outside(value):
            x, value, self.by["marginals"] = loopy, bethe, "loopy-bp"
        self.info |= {"bethe": bethe, "converged": converged}
        t = p.topology
        lower = min(self.lower, self.upper)
        found = MarginalResult.from_flat(
            self.graph, x[: int(t.node_offsets[-1])].copy(), x[t.targets],
            min(max(value, lower), self.upper),
            self.by["marginals"],
            (lower, self.upper), bounds_certified=(True, p.certified), trace=self.trace,
            info={**self.by, **self.info},
        )  # fmt: skip
        return found if drawn is None else _with_draws(found, drawn)

    def _outside(self, value: float) -> float:
        """How far a value is from the bounds; 0 between them."""
        return max(self.lower - value, value - self.upper, 0.0)

    @property
    def left(self) -> float:
        """Seconds until the deadline."""
        return max(0.0, self.deadline - clock.now())

    @property
    def is_over(self) -> bool:
        """Whether the bounds are close enough, or the time is over."""
        return self.upper - self.lower <= self.gap or self.left == 0.0

    def offer(self, method: str, lower: float, upper: float, lower_by: str = "") -> None:
        """Keep bounds that are tighter than before."""
        if lower > self.lower:
            self.lower, self.by["lower"] = lower, lower_by or method
        if upper < self.upper:
            self.upper, self.by["upper"] = upper, method
        now = clock.now() - self.started
        self.trace.append(seconds=now, lower=self.lower, upper=self.upper)

    # ---- the steps

    def _exact(self) -> Oracle | None:
        """Return an exact method that is cheap enough."""
        s = self.graph.structure
        oracle = get("tree") if s.is_forest else get("junction-tree")
        most = PATIENCE if self.seconds is None else SHARE * self.left
        limits = self.limits._replace(seconds=most)
        if self.seconds is not None:
            limits = limits._replace(planning=search_budget(self.seconds))
        verdict = oracle.consider(self.graph, "marginals", limits)
        return oracle if verdict.is_accepted and verdict.seconds <= most else None

    def _parts(self) -> MarginalResult | None:
        """Exact by parts, where impossible states or fixed variables make that cheap."""
        if not np.isneginf(self.graph.tables).any() or self.left < 10 * (
            SPLITTING + PER_ENTRY * len(self.graph.tables)
        ):
            return None
        oracle = get("cutset")
        assert isinstance(oracle, Cutset)
        try:
            split = oracle.split(self.graph, "marginals", self.limits)
            needed = split.cost.seconds
        except TooLargeError:
            split, needed = None, math.inf
        if needed > LONG:
            rows = self._rows(needed)
            if rows is not None:
                return rows
        if split is None or needed > (PATIENCE if self.seconds is None else SHARE * self.left):
            return None
        return oracle.answer(self.graph, split, self.limits)

    def _rows(self, needed: float) -> MarginalResult | None:
        """Exact by rows, if that takes less than the seconds that other exact methods need."""
        oracle = get("sparse")
        assert isinstance(oracle, Sparse)
        s = self.graph.structure
        if s.n_variables > MAX_VARIABLES or impossible_share(self.graph) < FEW_ZEROS:
            return None
        time_left = PATIENCE if self.seconds is None else SHARE * self.left
        if planning_seconds(s) > SUPPORT * time_left:
            return None
        orders = SparseOrders.of(self.graph)
        most = min(needed, time_left)
        if orders.rows * PACE["marginals"] > most:
            # Estimates know nothing of what messages rule out: a few rows are tried anyway.
            most = min(most, EXPLORE * time_left)
        rows = most / PACE["marginals"]
        if self.limits.max_operations is not None:
            rows = min(rows, self.limits.max_operations)
        try:
            return oracle.answer(orders, self.limits._replace(max_operations=rows))
        except TooLargeError:
            return None

    def _any_order(self) -> MarginalResult:
        """Factors of three or more variables: estimates and bounds that need no edges."""
        seconds = self.left if self.seconds is not None else ANY_ORDER
        until = clock.now() + seconds
        share = (1.0 - GIBBS) * seconds
        found = get("mini-buckets").marginals(self.graph, seconds=share, gap=self.gap)
        by = {"marginals": "loopy-bp", "lower": "sums", "upper": "mini-buckets"}
        found = replace(found, method="loopy-bp", info={**by, **found.info})
        drawn = None
        if not found.info["converged"]:
            drawn = self._draw(min(until - clock.now(), GIBBS * seconds))
        return found if drawn is None else _with_draws(found, drawn)

    def _draw(self, seconds: float) -> MarginalResult | None:
        """Marginals of Gibbs sampling; None where it has no time, or entries are forbidden.

        Messages that do not settle are further off than draws, but not where single moves cannot
        leave a corner.
        """
        if not math.isfinite(self.deadline):  # about as long as the messages took
            seconds = min(seconds, max(WORTHWHILE, clock.now() - self.started))
        seconds = min(seconds, LONGEST_DRAW)
        sampler = get("gibbs")
        each = sweep_seconds_of_gibbs(self.graph.structure)
        if seconds < FEWEST_SWEEPS * each or np.isneginf(self.graph.tables).any():
            return None
        found = sampler.marginals(self.graph, seconds=seconds)
        return found if found.info["sweeps"] >= FEWEST_SWEEPS else None

    def _problem(self) -> Problem:
        """Flat arrays; where entries are forbidden, a search says which others are possible."""

        def mapper_of(structure: Any) -> Mapper:
            return Mapper("auto", {}, structure, self.left)

        return problem(self.graph, mapper_of, SUPPORT * self.left)

    def loopy(self) -> tuple[Floats, float, bool]:
        """Ordinary belief propagation: a point, its Bethe value, and whether it converged."""
        p = self.p
        rho = np.ones(p.topology.n_edges)
        messages = Messages.start(p)
        until = clock.now() + LOOPY * self.left
        changes, converged = messages.pass_around(rho, None, TOL, MOST, until)
        x = messages.point(rho)
        self.info["loopy_sweeps"] = len(changes)
        return x, p.gradient(x, p.coefficients(rho))[1], converged

    def reweighted(self) -> None:
        """Tree-reweighted messages: another point, its value, and both bounds."""
        self.rho = self._first_rho()
        self.messages = Messages.start(self.p)
        self._pass(clock.now() + REWEIGHTED * self.left)
        sweeps = int(np.clip(0.1 * self.left / sweep_seconds(self.graph.structure), 1, 30))
        self.offer("mean-field", lower_bound(self.p, self.x, sweeps), math.inf)

    def _pass(self, until: float) -> None:
        """Messages for the current edge probabilities, and the bound at their point."""
        p = self.p
        self.messages.pass_around(self.rho, None, TOL, MOST, until)
        self.x = self.messages.point(self.rho)
        self.value = p.gradient(self.x, p.coefficients(self.rho))[1]
        bound = certified_bound(p, self.x, self.rho, max(self.left, 1e-3))
        self.offer("trw-bp", -math.inf, bound)

    def _first_rho(self) -> Floats:
        """Those of trees of strong edges, as well as linear time allows."""
        t = self.p.topology
        return parent_probabilities(t.n_nodes, t.edges, interaction(self.p.pairwise))

    def tighten(self) -> None:
        """Better edge probabilities as long as they pay, then Frank-Wolfe for the rest."""
        is_limited = math.isfinite(self.deadline)
        if not is_limited:
            now = clock.now()
            self.deadline = now + TIGHTEN * (now - self.started)
        self._improve_rho()
        self._buckets()
        if is_limited and not self.is_over and self.left >= WORTHWHILE:
            self._frank_wolfe()

    def _improve_rho(self) -> None:
        """Move towards the tree of largest mutual information, which lowers the bound most."""
        p = self.p
        if not p.topology.n_edges:
            return
        for update in range(UPDATES):
            begin, before = clock.now(), self.upper
            if self.is_over:
                return
            best = self.x, self.value, self.rho
            tree = p.best_tree(self.x)
            self.rho = self.rho + 2.0 / (update + SLOWER) * (tree - self.rho)
            self._pass(self.deadline)
            if self.upper == before:
                self.x, self.value, self.rho = best
            took = clock.now() - begin
            if before - self.upper < WORTH * (self.upper - self.lower) or took > self.left:
                return

    def _buckets(self) -> None:
        """Tables of growing size: mini-buckets from above, sums around a labeling from below."""
        p, per_pass = self.p, PER_FACTOR * self.p.structure.n_factors
        if self.is_over or self.left * BUCKETS < per_pass:
            return
        nodes = self.x[: int(p.topology.node_offsets[-1])]
        graph = p.graph(p.theta)
        labels = max(p.labelings or [good_labels(graph, nodes, 0.0)], key=graph.score)
        bounds = Growing(self.lower, self.upper)
        until = clock.now() + BUCKETS * self.left
        for _ in bounds.steps(graph, nodes, labels, until, self.gap):
            self.offer("mini-buckets", bounds.lower, bounds.upper, "sums")

    def _frank_wolfe(self) -> None:
        """Barrier Frank-Wolfe: a tighter polytope, one MAP call per step."""
        settings = Settings(
            "adaptive", "marginal", 10, max(0.05, self.gap / 2), True, False, 10_000, self.left,
            None,
        )  # fmt: skip
        mapper = Mapper("auto", {}, self.p.structure, self.left)
        run = Run(self.p, mapper, settings, clock.now(), self.rho)
        parts = Parts(run)
        parts.whole(PARTS, settings.rho_updates, settings.gap)
        found = parts.result(self.graph, "barrier-fw")
        lower, upper = found.log_z_bounds
        self.offer("barrier-fw", lower, upper, "barrier-fw")
        self.info |= {"map_calls": found.info["map_calls"], "parts": found.info["parts"]}


def _with_draws(found: MarginalResult, drawn: MarginalResult) -> MarginalResult:
    """The bounds of one answer, the marginals of Gibbs sampling and its estimate of log Z."""
    low, high = found.log_z_bounds
    more = {"marginals": "gibbs", "standard_errors": drawn.info["standard_errors"]}
    return replace(
        found, nodes=drawn.nodes, factors=drawn.factors, method="gibbs",
        log_z=min(max(drawn.log_z, low), high), info={**found.info, **more},
    )  # fmt: skip
