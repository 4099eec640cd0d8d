"""SAG: stochastic average gradient with non-uniform sampling, on the primal objective.

The strongest published primal baseline for conditional random fields (Schmidt et al. 2015,
"Non-uniform stochastic average gradient method for training conditional random fields").
See ``_kernels/chain/sag.py`` for the step.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, ClassVar

import numpy as np

from cliquewise.errors import DataError
from cliquewise.problems.chain import ChainProblem
from cliquewise.ragged import Floats
from cliquewise.solvers.array_checks import MOST, ROUNDING, checked, count_of
from cliquewise.solvers.base import (
    ALL_BUT_MODEL,
    Arrays,
    Info,
    Solver,
    State,
    register,
    share,
)
from cliquewise.solvers.sampling import Order

#: Arrays of the state that are one entry, or one row, per example, token or linked example, and
#: the greatest numbers that they may have.
STORED = {
    "mu": 1.0 + ROUNDING, "mu_edges": float(MOST), "losses": 1e150, "smoothness": 1e150,
    "patience": 2**31, "wait": 2**31,
}  # fmt: skip


@dataclass
class Averages(State):
    """Weights, the last gradient of every example, and the sum of those."""

    memory: Any  # the kernels' named tuple
    w: Floats  # packed, as all weight vectors here
    d: Floats
    order: Order = field(default_factory=Order)


@register
@dataclass(frozen=True)
class SAG(Solver):
    """Stochastic average gradient.

    The first pass visits every example once. After it an example is drawn in proportion to
    its constant of smoothness, found by a line search of its own, or uniformly.

    Parameters
    ----------
    uniform_share : float, default=0.5
        Share of uniform draws.

    Examples
    --------
    >>> from cliquewise.data.dataset import Dataset
    >>> from cliquewise.models.chain import ChainModel
    >>> from cliquewise.problems.chain import ChainProblem
    >>> from cliquewise.solvers.run import run
    >>> data = Dataset([0, 2, 3], [0, 1, 3, 4], [0, 0, 1, 1], None, 2, labels=[0, 1, 1])
    >>> problem = ChainProblem(ChainModel.build(data, 2), data)
    >>> bool(run(problem, SAG(), tol=1e-6, max_epochs=10_000, random_state=0).converged)
    True
    """

    name: ClassVar[str] = "sag"
    works_on: ClassVar[dict[str, frozenset[str]]] = {"chain": frozenset({"log"})}
    rank: ClassVar[int] = 85
    tolerates_changes_in: ClassVar[frozenset[str]] = (
        ALL_BUT_MODEL  # proofs are those of the weights
    )
    uniform_share: float = 0.5

    def __post_init__(self) -> None:
        super().__post_init__()
        share(self, "uniform_share")

    def refuses(self, problem: Any) -> str | None:
        """Refuse other losses, and labels that are not known."""
        reason = super().refuses(problem)
        if reason is None and not problem.is_convex:
            return "needs every label: with partial labels the problem is not convex"
        return reason

    def memory(self, problem: Any) -> float:
        """A number per token and label, per sequence and label pair, and four weight vectors."""
        data, k, weights = problem.data, problem.model.n_labels, problem.form.size
        edges = int(np.count_nonzero(data.lengths > 1))
        return 8.0 * float(data.n_tokens * k + edges * k * k + 9 * len(data) + 4 * weights)

    # ---- state

    def _empty(self, problem: ChainProblem) -> Any:
        from cliquewise._kernels.chain.sag import NOTHING, Memory

        n, k = problem.n_examples, problem.model.n_labels
        linked = problem.data.lengths > 1
        rows = np.where(linked, np.cumsum(linked) - 1, -1).astype(np.int64)
        leaves = 1 << max(n - 1, 1).bit_length()
        memory = Memory(
            np.zeros((problem.data.n_tokens, k)), np.zeros((int(linked.sum()), k, k)), rows,
            np.zeros(n), np.zeros(n), np.zeros(n, dtype=np.int64), np.zeros(n, dtype=np.int64),
            np.zeros(2 * leaves), np.zeros(2 * leaves),
        )  # fmt: skip
        silent = (problem.data.lengths == 0) | (problem.chains.weights == 0)
        memory.smoothness[silent] = NOTHING
        self._store_truth(problem, memory)
        return memory

    def _store_truth(self, problem: ChainProblem, memory: Any) -> None:
        """Marginals of the truth: a gradient of zero."""
        labels, data = problem.chains.labels, problem.data
        memory.mu[np.arange(data.n_tokens), labels] = 1.0
        at = data.followers
        row = np.repeat(memory.edge_row, data.lengths)[at]
        np.add.at(memory.mu_edges, (row, labels[at - 1], labels[at]), 1.0)

    def init(self, problem: ChainProblem, warm: Any = None) -> Averages:
        """Zero weights, or the gradients of ``warm`` for the examples it has and their weights."""
        memory = self._empty(problem)
        if not isinstance(warm, Averages):
            return self._with_sum(problem, memory)
        for name in STORED:
            source, target = getattr(warm.memory, name), getattr(memory, name)
            if source.shape[1:] != target.shape[1:] or len(source) > len(target):
                raise DataError("a warm start needs the same labels and at least the same examples")
            target[: len(source)] = source
        state = self._with_sum(problem, memory)
        if len(warm.w) == len(state.w):
            state.w[:] = warm.w
        else:  # where the gradients that are stored would hold the weights in balance
            state.w[:] = -problem.C * state.d
        return state

    def _with_sum(self, problem: ChainProblem, memory: Any, visits: int = 0) -> Averages:
        from cliquewise._kernels.chain.sdca import weights_of_duals

        form = problem.form
        state = Averages(memory, form.zeros(), form.zeros(), Order(visits))
        weights_of_duals(form.chains, memory, -1.0, state.d, 0, problem.model.n_attributes)
        return state

    # ---- one step

    def step(
        self, problem: ChainProblem, state: Averages, rng: np.random.Generator
    ) -> tuple[Averages, Info]:
        """Visit a pass of examples, or as many as keep one call below about two seconds."""
        from cliquewise._kernels.chain import sag as chain_sag

        n = problem.n_examples
        if n == 0:
            return state, Info(1.0, 0, 0.0)
        count = state.order.count(n, problem.max_step_examples)
        order = state.order.draw(n, count, rng, "gap", self.uniform_share)
        calls = chain_sag.epoch(
            problem.chains, state.memory, state.w, state.d, problem.lam, order, rng.random(count)
        )
        estimate = np.nan
        if state.order.visits >= n:
            slope = problem.lam * state.w + state.d / n
            gap = float(slope @ slope) / (2 * problem.lam)
            total = float(problem.chains.weights @ state.memory.losses)
            value = problem.ridge_objective(float(state.w @ state.w), total)
            estimate = gap / max(abs(value), 1e-12)
        return state, Info(count / n, calls, estimate)

    def weights(self, problem: ChainProblem, state: Averages) -> Floats:
        """The iterate."""
        return problem.form.unpack(state.w)

    def pack(self, state: Averages) -> Arrays:
        """The weights and what is stored of every example; the sum follows from it."""
        arrays = {name: getattr(state.memory, name) for name in STORED}
        return {**arrays, "w": state.w, "visits": np.array([state.order.visits])}

    def resume_paths(self, state: Averages) -> tuple[str, ...]:
        """Running sums, and the order."""
        return ("d", "memory.sums", "memory.maxima", "order")

    def unpack(self, problem: ChainProblem, arrays: Arrays) -> Averages:
        """Back from :meth:`pack`."""
        memory = self._empty(problem)
        for name, high in STORED.items():
            target = getattr(memory, name)
            target[:] = checked(arrays, name, target.shape, target.dtype, 0, high)
        state = self._with_sum(problem, memory, count_of(arrays, "visits"))
        state.w[:] = checked(arrays, "w", state.w.shape)
        return state
