"""What subgradient steps of length ``1 / (lam s)`` have in common on chains and on graphs.

The weights are a plain average of subgradients, ``z / s`` at time s (in passes); after whole passes
the labelings met are a point of the dual (Shalev-Shwartz et al. 2011).
"""

from __future__ import annotations

from typing import Any

import numpy as np

from cliquewise.errors import DataError
from cliquewise.graph.factor_graph import Floats


class AveragedSteps:
    """Iterate, average and dual value of the sums that a state keeps."""

    delay: float

    def _check_delay(self) -> None:
        if not (np.isfinite(self.delay) and self.delay >= 0):
            raise DataError(f"delay = {self.delay}; it must be a number that is not negative")

    def _truth_cost(self, problem: Any) -> float:
        """Sum of the costs of the true labelings."""
        return 0.0

    def _time(self, problem: Any, state: Any) -> float:
        """The time s, in passes; the weights are ``z / s``."""
        return float(self.delay + state.visits / max(problem.n_examples, 1))

    def _current(self, problem: Any, state: Any) -> Floats:
        time = self._time(problem, state)
        return state.z / time if time > 0 else state.z  # type: ignore[no-any-return]

    def _mean(self, problem: Any, state: Any) -> Floats:
        """The average of the iterates after each visit, weighted by their times."""
        visits, n = float(state.visits), problem.n_examples
        total = visits * self.delay * n + 0.5 * visits * (visits + 1)
        return n * (visits * state.z - state.sums) / total  # type: ignore[no-any-return]

    def _dual(self, problem: Any, state: Any) -> float:
        """Value of the dual point that the labelings of all visits make, after whole passes."""
        n, time = max(problem.n_examples, 1), self._time(problem, state)
        truth = self._truth_cost(problem)
        if time == 0:
            return float(truth / n)
        norm = float(state.z @ state.z) / time**2
        return float((state.mistakes + self.delay * truth) / (n * time) - 0.5 * problem.lam * norm)

    def _end_visits(self, problem: Any, state: Any) -> None:
        """After the visits of a step: a whole pass proves something."""
        state.averaged = False
        if state.visits % problem.n_examples == 0:
            state.dual = max(state.dual, self._dual(problem, state))

    def _take_up(self, problem: Any, state: Any, arrays: dict[str, Any], key: str, own: Any) -> Any:
        """``state`` as a checkpoint left it; under another C its sums are scaled.

        ``arrays[key]`` must be ``own``: that of the problem.
        """
        same = state.z.shape == arrays["z"].shape and state.sums.shape == arrays["sums"].shape
        if not same or not np.array_equal(arrays[key], own):
            raise DataError("the checkpoint is of other data: its arrays have other shapes")
        strength, visits, state.mistakes, dual = arrays["numbers"].tolist()
        ratio = problem.C / strength
        state.z[:], state.sums[:] = ratio * arrays["z"], ratio * arrays["sums"]
        state.order, state.visits = np.array(arrays["order"]), int(visits)
        if ratio == 1.0:
            state.dual = dual
        elif problem.n_examples and state.visits % problem.n_examples == 0:
            state.dual = max(state.dual, self._dual(problem, state))
        return state
