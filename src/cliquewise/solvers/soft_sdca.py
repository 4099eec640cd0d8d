"""SoftSDCA: IDAL without multipliers; agreement is only encouraged by a penalty."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from cliquewise.solvers.backends.graph.cliques import CliqueAscent
from cliquewise.solvers.base import at_least, register
from cliquewise.solvers.idal import Cliquewise


@register
@dataclass(frozen=True)
class SoftSDCA(Cliquewise):
    """Cliquewise SDCA with a penalty for disagreement.

    It maximizes ``D_rho(mu, 0)``, another objective than the relaxed dual: the true gap ends
    on a plateau that is lower with a smaller rho.

    Parameters
    ----------
    rho, inner, sampling
        See :class:`~cliquewise.solvers.idal.Cliquewise`.
    inner_tol : float, default=1e-7
        Stop when the gap of the penalized problem, relative to the primal, is below this.
    """

    name: ClassVar[str] = "soft_sdca"
    precision: ClassVar[float] = float("inf")
    inner_tol: float = 1e-7

    def __post_init__(self) -> None:
        super().__post_init__()
        at_least(self, 0, "inner_tol")

    def _is_finished(self, state: CliqueAscent) -> bool:
        """The penalized problem is solved; the true gap will not get smaller."""
        return bool(state.inner_gap <= self.inner_tol * abs(state.primal))
