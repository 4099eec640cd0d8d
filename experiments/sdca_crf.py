"""Duality gap against epochs: samplings and steps of SDCA (sdca_crf, section 3 and Figure 2).

    python -m experiments.sdca_crf [--data DIR] [--out DIR] [--epochs N] ocr|conll2000|mixture

* ``ocr``: handwritten words, folds 1-9 for training, C = 1, intercept and boundary weights.
* ``conll2000``: chunking with CRFsuite's template and the seen pairs, C = 0.5.
* ``mixture``: classes of a Gaussian mixture (one-node chains), beside L-BFGS and SAG.

An epoch is as many visits as there are examples; a line-search visit of SDCA, and an
evaluation of L-BFGS's line search, count for what they cost in passes. The gap is the
exact one, over all data, after every epoch.

The note's steps move along the mixture of two distributions; those of ``cliquewise`` along the
exponentiated path between them, which has the same ends and needs no logarithm per edge.
"""

from __future__ import annotations

import argparse
import sys
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from cliquewise.data.dataset import Dataset
from cliquewise.models.chain import ChainModel
from cliquewise.problems.chain import ChainProblem
from cliquewise.solvers.lbfgs import LBFGS
from cliquewise.solvers.run import run
from cliquewise.solvers.sag import SAG
from cliquewise.solvers.sdca import SDCA

#: Below this relative gap rounding hides the course.
FLOOR = 1e-11

VARIANTS: dict[str, Any] = {
    "gap sampling": SDCA(),
    "permuted": SDCA(sampling="permuted"),
    "uniform": SDCA(sampling="uniform"),
    "cyclic": SDCA(sampling="cyclic"),
    "uniform, fixed step 0.1": SDCA(sampling="uniform", line_search=False, step_length=0.1),
    "uniform, fixed step 0.5": SDCA(sampling="uniform", line_search=False, step_length=0.5),
}
PRIMAL: dict[str, Any] = {"L-BFGS": LBFGS(), "SAG": SAG()}


@dataclass
class Course:
    """One solver's way: a row per epoch."""

    name: str
    epochs: np.ndarray
    primal: np.ndarray
    dual: np.ndarray
    seconds: float
    weights: np.ndarray

    @property
    def gap(self) -> np.ndarray:
        """Relative duality gap; a dual value once reached stays proved."""
        return (self.primal - np.maximum.accumulate(self.dual)) / self.primal

    def slope(self) -> tuple[float, float]:
        """(decimal digits per epoch, share of variance explained) of a line through log gap."""
        inside = (self.gap > FLOOR) & (self.gap < 0.5)
        if inside.sum() < 4:
            return float("nan"), float("nan")
        x, y = self.epochs[inside], np.log10(self.gap[inside])
        line = np.polyfit(x, y, 1)
        rest = y - np.polyval(line, x)
        return float(-line[0]), float(1.0 - rest.var() / y.var())

    def epochs_to(self, gap: float) -> float:
        """When the gap was first reached."""
        at = np.flatnonzero(self.gap <= gap)
        return float(self.epochs[at[0]]) if len(at) else float("inf")


def follow(problem: ChainProblem, name: str, solver: Any, epochs: float, seed: int = 0) -> Course:
    """Run a solver and certify every epoch; the clock counts its steps alone."""
    _compile(problem, solver)
    rng = np.random.default_rng(seed)
    state = solver.init(problem)
    rows, done, seconds = [], 0.0, 0.0
    while done < epochs - 1e-9:
        begin = time.perf_counter()
        state, info = solver.step(problem, state, rng)
        seconds += time.perf_counter() - begin
        done += info.epochs
        proof = solver.certify(problem, state)
        rows.append((done, proof.primal, proof.dual))
        if proof.gap < FLOOR or info.finished:
            break
    x, primal, dual = np.array(rows).T
    print(f"  {name}: {len(rows)} rows, gap {Course(name, x, primal, dual, 0, x).gap[-1]:.2e}, "
          f"{seconds:.1f} s", file=sys.stderr, flush=True)  # fmt: skip
    return Course(name, x, primal, dual, seconds, np.array(solver.weights(problem, state)))


def _compile(problem: ChainProblem, solver: Any) -> None:
    """One step on two examples, so that no clock counts compilation."""
    data = problem.data.subset([0, 1])
    small = ChainProblem(problem.model, data, problem.C)
    solver.step(small, solver.init(small), np.random.default_rng(0))


# ---- the three problems


@dataclass
class Task:
    """A problem, and what is known about it."""

    problem: ChainProblem
    title: str
    epochs: int
    variants: dict[str, Any]
    test: tuple[Dataset, np.ndarray] | None = None


def ocr(folder: str | None) -> Task:
    """Letters of words as their black pixels."""
    from cliquewise.data.loaders import load_ocr

    split = load_ocr(folder)
    names = sorted({label for y in split.y_train for label in y})
    train, test = (
        _pictures(x, y, names)
        for x, y in ((split.X_train, split.y_train), (split.X_test, split.y_test))
    )
    problem = ChainProblem(ChainModel.build(train, len(names)), train, C=1.0)
    assert test.labels is not None
    return Task(problem, "OCR, C = 1", 60, VARIANTS, (test, test.labels))


def _pictures(x: Any, y: Any, names: list[str]) -> Dataset:
    number = {name: i for i, name in enumerate(names)}
    offsets = np.concatenate(([0], np.cumsum([len(word) for word in y])))
    labels = [number[letter] for word in y for letter in word]
    return Dataset.from_matrix(np.vstack(x), offsets, labels=np.array(labels, dtype=np.int32))


def conll2000(folder: str | None) -> Task:
    """Chunking."""
    from cliquewise.data import Labels, Template, TemplateEncoder
    from cliquewise.data.loaders import load_conll2000

    split = load_conll2000(folder)
    encoder = TemplateEncoder(Template.builtin("chunking", n_columns=split.X_train.n_columns))
    labels = Labels.fit(split.y_train)
    data = encoder.fit_transform(split.X_train)
    data = data.with_labels(labels.encode(split.y_train, data.offsets)[0])
    model = ChainModel.build(
        data, len(labels), feature_pairs="seen", intercept=False, boundaries=False
    )
    return Task(ChainProblem(model, data, C=0.5), "CoNLL-2000, C = 0.5", 12, VARIANTS)


def mixture(folder: str | None, n: int = 2000, k: int = 10, d: int = 20) -> Task:
    """Points of k Gaussians with random means."""
    rng = np.random.default_rng(0)
    y = rng.integers(0, k, n).astype(np.int32)
    x = rng.normal(size=(k, d))[y] + rng.normal(size=(n, d))
    data = Dataset.from_matrix(x, np.arange(n + 1), labels=y)
    problem = ChainProblem(ChainModel.build(data, k, boundaries=False), data, C=1.0)
    title = f"Gaussian mixture, {k} classes, {n} points in {d} dimensions"
    return Task(problem, title, 60, {**VARIANTS, **PRIMAL})


def hamming(problem: ChainProblem, w: np.ndarray, data: Dataset, labels: np.ndarray) -> float:
    """Share of wrong labels."""
    from cliquewise._kernels.chain.decode import batch_viterbi

    nodes, edges = problem.model.potentials(w, data)
    found, best = np.empty(data.n_tokens, dtype=np.int64), np.empty(len(data))
    batch_viterbi(nodes, data.offsets, edges, found, best)
    return float(np.mean(found != labels))


# ---- what comes out


def table(courses: list[Course]) -> str:
    """Gap at some epochs, epochs to some gaps, and the line through log gap."""
    marks = [1, 2, 5, 10, 20, 30, 60]
    longest = max(c.epochs[-1] for c in courses)
    marks = [m for m in marks if m <= longest]
    lines = [f"{'relative gap after epoch':26s}" + "".join(f"{m:>9d}" for m in marks)
             + f"{'to 1e-3':>10s}{'digits/epoch':>14s}{'R2':>7s}{'s/epoch':>9s}"]  # fmt: skip
    for c in courses:
        gaps = []
        for m in marks:
            at = np.flatnonzero(c.epochs <= m + 1e-9)
            gaps.append(f"{c.gap[at[-1]]:9.1e}" if len(at) else f"{'':9s}")
        digits, explained = c.slope()
        lines.append(f"{c.name:26s}" + "".join(gaps) + f"{c.epochs_to(1e-3):10.0f}"
                     f"{digits:14.3f}{explained:7.3f}{c.seconds / c.epochs[-1]:9.3f}")  # fmt: skip
    return "\n".join(lines)


def figure(courses: list[Course], title: str, path: Path) -> None:
    """Log gap against epochs."""
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot

    fig, axes = pyplot.subplots(figsize=(7, 4.5))
    for c in courses:
        axes.semilogy(c.epochs, np.maximum(c.gap, FLOOR), label=c.name)
    axes.set(xlabel="epochs", ylabel="relative duality gap", title=title)
    axes.grid(alpha=0.3)
    axes.legend(fontsize=8)
    fig.tight_layout()
    path.parent.mkdir(parents=True, exist_ok=True)
    fig.savefig(path, dpi=150)
    pyplot.close(fig)


def verdicts(task: Task, courses: list[Course]) -> list[tuple[bool, str]]:
    """What is claimed or asked for, and whether it is seen here."""
    by_name = {c.name: c for c in courses}
    gap, uniform = by_name["gap sampling"], by_name["uniform"]
    digits, explained = gap.slope()
    reached = max(gap.gap[-1], uniform.gap[-1])
    a, b = gap.epochs_to(reached), uniform.epochs_to(reached)
    out = [
        (explained > 0.95, f"linear convergence: log gap of gap sampling falls on a line "
                           f"({digits:.3f} digits per epoch, R2 = {explained:.3f})"),
        (a < b, f"gap sampling is ahead of uniform: relative gap {reached:.1e} after {a:.0f} "
                f"epochs against {b:.0f}"),
    ]  # fmt: skip
    if task.test is not None:
        fit = run(task.problem, SDCA(), tol=1e-6, max_epochs=200, random_state=0)
        proof, error = fit.certificate, hamming(task.problem, fit.weights, *task.test)
        earlier = hamming(task.problem, gap.weights, *task.test)
        out += [
            (proof.gap < 1e-4, f"relative gap {proof.gap:.1e} after {fit.epochs:.0f} epochs "
                               "(wanted: below 1e-4)"),
            (2.4382 <= proof.dual <= proof.primal <= 2.4417,
             f"the optimum lies in [{proof.dual:.6f}, {proof.primal:.6f}], inside the bracket of "
             "the author's code, [2.4382, 2.4417]"),
            (error <= 0.118, f"test Hamming error {error:.5f} at that gap (wanted: at most 0.118; "
                             f"{earlier:.5f} at the gap of {gap.gap[-1]:.1e})"),
        ]  # fmt: skip
    return out


def comparisons(courses: list[Course]) -> list[str]:
    """Which comes first, at several gaps: no claim, and the order may change with the gap."""
    groups = {
        "line search or fixed steps": [c for c in courses if c.name.startswith("uniform")],
        "dual or primal": [c for c in courses if c.name in ("gap sampling", *PRIMAL)],
    }
    lines = []
    for title, group in groups.items():
        for level in (1e-1, 1e-3, 1e-6) if len(group) > 1 else ():
            order = sorted(group, key=lambda c: c.epochs_to(level))
            found = [f"{c.name} {c.epochs_to(level):.0f}" for c in order
                     if np.isfinite(c.epochs_to(level))]  # fmt: skip
            if found:
                lines.append(f"{title}, epochs to {level:.0e}: {'; '.join(found)}")
    return lines


def main(arguments: list[str] | None = None) -> int:
    """Run one experiment; the exit status is 0 if everything agrees."""
    raw = argparse.RawDescriptionHelpFormatter
    parser = argparse.ArgumentParser(
        "experiments.sdca_crf", description=__doc__, formatter_class=raw
    )
    tasks = {"ocr": ocr, "conll2000": conll2000, "mixture": mixture}
    parser.add_argument("task", choices=tasks)
    parser.add_argument("--data", help="folder of data sets (default: CLIQUEWISE_DATA)")
    parser.add_argument("--out", type=Path, default=Path("out"), help="folder of the figure")
    parser.add_argument("--epochs", type=int, help="passes of every variant")
    given = parser.parse_args(arguments)
    task = tasks[given.task](given.data)
    epochs = given.epochs or task.epochs
    courses = [follow(task.problem, name, s, epochs) for name, s in task.variants.items()]
    print(f"{task.title}: {task.problem.n_examples} examples, {task.problem.dimension} weights\n")
    print(table(courses), "\n")
    path = given.out / f"sdca_crf_{given.task}.png"
    figure(courses, task.title, path)
    found = verdicts(task, courses)
    for agrees, sentence in found:
        print(f"{'agrees:      ' if agrees else 'does NOT agree: '}{sentence}")
    print("\n".join(comparisons(courses)))
    print(f"figure: {path}")
    return 0 if all(agrees for agrees, _ in found) else 1


if __name__ == "__main__":
    raise SystemExit(main())
