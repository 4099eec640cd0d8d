"""Certificate: how good an answer is, and whether that is proved."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Certificate:
    """A primal value, a dual value, and what they prove.

    Objective values are per example: ``lam / 2 ||w||^2 + mean loss``.

    Attributes
    ----------
    primal : float
        Objective at the weights that are returned.
    dual : float
        A lower bound of the best possible objective; ``-inf`` where there is none.
    status : str
        ``exact``: primal and dual are exact values of a convex problem and its dual;
        ``bound``: the primal is an upper bound of the objective (an inexact oracle's bound),
        so that the gap is true but may be loose; ``none``: nothing is proved.

    Examples
    --------
    >>> Certificate(primal=2.0, dual=1.9, status="exact").gap
    0.0500...
    """

    primal: float
    dual: float = float("-inf")
    status: str = "none"

    @property
    def absolute_gap(self) -> float:
        """``primal - dual``."""
        return self.primal - self.dual

    @property
    def gap(self) -> float:
        """Relative gap, ``(primal - dual) / max(|primal|, 1e-12)``; ``tol`` refers to this."""
        return self.absolute_gap / max(abs(self.primal), 1e-12)
