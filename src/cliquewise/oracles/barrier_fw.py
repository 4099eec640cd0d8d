"""Barrier Frank-Wolfe: marginals and a certified bound of log Z by MAP calls.

Algorithms 1 to 6 of Krishnan, Lacoste-Julien and Sontag (2015): the tree-reweighted objective
is maximized over the marginal polytope, each linear problem is a MAP call, the iterates keep
away from the boundary by a contraction that shrinks, and the edge probabilities rho are moved
towards the tree of largest mutual information.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any, ClassVar

import numpy as np

from cliquewise._kernels import clock
from cliquewise.errors import UnsupportedError
from cliquewise.graph.factor_graph import FactorGraph
from cliquewise.graph.spanning_trees import in_spanning_tree_polytope
from cliquewise.graph.structure import Structure
from cliquewise.oracles._barrier_parts import Parts
from cliquewise.oracles._barrier_run import Run, Settings
from cliquewise.oracles._pairwise import require_pairwise
from cliquewise.oracles._trw import Mapper, Problem, problem, start_rho
from cliquewise.oracles.base import Limits, Oracle, Question, Verdict
from cliquewise.oracles.registry import register
from cliquewise.oracles.results import MarginalResult
from cliquewise.ragged import Floats

#: Seconds of a call without a time limit; finite, since shares of it are computed.
UNLIMITED = 1e9


@register
class BarrierFW(Oracle):
    """Barrier Frank-Wolfe: tree-reweighted marginals over the marginal polytope by MAP calls."""

    name = "barrier-fw"
    provides: ClassVar[frozenset[Question]] = frozenset({"marginals"})
    exact = False
    rank = 200

    def consider(self, graph: FactorGraph, question: Question, limits: Limits) -> Verdict:
        """Accept pairwise graphs; the run ends at its gap, its time limit or its call limit."""
        if rejection := require_pairwise(graph.structure, question):
            return rejection
        return Verdict.accept(math.inf, 16.0 * graph.structure.table_offsets[-1])

    def marginals(
        self,
        graph: FactorGraph,
        map_method: str = "auto",
        delta: float | str = "adaptive",
        polytope: str = "marginal",
        rho_updates: int = 10,
        gap: float = 0.5,
        parts: int = 2,
        correction: bool = True,
        local_search: bool = False,
        max_calls: int = 1000,
        seconds: float | None = None,
        rho: Any = "weighted",
        callback: Callable[[dict[str, float]], Any] | None = None,
        random_state: Any = 0,
        map_options: dict[str, Any] | None = None,
    ) -> MarginalResult:
        """Maximize the tree-reweighted objective; every MAP call gives an upper bound.

        Parameters
        ----------
        graph : FactorGraph
            Pairwise; any cardinalities. Entries forbidden by ``-inf`` are left out: the
            polytope is that of the possible labelings.
        map_method : str, default="auto"
            Name of a MAP method. ``auto``: elimination where its tables are small enough,
            ``portfolio`` elsewhere.
        delta : {"adaptive"} or float, default="adaptive"
            Contraction of the polytope: shrinking by Algorithm 1, fixed, or none (0).
        polytope : {"marginal", "local"}, default="marginal"
            ``local``: the linear relaxation takes the place of the MAP method.
        rho_updates : int, default=10
            How often the edge probabilities are improved with new MAP calls; fewer if they no
            longer pay.
        gap : float, default=0.5
            Duality gap at which the last maximization stops.
        parts : int, default=2
            The graph is split into so many parts or a few more, each with some variables fixed,
            and their bounds are summed: tighter than edge probabilities alone can be, and the
            more so the more parts. 1: it stays whole, as in the paper.
        correction : bool, default=True
            Re-optimize over all visited labelings after each call (away-step Frank-Wolfe).
        local_search : bool, default=False
            A few cheap steps with iterated conditional modes after each call.
        max_calls : int, default=1000
        seconds : float, optional
            Stop after so many MAP calls or so much time, whichever comes first.
        rho : {"weighted", "uniform"} or array, default="weighted"
            First edge probabilities: random spanning trees by interaction strength, uniform
            ones, or one number per edge of ``graph.structure.edges``.
        callback : callable, optional
            Called with each row of the trace, a dict; a true return value stops the run.
        random_state : int or Generator, default=0
            For drawn trees (graphs of more than 1,500 variables).
        map_options : dict, optional
            Options of the MAP method.

        Returns
        -------
        MarginalResult
            ``log_z`` is the tree-reweighted objective at the marginals, kept between the
            bounds. The upper bound is the smallest over all calls; it is certified if the MAP
            method was exact or gave an upper bound of its own. The lower bound is a sum over
            the labelings met, or mean-field's, whichever is larger; it is certified. ``trace``
            has one row per MAP call: ``upper`` is the bound of all parts together.

        Examples
        --------
        >>> import numpy as np
        >>> from cliquewise.graph.builders import complete
        >>> g = complete(np.zeros((4, 2)), [[1.0, 0.0], [0.0, 1.0]])
        >>> result = g.marginals("barrier-fw")
        >>> low, high = result.log_z_bounds
        >>> bool(low <= g.marginals().log_z <= high), result.bounds_certified
        (True, (True, True))
        """
        if parts < 1:
            raise UnsupportedError(f"parts = {parts}; a graph has at least one part")
        started, limit = clock.now(), UNLIMITED if seconds is None else seconds
        settings = Settings(
            delta, polytope, rho_updates, gap, correction, local_search, max_calls, limit,
            callback,
        )  # fmt: skip
        found: list[Mapper] = []

        def mapper_of(structure: Structure) -> Mapper:
            if not found:
                found.append(Mapper(map_method, map_options or {}, structure))
            return found[0]

        p = problem(graph, mapper_of, limit)
        first, is_certified = _first_rho(p, rho, random_state)
        run = Run(p, mapper_of(p.structure), settings, started, first, rho_certified=is_certified)
        whole = Parts(run)
        whole.whole(parts, rho_updates, gap)
        return whole.result(graph, self.name)


def _first_rho(p: Problem, rho: Any, random_state: Any) -> tuple[Floats, bool]:
    """Return the first edge probabilities, and whether they are in the tree polytope."""
    t = p.topology
    if isinstance(rho, str):
        if rho not in ("weighted", "uniform"):
            raise UnsupportedError(f"rho = {rho!r}; it is 'weighted', 'uniform' or an array")
        return start_rho(p.pairwise, rho, random_state), True
    given = np.asarray(rho, dtype=np.float64)
    if not in_spanning_tree_polytope(t.n_nodes, t.edges, given):
        raise UnsupportedError(
            f"rho must be a point of the spanning-tree polytope, with one number for each of "
            f"the {t.n_edges} edges (graph.structure.edges)"
        )
    return given, True
