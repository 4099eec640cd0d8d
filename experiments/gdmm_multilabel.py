"""Figures 2 and 3 of gdmm for fully connected labels: GDMM, its full search, and SoftBCFW.

    python -m experiments.gdmm_multilabel cost|versus|bibtex|rcv1|generated|all [--out folder]

* cost: CPU seconds of a pass, and of the search within it, against the number of labels L, with
  the fitted exponents, for the sublinear and the full search on generated data (same rows, same
  words, about three labels on).
* versus: at L = 410, when ``gdmm`` reaches the primal objective that ``soft_bcfw`` has at each of
  its checks, started at the truth as gdmm is. The primal of gdmm is its certificate's upper bound,
  that of soft_bcfw a lower bound of the relaxed objective at its weights, so that the ratio is
  not flattered.
* bibtex, rcv1, generated: primal objective, Hamming error and micro-F1 on held-out rows against
  seconds. bibtex and rcv1 need CLIQUEWISE_DATA.

Times are CPU seconds of the solver; what is measured for the figures does not count.
"""

from __future__ import annotations

import argparse
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
from experiments._multilabel_data import bibtex, generated, rcv1_regions

SIZES = (50, 100, 200, 410)


def passes(
    problem: Any, solver: Any, limit: float, look: Any, most: int = 500, start: Any = None
) -> list[Any]:
    """Rows of ``look(weights, state)`` after growing numbers of passes, with CPU seconds."""
    rng = np.random.default_rng(0)
    state = solver.init(problem, start)
    spent, done, mark, rows = 0.0, 0.0, 1.0, []
    while spent < limit and done < most:
        begin = time.process_time()
        state, info = solver.step(problem, state, rng)
        spent += time.process_time() - begin
        done += info.epochs
        if done >= mark:
            mark = max(done + 1, 1.3 * done)
            rows.append((spent, done, *look(solver.weights(problem, state), state)))
    return rows


def warm_up() -> None:
    """Compile before any clock runs."""
    X, Y = csr_matrix(np.eye(4)), np.eye(4, 5, dtype=int)
    problem = MultiLabelProblem(X, Y)
    for given, solver in ((problem, GDMM()), (problem.as_graphs(), SoftBCFW())):
        passes(given, solver, 1.0, lambda w, _: problem.relaxed_primal(w), most=5)


# ---- cost of a pass


def search_cost(problem: Any, state: Any, search: str) -> float:
    """CPU seconds of looking for labels in all rows: their scores, and what pairs add to them.

    A pass in which nothing is updated and nothing joins; the best of three.
    """
    plan = state._plan()
    plan = plan._replace(rounds=0, share=2.0, least=1e300, search=SEARCHES.index(search))
    rng, times = np.random.default_rng(0), []
    for _ in range(3):
        begin = time.process_time()
        state.sets, _, _ = sweep(problem.rows, state.own, plan, state.sets, rng)
        times.append(time.process_time() - begin)
    return min(times)


def pass_cost(n: int, n_labels: int, search: str, count: int, C: float) -> tuple[float, ...]:
    """CPU seconds of a pass, the mean of all but the first, and of its search at the end; active
    labels and pairs of a row.
    """
    X, Y = generated(n, n_labels)
    problem, solver = MultiLabelProblem(X, Y, C), GDMM(factor_search=search)
    rng, state = np.random.default_rng(0), solver.init(problem)
    times = []
    for _ in range(count):
        begin = time.process_time()
        state, _ = solver.step(problem, state, rng)
        times.append(time.process_time() - begin)
    active = state.sets.count.mean(axis=0)
    spent = search_cost(problem, state, search)
    return float(np.mean(times[1:])), spent, *(float(a) for a in active)


def cost(args: argparse.Namespace) -> None:
    """Seconds per pass against L, and the exponents."""
    table = {}
    for search in ("sublinear", "full"):
        found = [pass_cost(args.rows, L, search, args.passes, args.C) for L in SIZES]
        wanted = "at most 1.2 wanted" if search == "sublinear" else "2 expected of the search"
        for part, column in (("pass", 0), ("search", 1)):
            times = table[f"{search}, {part}"] = [row[column] for row in found]
            slope = np.polyfit(np.log(SIZES), np.log(times), 1)[0]
            late = np.log(times[-1] / times[-2]) / np.log(SIZES[-1] / SIZES[-2])
            cells = "  ".join(f"{L}: {t:.4f}" for L, t in zip(SIZES, times, strict=True))
            print(
                f"{search:10s} seconds per {part:6s} {cells}   exponent {slope:.2f}, "
                f"{late:.2f} at the end ({wanted})"
            )
        cells = "  ".join(f"{r[2]:.0f} and {r[3]:.0f}" for r in found)
        print(f"           active labels and pairs of a row {cells}", flush=True)
    # The scores of labels grow like L and are in both searches; the difference is what is left.
    apart = np.subtract(table["full, search"], table["sublinear, search"])[-2:]
    late = np.log(apart[1] / apart[0]) / np.log(SIZES[-1] / SIZES[-2])
    print(f"what the full search looks at beyond the other: exponent {late:.2f} at the end")
    if args.out:
        _plot_cost(table, args.out)


def _plot_cost(table: dict[str, list[float]], out: Path) -> None:
    plt = _pyplot()
    figure, axis = plt.subplots(figsize=(6, 4.5))
    for name, times in table.items():
        search, part = name.split(", ")
        color = "C0" if search == "sublinear" else "C1"
        axis.loglog(SIZES, times, "o-" if part == "pass" else "s--", color=color, label=name)
    axis.set_xticks(SIZES, [str(L) for L in SIZES])
    axis.minorticks_off()
    _plain(axis.yaxis)
    axis.set(xlabel="labels", ylabel="CPU seconds", title="a pass of gdmm, and its search")
    axis.legend()
    figure.tight_layout()
    figure.savefig(out / "gdmm_multilabel_cost.png", dpi=120)


# ---- against soft_bcfw


def versus(args: argparse.Namespace) -> None:
    """When gdmm reaches what soft_bcfw has reached."""
    X, Y = generated(args.small_rows, args.labels)
    problem = MultiLabelProblem(X, Y, args.C)

    solver = GDMM()

    def quick(w: Any, _: Any) -> tuple[float, float]:
        # Few sweeps: the weights of soft_bcfw have no zeros. Its lower bound is true all the same.
        return problem.relaxed_primal(w, tol=1e-2, max_sweeps=5)

    def look(_: Any, state: Any) -> tuple[float, float]:
        proof = solver.certify(problem, state)
        return proof.dual, proof.primal

    graphs = problem.as_graphs()
    print(f"L = {args.labels}, {args.small_rows} rows: {graphs.n_cliques} cliques", flush=True)
    # Uniform beliefs, its own start, are worth a primal of thousands here; the truth is worth L.
    begin = SoftBCFW().init(graphs)
    begin.point.mu[:] = graphs.truth
    soft = passes(graphs, SoftBCFW(), args.seconds, quick, start=begin)
    ours = passes(problem, solver, args.seconds / 4, look)
    print("soft_bcfw: seconds, passes, primal (lower, upper bound) | gdmm reaches the lower one")
    for spent, done, low, high in soft:
        hit = [row[0] for row in ours if row[3] <= low]
        ratio = f"{hit[0]:.3f} s, {spent / hit[0]:.1f} times sooner" if hit else "not reached"
        print(f"  {spent:8.2f} {done:6.1f}  {low:.4f} {high:.4f} | {ratio}")
    print("gdmm: seconds, passes, primal")
    for spent, done, _, high in ours:
        print(f"  {spent:8.3f} {done:6.0f}  {high:.4f}")
    best = min(row[2] for row in soft)
    first_soft = next(row[0] for row in soft if row[2] <= best)
    hit = [row[0] for row in ours if row[3] <= best]
    print(
        f"best primal of soft_bcfw {best:.4f} after {first_soft:.1f} s; gdmm "
        + (f"{first_soft / hit[0]:.0f} times sooner (10 wanted)" if hit else "does not reach it")
    )
    if args.out:
        _plot_versus(soft, ours, args)


def _plot_versus(soft: list[Any], ours: list[Any], args: argparse.Namespace) -> None:
    plt = _pyplot()
    figure, axes = plt.subplots(1, 2, figsize=(9, 4), sharey=True)
    for rows, column, name in ((soft, 2, "soft_bcfw"), (ours, 3, "gdmm")):
        array = np.array(rows)
        axes[0].loglog(array[:, 1], array[:, column], ".-", label=name)
        axes[1].loglog(array[:, 0], array[:, column], ".-", label=name)
    best = max(row[2] for row in ours)
    for axis, label in zip(axes, ("passes", "CPU seconds"), strict=True):
        axis.axhline(best, color="0.6", linestyle=":", label="lower bound of the optimum")
        axis.set(xlabel=label)
        _plain(axis.xaxis)
    _plain(axes[0].yaxis)
    axes[0].set(ylabel="primal objective")
    axes[1].legend()
    figure.suptitle(f"{args.labels} labels, {args.small_rows} rows")
    figure.tight_layout()
    figure.savefig(args.out / "gdmm_multilabel_versus.png", dpi=120)


# ---- primal and held-out error against time


def errors(w: Any, X: csr_matrix, Y: Any) -> tuple[float, float]:
    """Hamming error and micro-F1 on held-out rows."""
    beliefs, _ = relaxed_labels(X, w, Y.shape[1], tol=1e-2, max_sweeps=10)
    found = beliefs > 0.5
    right = float((found & (Y > 0)).sum())
    return float((found != (Y > 0)).mean()), 2 * right / max(found.sum() + (Y > 0).sum(), 1)


def course(name: str, train: Any, test: Any, args: argparse.Namespace) -> None:
    """One data set, three searches."""
    problem = MultiLabelProblem(train[0], train[1], args.C)
    held_out = csr_matrix(test[0]), np.asarray(test[1])
    print(
        f"\n{name}: {problem.n_examples} rows, {problem.n_labels} labels, "
        f"{problem.Y.nnz / problem.n_examples:.2f} on"
    )
    table = {}
    for search in ("sublinear", "full", "sampled"):
        solver = GDMM(factor_search=search)

        def look(w: Any, state: Any, solver: Any = solver) -> tuple[float, float, float, float]:
            proof = solver.certify(problem, state)
            return (proof.dual, proof.primal, *errors(w, *held_out))

        table[search] = passes(problem, solver, args.seconds / 3, look)
        print(f" {search}: seconds, passes, dual, primal (upper bound), Hamming, micro-F1")
        for row in table[search]:
            print("  {:8.3f} {:5.0f}  {:.4f} {:.4f}  {:.5f} {:.4f}".format(*row))
    if args.out:
        _plot_course(table, name, args.out)


def _plot_course(table: dict[str, list[Any]], name: str, out: Path) -> None:
    plt = _pyplot()
    figure, axes = plt.subplots(1, 3, figsize=(13, 4))
    best = max(row[2] for rows in table.values() for row in rows)
    for search, rows in table.items():
        array = np.array(rows)
        axes[0].loglog(array[:, 0], np.maximum(array[:, 3] / best - 1, 1e-6), ".-", label=search)
        axes[1].semilogx(array[:, 0], array[:, 4], ".-")
        axes[2].semilogx(array[:, 0], array[:, 5], ".-")
    titles = ("primal objective above the best lower bound", "Hamming error", "micro-F1")
    for axis, title in zip(axes, titles, strict=True):
        axis.set(xlabel="CPU seconds", title=title)
        _plain(axis.xaxis)
    axes[1].set_ylim(bottom=0)
    axes[2].set_ylim(0, None)
    axes[0].legend()
    figure.suptitle(name)
    figure.tight_layout()
    figure.savefig(out / f"gdmm_multilabel_{name}.png", dpi=120)


def _plain(axis: Any) -> None:
    """Ticks at 1, 2, 5, 10, ... of a logarithmic axis, or 1, 10, ... of a long one, in digits."""
    from matplotlib.ticker import FormatStrFormatter, LogLocator, NullFormatter

    low, high = axis.get_view_interval()
    axis.set_major_locator(LogLocator(subs=(1, 2, 5) if high < 1e3 * low else (1,), numticks=12))
    axis.set_major_formatter(FormatStrFormatter("%g"))
    axis.set_minor_formatter(NullFormatter())


def _pyplot() -> Any:
    import matplotlib

    matplotlib.use("Agg")
    import matplotlib.pyplot as plt

    return plt


def _halves(X: Any, Y: Any) -> tuple[Any, Any]:
    cut = X.shape[0] * 2 // 3
    return (X[:cut], Y[:cut]), (X[cut:], Y[cut:])


def multilabel(args: argparse.Namespace) -> None:
    """All parts, or the one that was asked for."""
    warm_up()
    if args.part in ("cost", "all"):
        cost(args)
    if args.part in ("versus", "all"):
        versus(args)
    if args.part in ("bibtex", "all"):
        train, test = bibtex()
        course("bibtex", (train.X, train.Y), (test.X, test.Y), args)
    if args.part in ("rcv1", "all"):
        data = rcv1_regions()
        course("rcv1_regions", *_halves(csr_matrix(data.X), np.asarray(data.Y)), args)
    if args.part in ("generated", "all"):
        for L in SIZES:
            course(f"generated_{L}", *_halves(*generated(3 * args.rows // 2, L)), args)


def main() -> None:
    """Command line."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument(
        "part", choices=("cost", "versus", "bibtex", "rcv1", "generated", "all"), nargs="?",
        default="all",
    )  # fmt: skip
    parser.add_argument("--C", type=float, default=1.0)
    parser.add_argument("--rows", type=int, default=1000)
    parser.add_argument("--passes", type=int, default=15)
    parser.add_argument("--labels", type=int, default=410)
    parser.add_argument("--small-rows", type=int, default=40, help="for versus: soft_bcfw is large")
    parser.add_argument("--seconds", type=float, default=60.0)
    parser.add_argument("--out", type=Path, help="folder for pictures")
    args = parser.parse_args()
    if args.out:
        args.out.mkdir(parents=True, exist_ok=True)
    multilabel(args)


if __name__ == "__main__":
    main()
