"""Builders of common graphs, and conversion from and to networkx."""

from __future__ import annotations

from typing import Any

import numpy as np

from cliquewise.errors import GraphError, MissingDependencyError
from cliquewise.graph.factor_graph import FactorGraph

pairwise = FactorGraph.pairwise
chain = FactorGraph.chain
tree = FactorGraph.tree
grid = FactorGraph.grid
complete = FactorGraph.complete


def random_graph(
    n: int,
    n_factors: int,
    *,
    max_order: int = 2,
    max_cardinality: int = 3,
    scale: float = 1.0,
    random_state: Any = None,
) -> FactorGraph:
    """Return a graph with random scopes and normally distributed log-potentials.

    Parameters
    ----------
    n : int
        Number of variables, each with 1..max_cardinality states (2.. if possible).
    n_factors : int
    max_order : int, default=2
        Largest number of variables of a factor.
    max_cardinality : int, default=3
    scale : float, default=1.0
        Standard deviation of the log-potentials.
    random_state : int or Generator, optional

    Examples
    --------
    >>> random_graph(5, 6, random_state=0)
    <FactorGraph: 5 variables, 6 factors>
    """
    if n < 0 or n_factors < 0 or (n == 0 and n_factors > 0) or max_order < 1:
        raise GraphError(f"{n_factors} factors of 1..{max_order} of {n} variables do not exist")
    rng = np.random.default_rng(random_state)
    cards = rng.integers(min(2, max_cardinality), max_cardinality + 1, size=n)
    factors = []
    for _ in range(n_factors):
        order = int(rng.integers(1, min(max_order, n) + 1))
        scope = rng.choice(n, size=order, replace=False)
        factors.append((scope.tolist(), scale * rng.standard_normal(tuple(cards[scope]))))
    return FactorGraph(cards, factors)


def to_networkx(graph: FactorGraph) -> Any:
    """Return the bipartite graph of variables ``("v", i)`` and factors ``("f", j)``.

    Variables carry ``cardinality``; factors carry ``scope`` and ``table``.

    Examples
    --------
    >>> to_networkx(random_graph(3, 2, random_state=0)).number_of_nodes()
    5
    """
    try:
        import networkx
    except ImportError as error:
        raise MissingDependencyError(
            "this conversion needs networkx: pip install networkx"
        ) from error
    out = networkx.Graph()
    for v, cardinality in enumerate(graph.cardinalities.tolist()):
        out.add_node(("v", v), kind="variable", cardinality=cardinality)
    for v, name in enumerate(graph.names or ()):
        out.nodes["v", v]["name"] = name
    for v, states in enumerate(graph.states or ()):
        out.nodes["v", v]["states"] = states
    for f, (scope, table) in enumerate(graph.factors):
        out.add_node(("f", f), kind="factor", scope=scope, table=np.array(table))
        out.add_edges_from((("f", f), ("v", v)) for v in scope)
    return out


def from_networkx(graph: Any) -> FactorGraph:
    """Convert from :func:`~cliquewise.to_networkx`, or any graph with tables on its nodes.

    What :func:`~cliquewise.to_networkx` made is restored. Otherwise every node is a variable
    (numbered in the graph's order; strings become names) with a log-potential vector in its
    attribute ``table`` and every edge has a matrix in its attribute ``table``, axis 0 for the
    edge's first node.

    Examples
    --------
    >>> import networkx as nx, numpy as np
    >>> g = nx.Graph()
    >>> g.add_node("a", table=[0.0, 1.0]); g.add_node("b", table=[0.0, 0.0])
    >>> g.add_edge("a", "b", table=np.eye(2))
    >>> from_networkx(g).map().labels
    array([1, 1])
    """
    nodes = dict(graph.nodes(data=True))
    if nodes and all(d.get("kind") in ("variable", "factor") for d in nodes.values()):
        variables = sorted(v for v, d in nodes.items() if d["kind"] == "variable")
        factors = sorted(f for f, d in nodes.items() if d["kind"] == "factor")
        return FactorGraph(
            [nodes[v]["cardinality"] for v in variables],
            [(nodes[f]["scope"], nodes[f]["table"]) for f in factors],
            names=_names([nodes[v].get("name") for v in variables]),
            states=_states([nodes[v].get("states") for v in variables]),
        )
    number = {v: i for i, v in enumerate(nodes)}
    missing = [v for v, d in nodes.items() if "table" not in d]
    missing += [(a, b) for a, b, d in graph.edges(data=True) if "table" not in d]
    if missing:
        raise GraphError(f"{missing[0]!r} has no attribute 'table' with its log-potentials")
    tables = [np.asarray(d["table"], dtype=np.float64) for d in nodes.values()]
    listed: list[tuple[list[int], Any]] = [([i], t) for i, t in enumerate(tables)]
    listed += [([number[a], number[b]], d["table"]) for a, b, d in graph.edges(data=True)]
    return FactorGraph([t.size for t in tables], listed, names=_names(list(nodes)))


def _names(found: list[Any]) -> list[str] | None:
    """Return the names of the variables if all nodes have one."""
    return found if found and all(isinstance(name, str) for name in found) else None


def _states(found: list[Any]) -> list[Any] | None:
    return found if found and all(found) else None


__all__ = [
    "chain",
    "complete",
    "from_networkx",
    "grid",
    "pairwise",
    "random_graph",
    "to_networkx",
    "tree",
]
