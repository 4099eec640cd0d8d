"""GDMM: structural SVMs of chains with thousands of labels, one factor at a time.

Yen et al. 2016. Tokens and edges are multiclass machines of their own, made to agree by
multipliers; the search for a factor's best label is sublinear in its domain. See
``_kernels/gdmm/sweep.py``.
"""

from __future__ import annotations

from dataclasses import InitVar, dataclass
from typing import Any, ClassVar

import numpy as np

from cliquewise.certificate import Certificate
from cliquewise.errors import DataError
from cliquewise.graph.factor_graph import Floats
from cliquewise.problems.chain import ChainProblem
from cliquewise.solvers.backends import gdmm_state as active
from cliquewise.solvers.backends.gdmm_state import ActiveSets
from cliquewise.solvers.base import Info, Solver, register

STEPS = ("bcfw", "afw", "bgcd")
SEARCHES = ("sublinear", "full", "sampled")

#: Up to so many labels a whole Viterbi table is cheaper than a sparse one.
FEW_LABELS = 256


@register
@dataclass(frozen=True)
class GDMM(Solver):
    """Greedy direction method of multipliers, for chains with many labels.

    Parameters
    ----------
    step_rule : {"bcfw", "afw", "bgcd"}, default="bcfw"
        How a factor's active set moves (``step=`` is another name of it): to the best point for
        the labels it has, by one pairwise step with exact line search, or the former for the
        factors of greatest violation of each sequence only.
    factor_search : {"sublinear", "full", "sampled"}, default="sublinear"
        How an edge's best pair is found: by ordered bounds on the nonzero transitions, or by
        reading the whole table; both find the same. ``sampled`` is ``sublinear`` for edges and
        looks at one part of the labels of a token at a time.
    rho : float, default=1.0
        Penalty on the disagreement of tokens and edges, at the start.
    eta : float, default=1.0
        Step of the multipliers, in units of ``rho``.
    adaptive : bool, default=True
        Change ``rho`` where agreement and progress are out of balance.
    partition : int, default=3
        Parts of the labels with ``factor_search="sampled"``.
    admit : int, default=4
        Labels that one search may add to a token's active set, where searches are dear and rare;
        elsewhere one.
    quiet : float, default=0.1
        Factors whose gap is below this share of the average rest for 1, 3, then 7 passes, or
        until a neighbor moves; 0 visits all of them in every pass.

    Examples
    --------
    >>> from cliquewise.data.dataset import Dataset
    >>> from cliquewise.models.chain import ChainModel
    >>> from cliquewise.problems.chain import ChainProblem
    >>> from cliquewise.solvers.run import run
    >>> data = Dataset([0, 2, 3], [0, 1, 3, 4], [0, 0, 1, 1], None, 2, labels=[0, 1, 1])
    >>> problem = ChainProblem(ChainModel.build(data, 2), data, loss="hinge")
    >>> bool(run(problem, GDMM(step="bcfw"), tol=1e-4, random_state=0).converged)
    True
    """

    name: ClassVar[str] = "gdmm"
    losses: ClassVar[frozenset[str]] = frozenset({"hinge"})
    columns: ClassVar[tuple[str, ...]] = ("residual", "rho")
    step_rule: str = "bcfw"
    factor_search: str = "sublinear"
    rho: float = 1.0
    eta: float = 1.0
    adaptive: bool = True
    partition: int = 3
    admit: int = 4
    quiet: float = 0.1
    step: InitVar[str | None] = None

    def __post_init__(self, step: Any) -> None:
        if isinstance(step, str):
            object.__setattr__(self, "step_rule", step)
        if self.step_rule not in STEPS:
            raise DataError(f"step_rule is {', '.join(STEPS)}, not {self.step_rule!r}")
        if self.factor_search not in SEARCHES:
            raise DataError(f"factor_search is {', '.join(SEARCHES)}, not {self.factor_search!r}")
        for name in ("rho", "eta"):
            if not 0 < getattr(self, name) < np.inf:
                raise DataError(f"{name} = {getattr(self, name)}; it must be a positive number")
        for name in ("partition", "admit"):
            if getattr(self, name) < 1:
                raise DataError(f"{name} = {getattr(self, name)}; it must be at least 1")
        if not self.quiet >= 0:
            raise DataError(f"quiet = {self.quiet}; it must not be negative")

    def refuses(self, problem: Any) -> str | None:
        """Forbidden transitions: edges could then not be rounded to agree with their tokens."""
        reason = super().refuses(problem)
        if reason is None and len(problem.model.edge_allowed):
            return "cannot forbid transitions (a scheme or a mask)"
        return reason

    def memory(self, problem: Any) -> float:
        """Weights, tables of pairs, about 16 active labels per token and 8 pairs per edge."""
        model, data = problem.model, problem.data
        k = model.n_labels
        weights = float(8 * problem.dimension + 26.0 * k * k)
        per_attribute = np.minimum(20.0 * k, 20.0 * 16 * np.bincount(
            problem.chains.indices, minlength=model.n_attributes
        ) + 400)  # fmt: skip
        return float(weights + per_attribute.sum() + 1800.0 * data.n_tokens + 100 * (len(data) + 1))

    # ---- state

    def init(self, problem: ChainProblem, warm: Any = None) -> ActiveSets:
        """The truth alone, or the masses of ``warm`` for the examples it has."""
        state = active.begin(problem, self.rho)
        if isinstance(warm, ActiveSets):
            arrays = active.pack(warm)
            if not active.continues(arrays, problem):
                raise DataError("a warm start needs the same labels and at least the same examples")
            tokens = len(warm.chains.labels)
            if np.array_equal(warm.chains.allowed, problem.chains.allowed[:tokens]):
                state = active.unpack(problem, arrays, warm.rho)
        active.fill(problem, state)
        return state

    def pack(self, state: ActiveSets) -> dict[str, np.ndarray[Any, Any]]:
        """Active labels and pairs with their masses and multipliers."""
        return active.pack(state)

    def unpack(self, problem: ChainProblem, arrays: dict[str, np.ndarray[Any, Any]]) -> ActiveSets:
        """Back from :meth:`pack`."""
        same = np.array_equal(arrays["offsets"], problem.data.offsets)
        if not same or not active.continues(arrays, problem):
            raise DataError("the checkpoint is of other data: its arrays have other shapes")
        state = active.unpack(problem, arrays, float(arrays["rho"][0]))
        active.fill(problem, state)
        return state

    # ---- one step

    def step(  # type: ignore[misc]  # noqa: F811
        self, problem: ChainProblem, state: ActiveSets, rng: np.random.Generator
    ) -> tuple[ActiveSets, Info]:
        """One pass over all sequences."""
        from cliquewise._kernels.gdmm import messages as kernels
        from cliquewise._kernels.gdmm.sweep import run_pass

        n = problem.n_examples
        order = rng.permutation(n)
        salt = int(rng.integers(1 << 30))
        limits = active.sequence_limits(state.chains)
        stats = np.zeros(kernels.N_STATS)
        told = kernels.Pass(
            problem.model.n_labels, state.rho, self.eta, STEPS.index(self.step_rule),
            SEARCHES.index(self.factor_search),
            self.partition if self.factor_search == "sampled" else 1,
            salt, self.admit, self.quiet * state.violations,
        )  # fmt: skip
        at = 0
        while at < n:
            at += run_pass(
                state.chains, state.rows, state.table, state.support, state.pairs, state.masses,
                order[at:], state.schedule, told, stats,
            )  # fmt: skip
            if at < n or stats[kernels.FULL]:
                active.grow(state, *limits)
                stats[kernels.FULL] = 0
        state.passes += 1
        for which, (gap, mass) in enumerate(kernels.GAPS):
            if stats[mass] > 0:
                state.violations[which] = stats[gap] / stats[mass]
        state.work += 0.2 * (float(stats[kernels.WORK]) - state.work)
        state.residual = float(np.sqrt(stats[kernels.RESIDUAL]))
        if self.adaptive and state.passes % 3 == 0:
            self._balance(state, stats)
        calls = int(stats[kernels.SEARCHES])
        return state, Info(1.0, calls, self._estimate(problem, state, stats))

    def _balance(self, state: ActiveSets, stats: Floats) -> None:
        """Raise rho where tokens and edges disagree, lower it where they move too little."""
        from cliquewise._kernels.gdmm import messages as kernels

        tiny = 1e-300
        apart = np.sqrt(stats[kernels.RESIDUAL] / max(stats[kernels.SQUARES], tiny))
        moved = state.rho * np.sqrt(stats[kernels.CHANGE] / max(stats[kernels.LAMS], tiny))
        if apart > 3 * moved:
            state.rho = min(1.5 * state.rho, 1e6)
        elif moved > 3 * apart:
            state.rho = max(state.rho / 1.5, 1e-6)

    def _estimate(self, problem: ChainProblem, state: ActiveSets, stats: Floats) -> float:
        """Gaps of the factors and what their disagreement is worth, in terms of the last primal."""
        from cliquewise._kernels.gdmm import messages as kernels

        if not np.isfinite(state.primal):
            return float("nan")
        lengths = np.diff(state.chains.offsets)
        mass = state.masses @ lengths, state.masses @ np.maximum(lengths - 1, 0)
        gap = float(state.violations @ np.array(mass)) + abs(float(stats[kernels.COUPLING]))
        gap /= problem.C * max(problem.n_examples, 1)
        return gap / max(abs(state.primal), 1e-12)

    def check_cost(self, state: ActiveSets) -> float:
        """By what was read: a certificate searches every token, a pass only some.

        More than that, as it also makes all weights afresh (measured: a third to a half of it).
        """
        return max(1.0, 2.5 * state.check_work / max(state.work, 1.0))

    # ---- what it proves

    def certify(self, problem: ChainProblem, state: ActiveSets) -> Certificate:
        """The primal of the weights by exact Viterbi, and the dual of the repaired masses.

        Both in float64 from the masses. The truth is a dual point, too, so that the best of the
        line from it through the repaired masses counts.
        """
        from cliquewise._kernels.gdmm.repair import repaired_pairs, wrong_mass
        from cliquewise._kernels.gdmm.rows import squared_norm

        active.fill(problem, state)
        k, n = problem.model.n_labels, max(problem.n_examples, 1)
        norm = float(squared_norm(state.rows))
        pairs = state.table.values
        losses = self._losses(problem, state)
        total = float(state.chains.weights @ losses)
        state.primal = problem.value(norm + float(pairs @ pairs), total)
        target = np.zeros(k * k)
        repaired_pairs(
            state.chains, state.table, state.support, state.pairs, state.masses, k, target
        )
        linear = float(wrong_mass(state.support)) / (problem.C * n)
        square = problem.lam * (norm + float(target @ target))
        share = min(1.0, linear / square) if square > 0 else 1.0
        return Certificate(state.primal, share * linear - 0.5 * share * share * square, "exact")

    def _losses(self, problem: ChainProblem, state: ActiveSets) -> Floats:
        """Loss of every example, by the Viterbi that suits the number of labels."""
        from cliquewise._kernels.gdmm.viterbi import sparse_losses

        k, n = problem.model.n_labels, problem.n_examples
        if k <= FEW_LABELS and problem.dimension <= 1 << 25:
            each = problem.data.n_tokens * (100 + k * k / 6)
            state.check_work = float(len(state.chains.indices) * k / 4 + each)
            return problem.losses(self.weights(problem, state))
        losses = np.zeros(n)
        state.check_work = float(
            sparse_losses(state.chains, state.rows, state.table, k, 0, n, losses)
        )
        return losses

    def extras(self, problem: ChainProblem, state: ActiveSets) -> dict[str, float]:
        """How far tokens and edges were apart in the last pass, and the penalty on it."""
        return {"residual": state.residual, "rho": state.rho}

    def weights(self, problem: ChainProblem, state: ActiveSets) -> Floats:
        """Weights of the masses as they are."""
        from cliquewise._kernels.gdmm.rows import write_weights

        model = problem.model
        out = np.zeros(model.dimension)
        write_weights(state.rows, model.pair_start, model.pair_label, model.n_labels, out)
        out[model.n_emissions :] = state.table.values
        return out
