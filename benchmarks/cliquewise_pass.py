"""Seconds of a pass over the cliques, and memory, as their number grows.

    python -m benchmarks.cliquewise_pass [--sizes 25000 50000 100000 200000] [--labels 5]

Grids of 10 x 10 nodes with ``labels`` states each and two features; cliques are nodes and edges,
so that two of three have labels x labels states. One core, processor seconds after warm-up.
"""

from __future__ import annotations

import argparse
import time

import numpy as np

from benchmarks.common import print_json, print_table
from cliquewise.data.graphs import GraphDataset
from cliquewise.models.pairwise import PairwiseModel
from cliquewise.problems.graph import GraphProblem
from cliquewise.solvers.idal import IDAL


def grids(n_edges: int, k: int) -> GraphProblem:
    """As many 10 x 10 grids as have about ``n_edges`` edges."""
    at = np.arange(100).reshape(10, 10)
    across = np.stack([at[:, :-1].ravel(), at[:, 1:].ravel()], axis=1)
    down = np.stack([at[:-1].ravel(), at[1:].ravel()], axis=1)
    edges, rng = np.concatenate([across, down]), np.random.default_rng(0)
    count = -(-n_edges // len(edges))
    y = rng.integers(0, k, (count, 100))
    X = [(np.stack([v + rng.normal(size=100), np.ones(100)], axis=1), edges) for v in y]
    return GraphProblem(PairwiseModel([k], 2), GraphDataset.from_examples(X, list(y)), C=0.1)


def state_bytes(state: object) -> int:
    """Bytes of all arrays of a solver's state."""
    own = [v for v in vars(state).values() if isinstance(v, np.ndarray)]
    return sum(a.nbytes for a in [*own, *vars(state)["point"]])


def main() -> None:
    """Print a table and one line of JSON."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    sizes = [25_000, 50_000, 100_000, 200_000]
    parser.add_argument("--sizes", type=int, nargs="*", default=sizes, help="edges")
    parser.add_argument("--labels", type=int, default=5)
    given = parser.parse_args()
    rows = []
    for size in given.sizes:
        problem, solver, rng = grids(size, given.labels), IDAL(inner=1.0), np.random.default_rng(0)
        state = solver.init(problem)
        solver.step(problem, state, rng)
        times = []
        for _ in range(3):
            begin = time.process_time()
            solver.step(problem, state, rng)
            times.append(time.process_time() - begin)
        bytes_ = state_bytes(state) + sum(a.nbytes for a in problem.cliques)
        rows.append([problem.data.n_edges, problem.n_cliques, min(times), bytes_ / 2**20,
                     bytes_ / problem.n_cliques])  # fmt: skip
    columns = ("edges", "cliques", "seconds_per_pass", "MiB", "bytes_per_clique")
    print_table(f"cliquewise passes, {given.labels} labels", columns, rows)
    print_json(
        {
            "benchmark": "cliquewise_pass",
            "rows": [dict(zip(columns, r, strict=True)) for r in rows],
        }
    )


if __name__ == "__main__":
    main()
