"""The budget of one call: measured seconds with a time limit, otherwise counted operations.

Steps report their estimated cost with ``spend``. Without a time limit, only these estimates count,
so answers do not depend on the speed or the load of the machine.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field

from cliquewise._kernels import clock


@dataclass
class Budget:
    """Seconds for one call: measured if ``is_timed``, else estimated from operations.

    Examples
    --------
    >>> budget = Budget.of(None, default=60.0)
    >>> budget.spend(20.0)
    >>> budget.left, budget.deadline
    (40.0, inf)
    """

    total: float
    is_timed: bool
    started: float = field(default_factory=clock.now)
    spent: float = 0.0

    @classmethod
    def of(cls, seconds: float | None, default: float) -> Budget:
        """Return the budget for a time limit, or for a default number of estimated seconds."""
        is_timed = seconds is not None and math.isfinite(seconds)
        return cls(default if seconds is None else float(seconds), is_timed)

    @property
    def elapsed(self) -> float:
        """Measured seconds, for reports."""
        return clock.now() - self.started

    @property
    def deadline(self) -> float:
        """The time limit on the clock; infinite without a time limit."""
        return self.started + self.total if self.is_timed else math.inf

    @property
    def used(self) -> float:
        """Measured or estimated seconds so far."""
        return self.elapsed if self.is_timed else self.spent

    @property
    def left(self) -> float:
        """Remaining seconds."""
        return max(0.0, self.total - self.used)

    def spend(self, seconds: float) -> None:
        """Count the estimated cost of a step."""
        self.spent += seconds

    def timed(self, seconds: float) -> float:
        """Return a time limit for a step; infinite without one, where the step counts."""
        return min(seconds, self.left) if self.is_timed else math.inf
