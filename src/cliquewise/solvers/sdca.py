"""SDCA: dual coordinate ascent for conditional random fields, with a duality gap.

One step visits examples one at a time; each visit moves that example's dual distribution
towards the model's own and the weights with it. See ``_kernels/chain/sdca.py`` for
the path, the line search and why neither needs a logarithm per edge.

The hinge loss is smoothed by gamma times the entropy, which makes its dual one of the same
kind, and gamma falls as training goes on. What is certified is the hinge loss itself: any dual
distributions, their entropy left out, give a lower bound of it.

With an L1 norm in the penalty the weights are those of the dual point, shrunk
(``problems/penalty.py``); the vectors here are those before that.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, ClassVar

import numpy as np

from cliquewise.certificate import Certificate
from cliquewise.errors import DataError
from cliquewise.problems.base import Problem
from cliquewise.ragged import Floats, Ints
from cliquewise.solvers.array_checks import checked, count_of
from cliquewise.solvers.backends.base import Distributions, scaled
from cliquewise.solvers.backends.chain.duals import ChainDuals
from cliquewise.solvers.backends.chain.float32_duals import SingleDuals
from cliquewise.solvers.backends.chain.shards import ShardedDuals
from cliquewise.solvers.backends.graph.duals import GraphDuals
from cliquewise.solvers.base import Arrays, Info, Solver, State, one_of, register, share
from cliquewise.solvers.lbfgs import LBFGS, PAIRS_OF_LOG
from cliquewise.solvers.owlqn import OWLQN
from cliquewise.solvers.sampling import SAMPLINGS, Order

BLOCKS: dict[str, Any] = {"chain": ChainDuals, "graph": GraphDuals, "shards": ShardedDuals}
#: The entropy of the hinge loss is never weighted less.
LEAST_GAMMA = 1e-9
#: Scores beyond this leave nothing but the truth.
MOST_START = 1000
#: The hinge loss is smoothed less, by this factor, once the gap of the smoothed problem is below
#: this part of the entropy term. Faster falls lose more passes than they save (WSJ, CoNLL-2003).
FALL, SETTLED = 0.7, 0.3
#: Share of a pass's weights in the running average.
FRESH = 0.2


@dataclass
class DualAscent(State):
    """Where `sdca` stands."""

    blocks: Distributions
    order: Order = field(default_factory=Order)
    average: Floats = field(default_factory=lambda: np.empty(0))  # of the weights of passes
    averaged: bool = False  # whether the average is the better one of the two


class Ascent(Solver):
    """What the solvers share that move one example's dual distribution at a time."""

    sampling: str
    uniform_share: float = 0.0
    step_length: float
    start: float
    tolerates_changes_in: ClassVar[frozenset[str]] = frozenset({"C", "model", "weights"})

    def __post_init__(self) -> None:
        super().__post_init__()
        if not 0 < self.step_length <= 1:
            raise DataError(f"step_length = {self.step_length}; it must be in (0, 1]")
        if not abs(self.start) <= MOST_START:
            raise DataError(
                f"start = {self.start}; it must be between -{MOST_START} and {MOST_START}"
            )

    def refuses(self, problem: Problem) -> str | None:
        """Refuse other losses, and labels that are not known."""
        reason = super().refuses(problem)
        if reason is None and not problem.is_convex:
            return "needs every label: with partial labels the problem is not convex"
        return reason

    def _blocks(self, problem: Any) -> Distributions:
        """The dual variables at the start."""
        raise NotImplementedError

    def _visit(self, blocks: Any, chosen: Ints, rng: np.random.Generator) -> int:
        """Move the distributions of these examples; the inferences made."""
        raise NotImplementedError

    # ---- state

    def init(self, problem: Any, warm: Any = None) -> DualAscent:
        """Distributions close to the truth, or those of ``warm`` for the examples it has."""
        state = self._empty(problem)
        if isinstance(warm, DualAscent) and type(warm.blocks) is type(state.blocks):
            state.blocks.continue_from(warm.blocks)
            # With more examples the gaps of the old ones are others: all are visited first.
            if warm.origin is None or warm.origin.n_examples == problem.n_examples:
                state.order.visits = warm.order.visits
        state.blocks.refresh()
        return state

    def _empty(self, problem: Any) -> DualAscent:
        blocks = self._blocks(problem)
        return DualAscent(blocks, blocks.order())

    # ---- one step

    def step(
        self, problem: Any, state: DualAscent, rng: np.random.Generator
    ) -> tuple[DualAscent, Info]:
        """Visit a pass of examples, or as many as keep one call below about two seconds."""
        n, blocks, order = problem.n_examples, state.blocks, state.order
        if n == 0:
            return state, Info(1.0, 0, 0.0)
        gaps = None if blocks.draws else blocks.gaps
        chosen = order.next(
            n, problem.max_step_examples, rng, self.sampling, self.uniform_share, gaps
        )
        count = len(chosen)
        calls = self._visit(blocks, chosen, rng)
        state.averaged = False
        estimate = np.nan
        if order.visits >= n and order.is_due(n, count):
            (dual, slack), gap = blocks.dual(), blocks.gap()
            estimate = (gap + slack) / max(abs(dual + gap), 1e-12)
            blocks.watch(dual + slack)
            if problem.loss == "hinge" and order.ends_pass(n, count):
                self._anneal(state, gap, slack)
        return state, Info(count / n, calls, estimate)

    def _anneal(self, state: DualAscent, gap: float, slack: float) -> None:
        """After a pass: average the weights, and smooth less once that is the larger error."""
        blocks = state.blocks
        if not len(state.average):
            state.average = np.zeros_like(blocks.w)
        state.average += FRESH * (blocks.gamma * blocks.w - state.average)
        if gap < SETTLED * slack and blocks.gamma > LEAST_GAMMA:
            blocks.gamma = max(FALL * blocks.gamma, LEAST_GAMMA)
            blocks.refresh()

    # ---- what it proves

    def certify(self, problem: Any, state: DualAscent) -> Certificate:
        """Exact primal and dual values in float64, of the better of weights and average."""
        blocks = state.blocks
        blocks.refresh()
        bound = blocks.bound()
        primal, _ = blocks.primal(scaled(blocks))
        state.averaged = False
        if len(state.average):
            other, _ = blocks.primal(state.average)
            state.averaged = other < primal
            primal = min(primal, other)
        return Certificate(primal, bound.value, "exact", bound.rounding)

    def weights(self, problem: Any, state: DualAscent) -> Floats:
        """Weights of the dual point, or their average if that was certified."""
        blocks = state.blocks
        return blocks.unpacked(state.average if state.averaged else scaled(blocks))

    def pack(self, state: DualAscent) -> Arrays:
        """The dual distributions and the average; the rest follows from them."""
        return {
            **state.blocks.pack(),
            "visits": np.array([state.order.visits]),
            "average": state.average,
        }

    def recompute_untrusted(self, problem: Any, state: DualAscent) -> DualAscent:
        """Scores are exact whatever they are; what follows from them is computed here.

        Marginals and partition functions that are nearly right would prove what is nearly true:
        where scores are large, a share of 1e-9 of a partition function is no rounding.
        """
        state.blocks.infer()
        state.blocks.refresh()
        return state

    def resume_paths(self, state: DualAscent) -> tuple[str, ...]:
        """The running weights and the order."""
        return ("order", "averaged", *(f"blocks.{name}" for name in state.blocks.resume_paths))

    def unpack(self, problem: Any, arrays: Arrays) -> DualAscent:
        """Back from :meth:`pack`."""
        state = self._empty(problem)
        state.blocks.unpack(arrays)
        state.blocks.refresh()
        state.order.visits = count_of(arrays, "visits")
        if problem.loss == "hinge" and len(arrays.get("average", ())):
            state.average = checked(arrays, "average", state.blocks.w.shape, state.blocks.w.dtype)
        return state


@register
@dataclass(frozen=True)
class SDCA(Ascent):
    """Stochastic dual coordinate ascent, by exact marginals of one example at a time.

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
    dtype : {"float64", "float32"}, default="float64"
        Type of distributions and weights on chains. ``float32`` halves the memory; certificates
        are computed in float64 all the same, and reach gaps of 1e-5 or so.
    """

    name: ClassVar[str] = "sdca"
    works_on: ClassVar[dict[str, frozenset[str]]] = {
        "chain": frozenset({"log", "softmax_margin", "hinge"}),
        "graph": frozenset({"log", "softmax_margin"}),
        "shards": frozenset({"log", "hinge"}),
    }
    rank: ClassVar[int] = 20
    precision: ClassVar[float] = 1e-4
    takes_pair_attributes: ClassVar[bool] = True
    takes_l1: ClassVar[bool] = True
    sampling: str = "gap"
    uniform_share: float = 0.2
    line_search: bool = True
    step_length: float = 0.1
    start: float = 10.0
    gamma: float = 1.0
    dtype: str = "float64"

    def __post_init__(self) -> None:
        super().__post_init__()
        one_of(self, "sampling", *SAMPLINGS)
        one_of(self, "dtype", "float64", "float32")
        share(self, "uniform_share")
        if not LEAST_GAMMA <= self.gamma < np.inf:
            raise DataError(f"gamma = {self.gamma}; it must be at least {LEAST_GAMMA}")

    def refuses(self, problem: Problem) -> str | None:
        """Refuse what all refuse, no L2 penalty, and exact inference out of reach."""
        reason = super().refuses(problem)
        if reason is None and problem.has_pair_attributes and problem.loss != "log":
            return PAIRS_OF_LOG
        if reason is None and problem.l1_ratio == 1:
            return "needs an L2 part in the penalty: l1_ratio must be below 1"
        single = self.dtype == "float32"
        if reason is None and single and (problem.kind != "chain" or problem.has_pair_attributes):
            return (
                'knows dtype "float32" on chains in memory, without attributes of token pairs, only'
            )
        return reason or problem.refuses_call("exp")

    def suits(self, problem: Problem) -> bool:
        """Not on graphs: a step asks one of them in Python, and L-BFGS needs fewer questions."""
        return problem.kind != "graph" or problem.loss != "log"

    def successor(self, problem: Problem) -> Solver | None:
        """L-BFGS: dual ascent is slow where the penalty is weak or features are badly scaled."""
        if problem.loss not in LBFGS.works_on[problem.kind]:
            return None
        return OWLQN() if problem.l1_ratio > 0 else LBFGS()

    def memory(self, problem: Any) -> float:
        """Two numbers per state of each clique of the model, and the weights."""
        return float(self._kind_of_blocks(problem).memory(problem))

    def _kind_of_blocks(self, problem: Any) -> Any:
        return SingleDuals if self.dtype == "float32" else BLOCKS[problem.kind]

    def _blocks(self, problem: Any) -> Distributions:
        gamma = self.gamma if problem.loss == "hinge" else 1.0
        kind, by_gap = self._kind_of_blocks(problem), self.sampling == "gap"
        return kind(problem, self.start, gamma, by_gap)  # type: ignore[no-any-return]

    def _visit(self, blocks: Any, chosen: Ints, rng: np.random.Generator) -> int:
        step = 0.0 if self.line_search else self.step_length
        return int(blocks.visit(chosen, rng.random(len(chosen)), step))

    def adopted(self, problem: Any, warm: DualAscent, own: Ints, old: Ints) -> DualAscent | None:
        """A state of this problem that has, for examples ``own``, what ``warm`` has for ``old``.

        Whatever the scores of a dual distribution are, its value bounds the objective: so the
        examples need not be proved to be the same.
        """
        state = self._empty(problem)
        blocks, others = state.blocks, warm.blocks
        if not isinstance(blocks, ChainDuals) or not isinstance(others, type(blocks)):
            return None
        blocks.adopt(others, own, old, self.start)
        blocks.refresh()
        state.origin = problem.fingerprint()
        return state
