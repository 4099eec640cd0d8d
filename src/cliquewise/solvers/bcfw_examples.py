"""BCFW on any problem that is asked example by example, with the outputs found kept at hand.

Block-coordinate Frank-Wolfe with pairwise steps (Osokin et al. 2016) and cached passes (Shah
et al. 2015). See ``_kernels/common/working_sets.py``.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np

from cliquewise.certificate import Certificate
from cliquewise.errors import DataError
from cliquewise.graph.factor_graph import Floats
from cliquewise.problems.examples import ExampleProblem, Rows
from cliquewise.solvers.base import Info, Solver, register

#: Arrays of the atoms with one entry per atom.
PER_ATOM = ("next", "cost", "alpha")


@dataclass
class WorkingSets:
    """The outputs found so far, what each counts, and the weights that they give."""

    atoms: Any
    used: int
    w: Floats
    scratch: Floats
    gaps: Floats
    dual: float = 0.0


@register
@dataclass(frozen=True)
class BCFWExamples(Solver):
    """Block-coordinate Frank-Wolfe over the outputs of an oracle.

    Parameters
    ----------
    cached_passes : int, default=200
        After each pass at most so many that ask for no new output; they end as soon as they
        bring less than a tenth of it.
    inner_rounds : int, default=5
        Steps per visit, at most.

    Examples
    --------
    >>> from cliquewise.problems.candidates import CandidateProblem, CandidateSets
    >>> from cliquewise.solvers.run import run
    >>> data = CandidateSets.from_examples([[[1.0, 0.0], [0.0, 1.0]]])
    >>> fit = run(CandidateProblem(data, [0]), BCFWExamples(), tol=1e-9)
    >>> fit.weights.round(6) + 0.0
    array([ 0.5, -0.5])
    """

    name: ClassVar[str] = "bcfw_examples"
    losses: ClassVar[frozenset[str]] = frozenset({"hinge"})
    problems: ClassVar[frozenset[str]] = frozenset({"examples", "candidates", "matching"})
    cached_passes: int = 200
    inner_rounds: int = 5

    def __post_init__(self) -> None:
        for name, least in (("cached_passes", 0), ("inner_rounds", 1)):
            if getattr(self, name) < least:
                raise DataError(f"{name} = {getattr(self, name)}; it must be at least {least}")

    def memory(self, problem: Any) -> float:
        """Weights and scratch, and about ten outputs per example."""
        if not isinstance(problem, ExampleProblem):
            return 0.0
        return float(16.0 * (problem.dimension + 10 * problem.row_entries * problem.n_examples))

    # ---- state

    def init(self, problem: ExampleProblem, warm: WorkingSets | None = None) -> WorkingSets:
        """The truth alone, or the outputs of ``warm`` for the examples it has."""
        n, d = problem.n_examples, problem.dimension
        state = WorkingSets(_empty(n), 0, np.zeros(d), np.zeros(d), np.full(n, np.inf))
        if isinstance(warm, WorkingSets):
            if len(warm.w) != d or len(warm.gaps) > n:
                raise DataError("a warm start needs the same features and at least the examples")
            known = len(warm.gaps)
            copy = {name: getattr(warm.atoms, name).copy() for name in warm.atoms._fields}
            copy["head"] = np.append(copy["head"], np.full(n - known, -1))
            copy["rest"] = np.append(copy["rest"], np.ones(n - known))
            state.atoms, state.used = warm.atoms._replace(**copy), warm.used
        self._refresh(problem, state)
        return state

    def _refresh(self, problem: ExampleProblem, state: WorkingSets) -> float:
        """The weights and the dual value from the outputs afresh; returns ``||w||^2``."""
        from cliquewise._kernels.common.working_sets import weights_of_atoms

        total = weights_of_atoms(state.atoms, problem.C, state.w)
        norm = float(state.w @ state.w)
        state.dual = total / max(problem.n_examples, 1) - 0.5 * problem.lam * norm
        return norm

    # ---- one step

    def _visit(self, problem: ExampleProblem, state: WorkingSets, i: int) -> float:
        """Ask for the most violating output and improve; the rise of n times the dual."""
        from cliquewise._kernels.common.working_sets import visit

        scores, rows = problem.top_k(state.w, i, 1)
        _append(state, float(scores[0]), rows)
        taken, rise, state.gaps[i] = visit(
            state.atoms, i, state.used, problem.C, self.inner_rounds, state.w, state.scratch
        )
        state.used += int(taken)
        return float(rise)

    def step(
        self, problem: ExampleProblem, state: WorkingSets, rng: np.random.Generator
    ) -> tuple[WorkingSets, Info]:
        """A pass over all examples in random order, then cached passes."""
        from cliquewise._kernels.common.working_sets import cached_pass

        n = problem.n_examples
        if n == 0:
            return state, Info(1.0, 0, 0.0)
        rise = sum(self._visit(problem, state, i) for i in rng.permutation(n).tolist())
        total = rise
        for _ in range(self.cached_passes):
            more = cached_pass(
                state.atoms, rng.permutation(n), problem.C, self.inner_rounds, state.w,
                state.scratch,
            )  # fmt: skip
            total += more
            if more < 0.1 * rise:
                break
        state.dual += total / n
        _prune(state)
        gap = float(state.gaps.sum()) / n
        return state, Info(1.0, n, gap / max(abs(state.dual + gap), 1e-12))

    # ---- what it proves

    def certify(self, problem: ExampleProblem, state: WorkingSets) -> Certificate:
        """Exact primal and dual values."""
        norm = self._refresh(problem, state)
        total = float(problem.losses(state.w).sum())
        return Certificate(problem.value(norm, total), state.dual, "exact")

    def weights(self, problem: ExampleProblem, state: WorkingSets) -> Floats:
        """The weights of the dual point."""
        return state.w

    def pack(self, state: WorkingSets) -> dict[str, np.ndarray[Any, Any]]:
        """The outputs and their weights."""
        atoms, used = state.atoms, state.used
        end = int(atoms.indptr[used])
        return {
            **{name: getattr(atoms, name)[:used] for name in PER_ATOM},
            "head": atoms.head, "rest": atoms.rest, "indptr": atoms.indptr[: used + 1],
            "indices": atoms.indices[:end], "values": atoms.values[:end],
            "size": np.array([len(state.w)]),
        }  # fmt: skip

    def unpack(
        self, problem: ExampleProblem, arrays: dict[str, np.ndarray[Any, Any]]
    ) -> WorkingSets:
        """Back from :meth:`pack`."""
        n, used = len(arrays["head"]), len(arrays["alpha"])
        fits = (
            n == problem.n_examples
            and arrays["size"][0] == problem.dimension
            and len(arrays["indptr"]) == used + 1
            and arrays["indices"].max(initial=0) < max(problem.dimension, 1)
            and max(arrays["head"].max(initial=-1), arrays["next"].max(initial=-1)) < used
        )
        if not fits:
            raise DataError("the checkpoint is of other data: its arrays have other shapes")
        atoms = type(_empty(0))(**{k: np.array(v) for k, v in arrays.items() if k != "size"})
        d = problem.dimension
        state = WorkingSets(atoms, used, np.zeros(d), np.zeros(d), np.full(n, np.inf))
        self._refresh(problem, state)
        return state


def _empty(n: int) -> Any:
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


def _append(state: WorkingSets, score: float, rows: Rows) -> None:
    """Write the first row after the atoms in use; whether it stays is the kernel's choice."""
    atoms, at = state.atoms, state.used
    first, size = int(atoms.indptr[at]), int(rows.indptr[1])
    room = min(len(atoms.cost), len(atoms.indptr) - 1)
    if at + 1 > room or first + size > len(atoms.values):
        new = {name: _longer(getattr(atoms, name), at + 1) for name in PER_ATOM}
        new["indptr"] = _longer(atoms.indptr, at + 2)
        new |= {name: _longer(getattr(atoms, name), first + size) for name in ("indices", "values")}
        state.atoms = atoms = atoms._replace(**new)
    index, values = rows.indices[:size], rows.values[:size]
    atoms.indices[first : first + size], atoms.values[first : first + size] = index, values
    atoms.indptr[at + 1] = first + size
    atoms.cost[at] = score - float(values @ state.w[index])
    atoms.alpha[at], atoms.next[at] = 0.0, -1


def _prune(state: WorkingSets) -> None:
    """Forget the atoms without weight once they are more than half."""
    from cliquewise._kernels.common.working_sets import compact

    if 2 * np.count_nonzero(state.atoms.alpha[: state.used]) < state.used:
        state.used = compact(state.atoms, state.used)
