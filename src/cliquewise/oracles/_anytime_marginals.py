"""The steps of anytime marginals: exact where that is cheap; else an estimate and proved bounds.

Loopy belief propagation gives the best marginals where couplings are weak, without any guarantee.
Tree-reweighted messages always give an upper bound of log Z. A value of loopy propagation outside
the bounds is wrong, so its marginals are not used then.

Without a time limit, every step has a fixed number of operations (see ``_budget.py``).
"""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np

from cliquewise._kernels import clock
from cliquewise.errors import TooLargeError, UnsupportedError
from cliquewise.graph.factor_graph import FactorGraph
from cliquewise.graph.spanning_trees import parent_probabilities
from cliquewise.graph.structure import Structure
from cliquewise.oracles._barrier_parts import Parts
from cliquewise.oracles._barrier_run import Run, Settings
from cliquewise.oracles._budget import Budget
from cliquewise.oracles._trw import Mapper, Problem, interaction, problem
from cliquewise.oracles.base import Limits, Oracle
from cliquewise.oracles.cutset import Cutset
from cliquewise.oracles.gibbs import sweep_seconds as gibbs_sweep_seconds
from cliquewise.oracles.junction_tree import search_budget
from cliquewise.oracles.mini_buckets import PER_FACTOR, GrowingBounds, good_labels
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
#: Without a time limit, all steps together get so many estimated seconds.
SECONDS = 10.0
#: Messages have converged when no log message changes by more; most sweeps of one run.
TOL, MAX_SWEEPS = 1e-6, 1000
#: Shares of the remaining time: to find possible states, for loopy and for other messages.
SUPPORT, LOOPY, REWEIGHTED = 0.3, 0.3, 0.6
#: Without a time limit, tightening the bounds costs this fraction of the steps before.
TIGHTEN = 0.25
#: Edge probabilities are improved at most so often, while that closes this share of the gap. Steps
#: are 2 / (k + 10): longer ones lean on a single tree, and its messages converge slowly.
UPDATES, WORTH, SLOWER = 20, 0.01, 10.0
#: Frank-Wolfe is not started with less time (seconds).
WORTHWHILE = 0.5
#: Share of the remaining time for mini-buckets.
BUCKETS = 0.3
#: Gibbs sampling where messages do not converge: share of the time, most seconds, least sweeps.
GIBBS, MAX_GIBBS_SECONDS, MIN_SWEEPS = 0.15, 10.0, 50
#: Frank-Wolfe splits the graph into so many parts, if the time allows it.
PARTS = 64
#: If conditioning takes more seconds than this, elimination by rows is considered; where that
#: seems to take too long, it is tried for this share of the time.
LONG, EXPLORE = 1.0, 0.2
#: Estimated seconds to choose the variables to fix, plus seconds per table entry.
SPLITTING, PER_ENTRY = 0.2, 1e-5


class MarginalSteps:
    """Marginals and the tightest bounds so far, and the steps that improve them."""

    def __init__(self, graph: FactorGraph, seconds: float | None, gap: float, limits: Limits):
        self.graph, self.gap, self.limits = graph, gap, limits
        self.budget = Budget.of(seconds, SECONDS)
        self.lower, self.upper = -math.inf, math.inf
        self.by = {"marginals": "trw-bp", "lower": "mean-field", "upper": "tables"}
        self.info: dict[str, object] = {}
        self.trace = Trace(("seconds", "lower", "upper"))

    def answer(self) -> MarginalResult:
        """Return exact marginals, or the estimate and the bounds."""
        exact = self._exact_method()
        if exact is not None:
            return exact.marginals(self.graph, limits=self.limits)
        parts = self._by_parts()
        if parts is not None:
            return parts
        if not self.graph.structure.is_pairwise:
            return self._any_order()
        try:
            self.p = p = self._problem()
        except UnsupportedError:  # no possible labeling was found: factor messages need none
            return self._any_order()
        self.offer("tables", -math.inf, p.anything())
        loopy, bethe, converged = self.loopy()
        self.reweighted()
        is_consistent = converged and self.lower <= bethe <= self.upper
        sampled = None if is_consistent else self._gibbs(GIBBS * self.budget.left)
        self.tighten()
        x, value = self.x, self.value
        # If the bounds nearly meet, both estimates may be outside: the nearer one is used.
        if converged and self._distance(bethe) <= self._distance(value):
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
        return found if sampled is None else _with_samples(found, sampled)

    def _distance(self, value: float) -> float:
        """Return the distance of a value from the interval of the bounds."""
        return max(self.lower - value, value - self.upper, 0.0)

    @property
    def is_over(self) -> bool:
        """Whether the bounds are close enough, or the time is over."""
        return self.upper - self.lower <= self.gap or self.budget.left == 0.0

    def offer(self, method: str, lower: float, upper: float, lower_by: str = "") -> None:
        """Keep bounds that are tighter than before."""
        if lower > self.lower:
            self.lower, self.by["lower"] = lower, lower_by or method
        if upper < self.upper:
            self.upper, self.by["upper"] = upper, method
        self.trace.append(seconds=self.budget.elapsed, lower=self.lower, upper=self.upper)

    # ---- exact methods

    @property
    def _exact_seconds(self) -> float:
        """The time that an exact method may take."""
        return SHARE * self.budget.left if self.budget.is_timed else PATIENCE

    def _exact_method(self) -> Oracle | None:
        """Return an exact method that is cheap enough."""
        s = self.graph.structure
        oracle = get("tree") if s.is_forest else get("junction-tree")
        limits = self.limits._replace(seconds=self._exact_seconds)
        if self.budget.is_timed:
            limits = limits._replace(planning=search_budget(self.budget.total))
        verdict = oracle.consider(self.graph, "marginals", limits)
        return oracle if verdict.is_accepted and verdict.seconds <= limits.seconds else None

    def _by_parts(self) -> MarginalResult | None:
        """Return exact marginals by conditioning or by rows, where impossible states allow it."""
        if not np.isneginf(self.graph.tables).any():
            return None
        planning = SPLITTING + PER_ENTRY * len(self.graph.tables)
        if self.budget.is_timed and self.budget.left < 10 * planning:
            return None
        oracle = get("cutset")
        assert isinstance(oracle, Cutset)
        try:
            split = oracle.split(self.graph, "marginals", self.limits)
            needed = split.cost.seconds
        except TooLargeError:
            split, needed = None, math.inf
        if needed > LONG:
            found = self._by_rows(needed)
            if found is not None:
                return found
        if split is None or needed > self._exact_seconds:
            return None
        return oracle.answer(self.graph, split, self.limits)

    def _by_rows(self, needed: float) -> MarginalResult | None:
        """Return exact marginals by rows, if that takes less than ``needed`` seconds."""
        oracle, s = get("sparse"), self.graph.structure
        assert isinstance(oracle, Sparse)
        if s.n_variables > MAX_VARIABLES or impossible_share(self.graph) < FEW_ZEROS:
            return None
        if planning_seconds(s) > SUPPORT * self._exact_seconds:
            return None
        orders = SparseOrders.of(self.graph)
        available = self._exact_seconds
        most = min(needed, available)
        if orders.rows * PACE["marginals"] > most:
            # The estimate ignores combinations that messages rule out: a few rows are tried.
            most = min(most, EXPLORE * available)
        rows = most / PACE["marginals"]
        if self.limits.max_operations is not None:
            rows = min(rows, self.limits.max_operations)
        deadline = clock.now() + most if self.budget.is_timed else math.inf
        try:
            return oracle.answer(orders, self.limits._replace(max_operations=rows), deadline)
        except TooLargeError:
            return None

    # ---- estimates

    def _any_order(self) -> MarginalResult:
        """Return estimates and bounds for factors of any order."""
        share = (1.0 - GIBBS) * self.budget.left if self.budget.is_timed else None
        oracle = get("mini-buckets")
        found = oracle.marginals(self.graph, seconds=share, gap=self.gap, limits=self.limits)
        by = {"marginals": "loopy-bp", "lower": "sums", "upper": "mini-buckets"}
        found = replace(found, method="loopy-bp", info={**by, **found.info})
        if found.info["converged"]:
            return found
        seconds = self.budget.left if self.budget.is_timed else GIBBS * SECONDS
        sampled = self._gibbs(min(seconds, GIBBS * self.budget.total))
        return found if sampled is None else _with_samples(found, sampled)

    def _gibbs(self, seconds: float) -> MarginalResult | None:
        """Return marginals of Gibbs sampling; None without time, or if entries are forbidden.

        Samples are more accurate than messages that do not converge, unless moves of single
        variables cannot leave a mode.
        """
        seconds = min(seconds, MAX_GIBBS_SECONDS)
        sweeps = int(seconds / gibbs_sweep_seconds(self.graph.structure))
        if sweeps < MIN_SWEEPS or np.isneginf(self.graph.tables).any():
            return None
        limit = seconds if self.budget.is_timed else None
        found = get("gibbs").marginals(self.graph, sweeps=min(sweeps, 2000), seconds=limit)
        self.budget.spend(found.info["sweeps"] * gibbs_sweep_seconds(self.graph.structure))
        return found if found.info["sweeps"] >= MIN_SWEEPS else None

    def _problem(self) -> Problem:
        """Compile flat arrays; where entries are forbidden, a search finds the possible ones."""
        seconds = self.budget.timed(self.budget.left)

        def mapper_of(structure: Structure) -> Mapper:
            return Mapper("auto", {}, structure, seconds)

        return problem(self.graph, mapper_of, SUPPORT * seconds)

    def _sweeps(self, share: float) -> tuple[int, float]:
        """Return the number of sweeps and the deadline for a share of the remaining time."""
        if self.budget.is_timed:
            return MAX_SWEEPS, clock.now() + share * self.budget.left
        each = sweep_seconds(self.graph.structure)
        return int(np.clip(share * self.budget.left / each, 1, MAX_SWEEPS)), math.inf

    def _mean_field(self, x: Floats) -> None:
        """Offer the lower bound of mean field from a point."""
        each = sweep_seconds(self.graph.structure)
        sweeps = 30
        if self.budget.is_timed:
            sweeps = int(np.clip(0.1 * self.budget.left / each, 1, 30))
        self.offer("mean-field", lower_bound(self.p, x, sweeps), math.inf)
        self.budget.spend(sweeps * each)

    def loopy(self) -> tuple[Floats, float, bool]:
        """Run loopy belief propagation; return its point and Bethe value, and if it converged."""
        p = self.p
        rho = np.ones(p.topology.n_edges)
        messages = Messages.start(p)
        sweeps, deadline = self._sweeps(LOOPY)
        changes, converged = messages.pass_around(rho, None, TOL, sweeps, deadline)
        self.budget.spend(len(changes) * sweep_seconds(self.graph.structure))
        x = messages.point(rho)
        self.info["loopy_sweeps"] = len(changes)
        self._mean_field(x)
        return x, p.gradient(x, p.coefficients(rho))[1], converged

    def reweighted(self) -> None:
        """Run tree-reweighted messages: another point, its value, and both bounds."""
        t = self.p.topology
        # Trees of strong edges, as well as linear time allows.
        self.rho = parent_probabilities(t.n_nodes, t.edges, interaction(self.p.pairwise))
        self.messages = Messages.start(self.p)
        self._pass_messages(*self._sweeps(REWEIGHTED))
        self._mean_field(self.x)

    def _pass_messages(self, sweeps: int, deadline: float) -> None:
        """Pass messages for the current edge probabilities; offer the bound at their point."""
        p = self.p
        changes, _ = self.messages.pass_around(self.rho, None, TOL, sweeps, deadline)
        self.budget.spend(len(changes) * sweep_seconds(self.graph.structure))
        self.x = self.messages.point(self.rho)
        self.value = p.gradient(self.x, p.coefficients(self.rho))[1]
        seconds = max(self.budget.left, 1e-3) if self.budget.is_timed else math.inf
        self.offer("trw-bp", -math.inf, certified_bound(p, self.x, self.rho, seconds))

    # ---- tighter bounds

    def tighten(self) -> None:
        """Improve the edge probabilities while that pays, then use mini-buckets, then FW."""
        if not self.budget.is_timed:
            self.budget.total = (1.0 + TIGHTEN) * self.budget.spent
        self._improve_rho()
        self._mini_buckets()
        if self.budget.is_timed and not self.is_over and self.budget.left >= WORTHWHILE:
            self._frank_wolfe()

    def _improve_rho(self) -> None:
        """Move towards the tree of largest mutual information, which lowers the bound most."""
        p = self.p
        if not p.topology.n_edges:
            return
        for update in range(UPDATES):
            if self.is_over:
                return
            used, before = self.budget.used, self.upper
            best = self.x, self.value, self.rho
            tree = p.best_tree(self.x)
            self.rho = self.rho + 2.0 / (update + SLOWER) * (tree - self.rho)
            self._pass_messages(*self._sweeps(1.0))
            if self.upper == before:
                self.x, self.value, self.rho = best
            took = self.budget.used - used
            if before - self.upper < WORTH * (self.upper - self.lower) or took > self.budget.left:
                return

    def _mini_buckets(self) -> None:
        """Use tables of growing size: mini-buckets from above, sums from below."""
        p = self.p
        if self.is_over or self.budget.left * BUCKETS < PER_FACTOR * p.structure.n_factors:
            return
        nodes = self.x[: int(p.topology.node_offsets[-1])]
        graph = p.graph(p.theta)
        moment = 0.0 if self.budget.is_timed else None
        labels = max(p.labelings or [good_labels(graph, nodes, moment)], key=graph.score)
        bounds = GrowingBounds(self.lower, self.upper)
        share = Budget(BUCKETS * self.budget.left, self.budget.is_timed)
        most = min(2.0**24, self.limits.max_memory / 64.0)
        for _ in bounds.steps(graph, nodes, labels, share, self.gap, most):
            self.offer("mini-buckets", bounds.lower, bounds.upper, "sums")
        self.budget.spend(share.spent)

    def _frank_wolfe(self) -> None:
        """Use Barrier Frank-Wolfe: a tighter polytope, one MAP call per step."""
        settings = Settings(
            "adaptive", "marginal", 10, max(0.05, self.gap / 2), True, False, 10_000,
            self.budget.left, None,
        )  # fmt: skip
        mapper = Mapper("auto", {}, self.p.structure, self.budget.left)
        run = Run(self.p, mapper, settings, clock.now(), self.rho)
        parts = Parts(run)
        parts.whole(PARTS, settings.rho_updates, settings.gap)
        found = parts.result(self.graph, "barrier-fw")
        lower, upper = found.log_z_bounds
        self.offer("barrier-fw", lower, upper, "barrier-fw")
        self.info |= {"map_calls": found.info["map_calls"], "parts": found.info["parts"]}


def _with_samples(found: MarginalResult, sampled: MarginalResult) -> MarginalResult:
    """Return the bounds of one result with the marginals and log Z of Gibbs sampling."""
    low, high = found.log_z_bounds
    more = {"marginals": "gibbs", "standard_errors": sampled.info["standard_errors"]}
    return replace(
        found, nodes=sampled.nodes, factors=sampled.factors, method="gibbs",
        log_z=min(max(sampled.log_z, low), high), info={**found.info, **more},
    )  # fmt: skip
