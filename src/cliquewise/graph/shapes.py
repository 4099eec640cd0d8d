"""Graphs of common shapes, built by class methods of FactorGraph."""

from __future__ import annotations

from typing import Self

import numpy as np
from numpy.typing import ArrayLike

from cliquewise.errors import GraphError
from cliquewise.graph.structure import Structure
from cliquewise.ragged import Floats


class Shapes:
    """Constructors on top of :meth:`from_structure`, which the subclass defines."""

    __slots__ = ()

    structure: Structure

    @classmethod
    def from_structure(cls, structure: Structure, tables: ArrayLike) -> Self:
        """Build a graph from a structure and tables."""
        raise NotImplementedError

    @classmethod
    def pairwise(cls, nodes: ArrayLike, edges: ArrayLike, tables: ArrayLike) -> Self:
        """Build a graph of variables with equally many states: one table each, one per edge.

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
        >>> from cliquewise.graph import FactorGraph
        >>> FactorGraph.pairwise(np.zeros((3, 2)), [(0, 1), (1, 2)], np.eye(2)).map().score
        2.0
        """
        unary = as_floats(nodes, "nodes")
        pairs = np.asarray(edges, dtype=np.int64).reshape(-1, 2)
        if unary.ndim != 2:
            raise GraphError(f"nodes must have shape (n, k), not {unary.shape}")
        n, k = unary.shape
        m = len(pairs)
        joint = as_floats(tables, "edge tables")
        if joint.shape == (k, k):
            joint = np.broadcast_to(joint, (m, k, k))
        if joint.shape != (m, k, k):
            raise GraphError(
                f"edge tables must have shape {(k, k)} or {(m, k, k)}, not {joint.shape}"
            )
        structure = Structure.from_arrays(
            np.full(n, k),
            np.concatenate([np.arange(n), pairs.ravel()]),
            np.concatenate([np.arange(n + 1), n + 2 * np.arange(1, m + 1)]),
        )
        return cls.from_structure(structure, np.concatenate([unary.ravel(), joint.ravel()]))

    @classmethod
    def chain(cls, nodes: ArrayLike, edges: ArrayLike) -> Self:
        """Build a chain: variable ``t`` is connected to ``t + 1``.

        Parameters
        ----------
        nodes : array-like, shape (n, k)
        edges : array-like, shape (k, k) or (n - 1, k, k)

        Examples
        --------
        >>> import numpy as np
        >>> from cliquewise.graph import FactorGraph
        >>> FactorGraph.chain(np.zeros((4, 3)), np.eye(3)).n_factors
        7
        """
        n = len(np.asarray(nodes))
        links = np.stack([np.arange(max(n - 1, 0)), np.arange(1, max(n, 1))], axis=1)
        return cls.pairwise(nodes, links, edges)

    @classmethod
    def tree(cls, parents: ArrayLike, nodes: ArrayLike, edges: ArrayLike) -> Self:
        """Build a forest from parents: axis 0 of an edge table is the parent.

        Parameters
        ----------
        parents : array-like of int, shape (n,)
            Parent of each variable; -1 for a root. One edge per other variable, in order.
        nodes : array-like, shape (n, k)
        edges : array-like, shape (k, k) or (number of edges, k, k)

        Examples
        --------
        >>> import numpy as np
        >>> from cliquewise.graph import FactorGraph
        >>> FactorGraph.tree([-1, 0, 0], np.zeros((3, 2)), np.eye(2)).structure.is_forest
        True
        """
        up = np.asarray(parents, dtype=np.int64)
        child = np.flatnonzero(up >= 0)
        graph = cls.pairwise(nodes, np.stack([up[child], child], axis=1), edges)
        n = graph.structure.n_variables
        if len(up) != n:
            raise GraphError(f"{len(up)} parents were given for {n} variables")
        # Counted, for two variables that are each other's parents share one edge.
        if len(child) != n - graph.structure.components[0]:
            raise GraphError(
                "the parents contain a cycle; a tree needs every path to end at a root"
            )
        return graph

    @classmethod
    def grid(cls, nodes: ArrayLike, vertical: ArrayLike, horizontal: ArrayLike) -> Self:
        """Build a grid of ``h`` rows and ``w`` columns; variable ``r * w + c`` is at (r, c).

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
        >>> from cliquewise.graph import FactorGraph
        >>> FactorGraph.grid(np.zeros((2, 3, 2)), np.eye(2), np.eye(2)).n_factors
        13
        """
        unary = as_floats(nodes, "nodes")
        if unary.ndim != 3:
            raise GraphError(f"nodes must have shape (h, w, k), not {unary.shape}")
        h, w, k = unary.shape
        index = np.arange(h * w).reshape(h, w)
        down = np.stack([index[:-1].ravel(), index[1:].ravel()], axis=1)
        right = np.stack([index[:, :-1].ravel(), index[:, 1:].ravel()], axis=1)
        tables = np.concatenate(
            [
                np.broadcast_to(_edge_tables(vertical, (max(h - 1, 0), w), k), (len(down), k, k)),
                np.broadcast_to(
                    _edge_tables(horizontal, (h, max(w - 1, 0)), k), (len(right), k, k)
                ),
            ]
        )
        return cls.pairwise(unary.reshape(h * w, k), np.concatenate([down, right]), tables)

    @classmethod
    def complete(cls, nodes: ArrayLike, edges: ArrayLike) -> Self:
        """Build a complete graph, with pairs in the order (0, 1), (0, 2), ..., (1, 2), ...

        Parameters
        ----------
        nodes : array-like, shape (n, k)
        edges : array-like, shape (k, k) or (n * (n - 1) / 2, k, k)

        Examples
        --------
        >>> import numpy as np
        >>> from cliquewise.graph import FactorGraph
        >>> len(FactorGraph.complete(np.zeros((4, 2)), np.eye(2)).structure.edges)
        6
        """
        n = len(np.asarray(nodes))
        return cls.pairwise(nodes, np.stack(np.triu_indices(n, 1), axis=1), edges)


def as_floats(values: ArrayLike, what: str) -> Floats:
    """Convert to an array of numbers, or raise an error that describes what is expected."""
    try:
        return np.asarray(values, dtype=np.float64)
    except (TypeError, ValueError) as error:
        raise GraphError(f"{what} is not an array of numbers") from error


def _edge_tables(tables: ArrayLike, places: tuple[int, int], k: int) -> Floats:
    array = as_floats(tables, "edge tables")
    if array.shape == (k, k):
        return array
    if array.shape == (*places, k, k):
        return array.reshape(-1, k, k)
    raise GraphError(
        f"edge tables must have shape {(k, k)} or {(*places, k, k)}, not {array.shape}"
    )
