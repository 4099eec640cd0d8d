"""Inference: MAP and marginals of one graph."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from benchmarks.defaults.rows import Row
from cliquewise.graph.factor_graph import FactorGraph
from cliquewise.graph.structure import Structure
from cliquewise.oracles import get


def drawn(
    n: int, scopes: Any, k: int, rng: np.random.Generator, field: float, coupling: float
) -> FactorGraph:
    """Normal log-potentials on all variables and on scopes of one size."""
    listed = np.asarray(scopes)
    flat = np.concatenate([np.arange(n), listed.ravel()])
    orders = np.concatenate([np.ones(n, int), np.full(len(listed), listed.shape[1])])
    offsets = np.concatenate([[0], np.cumsum(orders)])
    structure = Structure.from_arrays(np.full(n, k), flat, offsets)
    tables = rng.normal(size=int(structure.table_offsets[-1]))
    tables[: n * k] *= field
    tables[n * k :] *= coupling
    return FactorGraph.from_structure(structure, tables)


def strip(height: int, width: int) -> Any:
    """Pairs of neighbors on a grid."""
    index = np.arange(height * width).reshape(height, width)
    down = np.stack([index[:-1].ravel(), index[1:].ravel()], axis=1)
    right = np.stack([index[:, :-1].ravel(), index[:, 1:].ravel()], axis=1)
    return np.concatenate([down, right])


# ---- MAP where the relaxation is tight, and elimination takes seconds and gigabytes


def smooth() -> FactorGraph:
    """A grid of 17 by 40 whose fields outweigh its couplings."""
    return drawn(17 * 40, strip(17, 40), 2, np.random.default_rng(0), 1.0, 0.3)


def again(graph: FactorGraph) -> FactorGraph:
    """The same graph, and nothing known of its structure."""
    s = graph.structure
    fresh = Structure.from_arrays(s.cardinalities, s.scopes, s.scope_offsets)
    return FactorGraph.from_structure(fresh, graph.tables)


def proved(graph: FactorGraph, method: str = "auto") -> float:
    """The score, if it is proved to be the best."""
    best = again(graph).map(method)
    return best.score if best.exact else -np.inf


def warm_map(graph: FactorGraph) -> None:
    """Compile what the row needs, on a small graph."""
    small = drawn(12, strip(3, 4), 2, np.random.default_rng(0), 1.0, 0.3)
    for method in ("anytime", "trw-s", "junction-tree", "portfolio"):
        small.map(method)


# ---- marginals of 500 variables with weak couplings


class Weak(NamedTuple):
    """A graph and its true marginals."""

    graph: FactorGraph
    truth: Any
    log_z: float


def weak() -> Weak:
    """Random pairs of 500 variables; a junction tree still does it, in ten seconds or so."""
    rng = np.random.default_rng(0)
    n = 500
    near = [(v, v + int(d)) for v in range(n) for d in rng.choice(np.arange(1, 15), 4, False)]
    pairs = np.unique([p for p in near if p[1] < n], axis=0)
    graph = drawn(n, pairs, 3, rng, 1.0, 0.2)
    cost = get("junction-tree").cost(graph.structure, "marginals")
    print(f"    {len(pairs)} pairs; a junction tree takes about {cost.seconds:.2g} s")
    exact = graph.marginals("junction-tree")
    return Weak(graph, exact.nodes.flat, exact.log_z)


def accuracy(given: Weak, method: str = "auto", **options: Any) -> float:
    """Minus the mean absolute error; prints the bounds."""
    found = again(given.graph).marginals(method, **options)
    low, high = found.log_z_bounds
    error = float(np.abs(found.nodes.flat - given.truth).mean())
    print(f"    {found.method}: error {error:.2g}, log Z - {given.log_z:.6g} within "
          f"[{low - given.log_z:.3g}, {high - given.log_z:.3g}]")  # fmt: skip
    return -error


def warm_marginals(given: Weak) -> None:
    """Compile what the row needs, on a small graph."""
    small = drawn(12, strip(3, 4), 3, np.random.default_rng(0), 1.0, 0.3)
    small.marginals("anytime", max_operations=0)
    small.marginals("trw-bp", rho=1)
    small.marginals("barrier-fw", max_calls=3)


# ---- MAP of wide graphs with large factors


def wide() -> FactorGraph:
    """Eighty variables of six states, and factors of four of them: 200,000 entries and more."""
    rng = np.random.default_rng(0)
    n, m = 80, 160
    scopes = [np.sort(rng.choice(n, 4, replace=False)) for _ in range(m)]
    return drawn(n, scopes, 6, rng, 1.0, 1.0)


def reached(graph: FactorGraph, method: str = "auto", seconds: float = 20.0) -> float:
    """The score after a limit of time, relative to the size of the graph."""
    best = again(graph).map(method, seconds=seconds)
    print(f"    {best.method}: {best.score:.6g}, bound {best.upper_bound:.6g}")
    return best.score / graph.n_factors


def warm_wide(graph: FactorGraph) -> None:
    """Compile what the row needs, on a small graph."""
    scopes = [(0, 1, 2, 3), (2, 3, 4, 5)]
    drawn(6, scopes, 2, np.random.default_rng(0), 1.0, 1.0).map("anytime", seconds=1.0)


ROWS: list[Row] = [
    Row(
        "map: tight relaxation",
        "score",
        smooth,
        proved,
        {
            "trw-s": lambda g: proved(g, "trw-s"),
            "junction-tree": lambda g: proved(g, "junction-tree"),
        },
        noise=1e-6,
        warm=warm_map,
    ),
    Row(
        "marginals: 500 variables",
        "-error",
        weak,
        accuracy,
        {
            "loopy": lambda g: accuracy(g, "trw-bp", rho=1),
            "trw-bp": lambda g: accuracy(g, "trw-bp"),
            "barrier-fw": lambda g: accuracy(g, "barrier-fw", seconds=30.0),
        },
        noise=1e-3,
        warm=warm_marginals,
    ),
    Row(
        "map: large factors",
        "score/factor",
        wide,
        reached,
        {
            "toulbar2": lambda g: reached(g, "toulbar2"),
            "milp": lambda g: reached(g, "milp"),
        },
        noise=0.01,
        warm=warm_wide,
    ),
]
