"""Labels of graph nodes: from lists, arrays, images or masked arrays to one flat array."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from cliquewise.data.graphs import GraphDataset
from cliquewise.errors import DataError, warn_user


def flat_labels(
    y: list[Any], data: GraphDataset, ignore_label: Any = None
) -> tuple[NDArray[Any], NDArray[np.bool_]]:
    """Return the labels of all nodes in one array of objects, and which nodes have a label.

    Parameters
    ----------
    y : list
        One sequence of labels per example, or a 2-D array for an image. A node is unlabeled if
        its label is None, NaN, masked, or equal to ``ignore_label``.
    data : GraphDataset
    ignore_label : optional

    Examples
    --------
    >>> data = GraphDataset.from_examples([([[1.0], [2.0], [3.0]], [(0, 1)])])
    >>> labels, labeled = flat_labels([["a", None, "b"]], data)
    >>> labels.tolist(), labeled.tolist()
    (['a', None, 'b'], [True, False, True])
    """
    try:
        parts = [_listed(labels) for labels in y]
    except TypeError:
        raise DataError("y must be a list of sequences of labels, one per example") from None
    n_labels, n_nodes = [len(part) for part in parts], np.diff(data.node_offsets).tolist()
    if len(parts) != len(data):
        raise DataError(f"{len(parts)} lists of labels for {len(data)} examples")
    for i, (found, expected) in enumerate(zip(n_labels, n_nodes, strict=True)):
        if found != expected:
            raise DataError(f"example {i} has {expected} nodes and {found} labels")
    flat = np.empty(data.n_nodes, dtype=object)
    flat[:] = [label for part in parts for label in part]
    flat[:] = [None if _is_missing(label, ignore_label) else label for label in flat]
    return flat, np.array([label is not None for label in flat], dtype=bool)


def warn_of_negative_labels(classes: list[Any]) -> None:
    """Warn if -1 is one of several classes that are numbers from 0: it often marks no label."""
    numbers = all(isinstance(c, int | np.integer) and not isinstance(c, bool) for c in classes)
    if numbers and -1 in classes and min(classes) == -1 and 0 in classes:
        warn_user(
            "the label -1 is treated as a class; if it marks nodes without a label, set "
            "ignore_label=-1"
        )


def _listed(labels: Any) -> list[Any]:
    """Return the labels of one example as a list, images row by row, masked ones as None."""
    if isinstance(labels, np.ndarray):
        masked = np.ma.getmaskarray(labels).ravel() if np.ma.isMaskedArray(labels) else None
        values = np.asarray(labels).ravel().tolist() if labels.ndim <= 2 else list(labels)
        if masked is None:
            return values
        return [None if m else v for v, m in zip(values, masked.tolist(), strict=True)]
    return list(labels)


def _is_missing(label: Any, ignore_label: Any) -> bool:
    if label is None or (isinstance(label, float | np.floating) and label != label):
        return True
    if ignore_label is None:
        return False
    same = label == ignore_label
    return isinstance(same, bool | np.bool_) and bool(same)
