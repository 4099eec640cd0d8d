"""GDMM on sets of labels that all interact: only active labels are stored and read.

At each visit of an example the labels of largest margin violation become active (Algorithm 3 of
gdmm), and its active labels and their pairs are updated. The messages of pairs with an inactive
label follow from a rule and are not stored.
"""

from __future__ import annotations

from typing import Any, Self

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
from cliquewise.solvers.array_checks import MAX_COUNT, ROUNDING, check, checked, number_of
from cliquewise.solvers.backends.factors import SEARCHES, Factors, FactorSettings
from cliquewise.solvers.base import Arrays, Info

#: Largest number of labels, and of pairs, that may become active in an example at one visit.
MAX_NEW = 512
#: Pair weights below a threshold count as zero in the search: CUT times the gap per active label,
#: at most COARSE.
CUT, COARSE = 0.1, 0.01
#: Factor by which the gap should decrease between two certificates.
SLOW = 0.8
#: The search also reads messages by rule if inactive labels cause more than this share of the gap,
#: but not in the first passes, when the weights of pairs are large for a short time.
ALARM, ALARM_PASSES = 0.1, 10
#: Largest multipliers of a pair that is removed, in units of the threshold of its weight.
QUIET = 10.0
#: Initial penalty, largest penalty (both in units of C), and factor of an increase.
RHO, MAX_RHO, GROWTH = 0.3, 10.0, 1.5
#: Least number of passes between two certificates; one costs two thirds of a pass.
CHECK_PASSES = 6
#: Every REFRESH-th certificate recomputes the weights and tries all repairs.
REFRESH = 4
#: Repairs: weights of a label's own belief in the mean with the beliefs of its pairs.
WEIGHTS = (1.0, 1e6)
#: Parts of the labels, one of which the sampled search reads at a time.
PARTS = 3


class LabelSetFactors(Factors[MultiLabelProblem]):
    """Active labels of all examples, and the weights of their beliefs."""

    def __init__(self, problem: MultiLabelProblem, settings: FactorSettings):
        from cliquewise._kernels.label_sets.steps import start_at_truth

        self.problem = problem
        self.search = SEARCHES.index(settings.factor_search)
        self.parts, self.eta = settings.partition or PARTS, float(settings.eta)
        rho, adaptive = settings.rho, settings.adaptive
        self.adaptive = isinstance(rho, str) if adaptive is None else bool(adaptive)
        self.rho = RHO * problem.C if isinstance(rho, str) else float(rho)
        start, label = problem.truth
        self.sets = empty_sets(np.diff(start))
        start_at_truth(self.sets, start, label)
        self.own = empty_weights(len(problem.used), problem.n_labels)
        self.outer, self.next_check, self.checks = 0, 1, 0
        self.weight = WEIGHTS[0]
        self.disagreement = float("nan")
        self.alarms = np.empty(0)
        self.cut, self.fineness, self.last_gap = COARSE, 1.0, float("inf")
        self.repair, self.thorough = 0.0, False
        self.refresh()

    @classmethod
    def memory(cls, problem: MultiLabelProblem, settings: FactorSettings) -> float:
        """Return the bytes of four copies of the weights, and of arenas for active labels.

        Twice the true labels and some more are expected to be active; arenas grow in copies.
        """
        n, labels = problem.n_examples, problem.n_labels
        active = np.minimum(2.0 * np.diff(problem.Y.indptr) + 16.0, labels)
        state = 13.0 * active.sum() + 24.0 * (active * (active - 1)).sum() + 48.0 * n
        return float(8.0 * (4 * labels * len(problem.used) + 5 * labels**2) + 3.0 * state)

    @classmethod
    def refuses(cls, problem: MultiLabelProblem, settings: FactorSettings) -> str | None:
        """Reject step rules that would visit every pair of labels."""
        if settings.step_rule in (None, "bgcd"):
            return None
        return (
            f"with step_rule={settings.step_rule!r} would visit every pair of labels; use "
            'step_rule="bgcd", or a graph of labels with fewer pairs'
        )

    @property
    def n_active(self) -> int:
        """Number of active labels of all examples together."""
        return int(self.sets.count[:, 0].sum())

    def refresh(self) -> None:
        from cliquewise._kernels.label_sets.bounds import background, weights_of_sets

        weights_of_sets(self.problem.rows, self.problem.C, self.sets, 0.0, self.own.U, self.own.V)
        background(self.own)

    def _plan(self) -> Any:
        from cliquewise._kernels.label_sets.search import Plan

        step = self.eta * self.rho
        return Plan(
            self.problem.C, self.rho, step, 1.0, ROUNDS, SHARE, self.cut, MAX_NEW, self.search,
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
        if self.outer == self.next_check:
            thorough = self.checks % REFRESH == 0
            if thorough:
                self.refresh()
            proof = self._prove(WEIGHTS if thorough else (self.weight,))
            self._adapt(proof.absolute_gap)
            tidy(self.own, self.sets, self.cut, QUIET * self.cut)
            self.checks += 1
            self.next_check = self.outer + min(max(CHECK_PASSES, self.outer // 4), 10)
        return Info(1.0, visits, np.inf, proof)

    def _adapt(self, gap: float) -> None:
        """Choose the threshold of pair weights: lower it if the gap decreases slowly."""
        n = self.problem.n_examples
        if gap > SLOW * self.last_gap:
            self.fineness *= 0.5
        self.last_gap = gap
        self.cut = min(COARSE, CUT * self.fineness * gap * n / max(self.n_active, n))
        alarm = self.alarms.sum() / n > ALARM * gap
        self.thorough = bool(alarm and self.outer >= ALARM_PASSES)
        if self.adaptive and self.repair > 0.5 * gap:
            self.rho = min(GROWTH * self.rho, MAX_RHO * self.problem.C)

    # ---- certificate

    def certify(self) -> Certificate:
        return self._prove(WEIGHTS)

    def _prove(self, weights: tuple[float, ...]) -> Certificate:
        """Return a certificate by the best of some repairs, which the state remembers."""
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

    # ---- warm starts and checkpoints

    def continue_from(self, warm: Self) -> None:
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
    """Return the sets of a checkpoint after checks of their arenas and their true labels."""
    n, k = problem.n_examples, problem.n_labels
    lengths: dict[str, int] = {}
    for name, others in (("label", ("truth", "p")), ("ends", ("pairs",))):
        size = len(arrays.get(name, ()))
        lengths |= dict.fromkeys((name, *others), size)
    parts = {}
    for name, part in like._asdict().items():
        shape = (lengths.get(name, len(part)), *part.shape[1:])
        low = 0 if name != "pairs" else -1e150
        high = {"label": k - 1, "p": 1.0, "pairs": 1e150}.get(name, MAX_COUNT)
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
    """Return the positions of all labels (0) or pairs (1) in their arena, by example."""
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
    """Return ``||w||^2``; V holds every pair twice, and U only the weights of being on."""
    return 2.0 * float(np.vdot(w.U, w.U)) + 0.5 * float(np.vdot(w.V, w.V))


def _repaired_dual(problem: MultiLabelProblem, sets: Any, weight: float, w: Any) -> Bound:
    """Return the dual value of repaired beliefs; ``w`` is overwritten."""
    from cliquewise._kernels.label_sets.bounds import weights_of_sets

    n = max(problem.n_examples, 1)
    cost = float(weights_of_sets(problem.rows, problem.C, sets, weight, w.U, w.V))
    active = int(sets.count.sum())
    penalty = 0.5 * problem.lam * squared_norm(w) * (1.0 + UNIT * (w.U.size + w.V.size))
    largest = np.append(np.abs(w.U).max(axis=1, initial=0.0), np.abs(w.V).max(initial=0.0))
    # A label that is off has minus the weights of one that is on: changes count twice.
    sizes = 2.0 * problem.C * (n + SUM) * problem.sizes(cost)
    return lowered(cost / n, UNIT * active * cost / n, penalty, problem.lam, largest, sizes)
