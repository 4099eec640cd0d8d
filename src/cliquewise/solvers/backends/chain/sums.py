"""Subgradient's backend on chains."""

from __future__ import annotations

from typing import Any

import numpy as np

from cliquewise.problems.chain import ChainProblem
from cliquewise.ragged import Floats, Ints


class ChainSums:
    """Steps inside a kernel; see ``_kernels/chain/hinge.py``."""

    def __init__(self, problem: ChainProblem, solver: Any):
        self.problem, self.form, self.sizes = problem, problem.form, np.empty(0)

    def weight_error_scale(self, visits: int) -> Floats:
        f, passes = self.problem.features, visits / max(self.problem.n_examples, 1) + 1.0
        return self.problem.C * passes * (f.deep + 4.0 * passes * f.counts * f.total)

    @staticmethod
    def size(problem: ChainProblem) -> int:
        """Length of a vector of weights."""
        return problem.form.size

    def zeros(self) -> Floats:
        return self.form.zeros()

    def visit(
        self, order: Ints, z: Floats, sums: Floats, visits: int, delay: float
    ) -> tuple[int, float]:
        from cliquewise._kernels.chain.hinge import pegasos

        return pegasos(  # type: ignore[no-any-return]
            self.form.chains, z, sums, self.problem.C, order, visits, delay
        )

    def primal(self, w: Floats) -> tuple[float, bool]:
        return self.problem.packed_primal(w), True

    def unpacked(self, w: Floats) -> Floats:
        return self.form.unpack(w)
