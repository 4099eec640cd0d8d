"""SDCA: dual coordinate ascent for conditional random fields, with a duality gap.

One step visits examples one at a time; each visit moves that example's dual distribution
towards the model's own and the weights with it. See ``_kernels/chain/sdca.py`` for
the path, the line search and why neither needs a logarithm per edge.

The hinge loss is smoothed by gamma times the entropy, which makes its dual one of the same
kind, and gamma falls as training goes on. What is certified is the hinge loss itself: any dual
distributions, their entropy left out, give a lower bound of it.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, ClassVar

import numpy as np

from cliquewise.certificate import Certificate
from cliquewise.errors import DataError
from cliquewise.graph.factor_graph import Floats
from cliquewise.graph.structure import Ints
from cliquewise.problems.chain import ChainProblem
from cliquewise.solvers.base import Info, Solver, register

#: The entropy of the hinge loss is never weighted less.
LEAST_GAMMA = 1e-9
#: The hinge loss is smoothed less, by this factor, once the gap of the smoothed problem is below
#: this part of the entropy term. Faster falls lose more passes than they save (WSJ, CoNLL-2003).
FALL, SETTLED = 0.7, 0.3
#: Share of a pass's weights in the running average.
FRESH = 0.2


@dataclass
class Duals:
    """Dual distributions of all examples and the weights they give."""

    arrays: Any  # the kernels' named tuple
    w: Floats  # packed, as all weight vectors here
    visits: int
    gamma: float = 1.0  # all is kept for the objective over gamma: the weights are gamma w
    average: Floats = field(default_factory=lambda: np.empty(0))  # of the weights of passes
    averaged: bool = False  # whether the average is the better one of the two
    order: Ints = field(default_factory=lambda: np.empty(0, dtype=np.int64))


@register
@dataclass(frozen=True)
class SDCA(Solver):
    """Stochastic dual coordinate ascent.

    Parameters
    ----------
    sampling : {"gap", "permuted", "uniform", "cyclic"}, default="gap"
        Which example comes next: with probability ``1 - uniform_share`` in proportion to its
        last seen gap (after one pass over all), in reshuffled passes, at random, or in order.
    uniform_share : float, default=0.2
        Share of uniform draws with ``sampling="gap"``.
    line_search : bool, default=True
        False takes the step ``step_length`` always.
    step_length : float, default=0.1
        Step length without a line search.
    start : float, default=10.0
        Score of the true labels in the dual distributions at the start: close to the truth,
        but inside the simplex.
    gamma : float, default=1.0
        With the hinge loss: weight of the entropy at the start. It falls by 30 % whenever the gap
        of the smoothed problem has become a small part of what the entropy adds to it.
    """

    name: ClassVar[str] = "sdca"
    losses: ClassVar[frozenset[str]] = frozenset({"log", "hinge"})
    sampling: str = "gap"
    uniform_share: float = 0.2
    line_search: bool = True
    step_length: float = 0.1
    start: float = 10.0
    gamma: float = 1.0

    def __post_init__(self) -> None:
        if self.sampling not in ("gap", "permuted", "uniform", "cyclic"):
            raise DataError(f"sampling is gap, permuted, uniform or cyclic, not {self.sampling!r}")
        if not 0 <= self.uniform_share <= 1:
            raise DataError(f"uniform_share = {self.uniform_share}; it must be in [0, 1]")
        if not 0 < self.step_length <= 1:
            raise DataError(f"step_length = {self.step_length}; it must be in (0, 1]")
        if not LEAST_GAMMA <= self.gamma < np.inf:
            raise DataError(f"gamma = {self.gamma}; it must be at least {LEAST_GAMMA}")

    def refuses(self, problem: Any) -> str | None:
        """Refuse other losses, and labels that are not known."""
        if not problem.is_convex:
            return "needs every label: with partial labels the problem is not convex"
        return super().refuses(problem)

    def memory(self, problem: Any) -> float:
        """Two numbers per token and label, and per sequence and label pair."""
        k = problem.model.n_labels
        edges = int(np.count_nonzero(problem.data.lengths > 1))
        return float(8.0 * (2 * problem.data.n_tokens * k + 2 * edges * k * k + problem.form.size))

    # ---- state

    def _empty(self, problem: ChainProblem) -> Any:
        from cliquewise._kernels.chain.sdca import Duals as Arrays

        n, k = problem.n_examples, problem.model.n_labels
        linked = problem.data.lengths > 1
        rows = np.where(linked, np.cumsum(linked) - 1, -1).astype(np.int64)
        tokens, edges = (problem.data.n_tokens, k), (int(linked.sum()), k, k)
        leaves = 1 << max(n - 1, 1).bit_length() if self.sampling == "gap" else 0
        return Arrays(
            np.zeros(tokens), np.zeros(edges), np.zeros(tokens), np.zeros(edges),
            np.zeros(n), np.zeros(n), np.zeros(2 * leaves), rows,
        )  # fmt: skip

    def init(self, problem: ChainProblem, warm: Any = None) -> Duals:
        """Distributions close to the truth, or those of ``warm`` for the examples it has."""
        from cliquewise._kernels.chain import sdca as chain_sdca

        warm = warm if isinstance(warm, Duals) else None
        arrays = self._empty(problem)
        chain_sdca.start(problem.chains, arrays, self.start)
        arrays.gaps[:] = problem.data.lengths * np.log(max(problem.model.n_labels, 2))
        if warm is not None:
            _copy_prefix(warm.arrays, arrays)
        gamma = 1.0 if problem.loss == "log" else self.gamma if warm is None else warm.gamma
        return self._with_weights(problem, arrays, 0 if warm is None else warm.visits, gamma)

    def _with_weights(self, problem: ChainProblem, arrays: Any, visits: int, gamma: float) -> Duals:
        from cliquewise._kernels.common.sum_tree import rebuild_tree

        if len(arrays.tree):
            rebuild_tree(arrays.tree, arrays.gaps)
        state = Duals(arrays, problem.form.zeros(), visits, gamma)
        self._refresh_weights(problem, state)
        return state

    def _refresh_weights(self, problem: ChainProblem, state: Duals) -> None:
        """The weights from the duals afresh: rounding errors of the updates do not pile up."""
        from cliquewise._kernels.chain import sdca as chain_sdca

        strength = problem.C / state.gamma
        chain_sdca.weights_of_duals(problem.chains, state.arrays, strength, state.w)

    # ---- one step

    def _order(self, n: int, state: Duals, count: int, rng: np.random.Generator) -> Ints:
        """The examples of the next visits; -1 for one to be drawn by its gap."""
        if self.sampling == "uniform":
            return rng.integers(0, n, count)
        if self.sampling == "cyclic":
            return (state.visits + np.arange(count)) % n
        if self.sampling == "gap" and state.visits >= n:
            order = rng.integers(0, n, count)
            order[rng.random(count) >= self.uniform_share] = -1
            return order
        at = state.visits % n
        if at == 0 or len(state.order) != n:
            state.order = rng.permutation(n)
        return state.order[at : at + count]

    def step(
        self, problem: ChainProblem, state: Duals, rng: np.random.Generator
    ) -> tuple[Duals, Info]:
        """Visit a pass of examples, or as many as keep one call below about two seconds."""
        from cliquewise._kernels.chain import sdca as chain_sdca

        n = problem.n_examples
        if n == 0:
            return state, Info(1.0, 0, 0.0)
        work = problem.data.n_tokens * problem.model.n_labels**2
        pieces = min(n, 1 + int(work // 400_000_000))
        count = min(-(-n // pieces), n - state.visits % n)
        order, hinge = self._order(n, state, count, rng), problem.loss == "hinge"
        calls = chain_sdca.epoch(
            problem.chains, state.arrays, state.w, problem.C / state.gamma,
            1 / state.gamma if hinge else 0.0, order, rng.random(count),
            0.0 if self.line_search else self.step_length,
        )  # fmt: skip
        state.visits += count
        state.averaged = False
        estimate = np.nan
        if state.visits >= n:
            dual, slack = self._dual(problem, state)
            gap = state.gamma * float(state.arrays.gaps.sum()) / n
            estimate = (gap + slack) / max(abs(dual + gap), 1e-12)
            if hinge and state.visits % n < count:
                self._anneal(problem, state, gap, slack)
        return state, Info(count / n, calls, estimate)

    def _anneal(self, problem: ChainProblem, state: Duals, gap: float, slack: float) -> None:
        """After a pass: average the weights, and smooth less once that is the larger error."""
        if not len(state.average):
            state.average = np.zeros_like(state.w)
        state.average += FRESH * (state.gamma * state.w - state.average)
        if gap < SETTLED * slack and state.gamma > LEAST_GAMMA:
            state.gamma = max(FALL * state.gamma, LEAST_GAMMA)
            self._refresh_weights(problem, state)

    # ---- what it proves

    def _dual(self, problem: ChainProblem, state: Duals) -> tuple[float, float]:
        """The dual value, and what the entropy would add to it where it does not count."""
        from cliquewise._kernels.chain import sdca as chain_sdca

        entropy, n = np.zeros(problem.n_examples), max(problem.n_examples, 1)
        chain_sdca.entropies(problem.chains, state.arrays, entropy)
        mean = state.gamma * float(problem.chains.weights @ entropy) / n
        penalty = 0.5 * problem.lam * state.gamma**2 * float(state.w @ state.w)
        if problem.loss == "log":
            return mean - penalty, 0.0
        return chain_sdca.wrong_mass(problem.chains, state.arrays.mu) / n - penalty, mean

    def certify(self, problem: ChainProblem, state: Duals) -> Certificate:
        """Exact primal and dual values in float64, of the better of weights and average."""
        self._refresh_weights(problem, state)
        dual, _ = self._dual(problem, state)
        primal, state.averaged = problem.packed_primal(state.gamma * state.w), False
        if len(state.average):
            other = problem.packed_primal(state.average)
            state.averaged = other < primal
            primal = min(primal, other)
        return Certificate(primal, dual, "exact")

    def weights(self, problem: ChainProblem, state: Duals) -> Floats:
        """Weights of the dual point, or their average if that was certified."""
        return problem.form.unpack(state.average if state.averaged else state.gamma * state.w)

    def pack(self, state: Duals) -> dict[str, np.ndarray[Any, Any]]:
        """The dual scores and marginals; the rest follows from them."""
        a = state.arrays
        return {
            "theta": a.theta, "theta_edges": a.theta_edges, "mu": a.mu, "mu_edges": a.mu_edges,
            "log_z": a.log_z, "gaps": a.gaps, "visits": np.array([state.visits]),
            "gamma": np.array([state.gamma]), "average": state.average,
        }  # fmt: skip

    def unpack(self, problem: ChainProblem, arrays: dict[str, np.ndarray[Any, Any]]) -> Duals:
        """Back from :meth:`pack`."""
        empty = self._empty(problem)
        for name in ("theta", "theta_edges", "mu", "mu_edges", "log_z", "gaps"):
            target = getattr(empty, name)
            if target.shape != arrays[name].shape:
                raise DataError("the checkpoint is of other data: its arrays have other shapes")
            target[:] = arrays[name]
        visits, gamma = int(arrays["visits"][0]), float(arrays["gamma"][0])
        state = self._with_weights(problem, empty, visits, gamma)
        if len(arrays["average"]) == len(state.w):
            state.average = np.array(arrays["average"])
        return state


def _copy_prefix(old: Any, new: Any) -> None:
    """Keep the duals of the examples that were there before (new ones come after them)."""
    for name in ("theta", "theta_edges", "mu", "mu_edges", "log_z", "gaps"):
        source, target = getattr(old, name), getattr(new, name)
        if source.shape[1:] != target.shape[1:] or len(source) > len(target):
            raise DataError("a warm start needs the same labels and at least the same examples")
        target[: len(source)] = source
