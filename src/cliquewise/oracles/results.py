"""Answers: what each question about a graph returns, and what is proved of it."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import numpy as np

from cliquewise.graph.factor_graph import FactorGraph
from cliquewise.ragged import Floats, Ints, Ragged

#: The gap counts as closed below this part of the scale of the scores.
CLOSED = 1e-9


def tolerance(score: float, bound: float) -> float:
    """The gap below which bound and score count as equal."""
    if not (np.isfinite(score) and np.isfinite(bound)):
        return 0.0
    return CLOSED * max(1.0, abs(score), abs(bound))


class Proved:
    """An output that is proved best of those not listed before it, up to rounding."""

    score: float
    exact = True

    @property
    def upper_bound(self) -> float:
        """No output (of those not listed before it) scores higher, but for rounding."""
        return self.score


@dataclass(frozen=True)
class MapResult:
    """A labeling, its score, and what is known about the best one.

    Attributes
    ----------
    labels : ndarray of int
        One state per variable.
    score : float
        Sum of the log-potentials of ``labels``.
    upper_bound : float
        No labeling scores higher than this; ``inf`` where the method has no bound. It is the
        score where ``exact``, and holds up to ``rounding`` then.
    exact : bool
        Whether ``labels`` is proved best: no other one scores higher by more than ``rounding``
        or 1e-9 of the scale of the scores.
    method : str
        The oracle that answered.
    rounding : float
        The most that rounding adds to or takes from a sum of these log-potentials.
    info : dict
        What else the method reports (iterations, seconds, nodes of a search).
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
        """The score, under the name that every answer shares."""
        return self.score

    @property
    def bound(self) -> float:
        """The upper bound, under the name that every answer shares."""
        return self.upper_bound

    @property
    def gap(self) -> float:
        """How much better than ``labels`` a labeling could still be."""
        return max(0.0, self.upper_bound - self.score)


@dataclass(frozen=True)
class MarginalResult:
    """Marginal probabilities and the log partition function.

    Attributes
    ----------
    nodes : Ragged
        ``nodes[v]`` has the probabilities of the states of variable ``v``.
    factors : Ragged
        ``factors[f]`` has the joint probabilities of factor ``f``'s variables.
    log_z : float
        Natural logarithm of the sum of the exponentiated scores.
    log_z_bounds : (float, float)
        Lower and upper bound of the true log Z; rounding is allowed for.
    bounds_certified : (bool, bool)
        Whether each bound is proved, or an estimate.
    exact : bool
    method : str
    trace : object or None
        The course of an iterative method.
    rounding : float
        The most that rounding adds to or takes from log Z, or the logarithm of a probability
        that is not negligible.
    """

    nodes: Ragged
    factors: Ragged
    log_z: float
    log_z_bounds: tuple[float, float]
    exact: bool
    method: str
    bounds_certified: tuple[bool, bool] = (True, True)
    trace: Any = None
    info: dict[str, Any] = field(default_factory=dict)
    rounding: float = 0.0

    @property
    def value(self) -> float:
        """log Z, under the name that every answer shares."""
        return self.log_z

    @property
    def bound(self) -> float:
        """Upper bound of log Z, under the name that every answer shares."""
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
        """From flat arrays as the structure lays them out; exact if no bounds are given.

        Bounds are widened by what rounding may have done to them.
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
    """Best score with each variable in each state: ``nodes[v][state]``.

    ``rounding`` is the most that rounding adds to or takes from the best of them, and from the
    others where their scores are of the same size.
    """

    nodes: Ragged
    value: float
    exact: bool
    method: str
    rounding: float = 0.0

    @property
    def bound(self) -> float:
        """The best score of all is its own bound when the answer is exact."""
        return self.value if self.exact else float("inf")
