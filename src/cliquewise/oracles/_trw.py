"""The tree-reweighted objective of a pairwise graph, shared by several methods.

For edge probabilities ``rho`` in the spanning-tree polytope

    log Z <= max over mu of  <theta, mu> + sum_i K_i H(mu_i) + sum_e rho_e H(mu_e),
    K_i = 1 - sum of rho over the edges of i.

The bound used everywhere here needs no maximum. For *every* positive x in the local polytope

    log Z <= max over labelings y of  sum_c theta_c(y_c) - K_c log x_c(y_c),

because the difference of both sides at a distribution p is at least a mean of Kullback-Leibler
divergences between the tree distributions of p and of x. The right side is a MAP problem, so an
upper bound of its value is a certified upper bound of log Z (Appendix J of the paper).
"""

from __future__ import annotations

import inspect
import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from cliquewise._kernels import clock
from cliquewise.errors import InfeasibleError, UnsupportedError
from cliquewise.graph.evidence import INFEASIBLE
from cliquewise.graph.factor_graph import FactorGraph
from cliquewise.graph.sizes import rounding_of
from cliquewise.graph.spanning_trees import edge_probabilities, maximum_spanning_tree
from cliquewise.graph.structure import Structure
from cliquewise.oracles._pairwise import Pairwise, Topology, compile_pairwise, topology
from cliquewise.oracles.base import NO_LIMITS, Oracle
from cliquewise.oracles.batch_planner import repeated_map
from cliquewise.oracles.options import options_of
from cliquewise.oracles.registry import get
from cliquewise.oracles.results import MapResult
from cliquewise.ragged import Floats, Ints, offsets_of

#: Seconds that the search for a possible labeling has even when none are left.
MOMENT = 0.1


@dataclass
class Problem:
    """A pairwise graph in flat arrays: entries of all variables, then of all edges.

    Attributes
    ----------
    pairwise : Pairwise
    structure : Structure
        One factor per variable, then one per edge, so that a flat vector is a set of tables.
    theta : ndarray
        Log-potentials; 0 at impossible entries.
    possible : ndarray of bool
        Entries that some possible labeling has.
    inner : ndarray
        A point inside the hull of the possible labelings.
    certified : bool
        Whether the impossible entries are proved so.
    """

    pairwise: Pairwise
    structure: Structure
    theta: Floats
    possible: Any
    inner: Floats
    certified: bool
    labelings: list[Ints]

    @property
    def topology(self) -> Topology:
        """Layout of the entries."""
        return self.pairwise.topology

    @property
    def is_free(self) -> bool:
        """Whether every labeling is possible."""
        return bool(self.possible.all())

    def graph(self, tables: Floats) -> FactorGraph:
        """Return the graph with other tables; impossible entries are forbidden."""
        flat = tables if self.is_free else np.where(self.possible, tables, -np.inf)
        return FactorGraph.from_structure(self.structure, flat)

    def coefficients(self, rho: Floats) -> Floats:
        """Return the entropy coefficient of each entry; 0 at impossible entries."""
        t = self.topology
        per_node = 1.0 - np.bincount(t.edges.ravel(), np.repeat(rho, 2), minlength=t.n_nodes)
        flat = np.concatenate(
            [np.repeat(per_node, t.cards), np.repeat(rho, np.diff(t.edge_offsets))]
        )
        return flat if self.is_free else np.where(self.possible, flat, 0.0)

    def gradient(self, x: Floats, coefficients: Floats) -> tuple[Floats, float]:
        """Return the gradient at x (up to a constant per table) and the value of the objective."""
        from cliquewise._kernels.graphs.barrier_fw import gradient

        g = np.empty_like(x)
        return g, float(gradient(x, self.theta, coefficients, g))

    def rounding(self, gradient: Floats) -> float:
        """Return the rounding error of a bound from the scores of this gradient."""
        sizes = np.abs(gradient[self.possible])
        return rounding_of(self.structure, self.structure.n_factors * float(sizes.max(initial=0)))

    def information(self, x: Floats) -> Floats:
        """Return the mutual information of each edge at x."""
        from cliquewise._kernels.graphs.barrier_fw import mutual_information

        information = np.zeros(self.topology.n_edges)
        mutual_information(x, self.pairwise.arrays, information)
        return information

    def best_tree(self, x: Floats) -> Floats:
        """Return the tree of largest mutual information at x, which lowers the bound most."""
        t = self.topology
        return maximum_spanning_tree(t.n_nodes, t.edges, self.information(x))

    def anything(self) -> float:
        """Return a trivial upper bound of log Z: all labelings at the sum of the maxima."""
        flat = np.where(self.possible, self.theta, -np.inf)
        starts = self.structure.table_offsets[:-1]
        best = float(np.maximum.reduceat(flat, starts).sum()) if len(starts) else 0.0
        return best + float(np.log(self.structure.cardinalities).sum())

    def mean_field(self, nodes: Floats, sweeps: int = 30) -> float:
        """Return the mean-field lower bound of log Z; -inf if entries are forbidden."""
        from cliquewise._kernels.graphs.barrier_fw import mean_field

        if not self.is_free:
            return -math.inf
        return float(mean_field(nodes.copy(), sweeps, self.pairwise.arrays))


@dataclass
class Tally:
    """Number and time of the calls of a MAP method."""

    calls: int = 0
    seconds: float = 0.0


class Mapper:
    """A MAP method with its options; counts its calls and their time."""

    def __init__(
        self,
        method: str,
        options: dict[str, Any],
        structure: Structure,
        seconds: float = math.inf,
        parent: Mapper | None = None,
    ):
        self.method = method
        self.options = dict(options)
        self.tally: Tally = parent.tally if parent else Tally()
        if parent is not None and parent.name != "portfolio":
            self._oracle: Oracle = parent._oracle  # what is quick on a graph is so on its parts
        else:
            self._oracle = self._find(structure, seconds)
        known = inspect.signature(self._oracle.map).parameters
        self._takes_seconds = "seconds" in known and "seconds" not in self.options
        self._takes_init = "init" in known and "init" not in self.options
        default = known["seconds"].default if self._takes_seconds else None
        self._most = math.inf if default is None else float(default)
        if self._oracle.name == "portfolio":
            # One of hundreds of calls that differ little: the last answer is a good start.
            self.options = {"max_iterations": 50, "rounds": 1, **self.options}

    def _find(self, structure: Structure, seconds: float) -> Oracle:
        """Choose the oracle of all calls by the structure, since the tables change."""
        if self.method != "auto":
            oracle = get(self.method)
            if "map" not in oracle.provides:
                raise UnsupportedError(f"method {self.method!r} does not provide map")
            return oracle
        return repeated_map(structure, seconds) or get("portfolio")

    def on(self, structure: Structure, seconds: float = math.inf) -> Mapper:
        """Return a mapper for a part of the graph; its calls are counted together."""
        return Mapper(self.method, self.options, structure, seconds, self)

    def __call__(
        self, graph: FactorGraph, seconds: float = math.inf, init: Ints | None = None
    ) -> MapResult:
        if self.tally.calls == 0 and self.method != "auto":
            self._check(graph)
        options = dict(self.options)
        if self._takes_seconds and min(seconds, self._most) < math.inf:
            options["seconds"] = max(0.0, min(seconds, self._most))
        if self._takes_init and init is not None:
            options["init"] = init
        started = clock.now()
        answer = self._oracle.map(graph, **options)
        self.tally.seconds += clock.now() - started
        self.tally.calls += 1
        return answer

    def _check(self, graph: FactorGraph) -> None:
        """Raise an error if the named method does not apply, or has no such option."""
        known = options_of(type(self._oracle), "map")
        unknown = sorted(set(self.options) - known)
        if unknown:
            raise UnsupportedError(f"method {self.name!r} has no option {unknown[0]!r}")
        verdict = self._oracle.consider(graph, "map", NO_LIMITS)
        if not verdict.can_answer:
            raise UnsupportedError(f"method {self.name!r} {verdict.reason}")

    @property
    def name(self) -> str:
        """Name of the MAP method."""
        return self._oracle.name


def problem(
    graph: FactorGraph, mapper_of: Any, seconds: float = math.inf, known: Sequence[Ints] = ()
) -> Problem:
    """Compile a graph; where entries are forbidden, find which of the others are possible.

    Parameters
    ----------
    graph : FactorGraph
        Pairwise, without evidence.
    mapper_of : callable
        ``mapper_of(structure)`` gives the Mapper that finds possible labelings.
    seconds : float
    known : sequence of ndarray
        Possible labelings.
    """
    pairwise, merged = compile_pairwise(graph), graph.structure.once(_merged)
    t = pairwise.topology
    theta = np.concatenate([pairwise.nodes, pairwise.tables])
    finite = theta > -np.inf
    if finite.all():
        return Problem(pairwise, merged, theta, finite, uniform(t), True, list(known))
    possible, inner, certified, rows = _support(
        t, merged, finite, mapper_of(merged), seconds, known
    )
    return Problem(
        pairwise, merged, np.where(possible, theta, 0.0), possible, inner, certified, rows
    )


def _merged(structure: Structure) -> Structure:
    """One factor per variable, then one per edge."""
    t = topology(structure)
    scopes = np.concatenate([np.arange(t.n_nodes), t.edges.ravel()])
    orders = np.repeat([1, 2], [t.n_nodes, t.n_edges])
    return Structure.from_arrays(t.cards, scopes, offsets_of(orders))


def uniform(t: Topology) -> Floats:
    """Return the marginals of the uniform distribution over all labelings."""
    sizes = np.concatenate([t.cards, np.diff(t.edge_offsets)])
    return np.repeat(1.0 / sizes, sizes)


def entries_of(t: Topology, labels: Ints) -> Ints:
    """Return the entries of the unary and edge tables that a labeling selects."""
    i, j = t.edges[:, 0], t.edges[:, 1]
    pairs = t.node_offsets[-1] + t.edge_offsets[:-1] + labels[i] * t.cards[j] + labels[j]
    return np.concatenate([t.node_offsets[:-1] + labels, pairs])


def _support(
    t: Topology,
    structure: Structure,
    finite: Any,
    mapper: Mapper,
    seconds: float,
    known: Sequence[Ints] = (),
) -> tuple[Any, Floats, bool, list[Ints]]:
    """Find the entries of possible labelings, and the mean of labelings that cover them.

    Each MAP call rewards the entries not seen yet; when it earns nothing, none is left. Where
    the time ends before, every entry that is not forbidden counts: bounds hold then, too.
    """
    deadline = clock.now() + seconds
    seen = np.zeros(len(finite), dtype=bool)
    total = np.zeros(len(finite))
    rows: list[Ints] = []
    for row in known:
        entries = entries_of(t, row)
        seen[entries] = True
        total[entries] += 1.0
        rows.append(row)
    while True:
        reward = np.where(finite, np.where(seen, 0.0, 1.0), -np.inf)
        left = max(MOMENT, deadline - clock.now())
        answer = mapper(FactorGraph.from_structure(structure, reward), left)
        if answer.score == -math.inf:
            if answer.exact:
                raise InfeasibleError(INFEASIBLE)
            raise UnsupportedError(
                f"{mapper.name} found no labeling of positive probability; name an exact "
                "map_method (junction-tree, toulbar2), or replace -inf by large negative numbers"
            )
        entries = entries_of(t, answer.labels)
        if seen[entries].all():
            break
        seen[entries] = True
        total[entries] += 1.0
        rows.append(answer.labels)
        if clock.now() >= deadline:
            return finite, uniform(t), True, rows
    proved = answer.upper_bound < 0.5
    return seen, total / len(rows), proved, rows


def interaction(pairwise: Pairwise) -> Floats:
    """Return the strength of each edge: |t00 + t11 - t01 - t10| for binary variables.

    In general the sum of the absolute entries of the table after its row and column means are
    taken away.
    """
    t = pairwise.topology
    sizes = t.cards[t.edges]
    finite = pairwise.tables[np.isfinite(pairwise.tables)]
    low = float(finite.min(initial=0.0)) - 10.0
    tables = np.maximum(pairwise.tables, low)
    out = np.zeros(t.n_edges)
    for a, b in np.unique(sizes, axis=0) if t.n_edges else ():
        mine = np.flatnonzero((sizes == (a, b)).all(axis=1))
        block = tables[t.edge_offsets[mine][:, None] + np.arange(a * b)].reshape(-1, a, b)
        block = block - block.mean(axis=1, keepdims=True)
        block -= block.mean(axis=2, keepdims=True)
        out[mine] = np.abs(block).sum(axis=(1, 2))
    return out


def start_rho(pairwise: Pairwise, kind: str = "weighted", random_state: Any = 0) -> Floats:
    """Return edge probabilities of random spanning trees, weighted or uniform."""
    t = pairwise.topology
    weights = interaction(pairwise) if kind == "weighted" else None
    return edge_probabilities(t.n_nodes, t.edges, weights, random_state)


def log_sum_of(scores: list[float]) -> float:
    """Return log sum exp; of the scores of different labelings, a lower bound of log Z."""
    values = np.array(scores)
    values = values[values > -np.inf]
    if not len(values):
        return -math.inf
    top = float(values.max())
    if top == math.inf:
        return top
    return top + math.log(float(np.exp(values - top).sum()))
