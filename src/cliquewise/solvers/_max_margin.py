"""What the max-margin solvers on graphs share: asking a MAP method, and the primal it proves.

An inexact method is welcome: the primal takes its upper bound and never its value, so that a
poor method loosens the certificate and cannot fake it.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar, NamedTuple

import numpy as np

from cliquewise.errors import DataError
from cliquewise.graph.factor_graph import FactorGraph, Floats
from cliquewise.graph.structure import Ints
from cliquewise.problems.graph import GraphProblem
from cliquewise.solvers.base import Solver


class Best(NamedTuple):
    """The labeling that a MAP method found, and what it knows of the best one."""

    labels: Ints
    bound: float
    exact: bool


@dataclass(frozen=True)
class MaxMargin(Solver):
    """Structural SVMs on graphs, through any MAP method of :meth:`FactorGraph.map`.

    Parameters
    ----------
    map_method : str, default="auto"
        ``auto`` is exact where that is possible.
    map_options : mapping, optional
        Passed to the method, a limit of its iterations or seconds for instance.
    """

    losses: ClassVar[frozenset[str]] = frozenset({"hinge"})
    problems: ClassVar[frozenset[str]] = frozenset({"graph"})
    map_method: str = "auto"
    map_options: Any = None

    def __post_init__(self) -> None:
        from cliquewise.oracles.base import get

        if self.map_method != "auto" and "map" not in get(self.map_method).provides:
            raise DataError(f"map_method = {self.map_method!r}; it does not answer MAP questions")
        options = self.map_options
        if isinstance(options, Mapping):
            # A frozen solver is hashable, a dict is not.
            object.__setattr__(self, "map_options", tuple(sorted(options.items())) or None)
        elif options is not None and not isinstance(options, tuple):
            raise DataError(f"map_options = {options!r}; it must be a dict")

    def refuses(self, problem: Any) -> str | None:
        """Refuse what the MAP method refuses."""
        from cliquewise.oracles.base import get

        reason = super().refuses(problem)
        if reason is not None or self.map_method == "auto":
            return reason
        oracle = get(self.map_method)
        for structure in {id(s): s for s in problem.structures}.values():
            why = oracle.refuses(structure, "map") or oracle.too_large(structure, "map", {})
            if why is not None:
                return f"asks the method {self.map_method!r}, which {why}"
        return None

    def _ask(self, problem: GraphProblem, i: int, tables: Floats) -> Best:
        """The best labeling of example ``i`` under the scores of its states."""
        from cliquewise.oracles._pairwise import table_bound

        graph = FactorGraph.from_structure(problem.structures[i], tables)
        found = graph.map(self.map_method, **dict(self.map_options or ()))
        bound = found.upper_bound if found.exact else min(found.upper_bound, table_bound(graph))
        return Best(found.labels, float(bound), bool(found.exact))

    def _primal(self, problem: GraphProblem, w: Floats) -> tuple[float, bool]:
        """An upper bound of the objective at ``w``, and whether it is the objective itself."""
        plain = problem.potentials(w)
        scores, loss, exact = plain + problem.costs, 0.0, True
        for i in range(problem.n_examples):
            best = self._ask(problem, i, scores[problem.entries(i)])
            loss += best.bound
            exact = exact and best.exact
        return problem.value(float(w @ w), loss - float(plain @ problem.truth)), exact


def ranges_of(problem: GraphProblem) -> Any:
    """Where the examples' nodes and edges begin, for the kernels."""
    from cliquewise._kernels.cliques.labelings import Ranges

    return Ranges(problem.data.node_offsets, problem.data.edge_offsets)


def most_states(problem: GraphProblem) -> int:
    """States of the largest example."""
    o, d = problem.cliques.offsets, problem.data
    nodes = o[d.node_offsets[1:]] - o[d.node_offsets[:-1]]
    edges = o[d.n_nodes + d.edge_offsets[1:]] - o[d.n_nodes + d.edge_offsets[:-1]]
    return int((nodes + edges).max(initial=0))


def states_of(problem: GraphProblem, i: int) -> tuple[int, int, int]:
    """First and last state of example ``i``'s nodes, and the number of all its states."""
    o, d = problem.cliques.offsets, problem.data
    first, last = int(o[d.node_offsets[i]]), int(o[d.node_offsets[i + 1]])
    e = d.n_nodes + d.edge_offsets[i : i + 2]
    return first, last, last - first + int(o[e[1]] - o[e[0]])


def augmented_scores(problem: GraphProblem, w: Floats, i: int, out: Floats) -> tuple[Floats, Any]:
    """Scores of example ``i``'s states (a view of ``out``), and a copy with the costs."""
    from cliquewise._kernels.cliques.features import example_scores

    d = problem.data
    nodes = (int(d.node_offsets[i]), int(d.node_offsets[i + 1]))
    edges = (int(d.edge_offsets[i]), int(d.edge_offsets[i + 1]))
    example_scores(problem.cliques, w, nodes, edges, out)
    first, last, size = states_of(problem, i)
    plain = out[:size]
    tables = np.array(plain)
    tables[: last - first] += problem.cliques.cost[first:last]
    return plain, tables
