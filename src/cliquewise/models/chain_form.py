"""The layout of weights and data of linear chains in kernels: packed, padded, in rows or pairs."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from cliquewise.data.dataset import Dataset
from cliquewise.errors import DataError
from cliquewise.models.attributes import augment
from cliquewise.ragged import Floats, Ints, kernel_view, read_only

if TYPE_CHECKING:
    from cliquewise.models.chain import ChainModel

#: Spare numbers at the end of a packed weight vector (see ``_kernels/chain/features.py``).
PADDING = 8


@dataclass(frozen=True, eq=False)
class ChainForm:
    """The layout of a model's weights and data in kernels.

    Where they fit, seen pairs are kept as rows of all labels with some weights fixed at zero: rows
    in whole registers are 3 times faster than lists of pairs.

    Attributes
    ----------
    model : ChainModel
    rows : bool
        Whether the model's seen pairs are kept as rows.
    learn : bool
        Whether such rows come with a mask of their free weights.
    data : Dataset, optional
    """

    model: ChainModel
    rows: bool
    learn: bool = True
    data: Dataset | None = None

    # ---- weights

    @property
    def edge_start(self) -> int:
        """Position of the first transition in a packed vector."""
        model = self.model
        return model.n_attributes * model.n_labels if self.rows else model.n_emissions

    @property
    def token_pair_offset(self) -> int:
        """Position of the first weight of a token pair in a packed vector."""
        return self.edge_start + self.model.n_labels**2

    @property
    def size(self) -> int:
        """Length of a packed vector."""
        return self.edge_start + self.model.dimension - self.model.n_emissions + PADDING

    def zeros(self) -> Floats:
        """Return a packed vector of zeros."""
        return np.zeros(self.size)

    @cached_property
    def _cells(self) -> Ints:
        """Places of the seen pairs in rows of all labels."""
        model = self.model
        attributes = np.repeat(np.arange(model.n_attributes), np.diff(model.pair_start))
        return read_only(attributes * model.n_labels + model.pair_label)

    def pack(self, w: Floats) -> Floats:
        """Return the model's weights as a packed vector."""
        out, n = self.zeros(), self.model.n_emissions
        out[self._cells if self.rows else slice(n)] = w[:n]
        out[self.edge_start : self.size - PADDING] = w[n : self.model.dimension]
        return out

    def unpack(self, w: Floats) -> Floats:
        """Return the weights of a packed vector, as a copy: the inverse of :meth:`pack`."""
        if not self.rows:
            return w[: self.size - PADDING].copy()
        return np.concatenate([w[self._cells], w[self.edge_start : self.size - PADDING]])

    # ---- data

    @cached_property
    def chains(self) -> Any:
        """The kernels' view of the data (labels are -1 where there are none)."""
        from cliquewise._kernels.chain.features import Chains

        assert self.data is not None
        model, data = self.model, augment(self.data, self.model.intercept, self.model.boundaries)
        if data.n_features != model.n_attributes:
            raise DataError(
                f"the data have {data.n_features} features (constant ones included); "
                f"the model has {model.n_attributes}"
            )
        pairs, labels = (model.pair_start, model.pair_label), data.labels
        if self.rows:
            pairs = np.empty(0, dtype=np.int64), np.empty(0, dtype=np.int32)
        return Chains(*_kernel_views(
            data.offsets, data.indptr, data.indices,
            np.empty(0) if data.values is None else data.values,
            np.full(data.n_tokens, -1, dtype=np.int32) if labels is None else labels,
            np.ones(len(data)) if data.weights is None else data.weights,
            model._allowed(data), *pairs, self._row_mask(), self.edge_start, model.edge_free,
            model.edge_allowed, 0.0, self._costs(data),
        ))  # fmt: skip

    def _costs(self, data: Dataset) -> Floats:
        """Return the costs of labels; empty if every wrong label costs 1."""
        n_labels = self.model.n_labels
        if data.costs is None:
            return np.empty((0, n_labels))
        if data.costs.shape[1] != n_labels:
            raise DataError(
                f"the costs are those of {data.costs.shape[1]} labels; the model has {n_labels}"
            )
        return data.costs

    def _row_mask(self) -> NDArray[np.uint64]:
        """Return for each attribute a bit mask of the labels that have a weight."""
        if not (self.rows and self.learn):
            return np.empty(0, dtype=np.uint64)
        mask = np.zeros(self.model.n_attributes, dtype=np.uint64)
        bits = np.uint64(1) << self.model.pair_label.astype(np.uint64)
        np.bitwise_or.at(mask, self._cells // self.model.n_labels, bits)
        return mask

    @cached_property
    def edge_chains(self) -> Any:
        """The kernels' view of the attributes of token pairs (at the later token).

        They are emissions of K^2 "labels", whose weights begin after the transitions.
        """
        from cliquewise._kernels.chain.features import Chains

        model, edges = self.model, None if self.data is None else self.data.edges
        assert edges is not None
        if edges.n_features != model.n_edge_attributes:
            raise DataError(
                f"the pairs have {edges.n_features} attributes; the model has "
                f"{model.n_edge_attributes}"
            )
        square, nothing = model.n_labels**2, np.empty((0, 0), dtype=bool)
        return Chains(*_kernel_views(
            edges.offsets, edges.indptr, edges.indices,
            np.empty(0) if edges.values is None else edges.values,
            np.full(edges.n_tokens, -1, dtype=np.int32), np.ones(len(edges)),
            np.empty((0, square), dtype=bool), np.empty(0, dtype=np.int64),
            np.empty(0, dtype=np.int32), np.empty(0, dtype=np.uint64),
            model.n_edge_attributes * square, nothing, nothing, 0.0,
            np.empty((0, square)),
        ))  # fmt: skip

    # ---- from weights to scores and back

    def potentials(
        self, w: Floats, first: int = 0, last: int | None = None
    ) -> tuple[Floats, Floats]:
        """`ChainModel.potentials` of the examples ``first : last``, from packed weights."""
        from cliquewise._kernels.chain.edges import edge_tables
        from cliquewise._kernels.chain.features import node_scores

        model, data, chains = self.model, self.data, self.chains
        assert data is not None
        last = len(data) if last is None else last
        begin, end = int(data.offsets[first]), int(data.offsets[last])
        nodes = np.empty((end - begin, model.n_labels))
        node_scores(chains, w, begin, end, nodes)
        if len(chains.allowed):
            nodes[~chains.allowed[begin:end]] = -np.inf
        if data.edges is not None:
            links = int(np.maximum(data.lengths[first:last] - 1, 0).sum())
            edges = np.empty((links, model.n_labels, model.n_labels))
            edge_tables(chains, self.edge_chains, w, first, last, edges)
            return nodes, edges
        trans = w[self.edge_start :][: model.n_labels**2].reshape(1, model.n_labels, -1).copy()
        if len(model.edge_allowed):
            trans[0, ~model.edge_allowed] = -np.inf
        return nodes, trans

    def accumulate(self, mu: tuple[Floats, Floats], out: Floats) -> None:
        """`ChainModel.accumulate` into a packed vector."""
        from cliquewise._kernels.chain.features import accumulate_features

        nodes, edges = (np.ascontiguousarray(m, dtype=np.float64) for m in mu)
        assert self.data is not None
        accumulate_features(self.chains, 0, self.data.n_tokens, nodes, out)
        square = self.model.n_labels**2
        trans = out[self.edge_start : self.edge_start + square]
        trans += np.where(self.model.edge_free, edges.sum(axis=0), 0.0).ravel()
        if self.data.edges is not None:
            rows = np.zeros((self.data.n_tokens, square))
            rows[self.data.followers] = edges.reshape(-1, square)
            own = out[self.edge_start + square :]
            accumulate_features(self.edge_chains, 0, self.data.n_tokens, rows, own)


def _kernel_views(*fields: Any) -> list[Any]:
    return [kernel_view(x) if isinstance(x, np.ndarray) else x for x in fields]
