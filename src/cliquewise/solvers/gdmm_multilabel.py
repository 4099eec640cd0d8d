"""GDMM for many labels that all interact: only what is active is stored or looked at."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, ClassVar

import numpy as np

from cliquewise.certificate import Certificate
from cliquewise.errors import DataError
from cliquewise.graph.factor_graph import Floats
from cliquewise.oracles.relaxed_label_sets import (
    ROUNDS,
    SHARE,
    empty_sets,
    empty_weights,
    sweep,
)
from cliquewise.problems.label_sets import MultiLabelProblem
from cliquewise.solvers.base import Info, Solver, register
from cliquewise.solvers.gdmm_graph import SEARCHES, check_parameters, parameters_of

#: Labels, and pairs, that may join an example at one visit.
MOST = 512
#: Weights of pairs that count as zero in the search: a share of the gap per active label, and the
#: largest.
CUT, COARSE = 0.1, 0.01
#: From one look to the next the gap should fall below this part of itself.
SLOW = 0.8
#: Share of the gap that is due to labels that are not active from which on the search looks at
#: messages by rule.
ALARM = 0.1
#: Passes before that: at first the weights of pairs are large, and soon no more.
PATIENCE = 10
#: Multipliers of a pair that may be forgotten with it, in units of the weight that counts as zero.
QUIET = 10.0
#: The penalty at the start and at most, in units of C, and its growth.
RHO, LARGEST, GROWTH = 0.3, 10.0, 1.5
#: Passes between two looks, at least: a look costs as much as two thirds of a pass.
PAUSE = 6
#: Looks from one with fresh weights, and with both ways to repair, to the next.
FRESH = 4
#: How often a label's own belief counts beside those of its pairs when they are made to agree.
WEIGHTS = (1.0, 1e6)
#: Parts of the labels of which the sampled search looks at one.
PARTS = 3


@dataclass
class ActiveSets:
    """Active labels of all examples, weights and what was proved about them."""

    sets: Any
    weights: Any
    rho: float
    outer: int = 0
    next_look: int = 1
    looks: int = 0
    weight: float = WEIGHTS[0]
    disagreement: float = float("nan")
    alarms: Floats = field(default_factory=lambda: np.empty(0))
    cut: float = COARSE
    fineness: float = 1.0
    last_gap: float = float("inf")
    repair: float = 0.0
    thorough: bool = False

    @property
    def n_active(self) -> int:
        """Active labels of all examples together."""
        return int(self.sets.count[:, 0].sum())


@register
@dataclass(frozen=True, init=False)
class MultiLabelGDMM(Solver):
    """Block-greedy coordinate descent inside an augmented Lagrangian; users call it ``gdmm``.

    At each visit of an example the labels whose margin is violated most become active
    (Algorithm 3 of the paper), and its active labels and their pairs are updated. Pairs with a
    label that is not active have messages by rule, which are never stored.

    Parameters
    ----------
    factor_search : {"sublinear", "full", "sampled"}, default="sublinear"
        ``full`` looks at every pair of labels, and finds the same; ``sampled`` looks at a random
        third of the labels.
    rho : float or "auto", default="auto"
        Penalty for disagreement; large is strong. ``auto`` starts at 0.3 C, and grows while
        most of the gap is what the dual value loses when beliefs are made to agree.
    eta : float, default=1.0
        Step of the multipliers, in units of rho.

    Examples
    --------
    >>> from scipy.sparse import csr_matrix
    >>> from cliquewise.solvers.run import run
    >>> problem = MultiLabelProblem(csr_matrix([[1.0], [-1.0]]), [[0, 1, 1], [1, 0, 0]])
    >>> run(problem, MultiLabelGDMM(), tol=1e-3, random_state=0).certificate.gap <= 1e-3
    True
    """

    name: ClassVar[str] = "gdmm_multilabel"
    losses: ClassVar[frozenset[str]] = frozenset({"hinge"})
    relaxed: ClassVar[bool] = True
    problems: ClassVar[frozenset[str]] = frozenset({"multilabel"})
    columns: ClassVar[tuple[str, ...]] = ("disagreement", "active")

    factor_search: str = "sublinear"
    rho: float | str = "auto"
    eta: float = 1.0

    def __init__(
        self,
        factor_search: str = "sublinear",
        rho: float | str = "auto",
        eta: float = 1.0,
        step: str = "bgcd",
    ):
        check_parameters(step, factor_search, eta)
        if step != "bgcd":
            raise DataError(
                f'step={step!r} visits every pair of labels; use step="bgcd" here, or a graph '
                "of labels with fewer pairs"
            )
        if rho != "auto" and not (isinstance(rho, int | float) and np.isfinite(rho) and rho > 0):
            raise DataError(f'rho = {rho!r}; it must be a positive number or "auto"')
        object.__setattr__(self, "factor_search", factor_search)
        object.__setattr__(self, "rho", rho)
        object.__setattr__(self, "eta", float(eta))

    @classmethod
    def like(cls, solver: Any) -> MultiLabelGDMM:
        """The same parameters as those of another kind of GDMM."""
        given = parameters_of(solver)
        return cls(**(given | ({"rho": "auto"} if isinstance(given.get("rho"), str) else {})))

    def memory(self, problem: MultiLabelProblem) -> float:
        """Weights three times, and the sets as they are at the start."""
        n, labels = problem.n_examples, problem.n_labels
        per_row = np.diff(problem.Y.indptr) + 2.0
        state = 13.0 * per_row.sum() + 20.0 * (per_row * (per_row - 1)).sum() + 32.0 * n
        return float(8.0 * (3 * labels * len(problem.used) + 4 * labels**2) + 4.0 * state)

    # ---- state

    def init(self, problem: MultiLabelProblem, warm: ActiveSets | None = None) -> ActiveSets:
        """Everything at the truth, so that the weights are zero; or at ``warm``."""
        from cliquewise._kernels.label_sets.steps import start_at_truth

        weights = empty_weights(len(problem.used), problem.n_labels)
        rho = RHO * problem.C if isinstance(self.rho, str) else float(self.rho)
        start, label = problem.truth
        if warm is not None:
            if not _fits(warm.sets, problem):
                raise DataError("a warm start needs the same rows with the same labels")
            state = ActiveSets(_copy(warm.sets), weights, rho)
        else:
            sets = empty_sets(np.diff(start))
            start_at_truth(sets, start, label)
            state = ActiveSets(sets, weights, rho)
        self._refresh(problem, state)
        return state

    def _refresh(self, problem: MultiLabelProblem, state: ActiveSets) -> None:
        """Weights and background from the beliefs: rounding errors are swept out."""
        from cliquewise._kernels.label_sets.bounds import background, weights_of_sets

        w = state.weights
        weights_of_sets(problem.rows, problem.C, state.sets, 0.0, w.U, w.V)
        background(w)

    def _plan(self, problem: MultiLabelProblem, state: ActiveSets) -> Any:
        from cliquewise._kernels.label_sets.search import Plan

        search = SEARCHES.index(self.factor_search)
        rho = state.rho
        return Plan(
            problem.C,
            rho,
            self.eta * rho,
            1.0,
            ROUNDS,
            SHARE,
            state.cut,
            MOST,
            search,
            PARTS,
            state.thorough,
        )

    # ---- one step

    def step(
        self, problem: MultiLabelProblem, state: ActiveSets, rng: np.random.Generator
    ) -> tuple[ActiveSets, Info]:
        """One pass over the examples in a random order."""
        from cliquewise._kernels.label_sets.steps import tidy

        if problem.n_examples == 0:
            return state, Info(1.0, 0, 0.0)
        plan = self._plan(problem, state)
        state.sets, visits, state.disagreement = sweep(
            problem.rows, state.weights, plan, state.sets, rng
        )
        state.outer += 1
        proof = None
        if state.outer == state.next_look:
            fresh = state.looks % FRESH == 0
            if fresh:
                self._refresh(problem, state)
            proof = self._prove(problem, state, WEIGHTS if fresh else (state.weight,))
            self._adapt(problem, state, proof.absolute_gap)
            tidy(state.weights, state.sets, state.cut, QUIET * state.cut)
            state.looks += 1
            state.next_look = state.outer + min(max(PAUSE, state.outer // 4), 10)
        return state, Info(1.0, visits, np.inf, proof)

    def _adapt(self, problem: MultiLabelProblem, state: ActiveSets, gap: float) -> None:
        """How small a weight still counts; finer and finer if the gap hardly falls."""
        n = problem.n_examples
        if gap > SLOW * state.last_gap:
            state.fineness *= 0.5
        state.last_gap = gap
        state.cut = min(COARSE, CUT * state.fineness * gap * n / max(state.n_active, n))
        alarm = state.alarms.sum() / n > ALARM * gap
        state.thorough = bool(alarm and state.outer >= PATIENCE)
        if isinstance(self.rho, str) and state.repair > 0.5 * gap:
            state.rho = min(GROWTH * state.rho, LARGEST * problem.C)

    # ---- what it proves

    def certify(self, problem: MultiLabelProblem, state: ActiveSets) -> Certificate:
        """The bound of the messages at the weights, and the dual value of repaired beliefs."""
        return self._prove(problem, state, WEIGHTS)

    def _prove(
        self, problem: MultiLabelProblem, state: ActiveSets, weights: tuple[float, ...]
    ) -> Certificate:
        """With the better one of these ways to repair, which the state remembers."""
        from cliquewise._kernels.label_sets.bounds import loss_bound

        losses = np.zeros(problem.n_examples)
        state.alarms = np.zeros(problem.n_labels)
        plan = self._plan(problem, state)
        state.disagreement, cost = loss_bound(
            problem.rows, state.weights, plan, state.sets, losses, state.alarms
        )
        norm = squared_norm(state.weights)
        primal = problem.value(norm, float(losses.sum()))
        w = empty_weights(len(problem.used), problem.n_labels)
        duals = [_repaired_dual(problem, state.sets, weight, w) for weight in weights]
        dual = max(duals)
        state.weight = weights[duals.index(dual)]
        state.repair = problem.value(-norm, cost) - dual
        return Certificate(primal, dual, "bound")

    def extras(self, problem: MultiLabelProblem, state: ActiveSets) -> dict[str, float]:
        """``||A mu||^2`` of the active pairs, and active labels per example."""
        active = state.n_active / max(problem.n_examples, 1)
        return {"disagreement": state.disagreement, "active": active}

    def weights(self, problem: MultiLabelProblem, state: ActiveSets) -> Floats:
        """Weights of the beliefs, laid out by the pairwise model."""
        return problem.pack(state.weights.U, state.weights.V)

    def pack(self, state: ActiveSets) -> dict[str, np.ndarray[Any, Any]]:
        """The arena of active labels."""
        return {**_copy(state.sets)._asdict(), "rho": np.array([state.rho])}

    def unpack(
        self, problem: MultiLabelProblem, arrays: dict[str, np.ndarray[Any, Any]]
    ) -> ActiveSets:
        """Back from :meth:`pack`."""
        from cliquewise._kernels.label_sets.search import Sets

        if set(arrays) != {*Sets._fields, "rho"}:
            raise DataError("the checkpoint is of other data: its arrays have other names")
        sets = Sets(**{k: np.array(arrays[k]) for k in Sets._fields})
        if not _fits(sets, problem):
            raise DataError("the checkpoint is of other data: its labels are others")
        weights = empty_weights(len(problem.used), problem.n_labels)
        state = ActiveSets(sets, weights, float(arrays["rho"][0]))
        self._refresh(problem, state)
        return state


def _copy(sets: Any) -> Any:
    return type(sets)(*(np.array(part) for part in sets))


def _fits(sets: Any, problem: MultiLabelProblem) -> bool:
    """Whether the sets' true labels are the problem's."""
    if len(sets.count) != problem.n_examples:
        return False
    start, label = problem.truth
    true = np.diff(start)
    if np.any(sets.count[:, 0] < true) or (
        len(sets.label) and sets.label.max() >= problem.n_labels
    ):
        return False
    at = np.repeat(sets.start[:, 0] - start[:-1], true) + np.arange(len(label))
    return bool(np.array_equal(sets.label[at], label) and sets.truth[at].all())


def squared_norm(w: Any) -> float:
    """``||w||^2``: being off has minus the weights of being on; a pair is there once."""
    return 2.0 * float(np.vdot(w.U, w.U)) + 0.5 * float(np.vdot(w.V, w.V))


def _repaired_dual(problem: MultiLabelProblem, sets: Any, weight: float, w: Any) -> float:
    """Dual value of beliefs that agree; ``w`` is overwritten."""
    from cliquewise._kernels.label_sets.bounds import weights_of_sets

    cost = float(weights_of_sets(problem.rows, problem.C, sets, weight, w.U, w.V))
    return cost / max(problem.n_examples, 1) - 0.5 * problem.lam * squared_norm(w)
