"""Figures 1 and 5 of "Barrier Frank-Wolfe for Marginal Inference" (Krishnan et al. 2015).

    python -m experiments.barrier_fw cliques|grids|rbm|large [--data DIR] [--out DIR] [--every K]

``--data`` is the folder that holds ``fw_inference`` (default: $CLIQUEWISE_DATA). Each command
prints a table, draws a figure into ``--out`` and says in words what agrees with the paper.
``--every K`` takes every K-th model only.
"""

from __future__ import annotations

import io
import os
import resource
import tarfile
import time
from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import click
import numpy as np

from cliquewise.data.formats.uai import read_uai
from cliquewise.graph.builders import grid
from cliquewise.graph.factor_graph import FactorGraph
from cliquewise.oracles._trw import problem

COUPLINGS = (0.5, 1, 2, 3, 4, 5, 6, 7, 8)
#: Mean |error of ln Z| and L1 error of the marginals, read off the authors' plots.
AUTHORS = {
    0.5: (1.2, 0.06), 1: (1.05, 0.08), 2: (0.53, 0.06), 4: (0.29, 0.02), 6: (0.16, 0.01),
    8: (0.16, 0.01),
}  # fmt: skip
VARIANTS: dict[str, dict[str, Any]] = {
    "adaptive delta": {"delta": "adaptive"},
    "delta = 1e-4": {"delta": 1e-4},
    "no contraction": {"delta": 0},
    "no contraction, no correction": {"delta": 0, "correction": False},
}
#: A run that has not closed the gap by then counts as this many calls.
MOST_CALLS = 400


@dataclass
class Model:
    """A graph, its exact answer, and what the archive stores about other methods."""

    name: str
    graph: FactorGraph
    log_z: float
    marginals: np.ndarray
    stored: dict[str, tuple[float, np.ndarray]] = field(default_factory=dict)

    def marginal_error(self, nodes: Any) -> float:
        """Mean over the variables of |P(x = 1) - exact|."""
        return float(np.abs(np.asarray(nodes).ravel()[1::2] - self.marginals[1::2]).mean())


def load(data: Path, archive: str, names: list[str], exact: bool = True) -> Iterator[Model]:
    """Models of one archive with their exact and stored answers.

    The exact answer is recomputed by elimination (the stored one has six digits), unless
    ``exact`` is false.
    """
    from scipy.io import loadmat

    path = data / "fw_inference" / f"{archive}.tar.xz"
    if not path.exists():
        raise click.ClickException(f"{path} is not there; --data names its folder's parent")
    wanted = set(names)
    files: dict[str, dict[str, bytes]] = defaultdict(dict)
    with tarfile.open(path) as tar:
        for member in tar:
            parts = member.name.split("/")
            name = parts[-1].split(".")[0].split("_rho_its")[0]
            kind = {"models": ".uai"}.get(parts[1], ".mat")
            if name in wanted and member.name.endswith(kind):
                files[name][parts[1]] = tar.extractfile(member).read()  # type: ignore[union-attr]
    for name in names:
        raw = files[name]
        graph = read_uai(io.BytesIO(raw["models"]))
        out = loadmat(io.BytesIO(raw["mat_out"]))
        log_z, nodes = float(out["log_partition"].item()), out["exact_node_marginals"].ravel()
        if exact:
            answer = graph.marginals("junction-tree")
            assert abs(answer.log_z - log_z) < 1e-3 * abs(log_z), "stored ln Z is another's"
            log_z, nodes = answer.log_z, answer.nodes.flat
        model = Model(name, graph, log_z, nodes)
        for key, label in (("TRWBP", "trwbp"), ("TRWBP_opt", "trwbp_opt")):
            if key in raw:
                mat = loadmat(io.BytesIO(raw[key]))
                model.stored[key] = mat[f"{label}_logz"].item(), mat[f"{label}_marg"].ravel()
        if "perturbMAP_log_partition_ub" in out:
            model.stored["perturb-and-MAP"] = (
                out["perturbMAP_log_partition_ub"].item(),
                out["perturbMAP_node_marginals_ub"].ravel(),
            )
        yield model


class Tally:
    """Means of named numbers per row key, and a count of violated bounds."""

    def __init__(self) -> None:
        self.cells: dict[tuple[Any, str], list[float]] = defaultdict(list)
        self.bounds = self.violations = 0

    def add(self, row: Any, **numbers: float) -> None:
        for name, value in numbers.items():
            self.cells[row, name].append(float(value))

    def mean(self, row: Any, name: str) -> float:
        return float(np.mean(self.cells[row, name])) if (row, name) in self.cells else np.nan

    def check(self, model: Model, trace: Any) -> None:
        """Every certified upper bound against the exact ln Z."""
        self.bounds += len(trace)
        self.violations += int(np.sum(trace.upper < model.log_z - 1e-9))

    def report(self) -> str:
        return (
            f"certified bounds checked against the exact ln Z (1e-9): {self.bounds}, "
            f"violated: {self.violations}"
        )


def run(model: Model, tally: Tally, row: Any, label: str, **options: Any) -> Any:
    """One run of barrier-fw on the graph as a whole; errors, calls and time into the tally."""
    started = time.perf_counter()
    options = {"max_calls": MOST_CALLS, "parts": 1, **options}
    result = model.graph.marginals("barrier-fw", **options)
    tally.check(model, result.trace)
    closed = result.info["stopped"] == "gap"
    tally.add(
        row,
        **{
            f"{label} bound": result.log_z_bounds[1] - model.log_z,
            f"{label} log_z": abs(result.log_z - model.log_z),
            f"{label} marginals": model.marginal_error(result.nodes.flat),
            f"{label} calls": result.info["map_calls"] if closed else MOST_CALLS,
            f"{label} seconds": time.perf_counter() - started,
            f"{label} map seconds": result.info["map_seconds"],
        },
    )
    return result


def compare(model: Model, tally: Tally, row: Any, ours: bool = True) -> None:
    """Errors of the stored answers, and of our own baselines."""
    for name, (log_z, nodes) in model.stored.items():
        tally.add(row, **{f"{name} log_z": abs(log_z - model.log_z),
                          f"{name} marginals": model.marginal_error(nodes)})  # fmt: skip
    for method in ("trw-bp", "perturb-and-map") if ours else ():
        answer = model.graph.marginals(method)
        tally.add(
            row,
            **{
                f"{method} log_z": abs(answer.log_z - model.log_z),
                f"{method} marginals": model.marginal_error(answer.nodes.flat),
            },
        )


def table(header: list[str], rows: list[list[Any]]) -> None:
    """Print aligned columns."""
    cells = [header] + [[c if isinstance(c, str) else f"{c:.4g}" for c in r] for r in rows]
    widths = [max(len(r[k]) for r in cells) for k in range(len(header))]
    for r in cells:
        click.echo("  ".join(c.rjust(w) for c, w in zip(r, widths, strict=True)))


def verdict(claim: str, holds: bool) -> None:
    click.echo(f"{'AGREES' if holds else 'DIFFERS'}: {claim}")


def fewest(calls: dict[str, float]) -> None:
    """Say which variant needs the fewest MAP calls to gap 0.5, rho fixed."""
    click.echo("mean calls to gap 0.5: " + ", ".join(f"{v}: {m:.1f}" for v, m in calls.items()))
    adaptive, fixed, none, plain = (calls[v] for v in VARIANTS)
    verdict("adaptive delta needs fewer calls than fixed delta and than no contraction",
            adaptive < min(fixed, none))  # fmt: skip
    verdict("without contraction, corrections cost calls instead of saving them", plain < none)


def figure(out: str, name: str, panels: int) -> tuple[Any, Any]:
    """Axes for ``panels`` plots, and a function that saves them."""
    import matplotlib

    matplotlib.use("Agg")
    import matplotlib.pyplot as plt

    fig, axes = plt.subplots(1, panels, figsize=(5 * panels, 4), squeeze=False)

    def save() -> None:
        Path(out).mkdir(parents=True, exist_ok=True)
        fig.tight_layout()
        fig.savefig(Path(out) / f"{name}.png", dpi=120)
        click.echo(f"figure: {Path(out) / f'{name}.png'}")

    return axes[0], save


@click.group(help=__doc__)
def main() -> None:
    pass


def common(f: Any) -> Any:
    default = os.environ.get("CLIQUEWISE_DATA", ".")
    f = click.option("--data", type=click.Path(path_type=Path), default=default)(f)
    return click.option("--out", default="out", show_default=True)(f)


every = click.option("--every", type=click.IntRange(min=1), default=1, show_default=True)


@main.command()
@common
@every
@click.option("--baselines/--no-baselines", default=True, help="Run our trw-bp and P&M too.")
def cliques(data: Path, out: str, every: int, baselines: bool) -> None:
    """900 complete graphs of 10 binary variables: Figures 1 (c-f) and 5 (c)."""
    tally = Tally()
    names = [str(k) for k in range(1, 901) if (k - 1) % 100 % every == 0]
    for model in load(data, "Synthetic", names):
        row = COUPLINGS[(int(model.name) - 1) // 100]
        for label, options in VARIANTS.items():
            for updates in (0, 10):
                run(model, tally, row, f"{label}, {updates}", rho_updates=updates, **options)
        compare(model, tally, row, baselines)
    best = "adaptive delta, 10"
    others = ["TRWBP", "TRWBP_opt", "perturb-and-MAP"]
    others += ["trw-bp", "perturb-and-map"] if baselines else []
    shown = {
        "log_z": ["adaptive delta, 0 bound", f"{best} bound", f"{best} log_z"],
        "marginals": ["adaptive delta, 0 marginals", f"{best} marginals"],
    }
    heads = {
        "log_z": ["rho fixed: bound", "optimized: bound", "optimized: ln Z"],
        "marginals": ["rho fixed", "optimized"],
    }
    for k, (what, mine) in enumerate(shown.items()):
        click.echo(f"\nmean error of {what}; stored: TRWBP, TRWBP_opt, perturb-and-MAP")
        columns = mine + [f"{o} {what}" for o in others]
        table(
            ["coupling", *heads[what], *others, "authors"],
            [[c, *(tally.mean(c, n) for n in columns), AUTHORS.get(c, ("", ""))[k]]
             for c in COUPLINGS],
        )  # fmt: skip
    click.echo("\nMAP calls to gap 0.5 with rho fixed, and seconds (of which MAP)")
    rows = [
        [c, *(tally.mean(c, f"{v}, 0 calls") for v in VARIANTS),
         tally.mean(c, "adaptive delta, 10 calls"), tally.mean(c, "adaptive delta, 10 seconds"),
         tally.mean(c, "adaptive delta, 10 map seconds")]
        for c in COUPLINGS
    ]  # fmt: skip
    table(["coupling", *VARIANTS, "rho optimized", "seconds", "MAP"], rows)
    click.echo("\n" + tally.report())
    verdict("no certified bound lies below ln Z", tally.violations == 0)
    verdict(
        "errors with optimized rho are at most the authors' (20 % for reading plots)",
        all(tally.mean(c, f"{best} {w}") <= 1.2 * a
            for c, pair in AUTHORS.items() for w, a in zip(("bound", "marginals"), pair)),
    )  # fmt: skip
    for other in others:
        for what, mine in (("log_z", "bound"), ("log_z", "log_z"), ("marginals", "marginals")):
            worse = [
                c
                for c in COUPLINGS
                if not tally.mean(c, f"{best} {mine}") < tally.mean(c, f"{other} {what}")
            ]
            but = f" (not at {worse})" if worse else ""
            verdict(f"our {mine} has a smaller error than {other}'s {what}{but}", not worse)
    fewest({v: float(np.mean([tally.mean(c, f"{v}, 0 calls") for c in COUPLINGS]))
            for v in VARIANTS})  # fmt: skip
    axes, save = figure(out, "barrier_fw_cliques", 3)
    for axis, (what, mine) in zip(axes, shown.items(), strict=False):
        for name in mine + [f"{o} {what}" for o in others]:
            axis.plot(COUPLINGS, [tally.mean(c, name) for c in COUPLINGS], label=name)
    for v in VARIANTS:
        axes[2].plot(COUPLINGS, [tally.mean(c, f"{v}, 0 calls") for c in COUPLINGS], label=v)
    for axis, title in zip(axes, ("|error of ln Z|", "L1 error of marginals", "MAP calls")):
        axis.set(title=title, xlabel="coupling")
        axis.legend(fontsize=7)
    axes[0].set_yscale("log")
    save()


@main.command()
@common
@every
@click.option("--side", type=click.Choice(["5", "10"]), multiple=True, default=["5", "10"])
def grids(data: Path, out: str, every: int, side: tuple[str, ...]) -> None:
    """5 x 5 and 10 x 10 grids: Figures 1 (a, b) and 5 (a, b), exact against approximate MAP."""
    tally = Tally()
    budget = [5, 10, 20, 40, 80, 160]
    course: dict[tuple[str, int], list[tuple[float, float]]] = defaultdict(list)
    sides = [int(s) for s in side]
    for width in sides:
        names = [f"gridWi{width}Tr{k}" for k in range(1, 16, every)]
        for model in load(data, f"SyntheticGrids_{width}x{width}", names):
            for label, options in VARIANTS.items():
                for updates in (0, 10):
                    run(model, tally, width, f"{label}, {updates}", rho_updates=updates,
                        max_calls=2000, **options)  # fmt: skip
                for most in budget if width == 5 else ():
                    result = model.graph.marginals(
                        "barrier-fw", rho_updates=0, max_calls=most, parts=1, **options
                    )
                    course[label, most].append(
                        (result.log_z_bounds[1] - model.log_z,
                         model.marginal_error(result.nodes.flat))
                    )  # fmt: skip
            run(
                model,
                tally,
                width,
                "portfolio",
                map_method="portfolio",
                max_calls=2000,
                seconds=10.0,
            )
            compare(model, tally, width)
    names_ = [f"{v}, {u}" for v in VARIANTS for u in (0, 10)] + ["portfolio"]
    for width in sides:
        click.echo(f"\n{width} x {width}")
        table(
            ["barrier-fw", "bound - ln Z", "|ln Z|", "marginals", "calls", "seconds", "MAP"],
            [[n, *(tally.mean(width, f"{n} {w}") for w in
                   ("bound", "log_z", "marginals", "calls", "seconds", "map seconds"))]
             for n in names_],
        )  # fmt: skip
        others = ("TRWBP", "TRWBP_opt", "trw-bp", "perturb-and-MAP", "perturb-and-map")
        table(["other", "|ln Z|", "marginals"],
              [[o, tally.mean(width, f"{o} log_z"), tally.mean(width, f"{o} marginals")]
               for o in others])  # fmt: skip
    click.echo("\n" + tally.report())
    verdict("no certified bound lies below ln Z", tally.violations == 0)
    if 5 in sides:
        exact = tally.mean(5, "adaptive delta, 10 marginals")
        rough = tally.mean(5, "portfolio marginals")
        verdict(f"5 x 5: approximate MAP ({rough:.3f}) within 20 % of exact MAP ({exact:.3f})",
                rough <= 1.2 * exact)  # fmt: skip
    fewest({v: sum(tally.mean(w, f"{v}, 0 calls") for w in sides) / len(sides) for v in VARIANTS})
    for other in ("TRWBP", "perturb-and-MAP"):
        for width in sides:
            if (width, f"{other} marginals") in tally.cells:
                verdict(f"{width} x {width}: marginals better than {other}",
                        tally.mean(width, "adaptive delta, 10 marginals")
                        < tally.mean(width, f"{other} marginals"))  # fmt: skip
    if 5 not in sides:
        return
    axes, save = figure(out, "barrier_fw_grids", 2)
    for label in VARIANTS:
        means = np.array([np.mean(course[label, m], axis=0) for m in budget])
        for axis, column in zip(axes, means.T, strict=True):
            axis.plot(budget, column, label=label)
    for axis, title in zip(axes, ("bound - ln Z", "L1 error of marginals"), strict=True):
        axis.set(title=f"5 x 5 grids: {title}", xlabel="MAP calls", xscale="log")
        axis.legend(fontsize=7)
    axes[0].set_yscale("log")
    save()


@main.command()
@common
@every
def rbm(data: Path, out: str, every: int) -> None:
    """Three restricted Boltzmann machines of 20, 21 and 22 units per layer."""
    tally = Tally()
    rows, curves = [], {}
    for model in load(data, "RBM", [f"rbm_{k}" for k in range(20, 23, every)], exact=False):
        result = run(model, tally, model.name, "ours", max_calls=1000, seconds=120.0)
        rows.append([
            model.name, model.log_z, result.log_z_bounds[1], result.log_z_bounds[0],
            rho_floor(model.graph, result), model.stored["TRWBP"][0], model.stored["TRWBP_opt"][0],
            tally.mean(model.name, "ours marginals"),
            model.marginal_error(model.stored["TRWBP"][1]), result.info["map_calls"],
            tally.mean(model.name, "ours seconds"), tally.mean(model.name, "ours map seconds"),
        ])  # fmt: skip
        curves[model.name] = result.trace.upper - model.log_z
        for label, options in VARIANTS.items() if model.name == "rbm_20" else ():
            run(model, tally, "variants", label, rho_updates=0, max_calls=150, **options)
    table(["model", "ln Z", "upper", "lower", "floor", "TRBP", "TRBP opt", "marginals",
           "TRBP marginals", "calls", "seconds", "MAP"], rows)  # fmt: skip
    click.echo("floor: no choice of rho brings the tree-reweighted bound below this")
    click.echo("rbm_20, calls to gap 0.5: " + ", ".join(
        f"{v}: {tally.mean('variants', f'{v} calls'):.0f}" for v in VARIANTS))  # fmt: skip
    click.echo(tally.report() + " (the stored ln Z has six digits)")
    for row in rows:
        verdict(f"{row[0]}: certified bound within 6 nats", row[2] - row[1] <= 6.0)
        verdict(f"{row[0]}: in under 30 s", row[-2] < 30.0)
        verdict(f"{row[0]}: bound and marginals better than TRBP",
                row[2] < row[5] and row[7] < row[8])  # fmt: skip
    axes, save = figure(out, "barrier_fw_rbm", 1)
    for name, curve in curves.items():
        axes[0].plot(np.arange(1, len(curve) + 1), curve, label=name)
    axes[0].set(xlabel="MAP calls", ylabel="bound - ln Z", yscale="log")
    axes[0].legend()
    save()


def rho_floor(graph: FactorGraph, result: Any) -> float:
    """Lower bound of the tree-reweighted bound over all rho.

    At any x of the marginal polytope TRW(x; rho) is linear in rho, so its smallest value is
    that of one tree, and the maximum over x is no smaller.
    """
    p = problem(graph, None)
    edges = [result.factors[f].ravel() for f in np.flatnonzero(graph.structure.orders == 2)]
    x = np.concatenate([result.nodes.flat, *edges])
    information = p.information(x)
    excess = information @ (p.best_tree(x) - result.info["rho"])
    return float(result.info["primal"] - excess)


def picture(height: int, width: int, seed: int = 0) -> FactorGraph:
    """A segmentation-like binary grid: a blob seen through noise, mostly attractive ties."""
    rng = np.random.default_rng(seed)
    y, x = np.mgrid[:height, :width]
    blob = ((y - height / 2) / (height / 3)) ** 2 + ((x - width / 2) / (width / 3)) ** 2 < 1
    score = (2.0 * blob - 1.0) + 1.5 * rng.normal(size=(height, width))

    def ties(shape: tuple[int, int]) -> np.ndarray:
        c = (rng.gamma(2.0, 0.6, shape) - 0.15) / 2
        return np.stack([np.stack([c, -c], -1), np.stack([-c, c], -1)], -2)

    nodes = np.stack([-score / 2, score / 2], -1)
    return grid(nodes, ties((height - 1, width)), ties((height, width - 1)))


@main.command()
@common
@click.option("--seconds", type=float, default=240.0, show_default=True, help="Per model.")
def large(data: Path, out: str, seconds: float) -> None:
    """A binary grid of 12,000 variables and the frustrated test case of 11,532."""
    picture(8, 8).marginals("barrier-fw", map_method="portfolio", local_search=True)  # compile
    per_call = {}
    for height, width in ((50, 60), (75, 80), (100, 120)):
        graph = picture(height, width)
        result = graph.marginals(
            "barrier-fw", map_method="portfolio", max_calls=8, rho_updates=0, parts=1
        )
        per_call[graph.n_variables] = np.diff(result.trace.map_seconds)[1:].mean()
    table(["variables", "seconds per MAP call", "microseconds per variable"],
          [[f"{n}", s, 1e6 * s / n] for n, s in per_call.items()])  # fmt: skip
    with tarfile.open(data / "fw_inference" / "opengm_testcases.tar.xz") as tar:
        frustrated = read_uai(io.BytesIO(tar.extractfile("tc4/large.uai").read()))  # type: ignore[union-attr]
    rows, curves = [], {}
    for name, graph in (("grid", picture(100, 120)), ("frustrated", frustrated)):
        started = time.perf_counter()
        result = graph.marginals(
            "barrier-fw", map_method="portfolio", local_search=True, rho_updates=2,
            gap=1e-3 * graph.n_variables, seconds=seconds,
        )  # fmt: skip
        took = time.perf_counter() - started
        memory = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**20
        low, high = result.log_z_bounds
        rows.append([name, f"{graph.n_variables}", low, result.log_z, high,
                     result.info["map_calls"], result.info["map_seconds"],
                     took, memory])  # fmt: skip
        curves[name] = result.trace
    table(
        ["model", "variables", "lower", "ln Z", "upper", "calls", "MAP s", "seconds", "GiB"], rows
    )
    per_variable = [s / n for n, s in per_call.items()]
    verdict("marginals within 10 minutes and 4 GiB", all(r[-2] < 600 and r[-1] < 4 for r in rows))
    verdict("time per MAP call grows at most linearly (per variable: last / first below 1.5)",
            per_variable[-1] < 1.5 * per_variable[0])  # fmt: skip
    axes, save = figure(out, "barrier_fw_large", 1)
    for name, trace in curves.items():
        axes[0].plot(trace.seconds, trace.gap, label=name)
    axes[0].set(xlabel="seconds", ylabel="gap", yscale="log")
    axes[0].legend()
    save()


if __name__ == "__main__":
    main()
