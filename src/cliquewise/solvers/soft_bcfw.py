"""SoftBCFW: cliquewise Frank-Wolfe steps with a penalty for disagreement (Meshi et al. 2015).

The outer loop is that of `soft_sdca`. A visit moves the beliefs of a clique toward its best state::

    y    <- argmax over y of the clique's scores and messages
    mu_c <- mu_c + t (y - mu_c), with the exact t in [0, 1]
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from cliquewise.solvers.registry import register
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
