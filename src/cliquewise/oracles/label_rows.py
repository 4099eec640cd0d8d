"""Exact inference of many rows over one graph of labels, which is compiled once for all of them."""

from __future__ import annotations

from functools import cached_property
from itertools import pairwise
from typing import Any

import numpy as np

from cliquewise.graph.factor_graph import FactorGraph
from cliquewise.graph.structure import Structure
from cliquewise.oracles.registry import get
from cliquewise.ragged import Floats, Ints, offsets_of

#: Entries of a table, at most, for graphs that are called narrow.
NARROW = 512


def is_narrow(n_labels: int, pairs: Ints) -> bool:
    """Whether exact inference on a graph of labels takes small tables only.

    Examples
    --------
    >>> is_narrow(300, np.stack([np.arange(299), np.arange(1, 300)], axis=1))
    True
    >>> is_narrow(300, np.stack(np.triu_indices(300, 1), axis=1))
    False
    """
    # Eliminating a label with at most k neighbors at that time removes at most k pairs.
    if len(pairs) > np.log2(NARROW) * n_labels:
        return False
    return LabelRows(n_labels, pairs).widest <= NARROW


class LabelRows:
    """Labels that are on or off, and pairs of them with tables that all rows share.

    Parameters
    ----------
    n_labels : int
    pairs : int array (n_pairs, 2)

    Examples
    --------
    >>> rows = LabelRows(2, np.array([[0, 1]]))
    >>> tables = np.array([[0.0, 0.0, 0.0, 3.0]])       # of both labels being on
    >>> rows.best(np.array([[-1.0, -1.0], [-2.0, -2.0]]), tables).tolist()
    [[1, 1], [0, 0]]
    """

    def __init__(self, n_labels: int, pairs: Ints):
        self.n_labels, self.pairs = n_labels, np.asarray(pairs, dtype=np.int64).reshape(-1, 2)
        scopes = np.concatenate([np.arange(n_labels), self.pairs.ravel()])
        orders = np.repeat([1, 2], [n_labels, len(self.pairs)])
        self.structure = Structure.from_arrays([2] * n_labels, scopes, offsets_of(orders))
        self._oracle: Any = get("tree" if self.structure.is_forest else "junction-tree")

    @property
    def widest(self) -> float:
        """Entries of the largest table that inference on a row fills."""
        found = self._oracle.best_order(self.structure)
        return float(found.clique_sizes.max(initial=1.0)) if found.is_complete else np.inf

    @cached_property
    def tree(self) -> Any:
        """The elimination tree that the kernels work on."""
        from cliquewise._kernels.label_sets.rows import EliminationTree

        found = self._oracle.best_order(self.structure)
        order, parent = found.order, found.parent
        seps = [found.seps[a:b] for a, b in pairwise(found.sep_offsets)]
        seps = [order[places] for places in seps]
        # Every pair belongs to the bucket of the end that goes first; messages to the parent's.
        owner = found.place[self.pairs].min(axis=1) if len(self.pairs) else np.empty(0, int)
        sources, maps, counts = [], [np.empty(0, dtype=np.int64)], []
        for b, (label, sep) in enumerate(zip(order, seps, strict=True)):
            scope = [int(label), *sep.tolist()]
            own = [(p, self.pairs[p]) for p in np.flatnonzero(owner == b)]
            own += [(-1 - child, seps[child]) for child in np.flatnonzero(parent == b)]
            counts.append(len(own))
            sources += [source for source, _ in own]
            maps += [_places(scope, labels) for _, labels in own]
        widths = np.array([1 << len(sep) for sep in seps], dtype=np.int64)
        return EliminationTree(
            order, offsets_of(2 * widths), offsets_of(widths), offsets_of(np.array(counts)),
            np.array(sources, dtype=np.int64), np.concatenate(maps),
            offsets_of(np.array([len(m) for m in maps[1:]], dtype=np.int64)),
        )  # fmt: skip

    def marginals(
        self, on: Floats, tables: Floats, weights: Floats
    ) -> tuple[Floats, Floats, Floats]:
        """Return log Z and the labels' marginals of every row, and weighted sums of pair marginals.

        Parameters
        ----------
        on : (n, n_labels)
            Scores of being on, relative to being off.
        tables : (n_pairs, 4)
        weights : (n,)
            Weight of each row in the sums.
        """
        from cliquewise._kernels.label_sets.rows import marginal_rows

        log_z, marginals = np.empty(len(on)), np.empty(on.shape)
        sums = np.zeros((len(self.pairs), 4))
        if on.size == 0:
            return log_z, marginals, sums
        top = tables.max(axis=1, keepdims=True)
        marginal_rows(
            self.tree, tables - top, np.ascontiguousarray(on), weights, log_z, marginals, sums
        )
        log_z += top.sum()
        for i in np.flatnonzero(np.isnan(log_z)):  # raises an error that says what is wrong
            found = self._graph(on[i], tables).marginals("junction-tree")
            log_z[i], marginals[i] = found.log_z, found.nodes.flat[1::2]
            sums += weights[i] * found.factors.flat[2 * self.n_labels :].reshape(-1, 4)
        return log_z, marginals, sums

    def _graph(self, on: Floats, tables: Floats) -> FactorGraph:
        unary = np.stack([np.zeros(self.n_labels), on], axis=1)
        flat = np.concatenate([unary.ravel(), np.asarray(tables).ravel()])
        return FactorGraph.from_structure(self.structure, flat)

    def best(self, on: Floats, tables: Floats) -> Ints:
        """The best labels of every row, (n, n_labels)."""
        from cliquewise._kernels.label_sets.rows import best_rows

        s, labels = self.structure, np.zeros(on.shape, dtype=np.int64)
        flat = self._graph(np.zeros(self.n_labels), tables).tables.copy()
        if on.size:
            plan, first = self._oracle.plan(s), s.table_offsets[: self.n_labels]
            best_rows(plan, flat, first, np.ascontiguousarray(on), labels)
        return labels


def _places(scope: list[int], labels: Any) -> Ints:
    """Of every entry of a table over ``scope``: the entry of one over some of its labels."""
    entries = np.arange(1 << len(scope))
    out = np.zeros(len(entries), dtype=np.int64)
    for label in labels:
        out = 2 * out + (entries >> (len(scope) - 1 - scope.index(int(label))) & 1)
    return out
