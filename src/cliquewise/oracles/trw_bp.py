"""Tree-reweighted belief propagation, and ordinary loopy belief propagation as rho = 1."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np

from cliquewise._kernels import clock
from cliquewise.errors import InfeasibleError, UnsupportedError
from cliquewise.graph.evidence import INFEASIBLE
from cliquewise.graph.factor_graph import FactorGraph
from cliquewise.graph.spanning_trees import DENSE, in_spanning_tree_polytope
from cliquewise.graph.structure import Structure
from cliquewise.oracles._pairwise import Pairwise, require_pairwise
from cliquewise.oracles._trw import Mapper, Problem, problem, start_rho, uniform
from cliquewise.oracles.base import Limits, Oracle, Question, Verdict
from cliquewise.oracles.icm import climb
from cliquewise.oracles.mini_buckets import FIRST, elimination_order, sum_around
from cliquewise.oracles.registry import register
from cliquewise.oracles.results import MarginalResult
from cliquewise.oracles.trw_s import run_trw_s
from cliquewise.ragged import Floats, first_best, offsets_of
from cliquewise.trace import Trace

#: Part of the uniform point in the point at which the bound is taken, so that it is inside.
INSIDE = 1e-12
#: Sweeps between two looks at the clock.
AT_ONCE, AT_ONCE_ENTRIES = 20, 1_000_000
#: Messages are damped where twenty sweeps do not shrink their changes to this part.
SHRINKS = 0.5
#: Iterations of trw-s that bound the residual.
BOUND_ITERATIONS = 30


@dataclass
class Messages:
    """Logarithms of the messages, to the smaller and to the larger end of each edge."""

    p: Problem
    graph: Any  # as the kernels take it, with -inf at all impossible entries
    values: Any  # the kernels' tuple

    @classmethod
    def start(cls, p: Problem) -> Messages:
        """Return uniform messages."""
        from cliquewise._kernels.graphs.trw_bp import Messages as Values

        t = p.topology
        low = offsets_of(t.cards[t.edges[:, 0]])
        high = offsets_of(t.cards[t.edges[:, 1]])
        theta = np.where(p.possible, p.theta, -np.inf)
        n_states = int(t.node_offsets[-1])
        graph = Pairwise(t, theta[:n_states], theta[n_states:]).arrays
        zeros = np.zeros(int(low[-1])), np.zeros(int(high[-1]))
        return cls(p, graph, Values(*zeros, low, high, graph.nodes.copy()))

    def pass_around(
        self, rho: Floats, damping: float | None, tol: float, most: int, deadline: float
    ) -> tuple[Floats, bool]:
        """Sweep until convergence; return the largest change per sweep, and if it converged.

        Where no ``damping`` is given, it starts when changes no longer shrink without.
        """
        from cliquewise._kernels.graphs.trw_bp import refresh, sweep

        changes = np.empty(max(most, 0))
        done, keep = 0, damping or 0.0
        at_once = int(np.clip(AT_ONCE_ENTRIES // (len(self.p.theta) + 1), 1, AT_ONCE))
        while done < most and clock.now() < deadline:
            refresh(rho, self.graph, self.values)
            count = min(at_once, most - done)
            done += sweep(count, tol, rho, keep, self.graph, self.values, changes[done:])
            if changes[done - 1] <= tol:
                return changes[:done], True
            if damping is None and done > AT_ONCE:
                slow = changes[done - 1] > SHRINKS * changes[done - 1 - AT_ONCE]
                keep = min(0.9, 0.5 + keep / 2.0) if slow and keep < 0.9 else keep
        return changes[:done], not self.p.topology.n_edges

    def point(self, rho: Floats) -> Floats:
        """Return consistent pseudo-marginals."""
        from cliquewise._kernels.graphs.trw_bp import beliefs, refresh, repair

        x = np.empty(len(self.p.theta))
        refresh(rho, self.graph, self.values)
        if not beliefs(rho, self.graph, self.values, x):
            raise InfeasibleError(INFEASIBLE)
        repair(x, self.graph)
        return x


@register
class TRWBP(Oracle):
    """Tree-reweighted belief propagation: quick marginals and an upper bound of log Z."""

    name = "trw-bp"
    provides: ClassVar[frozenset[Question]] = frozenset({"marginals"})
    exact = False
    rank = 210

    def consider(self, graph: FactorGraph, question: Question, limits: Limits) -> Verdict:
        """Add up the sweeps over all edges and the dense inverse for the edge probabilities."""
        s = graph.structure
        if rejection := require_pairwise(s, question):
            return rejection
        n = min(s.n_variables, DENSE)
        seconds = 50 * sweep_seconds(s) + 5e-11 * float(n) ** 3
        return Verdict.accept(1e-3 + seconds, 40.0 * s.table_offsets[-1] + 16.0 * n * n)

    def marginals(
        self,
        graph: FactorGraph,
        rho: Any = "uniform",
        rho_updates: int = 10,
        damping: float | None = None,
        tol: float = 1e-6,
        max_iterations: int = 1000,
        seconds: float | None = None,
        random_state: Any = 0,
    ) -> MarginalResult:
        """Pass messages until they no longer change.

        Parameters
        ----------
        graph : FactorGraph
            Pairwise; any cardinalities.
        rho : {"uniform", "weighted", "optimized"}, array or 1, default="uniform"
            Edge appearance probabilities: those of uniform spanning trees, of trees weighted by
            interaction, moved ``rho_updates`` times towards the tree of largest mutual
            information, or one positive number per edge of ``graph.structure.edges``.
            ``1`` is ordinary loopy belief propagation.
        rho_updates : int, default=10
            For ``rho="optimized"``.
        damping : float, optional
            Part of the old message that is kept, in the log domain. By default none, until the
            changes no longer shrink without.
        tol : float, default=1e-6
            Converged when no log message changes by more.
        max_iterations : int, default=1000
            Sweeps over all edges, there and back, for each rho.
        seconds : float, optional
            Time limit.
        random_state : int or Generator, default=0

        Returns
        -------
        MarginalResult
            ``log_z`` is the tree-reweighted (with ``rho=1`` the Bethe) value. The upper bound
            is certified whether or not the messages converged: it is taken at the consistent
            point nearest to the beliefs, and meets the tree-reweighted value where they
            converged. ``info`` has ``converged``, ``iterations``, ``change`` and ``rho``.

        Examples
        --------
        >>> import numpy as np
        >>> from cliquewise.graph.builders import complete
        >>> g = complete(np.zeros((3, 2)), [[1.0, 0.0], [0.0, 1.0]])
        >>> result = g.marginals("trw-bp")
        >>> result.info["converged"], bool(result.log_z >= g.marginals().log_z)
        (True, True)
        """
        if damping is not None and not 0.0 <= damping < 1.0:
            raise UnsupportedError(f"damping = {damping}; it must be at least 0 and below 1")
        started = clock.now()
        limit = math.inf if seconds is None else seconds
        deadline = started + limit
        p = problem(graph, lambda s: Mapper("auto", {}, s), limit)
        updates = rho_updates if isinstance(rho, str) and rho == "optimized" else 0
        current, in_polytope = _first_rho(p, rho, random_state)
        messages = Messages.start(p)
        trace = Trace(("seconds", "epochs", "oracle_calls", "primal", "dual", "gap", "upper"))
        upper, x = math.inf, p.inner
        converged, change, sweeps = False, math.inf, 0
        for update in range(updates + 1):
            changes, converged = messages.pass_around(
                current, damping, tol, max_iterations, deadline
            )
            sweeps += len(changes)
            change = float(changes[-1]) if len(changes) else change
            x = messages.point(current)
            primal = p.gradient(x, p.coefficients(current))[1]
            bound = certified_bound(p, x, current if in_polytope else start_rho(p.pairwise))
            upper = min(upper, bound)
            now = clock.now()
            trace.append(
                seconds=now - started, epochs=update, oracle_calls=0.0,
                primal=primal, dual=upper, gap=bound - primal, upper=bound,
            )  # fmt: skip
            if update == updates or now >= deadline or not p.topology.n_edges:
                break
            current = current + 2.0 / (update + 3.0) * (p.best_tree(x) - current)
        lower = min(lower_bound(p, x), upper)
        info = {"converged": converged, "iterations": sweeps, "change": change, "rho": current}
        log_z = min(max(primal, lower), upper) if in_polytope else primal
        t = p.topology
        return MarginalResult.from_flat(
            graph, x[: int(t.node_offsets[-1])].copy(), x[t.targets], log_z, self.name,
            (lower, upper), bounds_certified=(True, p.certified), trace=trace, info=info,
        )  # fmt: skip


def sweep_seconds(structure: Structure) -> float:
    """Return the estimated time of one sweep."""
    return 1e-9 + 4e-7 * len(structure.edges) + 6e-8 * float(structure.table_offsets[-1])


def _first_rho(p: Problem, rho: Any, random_state: Any) -> tuple[Floats, bool]:
    """Return the first edge probabilities, and whether they are in the tree polytope."""
    t = p.topology
    if isinstance(rho, str):
        if rho not in ("uniform", "weighted", "optimized"):
            raise UnsupportedError(
                f"rho = {rho!r}; it is 'uniform', 'weighted', 'optimized', an array or 1"
            )
        kind = "uniform" if rho == "uniform" else "weighted"
        return start_rho(p.pairwise, kind, random_state), True
    given = np.asarray(rho, dtype=np.float64)
    full = np.full(t.n_edges, float(given)) if given.ndim == 0 else given
    if full.shape != (t.n_edges,) or not np.all((full > 0.0) & (full <= 1.0)):
        raise UnsupportedError(
            f"rho needs a number above 0 and at most 1 for each of the {t.n_edges} edges "
            "(graph.structure.edges)"
        )
    return full, in_spanning_tree_polytope(t.n_nodes, t.edges, full)


def certified_bound(p: Problem, x: Floats, rho: Floats, seconds: float = math.inf) -> float:
    """Return an upper bound of log Z from any point of the local polytope.

    The residual theta - K log x is constant over all labelings where the messages converged,
    so that a few iterations of trw-s bound its maximum tightly.
    """
    t = p.topology
    g, _ = p.gradient((1.0 - INSIDE) * x + INSIDE * uniform(t), p.coefficients(rho))
    g[~p.possible] = -np.inf
    n_states = int(t.node_offsets[-1])
    residual = Pairwise(t, g[:n_states].copy(), g[n_states:].copy())
    run = run_trw_s(residual, BOUND_ITERATIONS, seconds)
    return run.bound + p.rounding(g)


def lower_bound(p: Problem, x: Floats, sweeps: int = 30) -> float:
    """Return the best lower bound from mean field, or from sums around a good labeling."""
    t = p.topology
    n_states = int(t.node_offsets[-1])
    graph = p.graph(p.theta)
    labels, _ = climb(graph, first_best(x[:n_states], t.node_offsets), sweeps)
    best = max((labels, *p.labelings), key=graph.score)
    if p.is_free:
        return max(p.mean_field(x[:n_states], sweeps), float(graph.score(best)))
    return sum_around(graph, elimination_order(p.structure), FIRST, x[:n_states], best)
