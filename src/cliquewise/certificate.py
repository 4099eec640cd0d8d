"""Certificate: primal value, lower bound and gap of a trained model."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from cliquewise.errors import CertificateError
from cliquewise.tables import frame, text_table

#: Tolerated rounding error of primal values, relative to values above 1. Larger errors are added to
#: the primal; errors of dual values are always subtracted (see ``problems/rounding.py``).
EPSILON = 1e-9


@dataclass(frozen=True)
class Certificate:
    """A primal value, a dual value, and the gap between them.

    Objective values are per example: ``lam / 2 ||w||^2 + mean loss``.

    Attributes
    ----------
    primal : float
        Objective of the returned weights.
    dual : float
        A lower bound of the objective of all weights; ``-inf`` if there is none.
    status : str
        ``exact``: primal and dual are exact values of a convex problem and its dual;
        ``bound``: the primal is an upper bound of the objective (that of an inexact oracle, or
        raised by a large rounding error), so the gap is proven but may be loose; ``none``:
        nothing is proven, because the problem is not convex or its numbers exceed float64.
    rounding : float
        How much the dual value was lowered to be a bound in exact arithmetic.

    Examples
    --------
    >>> Certificate(primal=2.0, dual=1.9, status="exact").gap
    0.0500...
    >>> print(Certificate(primal=2.0, dual=1.5, status="exact"))
    primal  dual   gap  rounding  status
    2        1.5  0.25         0   exact
    """

    primal: float
    dual: float = float("-inf")
    status: str = "none"
    rounding: float = 0.0

    def __post_init__(self) -> None:
        if not (np.isfinite(self.primal) and self.dual < np.inf):
            # Numbers beyond double precision prove nothing.
            object.__setattr__(self, "status", "none")
            object.__setattr__(self, "dual", float("-inf"))
        slack = EPSILON * max(1.0, abs(self.primal))
        if self.status != "none" and self.dual > self.primal + slack:
            raise CertificateError(
                f"the dual value {self.dual!r} is above the primal value {self.primal!r}: one of "
                "them is wrong. This is a bug: please report it"
            )

    @property
    def absolute_gap(self) -> float:
        """``primal - dual``."""
        return self.primal - self.dual

    @property
    def gap(self) -> float:
        """Relative gap, ``(primal - dual) / max(|primal|, 1e-12)``; ``tol`` refers to this."""
        return self.absolute_gap / max(abs(self.primal), 1e-12)

    def _cells(self) -> dict[str, Any]:
        return {
            "primal": self.primal,
            "dual": self.dual,
            "gap": self.gap,
            "rounding": self.rounding,
            "status": self.status,
        }

    def to_frame(self) -> Any:
        """Return a pandas DataFrame with one row."""
        return frame({name: [cell] for name, cell in self._cells().items()})

    def _repr_html_(self) -> str:
        from cliquewise.report.notebook import badge

        return badge(self._cells())

    def __str__(self) -> str:
        cells = self._cells()
        return text_table(list(cells), [list(cells.values())])
