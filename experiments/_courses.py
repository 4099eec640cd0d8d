"""Runs of solvers followed pass by pass: tuning, tables, figures, and a file of what was run."""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from cliquewise.solvers.casimir import Casimir
from cliquewise.solvers.svrg import SVRG

Score = Callable[[Any, np.ndarray], dict[str, float]]
#: Per method: how to make the solver from a value, the grid of values, the number of seeds.
Methods = dict[str, tuple[Callable[[float], Any], tuple[float, ...], int]]

LABELS = {"stochastic": "passes of oracle calls", "seconds": "CPU seconds", "primal": "objective",
          "tag_f1": "F1 of tags", "entity_f1": "F1 of entities", "corloc": "CorLoc",
          "ap": "average precision"}  # fmt: skip


@dataclass
class Plan:
    """How much of everything."""

    passes: int = 50
    seeds: int = 10
    slow_seeds: int = 3
    rates: tuple[float, ...] = tuple(2.0**-e for e in range(3, 10))
    delays: tuple[float, ...] = tuple(2.0**e for e in range(2, 13, 2))
    sentences: int | None = None
    every: int = 5
    strengths: tuple[float, ...] = (0.01, 0.1, 1.0, 10.0)
    again: tuple[str, ...] | None = None

    @classmethod
    def quick(cls) -> Plan:
        return cls(15, 2, 1, (2.0**-5, 2.0**-6), (2.0**4, 2.0**8), 1500, 5)


@dataclass
class Course:
    """One run: a row at every check."""

    name: str
    rows: list[dict[str, float]] = field(default_factory=list)

    def column(self, name: str) -> np.ndarray:
        return np.array([row[name] for row in self.rows])

    @property
    def best(self) -> float:
        """Least objective met."""
        return float(np.min(self.column("primal")))


class Store:
    """What was run, in a JSON file, so that one method can be run again without the others."""

    def __init__(self, path: Path, plan: Plan):
        self.path, self.again = path, plan.again
        kept = plan.again is not None and path.exists()
        self.content: dict[str, Any] = json.loads(path.read_text()) if kept else {}

    def get(self, name: str, make: Callable[[], Any]) -> Any:
        """What the file has under a name, unless that is to be made again."""
        if name not in self.content or name in (self.again or ()):
            self.content[name] = make()
            self.path.parent.mkdir(parents=True, exist_ok=True)
            self.path.write_text(json.dumps(self.content))
        return self.content[name]


def follow(problem: Any, name: str, solver: Any, plan: Plan, seed: int, score: Score) -> Course:
    """Run for so many passes of stochastic calls; check every few of them."""
    rng, state, course = np.random.default_rng(seed), solver.init(problem), Course(name)
    passes, stochastic, seconds = 0.0, 0.0, 0.0
    while stochastic < plan.passes - 1e-9:
        begin = time.process_time()
        state, info = solver.step(problem, state, rng)
        seconds += time.process_time() - begin
        passes += info.epochs
        stochastic += 1.0 if isinstance(solver, SVRG | Casimir) else info.epochs
        if stochastic % plan.every < 1e-9 or stochastic in (1.0, 2.0):
            proof = solver.certify(problem, state)
            row = {"passes": passes, "stochastic": stochastic, "seconds": seconds,
                   "primal": proof.primal, "dual": proof.dual}  # fmt: skip
            course.rows.append(row | score(problem, solver.weights(problem, state)))
    return course


def tuned(problem: Any, make: Callable[[float], Any], grid: tuple[float, ...], plan: Plan) -> Any:
    """The solver of a grid with the least objective after all passes."""
    nothing: Score = lambda problem, w: {}  # noqa: E731
    ends = [follow(problem, "", make(value), plan, 0, nothing).best for value in grid]
    best = grid[int(np.argmin(ends))]
    print(f"    grid: {', '.join(f'{v:.3g}: {e:.5g}' for v, e in zip(grid, ends, strict=True))}",
          file=sys.stderr, flush=True)  # fmt: skip
    return make(best)


def compare(
    problem: Any, plan: Plan, score: Score, store: Store, methods: Methods
) -> dict[str, list[Course]]:
    """Tune each method, then run it with several seeds."""
    out = {}
    for name, (make, grid, seeds) in methods.items():

        def runs(name=name, make=make, grid=grid, seeds=seeds) -> list[dict[str, Any]]:  # type: ignore[no-untyped-def]
            warm = make(grid[0])
            state, rng = warm.init(problem), np.random.default_rng(0)
            for _ in range(2):  # compiles: the second step of some asks for more than the first
                state, _ = warm.step(problem, state, rng)
            solver = tuned(problem, make, grid, plan) if len(grid) > 1 else warm
            return [asdict(follow(problem, name, solver, plan, s, score)) for s in range(seeds)]

        out[name] = [Course(**run) for run in store.get(name, runs)]
        print(f"  {name}: {out[name][0].best:.5g}", file=sys.stderr, flush=True)
    return out


def best_dual(courses: dict[str, list[Course]]) -> float:
    """The greatest lower bound that some run proved."""
    return max(float(np.max(run.column("dual"))) for runs in courses.values() for run in runs)


def end_of(runs: list[Course]) -> float:
    """Mean over the seeds of the least objective."""
    return float(np.mean([run.best for run in runs]))


def table(courses: dict[str, list[Course]], scores: tuple[str, str]) -> str:
    """Objective in the course of the passes, and the scores at the end; means over the seeds."""
    marks = [1, 5, 10, 20, 30, 50]
    lines = [f"{'objective after pass':24s}" + "".join(f"{m:>9d}" for m in marks)
             + f"{'sd':>9s}{'dual':>9s}{scores[0]:>10s}{scores[1]:>10s}"
             + f"{'passes':>8s}{'s':>7s}{'runs':>5s}"]  # fmt: skip
    for name, runs in courses.items():
        cells = []
        for m in marks:
            values = [r["primal"] for run in runs for r in run.rows if r["stochastic"] == m]
            cells.append(f"{np.mean(values):9.4f}" if values else f"{'':9s}")
        last = [run.rows[-1] for run in runs]
        dual = max(float(np.max(run.column("dual"))) for run in runs)
        mean = {k: float(np.mean([row[k] for row in last])) for k in last[0]}
        sd = float(np.std([row["primal"] for row in last]))
        scored = "".join(f"{mean[name]:10.2f}" for name in scores)
        rest = f"{mean['passes']:8.0f}{mean['seconds']:7.1f}{len(runs):5d}"
        lines.append(f"{name:24s}{''.join(cells)}{sd:9.1e}{dual:9.4f}{scored}{rest}")
    return "\n".join(lines)


def figure(
    everything: dict[str, dict[str, list[Course]]],
    path: Path,
    scores: tuple[str, ...],
    above_bound: bool = False,
) -> None:
    """Objective and scores against passes (odd rows) and seconds (even rows), with bands.

    ``above_bound`` draws the objective less the best lower bound, where that is a tight one.
    """
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot

    columns, high = 1 + len(scores), 2 * len(everything)
    fig, axes = pyplot.subplots(
        high, columns, figsize=(5 * columns, 3.6 * high), squeeze=False, layout="constrained"
    )
    for at, (title, courses) in enumerate(everything.items()):
        floor = best_dual(courses) if above_bound else 0.0
        for row, x in zip(axes[2 * at : 2 * at + 2], ("stochastic", "seconds"), strict=True):
            for axis, y in zip(row, ("primal", *scores), strict=True):
                panel(axis, courses, x, y, floor if y == "primal" else 0.0)
                more = " above the best bound" if above_bound and y == "primal" else ""
                axis.set(xlabel=LABELS[x], ylabel=LABELS[y] + more, title=title)
        axes[2 * at, 0].legend(fontsize=7)
    path.parent.mkdir(parents=True, exist_ok=True)
    fig.savefig(path, dpi=110)
    pyplot.close(fig)
    print(f"figure: {path}")


def panel(axis: Any, courses: dict[str, list[Course]], x: str, y: str, floor: float) -> None:
    """One column against another: the mean of the seeds, and the least and greatest as a band."""
    ends = []
    for name, runs in courses.items():
        values = np.array([run.column(y) for run in runs]) - floor
        at, mean = np.mean([run.column(x) for run in runs], axis=0), values.mean(axis=0)
        (line,) = axis.plot(at, mean, label=name, linewidth=1.2)
        axis.fill_between(at, values.min(0), values.max(0), alpha=0.2, color=line.get_color())
        ends.append(mean[-1])
    if x == "seconds":
        axis.set_xscale("log")
    if y == "primal":
        axis.set_yscale("log")
    else:
        # Where they end matters, not from how far below they come.
        span = max(max(ends) - min(ends), 1.0)
        axis.set_ylim(min(ends) - 2 * span, max(ends) + span)
