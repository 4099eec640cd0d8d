"""Kernels of GDMM's searches and lists, one step at a time, for tests."""

from __future__ import annotations

import numpy as np

from cliquewise._kernels import kernel
from cliquewise._kernels.gdmm.nodes import _search_token, part_of
from cliquewise._kernels.gdmm.pairs import add_to_pair, search_all_pairs, search_pairs
from cliquewise._kernels.gdmm.rows import score_all


@kernel
def label_scores(chains, rows, first, last, n_labels, out):
    """Write the scores of some tokens into rows of ``out`` (padded)."""
    for t in range(first, last):
        score_all(chains, rows, t, n_labels, out[t - first])


@kernel
def find_labels(chains, rows, support, token, n_labels, salt, groups, found, scores):
    """Search the labels of one token; return how many are in ``found``."""
    score_all(chains, rows, token, n_labels, scores)
    part = part_of(token, salt, groups, n_labels)
    marks = np.zeros(n_labels, np.int64)
    most = found.shape[0]
    size = _search_token(chains, support, token, part, most, scores[part[0] :], marks, found)
    for r in range(size):
        found[r] += part[0]
    return size


@kernel
def add_to_pairs(table, n_labels, left, right, changes):
    """Make changes one after the other; return how many fit."""
    for k in range(left.shape[0]):
        if not add_to_pair(table, n_labels, left[k], right[k], changes[k]):
            return k
    return left.shape[0]


@kernel
def compare_searches(table, n_labels, labels, s, messages, marks, mask, token, score, out):
    """Do the sparse and the full search: scores into ``out``; return the pairs found."""
    stack = np.empty(256, np.int64)
    a = search_pairs(table, n_labels, labels, s, messages, marks, mask, token, score, stack)
    b = search_all_pairs(table, n_labels, messages, mask, token, score)
    out[0] = a[0]
    out[1] = b[0]
    return a[1], a[2], b[1], b[2]
