"""Dual distributions of sequences, each with a step length of its own: what `oeg` moves."""

from __future__ import annotations

from typing import Any

import numpy as np

from cliquewise.problems.chain import ChainProblem
from cliquewise.ragged import Floats, Ints
from cliquewise.solvers.array_checks import checked
from cliquewise.solvers.backends.chain.duals import ChainDuals
from cliquewise.solvers.base import Arrays


class SteppingDuals(ChainDuals):
    """`ChainDuals` in one thread, and the length of every sequence's next step."""

    steps: Floats

    def __init__(self, problem: ChainProblem, start: float, step: float):
        super().__init__(problem, start, gamma=1.0, by_gap=False)
        self.steps = np.full(problem.n_examples, step)

    @staticmethod
    def threads(problem: ChainProblem) -> int:
        """One: a step that others disturb would be judged by what they do."""
        return 1

    def visit_in_steps(self, order: Ints, growth: float) -> int:
        """Move the distributions of the examples, each by its step; the inferences made."""
        from cliquewise._kernels.chain import oeg

        given = self.form.chains, self.arrays, self.steps, self.w
        return int(oeg.epoch(*given, self._strength, growth, order))

    # ---- from elsewhere

    def continue_from(self, warm: Any) -> None:
        super().continue_from(warm)
        self.steps[: len(warm.steps)] = warm.steps

    def pack(self) -> Arrays:
        return {**super().pack(), "steps": self.steps}

    def unpack(self, arrays: Arrays) -> None:
        super().unpack(arrays)
        self.steps = checked(arrays, "steps", self.steps.shape, low=1e-300, high=1.0)
