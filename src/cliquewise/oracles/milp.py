"""Integer programming over the local polytope, and its linear relaxation, by HiGHS."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
from scipy.sparse import csr_array

from cliquewise._kernels import clock
from cliquewise.errors import InfeasibleError
from cliquewise.graph.evidence import INFEASIBLE
from cliquewise.graph.factor_graph import FactorGraph
from cliquewise.graph.structure import Structure
from cliquewise.oracles._pairwise import table_bound
from cliquewise.oracles.base import OFTEN_PROVED, Limits, Oracle, Question, Verdict
from cliquewise.oracles.icm import climb, unary_labels
from cliquewise.oracles.registry import register
from cliquewise.oracles.results import MapResult, map_result, tolerance
from cliquewise.ragged import Floats, Ints, first_best

#: More columns (states and entries of larger tables) than this are refused.
MAX_COLUMNS = 3_000_000
#: Nodes of branch and cut without a time limit.
MAX_NODES = 10_000
#: The objective is scaled to this size, so that HiGHS's absolute tolerance of 1e-6 is small.
SIZE = 1e4


@dataclass(frozen=True)
class Polytope:
    """The local polytope of a structure: ``matrix @ mu = right`` and ``mu >= 0``.

    Columns are the states of all variables, then the entries of the tables of two or more
    variables. ``columns`` says which column each table entry is (unary ones share those of
    the states).
    """

    matrix: csr_array
    right: Floats
    columns: Ints
    n_states: int

    def objective(self, graph: FactorGraph) -> Floats:
        """Log-potentials per column; -inf where a table forbids."""
        return np.bincount(
            self.columns, weights=graph.tables, minlength=self.matrix.shape[1]
        ).astype(np.float64, copy=False)


@dataclass(frozen=True)
class Relaxation:
    """An optimum of the linear program, and a bound that is valid despite its tolerances."""

    columns: Floats
    value: float
    bound: float


@register
class MILP(Oracle):
    """Integer program over the local polytope: exact on any graph, given the time."""

    name = "milp"
    provides: ClassVar[frozenset[Question]] = frozenset({"map"})
    exact = False
    guarantee = OFTEN_PROVED
    rank = 70

    def consider(self, graph: FactorGraph, question: Question, limits: Limits) -> Verdict:
        """Reject programs with millions of columns."""
        s = graph.structure
        columns = int(s.node_offsets[-1] + s.table_offsets[-1])
        if columns > MAX_COLUMNS:
            return Verdict.reject(
                f"takes at most {MAX_COLUMNS:.2g} columns, and this graph needs {columns:.3g} "
                "(trw-s, portfolio and icm are linear in the size)"
            )
        return Verdict.accept(math.inf, 16.0 * columns)

    def map(
        self,
        graph: FactorGraph,
        seconds: float | None = None,
        relaxed: bool = False,
        nodes: int | None = None,
    ) -> MapResult:
        """Branch and cut, or only the linear relaxation.

        Parameters
        ----------
        graph : FactorGraph
        seconds : float, optional
            Time limit.
        relaxed : bool, default=False
            Solve the linear relaxation, round it, and climb from there. Its value is the
            upper bound.
        nodes : int, optional
            Limit of the nodes of branch and cut; 10,000 without a time limit.

        Examples
        --------
        >>> g = FactorGraph([2, 2], [((0, 1), [[0.0, 1.0], [2.0, 0.0]])])
        >>> result = g.map("milp")
        >>> result.labels, result.exact
        (array([1, 0]), True)
        """
        started = clock.now()
        if nodes is None and seconds is None:
            nodes = MAX_NODES
        seconds = math.inf if seconds is None else seconds
        best = table_bound(graph)  # raises where a table forbids everything
        if not graph.n_variables or seconds <= 0:
            columns, bound, proved = None, best, graph.n_variables == 0
        elif relaxed:
            relaxation = solve_relaxation(graph, seconds)
            columns = None if relaxation is None else relaxation.columns
            bound, proved = math.inf if relaxation is None else relaxation.bound, False
        else:
            columns, bound, proved = _branch_and_cut(graph, seconds, nodes)
        labels = (
            unary_labels(graph)
            if columns is None
            else first_best(columns[: int(graph.structure.node_offsets[-1])],
                            graph.structure.node_offsets)
        )  # fmt: skip
        if not proved:
            labels, _ = climb(graph, labels)
        score = float(graph.score(labels))
        bound = max(min(bound, best), score)
        proved = proved and score > -np.inf
        exact = proved or bound - score <= tolerance(score, bound)
        info = {"seconds": clock.now() - started, "relaxed": relaxed}
        return map_result(graph, labels, bound, self.name, info, exact)


def polytope(structure: Structure) -> Polytope:
    """Return the constraints of the local polytope, built once per structure.

    Examples
    --------
    >>> polytope(Structure([2, 3], [(0, 1)])).matrix.shape
    (7, 11)
    """
    return structure.once(_build)


def local_polytope_lp(graph: FactorGraph) -> tuple[Floats, Floats, float]:
    """Maximize the score over the local polytope.

    Parameters
    ----------
    graph : FactorGraph
        The constraints are kept with its structure: new numbers need no new matrix.

    Returns
    -------
    nodes : ndarray
        Pseudo-marginals of the variables, flat as ``structure.node_offsets``.
    factors : ndarray
        Pseudo-marginals of the factors, flat as ``structure.table_offsets``.
    value : float
        The maximum, which no labeling exceeds.

    Examples
    --------
    >>> g = FactorGraph([2, 2], [((0,), [0.0, 1.0]), ((0, 1), [[0.0, 1.0], [2.0, 0.0]])])
    >>> nodes, factors, value = local_polytope_lp(g)
    >>> (nodes > 0.5).tolist(), round(value, 6)
    ([False, True, True, False], 3.0)
    """
    p = polytope(graph.structure)
    relaxation = solve_relaxation(graph, math.inf)
    assert relaxation is not None
    return relaxation.columns[: p.n_states], relaxation.columns[p.columns], relaxation.value


def _build(s: Structure) -> Polytope:
    n_states = int(s.node_offsets[-1])
    owner = np.repeat(np.arange(s.n_factors), np.diff(s.table_offsets))
    local = np.arange(len(owner)) - s.table_offsets[owner]
    large = s.orders[owner] > 1
    columns = np.empty(len(owner), dtype=np.int64)
    columns[large] = n_states + np.arange(int(large.sum()))
    unary = s.scopes[s.scope_offsets[owner[~large]]]
    columns[~large] = s.node_offsets[unary] + local[~large]
    rows = [np.repeat(np.arange(s.n_variables), s.cardinalities)]
    cols, values = [np.arange(n_states)], [np.ones(n_states)]
    n_rows = s.n_variables
    for axis in range(s.max_order if s.max_order > 1 else 0):
        # Sum of the table over all other axes = state of the variable on this axis.
        factors = np.flatnonzero((s.orders > 1) & (s.orders > axis))
        variables = s.scopes[s.scope_offsets[factors] + axis]
        sizes = s.cardinalities[variables]
        first_row = n_rows + np.cumsum(sizes) - sizes
        start = np.full(s.n_factors, -1, dtype=np.int64)
        start[factors] = first_row
        mine = large & (start[owner] >= 0)
        place = s.scope_offsets[owner[mine]] + axis
        state = (local[mine] // s.strides[place]) % s.cardinalities[s.scopes[place]]
        rows.append(start[owner[mine]] + state)
        cols.append(columns[mine])
        values.append(np.ones(int(mine.sum())))
        states = np.arange(int(sizes.sum())) - np.repeat(first_row - n_rows, sizes)
        rows.append(np.repeat(first_row, sizes) + states)
        cols.append(np.repeat(s.node_offsets[variables], sizes) + states)
        values.append(np.full(int(sizes.sum()), -1.0))
        n_rows += int(sizes.sum())
    right = np.zeros(n_rows)
    right[: s.n_variables] = 1.0
    shape = (n_rows, n_states + int(large.sum()))
    entries = (np.concatenate(values), (np.concatenate(rows), np.concatenate(cols)))
    return Polytope(csr_array(entries, shape=shape), right, columns, n_states)


def _scaled(graph: FactorGraph) -> tuple[Polytope, Floats, Floats, float]:
    """Return polytope, objective (0 for -inf), upper limits of the columns, and scale."""
    p = polytope(graph.structure)
    objective = p.objective(graph)
    allowed = np.isfinite(objective)
    finite = np.where(allowed, objective, 0.0)
    largest = float(np.abs(finite).max(initial=0.0))
    return p, finite, allowed.astype(np.float64), SIZE / largest if largest else 1.0


def _branch_and_cut(
    graph: FactorGraph, seconds: float, nodes: int | None
) -> tuple[Floats | None, float, bool]:
    """Return the columns of the best labeling (or None), an upper bound, and if it is proved."""
    from scipy.optimize import Bounds, LinearConstraint, milp

    p, objective, limits, scale = _scaled(graph)
    integral = np.zeros(len(objective), dtype=np.int64)
    integral[: p.n_states] = 1
    options: Any = {"mip_rel_gap": 0.0}
    if math.isfinite(seconds):
        options["time_limit"] = float(seconds)
    if nodes is not None:
        options["node_limit"] = nodes
    answer = milp(
        -scale * objective,
        integrality=integral,
        bounds=Bounds(0.0, limits),
        constraints=LinearConstraint(p.matrix, p.right, p.right),
        options=options,
    )
    if answer.status == 2:
        raise InfeasibleError(INFEASIBLE)
    dual = answer.mip_dual_bound
    bound = math.inf
    if dual is not None and math.isfinite(dual):
        # HiGHS proves up to 1e-6 absolute, in scaled units.
        bound = (-dual + 1e-6 * max(1.0, abs(dual) / SIZE)) / scale
    return answer.x, bound, answer.status == 0


def solve_relaxation(graph: FactorGraph, seconds: float) -> Relaxation | None:
    """Optimum over the local polytope; None if the time ran out."""
    from scipy.optimize import linprog

    p, objective, limits, scale = _scaled(graph)
    options: Any = {"time_limit": float(seconds)} if math.isfinite(seconds) else {}
    program: Any = linprog  # its stubs know no sparse matrices
    answer = program(
        -scale * objective,
        A_eq=p.matrix,
        b_eq=p.right,
        bounds=np.stack([np.zeros_like(limits), limits], axis=1),
        method="highs",
        options=options,
    )
    if answer.status == 2:
        raise InfeasibleError(INFEASIBLE)
    if answer.status != 0:
        return None
    columns = np.clip(answer.x, 0.0, 1.0)
    # Any multipliers give a bound: every variable and table at its best reduced score.
    multipliers = -answer.eqlin.marginals / scale
    multipliers[: graph.n_variables] = 0.0
    reduced = objective - p.matrix.T @ multipliers
    reduced[limits == 0.0] = -np.inf
    s = graph.structure
    bound = float(np.maximum.reduceat(reduced[: p.n_states], s.node_offsets[:-1]).sum())
    sizes = np.diff(s.table_offsets)[s.orders > 1]
    if len(sizes):
        starts = p.n_states + np.cumsum(sizes) - sizes
        bound += float(np.maximum.reduceat(reduced, starts).sum())
    value = float(objective @ columns)
    return Relaxation(columns, value, bound)
