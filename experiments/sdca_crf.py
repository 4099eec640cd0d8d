"""SDCA for conditional random fields (sdca_crf): samplings, steps, baselines.

A pass is as many visits as there are examples; an evaluation of L-BFGS's line search counts as a
pass. Solvers are compared by their primal value less the best lower bound that any of them proved.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np

from cliquewise.data.dataset import Dataset
from cliquewise.models.chain import ChainModel
from cliquewise.problems.chain import ChainProblem
from cliquewise.solvers.lbfgs import LBFGS
from cliquewise.solvers.sag import SAG
from cliquewise.solvers.sdca import SDCA
from experiments._follow import column, first, followed, gaps, words
from experiments._pictures import Panel, panels
from experiments._rows import Result, Row, Verdict, Work

#: Below this relative gap rounding hides the course.
FLOOR = 1e-10
OURS = "sdca, gap sampling"
SOLVERS: dict[str, Any] = {
    OURS: SDCA(),
    "sdca, uniform": SDCA(sampling="uniform"),
    "sag-nus": SAG(),
    "l-bfgs": LBFGS(),
}

Courses = dict[str, list[dict[str, Any]]]


def compared(
    work: Work, problem: Any, passes: float, solvers: dict[str, Any], tol: float = 1e-7
) -> Courses:
    """Every solver's course, kept one by one."""
    return {
        name: work.kept(name, lambda s=solver: followed(problem, s, passes=passes, tol=tol).rows)
        for name, solver in solvers.items()
    }


def above(courses: Courses) -> dict[str, np.ndarray]:
    """Primal values above the best bound of all, relative to it."""
    best = max(float(np.max(column(rows, "dual"))) for rows in courses.values())
    return {name: (column(rows, "primal") - best) / abs(best) for name, rows in courses.items()}


def line_of(rows: list[dict[str, Any]]) -> tuple[float, float]:
    """(decimal digits per pass, share of variance explained) of a line through the log gap."""
    gap = gaps(rows)
    inside = (gap > FLOOR) & (gap < 0.5)
    if inside.sum() < 4:
        return np.nan, np.nan
    x, y = column(rows, "passes")[inside], np.log10(gap[inside])
    line = np.polyfit(x, y, 1)
    return float(-line[0]), float(1.0 - (y - np.polyval(line, x)).var() / y.var())


# ---- a Gaussian mixture (section 1)


def mixture(n: int, k: int = 10, d: int = 20, seed: int = 0) -> ChainProblem:
    """Points of k Gaussians with random means, as chains of one node."""
    rng = np.random.default_rng(seed)
    y = rng.integers(0, k, n).astype(np.int32)
    x = rng.normal(size=(k, d))[y] + rng.normal(size=(n, d))
    data = Dataset.from_matrix(x, np.arange(n + 1), labels=y)
    return ChainProblem(ChainModel.build(data, k, boundaries=False), data, C=1.0)


def run_mixture(work: Work) -> Result:
    problem = mixture(200 if work.quick else 2000)
    courses = compared(work, problem, 10 if work.quick else 60, SOLVERS)
    return {"points": len(problem.data), "courses": courses}


def judge_mixture(result: Result) -> Verdict:
    courses = result["courses"]
    digits, explained = line_of(courses[OURS])
    values = above(courses)
    to = {name: first(rows, values[name], 1e-4) for name, rows in courses.items()}
    agrees = explained > 0.95 and to[OURS] == min(to.values()) < np.inf
    others = ", ".join(f"{name} {words(to[name])}" for name in courses if name != OURS)
    return ("agrees" if agrees else "differs"), (
        f"{result['points']} points of 10 classes: 1e-4 above the optimum after "
        f"{words(to[OURS])} passes of {OURS} ({others}); its gap falls by {digits:.2f} digits a "
        f"pass (line: R2 = {explained:.3f})."
    )


def draw_courses(result: Result, path: Path) -> None:
    """Gap and primal value against passes and seconds."""
    courses = result["courses"]
    values = {name: np.maximum(v, FLOOR) for name, v in above(courses).items()}
    gap = {name: (column(r, "passes"), np.maximum(gaps(r), FLOOR)) for name, r in courses.items()}
    drawn = [Panel("certificate", "passes", "relative duality gap", gap, log="y")]
    for x, label in (("passes", "passes"), ("seconds", "CPU seconds")):
        lines = {name: (column(rows, x), values[name]) for name, rows in courses.items()}
        drawn.append(Panel("primal", label, "above the best bound, relative", lines, log="y"))
    panels(path, drawn)


ROWS = [
    Row("sdca/mixture", "sdca_crf", ("Figure 2",),
        "On a Gaussian mixture SDCA converges linearly and is ahead of the other methods.",
        run_mixture, judge_mixture, draw_courses),
]  # fmt: skip
