"""Sparse transition tables: the label pairs whose transitions may be nonzero."""

from __future__ import annotations

from typing import Any

import numpy as np

from cliquewise.models.chain import ChainModel
from cliquewise.ragged import Floats, Ints

#: From so many labels on, and with at most this share of nonzero transitions, the exact Viterbi
#: that reads the nonzero ones alone is used.
MANY_LABELS, SPARSE = 200, 0.1


def may_be_sparse(model: ChainModel) -> bool:
    """Whether a Viterbi that reads the nonzero transitions alone may be used at all."""
    return (
        model.n_labels >= MANY_LABELS
        and not len(model.edge_allowed)
        and model.n_edge_attributes == 0
    )


def is_sparse(trans: Floats) -> bool:
    """Return whether few transitions of a (K, K) table are nonzero."""
    return bool(np.count_nonzero(trans) <= SPARSE * trans.size)


def transition_lists(trans: Floats) -> tuple[Any, ...]:
    """A (K, K) table and its nonzero entries by row, as `batch_sparse_viterbi` takes them.

    Examples
    --------
    >>> values, start, count, label, value, top = transition_lists(np.array([[0.0, 2.0], [0, 0]]))
    >>> count.tolist(), label.tolist(), top.tolist()
    ([1, 0], [1], [2.0, -inf])
    """
    rows, label = np.nonzero(trans)
    count = np.bincount(rows, minlength=len(trans))
    value = np.ascontiguousarray(trans[rows, label])
    top = np.full(len(trans), -np.inf, dtype=trans.dtype)
    np.maximum.at(top, rows, value)
    start = np.cumsum(count) - count
    return np.ascontiguousarray(trans).ravel(), start, count, label.astype(np.int32), value, top


def links_of_table(trans: Floats) -> Any:
    """The nonzero transitions of a (K, K) table as ``Links``; None if they are not few."""
    from cliquewise._kernels.chain.sparse import Links

    if not is_sparse(trans):
        return None
    _, start, count, label, value, top = transition_lists(trans)
    return Links(start, count, label, value, top, np.zeros(1, dtype=np.int64))


def links_of_pairs(left: Ints, right: Ints, n_labels: int, like: Floats) -> Any:
    """These pairs as ``Links`` with room for more of every row; None if they are not few.

    Their values are not read yet; they will be numbers as those of ``like``.
    """
    from cliquewise._kernels.chain.sparse import Links

    codes = np.unique(left.astype(np.int64) * n_labels + right)
    if len(codes) > SPARSE * n_labels**2:
        return None
    rows, label = np.divmod(codes, n_labels)
    count = np.bincount(rows, minlength=n_labels)
    room = count + count // 2 + 8
    start = np.concatenate(([0], np.cumsum(room)))
    at = np.arange(len(codes)) + np.repeat(start[:-1] - (np.cumsum(count) - count), count)
    labels = np.zeros(start[-1], dtype=np.int32)
    labels[at] = label
    value, top = np.zeros(start[-1], dtype=like.dtype), np.zeros(n_labels, dtype=like.dtype)
    return Links(start, count, labels, value, top, np.zeros(1, dtype=np.int64))
