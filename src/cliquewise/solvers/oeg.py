"""Online exponentiated gradient for conditional random fields, a baseline with a duality gap.

The dual of a log-linear model is climbed one example at a time, as by `sdca` and along the same
path, but in steps whose lengths are learned by trial: one inference a visit, and more visits. See
``_kernels/chain/oeg.py``.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np

from cliquewise.errors import DataError
from cliquewise.ragged import Ints
from cliquewise.solvers.backends.chain.steps import SteppingDuals
from cliquewise.solvers.base import one_of, register
from cliquewise.solvers.sdca import Ascent


@register
@dataclass(frozen=True)
class OEG(Ascent):
    """Online exponentiated gradient (Collins et al. 2008), by exact marginals of one example.

    Parameters
    ----------
    sampling : {"permuted", "uniform", "cyclic"}, default="permuted"
        Which example comes next: in reshuffled passes, at random, or in order.
    step_length : float, default=0.5
        Length of every example's first step, at most 1. It is halved until the dual does not fall.
    growth : float, default=1.05
        Factor of an example's step after a visit, up to the length 1.
    start : float, default=10.0
        Score of the true labels in the dual distributions at the start, as in `sdca`.
    """

    name: ClassVar[str] = "oeg"
    works_on: ClassVar[dict[str, frozenset[str]]] = {"chain": frozenset({"log"})}
    rank: ClassVar[int] = 90
    sampling: str = "permuted"
    step_length: float = 0.5
    growth: float = 1.05
    start: float = 10.0

    def __post_init__(self) -> None:
        super().__post_init__()
        one_of(self, "sampling", "permuted", "uniform", "cyclic")
        if not 1 <= self.growth <= 2:
            raise DataError(f"growth = {self.growth}; it must be between 1 and 2")

    def memory(self, problem: Any) -> float:
        """Two numbers per state of each clique of the model, and the weights."""
        return SteppingDuals.memory(problem)

    def _blocks(self, problem: Any) -> SteppingDuals:
        return SteppingDuals(problem, self.start, self.step_length)

    def _visit(self, blocks: Any, chosen: Ints, rng: np.random.Generator) -> int:
        return int(blocks.visit_in_steps(chosen, self.growth))
