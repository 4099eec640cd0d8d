"""GDMM: structural SVMs of chains with thousands of labels, one factor at a time.

Yen et al. 2016. Tokens and edges are multiclass machines of their own, made to agree by
multipliers; the search for a factor's best label is sublinear in its domain. See
``_kernels/gdmm_pass.py``.
"""

from __future__ import annotations

from dataclasses import InitVar, dataclass
from typing import Any, ClassVar

import numpy as np

from cliquewise.certificate import Certificate
from cliquewise.errors import DataError
from cliquewise.graph import Floats
from cliquewise.problem import ChainProblem
from cliquewise.solvers import _gdmm_state as active
from cliquewise.solvers._gdmm_state import ActiveSets
from cliquewise.solvers.base import Info, Solver, register

STEPS = ("bcfw", "afw", "bgcd")
SEARCHES = ("sublinear", "full", "sampled")


@register
@dataclass(frozen=True)
class GDMM(Solver):
    """Greedy direction method of multipliers.

    Parameters
    ----------
    step_rule : {"bcfw", "afw", "bgcd"}, default="bcfw"
        How a factor's active set moves (also accepted as ``step=``).
    """

    name: ClassVar[str] = "gdmm"
    losses: ClassVar[frozenset[str]] = frozenset({"hinge"})
    columns: ClassVar[tuple[str, ...]] = ("residual",)
    step_rule: str = "bcfw"
    factor_search: str = "sublinear"
    rho: float = 1.0
    eta: float = 1.0
    adaptive: bool = True
    partition: int = 3
    longest_delay: int = 7
    step: InitVar[str | None] = None

    def __post_init__(self, step: str | None = None) -> None:
        if isinstance(step, str):
            object.__setattr__(self, "step_rule", step)
        if self.step_rule not in STEPS:
            raise DataError(f"step_rule is {', '.join(STEPS)}, not {self.step_rule!r}")
        if self.factor_search not in SEARCHES:
            raise DataError(f"factor_search is {', '.join(SEARCHES)}, not {self.factor_search!r}")

    def init(self, problem: ChainProblem, warm: ActiveSets | None = None) -> ActiveSets:
        state = active.begin(problem, self.rho)
        active.fill(problem, state)
        return state

    def step(  # type: ignore[no-redef]
        self, problem: ChainProblem, state: ActiveSets, rng: np.random.Generator
    ) -> tuple[ActiveSets, Info]:
        from cliquewise._kernels import gdmm_pass as kernels

        n = problem.n_examples
        order = rng.permutation(n)
        limits = active.sequence_limits(state.chains)
        stats = np.zeros(kernels.N_STATS)
        salt = int(rng.integers(1 << 30))
        at = 0
        while at < n:
            at += kernels.run_pass(
                state.chains, state.rows, state.table, state.support, state.pairs, state.masses,
                order[at:], state.wait, state.delay, self.longest_delay, problem.model.n_labels,
                state.rho, self.eta, STEPS.index(self.step_rule),
                SEARCHES.index(self.factor_search), self.partition, salt, stats,
            )  # fmt: skip
            if at < n or stats[kernels.FULL]:
                active.enlarge(state, *limits)
                stats[kernels.FULL] = 0
        state.passes += 1
        state.stats = stats
        state.work = float(stats[kernels.WORK])
        if self.adaptive and state.passes % 3 == 0:
            r = np.sqrt(stats[kernels.RESIDUAL] / max(stats[kernels.SQUARES], 1e-300))
            s = state.rho * np.sqrt(stats[kernels.CHANGE] / max(stats[kernels.LAMS], 1e-300))
            state.balance = (r, s)
            if r > 3 * s:
                state.rho *= 1.5
            elif s > 3 * r:
                state.rho /= 1.5
        return state, Info(1.0, 0, np.nan)

    def certify(self, problem: ChainProblem, state: ActiveSets) -> Certificate:
        from cliquewise._kernels.gdmm_repair import repaired_pairs, wrong_mass
        from cliquewise._kernels.gdmm_rows import squared_norm
        from cliquewise._kernels.gdmm_viterbi import sparse_losses

        active.fill(problem, state)
        k, n = problem.model.n_labels, problem.n_examples
        norm = float(squared_norm(state.rows))
        pairs = state.table.values
        losses = np.zeros(n)
        state.check_work = sparse_losses(state.chains, state.rows, state.table, k, 0, n, losses)
        total = float(state.chains.weights @ losses)
        primal = problem.value(norm + float(pairs @ pairs), total)
        target = np.zeros(k * k)
        repaired_pairs(state.chains, state.table, state.support, state.pairs, state.masses, k, target)
        linear = float(wrong_mass(state.support)) / problem.C
        dual = linear / max(n, 1) - 0.5 * problem.lam * (norm + float(target @ target))
        return Certificate(primal, dual, "exact")

    def weights(self, problem: ChainProblem, state: ActiveSets) -> Floats:
        from cliquewise._kernels.gdmm_rows import write_weights

        model = problem.model
        out = np.zeros(model.dimension)
        write_weights(state.rows, model.pair_start, model.pair_label, model.n_labels, out)
        out[model.n_emissions :] = state.table.values
        return out
