"""Anytime inference: cheap methods first, then expensive ones, and the best answer so far.

The planner uses it where no exact method is fast. It is not registered, because it orchestrates
the registered methods; ``method="anytime"`` selects it.
"""

from __future__ import annotations

import math
from typing import ClassVar

from cliquewise.graph.factor_graph import FactorGraph
from cliquewise.graph.structure import Structure
from cliquewise.oracles._anytime_map import MapSteps
from cliquewise.oracles._anytime_marginals import MarginalSteps
from cliquewise.oracles.base import NO_LIMITS, OFTEN_PROVED, Limits, Oracle, Question, Verdict
from cliquewise.oracles.results import MapResult, MarginalResult


def steps_for(structure: Structure, question: Question) -> tuple[str, ...]:
    """Return the methods that anytime may use; it stops at the first that proves its answer.

    Examples
    --------
    >>> steps_for(Structure([2, 2, 2], [(0, 1, 2)]), "map")
    ('icm', 'vertex-cover', 'junction-tree', 'sparse', 'toulbar2', 'milp')
    """
    if question != "map":
        if structure.is_pairwise:
            bounds = ("trw-bp", "mini-buckets", "barrier-fw")
            return ("junction-tree", "cutset", "sparse", *bounds, "gibbs")
        return ("junction-tree", "cutset", "sparse", "mini-buckets", "gibbs")
    cheap = ("graph-cut", "trw-s", "portfolio") if structure.is_pairwise else ("icm",)
    return (*cheap, "vertex-cover", "junction-tree", "sparse", "toulbar2", "milp")


class Anytime(Oracle):
    """Cheap methods before expensive ones; the best answer of all, with the tightest bounds."""

    name = "anytime"
    provides: ClassVar[frozenset[Question]] = frozenset({"map", "marginals"})
    exact = False
    guarantee = OFTEN_PROVED

    def consider(self, graph: FactorGraph, question: Question, limits: Limits) -> Verdict:
        """Accept every graph; the steps end at a proof, the gap or the time limit."""
        return Verdict.accept(math.inf, 16.0 * graph.structure.table_offsets[-1])

    def map(
        self,
        graph: FactorGraph,
        seconds: float | None = None,
        gap: float = 0.0,
        limits: Limits = NO_LIMITS,
    ) -> MapResult:
        """Pass messages, then eliminate if that costs less than a search, then search.

        Parameters
        ----------
        graph : FactorGraph
        seconds : float, optional
            Time limit, kept to within ten percent and one second. By default a search ends after
            a minute.
        gap : float, default=0
            Stop when the bound is this close to the best score.
        max_memory, max_operations : float, optional
            Limits of elimination.

        Returns
        -------
        MapResult
            ``method`` is the one that proved the answer, or that found the labeling. ``info``
            has the ``steps`` (method, seconds, and the best score and bound after each), and
            ``bound_by``, the method of the smallest bound.

        Examples
        --------
        >>> apart = [[0.0, 1.0], [2.0, 0.0]]
        >>> g = FactorGraph([2, 2, 2], [((0, 1), apart), ((1, 2), apart)])
        >>> g.map("anytime").exact
        True
        """
        return MapSteps(graph, seconds, gap, limits).answer()

    def marginals(
        self,
        graph: FactorGraph,
        seconds: float | None = None,
        gap: float = 0.0,
        limits: Limits = NO_LIMITS,
    ) -> MarginalResult:
        """Compute exact marginals where that is cheap; else estimates, and bounds of log Z.

        Parameters
        ----------
        graph : FactorGraph
        seconds : float, optional
            Time limit, kept to within ten percent and one second. The time that is left after the
            marginals tightens the bounds. By default, a fixed number of operations does.
        gap : float, default=0
            Stop when the bounds are this close.
        max_memory, max_operations : float, optional
            Limits of elimination.

        Returns
        -------
        MarginalResult
            Marginals and ``log_z`` of loopy belief propagation where it converged to a value
            within the bounds, else of Gibbs sampling where no entry is forbidden (with
            ``info["standard_errors"]``), else of tree-reweighted messages. ``method`` is the
            method of the marginals; ``info`` has the methods of the ``lower`` and the ``upper``
            bound.

        Examples
        --------
        >>> import numpy as np
        >>> from cliquewise.graph.builders import complete
        >>> g = complete(np.zeros((4, 2)), [[0.3, 0.0], [0.0, 0.3]])
        >>> rough = g.marginals("anytime", max_operations=0)
        >>> rough.method, rough.info["upper"], rough.bounds_certified
        ('loopy-bp', 'trw-bp', (True, True))
        >>> low, high = rough.log_z_bounds
        >>> bool(low <= g.marginals().log_z <= high)
        True
        """
        return MarginalSteps(graph, seconds, gap, limits).answer()
