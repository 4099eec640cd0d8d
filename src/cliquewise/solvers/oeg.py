"""OEG: online exponentiated gradient for conditional random fields, a baseline with a duality gap.

Collins et al. 2008. Like `sdca` it maximizes the dual one example at a time, on the same path, but
every example has a step size that adapts by trial. A visit takes one inference instead of two::

    for every example i, in random order:
        s       <- scores of x_i at w
        theta_i <- theta_i + eta_i (s - theta_i);  q_i <- the distribution of theta_i;  w <- w(q)
        if the dual decreased: undo, and halve eta_i; else multiply eta_i by `growth`, up to 1

See ``_kernels/chain/oeg.py``.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from cliquewise.errors import DataError
from cliquewise.problems.base import Problem
from cliquewise.problems.chain import ChainProblem
from cliquewise.ragged import Ints
from cliquewise.solvers.backends.base import BackendTable, Distributions, DualSettings
from cliquewise.solvers.backends.chain.steps import SteppingDuals
from cliquewise.solvers.base import Capabilities
from cliquewise.solvers.parameters import one_of
from cliquewise.solvers.registry import register
from cliquewise.solvers.sdca import Ascent

BACKENDS = BackendTable[DualSettings, SteppingDuals]().add(ChainProblem, SteppingDuals)


@register
@dataclass(frozen=True)
class OEG(Ascent):
    """Online exponentiated gradient (Collins et al. 2008), by exact marginals of one example.

    Parameters
    ----------
    sampling : {"permuted", "uniform", "cyclic"}, default="permuted"
        Order of the examples: in shuffled epochs, at random, or as they are.
    step_length : float, default=0.5
        First step size of every example, at most 1. It is halved until the dual does not decrease.
    growth : float, default=1.05
        Factor of an example's step size after a visit, up to 1.
    start : float, default=10.0
        Score of the true labels in the dual distributions at the start, as in `sdca`.
    """

    name: ClassVar[str] = "oeg"
    capabilities: ClassVar[Capabilities] = Capabilities({"chain": frozenset({"log"})}, rank=90)
    sampling: str = "permuted"
    step_length: float = 0.5
    growth: float = 1.05
    start: float = 10.0

    def __post_init__(self) -> None:
        super().__post_init__()
        one_of(self, "sampling", "permuted", "uniform", "cyclic")
        if not 1 <= self.growth <= 2:
            raise DataError(f"growth = {self.growth}; it must be between 1 and 2")

    def memory(self, problem: Problem) -> float:
        """Return two numbers per state of each clique of the model, and the weights, in bytes."""
        return BACKENDS[problem].memory(problem, self._settings)

    @property
    def _settings(self) -> DualSettings:
        return DualSettings(self.start, 1.0, False, self.step_length)

    def _make_duals(self, problem: Problem) -> SteppingDuals:
        return BACKENDS[problem](problem, self._settings)

    def _visit(self, duals: Distributions, chosen: Ints, rng: np.random.Generator) -> int:
        assert isinstance(duals, SteppingDuals)
        return duals.visit_in_steps(chosen, self.growth)
