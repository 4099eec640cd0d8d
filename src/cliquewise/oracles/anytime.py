"""Anytime: cheap methods first, then dearer ones; what was best so far when the time is over."""

from __future__ import annotations

from typing import Any, ClassVar

from cliquewise.errors import UnsupportedError
from cliquewise.graph.factor_graph import FactorGraph
from cliquewise.graph.structure import Structure
from cliquewise.oracles._anytime_map import MapSteps
from cliquewise.oracles._anytime_marginals import MarginalSteps
from cliquewise.oracles.base import LIMITS, Oracle, register
from cliquewise.oracles.results import MapResult, MarginalResult


@register
class Anytime(Oracle):
    """Cheap methods before dear ones; the best answer of all, with the tightest bounds."""

    name = "anytime"
    provides: ClassVar[frozenset[str]] = frozenset({"map", "marginals"})
    exact = False
    may_prove = True
    has_limits = True
    rank = 50

    def steps(self, structure: Structure, want: str) -> tuple[str, ...]:
        """Who is asked: fewer, if one of the first proves its answer."""
        if want != "map":
            if structure.is_pairwise:
                bounds = ("trw-bp", "mini-buckets", "barrier-fw")
                return ("junction-tree", "cutset", "sparse", *bounds, "gibbs")
            return ("junction-tree", "cutset", "sparse", "mini-buckets", "gibbs")
        cheap = ("graph-cut", "trw-s", "portfolio") if structure.is_pairwise else ("icm",)
        return (*cheap, "vertex-cover", "junction-tree", "sparse", "toulbar2", "milp")

    def map(
        self,
        graph: FactorGraph,
        seconds: float | None = None,
        gap: float = 0.0,
        **options: Any,
    ) -> MapResult:
        """Messages, then elimination if it costs less than a search, then a search.

        Parameters
        ----------
        graph : FactorGraph
        seconds : float, optional
            Kept to within a tenth and a second. By default a search ends after a minute.
        gap : float, default=0
            Stop when the bound is this close to the best score.
        max_memory, max_operations : float, optional
            Limits of elimination.

        Returns
        -------
        MapResult
            ``method`` is the one that proved the answer, or that found the labeling. ``info``
            has the ``steps``: method, seconds, and the best score and bound after each; and
            ``bound_by``, whose bound is the smallest.

        Examples
        --------
        >>> apart = [[0.0, 1.0], [2.0, 0.0]]
        >>> g = FactorGraph([2, 2, 2], [((0, 1), apart), ((1, 2), apart)])
        >>> g.map("anytime").exact
        True
        """
        self._check(options)
        return MapSteps(graph, seconds, gap, options).answer(self)

    def marginals(
        self,
        graph: FactorGraph,
        seconds: float | None = None,
        gap: float = 0.0,
        **options: Any,
    ) -> MarginalResult:
        """Exact where that is cheap; else belief propagation, and bounds of log Z.

        Parameters
        ----------
        graph : FactorGraph
        seconds : float, optional
            Kept to within a tenth and a second. What is left after the marginals tightens the
            bounds; by default a quarter of the time that those took.
        gap : float, default=0
            Stop when the bounds are this close.
        max_memory, max_operations : float, optional
            Limits of elimination.

        Returns
        -------
        MarginalResult
            Marginals and ``log_z`` of loopy belief propagation where it converged to a value
            within the bounds, else of Gibbs sampling where nothing is forbidden (with
            ``info["standard_errors"]``), else of tree-reweighted. ``info`` says which method gave
            the ``marginals``, the ``lower`` and the ``upper`` bound.

        Examples
        --------
        >>> import numpy as np
        >>> from cliquewise.graph.builders import complete
        >>> g = complete(np.zeros((4, 2)), [[0.3, 0.0], [0.0, 0.3]])
        >>> rough = g.marginals("anytime", max_operations=0)
        >>> rough.info["marginals"], rough.bounds_certified
        ('loopy-bp', (True, True))
        >>> low, high = rough.log_z_bounds
        >>> bool(low <= g.marginals().log_z <= high)
        True
        """
        self._check(options)
        return MarginalSteps(graph, seconds, gap, options).answer()

    def _check(self, options: dict[str, Any]) -> None:
        unknown = sorted(set(options) - LIMITS)
        if unknown:
            raise UnsupportedError(
                f"method {self.name!r} has no option {unknown[0]!r}; it takes seconds, gap, "
                "max_memory and max_operations (other options belong to a method that you name)"
            )
