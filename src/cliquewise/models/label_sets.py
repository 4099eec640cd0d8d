"""The multilabel model: a graph over the labels, the same for every row (Finley, Joachims 2008).

Each label is a separate node type with the states off and on; each pair of labels has a table, or
one weight for both labels being on. All nodes of a row share its features, which are stored once.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import ArrayLike
from scipy.sparse import csr_matrix, hstack
from scipy.sparse.csgraph import minimum_spanning_tree

from cliquewise.data.graphs import GraphDataset
from cliquewise.errors import DataError, TooLargeError
from cliquewise.models.pairwise import PairwiseModel
from cliquewise.ragged import Floats, Ints

#: Bytes per edge and per node of a row in training, including the arrays of the solver.
BYTES_PER_EDGE, BYTES_PER_NODE = 330, 160


def label_pairs(n_labels: int, graph: Any = "complete", Y: ArrayLike | None = None) -> Ints:
    """Return the pairs of labels that have a table.

    Parameters
    ----------
    n_labels : int
    graph : {"complete", "none", "tree"}, int or pairs of label numbers
        ``tree``: the spanning tree of largest mutual information between labels (Chow and Liu
        1968), on which exact inference is cheap. A number: that many pairs, those of largest
        mutual information.
    Y : (n, n_labels) of 0 and 1, optional
        Training labels; ``tree`` and a number need them.

    Examples
    --------
    >>> label_pairs(3).tolist()
    [[0, 1], [0, 2], [1, 2]]
    >>> label_pairs(3, [(2, 0)]).tolist()
    [[0, 2]]
    >>> label_pairs(3, 1, [[0, 1, 0], [1, 1, 1], [0, 0, 0], [1, 0, 1]]).tolist()
    [[0, 2]]
    """
    number = isinstance(graph, int | np.integer) and not isinstance(graph, bool)
    if isinstance(graph, str) or number:
        return _named_pairs(n_labels, graph, None if Y is None else np.asarray(Y, dtype=float))
    pairs = np.asarray(graph)
    if pairs.size == 0:
        return np.empty((0, 2), dtype=np.int64)
    if pairs.ndim != 2 or pairs.shape[1] != 2 or pairs.dtype.kind not in "iu":
        raise DataError("label_graph must be pairs of label numbers")
    pairs = np.sort(pairs.astype(np.int64), axis=1)
    if pairs.min() < 0 or pairs.max() >= n_labels or (pairs[:, 0] == pairs[:, 1]).any():
        raise DataError(f"label_graph must join different labels out of 0..{n_labels - 1}")
    ordered = np.unique(pairs, axis=0)  # in the order of "complete", as unpack_weights expects
    if len(ordered) != len(pairs):
        raise DataError("label_graph names a pair twice")
    return np.asarray(ordered)


def _named_pairs(n_labels: int, graph: Any, Y: Any) -> Ints:
    every = np.stack(np.triu_indices(n_labels, 1), axis=1).astype(np.int64)
    if graph == "none":
        return every[:0]
    if graph == "complete":
        return every
    if isinstance(graph, str) and graph != "tree":
        raise DataError(
            'label_graph is "complete", "none", "tree", a number of pairs or a list of pairs, '
            f"not {graph!r}"
        )
    if not isinstance(graph, str) and graph < 0:
        raise DataError(f"label_graph = {graph}; a number of pairs is not negative")
    if Y is None:
        raise DataError(f"label_graph={graph!r} is computed from training labels; none are given")
    strength = mutual_information(Y)
    if graph == "tree":
        # Lengths above zero: a zero is no edge for scipy.
        lengths = np.triu(strength.max(initial=0.0) + 1.0 - strength, 1)
        tree = minimum_spanning_tree(csr_matrix(lengths)).tocoo()
        found = np.stack([tree.row, tree.col], axis=1).astype(np.int64)
        return np.asarray(found[np.lexsort((found[:, 1], found[:, 0]))])
    order = np.argsort(-strength[every[:, 0], every[:, 1]], kind="stable")
    return np.asarray(every[np.sort(order[: int(graph)])])


def mutual_information(Y: Any) -> Any:
    """Return the mutual information of every pair of columns of 0 and 1, in nats.

    Examples
    --------
    >>> mutual_information(np.array([[0.0, 0.0], [1.0, 1.0]])).round(3).tolist()
    [[0.693, 0.693], [0.693, 0.693]]
    """
    n = max(len(Y), 1)
    ones, both = Y.mean(axis=0), Y.T @ Y / n
    total = np.zeros_like(both)
    for a in (0, 1):
        for b in (0, 1):
            # p(a, b), and its value under independence.
            left, right = (ones if a else 1 - ones), (ones if b else 1 - ones)
            joint = both if a and b else ones[None, :] - both if b else ones[:, None] - both
            if not a and not b:
                joint = 1 - ones[:, None] - ones[None, :] + both
            joint = np.maximum(joint, 0.0)
            product = left[:, None] * right[None, :]
            ratio = np.where(joint > 1e-15, joint / np.maximum(product, 1e-300), 1.0)
            total += joint * np.log(ratio)
    return total


def check_size(n_rows: int, n_labels: int, pairs: Ints, max_memory: float) -> None:
    """Raise an error if the label graphs of all rows do not fit into memory.

    Parameters
    ----------
    n_rows, n_labels : int
    pairs : (n_pairs, 2)
    max_memory : float
        In GiB.

    Raises
    ------
    TooLargeError

    Examples
    --------
    >>> check_size(1500, 14, label_pairs(14), 8.0)
    """
    needed = float(n_rows) * row_bytes(n_labels, pairs)
    if needed > max_memory * 2**30:
        raise TooLargeError(
            f"{len(pairs)} pairs of labels for each of {n_rows} rows need about "
            f"{needed / 2**30:.3g} GiB (limit: max_memory = {max_memory:g} GiB); use fewer pairs: "
            'label_graph="tree", or the number of pairs to keep',
            needed,
        )


def row_bytes(n_labels: int, pairs: Ints) -> float:
    """Estimate the bytes that a row takes in training.

    Examples
    --------
    >>> row_bytes(2, label_pairs(2))
    650.0
    """
    return float(BYTES_PER_EDGE * len(pairs) + BYTES_PER_NODE * n_labels)


def multilabel_model(
    n_labels: int, n_features: int, pairs: Ints, intercept: bool = True, pairwise: str = "table"
) -> PairwiseModel:
    """Return the model: features x 2 weights per label, and 2 x 2 (or one) per pair.

    Examples
    --------
    >>> multilabel_model(3, 4, label_pairs(3)).dimension      # 3 x 5 x 2 + 3 x 4
    42
    """
    return PairwiseModel([2] * n_labels, n_features, 0, pairwise, intercept, pairs)


def multilabel_data(X: csr_matrix, n_labels: int, pairs: Ints, Y: ArrayLike | None = None) -> Any:
    """Return every row of ``X`` as a graph over the labels.

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


# ---- all pairs of labels, without listing the pairs of a row


def feature_rows(X: csr_matrix, intercept: bool) -> Any:
    """Return the rows and their squared norms, including the constant feature."""
    from cliquewise._kernels.label_sets.search import Rows

    if intercept:
        X = csr_matrix(hstack([X, np.ones((X.shape[0], 1))], format="csr"))
    norms = np.asarray(X.multiply(X).sum(axis=1), dtype=np.float64).ravel()
    return Rows(
        X.indptr.astype(np.int64), X.indices.astype(np.int64), X.data.astype(np.float64), norms
    )


def unpack_weights(w: Floats, n_labels: int, n_columns: int) -> tuple[Floats, Floats]:
    """Split a weight vector of the pairwise model into U (features, labels) and V (labels, labels).

    The score of a label being on, relative to off, is ``2 x'U``.

    Examples
    --------
    >>> U, V = unpack_weights(np.array([-1.0, 1.0, -2.0, 2.0, 0.5]), 2, 1)
    >>> U.tolist(), V.tolist()
    ([[1.0, 2.0]], [[0.0, 0.5], [0.5, 0.0]])
    """
    size = 2 * n_labels * n_columns
    unary = w[:size].reshape(n_labels, n_columns, 2)
    U = np.ascontiguousarray(0.5 * (unary[:, :, 1] - unary[:, :, 0]).T)
    V = np.zeros((n_labels, n_labels))
    V[np.triu_indices(n_labels, 1)] = w[size:]
    return U, V + V.T


def pack_weights(U: Floats, V: Floats) -> Floats:
    """Return the weight vector of U and V: the inverse of :func:`unpack_weights`.

    The weights of a label being off are minus those of being on.

    Examples
    --------
    >>> pack_weights(np.array([[1.0, 2.0]]), np.array([[0.0, 0.5], [0.5, 0.0]])).tolist()
    [-1.0, 1.0, -2.0, 2.0, 0.5]
    """
    unary = np.stack([-U.T, U.T], axis=2)
    return np.concatenate([unary.ravel(), V[np.triu_indices(len(V), 1)]])
