"""The state of `svrg` and `casimir`, and its arrays in a checkpoint."""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np

from cliquewise.ragged import Floats
from cliquewise.solvers.array_checks import check, checked
from cliquewise.solvers.backends.base import Smoothing
from cliquewise.solvers.base import Arrays, State, other_data

VECTORS = ("w", "z", "z_before", "slope", "best")
NUMBERS = ("alpha", "outer", "rate", "cost", "dual", "rounding", "rounding_error", "best_value",
           "full_passes", "exact", "mu", "lowest", "least_slack", "stalled", "cool", "max_calls",
           "top_k_calls", "exp_calls", "full_calls", "full_seconds", "lam", "gamma")  # fmt: skip

#: Numbers that are infinite before they are known.
UNBOUNDED = ("best_value", "lowest", "least_slack")

#: Oracle calls by kind, with those of full gradients; and calls and seconds of full gradients.
COUNTS = ("max_calls", "top_k_calls", "exp_calls", "full_calls", "full_seconds")


#: Fields that hold for one objective, but not for another C.
PROOFS = ("slope", "best", "cost", "dual", "rounding", "rounding_error", "best_value")


@dataclass
class Iterates(State):
    """State of the outer loop; vectors are in the backend's form."""

    backend: Smoothing
    examples: int
    w: Floats
    z: Floats  # the prox center
    z_before: Floats
    slope: Floats  # mean gradient of the distributions of the dual point
    best: Floats  # the weights of lowest certified objective
    lam: float  # lam and gamma of the problem that the proofs belong to
    gamma: float
    inner: Floats = field(
        default_factory=lambda: np.empty(0)
    )  # iterate of an unfinished subproblem
    mean: Floats = field(
        default_factory=lambda: np.empty(0)
    )  # mean gradient that an epoch has stored
    alpha: float = 1.0
    outer: int = 0
    rate: float = 0.0
    cost: float = 0.0
    dual: float = 0.0
    rounding: float = 0.0  # of the dual value, already subtracted
    rounding_error: float = 0.0  # of ``cost``
    best_value: float = float("inf")
    full_passes: int = 0
    exact: float = 1.0
    mu: float = 0.0
    mu_limit: float = float("inf")  # the smoothing of the last step, which must not increase
    lowest: float = float("inf")  # lowest objective at an anchor since the rate changed
    least_slack: float = float("inf")  # lowest bound of its error, likewise
    stalled: int = 0  # outer steps since the last progress
    cool: float = 1.0  # factor of the scheduled smoothing
    max_calls: int = 0
    top_k_calls: int = 0
    exp_calls: int = 0
    full_calls: int = 0  # calls of full gradients, which may run in threads
    full_seconds: float = 0.0
    rounds: int = 0  # epochs on an unfinished subproblem
    proved: bool = False  # whether ``best`` was certified since the last step

    def packed(self) -> Arrays:
        """Return the vectors and the numbers."""
        numbers = [float(getattr(self, name)) for name in NUMBERS]
        return {
            **{name: getattr(self, name) for name in VECTORS},
            "sizes": self.backend.sizes,
            "numbers": np.array([self.examples, *numbers]),
        }

    def restored(self, arrays: Arrays) -> Iterates:
        """Return this initial state with the arrays of :meth:`packed`.

        Proofs of another objective (another C) are dropped.
        """
        vectors = {name: checked(arrays, name, self.w.shape) for name in VECTORS}
        self.backend.sizes = checked(arrays, "sizes", self.backend.sizes.shape)
        known = self._numbers(arrays)
        same = (known["lam"], known["gamma"]) == (self.lam, self.gamma)
        proofs = () if same else (*PROOFS, "lam", "gamma")
        for name in VECTORS:
            if name not in proofs:
                setattr(self, name, vectors[name])
        for name, value in known.items():
            if name not in proofs:
                setattr(self, name, type(getattr(self, name))(value))
        self.mu_limit = self.mu if self.outer > 0 and self.mu > 0 else float("inf")
        return self

    def _numbers(self, arrays: Arrays) -> dict[str, float]:
        """Return the numbers of a checkpoint after checks; some may be infinite."""
        every = arrays.get("numbers", np.empty(0)).copy()
        fits = every.dtype == np.float64 and every.shape == (1 + len(NUMBERS),)
        if not fits or every[0] != self.examples:
            raise other_data()
        known = dict(zip(NUMBERS, every[1:].tolist()))
        unknown = {name for name in UNBOUNDED if known[name] == np.inf}
        for name, value in known.items():
            check(name in unknown or abs(value) <= 1e150, f"its {name!r} is not in range")
            check(value >= 0 or name in ("dual", "cost"), f"its {name!r} is not in range")
            if isinstance(getattr(self, name), int):
                check(value == int(value), f"its {name!r} is not a whole number")
        check(known["alpha"] <= 1 and known["cool"] <= 1, "its shares are not in range")
        return known
