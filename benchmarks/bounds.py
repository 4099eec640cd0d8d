"""Bounds of ln Z and marginals where they are not exact, now and as they were.

    python -m benchmarks.bounds [rbm] [cliques] [drawn] [messages] [--data DIR] [--every K]
                                [--against SRC]

rbm      rbm_20, 21, 22 with ``barrier-fw``: upper and lower bound above ln Z, marginals, seconds
cliques  the paper's complete graphs of ten variables at nine couplings: mean errors of the bound,
         of ln Z and of the marginals, seconds; ``--every K`` takes every K-th of a hundred
drawn    ``auto`` within a second, elimination forbidden, on drawn graphs of orders two to four,
         without and with forbidden entries: width of the bounds, errors
messages loopy belief propagation for at most 0.3 seconds on drawn graphs of orders three and
         four, 20 to 300 variables: part that settles, errors of the marginals

``--data`` is the folder that holds ``fw_inference`` (default: $CLIQUEWISE_DATA). ``--against`` is
the ``src`` of another checkout, whose figures are printed beside ours; it runs in its own process,
right after ours for every table. Seconds are CPU time. The last line is JSON.
"""

from __future__ import annotations

import argparse
import json
import math
import os
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.common import print_json, print_table
from cliquewise.errors import CliquewiseError
from cliquewise.graph.builders import complete, random_graph
from cliquewise.graph.factor_graph import FactorGraph
from cliquewise.oracles._factor_messages import FactorMessages
from cliquewise.oracles.base import Limits
from cliquewise.oracles.planner import ANYTIME
from cliquewise.oracles.registry import get
from experiments._barrier_models import COUPLINGS, load

Row = dict[str, Any]


def measured(graph: FactorGraph, log_z: float, nodes: Any, **question: Any) -> Row:
    """Bounds above ln Z, errors and seconds of one answer."""
    begin = time.process_time()
    found = get(question.pop("method")).marginals(graph, **question)
    spent = time.process_time() - begin
    low, high = found.log_z_bounds
    return {
        "upper": high - log_z, "lower": low - log_z, "ln Z": abs(found.log_z - log_z),
        "marginals": float(np.abs(found.nodes.flat - nodes).mean()), "seconds": spent,
    }  # fmt: skip


def rbm(options: Any) -> Iterator[Row]:
    """Bounds of three restricted Boltzmann machines."""
    names = [f"rbm_{k}" for k in (20, 21, 22)]
    for model in load(Path(options.data) / "fw_inference", "RBM", names, exact=False):
        row = measured(model.graph, model.log_z, model.marginals, method="barrier-fw")
        yield {"model": model.name, **row}


def cliques(options: Any) -> Iterator[Row]:
    """Means over the models of one coupling."""
    names = [str(k) for k in range(1, 901) if (k - 1) % 100 % options.every == 0]
    rows: dict[float, list[Row]] = {}
    for model in load(Path(options.data) / "fw_inference", "Synthetic", names):
        row = measured(model.graph, model.log_z, model.marginals, method="barrier-fw")
        rows.setdefault(COUPLINGS[(int(model.name) - 1) // 100], []).append(row)
    for coupling, found in rows.items():
        yield {"model": f"coupling {coupling}", **_mean(found)}


def drawn(options: Any) -> Iterator[Row]:
    """``auto`` on graphs that elimination could answer, but may not."""
    for order in (2, 3, 4):
        for scale in (0.5, 1.0, 2.0):
            for forbidden in (0.0, 0.2):
                found = []
                for seed in range(3):
                    graph = _graph(order, scale, forbidden, seed)
                    truth = graph.marginals("junction-tree")
                    try:
                        row = measured(graph, truth.log_z, truth.nodes.flat, method="anytime",
                                       seconds=1.0, max_operations=0)  # fmt: skip
                    except CliquewiseError:
                        row = dict.fromkeys(("upper", "lower", "ln Z", "marginals", "seconds"),
                                            math.nan)  # fmt: skip
                    found.append(row)
                zeros = f", {forbidden:.0%} forbidden" if forbidden else ""
                yield {"model": f"order {order}, scale {scale:g}{zeros}", **_mean(found)}


def messages(options: Any) -> Iterator[Row]:
    """Loopy belief propagation on graphs of loops that elimination can still answer."""
    for order in (3, 4):
        for n in (20, 100, 300):
            for scale in (0.5, 1.5, 3.0):
                for forbidden in (0.0, 0.25):
                    found = []
                    for seed in range(3):
                        graph = _neighbors(order, n, scale, forbidden, 1000 * seed + n)
                        truth = graph.marginals("junction-tree").nodes.flat
                        begin = time.process_time()
                        passed = FactorMessages(graph)
                        settled, _ = passed.run(1e-6, 100_000, time.perf_counter() + 0.3)
                        spent = time.process_time() - begin
                        error = float(np.abs(passed.answer()[0] - truth).mean())
                        found.append({"settled": settled, "marginals": error, "seconds": spent})
                    zeros = f", {forbidden:.0%} forbidden" if forbidden else ""
                    yield {"model": f"order {order}, {n}, scale {scale:g}{zeros}", **_mean(found)}


def _neighbors(order: int, n: int, scale: float, forbidden: float, seed: int) -> FactorGraph:
    """Factors among nine variables in a row, and of single ones; one labeling is possible."""
    rng = np.random.default_rng(seed)
    cards = rng.integers(2, 4, size=n)
    keep = rng.integers(0, cards)
    factors: list[Any] = [((v,), 0.3 * scale * rng.normal(size=cards[v])) for v in range(n)]
    for _ in range(int({3: 1.2, 4: 0.8}[order] * n)):
        scope = rng.integers(0, n - 9) + rng.choice(9, size=order, replace=False)
        table = scale * rng.normal(size=tuple(cards[scope]))
        table[rng.random(table.shape) < forbidden] = -np.inf
        table[tuple(keep[scope])] = 0.3 * scale
        factors.append((scope.tolist(), table))
    return FactorGraph(cards, factors)


def _graph(order: int, scale: float, forbidden: float, seed: int) -> FactorGraph:
    """A drawn graph; one labeling is possible for certain."""
    rng = np.random.default_rng(seed)
    count = {2: 110, 3: 70, 4: 60}[order]  # about as wide as elimination can check
    graph = random_graph(
        36, count, max_order=order, max_cardinality=3, scale=scale, random_state=rng
    )
    keep, factors = rng.integers(0, graph.cardinalities), []
    for scope, table in graph.factors:
        drawn_out = np.where(rng.random(table.shape) < forbidden, -np.inf, table)
        drawn_out[tuple(keep[list(scope)])] = 0.3
        factors.append((scope, drawn_out))
    return FactorGraph(graph.cardinalities, factors)


def _mean(rows: list[Row]) -> Row:
    return {key: float(np.mean([row[key] for row in rows])) for key in rows[0]}


TABLES = {"rbm": rbm, "cliques": cliques, "drawn": drawn, "messages": messages}


def warm() -> None:
    """Compile what is timed."""
    small = complete(np.zeros((4, 2)), [[1.0, 0.0], [0.0, 1.0]])
    small.marginals("barrier-fw")
    ANYTIME.marginals(small, seconds=1.0, limits=Limits(max_operations=0))
    triples = random_graph(6, 8, max_order=3, random_state=0)
    ANYTIME.marginals(triples, seconds=1.0, limits=Limits(max_operations=0))


def other(source: str, name: str, arguments: list[str]) -> list[Row]:
    """The same table by another checkout's library."""
    root = str(Path(__file__).parent.parent)
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join([source, root])}
    command = [sys.executable, "-m", "benchmarks.bounds", name, *arguments]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    if done.returncode:
        sys.exit(f"{source}: {done.stderr.strip().splitlines()[-1]}")
    rows: list[Row] = json.loads(done.stdout.splitlines()[-1])[name]
    return rows


def show(name: str, ours: list[Row], theirs: list[Row]) -> None:
    """One table; before / now where there is a before."""
    keys = [key for key in ours[0] if key != "model"]
    before = {row["model"]: row for row in theirs}
    rows = []
    for row in ours:
        cells = [f"{row[k]:.3g}" for k in keys]
        if theirs:
            cells = [f"{before[row['model']][k]:.3g} / {cell}"
                     for k, cell in zip(keys, cells, strict=True)]  # fmt: skip
        rows.append([row["model"], *cells])
    title = f"{name}: before / now" if theirs else name
    print_table(f"{title} (bounds above ln Z; mean errors; CPU seconds)", ["model", *keys], rows)


def main() -> None:
    """Print the tables asked for."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("tables", nargs="*", choices=[[], *TABLES], help="all by default")
    default = Path(os.environ.get("CLIQUEWISE_DATA", "."))
    parser.add_argument("--data", type=Path, default=default)
    parser.add_argument("--every", type=int, default=1)
    parser.add_argument("--against", metavar="SRC")
    options = parser.parse_args()
    warm()
    record: dict[str, Any] = {}
    for name in options.tables or TABLES:
        ours = list(TABLES[name](options))
        arguments = ["--data", str(options.data), "--every", str(options.every)]
        theirs = other(options.against, name, arguments) if options.against else []
        show(name, ours, theirs)
        record[name] = ours
        if theirs:
            record[f"{name}, before"] = theirs
    print_json(record)


if __name__ == "__main__":
    main()
