"""Barrier Frank-Wolfe on factors of three and four variables, beside weighted mini-buckets.

    python -m experiments.auxiliary_variables [--seconds S] [--sizes 20,40,60] [--seeds K]

Every factor of three or more variables becomes a variable whose states are the entries of its
table, tied to the variables of its scope by edges that forbid what does not agree: a pairwise
graph of the same ln Z. Barrier Frank-Wolfe runs on it; its MAP calls are answered on the graph
itself, whose tables take what the gradient says of an auxiliary variable and of its edges: by
elimination where its tables are small, by toulbar2 elsewhere. ``mini-buckets`` has the same
seconds. Graphs are drawn: factors of one order (cardinalities 2 to 3, with order 4 always 2), as
many as there are variables (half as many again with order 3), and one for each variable.

Printed are certified upper bounds of ln Z, above ln Z where elimination knows it, and above the
lower bound of ``mini-buckets`` (marked +) elsewhere. The last line is JSON.
"""

from __future__ import annotations

import argparse
import math
import time
from dataclasses import replace
from typing import Any

import numpy as np

from benchmarks.common import print_json, print_table
from cliquewise.errors import CliquewiseError
from cliquewise.graph.factor_graph import FactorGraph
from cliquewise.oracles._barrier_parts import Parts
from cliquewise.oracles._barrier_run import Run, Settings
from cliquewise.oracles._trw import Tally, problem, start_rho
from cliquewise.oracles.base import Limits
from cliquewise.oracles.registry import get
from cliquewise.oracles.results import MapResult

#: Elimination answers MAP calls up to so many entries, and ln Z.
PER_CALL, FOR_LN_Z = 1e8, 2e9
#: Part of the time to find possible labelings; the longest search of one call.
SUPPORT, SEARCH = 0.3, 5.0

#: An auxiliary variable, the scope of its factor, and the state of each variable by entry.
Link = tuple[int, tuple[int, ...], list[Any]]


def drawn(order: int, n: int, scale: float, seed: int) -> FactorGraph:
    """Factors of one order among any variables."""
    rng = np.random.default_rng(seed)
    cards = np.full(n, 2) if order == 4 else rng.integers(2, 4, size=n)
    factors: list[Any] = [((v,), 0.3 * scale * rng.normal(size=cards[v])) for v in range(n)]
    for _ in range(n if order == 4 else 3 * n // 2):
        scope = rng.choice(n, size=order, replace=False)
        factors.append((scope.tolist(), scale * rng.normal(size=tuple(cards[scope]))))
    return FactorGraph(cards, factors)


def auxiliary(graph: FactorGraph) -> tuple[FactorGraph, list[Link]]:
    """A pairwise graph of the same ln Z."""
    cards, factors, links = graph.cardinalities.tolist(), [], []
    for scope, table in graph.factors:
        if len(scope) <= 2:
            factors.append((scope, table))
            continue
        new, entries = len(cards), np.arange(table.size)
        cards.append(table.size)
        states = list(np.unravel_index(entries, table.shape))
        links.append((new, tuple(scope), states))
        factors.append(((new,), table.ravel()))
        for v, own in zip(scope, states, strict=True):
            agrees = np.full((cards[v], table.size), -np.inf)
            agrees[own, entries] = 0.0
            factors.append(((v, new), agrees))
    return FactorGraph(cards, factors), links


class Folded:
    """MAP calls on the auxiliary graph, answered by the graph that it came from."""

    def __init__(self, n: int, links: list[Link]):
        self.n, self.links, self.tally, self.name = n, links, Tally(), ""

    def __call__(
        self, graph: FactorGraph, seconds: float = math.inf, init: Any = None
    ) -> MapResult:
        begin = time.perf_counter()
        tables = {tuple(scope): table for scope, table in graph.factors}
        factors = [(scope, table) for scope, table in tables.items() if max(scope) < self.n]
        for new, scope, states in self.links:
            total = tables[(new,)].copy()
            for v, own in zip(scope, states, strict=True):
                total += tables[(v, new)][own, np.arange(len(total))]
            shape = tuple(graph.cardinalities[list(scope)])
            factors.append((scope, total.reshape(shape)))
        small = FactorGraph(graph.cardinalities[: self.n], factors)
        tree = get("junction-tree")
        limits = Limits(max_operations=PER_CALL)
        if not self.name:
            fits = tree.consider(small, "map", limits).can_answer
            self.name = "junction-tree" if fits else "toulbar2"
        options = {} if self.name == tree.name else {"seconds": max(0.05, min(seconds, SEARCH))}
        found = get(self.name).map(small, **options)
        labels = found.labels.tolist()
        for _, scope, states in self.links:
            chosen = [states[a] == found.labels[v] for a, v in enumerate(scope)]
            labels.append(int(np.argmax(np.all(chosen, axis=0))))
        self.tally.calls += 1
        self.tally.seconds += time.perf_counter() - begin
        return replace(found, labels=np.array(labels))


def barrier(graph: FactorGraph, seconds: float) -> tuple[float, Folded]:
    """The upper bound of Barrier Frank-Wolfe, and what answered its calls."""
    begin = time.perf_counter()
    pairs, links = auxiliary(graph)
    mapper: Any = Folded(graph.structure.n_variables, links)
    p = problem(pairs, lambda _: mapper, SUPPORT * seconds)
    settings = Settings("adaptive", "marginal", 10, 0.1, True, False, 10_000, seconds, None)
    parts = Parts(Run(p, mapper, settings, begin, start_rho(p.pairwise)))
    parts.whole(1, settings.rho_updates, settings.gap)
    return parts.upper if p.certified else math.inf, mapper


def compared(graph: FactorGraph, seconds: float) -> dict[str, Any]:
    """Both bounds above ln Z, or above what is known of it."""
    begin = time.perf_counter()
    upper, mapper = barrier(graph, seconds)
    took = time.perf_counter() - begin
    begin = time.perf_counter()
    buckets = get("mini-buckets").marginals(graph, seconds=seconds)
    low, high = buckets.log_z_bounds
    took_buckets = time.perf_counter() - begin
    known = True
    try:
        low = graph.marginals("junction-tree", max_operations=FOR_LN_Z).log_z
    except CliquewiseError:
        known = False
    return {
        "barrier-fw": upper - low, "seconds": took, "calls": mapper.tally.calls,
        "by": mapper.name, "mini-buckets": high - low, "their seconds": took_buckets,
        "known": known,
    }  # fmt: skip


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--seconds", type=float, default=10.0)
    parser.add_argument("--sizes", default="20,40,60")
    parser.add_argument("--scales", default="0.3,1,2.5")
    parser.add_argument("--seeds", type=int, default=1)
    options = parser.parse_args()
    compared(drawn(3, 6, 1.0, 0), 1.0)  # compiles
    rows, record = [], []
    for order in (3, 4):
        for n in map(int, options.sizes.split(",")):
            for scale in map(float, options.scales.split(",")):
                for seed in range(options.seeds):
                    row = compared(drawn(order, n, scale, 100 * seed + n), options.seconds)
                    record.append({"order": order, "n": n, "scale": scale, "seed": seed, **row})
                    plus = "" if row["known"] else "+"
                    rows.append([
                        order, n, scale, *(f"{row[key]:.3g}{plus}" for key in ("barrier-fw",
                        "mini-buckets")), row["seconds"], row["their seconds"], row["calls"],
                        row["by"],
                    ])  # fmt: skip
                    print(rows[-1], flush=True)
    columns = ["order", "variables", "scale", "barrier-fw", "mini-buckets", "seconds", "seconds",
               "calls", "by"]  # fmt: skip
    print_table("upper bounds above ln Z", columns, rows)
    print_json({"auxiliary_variables": record})


if __name__ == "__main__":
    main()
