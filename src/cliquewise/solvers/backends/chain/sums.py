"""Subgradient steps on chains."""

from __future__ import annotations

import numpy as np

from cliquewise.problems.chain import ChainProblem
from cliquewise.ragged import Floats, Ints
from cliquewise.solvers.backends.base import MapSettings


class ChainSums:
    """Steps inside a kernel; see ``_kernels/chain/hinge.py``."""

    def __init__(self, problem: ChainProblem, settings: MapSettings):
        self.problem, self.form, self.sizes = problem, problem.form, np.empty(0)

    def weight_error_scale(self, visits: int) -> Floats:
        f, passes = self.problem.features, visits / max(self.problem.n_examples, 1) + 1.0
        return self.problem.C * passes * (f.deep + 4.0 * passes * f.counts * f.total)

    @classmethod
    def memory(cls, problem: ChainProblem, settings: MapSettings) -> float:
        """Return the bytes of four weight vectors, and of the order of the examples."""
        return 32.0 * problem.form.size + 40.0 * problem.n_examples

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
        return self.problem.upper_bound(w, self.problem.packed_primal(w))

    def unpacked(self, w: Floats) -> Floats:
        return self.form.unpack(w)
