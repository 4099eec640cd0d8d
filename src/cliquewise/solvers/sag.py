"""SAG: stochastic average gradient with non-uniform sampling, on the primal objective.

Algorithm 1 of Schmidt et al. 2015, "Non-uniform stochastic average gradient method for training
conditional random fields"::

    repeat:
        sample i in proportion to its smoothness constant L_i, or uniformly
        g    <- gradient of the loss of x_i at w;  d <- d + g - g_i;  g_i <- g
        L_i  <- from a line search
        w    <- w - (lam w + d / n) / L                    # updates of unused weights are delayed

See ``_kernels/chain/sag.py`` for the step.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, ClassVar

import numpy as np

from cliquewise.certificate import Certificate
from cliquewise.errors import DataError
from cliquewise.problems.base import Problem
from cliquewise.problems.chain import ChainProblem
from cliquewise.ragged import Floats
from cliquewise.solvers.array_checks import MAX_COUNT, MAX_NUMBER, ROUNDING, checked, count_of
from cliquewise.solvers.base import (
    ALL_BUT_MODEL,
    Arrays,
    Capabilities,
    Info,
    Solver,
    State,
    Warm,
)
from cliquewise.solvers.parameters import share
from cliquewise.solvers.registry import register
from cliquewise.solvers.sampling import Order

#: The arrays that define a state, with one row per example, token or linked example, and their
#: largest values.
STORED = {
    "mu": 1.0 + ROUNDING, "mu_edges": float(MAX_COUNT), "losses": MAX_NUMBER,
    "smoothness": MAX_NUMBER,
    "patience": 2**31, "wait": 2**31,
}  # fmt: skip


@dataclass
class Averages(State):
    """Weights, the last gradient of every example as marginals, and the sum of the gradients."""

    memory: Any  # the kernels' named tuple
    w: Floats  # packed, as all weight vectors here
    d: Floats
    order: Order = field(default_factory=Order)


@register
@dataclass(frozen=True)
class SAG(Solver[ChainProblem, Averages]):
    """Stochastic average gradient.

    The first epoch visits every example once. After it, examples are sampled in proportion to
    their smoothness constants, which line searches estimate, or uniformly.

    Parameters
    ----------
    uniform_share : float, default=0.5
        Share of uniformly sampled visits.

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
    capabilities: ClassVar[Capabilities] = Capabilities({"chain": frozenset({"log"})}, rank=85)
    uniform_share: float = 0.5

    def __post_init__(self) -> None:
        super().__post_init__()
        share(self, "uniform_share")

    def refuses(self, problem: Problem) -> str | None:
        """Reject other losses and unknown labels."""
        reason = super().refuses(problem)
        if reason is None and not problem.is_convex:
            return "needs every label: with partial labels the problem is not convex"
        return reason

    def tolerated_changes(self, problem: ChainProblem) -> frozenset[str]:
        """Return what may change: certificates are those of the weights."""
        return ALL_BUT_MODEL

    def memory(self, problem: ChainProblem) -> float:
        """Return a number per token and label, per sequence and label pair, and four vectors."""
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
        """Store the marginals of the truth, whose gradient is zero."""
        labels, data = problem.chains.labels, problem.data
        memory.mu[np.arange(data.n_tokens), labels] = 1.0
        at = data.followers
        row = np.repeat(memory.edge_row, data.lengths)[at]
        np.add.at(memory.mu_edges, (row, labels[at - 1], labels[at]), 1.0)

    def init(self, problem: ChainProblem, warm: Warm = None) -> Averages:
        """Start at zero, or at the weights and gradients of ``warm``."""
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
        else:  # the weights that balance the stored gradients
            state.w[:] = -problem.C * state.d
        return state

    def _with_sum(self, problem: ChainProblem, memory: Any) -> Averages:
        from cliquewise._kernels.chain.sdca import weights_of_duals

        form = problem.form
        state = Averages(memory, form.zeros(), form.zeros())
        weights_of_duals(form.chains, memory, -1.0, state.d, 0, problem.model.n_attributes)
        return state

    # ---- one step

    def step(self, problem: ChainProblem, state: Averages, rng: np.random.Generator) -> Info:
        """Visit all examples once, or as many as take about two seconds."""
        from cliquewise._kernels.chain import sag as chain_sag

        n = problem.n_examples
        if n == 0:
            return Info(1.0, 0, 0.0)
        count = state.order.count(n, problem.max_step_examples)
        order = state.order.sample(n, count, rng, "gap", self.uniform_share)
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
        return Info(count / n, calls, estimate)

    def certify(self, problem: ChainProblem, state: Averages) -> Certificate:
        """Return the bound of the gradient at the weights."""
        return problem.certificate(self.weights(problem, state))

    def weights(self, problem: ChainProblem, state: Averages) -> Floats:
        """Return the iterate."""
        return problem.form.unpack(state.w)

    def pack(self, state: Averages) -> Arrays:
        """Return the weights and the stored gradients; their sum follows from them."""
        arrays = {name: getattr(state.memory, name) for name in STORED}
        visits = np.array([state.order.visits])
        return {**arrays, "w": state.w, "visits": visits, "order": state.order.order}

    def unpack(self, problem: ChainProblem, arrays: Arrays) -> Averages:
        """Return a state from :meth:`pack`; the sum of the gradients is recomputed."""
        memory = self._empty(problem)
        for name, high in STORED.items():
            target = getattr(memory, name)
            target[:] = checked(arrays, name, target.shape, target.dtype, 0, high)
        state = self._with_sum(problem, memory)
        visits = count_of(arrays, "visits")
        state.order = Order.from_arrays(arrays, visits, problem.n_examples)
        state.w[:] = checked(arrays, "w", state.w.shape)
        return state
