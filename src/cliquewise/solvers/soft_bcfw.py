"""SoftBCFW: cliquewise Frank-Wolfe steps with a penalty for disagreement (Meshi et al. 2015)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from cliquewise.solvers.base import register
from cliquewise.solvers.soft_sdca import SoftSDCA


@register
@dataclass(frozen=True)
class SoftBCFW(SoftSDCA):
    """Block-coordinate Frank-Wolfe on ``D_rho(mu, 0)``, with an exact line search.

    Parameters
    ----------
    rho, inner, sampling, inner_tol
        See :class:`SoftSDCA`.
    """

    name: ClassVar[str] = "soft_bcfw"
    method: ClassVar[int] = 1
