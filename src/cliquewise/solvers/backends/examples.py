"""Backends for problems with an oracle per example: `bcfw`, `subgradient`, `svrg` and `casimir`.

Graphs, matchings and candidates are all handled by `ExampleProblem.best`, `top_k` and `exp`.
"""

from __future__ import annotations

from functools import cached_property
from typing import Any, ClassVar, NamedTuple, Self

import numpy as np

from cliquewise.errors import DataError
from cliquewise.problems.examples import Best, ExampleProblem, Rows
from cliquewise.problems.rounding import SUM, UNIT, Bound
from cliquewise.ragged import Floats, Ints
from cliquewise.smoothers import L2, Smoother, get_smoother
from cliquewise.solvers.array_checks import (
    ROUNDING,
    check,
    check_offsets,
    checked,
    count_of,
    owners,
    pack_gaps,
    unpack_gaps,
)
from cliquewise.solvers.backends.base import (
    CombinationSettings,
    Defaults,
    MapSettings,
    Pass,
    SmoothingSettings,
    kind_of_call,
)
from cliquewise.solvers.base import Arrays

#: The best output need only be found up to this share of the last gap of its example.
ENOUGH = 0.1
#: Arrays of the atoms with one entry per atom.
PER_ATOM = ("next", "cost", "alpha")


def best_output(
    problem: ExampleProblem, w: Floats, i: int, call: MapSettings, enough: float = 0.0
) -> Best:
    """Return the best output of example ``i``, or one within ``enough`` of the best."""
    return problem.best(w, i, call.method, call.options, enough)


def objective_bound(problem: ExampleProblem, w: Floats, call: MapSettings) -> tuple[float, bool]:
    """Return an upper bound of the objective, and whether it is the objective."""
    bounds, exact = problem.bounds(w, call.method, call.options)
    value = problem.ridge_objective(float(w @ w), float(bounds.sum()))
    return problem.upper_bound(w, value, exact)


class WorkingSets:
    """The outputs found so far, their shares, and the weights that these give.

    See ``_kernels/common/working_sets.py``.
    """

    samples_by_gap: ClassVar[bool] = False
    defaults: ClassVar[Defaults] = Defaults(
        cached_passes=200, inner_rounds=5, max_outputs=100, average=False
    )

    def __init__(self, problem: ExampleProblem, settings: CombinationSettings):
        self.problem, self.settings = problem, settings
        n, d = problem.n_examples, problem.dimension
        self.atoms, self.used = _no_atoms(n), 0
        self.w, self.scratch = np.zeros(d), np.zeros(d)
        self.gaps = np.full(n, np.inf)
        self.slack = np.zeros(n)  # the part of each gap between the oracle's bound and value
        self.taken, self.loose = 0, False  # outputs added in this epoch; whether a bound was loose

    @classmethod
    def memory(cls, problem: ExampleProblem, settings: CombinationSettings) -> float:
        """Estimate the memory in bytes: two weight vectors and about ten outputs per example."""
        return 16.0 * (problem.dimension + 10 * problem.row_entries * problem.n_examples)

    @property
    def max_step_examples(self) -> int:
        """Number of examples whose oracle calls take about two seconds."""
        return self.problem.max_step_examples

    # ---- warm starts and checkpoints

    def continue_from(self, warm: Self) -> None:
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
            "size": np.array([len(self.w)]), "gaps": pack_gaps(self.gaps),
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
        self.gaps = unpack_gaps(arrays, self.gaps)
        self.atoms, self.used = self.atoms._replace(**fields), used

    # ---- steps

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
        # If an example's shares exceed 1 by rounding, scale all of them: the truth has cost 0.
        excess = max(1.0, float(self._totals().max(initial=0.0)))
        linear = total / excess if total > 0 else total
        weight_error_scale = problem.weight_error_scale_for(
            np.asarray(sums, dtype=np.float64), used
        )
        return problem.bound(
            linear + problem.lower_bound, self.w, rounding_error, weight_error_scale
        )

    def _totals(self) -> Floats:
        """Return the sum of the shares of each example's outputs."""
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
            best = best_output(self.problem, self.w, i, self.settings.map_call, enough)
            cost = best.cost(self.problem, self.w) - float(self.problem.truth_costs[i])
            self._append(cost, best.row)
            # Counted before the kernel may use it, so that an interrupt leaves a valid state.
            self.used += 1
            taken, more, gap = visit(
                self.atoms,
                i,
                self.used - 1,
                self.problem.C,
                self.settings.inner_rounds,
                self.w,
                self.scratch,
            )
            self.used -= int(not taken)
            excess = max(best.bound - best.value, 0.0)
            loose = not best.exact and excess > enough  # and not because `enough` was reached
            self.slack[i] = excess if loose else 0.0
            self.gaps[i] = gap + excess
            self.taken += int(taken)
            self.loose = self.loose or loose
            rise += float(more)
        return len(order), rise

    def cached_pass(self, order: Ints) -> float:
        from cliquewise._kernels.common.working_sets import cached_pass

        return float(
            cached_pass(
                self.atoms, order, self.problem.C, self.settings.inner_rounds, self.w, self.scratch
            )
        )

    def end_epoch(self) -> bool:
        from cliquewise._kernels.common.working_sets import compact, limit

        limit(self.atoms, self.settings.max_outputs, self.problem.C, self.w)
        if 2 * np.count_nonzero(self.atoms.alpha[: self.used]) < self.used:
            self.used = compact(self.atoms, self.used)
        idle = self.taken == 0 and self.loose
        self.taken, self.loose = 0, False
        return idle

    @property
    def unproven(self) -> float:
        return float(self.slack.sum())

    def primal(self, w: Floats) -> tuple[float, bool]:
        return objective_bound(self.problem, w, self.settings.map_call)

    def unpacked(self, w: Floats) -> Floats:
        return w

    def _append(self, cost: float, row: Rows) -> None:
        """Store an output after those in use; the kernel decides whether to keep it."""
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
    """Subgradient steps with one best output per visit, in Python."""

    def __init__(self, problem: ExampleProblem, settings: MapSettings):
        self.problem, self.call = problem, settings
        self.sizes = self.zeros()  # sums of the |entries| of all rows

    def weight_error_scale(self, visits: int) -> Floats:
        return self.problem.weight_error_scale_for(self.sizes, visits)

    @classmethod
    def memory(cls, problem: ExampleProblem, settings: MapSettings) -> float:
        """Return the bytes of four weight vectors and of an output per example."""
        return 32.0 * problem.dimension + 500.0 * problem.n_examples

    def zeros(self) -> Floats:
        return np.zeros(self.problem.dimension)

    def visit(
        self, order: Ints, z: Floats, sums: Floats, visits: int, delay: float
    ) -> tuple[int, float]:
        n, C, mistakes = self.problem.n_examples, self.problem.C, 0.0
        for count, i in enumerate(order.tolist(), visits):
            time = (delay + count) / n
            w = z / time if time > 0 else z
            best = best_output(self.problem, w, i, self.call)
            mistakes += best.cost(self.problem, w)
            self.sizes[best.row.indices] += np.abs(best.row.values)
            best.row.add_to(z, 0, -C)
            if len(sums):
                best.row.add_to(sums, 0, -C * count)
        return len(order), mistakes

    def primal(self, w: Floats) -> tuple[float, bool]:
        return objective_bound(self.problem, w, self.call)

    def unpacked(self, w: Floats) -> Floats:
        return w


class Answer(NamedTuple):
    """A smoothed maximum, the means of psi and its gradients, and whether k outputs were enough."""

    value: float
    mean: float
    row: Rows
    exact: bool


class ExampleSmoothing:
    """Full gradients and epochs with one smoothed maximum per call, in Python."""

    def __init__(self, problem: ExampleProblem, settings: SmoothingSettings):
        self.problem, self.name, self.k = problem, settings.smoother, settings.k
        self.smoother: Smoother = get_smoother(settings.smoother)
        self.anchor: list[Rows] = []
        # loss, cost, omega, whether it is exact, and rounding error of each example's last call
        self.met = np.zeros((problem.n_examples, 5))
        self.sizes = self.zeros()

    @classmethod
    def memory(cls, problem: ExampleProblem, settings: SmoothingSettings) -> float:
        """Return the bytes of ten weight vectors, and of k outputs per example."""
        n, entries, k = problem.n_examples, problem.row_entries, settings.k
        return 80.0 * problem.dimension + 16.0 * k * entries * n + 400.0 * k * (n + 1)

    def zeros(self) -> Floats:
        return np.zeros(self.problem.dimension)

    def kind(self, mu: float) -> str:
        return kind_of_call(self.name, self.k, mu)

    def _smoothed(self, psi: Floats, rows: Rows, mu: float, asked: int) -> Answer:
        few = psi[: self.k if mu > 0 else 1]
        u = self.smoother.gradient(few, mu)
        enough = mu == 0 or len(psi) < asked or u[-1] == 0
        if not enough and len(psi) > len(few) and isinstance(self.smoother, L2):
            enough = self.smoother.is_exact(few, float(psi[len(few)]), mu)
        value = self.smoother.value(few, mu)
        return Answer(value, float(u @ few), rows.combined(u), bool(enough))

    def _answer(self, w: Floats, i: int, mu: float) -> Answer:
        if self.kind(mu) == "exp":
            return Answer(*self.problem.exp(w, i, mu), True)
        k = self.k if mu > 0 else 1
        return self._smoothed(*self.problem.top_k(w, i, k), mu, k)

    def _answers(self, w: Floats, mu: float) -> list[Answer]:
        """Return the smoothed maxima of all examples; output k + 1 shows whether k were enough."""
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
        """Store the result of a call, and the rounding error of its cost."""
        rounding_error = self.problem.cost_rounding_error(w, abs(a.value) + abs(a.mean), a.row)
        cost = a.mean - float(a.row.dot(w)[0])
        self.met[i] = a.value, cost, a.mean - a.value, a.exact, rounding_error

    def _summed(self) -> Pass:
        """Return the distributions at the anchor, as a point of the dual."""
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
