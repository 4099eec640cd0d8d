"""Problems that are asked example by example: outputs at hand, sums of subgradients, smoothing.

Graphs, matchings and candidates are all driven through `ExampleProblem.best`, `top_k` and `exp`.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Any, ClassVar, NamedTuple

import numpy as np

from cliquewise.errors import DataError
from cliquewise.problems.examples import Best, ExampleProblem, Rows, stacked
from cliquewise.problems.rounding import SUM, UNIT, Bound
from cliquewise.ragged import Floats, Ints
from cliquewise.smoothers import get_smoother
from cliquewise.solvers.array_checks import (
    ROUNDING,
    check,
    check_offsets,
    checked,
    count_of,
    owners,
)
from cliquewise.solvers.backends.base import Pass, kind_of_call
from cliquewise.solvers.base import Arrays

#: An output need be proved best only up to this part of the gap that its example had last.
ENOUGH = 0.1
#: Arrays of the atoms with one entry per atom.
PER_ATOM = ("next", "cost", "alpha")


@dataclass(frozen=True)
class Asking:
    """Which way the best output of an example is found."""

    method: str = "auto"
    options: tuple[tuple[str, Any], ...] = ()

    def best(self, problem: ExampleProblem, w: Floats, i: int, enough: float = 0.0) -> Best:
        """The best output of example ``i`` at the weights, or one that comes near enough."""
        return problem.best(w, i, self.method, self.options, enough)

    def primal(self, problem: ExampleProblem, w: Floats) -> tuple[float, bool]:
        bounds, exact = problem.bounds(w, self.method, self.options)
        return problem.ridge_objective(float(w @ w), float(bounds.sum())), exact


class WorkingSets:
    """BCFW's blocks: the outputs found so far, what each counts, and the weights they give.

    See ``_kernels/common/working_sets.py``.
    """

    draws: ClassVar[bool] = False
    resume_paths: ClassVar[tuple[str, ...]] = ("w", "gaps", "slack", "taken", "loose")
    cached_passes: ClassVar[int] = 200
    inner_rounds: ClassVar[int] = 5
    max_outputs: ClassVar[int] = 100
    average: ClassVar[bool] = False

    def __init__(self, problem: ExampleProblem, solver: Any):
        self.problem = problem
        self.asking = Asking(solver.map_method, tuple(solver.map_options or ()))
        self.rounds = solver.setting("inner_rounds", self)
        self.most = solver.setting("max_outputs", self)
        n, d = problem.n_examples, problem.dimension
        self.atoms, self.used = _no_atoms(n), 0
        self.w, self.scratch = np.zeros(d), np.zeros(d)
        self.gaps = np.full(n, np.inf)
        self.slack = np.zeros(n)  # the part of each gap that is between a bound and a value
        self.taken, self.loose = 0, False  # outputs that joined in this pass; a bound was loose

    @staticmethod
    def memory(problem: ExampleProblem, solver: Any) -> float:
        """Weights and scratch, and about ten outputs per example."""
        return float(16.0 * (problem.dimension + 10 * problem.row_entries * problem.n_examples))

    @property
    def max_step_examples(self) -> int:
        """Examples whose oracles take about two seconds."""
        return self.problem.max_step_examples

    # ---- from elsewhere

    def continue_from(self, warm: WorkingSets) -> None:
        n, known = len(self.gaps), len(warm.gaps)
        if len(warm.w) != len(self.w) or known > n:
            raise DataError("a warm start needs the same features and at least the examples")
        copy = {name: getattr(warm.atoms, name).copy() for name in warm.atoms._fields}
        copy["head"] = np.append(copy["head"], np.full(n - known, -1))
        copy["rest"] = np.append(copy["rest"], np.ones(n - known))
        self.atoms, self.used = warm.atoms._replace(**copy), warm.used

    def pack(self) -> Arrays:
        atoms, used = self.atoms, self.used
        end = int(atoms.indptr[used])
        return {
            **{name: getattr(atoms, name)[:used] for name in PER_ATOM},
            "head": atoms.head, "rest": atoms.rest, "indptr": atoms.indptr[: used + 1],
            "indices": atoms.indices[:end], "values": atoms.values[:end],
            "size": np.array([len(self.w)]),
        }  # fmt: skip

    def unpack(self, arrays: Arrays) -> None:
        n, used, d = len(self.gaps), len(arrays.get("alpha", ())), len(self.w)
        check(count_of(arrays, "size") == d, "its arrays have other shapes")
        whole, entries = np.int64, len(arrays.get("indices", ()))
        fields = {
            "head": checked(arrays, "head", (n,), whole),
            "next": checked(arrays, "next", (used,), whole),
            "rest": checked(arrays, "rest", (n,), low=0.0),
            "cost": checked(arrays, "cost", (used,)),
            "alpha": checked(arrays, "alpha", (used,), low=0.0),
            "indptr": checked(arrays, "indptr", (used + 1,), whole),
            "indices": checked(arrays, "indices", (entries,), whole, 0, d - 1),
            "values": checked(arrays, "values", (entries,)),
        }
        check_offsets(fields["indptr"], entries)
        owner, alpha = owners(fields["head"], fields["next"]), fields["alpha"]
        check(alpha[owner < 0] == 0, "it has outputs of no example")
        total = np.bincount(owner[owner >= 0], alpha[owner >= 0], minlength=n)
        check(np.abs(total + fields["rest"] - 1) <= ROUNDING, "its shares do not sum to one")
        self.atoms, self.used = self.atoms._replace(**fields), used

    # ---- the algorithm's questions

    def refresh(self) -> float:
        from cliquewise._kernels.common.working_sets import weights_of_atoms

        total = weights_of_atoms(self.atoms, self.problem.C, self.w)
        return float(total) / max(len(self.gaps), 1) + self.problem.lower_bound

    def bound(self) -> Bound:
        problem, atoms, used = self.problem, self.atoms, self.used
        n, end = max(len(self.gaps), 1), int(atoms.indptr[used])
        alpha = atoms.alpha[:used]
        shares = np.repeat(alpha, np.diff(atoms.indptr[: used + 1]))
        sizes = shares * np.abs(atoms.values[:end])
        sums = np.bincount(atoms.indices[:end], sizes, minlength=len(self.w))
        total = float(alpha @ atoms.cost[:used]) / n
        rounding_error = UNIT * (used + SUM) * (float(alpha @ np.abs(atoms.cost[:used])) / n)
        # Where an example's shares exceed 1, all of them are taken back: the truth has cost 0.
        excess = max(1.0, float(self._totals().max(initial=0.0)))
        linear = total / excess if total > 0 else total
        weight_error_scale = problem.weight_error_scale_for(
            np.asarray(sums, dtype=np.float64), used
        )
        return problem.bound(
            linear + problem.lower_bound, self.w, rounding_error, weight_error_scale
        )

    def _totals(self) -> Floats:
        """The sum of the shares of each example's outputs."""
        from cliquewise._kernels.common.working_sets import total_shares

        out = np.zeros(len(self.gaps))
        total_shares(self.atoms, out)
        return out

    def visit(self, order: Ints, uniforms: Floats) -> tuple[int, float]:
        from cliquewise._kernels.common.working_sets import visit

        rise = 0.0
        for i in order.tolist():
            known = float(self.gaps[i])
            enough = ENOUGH * known if np.isfinite(known) else 0.0
            best = self.asking.best(self.problem, self.w, i, enough)
            cost = best.cost(self.problem, self.w) - float(self.problem.truth_costs[i])
            self._append(cost, best.row)
            # Counted before it may be taken: what is cut short here is still a state.
            self.used += 1
            taken, more, gap = visit(
                self.atoms, i, self.used - 1, self.problem.C, self.rounds, self.w, self.scratch
            )
            self.used -= int(not taken)
            excess = max(best.bound - best.value, 0.0)
            loose = not best.exact and excess > enough  # and not for want of asking
            self.slack[i] = excess if loose else 0.0
            self.gaps[i] = gap + excess
            self.taken += int(taken)
            self.loose = self.loose or loose
            rise += float(more)
        return len(order), rise

    def cached_pass(self, order: Ints) -> float:
        from cliquewise._kernels.common.working_sets import cached_pass

        return float(
            cached_pass(self.atoms, order, self.problem.C, self.rounds, self.w, self.scratch)
        )

    def end_pass(self) -> bool:
        from cliquewise._kernels.common.working_sets import compact, limit

        limit(self.atoms, self.most, self.problem.C, self.w)
        if 2 * np.count_nonzero(self.atoms.alpha[: self.used]) < self.used:
            self.used = compact(self.atoms, self.used)
        idle = self.taken == 0 and self.loose
        self.taken, self.loose = 0, False
        return idle

    @property
    def unproved(self) -> float:
        return float(self.slack.sum())

    def primal(self, w: Floats) -> tuple[float, bool]:
        return self.asking.primal(self.problem, w)

    def unpacked(self, w: Floats) -> Floats:
        return w

    def _append(self, cost: float, row: Rows) -> None:
        """Write an output after those in use; whether it stays is the kernel's choice."""
        atoms, at = self.atoms, self.used
        first, size = int(atoms.indptr[at]), int(row.indptr[1])
        room = min(len(atoms.cost), len(atoms.indptr) - 1)
        if at + 1 > room or first + size > len(atoms.values):
            new = {name: _longer(getattr(atoms, name), at + 1) for name in PER_ATOM}
            new["indptr"] = _longer(atoms.indptr, at + 2)
            entries = ("indices", "values")
            new |= {name: _longer(getattr(atoms, name), first + size) for name in entries}
            self.atoms = atoms = atoms._replace(**new)
        last, index, values = first + size, row.indices[:size], row.values[:size]
        atoms.indices[first:last], atoms.values[first:last] = index, values
        atoms.indptr[at + 1] = last
        atoms.cost[at], atoms.alpha[at], atoms.next[at] = cost, 0.0, -1


def _no_atoms(n: int) -> Any:
    from cliquewise._kernels.common.working_sets import Atoms

    whole = np.empty(0, dtype=np.int64)
    return Atoms(
        np.full(n, -1, dtype=np.int64), np.ones(n), whole, np.empty(0), np.empty(0),
        np.zeros(1, dtype=np.int64), whole.copy(), np.empty(0),
    )  # fmt: skip


def _longer(array: Any, size: int) -> Any:
    if len(array) >= size:
        return array
    out = np.zeros(max(size, 2 * len(array), 16), dtype=array.dtype)
    out[: len(array)] = array
    return out


class ExampleSums:
    """Subgradient's blocks: one best output per visit, in Python."""

    def __init__(self, problem: ExampleProblem, solver: Any):
        self.problem = problem
        self.asking = Asking(solver.map_method, tuple(solver.map_options or ()))
        self.sizes = self.zeros()  # of all rows that were added up

    def weight_error_scale(self, visits: int) -> Floats:
        return self.problem.weight_error_scale_for(self.sizes, visits)

    @staticmethod
    def size(problem: ExampleProblem) -> int:
        """Length of a vector of weights."""
        return problem.dimension

    def zeros(self) -> Floats:
        return np.zeros(self.problem.dimension)

    def visit(
        self, order: Ints, z: Floats, sums: Floats, visits: int, delay: float
    ) -> tuple[int, float]:
        n, C, mistakes = self.problem.n_examples, self.problem.C, 0.0
        for count, i in enumerate(order.tolist(), visits):
            time = (delay + count) / n
            w = z / time if time > 0 else z
            best = self.asking.best(self.problem, w, i)
            mistakes += best.cost(self.problem, w)
            self.sizes[best.row.indices] += np.abs(best.row.values)
            best.row.add_to(z, 0, -C)
            if len(sums):
                best.row.add_to(sums, 0, -C * count)
        return len(order), mistakes

    def primal(self, w: Floats) -> tuple[float, bool]:
        return self.asking.primal(self.problem, w)

    def unpacked(self, w: Floats) -> Floats:
        return w


class Answer(NamedTuple):
    """A smoothed maximum: the mean of psi and of its gradients, and whether k outputs sufficed."""

    value: float
    mean: float
    row: Rows
    exact: bool


class Kept(NamedTuple):
    """Fields of `Rows`, as checkpoints write them: a row for each example."""

    indices: Ints
    values: Floats
    indptr: Ints


class ExampleSmoothing:
    """SVRG's and Casimir's backend: one smoothed maximum per call, in Python."""

    resume_paths: ClassVar[tuple[str, ...]] = ("table", "met")

    def __init__(self, problem: ExampleProblem, smoother: str, k: int):
        self.problem, self.name, self.k = problem, smoother, k
        self.smoother: Any = get_smoother(smoother)
        self.anchor: list[Rows] = []
        self.table = Kept(*stacked([]))  # the same, where an epoch has renewed it
        self.met = np.zeros((problem.n_examples, 5))  # loss, cost, omega, exact, doubt
        self.sizes = self.zeros()

    @staticmethod
    def memory(problem: ExampleProblem, smoother: str, k: int) -> float:
        """Ten weight vectors, and a row per example."""
        n, entries = problem.n_examples, problem.row_entries
        return float(8 * 10 * problem.dimension + 16.0 * k * entries * n + 400 * k * (n + 1))

    @property
    def lower_bound(self) -> float:
        return self.problem.lower_bound

    def zeros(self) -> Floats:
        return np.zeros(self.problem.dimension)

    def kind(self, mu: float) -> str:
        return kind_of_call(self.name, self.k, mu)

    def _smoothed(self, psi: Floats, rows: Rows, mu: float, asked: int) -> Answer:
        few = psi[: self.k if mu > 0 else 1]
        u = self.smoother.gradient(few, mu)
        enough = mu == 0 or len(psi) < asked or u[-1] == 0
        if not enough and len(psi) > len(few):
            enough = self.smoother.is_exact(few, float(psi[len(few)]), mu)
        value = self.smoother.value(few, mu)
        return Answer(value, float(u @ few), rows.combined(u), bool(enough))

    def _answer(self, w: Floats, i: int, mu: float) -> Answer:
        if self.kind(mu) == "exp":
            return Answer(*self.problem.exp(w, i, mu), True)
        k = self.k if mu > 0 else 1
        return self._smoothed(*self.problem.top_k(w, i, k), mu, k)

    def _answers(self, w: Floats, mu: float) -> list[Answer]:
        """Of all examples; one output more than the k tells whether they were enough."""
        if self.kind(mu) == "exp":
            return [self._answer(w, i, mu) for i in range(self.problem.n_examples)]
        k = self.k + 1 if mu > 0 else 1
        return [self._smoothed(psi, rows, mu, k) for psi, rows in self.problem.top_k_all(w, k)]

    def full_gradient(self, w: Floats, mu: float) -> Pass:
        found = self._answers(w, mu)
        for i, a in enumerate(found):
            self._note(i, a, w)
        self.anchor = [a.row for a in found]
        return self._summed()

    def kept(self) -> Pass:
        return self._summed()

    def _note(self, i: int, a: Answer, w: Floats) -> None:
        """Remember what a call found, and by how much its cost may be wrong."""
        rounding_error = self.problem.cost_rounding_error(w, abs(a.value) + abs(a.mean), a.row)
        cost = a.mean - float(a.row.dot(w)[0])
        self.met[i] = a.value, cost, a.mean - a.value, a.exact, rounding_error

    def _summed(self) -> Pass:
        """The distributions at the anchor, as a point of the dual."""
        n = max(self.problem.n_examples, 1)
        gradient, sizes = self.zeros(), self.zeros()
        for row in self.anchor:
            sizes[row.indices] += np.abs(row.values)
            row.add_to(gradient, 0)
        self.sizes = np.maximum(self.sizes, sizes)
        loss, cost, omega, exact, rounding_error = self.met.sum(axis=0).tolist()
        rounding_error += UNIT * n * float(np.abs(self.met[:, :2]).sum())
        share = exact / n if self.anchor else 1.0
        calls = len(self.anchor)
        return Pass(loss / n, cost / n, omega / n, gradient / n, calls, share, rounding_error / n)

    def epoch(
        self, w: Floats, c: Floats, mu: float, order: Ints, step: float, shrink: float,
        average: bool, renew: bool = False,
    ) -> tuple[Floats, int]:  # fmt: skip
        w, total = w.copy(), self.zeros()
        if renew and not self.anchor:
            rows = Rows(*self.table)
            self.anchor = [rows.row(i) for i in range(len(rows))]
        for i in order.tolist():
            answer, before = self._answer(w, i, mu), self.anchor[i]
            if renew:
                self._note(i, answer, w)
                self.anchor[i] = answer.row
            w += (1.0 - shrink) * (c - w)
            answer.row.add_to(w, 0, -step)
            before.add_to(w, 0, step)
            if average:
                total += w
        if renew:
            self.table = Kept(*stacked([(row.indices, row.values) for row in self.anchor]))
        return (total / len(order) if average and len(order) else w), len(order)

    def forget(self) -> None:
        none = Rows(np.empty(0, dtype=np.int64), np.empty(0), np.zeros(2, dtype=np.int64))
        self.anchor = [none] * self.problem.n_examples

    def smooth_loss(self, w: Floats, mu: float) -> float:
        found = self._answers(w, mu)
        return sum(a.value for a in found) / max(len(found), 1)

    def total_loss(self, w: Floats) -> float:
        return float(self.problem.losses(w).sum())

    @property
    def weight_error_scale(self) -> Floats:
        return self.problem.weight_error_scale_for(self.sizes, self.problem.n_examples + self.k)

    @cached_property
    def curvature(self) -> float:
        return self.problem.curvature(max(self.k, 2))

    def unpacked(self, w: Floats) -> Floats:
        return w.copy()

    packed = unpacked
