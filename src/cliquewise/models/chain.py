"""Linear chains: emission weights per attribute and label, transitions per label pair.

The weight vector is ``[emissions, transitions]``. An intercept, a begin and an end weight
per label are attributes like any other, present on every, the first and the last token.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from cliquewise.data.dataset import Dataset
from cliquewise.errors import DataError
from cliquewise.graph.factor_graph import FactorGraph, Floats
from cliquewise.graph.structure import Ints

#: Spare numbers at the end of a weight vector (see ``_kernels.chain_features``).
PADDING = 8

#: Most numbers of a weight vector that holds zeros for pairs that were not seen (1 GiB).
DENSE_CELLS = 1 << 27

Mask = NDArray[np.bool_]


@dataclass(frozen=True)
class ChainModel:
    """Scores of label sequences, linear in the weights.

    Attributes
    ----------
    n_labels : int
    n_attributes : int
        Attributes of the data, those of the intercept and the boundaries included.
    pair_start, pair_label : arrays
        Labels with a weight for each attribute; empty if all pairs have one.
    edge_free : bool array (K, K)
        Transitions that carry a weight.
    edge_allowed : bool array (K, K) or (0, K)
        Transitions that are possible; empty if all are.
    begin_allowed, end_allowed : bool array (K,)
        Labels that a sequence may begin and end with.
    intercept, boundaries : bool
    n_edge_attributes : int
        Attributes of token pairs, with one weight per pair of labels each.
    """

    n_labels: int
    n_attributes: int
    pair_start: Ints
    pair_label: NDArray[np.int32]
    edge_free: Mask
    edge_allowed: Mask
    begin_allowed: Mask
    end_allowed: Mask
    intercept: bool = True
    boundaries: bool = True
    n_edge_attributes: int = 0

    @classmethod
    def build(
        cls,
        data: Dataset,
        n_labels: int,
        *,
        feature_pairs: str = "all",
        transitions: str | NDArray[Any] = "all",
        classes: Sequence[Any] = (),
        intercept: bool = True,
        boundaries: bool = True,
    ) -> ChainModel:
        """The model for a data set: which weights exist and which transitions are possible.

        Parameters
        ----------
        data : Dataset
            With labels, before :meth:`augment`.
        n_labels : int
        feature_pairs : {"all", "seen"}
            Weights for all (attribute, label) pairs, or for those seen in ``data`` only.
        transitions : {"all", "seen", "BIO", "BIOES"} or bool array (K, K)
            ``seen`` gives weights to seen transitions only (others score zero); a scheme or
            an array forbids transitions altogether.
        classes : sequence
            Names of the labels, for the schemes.
        intercept, boundaries : bool
        """
        from cliquewise.models.label_schemes import scheme_masks

        data = augment(data, intercept, boundaries)
        everything = np.ones(n_labels, dtype=bool)
        free = np.ones((n_labels, n_labels), dtype=bool)
        allowed = np.empty((0, n_labels), dtype=bool)
        begin, end = everything, everything
        if isinstance(transitions, str):
            if transitions == "seen":
                free = _seen_transitions(data, n_labels)
            elif transitions != "all":
                allowed, begin, end = scheme_masks(transitions, classes)
                free = allowed
        else:
            allowed = np.asarray(transitions, dtype=bool)
            if allowed.shape != (n_labels, n_labels):
                raise DataError(
                    f"the mask of transitions has shape {allowed.shape}; with {n_labels} labels "
                    f"it must be {(n_labels, n_labels)}"
                )
            free = allowed
        start, label = _pairs(data, n_labels, feature_pairs)
        n_edges = 0 if data.edges is None else data.edges.n_features
        return cls(
            n_labels, data.n_features, start, label, np.ascontiguousarray(free),
            np.ascontiguousarray(allowed), begin, end, intercept, boundaries, n_edges,
        )  # fmt: skip

    # ---- the weight vector

    @property
    def n_emissions(self) -> int:
        """Number of (attribute, label) weights."""
        if len(self.pair_start):
            return int(self.pair_start[-1])
        return self.n_attributes * self.n_labels

    @property
    def dimension(self) -> int:
        """Length of the weight vector."""
        return self.n_emissions + self.n_labels**2 * (1 + self.n_edge_attributes)

    def padded(self, w: Floats | None = None) -> Floats:
        """A weight vector with the spare room that the kernels need."""
        out = np.zeros(self.dimension + PADDING)
        if w is not None:
            out[: self.dimension] = w[: self.dimension]
        return out

    def transitions(self, w: Floats) -> Floats:
        """The (K, K) transition weights, a view."""
        square = self.n_labels**2
        last = w[self.n_emissions : self.n_emissions + square]
        return last.reshape(self.n_labels, self.n_labels)

    def emissions(self, w: Floats) -> Floats:
        """The (attributes, K) emission weights; zero where a pair has none."""
        if not len(self.pair_start):
            return w[: self.n_emissions].reshape(self.n_attributes, self.n_labels)
        dense = np.zeros((self.n_attributes, self.n_labels))
        rows = np.repeat(np.arange(self.n_attributes), np.diff(self.pair_start))
        dense[rows, self.pair_label] = w[: self.n_emissions]
        return dense

    # ---- data in the form of the kernels

    @property
    def fits_dense(self) -> bool:
        """Whether seen pairs may be kept as rows of all labels, some of them fixed at zero.

        Rows in whole registers are 3 times faster than lists of pairs.
        """
        cells = self.n_attributes * self.n_labels
        return bool(len(self.pair_start)) and self.n_labels <= 64 and cells <= DENSE_CELLS

    def as_dense(self) -> ChainModel:
        """The same model with one weight per attribute and label."""
        none = np.empty(0, dtype=np.int64), np.empty(0, dtype=np.int32)
        return replace(self, pair_start=none[0], pair_label=none[1])

    def from_dense(self, w: Floats) -> Floats:
        """Pick this model's weights out of a vector of :meth:`as_dense`."""
        rows = np.repeat(np.arange(self.n_attributes), np.diff(self.pair_start))
        cells = self.n_attributes * self.n_labels
        last = w[cells : cells + self.n_labels**2 * (1 + self.n_edge_attributes)]
        return np.concatenate([w[rows * self.n_labels + self.pair_label], last])

    def row_mask(self) -> NDArray[np.uint64]:
        """For every attribute, the bits of the labels that it has a weight for."""
        mask = np.zeros(self.n_attributes, dtype=np.uint64)
        rows = np.repeat(np.arange(self.n_attributes), np.diff(self.pair_start))
        np.bitwise_or.at(mask, rows, np.uint64(1) << self.pair_label.astype(np.uint64))
        return mask

    def chains(self, data: Dataset) -> Any:
        """The kernels' view of a data set (labels are -1 where it has none)."""
        from cliquewise._kernels.chain.features import Chains

        data = augment(data, self.intercept, self.boundaries)
        if data.n_features != self.n_attributes:
            raise DataError(
                f"the data have {data.n_features} features (constant ones included); "
                f"the model has {self.n_attributes}"
            )
        none = np.full(data.n_tokens, -1, dtype=np.int32)
        return Chains(
            data.offsets,
            data.indptr,
            data.indices,
            np.empty(0) if data.values is None else data.values,
            none if data.labels is None else data.labels,
            np.ones(len(data)) if data.weights is None else data.weights,
            self._allowed(data),
            self.pair_start,
            self.pair_label,
            np.empty(0, dtype=np.uint64),
        )

    def edge_chains(self, edges: Dataset) -> Any:
        """The kernels' view of the attributes of token pairs (at the later token)."""
        from cliquewise._kernels.chain.features import Chains

        if edges.n_features != self.n_edge_attributes:
            raise DataError(
                f"the pairs have {edges.n_features} attributes; the model has "
                f"{self.n_edge_attributes}"
            )
        k2, none = self.n_labels**2, np.empty(0, dtype=np.int64)
        return Chains(
            edges.offsets, edges.indptr, edges.indices,
            np.empty(0) if edges.values is None else edges.values,
            np.full(edges.n_tokens, -1, dtype=np.int32), np.ones(len(edges)),
            np.empty((0, k2), dtype=bool), none, np.empty(0, dtype=np.int32),
            np.empty(0, dtype=np.uint64),
        )  # fmt: skip

    def _allowed(self, data: Dataset) -> Mask:
        """One mask of what every token may be; empty if everything is allowed."""
        if data.allowed is None and self.begin_allowed.all() and self.end_allowed.all():
            return np.empty((0, self.n_labels), dtype=bool)
        if data.allowed is None:
            mask = np.ones((data.n_tokens, self.n_labels), dtype=bool)
        else:
            mask = data.allowed.copy()
        filled = np.flatnonzero(data.lengths > 0)
        mask[data.offsets[filled]] &= self.begin_allowed
        mask[data.offsets[filled + 1] - 1] &= self.end_allowed
        return mask

    def shared_transitions(self, w: Floats) -> Floats:
        """(1, K, K) transition scores with -inf for what is not possible."""
        trans = self.transitions(w).copy()
        if len(self.edge_allowed):
            trans[~self.edge_allowed] = -np.inf
        return trans[None]

    def edge_tables(self, w: Floats, data: Dataset, first: int, last: int) -> Floats:
        """(edges, K, K) transition scores of some examples, with their attributes of pairs."""
        from cliquewise._kernels.chain.edges import edge_tables

        assert data.edges is not None
        links = int(np.maximum(data.lengths[first:last] - 1, 0).sum())
        out = np.empty((links, self.n_labels, self.n_labels))
        edge_tables(
            self.edge_chains(data.edges), w, self.n_emissions, self.edge_allowed, self.n_labels,
            first, last, out,
        )  # fmt: skip
        return out

    def node_scores(self, w: Floats, data: Dataset) -> tuple[Floats, Ints]:
        """(tokens, K) scores with -inf for what is not allowed, and the offsets."""
        from cliquewise._kernels.chain.features import node_scores

        chains = self.chains(data)
        scores = np.empty((data.n_tokens, self.n_labels))
        node_scores(chains, self.padded(w), 0, data.n_tokens, self.n_labels, scores)
        if len(chains.allowed):
            scores[~chains.allowed] = -np.inf
        return scores, data.offsets

    def graph(self, w: Floats, data: Dataset, i: int) -> FactorGraph:
        """Example ``i`` as a factor graph (for other methods, and for tests)."""
        one = data.subset(np.array([i]))
        scores, _ = self.node_scores(w, one)
        if one.edges is not None:
            return FactorGraph.chain(scores, self.edge_tables(self.padded(w), one, 0, 1))
        return FactorGraph.chain(scores, self.shared_transitions(w)[0])


def transition_lists(trans: Floats) -> tuple[Any, ...]:
    """A (K, K) table and its nonzero entries by row, as `gdmm_viterbi.sparse_viterbi` takes them.

    Examples
    --------
    >>> values, start, count, label, value, top = transition_lists(np.array([[0.0, 2.0], [0, 0]]))
    >>> count.tolist(), label.tolist(), top.tolist()
    ([1, 0], [1], [2.0, -inf])
    """
    rows, label = np.nonzero(trans)
    count = np.bincount(rows, minlength=len(trans))
    value = np.ascontiguousarray(trans[rows, label])
    top = np.full(len(trans), -np.inf)
    np.maximum.at(top, rows, value)
    start = np.cumsum(count) - count
    return np.ascontiguousarray(trans).ravel(), start, count, label.astype(np.int32), value, top


def augment(data: Dataset, intercept: bool, boundaries: bool) -> Dataset:
    """Add the constant attributes: one on every token, one on the first, one on the last."""
    if not intercept and not boundaries:
        return data
    n = data.n_tokens
    filled = np.flatnonzero(data.lengths > 0)
    first, last = np.zeros(n, dtype=bool), np.zeros(n, dtype=bool)
    first[data.offsets[filled]] = True
    last[data.offsets[filled + 1] - 1] = True
    flags = ([np.ones(n, dtype=bool)] if intercept else []) + ([first, last] if boundaries else [])
    extra = np.sum(flags, axis=0, dtype=np.int64)
    indptr = data.indptr + np.concatenate(([0], np.cumsum(extra)))
    moved = np.repeat(indptr[:-1] - data.indptr[:-1], np.diff(data.indptr))
    indices = np.empty(int(indptr[-1]), dtype=np.int32)
    indices[np.arange(len(data.indices)) + moved] = data.indices
    values = None
    if data.values is not None:
        values = np.ones(len(indices))
        values[np.arange(len(data.indices)) + moved] = data.values
    place = indptr[:-1] + np.diff(data.indptr)
    for number, flag in enumerate(flags):
        indices[place[flag]] = data.n_features + number
        place = place + flag
    return Dataset(
        data.offsets, indptr, indices, values, data.n_features + len(flags),
        data.labels, data.allowed, data.weights, data.edges,
    )  # fmt: skip


def _seen_transitions(data: Dataset, n_labels: int) -> Mask:
    assert data.labels is not None
    seen = np.zeros((n_labels, n_labels), dtype=bool)
    inside = np.ones(data.n_tokens, dtype=bool)
    inside[data.offsets[:-1][data.lengths > 0]] = False
    at = np.flatnonzero(inside)
    before, after = data.labels[at - 1], data.labels[at]
    known = (before >= 0) & (after >= 0)
    seen[before[known], after[known]] = True
    return seen


def _pairs(data: Dataset, n_labels: int, feature_pairs: str) -> tuple[Ints, NDArray[np.int32]]:
    if feature_pairs == "all":
        return np.empty(0, dtype=np.int64), np.empty(0, dtype=np.int32)
    if feature_pairs != "seen":
        raise DataError(f'feature_pairs is "all" or "seen", not {feature_pairs!r}')
    assert data.labels is not None
    label = np.repeat(data.labels, np.diff(data.indptr))
    codes = data.indices.astype(np.int64) * n_labels + label
    codes = codes[label >= 0]
    if data.n_features * n_labels <= 1 << 28:
        present = np.zeros(data.n_features * n_labels, dtype=bool)
        present[codes] = True
        codes = np.flatnonzero(present)
    else:
        codes = np.unique(codes)
    counts = np.bincount(codes // n_labels, minlength=data.n_features)
    start = np.concatenate(([0], np.cumsum(counts))).astype(np.int64)
    return start, (codes % n_labels).astype(np.int32)
