"""What `gdmm` needs from one kind of problem."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import Generic, NamedTuple, Self, TypeVar

import numpy as np

from cliquewise.certificate import Certificate
from cliquewise.problems.base import Problem
from cliquewise.ragged import Floats
from cliquewise.solvers.base import Arrays, Info, State

P = TypeVar("P", bound=Problem)

RULES = ("bcfw", "afw", "bgcd")
SEARCHES = ("sublinear", "full", "sampled")


class FactorSettings(NamedTuple):
    """Settings of `gdmm`; None and "auto" mean the defaults of the kind of problem."""

    step_rule: str | None
    factor_search: str
    rho: float | str
    eta: float
    adaptive: bool | None
    partition: int | None
    max_new_labels: int
    shrink_below: float


class Factors(State, ABC, Generic[P]):
    """Beliefs of factors, and multipliers that make them agree."""

    @abstractmethod
    def __init__(self, problem: P, settings: FactorSettings) -> None:
        """Start with the truth, so that the weights are zero."""

    @classmethod
    @abstractmethod
    def memory(cls, problem: P, settings: FactorSettings) -> float:
        """Return the bytes of a backend, estimated."""

    @classmethod
    def refuses(cls, problem: P, settings: FactorSettings) -> str | None:
        """Return why the settings do not suit the problem, as the end of a sentence; or None."""
        return None

    @property
    def check_cost(self) -> float:
        """Cost of a certificate, in passes."""
        return 0.5

    @abstractmethod
    def sweep(self, rng: np.random.Generator) -> Info:
        """Make one pass over all examples."""

    @abstractmethod
    def certify(self) -> Certificate:
        """Return the primal of the weights, and the dual of beliefs that were made to agree."""

    @abstractmethod
    def weights(self) -> Floats:
        """Return weights in the problem's form."""

    @abstractmethod
    def extras(self) -> dict[str, float]:
        """Return the columns of the trace."""

    @abstractmethod
    def continue_from(self, warm: Self) -> None:
        """Copy what ``warm`` has; raise DataError if it is of other examples."""

    @abstractmethod
    def pack(self) -> Arrays:
        """Return the state as named arrays."""

    @abstractmethod
    def unpack(self, arrays: Arrays) -> None:
        """Take the state from :meth:`pack`, after checks; raise DataError for other examples."""
