"""Where the outer loops of SVRG and Casimir stand, and the same as arrays of a checkpoint."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import numpy as np

from cliquewise.ragged import Floats
from cliquewise.solvers.array_checks import check, checked
from cliquewise.solvers.backends.base import Smoothing
from cliquewise.solvers.base import Arrays, State, other_data

VECTORS = ("w", "z", "z_before", "slope", "best")
NUMBERS = ("alpha", "outer", "rate", "cost", "dual", "rounding", "rounding_error", "best_value",
           "full_passes", "exact", "mu", "lowest", "least_slack", "stalled", "cool", "max_calls",
           "top_k_calls", "exp_calls", "full_calls", "full_seconds", "lam", "gamma")  # fmt: skip

#: Those of them that are infinite before they are known.
UNBOUNDED = ("best_value", "lowest", "least_slack")

#: Calls of each kind, those of full gradients among them; these apart, with their seconds.
COUNTS = ("max_calls", "top_k_calls", "exp_calls", "full_calls", "full_seconds")


#: What is proved for one objective, and not for that of another C.
PROOFS = ("slope", "best", "cost", "dual", "rounding", "rounding_error", "best_value")


@dataclass
class Iterates(State):
    """Where the outer loop stands; vectors are in the backend's own form."""

    backend: Smoothing
    examples: int
    w: Floats
    z: Floats  # the prox center
    z_before: Floats
    slope: Floats  # of the dual point: the mean gradient of its distributions
    best: Floats  # the weights of least certified objective
    lam: float  # of the problem, as is gamma: what was proved holds for no other
    gamma: float
    inner: Floats = field(default_factory=lambda: np.empty(0))  # of a subproblem under way
    mean: Floats = field(default_factory=lambda: np.empty(0))  # gradient that an epoch has kept
    alpha: float = 1.0
    outer: int = 0
    rate: float = 0.0
    cost: float = 0.0
    dual: float = 0.0
    rounding: float = 0.0  # by how much it was lowered
    rounding_error: float = 0.0  # by how much ``cost`` may be wrong
    best_value: float = float("inf")
    full_passes: int = 0
    exact: float = 1.0
    mu: float = 0.0
    lowest: float = float("inf")  # objective at an anchor, since the rate changed
    least_slack: float = float("inf")  # the least bound of its error, likewise
    stalled: int = 0  # outer steps since then
    cool: float = 1.0  # times the smoothing of the schedule
    max_calls: int = 0
    top_k_calls: int = 0
    exp_calls: int = 0
    full_calls: int = 0  # calls of whole passes, which may be made in threads
    full_seconds: float = 0.0
    rounds: int = 0  # epochs of the subproblem under way
    proved: bool = False  # whether ``best`` was certified since the last step

    def packed(self) -> Arrays:
        """The vectors and the numbers."""
        numbers = [float(getattr(self, name)) for name in NUMBERS]
        return {
            **{name: getattr(self, name) for name in VECTORS},
            "sizes": self.backend.sizes,
            "numbers": np.array([self.examples, *numbers]),
        }

    def restored(self, arrays: Arrays) -> Iterates:
        """This first state with what was packed, less what was proved for another objective."""
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
        return self

    def _numbers(self, arrays: Arrays) -> dict[str, Any]:
        """The numbers of a checkpoint; some of them are infinite at first."""
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
                check(value == int(value), f"its {name!r} is no whole number")
        check(known["alpha"] <= 1 and known["cool"] <= 1, "its shares are not in range")
        return known
