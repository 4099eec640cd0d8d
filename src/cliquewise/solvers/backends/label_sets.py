"""GDMM on sets of labels that all interact: only what is active is stored or looked at.

At each visit of an example the labels whose margin is violated most become active (Algorithm 3 of
the paper), and its active labels and their pairs are updated. Pairs with a label that is not
active have messages by rule, which are never stored.
"""

from __future__ import annotations

from typing import Any, ClassVar

import numpy as np

from cliquewise.certificate import Certificate
from cliquewise.errors import DataError
from cliquewise.oracles.relaxed_label_sets import (
    ROUNDS,
    SHARE,
    empty_sets,
    empty_weights,
    sweep,
)
from cliquewise.problems.label_sets import MultiLabelProblem
from cliquewise.problems.rounding import SUM, UNIT, Bound, lowered
from cliquewise.ragged import Floats, stretches
from cliquewise.solvers.array_checks import MOST as MOST_COUNT
from cliquewise.solvers.array_checks import ROUNDING, check, checked, number_of
from cliquewise.solvers.base import Arrays, Info, State

SEARCHES = ("sublinear", "full", "sampled")
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


class LabelSetFactors(State):
    """Active labels of all examples, weights and what was proved about them."""

    check_cost = 0.5
    resume_paths: ClassVar[tuple[str, ...]] = (
        "own", "outer", "next_look", "looks", "weight", "disagreement", "cut", "fineness",
        "last_gap", "repair", "thorough",
    )  # fmt: skip

    def __init__(self, problem: MultiLabelProblem, solver: Any):
        from cliquewise._kernels.label_sets.steps import start_at_truth

        self.problem = problem
        self.search = SEARCHES.index(solver.factor_search)
        self.parts, self.eta = solver.partition or PARTS, float(solver.eta)
        automatic = isinstance(solver.rho, str)
        self.adaptive = automatic if solver.adaptive is None else bool(solver.adaptive)
        self.rho = RHO * problem.C if automatic else float(solver.rho)
        start, label = problem.truth
        self.sets = empty_sets(np.diff(start))
        start_at_truth(self.sets, start, label)
        self.own = empty_weights(len(problem.used), problem.n_labels)
        self.outer, self.next_look, self.looks = 0, 1, 0
        self.weight = WEIGHTS[0]
        self.disagreement = float("nan")
        self.alarms = np.empty(0)
        self.cut, self.fineness, self.last_gap = COARSE, 1.0, float("inf")
        self.repair, self.thorough = 0.0, False
        self.refresh()

    @staticmethod
    def memory(problem: MultiLabelProblem) -> float:
        """Weights four times; twice the true labels active and some more, thrice as arenas grow."""
        n, labels = problem.n_examples, problem.n_labels
        active = np.minimum(2.0 * np.diff(problem.Y.indptr) + 16.0, labels)
        state = 13.0 * active.sum() + 24.0 * (active * (active - 1)).sum() + 48.0 * n
        return float(8.0 * (4 * labels * len(problem.used) + 5 * labels**2) + 3.0 * state)

    @staticmethod
    def refuses(problem: MultiLabelProblem, solver: Any) -> str | None:
        """Step rules that would visit every pair of labels."""
        if solver.step_rule in (None, "bgcd"):
            return None
        return (
            f"with step_rule={solver.step_rule!r} would visit every pair of labels; use "
            'step_rule="bgcd", or a graph of labels with fewer pairs'
        )

    @property
    def n_active(self) -> int:
        """Active labels of all examples together."""
        return int(self.sets.count[:, 0].sum())

    def refresh(self) -> None:
        from cliquewise._kernels.label_sets.bounds import background, weights_of_sets

        weights_of_sets(self.problem.rows, self.problem.C, self.sets, 0.0, self.own.U, self.own.V)
        background(self.own)

    def _plan(self) -> Any:
        from cliquewise._kernels.label_sets.search import Plan

        step = self.eta * self.rho
        return Plan(
            self.problem.C, self.rho, step, 1.0, ROUNDS, SHARE, self.cut, MOST, self.search,
            self.parts, self.thorough,
        )  # fmt: skip

    # ---- one pass

    def sweep(self, rng: np.random.Generator) -> Info:
        from cliquewise._kernels.label_sets.steps import tidy

        order = rng.permutation(len(self.sets.count))
        seed = rng.integers(0, 2**63, 1, dtype=np.uint64)
        self.sets, visits, self.disagreement = sweep(
            self.problem.rows, self.own, self._plan(), self.sets, order, seed
        )
        self.outer += 1
        proof = None
        if self.outer == self.next_look:
            fresh = self.looks % FRESH == 0
            if fresh:
                self.refresh()
            proof = self._prove(WEIGHTS if fresh else (self.weight,))
            self._adapt(proof.absolute_gap)
            tidy(self.own, self.sets, self.cut, QUIET * self.cut)
            self.looks += 1
            self.next_look = self.outer + min(max(PAUSE, self.outer // 4), 10)
        return Info(1.0, visits, np.inf, proof)

    def _adapt(self, gap: float) -> None:
        """How small a weight still counts; finer and finer if the gap hardly falls."""
        n = self.problem.n_examples
        if gap > SLOW * self.last_gap:
            self.fineness *= 0.5
        self.last_gap = gap
        self.cut = min(COARSE, CUT * self.fineness * gap * n / max(self.n_active, n))
        alarm = self.alarms.sum() / n > ALARM * gap
        self.thorough = bool(alarm and self.outer >= PATIENCE)
        if self.adaptive and self.repair > 0.5 * gap:
            self.rho = min(GROWTH * self.rho, LARGEST * self.problem.C)

    # ---- what it proves

    def certify(self) -> Certificate:
        return self._prove(WEIGHTS)

    def _prove(self, weights: tuple[float, ...]) -> Certificate:
        """With the better one of these ways to repair, which the state remembers."""
        from cliquewise._kernels.label_sets.bounds import loss_bound

        problem = self.problem
        losses = np.zeros(problem.n_examples)
        self.alarms = np.zeros(problem.n_labels)
        self.disagreement, cost = loss_bound(
            problem.rows, self.own, self._plan(), self.sets, losses, self.alarms
        )
        norm = squared_norm(self.own)
        primal = problem.ridge_objective(norm, float(losses.sum()))
        w = empty_weights(len(problem.used), problem.n_labels)
        duals = [_repaired_dual(problem, self.sets, weight, w) for weight in weights]
        dual = max(duals)
        self.weight = weights[duals.index(dual)]
        self.repair = problem.ridge_objective(-norm, cost) - dual.value
        return Certificate(primal, dual.value, "bound", dual.rounding)

    def extras(self) -> dict[str, float]:
        active = self.n_active / max(self.problem.n_examples, 1)
        return {"disagreement": self.disagreement, "rho": self.rho, "active": active}

    def weights(self) -> Floats:
        return self.problem.pack(self.own.U, self.own.V)

    # ---- from elsewhere

    def continue_from(self, warm: LabelSetFactors) -> None:
        if not _fits(warm.sets, self.problem):
            raise DataError("a warm start needs the same rows with the same labels")
        self.sets = _copy(warm.sets)
        self.refresh()

    def pack(self) -> Arrays:
        return {**_copy(self.sets)._asdict(), "rho": np.array([self.rho])}

    def unpack(self, arrays: Arrays) -> None:
        sets = _checked_sets(arrays, self.sets, self.problem)
        rho = number_of(arrays, "rho")
        check(1e-30 <= rho <= 1e30, "its 'rho' is not in range")
        self.sets, self.rho = sets, rho
        self.refresh()


def _copy(sets: Any) -> Any:
    return type(sets)(*(np.array(part) for part in sets))


def _checked_sets(arrays: Arrays, like: Any, problem: MultiLabelProblem) -> Any:
    """Sets of a checkpoint whose arenas hold together, and whose truth is the problem's."""
    n, k = problem.n_examples, problem.n_labels
    lengths: dict[str, int] = {}
    for name, others in (("label", ("truth", "p")), ("ends", ("pairs",))):
        size = len(arrays.get(name, ()))
        lengths |= dict.fromkeys((name, *others), size)
    parts = {}
    for name, part in like._asdict().items():
        shape = (lengths.get(name, len(part)), *part.shape[1:])
        low = 0 if name != "pairs" else -1e150
        high = {"label": k - 1, "p": 1.0, "pairs": 1e150}.get(name, MOST_COUNT)
        parts[name] = checked(arrays, name, shape, part.dtype, low, high)
    sets = type(like)(**parts)
    for side, arena in enumerate((sets.label, sets.ends)):
        start, room = sets.start[:, side], sets.capacity[:, side]
        check(sets.count[:, side] <= room, "its sets are larger than their room")
        end = start + room
        check((end <= sets.used[side]) & (sets.used[side] <= len(arena)), "its sets lie outside")
        filled = np.flatnonzero(room)
        filled = filled[np.argsort(start[filled])]
        check(start[filled][1:] >= end[filled][:-1], "its sets overlap")
    true = int(problem.truth[0][-1])
    same = _fits(sets, problem) and true == np.count_nonzero(sets.truth[_places(sets, 0)])
    check(same, "its labels are others")
    owner = np.repeat(np.arange(n), sets.count[:, 0])
    codes = owner * np.int64(k) + sets.label[_places(sets, 0)]
    check(len(np.unique(codes)) == len(codes), "its sets have a label twice")
    at, owner = _places(sets, 1), np.repeat(np.arange(n), sets.count[:, 1])
    ends, most = sets.ends[at].astype(np.int64), sets.count[owner, 0]
    check((ends < most[:, None]).all(axis=1) & (ends[:, 0] != ends[:, 1]), "its pairs lie outside")
    codes = (owner * np.int64(k) + ends.min(axis=1)) * k + ends.max(axis=1)
    check(len(np.unique(codes)) == len(codes), "its sets have a pair twice")
    beliefs = sets.pairs[at, :3]
    check((beliefs >= 0).all(axis=1) & (beliefs.sum(axis=1) <= 1 + ROUNDING),
          "its beliefs are no shares")  # fmt: skip
    return sets


def _places(sets: Any, side: int) -> Any:
    """Places of all labels (0) or pairs (1) in their arena, by example."""
    return stretches(sets.start[:, side], sets.count[:, side])


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


def _repaired_dual(problem: MultiLabelProblem, sets: Any, weight: float, w: Any) -> Bound:
    """Dual value of beliefs that agree; ``w`` is overwritten."""
    from cliquewise._kernels.label_sets.bounds import weights_of_sets

    n = max(problem.n_examples, 1)
    cost = float(weights_of_sets(problem.rows, problem.C, sets, weight, w.U, w.V))
    active = int(sets.count.sum())
    penalty = 0.5 * problem.lam * squared_norm(w) * (1.0 + UNIT * (w.U.size + w.V.size))
    largest = np.append(np.abs(w.U).max(axis=1, initial=0.0), np.abs(w.V).max(initial=0.0))
    # Being off has minus the weights of being on, so that a change of either counts twice.
    sizes = 2.0 * problem.C * (n + SUM) * problem.sizes(cost)
    return lowered(cost / n, UNIT * active * cost / n, penalty, problem.lam, largest, sizes)
