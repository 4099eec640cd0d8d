"""Dual distributions of sequences, each with its own step size, for `oeg`."""

from __future__ import annotations

from typing import Self

import numpy as np

from cliquewise.problems.chain import ChainProblem
from cliquewise.ragged import Floats, Ints
from cliquewise.solvers.array_checks import checked
from cliquewise.solvers.backends.base import DualSettings
from cliquewise.solvers.backends.chain.duals import ChainDuals
from cliquewise.solvers.base import Arrays


class SteppingDuals(ChainDuals):
    """`ChainDuals` in one thread, with the size of every sequence's next step."""

    steps: Floats

    def __init__(self, problem: ChainProblem, settings: DualSettings):
        super().__init__(problem, settings)
        self.steps = np.full(problem.n_examples, settings.step_length)

    @staticmethod
    def threads(problem: ChainProblem) -> int:
        """Return one: with more threads, the others' updates would disturb the test of a step."""
        return 1

    def visit_in_steps(self, order: Ints, growth: float) -> int:
        """Move the distributions of the examples, each by its step; return the inferences."""
        from cliquewise._kernels.chain import oeg

        given = self.form.chains, self.arrays, self.steps, self.w
        return int(oeg.epoch(*given, self._strength, growth, order))

    # ---- warm starts and checkpoints

    def continue_from(self, warm: Self) -> None:
        super().continue_from(warm)
        self.steps[: len(warm.steps)] = warm.steps

    def pack(self) -> Arrays:
        return {**super().pack(), "steps": self.steps}

    def unpack(self, arrays: Arrays) -> None:
        super().unpack(arrays)
        self.steps = checked(arrays, "steps", self.steps.shape, low=1e-300, high=1.0)
