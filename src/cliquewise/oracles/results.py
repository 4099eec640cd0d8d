"""Results of inference, one class per question, each with a value, a bound and an `exact` flag."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from cliquewise.errors import InfeasibleError
from cliquewise.graph.evidence import INFEASIBLE
from cliquewise.graph.factor_graph import FactorGraph
from cliquewise.ragged import Floats, Ints, Ragged
from cliquewise.trace import Trace

#: A gap counts as closed below this fraction of the magnitude of the scores.
CLOSED = 1e-9


def tolerance(score: float, bound: float) -> float:
    """Return the gap below which a bound and a score count as equal."""
    if not (np.isfinite(score) and np.isfinite(bound)):
        return 0.0
    return CLOSED * max(1.0, abs(score), abs(bound))


class Proved:
    """Mixin of results proved optimal, up to rounding, among the outputs not yet listed."""

    score: float
    exact = True

    @property
    def upper_bound(self) -> float:
        """The score: no other output scores higher, except for rounding."""
        return self.score


@dataclass(frozen=True)
class MapResult:
    """A labeling, its score, and an upper bound of the score of the MAP labeling.

    Attributes
    ----------
    labels : ndarray of int
        One state per variable.
    score : float
        Sum of the log-potentials of ``labels``.
    upper_bound : float
        No labeling scores higher; ``inf`` where the method has no bound. Equal to the score if
        ``exact``, and then valid up to ``rounding``.
    exact : bool
        Whether ``labels`` is proved optimal: no other labeling scores higher by more than
        ``rounding`` or 1e-9 times the magnitude of the scores.
    method : str
        Name of the method that proved the labeling, or that found it.
    rounding : float
        Bound of the rounding error of a sum of these log-potentials.
    info : dict
        Details of the method (iterations, seconds, steps).
    """

    labels: Ints
    score: float
    upper_bound: float
    exact: bool
    method: str
    info: dict[str, Any] = field(default_factory=dict)
    rounding: float = 0.0

    @property
    def value(self) -> float:
        """The score; all results have a ``value``."""
        return self.score

    @property
    def bound(self) -> float:
        """The upper bound; all results have a ``bound``."""
        return self.upper_bound

    @property
    def gap(self) -> float:
        """Difference between the upper bound and the score."""
        return max(0.0, self.upper_bound - self.score)


def map_result(
    graph: FactorGraph,
    labels: Ints,
    bound: float,
    method: str,
    info: Mapping[str, Any] | None = None,
    exact: bool | None = None,
) -> MapResult:
    """Return the result for a labeling and an upper bound; rounding widens an open bound.

    ``exact`` is computed from the gap unless the method itself proved or refuted it.
    """
    score, rounding = float(graph.score(labels)), graph.rounding
    if exact is None:
        exact = bound - score <= tolerance(score, bound)
    bound = max(bound, score) if exact else max(bound + rounding, score)
    return MapResult(labels, score, bound, exact, method, dict(info or {}), rounding)


def proved_map(graph: FactorGraph, labels: Ints, method: str) -> MapResult:
    """Return the result for a labeling that an exact method found.

    Raises
    ------
    InfeasibleError
        If the labeling has probability zero, hence all have.
    """
    score = float(graph.score(labels))
    if score == -np.inf:
        raise InfeasibleError(INFEASIBLE)
    return MapResult(labels, score, score, True, method, rounding=graph.rounding)


@dataclass(frozen=True)
class MarginalResult:
    """Marginals and the logarithm of the partition function.

    Attributes
    ----------
    nodes : Ragged
        ``nodes[v]`` has the probabilities of the states of variable ``v``.
    factors : Ragged
        ``factors[f]`` has the joint probabilities of the variables of factor ``f``.
    log_z : float
        Natural logarithm of the sum of the exponentiated scores of all labelings.
    log_z_bounds : (float, float)
        Lower and upper bound of log Z, widened by the rounding error.
    bounds_certified : (bool, bool)
        Whether each bound is proved, or only an estimate.
    exact : bool
    method : str
        Name of the method that computed the marginals.
    trace : Trace or None
        Progress of an iterative method.
    rounding : float
        Bound of the rounding error of log Z, and of the logarithm of a probability that is not
        negligible.
    """

    nodes: Ragged
    factors: Ragged
    log_z: float
    log_z_bounds: tuple[float, float]
    exact: bool
    method: str
    bounds_certified: tuple[bool, bool] = (True, True)
    trace: Trace | None = None
    info: dict[str, Any] = field(default_factory=dict)
    rounding: float = 0.0

    @property
    def value(self) -> float:
        """log Z; all results have a ``value``."""
        return self.log_z

    @property
    def bound(self) -> float:
        """The upper bound of log Z; all results have a ``bound``."""
        return self.log_z_bounds[1]

    @classmethod
    def from_flat(
        cls,
        graph: FactorGraph,
        nodes: Floats,
        factors: Floats,
        log_z: float,
        method: str,
        bounds: tuple[float, float] | None = None,
        **more: Any,
    ) -> MarginalResult:
        """Build a result from flat arrays in the layout of the structure.

        The result is exact if no bounds are given. Bounds are widened by the rounding error.
        """
        structure, rounding = graph.structure, graph.rounding
        lower, upper = (log_z, log_z) if bounds is None else bounds
        return cls(
            Ragged(nodes, structure.node_offsets),
            Ragged(factors, structure.table_offsets, structure.shape),
            log_z,
            (lower - rounding, upper + rounding),
            bounds is None,
            method,
            rounding=rounding,
            **more,
        )


@dataclass(frozen=True)
class MaxMarginalResult:
    """For each variable and state, the best score of a labeling with that state.

    Attributes
    ----------
    nodes : Ragged
        ``nodes[v][state]``.
    value : float
        The score of the MAP labeling.
    exact : bool
    method : str
    rounding : float
        Bound of the rounding error of ``value``, and of other scores of similar magnitude.
    """

    nodes: Ragged
    value: float
    exact: bool
    method: str
    rounding: float = 0.0

    @property
    def bound(self) -> float:
        """An upper bound of the best score: the value if exact, else infinity."""
        return self.value if self.exact else float("inf")
