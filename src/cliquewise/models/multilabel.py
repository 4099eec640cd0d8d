"""The multilabel model: a graph over the labels, the same for every row (Finley, Joachims 2008).

Each label is a node type of its own with the states no and yes; each pair of labels has a
table, or a weight for both being on. All nodes of a row share its features, stored once.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import ArrayLike
from scipy.sparse import csr_matrix

from cliquewise.data.graphs import GraphDataset
from cliquewise.errors import DataError
from cliquewise.models.pairwise import PairwiseModel
from cliquewise.structure import Ints


def label_pairs(n_labels: int, graph: Any = "complete") -> Ints:
    """Pairs of labels that have a table.

    Parameters
    ----------
    n_labels : int
    graph : {"complete", "none"} or pairs of label numbers

    Examples
    --------
    >>> label_pairs(3).tolist()
    [[0, 1], [0, 2], [1, 2]]
    >>> label_pairs(3, [(2, 0)]).tolist()
    [[0, 2]]
    """
    if isinstance(graph, str):
        if graph not in ("complete", "none"):
            raise DataError(f'label_graph is "complete", "none" or a list of pairs, not {graph!r}')
        if graph == "none":
            return np.empty((0, 2), dtype=np.int64)
        return np.stack(np.triu_indices(n_labels, 1), axis=1).astype(np.int64)
    pairs = np.asarray(graph)
    if pairs.size == 0:
        return np.empty((0, 2), dtype=np.int64)
    if pairs.ndim != 2 or pairs.shape[1] != 2 or pairs.dtype.kind not in "iu":
        raise DataError("label_graph must be pairs of label numbers")
    pairs = np.sort(pairs.astype(np.int64), axis=1)
    if pairs.min() < 0 or pairs.max() >= n_labels or (pairs[:, 0] == pairs[:, 1]).any():
        raise DataError(f"label_graph must join different labels out of 0..{n_labels - 1}")
    if len(np.unique(pairs, axis=0)) != len(pairs):
        raise DataError("label_graph names a pair twice")
    return pairs


def multilabel_model(
    n_labels: int, n_features: int, pairs: Ints, intercept: bool = True, pairwise: str = "table"
) -> PairwiseModel:
    """Weights: features x 2 per label, 2 x 2 per pair (one, if only co-occurrence counts).

    Examples
    --------
    >>> multilabel_model(3, 4, label_pairs(3)).dimension      # 3 x 5 x 2 + 3 x 4
    42
    """
    return PairwiseModel([2] * n_labels, n_features, 0, pairwise, intercept, pairs)


def multilabel_data(X: csr_matrix, n_labels: int, pairs: Ints, Y: ArrayLike | None = None) -> Any:
    """Every row of ``X`` as a graph over the labels.

    Examples
    --------
    >>> data = multilabel_data(csr_matrix([[1.0], [2.0]]), 2, label_pairs(2), [[0, 1], [1, 1]])
    >>> len(data), data.n_nodes, data.labels.tolist()
    (2, 4, [0, 1, 1, 1])
    """
    n = X.shape[0]
    starts = np.arange(n) * n_labels
    edges = (starts[:, None, None] + pairs[None]).reshape(-1, 2)
    return GraphDataset(
        np.arange(n + 1) * n_labels,
        np.arange(n + 1) * len(pairs),
        edges,
        X,
        None,
        np.tile(np.arange(n_labels), n),
        np.repeat(np.arange(n), n_labels),
        None if Y is None else np.asarray(Y, dtype=np.int64).ravel(),
    )
