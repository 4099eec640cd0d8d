"""SoftSDCA: IDAL without multipliers; a penalty only encourages cliques to agree.

It maximizes ``D_rho(mu, 0)`` of idal by the block steps of `idal`, with ``xi = 0`` throughout.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import ClassVar

from cliquewise.solvers.backends.graph.cliques import CliqueAscent
from cliquewise.solvers.base import Capabilities
from cliquewise.solvers.idal import Cliquewise
from cliquewise.solvers.parameters import at_least
from cliquewise.solvers.registry import register


@register
@dataclass(frozen=True)
class SoftSDCA(Cliquewise):
    """Cliquewise SDCA with a penalty for disagreement.

    It maximizes ``D_rho(mu, 0)``, which is not the relaxed dual: the true gap ends on a plateau,
    which is lower for a smaller rho.

    Parameters
    ----------
    rho, inner, sampling
        See :class:`~cliquewise.solvers.idal.Cliquewise`.
    inner_tol : float, default=1e-7
        Stop when the gap of the penalized problem, relative to the primal, is below this.
    """

    name: ClassVar[str] = "soft_sdca"
    capabilities: ClassVar[Capabilities] = replace(Cliquewise.capabilities, precision=float("inf"))
    inner_tol: float = 1e-7

    def __post_init__(self) -> None:
        super().__post_init__()
        at_least(self, 0, "inner_tol")

    def _is_finished(self, state: CliqueAscent) -> bool:
        """Whether the penalized problem is solved; the true gap will not decrease further."""
        return bool(state.inner_gap <= self.inner_tol * abs(state.primal))
