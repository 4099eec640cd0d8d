"""GDMM on fully connected labels (gdmm): cost of a pass, Soft-BCFW, error against time.

Seconds are of the processor, in steps alone. The primal of GDMM is its certificate's upper bound,
that of Soft-BCFW a lower bound of the relaxed objective at its weights: ratios are not flattered.
"""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

import numpy as np
from scipy.sparse import csr_matrix

from cliquewise.oracles.relaxed_label_sets import relaxed_labels, sweep
from cliquewise.problems.label_sets import MultiLabelProblem
from cliquewise.solvers.backends.label_sets import SEARCHES
from cliquewise.solvers.gdmm import GDMM
from cliquewise.solvers.soft_bcfw import SoftBCFW
from experiments._follow import column, first, followed, reachable, ready, words
from experiments._multilabel_data import bibtex, generated, rcv1_regions
from experiments._pictures import Panel, panels
from experiments._rows import Result, Row, Verdict, Work

# ---- cost of a pass


def search_cost(problem: Any, state: Any, search: str) -> float:
    """Seconds of looking for labels in all rows: their scores, and what pairs add to them.

    A pass in which nothing is updated and nothing joins; the best of three.
    """
    plan = state._plan()
    plan = plan._replace(rounds=0, share=2.0, least=1e300, search=SEARCHES.index(search))
    rng, times = np.random.default_rng(0), []
    for _ in range(3):
        order = rng.permutation(problem.n_examples)
        seed = rng.integers(0, 2**63, 1, dtype=np.uint64)
        begin = time.process_time()
        state.sets, _, _ = sweep(problem.rows, state.own, plan, state.sets, order, seed)
        times.append(time.process_time() - begin)
    return min(times)


def pass_cost(n: int, n_labels: int, search: str, count: int) -> dict[str, float]:
    """Seconds of a pass, the mean of all but the first, and of its search at the end."""
    problem, solver = MultiLabelProblem(*generated(n, n_labels)), GDMM(factor_search=search)
    ready(problem, solver)
    rng, state, times = np.random.default_rng(0), solver.init(problem), []
    for _ in range(count):
        begin = time.process_time()
        solver.step(problem, state, rng)
        times.append(time.process_time() - begin)
    return {"pass": float(np.mean(times[1:])), "search": search_cost(problem, state, search)}


def run_cost(work: Work) -> Result:
    sizes = (10, 20) if work.quick else (50, 100, 200, 410)
    n, count = (30, 3) if work.quick else (1000, 8)
    costs = {
        search: [work.kept(f"{search}, {k}", lambda s=search, k=k: pass_cost(n, k, s, count))
                 for k in sizes]
        for search in ("sublinear", "full")
    }  # fmt: skip
    return {"rows": n, "sizes": list(sizes), "costs": costs}


def judge_cost(result: Result) -> Verdict:
    sizes, costs, cells = result["sizes"], result["costs"], []
    slopes = {}
    for search, own in costs.items():
        for part in ("pass", "search"):
            times = [max(c[part], 1e-9) for c in own]
            slopes[search, part] = float(np.polyfit(np.log(sizes), np.log(times), 1)[0])
            cells.append(f"{part} of the {search} one {times[-1]:.2g} s, exponent "
                         f"{slopes[search, part]:.2f}")  # fmt: skip
    saved = costs["full"][-1]["search"] / max(costs["sublinear"][-1]["search"], 1e-9)
    agrees = slopes["sublinear", "search"] < slopes["full", "search"] and saved > 3
    return ("agrees" if agrees else "differs"), (
        f"{result['rows']} generated rows, up to {sizes[-1]} labels, all pairs: {'; '.join(cells)}."
    )


def draw_cost(result: Result, path: Path) -> None:
    """Seconds against labels."""
    lines = {
        f"{search}, {part}": (result["sizes"], [c[part] for c in own])
        for search, own in result["costs"].items()
        for part in ("pass", "search")
    }
    panels(path, [Panel("a pass, and its search", "labels", "CPU seconds", lines, "xy")])


# ---- objective and error against time


class SoftFromTruth(SoftBCFW):
    """Started at the truth, as gdmm is: uniform beliefs are worth a primal of thousands here."""

    def init(self, problem: Any, warm: Any = None) -> Any:
        """The truth alone."""
        begin = super().init(problem)
        begin.point.mu[:] = problem.truth
        return super().init(problem, begin)


def errors(w: Any, X: csr_matrix, Y: Any) -> dict[str, float]:
    """Hamming error and micro-F1 on held-out rows, in percent."""
    beliefs, _ = relaxed_labels(X, w, Y.shape[1], tol=1e-2, max_sweeps=10)
    found = beliefs > 0.5
    right = float((found & (Y > 0)).sum())
    f1 = 2 * right / max(found.sum() + (Y > 0).sum(), 1)
    return {"hamming": 100 * float((found != (Y > 0)).mean()), "f1": 100 * f1}


def compared(
    work: Work, train: Any, test: Any, seconds: float, soft: bool
) -> dict[str, list[dict[str, Any]]]:
    """GDMM with three searches, and Soft-BCFW on the same rows with all pairs listed."""
    problem, held_out = MultiLabelProblem(*train), (csr_matrix(test[0]), np.asarray(test[1]))

    def look(_: Any, w: Any) -> dict[str, float]:
        return errors(w, *held_out)

    def soft_look(_: Any, w: Any) -> dict[str, float]:
        # These weights have no zeros, so that a sweep takes long; twenty are enough.
        low, _ = problem.relaxed_primal(w, tol=1e-2, max_sweeps=25)
        return {**errors(w, *held_out), "low": low}

    def run(given: Any, solver: Any, score: Any) -> list[dict[str, float]]:
        return followed(
            given, solver, seconds=seconds, passes=500, growth=1.4, tol=1e-3, score=score
        ).rows

    courses = {}
    for search in ("sublinear", "full", "sampled"):
        name = f"gdmm, {search}"
        courses[name] = work.kept(name, lambda s=search: run(problem, GDMM(factor_search=s), look))
    if soft:
        courses["soft-bcfw"] = work.kept(
            "soft-bcfw", lambda: run(problem.as_graphs(), SoftFromTruth(), soft_look)
        )
    return courses


def judge_course(result: Result) -> Verdict:
    courses = result["courses"]
    ours = courses["gdmm, sublinear"]
    bound = max(float(np.max(column(courses[n], "dual"))) for n in courses if n != "soft-bcfw")
    level = reachable(1.05 * bound, [courses["gdmm, full"]], "primal")
    to = {n: first(r, column(r, "primal"), level, "seconds")
          for n, r in courses.items() if n != "soft-bcfw"}  # fmt: skip
    cells = ", ".join(f"{n} {words(v, '.2g')}" for n, v in to.items())
    end = ours[-1]
    text = (
        f"{result['what']}; seconds to an objective of {level:.4g} (best bound {bound:.4g}): "
        f"{cells}; Hamming error {end['hamming']:.2f}%, F1 {end['f1']:.1f}% at the end"
    )
    agrees = to["gdmm, sublinear"] <= 1.2 * to["gdmm, full"]
    if "soft-bcfw" in courses:
        soft = courses["soft-bcfw"]
        best = int(np.argmin(column(soft, "low")))
        hit = first(ours, column(ours, "primal"), float(soft[best]["low"]), "seconds")
        ratio = soft[best]["seconds"] / hit
        agrees = agrees and ratio >= 10
        text += (
            f"; soft-bcfw's best objective ({soft[best]['low']:.4g} after "
            f"{soft[best]['seconds']:.1f} s) is reached {ratio:.0f} times sooner"
        )
    return ("agrees" if agrees else "differs"), text + "."


def draw_course(result: Result, path: Path) -> None:
    """Primal, Hamming error and F1 against seconds."""
    courses = result["courses"]
    at = {n: column(r, "seconds") for n, r in courses.items()}
    primal = {n: (at[n], column(r, "low" if n == "soft-bcfw" else "primal"))
              for n, r in courses.items()}  # fmt: skip
    hamming = {n: (at[n], column(r, "hamming")) for n, r in courses.items()}
    f1 = {n: (at[n], column(r, "f1")) for n, r in courses.items()}
    panels(path, [
        Panel("primal", "CPU seconds", "objective", primal, "xy"),
        Panel("held out", "CPU seconds", "Hamming error, %", hamming, "x"),
        Panel("held out", "CPU seconds", "micro-F1, %", f1, "x"),
    ])  # fmt: skip


def parted(X: Any, Y: Any, share: float = 2 / 3) -> tuple[Any, Any]:
    """The first rows for training, the rest for testing."""
    cut = int(X.shape[0] * share)
    return (X[:cut], Y[:cut]), (X[cut:], Y[cut:])


def run_regions(work: Work) -> Result:
    data = rcv1_regions()
    X, Y = csr_matrix(data.X), np.asarray(data.Y)
    Y = Y[:, Y.any(axis=0)]  # of the others nothing is known
    if work.quick:
        X, Y = X[:24], Y[:24, :12]
    train, test = parted(X, Y)
    courses = compared(work, train, test, 0.2 if work.quick else 15.0, True)
    return {"what": f"{len(train[1])} of the 300 documents at hand, {Y.shape[1]} labels, all pairs",
            "courses": courses}  # fmt: skip


def run_codes(work: Work) -> Result:
    # Few rows for training: soft-bcfw lists 84,000 pairs for each of them.
    k, n = (16, 20) if work.quick else (410, 60)
    train, test = parted(*generated(n, k), share=0.15)
    courses = compared(work, train, test, 0.2 if work.quick else 25.0, True)
    return {"what": f"{len(train[1])} generated rows of {k} labels, all pairs (EUR-Lex is not at "
                    "hand)", "courses": courses}  # fmt: skip


def run_bibtex(work: Work) -> Result:
    work.folder("mulan")
    train, test = bibtex()
    cut = 60 if work.quick else None
    given = [(part.X[:cut], np.asarray(part.Y)[:cut]) for part in (train, test)]
    courses = compared(work, *given, 0.2 if work.quick else 20.0, False)
    return {"what": f"{len(given[0][1])} rows of bibtex, {given[0][1].shape[1]} labels, all pairs",
            "courses": courses}  # fmt: skip


ROWS = [
    Row("gdmm/pairs", "gdmm", ("Figure 3 (cost, many factors)",),
        "With many factors the joint search costs less than reading all pairs.",
        run_cost, judge_cost, draw_cost),
    Row("gdmm/regions", "gdmm", ("Figure 3 (RCV1-regions)",),
        "On fully connected labels GDMM is orders of magnitude faster than Soft-BCFW.",
        run_regions, judge_course, draw_course, data=("gdmm",)),
    Row("gdmm/codes", "gdmm", ("Figure 3 (EUR-Lex)",),
        "So it is with 410 of them.",
        run_codes, judge_course, draw_course),
    Row("gdmm/bibtex", "gdmm", ("Figure 3 (bibtex, which the paper does not have)",),
        "The sublinear search is ahead of the full one.",
        run_bibtex, judge_course, draw_course, data=("mulan",)),
]  # fmt: skip
