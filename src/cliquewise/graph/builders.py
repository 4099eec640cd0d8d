"""Builders of common graphs, and conversion from and to networkx."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from cliquewise.errors import GraphError, MissingDependencyError
from cliquewise.graph.factor_graph import FactorGraph, Floats
from cliquewise.graph.structure import Ints, Structure


def pairwise(nodes: ArrayLike, edges: ArrayLike, tables: ArrayLike) -> FactorGraph:
    """Variables with equally many states, one table each, and one per edge.

    Parameters
    ----------
    nodes : array-like, shape (n, k)
        Log-potentials of the variables.
    edges : array-like of int, shape (m, 2)
    tables : array-like, shape (k, k) or (m, k, k)
        One log-potential table for all edges, or one each.

    Examples
    --------
    >>> import numpy as np
    >>> pairwise(np.zeros((3, 2)), [(0, 1), (1, 2)], np.eye(2)).map().score
    2.0
    """
    unary = _floats(nodes, "nodes")
    pairs = np.asarray(edges, dtype=np.int64).reshape(-1, 2)
    if unary.ndim != 2:
        raise GraphError(f"nodes must have shape (n, k), not {unary.shape}")
    n, k = unary.shape
    m = len(pairs)
    joint = _floats(tables, "edge tables")
    if joint.shape == (k, k):
        joint = np.broadcast_to(joint, (m, k, k))
    if joint.shape != (m, k, k):
        raise GraphError(f"edge tables must have shape {(k, k)} or {(m, k, k)}, not {joint.shape}")
    structure = Structure.from_arrays(
        np.full(n, k),
        np.concatenate([np.arange(n), pairs.ravel()]),
        np.concatenate([np.arange(n + 1), n + 2 * np.arange(1, m + 1)]),
    )
    return FactorGraph.from_structure(structure, np.concatenate([unary.ravel(), joint.ravel()]))


def chain(nodes: ArrayLike, edges: ArrayLike) -> FactorGraph:
    """A chain: variable ``t`` is tied to ``t + 1``.

    Parameters
    ----------
    nodes : array-like, shape (n, k)
    edges : array-like, shape (k, k) or (n - 1, k, k)

    Examples
    --------
    >>> import numpy as np
    >>> chain(np.zeros((4, 3)), np.eye(3)).n_factors
    7
    """
    n = len(np.asarray(nodes))
    links = np.stack([np.arange(max(n - 1, 0)), np.arange(1, max(n, 1))], axis=1)
    return pairwise(nodes, links, edges)


def tree(parents: ArrayLike, nodes: ArrayLike, edges: ArrayLike) -> FactorGraph:
    """A forest given by parents: axis 0 of an edge's table is the parent.

    Parameters
    ----------
    parents : array-like of int, shape (n,)
        Parent of each variable; -1 for a root. One edge per other variable, in order.
    nodes : array-like, shape (n, k)
    edges : array-like, shape (k, k) or (number of edges, k, k)

    Examples
    --------
    >>> import numpy as np
    >>> tree([-1, 0, 0], np.zeros((3, 2)), np.eye(2)).structure.is_forest
    True
    """
    up = np.asarray(parents, dtype=np.int64)
    child = np.flatnonzero(up >= 0)
    graph = pairwise(nodes, np.stack([up[child], child], axis=1), edges)
    if len(up) != graph.n_variables:
        raise GraphError(f"{len(up)} parents were given for {graph.n_variables} variables")
    # Counted, for two variables that are each other's parents share one edge.
    if len(child) != graph.n_variables - graph.structure.components[0]:
        raise GraphError("the parents contain a cycle; a tree needs every path to end at a root")
    return graph


def grid(nodes: ArrayLike, vertical: ArrayLike, horizontal: ArrayLike) -> FactorGraph:
    """A grid of ``h`` rows and ``w`` columns, variable ``r * w + c`` at row r, column c.

    Parameters
    ----------
    nodes : array-like, shape (h, w, k)
    vertical : array-like, shape (k, k) or (h - 1, w, k, k)
        Tables between a variable (axis 0) and the one below.
    horizontal : array-like, shape (k, k) or (h, w - 1, k, k)
        Tables between a variable (axis 0) and the one to the right.

    Examples
    --------
    >>> import numpy as np
    >>> grid(np.zeros((2, 3, 2)), np.eye(2), np.eye(2)).n_factors
    13
    """
    unary = _floats(nodes, "nodes")
    if unary.ndim != 3:
        raise GraphError(f"nodes must have shape (h, w, k), not {unary.shape}")
    h, w, k = unary.shape
    index = np.arange(h * w).reshape(h, w)
    down = np.stack([index[:-1].ravel(), index[1:].ravel()], axis=1)
    right = np.stack([index[:, :-1].ravel(), index[:, 1:].ravel()], axis=1)
    tables = np.concatenate(
        [
            np.broadcast_to(_edge_tables(vertical, (max(h - 1, 0), w), k), (len(down), k, k)),
            np.broadcast_to(_edge_tables(horizontal, (h, max(w - 1, 0)), k), (len(right), k, k)),
        ]
    )
    return pairwise(unary.reshape(h * w, k), np.concatenate([down, right]), tables)


def _floats(values: ArrayLike, what: str) -> Floats:
    try:
        return np.asarray(values, dtype=np.float64)
    except (TypeError, ValueError) as error:
        raise GraphError(f"{what} must be an array of numbers") from error


def _edge_tables(tables: ArrayLike, places: tuple[int, int], k: int) -> Floats:
    array = _floats(tables, "edge tables")
    if array.shape == (k, k):
        return array
    if array.shape == (*places, k, k):
        return array.reshape(-1, k, k)
    raise GraphError(
        f"edge tables must have shape {(k, k)} or {(*places, k, k)}, not {array.shape}"
    )


def complete(nodes: ArrayLike, edges: ArrayLike) -> FactorGraph:
    """Every pair of variables tied, pairs in the order (0, 1), (0, 2), ..., (1, 2), ...

    Parameters
    ----------
    nodes : array-like, shape (n, k)
    edges : array-like, shape (k, k) or (n * (n - 1) / 2, k, k)

    Examples
    --------
    >>> import numpy as np
    >>> len(complete(np.zeros((4, 2)), np.eye(2)).structure.edges)
    6
    """
    n = len(np.asarray(nodes))
    return pairwise(nodes, np.stack(np.triu_indices(n, 1), axis=1), edges)


def random_graph(
    n: int,
    n_factors: int,
    *,
    max_order: int = 2,
    max_cardinality: int = 3,
    scale: float = 1.0,
    random_state: Any = None,
) -> FactorGraph:
    """A graph with random scopes and normally distributed log-potentials.

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
    """The bipartite graph of variables ``("v", i)`` and factors ``("f", j)``.

    Variables carry ``cardinality``; factors carry ``scope`` and ``table``.

    Examples
    --------
    >>> to_networkx(random_graph(3, 2, random_state=0)).number_of_nodes()
    5
    """
    nx = _networkx()
    out = nx.Graph()
    for v, cardinality in enumerate(graph.cardinalities.tolist()):
        out.add_node(("v", v), kind="variable", cardinality=cardinality)
    for f, (scope, table) in enumerate(graph.factors):
        out.add_node(("f", f), kind="factor", scope=scope, table=np.array(table))
        out.add_edges_from((("f", f), ("v", v)) for v in scope)
    return out


def from_networkx(graph: Any) -> FactorGraph:
    """Back from :func:`to_networkx`, or from any graph whose nodes and edges carry tables.

    A bipartite graph of :func:`to_networkx` is restored. Otherwise every node is a variable
    (numbered in the graph's order) with a log-potential vector in its attribute ``table``
    and every edge has a matrix in its attribute ``table``, axis 0 for the edge's first node.

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
        )
    number = {v: i for i, v in enumerate(nodes)}
    missing = [v for v, d in nodes.items() if "table" not in d]
    missing += [(a, b) for a, b, d in graph.edges(data=True) if "table" not in d]
    if missing:
        raise GraphError(f"{missing[0]!r} has no attribute 'table' with its log-potentials")
    tables = [np.asarray(d["table"], dtype=np.float64) for d in nodes.values()]
    listed: list[tuple[list[int], Any]] = [([i], t) for i, t in enumerate(tables)]
    listed += [([number[a], number[b]], d["table"]) for a, b, d in graph.edges(data=True)]
    return FactorGraph([t.size for t in tables], listed)


def _networkx() -> Any:
    try:
        import networkx
    except ImportError as error:
        raise MissingDependencyError(
            "this conversion needs networkx: pip install networkx"
        ) from error
    return networkx


__all__ = [
    "Ints",
    "chain",
    "complete",
    "from_networkx",
    "grid",
    "pairwise",
    "random_graph",
    "to_networkx",
    "tree",
]
