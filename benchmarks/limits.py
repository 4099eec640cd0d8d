"""Whether map(seconds=...) and marginals(seconds=...) keep to the limit, within 10 % and a second.

python -m benchmarks.limits [--graphs 50] [--seed 0] [--limits 1 3]

Graphs of many kinds are drawn: grids, sparse and dense pairs, strips, factors of three and four
variables; from dozens to hundreds of thousands of variables; weak and strong couplings; some with
forbidden combinations. Everything is compiled before the clock runs.
"""

from __future__ import annotations

import argparse
import time
import warnings
from typing import Any

import numpy as np

from benchmarks.common import print_json, print_table
from cliquewise.errors import CliquewiseError
from cliquewise.graph.factor_graph import FactorGraph
from cliquewise.graph.structure import Structure

#: The largest number of table entries of a drawn graph.
MOST = 2e6
KINDS = ("grid", "sparse", "dense", "strip", "higher", "forbidden")


def drawn(kind: str, size: float, rng: np.random.Generator) -> FactorGraph:
    """A graph of a kind with about so many table entries."""
    k = int(rng.choice([2, 2, 3, 5, 10]))
    coupling = float(rng.choice([0.2, 1.0, 3.0]))
    if kind == "higher":
        order = int(rng.integers(3, 5))
        m = max(2, int(size / k**order))
        n = max(order + 1, int(m * rng.uniform(0.5, 2.0)))
        scopes = np.array([rng.choice(n, order, replace=False) for _ in range(m)])
    else:
        m = max(4, int(size / k**2))
        n, scopes = _pairs(kind, m, rng)
    unary = np.arange(n)
    flat = np.concatenate([unary, scopes.ravel()])
    orders = np.concatenate([np.ones(n, int), np.full(len(scopes), scopes.shape[1])])
    structure = Structure.from_arrays(np.full(n, k), flat, np.concatenate([[0], np.cumsum(orders)]))
    tables = rng.normal(size=int(structure.table_offsets[-1]))
    tables[n * k :] *= coupling
    if kind == "forbidden":
        among = tables[n * k :]
        among[rng.random(len(among)) < 0.05] = -np.inf
    return FactorGraph.from_structure(structure, tables)


def _pairs(kind: str, m: int, rng: np.random.Generator) -> tuple[int, Any]:
    """About m pairs of variables."""
    if kind in ("grid", "strip"):
        height = max(2, int(np.sqrt(m / 2)) if kind == "grid" else int(rng.integers(2, 12)))
        index = np.arange(height * max(2, m // (2 * height))).reshape(height, -1)
        down = np.stack([index[:-1].ravel(), index[1:].ravel()], axis=1)
        right = np.stack([index[:, :-1].ravel(), index[:, 1:].ravel()], axis=1)
        return index.size, np.concatenate([down, right])
    n = max(4, int(np.sqrt(4 * m)) if kind == "dense" else int(m / rng.uniform(1.2, 4.0)))
    pairs = np.sort(rng.integers(n, size=(m, 2)), axis=1)
    return n, np.unique(pairs[pairs[:, 0] < pairs[:, 1]], axis=0)


def ask(graph: FactorGraph, want: str, seconds: float) -> tuple[float, str]:
    """Seconds taken, and what came out."""
    begin = time.perf_counter()
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            answer = getattr(graph, want)(seconds=seconds)
    except CliquewiseError as error:
        return time.perf_counter() - begin, type(error).__name__
    took = time.perf_counter() - begin
    if want == "map":
        assert answer.score <= answer.upper_bound
        return took, f"{answer.method}{', proved' if answer.exact else f', gap {answer.gap:.3g}'}"
    low, high = answer.log_z_bounds
    return took, f"{answer.method}{', exact' if answer.exact else f', within {high - low:.3g}'}"


def main() -> None:
    """Draw, ask and print."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--graphs", type=int, default=50)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--limits", type=float, nargs="+", default=[1.0, 3.0])
    parser.add_argument("--most", type=float, default=MOST, help="table entries")
    args = parser.parse_args()
    rng = np.random.default_rng(args.seed)
    for kind in KINDS:
        small = drawn(kind, 2000.0, np.random.default_rng(1))
        for want in ("map", "marginals"):
            ask(small, want, 3.0)
    rows, kept = [], 0
    for g in range(args.graphs):
        kind = KINDS[g % len(KINDS)]
        graph = drawn(kind, float(np.exp(rng.uniform(np.log(500.0), np.log(args.most)))), rng)
        limit = args.limits[g // len(KINDS) % len(args.limits)]
        for want in ("map", "marginals"):
            # As a user would: a structure that nobody has looked at before.
            fresh = FactorGraph.from_structure(
                Structure.from_arrays(
                    graph.cardinalities, graph.structure.scopes, graph.structure.scope_offsets
                ),
                graph.tables,
            )
            took, outcome = ask(fresh, want, limit)
            ok = took <= 1.1 * limit + 1.0
            kept += ok
            rows.append((g, kind, graph.n_variables, len(graph.tables), want, limit, round(took, 3),
                         "kept" if ok else "LATE", outcome))  # fmt: skip
            print(*rows[-1], flush=True)
    columns = ["graph", "kind", "variables", "entries", "question", "limit", "took", "", "answer"]
    print_table(f"limits kept: {kept} of {len(rows)}", columns, rows)
    late = max(row[6] - row[5] for row in rows)
    print_json({"kept": kept, "asked": len(rows), "latest_by_seconds": late})


if __name__ == "__main__":
    main()
