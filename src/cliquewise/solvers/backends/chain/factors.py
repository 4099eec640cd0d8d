"""GDMM on chains with many labels: lists of active labels and pairs; see ``_kernels/gdmm/``."""

from __future__ import annotations

from typing import Self

import numpy as np

from cliquewise.certificate import Certificate
from cliquewise.errors import DataError
from cliquewise.problems.chain import ChainProblem
from cliquewise.problems.rounding import UNIT, lowered
from cliquewise.ragged import Floats, kernel_view
from cliquewise.solvers.array_checks import check, number_of
from cliquewise.solvers.backends.chain import active
from cliquewise.solvers.backends.factors import RULES, SEARCHES, Factors, FactorSettings
from cliquewise.solvers.base import Arrays, Info

#: Up to this number of labels a whole Viterbi table is faster than a sparse one.
FEW_LABELS = 256
#: Parts of the labels, one of which the sampled search reads at a time.
PARTS = 3


class ChainFactors(Factors[ChainProblem]):
    """Masses of active labels and pairs, multipliers, and the weights of the masses."""

    def __init__(self, problem: ChainProblem, settings: FactorSettings):
        self.problem, self.settings = problem, settings
        self.rule = RULES.index(settings.step_rule or "bcfw")
        self.search = SEARCHES.index(settings.factor_search)
        sampled = settings.factor_search == "sampled"
        self.parts = (settings.partition or PARTS) if sampled else 1
        rho = settings.rho
        self.sets = active.begin(problem, 1.0 if isinstance(rho, str) else rho)
        active.fill(problem, self.sets)

    @classmethod
    def memory(cls, problem: ChainProblem, settings: FactorSettings) -> float:
        """Return the bytes of weights, pair tables, and 24 active labels and pairs per token."""
        model, data = problem.model, problem.data
        k = model.n_labels
        weights = float(8 * problem.dimension + 26.0 * k * k)
        tokens = np.bincount(problem.chains.indices, minlength=model.n_attributes)
        per_attribute = np.minimum(24.0 * k, 24.0 * 16 * tokens + 480)
        lists = (140.0 * min(k, 24) + 700.0) * data.n_tokens
        return float(weights + per_attribute.sum() + lists + 100 * (len(data) + 1))

    @classmethod
    def refuses(cls, problem: ChainProblem, settings: FactorSettings) -> str | None:
        """Reject forbidden transitions and costs.

        With forbidden transitions, edges could not be repaired to agree with their tokens. With
        costs, the best of thousands of labels could not be found by its score.
        """
        if len(problem.chains.costs):
            return "minimizes the number of wrong labels and supports no other costs"
        if len(problem.model.edge_allowed):
            return "cannot forbid transitions (a scheme or a mask)"
        return None

    # ---- warm starts and checkpoints

    def continue_from(self, warm: Self) -> None:
        arrays = warm.pack()
        if not active.continues(arrays, self.problem):
            raise DataError("a warm start needs the same labels and at least the same examples")
        old, new = warm.sets.chains, self.problem.chains
        if np.array_equal(old.allowed, new.allowed[: len(old.labels)]):
            self._take(arrays, warm.sets.rho)

    def pack(self) -> Arrays:
        return active.pack(self.sets)

    def unpack(self, arrays: Arrays) -> None:
        active.check_lists(arrays, self.problem)
        rho = number_of(arrays, "rho")
        check(1e-30 <= rho <= 1e30, "its 'rho' is not in range")
        self._take(arrays, rho)

    def _take(self, arrays: Arrays, rho: float) -> None:
        self.sets = active.unpack(self.problem, arrays, rho)
        active.fill(self.problem, self.sets)

    # ---- one pass

    def sweep(self, rng: np.random.Generator) -> Info:
        from cliquewise._kernels.gdmm import messages as kernels
        from cliquewise._kernels.gdmm.sweep import run_pass

        state, n = self.sets, self.problem.n_examples
        order = rng.permutation(n)
        salt = int(rng.integers(1 << 30))
        limits = active.sequence_limits(state.chains)
        stats = np.zeros(kernels.N_STATS)
        plan = kernels.Pass(
            self.problem.model.n_labels, state.rho, float(self.settings.eta), self.rule,
            self.search, self.parts, salt, self.settings.max_new_labels,
            self.settings.shrink_below * state.violations,
        )  # fmt: skip
        at = 0
        while at < n:
            at += run_pass(
                state.chains, state.rows, state.table, state.support, state.pairs, state.masses,
                order[at:], state.schedule, plan, stats,
            )  # fmt: skip
            if at < n or stats[kernels.FULL]:
                active.grow(state, *limits)
                stats[kernels.FULL] = 0
        state.passes += 1
        for which, (gap, mass) in enumerate(kernels.GAPS):
            if stats[mass] > 0:
                state.violations[which] = stats[gap] / stats[mass]
        state.work += 0.2 * (float(stats[kernels.WORK]) - state.work)
        state.disagreement = float(stats[kernels.RESIDUAL])
        if self.settings.adaptive is not False and state.passes % 3 == 0:
            self._balance(stats)
        return Info(1.0, int(stats[kernels.SEARCHES]), self._estimate(stats))

    def _balance(self, stats: Floats) -> None:
        """Increase rho if tokens and edges disagree, decrease it if they move too little."""
        from cliquewise._kernels.gdmm import messages as kernels

        state, tiny = self.sets, 1e-300
        apart = np.sqrt(stats[kernels.RESIDUAL] / max(stats[kernels.SQUARES], tiny))
        moved = state.rho * np.sqrt(stats[kernels.CHANGE] / max(stats[kernels.LAMS], tiny))
        if apart > 3 * moved:
            state.rho = min(1.5 * state.rho, 1e6)
        elif moved > 3 * apart:
            state.rho = max(state.rho / 1.5, 1e-6)

    def _estimate(self, stats: Floats) -> float:
        """Return the gaps of the factors and of their disagreement, relative to the last primal."""
        from cliquewise._kernels.gdmm import messages as kernels

        state, problem = self.sets, self.problem
        if not np.isfinite(state.primal):
            return float("nan")
        lengths = np.diff(state.chains.offsets)
        mass = state.masses @ lengths, state.masses @ np.maximum(lengths - 1, 0)
        gap = float(state.violations @ np.array(mass)) + abs(float(stats[kernels.COUPLING]))
        gap /= problem.C * max(problem.n_examples, 1)
        return gap / max(abs(state.primal), 1e-12)

    @property
    def check_cost(self) -> float:
        """Cost of a certificate in passes, by the numbers read: it searches every token.

        The factor 2.5 includes the recomputation of all weights (measured: a third to a half).
        """
        return max(1.0, 2.5 * self.sets.check_work / max(self.sets.work, 1.0))

    # ---- certificate

    def certify(self) -> Certificate:
        """Return the primal of the weights by exact Viterbi, and the dual of the repaired masses.

        Both are computed in float64 from the masses. The truth is also a dual point, so the best
        point between it and the repaired masses counts.
        """
        from cliquewise._kernels.gdmm.repair import repaired_pairs, wrong_mass
        from cliquewise._kernels.gdmm.rows import squared_norm

        problem, state = self.problem, self.sets
        active.fill(problem, state)
        k, n = problem.model.n_labels, max(problem.n_examples, 1)
        largest = np.zeros(problem.model.n_attributes + 1)
        norm = float(squared_norm(state.rows, largest))
        pairs = state.table.values
        total = float(state.chains.weights @ self._losses())
        state.primal = problem.ridge_objective(norm + float(pairs @ pairs), total)
        target = np.zeros(k * k)
        repaired_pairs(
            state.chains, state.table, state.support, state.pairs, state.masses, k, target
        )
        wrong = float(wrong_mass(state.support)) / problem.C
        square = problem.lam * (norm + float(target @ target))
        share = min(1.0, wrong / n / square) if square > 0 else 1.0
        largest[-1] = np.abs(pairs).max(initial=0.0)
        error = problem.row_rounding_error(largest)
        largest[-1] = np.abs(target).max(initial=0.0)
        entries = float(state.support.count.sum() + 3.0 * state.pairs.count.sum() + 4.0 * k)
        penalty = 0.5 * share * share * square * (1.0 + UNIT * len(largest))
        bound = lowered(
            share * wrong / n, UNIT * entries * wrong / n, penalty, problem.lam, share * largest,
            share * self._summands(wrong, entries),
        )  # fmt: skip
        primal, exact = problem.raised(state.primal, error)
        return Certificate(primal, bound.value, "exact" if exact else "bound", bound.rounding)

    def _summands(self, wrong: float, entries: float) -> Floats:
        """Return the problem's scale, plus the error of masses that should sum to ``C c_i``."""
        problem, state = self.problem, self.sets
        total = active.token_masses(state)
        wanted = np.repeat(state.masses, np.diff(state.chains.offsets))
        some = wanted > 0
        apart = float((np.abs(total - wanted)[some] / wanted[some]).max(initial=0.0))
        most = float(state.support.count.max(initial=1) * (1 + state.pairs.count.max(initial=1)))
        drift = problem.C * problem.features.total * (apart / UNIT)
        return drift + problem.weight_error_scale_for(wrong, problem.additions(most, entries))

    def _losses(self) -> Floats:
        """Return the loss of every example, by the Viterbi that suits the number of labels."""
        from cliquewise._kernels.gdmm.viterbi import sparse_losses

        problem, state = self.problem, self.sets
        k, n = problem.model.n_labels, problem.n_examples
        if k <= FEW_LABELS and problem.dimension <= 1 << 25:
            each = problem.data.n_tokens * (100 + k * k / 6)
            state.check_work = float(len(state.chains.indices) * k / 4 + each)
            return problem.losses(self.weights())
        losses = np.zeros(n)
        state.check_work = float(
            sparse_losses(state.chains, state.rows, state.table, k, 0, n, losses)
        )
        return losses

    def extras(self) -> dict[str, float]:
        return {"disagreement": self.sets.disagreement, "rho": self.sets.rho}

    def weights(self) -> Floats:
        from cliquewise._kernels.gdmm.rows import write_weights

        model = self.problem.model
        out = np.zeros(model.dimension)
        pairs = kernel_view(model.pair_start), kernel_view(model.pair_label)
        write_weights(self.sets.rows, *pairs, model.n_labels, out)
        out[model.n_emissions :] = self.sets.table.values
        return out
