"""One run of Barrier Frank-Wolfe: the loops of Algorithm 2 and the steps inside them."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from cliquewise._kernels import clock
from cliquewise.errors import UnsupportedError
from cliquewise.graph.factor_graph import FactorGraph
from cliquewise.oracles._trw import Mapper, Problem, entries_of, log_sum_of
from cliquewise.oracles.icm import climb
from cliquewise.oracles.milp import solve_relaxation
from cliquewise.oracles.mini_buckets import FIRST, elimination_order, sum_around
from cliquewise.ragged import Floats, Ints, first_best
from cliquewise.trace import Trace

#: The contraction at the start (the authors'; the proof allows 1/4).
FIRST_DELTA = 0.05
#: A gradient is taken at a point with at least this part of the inner point.
INSIDE = 1e-9
#: Corrections after each MAP call, and their tolerance before and after the gap is below 1.
CORRECTIONS, LOOSE, TIGHT = 100, 0.5, 0.05
#: Steps of a local search.
LOCAL_STEPS = 10
#: Between two updates of rho with MAP calls, it moves so often towards the best tree with the
#: labelings met so far alone. It is settled where that lowers the objective by less than this part
#: of the gap, and a move ends them that changes it by less than that.
MOVES, WORTH, STILL = 10, 0.2, 0.02
#: All maximizations but the last end at this gap.
ROUGH = 1.0

COLUMNS = (
    "seconds", "epochs", "oracle_calls", "primal", "dual", "gap", "upper", "lower",
    "certified", "delta", "atoms", "map_seconds",
)  # fmt: skip


@dataclass(frozen=True)
class Settings:
    """Options of one run; see :meth:`BarrierFW.marginals`."""

    delta: float | str
    polytope: str
    rho_updates: int
    gap: float
    correction: bool
    local_search: bool
    max_calls: int
    seconds: float
    callback: Callable[[dict[str, float]], Any] | None

    def __post_init__(self) -> None:
        d = self.delta
        if d != "adaptive" and not (isinstance(d, (int, float)) and 0.0 <= d < 1.0):
            raise UnsupportedError(
                f"delta = {d!r}; it must be 'adaptive', 0, or a contraction below 1 such as 1e-4"
            )
        if self.polytope not in ("marginal", "local"):
            raise UnsupportedError(f"polytope = {self.polytope!r}; it is 'marginal' or 'local'")
        for name in ("gap", "seconds", "rho_updates", "max_calls"):
            if not getattr(self, name) >= 0:
                raise UnsupportedError(f"{name} = {getattr(self, name)}; it must not be negative")


@dataclass
class Run:
    """State of one maximization: a mixture of the visited vertices and the inner point."""

    p: Problem
    mapper: Mapper
    settings: Settings
    started: float
    rho: Floats
    trace: Trace = field(default_factory=lambda: Trace(COLUMNS))
    #: The bound of the whole graph, from that of this part of it.
    overall: Callable[[float], float] = lambda bound: bound
    rho_certified: bool = True
    stopped: str = "gap"
    is_settled: bool = False  # rho no longer pays
    is_reached: bool = False  # the last gap asked for
    moves: int = 0
    gap: float = math.inf
    primal: float = math.inf
    enough: float = -math.inf  # a bound below this is good enough
    last: tuple[float, float] = (0.0, 0.0)

    def __post_init__(self) -> None:
        n, size = self.p.topology.n_nodes, len(self.p.theta)
        self.is_local = self.settings.polytope == "local"
        self.corrections = CORRECTIONS if self.settings.correction else 0
        capacity = 32
        self.labels = np.zeros((0 if self.is_local else capacity, n), dtype=np.int32)
        self.dense = np.zeros((capacity if self.is_local else 0, size))
        self.weights = np.zeros(capacity + 1)
        self.weights[-1] = 1.0
        self.n_atoms = 0
        self.known: dict[bytes, int] = {}
        self.scores: list[float] = []
        self.x = self.p.inner.copy()
        self.delta = (
            FIRST_DELTA if self.settings.delta == "adaptive" else float(self.settings.delta)
        )
        self.upper = math.inf
        self.lower = -math.inf
        self.correction_gap = math.inf
        for row in self.p.labelings:
            self.visit(row)

    # ---- vertices

    def visit(self, labels: Ints) -> int:
        """Return the index of a labeling among the visited ones, after adding a new one."""
        row = labels.astype(np.int32)
        key = row.tobytes()
        if key in self.known:
            return self.known[key]
        entries = entries_of(self.p.topology, labels)
        self.scores.append(float(self.p.theta[entries].sum()))
        self.lower = max(self.lower, self.scores[-1])
        if self.is_local:
            self.known[key] = -1
            return -1
        self._grow()
        self.labels[self.n_atoms] = row
        self.known[key] = self.n_atoms
        self.n_atoms += 1
        return self.n_atoms - 1

    def _grow(self) -> None:
        if self.n_atoms + 1 < len(self.weights):
            return
        more = np.zeros(len(self.weights) - 1)
        self.weights = np.concatenate([self.weights[:-1], more, self.weights[-1:]])
        if self.is_local:
            self.dense = np.concatenate([self.dense, np.zeros_like(self.dense)])
        else:
            self.labels = np.concatenate([self.labels, np.zeros_like(self.labels)])

    # ---- the three loops

    def whole(self, updates: int, gap: float, part: float = 1.0) -> None:
        """Alternate between improving x and rho; at the end, improve x to this gap.

        ``part`` is the part of the calls and of the time left that it may take.
        """
        calls, seconds = self.left
        self.last = calls * (1.0 - part), seconds * (1.0 - part)
        for left in range(updates, -1, -1):
            self.coef = self.p.coefficients(self.rho)
            if self.n_atoms:
                self.improve(-1, self.corrections)
            is_last = left == 0 or self.is_settled or not self.p.topology.n_edges
            self.maximize(0 if is_last else left, gap if is_last else max(gap, ROUGH))
            if self.stopped != "gap" or is_last or self.upper < self.enough:
                return
            self.improve_rho()

    def improve_rho(self) -> None:
        """Move rho towards trees of large mutual information, using the visited labelings."""
        first = value = self.p.gradient(self.x, self.coef)[1]
        for _ in range(MOVES if self.corrections else 1):
            self.rho = self.rho + 2.0 / (self.moves + 3.0) * (self.p.best_tree(self.x) - self.rho)
            self.moves += 1
            self.coef = self.p.coefficients(self.rho)
            self.improve(-1, self.corrections)
            last, value = value, self.p.gradient(self.x, self.coef)[1]
            if abs(last - value) < STILL * self.settings.gap or self.left[1] <= 0.0:
                break
        self.is_settled = self.corrections > 0 and first - value < WORTH * self.settings.gap

    def maximize(self, left: int, goal: float) -> None:
        """Frank-Wolfe over the polytope until the gap is at most ``goal``; ``left`` more follow."""
        is_spent = self._share(left)
        while True:
            if self._is_over():
                return
            g, trw, new, value, bound = self.ask()
            self.gap = value - trw
            self.primal = trw
            self.upper = min(self.upper, bound)
            self._record(bound)
            self.is_reached = self.gap <= max(goal, 1e-12 * abs(trw)) or self.upper < self.enough
            if self.is_reached or self.stopped == "callback" or self._is_over() or is_spent():
                return
            if self.settings.delta == "adaptive":
                # Without corrections, the gap of Frank-Wolfe itself counts (Algorithm 1).
                known = self.correction_gap if math.isfinite(self.correction_gap) else 0.0
                self._shrink(max(self.gap, known), g, trw)
            before = self.weights.copy()
            step = self.improve(new, self.corrections)
            if self.settings.local_search and not self.is_local:
                self.search(new)
            if step == 0.0 and np.array_equal(before, self.weights):
                return  # neither a step nor a correction moves x any more

    @property
    def tolerance(self) -> float:
        """Tolerance of the corrections; finer if the requested gap is finer than in the paper."""
        base = TIGHT if self.gap < 1.0 else LOOSE
        return base * min(1.0, self.settings.gap / 0.5)

    @property
    def left(self) -> tuple[float, float]:
        """Remaining calls and seconds."""
        now = clock.now() - self.started
        return self.settings.max_calls - self.mapper.tally.calls, self.settings.seconds - now

    def _share(self, left: int) -> Callable[[], bool]:
        """Return a predicate: whether this rho has used its share of the calls or the time."""
        part = 1.0 if left == 0 else max(0.0 if self.moves else 0.5, 1.0 / (left + 1))
        until = [last + (1.0 - part) * (now - last)
                 for now, last in zip(self.left, self.last, strict=True)]  # fmt: skip
        return lambda: any(now <= end for now, end in zip(self.left, until, strict=True))

    def _is_over(self) -> bool:
        calls, seconds = self.left
        if calls <= 0 or seconds <= 0.0:
            self.stopped = "max_calls" if calls <= 0 else "seconds"
        return self.stopped != "gap"

    def _record(self, bound: float) -> None:
        upper = self.overall(bound)
        row = {
            "seconds": clock.now() - self.started,
            "epochs": float(self.moves),
            "oracle_calls": float(self.mapper.tally.calls),
            "primal": self.primal,
            "dual": self.overall(self.upper),
            "gap": self.gap,
            "upper": upper,
            "lower": self.lower,
            "certified": float(self.p.certified and self.rho_certified and upper < math.inf),
            "delta": self.delta,
            "atoms": float(self.n_atoms),
            "map_seconds": self.mapper.tally.seconds,
        }
        self.trace.append(**row)
        if self.settings.callback is not None and self.settings.callback(row):
            self.stopped = "callback"

    # ---- steps

    def ask(self) -> tuple[Floats, float, int, float, float]:
        """Return the gradient, the objective, and the MAP answer: vertex, value, bound.

        The linearization at any inner point bounds the objective everywhere, so where x lies
        too close to the boundary a point a little inside takes its place.
        """
        from cliquewise._kernels.graphs.barrier_fw import scores

        x, inside = self.x, float(self.weights[-1])
        if inside < INSIDE:
            x = (1.0 - INSIDE) * x + INSIDE * self.p.inner
        g, trw = self.p.gradient(x, self.coef)
        left = self.settings.seconds - (clock.now() - self.started)
        graph = self.p.graph(g)
        if self.is_local:
            return g, trw, *self._relax(graph, g)
        init = None
        if self.n_atoms:
            value = np.empty(self.n_atoms)
            scores(g, value, self.hull, self.p.pairwise.arrays)
            init = self.labels[int(np.argmax(value))].astype(np.int64)
        answer = self.mapper(graph, max(left, 0.0), init)
        new = self.visit(answer.labels)
        return g, trw, new, answer.score, answer.upper_bound + self.p.rounding(g)

    def _relax(self, graph: FactorGraph, g: Floats) -> tuple[int, float, float]:
        from cliquewise._kernels.graphs.trw_bp import repair

        started = clock.now()
        answer = solve_relaxation(graph, math.inf)
        assert answer is not None
        self.mapper.tally.calls += 1
        self.mapper.tally.seconds += clock.now() - started
        point = answer.columns.copy()
        repair(point, self.p.pairwise.arrays)
        point[~self.p.possible] = 0.0
        labels = first_best(point[: self.p.topology.node_offsets[-1]],
                            self.p.topology.node_offsets)  # fmt: skip
        if self.p.is_free:
            self.visit(climb(self.p.graph(self.p.theta), labels)[0])
        self._grow()
        self.dense[self.n_atoms] = point
        self.n_atoms += 1
        return self.n_atoms - 1, float(g @ point), answer.bound + self.p.rounding(g)

    def _shrink(self, gap: float, g: Floats, trw: float) -> None:
        """Algorithm 1: keep the gap over the contraction at least half of the true one."""
        uniform_gap = float(g @ self.p.inner) - trw
        if uniform_gap < 0.0 < gap:
            proposal = gap / (-4.0 * uniform_gap)
            if proposal < self.delta:
                self.delta = min(proposal, self.delta / 2.0)

    @property
    def hull(self) -> Any:
        """The visited vertices and the inner point, as arrays for the kernels."""
        from cliquewise._kernels.graphs.barrier_fw import Hull

        return Hull(self.labels, self.dense, self.n_atoms, self.p.inner)

    def improve(self, new: int, corrections: int) -> float:
        """Step to a vertex, then correct over all of them (Algorithms 3, 5); return the step."""
        from cliquewise._kernels.graphs.barrier_fw import Objective, step_and_correct

        gap, _, step = step_and_correct(
            new, self.delta, corrections, self.tolerance, self.x, self.weights,
            Objective(self.p.theta, self.coef), self.hull, self.p.pairwise.arrays,
        )  # fmt: skip
        if corrections:
            self.correction_gap = float(gap)
        return float(step)

    def search(self, new: int) -> None:
        """Make a few steps with vertices from iterated conditional modes (Algorithm 6)."""
        labels = self.labels[new].astype(np.int64)
        for _ in range(LOCAL_STEPS):
            labels, _ = climb(self.p.graph(self.p.gradient(self.x, self.coef)[0]), labels)
            if not self.p.possible[entries_of(self.p.topology, labels)].all():
                return
            if self.improve(self.visit(labels), 0) == 0.0:
                return

    # ---- the answer

    @property
    def nodes(self) -> Floats:
        """Marginals of the variables."""
        return self.x[: int(self.p.topology.node_offsets[-1])]

    def sum_below(self) -> float:
        """Return the best lower bound of log Z: sums over or around labelings, or mean field."""
        p, best = self.p, max(log_sum_of(self.scores), self.p.mean_field(self.nodes))
        if not (p.is_free or self.is_local) and self.n_atoms:
            labels = self.labels[int(np.argmax(self.scores[: self.n_atoms]))].astype(np.int64)
            order = elimination_order(p.structure)
            best = max(best, sum_around(p.graph(p.theta), order, FIRST, self.nodes, labels))
        return min(best, self.upper)

    def bound_without_calls(self) -> None:
        """Set a bound even without a MAP call: each table at its largest entry."""
        if self.upper < math.inf:
            return
        g, _ = self.p.gradient(self.p.inner, self.p.coefficients(self.rho))
        g[~self.p.possible] = -np.inf
        starts = self.p.structure.table_offsets[:-1]
        upper = float(np.maximum.reduceat(g, starts).sum()) if len(starts) else 0.0
        self.upper = upper + self.p.rounding(g)
