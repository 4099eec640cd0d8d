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
from cliquewise.graph.factor_graph import Floats
from cliquewise.graph.structure import Ints
from cliquewise.problems.chain import ChainProblem
from cliquewise.solvers.base import Info, Solver, register

#: Arrays of the state that are one entry, or one row, per example, token or linked example.
STORED = ("mu", "mu_edges", "losses", "smoothness", "patience", "wait")


@dataclass
class Averages:
    """Weights, the last gradient of every example, and the sum of those."""

    memory: Any  # the kernels' named tuple
    w: Floats  # packed, as all weight vectors here
    d: Floats
    visits: int
    order: Ints = field(default_factory=lambda: np.empty(0, dtype=np.int64))


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
    losses: ClassVar[frozenset[str]] = frozenset({"log"})
    uniform_share: float = 0.5

    def __post_init__(self) -> None:
        if not 0 <= self.uniform_share <= 1:
            raise DataError(f"uniform_share = {self.uniform_share}; it must be in [0, 1]")

    def refuses(self, problem: Any) -> str | None:
        """Refuse other losses, and labels that are not known."""
        if not problem.is_convex:
            return "needs every label: with partial labels the problem is not convex"
        return super().refuses(problem)

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
        inside = np.ones(data.n_tokens, dtype=bool)
        inside[data.offsets[:-1][data.lengths > 0]] = False
        at = np.flatnonzero(inside)
        row = np.repeat(memory.edge_row, data.lengths)[at]
        np.add.at(memory.mu_edges, (row, labels[at - 1], labels[at]), 1.0)

    def init(self, problem: ChainProblem, warm: Any = None) -> Averages:
        """Zero weights, or the gradients of ``warm`` for the examples it has and their weights."""
        memory = self._empty(problem)
        if not isinstance(warm, Averages):
            return self._with_sum(problem, memory, 0)
        for name in STORED:
            source, target = getattr(warm.memory, name), getattr(memory, name)
            if source.shape[1:] != target.shape[1:] or len(source) > len(target):
                raise DataError("a warm start needs the same labels and at least the same examples")
            target[: len(source)] = source
        state = self._with_sum(problem, memory, 0)
        if len(warm.w) == len(state.w):
            state.w[:] = warm.w
        else:  # where the gradients that are stored would hold the weights in balance
            state.w[:] = -problem.C * state.d
        return state

    def _with_sum(self, problem: ChainProblem, memory: Any, visits: int) -> Averages:
        from cliquewise._kernels.chain.sdca import weights_of_duals

        form = problem.form
        state = Averages(memory, form.zeros(), form.zeros(), visits)
        weights_of_duals(form.chains, memory, -1.0, state.d)
        return state

    # ---- one step

    def _order(self, n: int, state: Averages, count: int, rng: np.random.Generator) -> Ints:
        """The examples of the next visits; -1 for one to be drawn by its smoothness."""
        if state.visits >= n:
            order = rng.integers(0, n, count)
            order[rng.random(count) >= self.uniform_share] = -1
            return order
        if len(state.order) != n:
            state.order = rng.permutation(n)
        return state.order[state.visits : state.visits + count]

    def step(
        self, problem: ChainProblem, state: Averages, rng: np.random.Generator
    ) -> tuple[Averages, Info]:
        """Visit a pass of examples, or as many as keep one call below about two seconds."""
        from cliquewise._kernels.chain import sag as chain_sag

        n = problem.n_examples
        if n == 0:
            return state, Info(1.0, 0, 0.0)
        work = problem.data.n_tokens * problem.model.n_labels**2
        pieces = min(n, 1 + int(work // 400_000_000))
        count = min(-(-n // pieces), n - state.visits % n)
        order = self._order(n, state, count, rng)
        calls = chain_sag.epoch(
            problem.chains, state.memory, state.w, state.d, problem.lam, order, rng.random(count)
        )
        state.visits += count
        estimate = np.nan
        if state.visits >= n:
            slope = problem.lam * state.w + state.d / n
            gap = float(slope @ slope) / (2 * problem.lam)
            total = float(problem.chains.weights @ state.memory.losses)
            value = problem.value(float(state.w @ state.w), total)
            estimate = gap / max(abs(value), 1e-12)
        return state, Info(count / n, calls, estimate)

    def weights(self, problem: ChainProblem, state: Averages) -> Floats:
        """The iterate."""
        return problem.form.unpack(state.w)

    def pack(self, state: Averages) -> dict[str, np.ndarray[Any, Any]]:
        """The weights and what is stored of every example; the sum follows from it."""
        arrays = {name: getattr(state.memory, name) for name in STORED}
        return {**arrays, "w": state.w, "visits": np.array([state.visits])}

    def unpack(self, problem: ChainProblem, arrays: dict[str, np.ndarray[Any, Any]]) -> Averages:
        """Back from :meth:`pack`."""
        memory = self._empty(problem)
        for name in STORED:
            target = getattr(memory, name)
            if target.shape != arrays[name].shape:
                raise DataError("the checkpoint is of other data: its arrays have other shapes")
            target[:] = arrays[name]
        state = self._with_sum(problem, memory, int(arrays["visits"][0]))
        if state.w.shape != arrays["w"].shape:
            raise DataError("the checkpoint is of other data: its arrays have other shapes")
        state.w[:] = arrays["w"]
        return state
