"""Small random graphs, and what every MAP method must keep to on them."""

from __future__ import annotations

import numpy as np
from hypothesis import strategies as st

from cliquewise.errors import InfeasibleError
from cliquewise.graph.builders import random_graph
from cliquewise.graph.factor_graph import FactorGraph
from cliquewise.oracles.registry import get


@st.composite
def graphs(draw, max_order=2, max_cardinality=3, forbid=True):
    """Disconnected parts, parallel factors, cardinality 1, ties and forbidden entries included."""
    seed = draw(st.integers(0, 2**31))
    rng = np.random.default_rng(seed)
    graph = random_graph(
        draw(st.integers(1, 6)),
        draw(st.integers(0, 12)),
        max_order=max_order,
        max_cardinality=draw(st.integers(1, max_cardinality)),
        random_state=rng,
    )
    tables = graph.tables * draw(st.sampled_from([1.0, 1e-3, 1e4]))
    if draw(st.booleans()):
        tables = np.round(tables)
    if forbid and draw(st.booleans()):
        tables[rng.random(len(tables)) < 0.2] = -np.inf
    return FactorGraph.from_structure(graph.structure, tables)


def submodular(graph):
    """The same graph with every edge of two-state variables made attractive."""
    factors = []
    for scope, table in graph.factors:
        table = np.array(table)
        if table.shape == (2, 2) and np.isfinite(table).all():
            short = table[0, 1] + table[1, 0] - table[0, 0] - table[1, 1]
            table[0, 0] += max(0.0, short)
        elif table.ndim == 2 and not np.isfinite(table).all():
            table = np.zeros(table.shape)
        factors.append((scope, table))
    return FactorGraph(graph.cardinalities, factors)


def reference(graph):
    """The best score by listing all labelings; None if none is possible."""
    try:
        return get("brute-force").map(graph).score
    except InfeasibleError:
        return None


def check(graph, method, **options):
    """Ask a method and compare with brute force; returns the result, None where infeasible."""
    best = reference(graph)
    try:
        result = get(method).map(graph, **options)
    except InfeasibleError:
        assert best is None, "called infeasible what is not"
        return None
    assert result.labels.dtype == np.int64
    assert result.labels.shape == (graph.n_variables,)
    assert result.score == graph.score(result.labels)
    assert result.method == method
    if best is None:
        assert result.score == -np.inf
        assert not result.exact
        return None
    slack = 1e-9 * max(1.0, abs(best))
    assert result.upper_bound >= best - slack
    assert result.upper_bound >= result.score
    if result.exact:
        assert abs(result.score - best) <= slack
    return result


def torus(side, k, seed, potts=None):
    """A square grid that wraps around, with random or Potts edges."""
    rng = np.random.default_rng(seed)
    index = np.arange(side * side).reshape(side, side)
    pairs = [
        (int(a), int(b))
        for shift in (0, 1)
        for a, b in zip(index.ravel(), np.roll(index, -1, shift).ravel())
    ]
    factors = [((v,), rng.normal(size=k)) for v in range(side * side)]
    for pair in pairs:
        table = rng.normal(size=(k, k)) if potts is None else potts * np.eye(k)
        factors.append((pair, table))
    return FactorGraph([k] * (side * side), factors)


def with_zeros(graph, rng, share):
    """The graph with a share of its entries forbidden, but not all labelings."""
    keep, factors = rng.integers(0, graph.cardinalities), []
    for scope, table in graph.factors:
        sparse = np.where(rng.random(table.shape) < share, -np.inf, table)
        sparse[tuple(keep[list(scope)])] = 0.3
        factors.append((scope, sparse))
    return FactorGraph(graph.cardinalities, factors)
