"""Factors of three and more nodes for graphs of pairs: a node more for each, tied to its scope.

The state of the new node is the configuration of its scope (those seen in training are its
labels), and an edge to every member has, by its place in the scope, a table of its own. Any table
over the configurations is then a weight per state of the new node, and ties are learned with the
rest. A pairwise model of the larger graph has every score that the factor can have.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from scipy.sparse import csr_matrix, issparse, vstack

from cliquewise.errors import DataError

Scopes = Sequence[Sequence[int]]


def with_factors(
    X: Sequence[Any], y: Sequence[Any] | None, scopes: Sequence[Scopes]
) -> tuple[list[dict[str, Any]], list[list[Any]] | None]:
    """Graphs and labels for :class:`~cliquewise.GraphLabeler`, with a node per factor at the end.

    Parameters
    ----------
    X : list of ``(node_features, edges[, edge_features])``
        As ``GraphLabeler`` takes them, without types.
    y : list of sequences of labels, or None
        None for prediction, of whose answers the first labels of each graph count.
    scopes : list of lists of tuples of nodes
        The factors of each graph; all of one order. The order of the nodes counts.

    Examples
    --------
    >>> X = [([[0.0], [1.0], [1.0]], [(0, 1)])]
    >>> graphs, labels = with_factors(X, [[1, 0, 1]], [[(0, 1, 2)]])
    >>> labels
    [['1', '0', '1', '1/0/1']]
    >>> graphs[0]["edges"].tolist()
    [[0, 1], [0, 3], [1, 3], [2, 3]]
    """
    order = {len(scope) for each in scopes for scope in each}
    if len(order) > 1:
        raise DataError(f"factors have {sorted(order)} nodes; give all of them the same number")
    if len(scopes) != len(X) or (y is not None and len(y) != len(X)):
        raise DataError(f"{len(X)} graphs, {len(scopes)} lists of factors; one is needed for each")
    width = max(order, default=1)
    graphs = [_extended(i, x, scopes[i], width) for i, x in enumerate(X)]
    if y is None:
        return graphs, None
    labels = []
    for own, each in zip(y, scopes, strict=True):
        names = [str(label) for label in own]
        labels.append([*names, *("/".join(names[v] for v in scope) for scope in each)])
    return graphs, labels


def _extended(i: int, x: Any, scopes: Scopes, width: int) -> dict[str, Any]:
    features, edges, *rest = x
    features = csr_matrix(features) if issparse(features) else csr_matrix(np.asarray(features))
    n, m = features.shape[0], len(scopes)
    members = np.asarray(scopes, dtype=np.int64).reshape(m, width)
    if members.size and not (members.min() >= 0 and members.max() < n):
        raise DataError(f"example {i}: a factor names a node that is not in 0..{n - 1}")
    edges = np.asarray(edges, dtype=np.int64).reshape(-1, 2)
    new = np.stack([members.ravel(), np.repeat(n + np.arange(m), width)], axis=1)
    old = np.asarray(rest[0], dtype=np.float64) if rest else np.empty((len(edges), 0))
    places = np.tile(np.eye(width), (m, 1))
    below = np.concatenate([np.zeros((len(places), old.shape[1])), places], axis=1)
    above = np.concatenate([old, np.zeros((len(edges), width))], axis=1)
    return {
        "features": vstack([features, csr_matrix((m, features.shape[1]))], format="csr"),
        "edges": np.concatenate([edges, new]),
        "edge_features": np.concatenate([above, below]),
        "types": np.concatenate([np.zeros(n, dtype=np.int64), np.ones(m, dtype=np.int64)]),
    }
