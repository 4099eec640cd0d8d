"""Linear chains: emission weights per attribute and label, transitions per label pair.

The weight vector is ``[emissions, transitions]``. An intercept, a begin and an end weight
per label are attributes like any other, present on every, the first and the last token.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from cliquewise.data.dataset import Dataset
from cliquewise.errors import DataError
from cliquewise.graph.factor_graph import FactorGraph
from cliquewise.models.attributes import augment, label_pairs, seen_transitions
from cliquewise.ragged import Floats, Ints

#: Spare numbers at the end of a packed weight vector (see ``_kernels/chain/features.py``).
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
        data: Dataset | Iterable[Dataset],
        n_labels: int,
        *,
        feature_pairs: str = "all",
        transitions: str | NDArray[Any] = "all",
        forbidden: Sequence[tuple[Any, Any]] = (),
        classes: Sequence[Any] = (),
        intercept: bool = True,
        boundaries: bool = True,
    ) -> ChainModel:
        """The model for a data set: which weights exist and which transitions are possible.

        Parameters
        ----------
        data : Dataset, or an iterable of its parts that can be iterated over again
            With labels, before :meth:`augment`.
        n_labels : int
        feature_pairs : {"all", "seen"}
            Weights for all (attribute, label) pairs, or for those seen in ``data`` only.
        transitions : {"all", "seen", "BIO", "BIOES"} or bool array (K, K)
            ``seen`` gives weights to seen transitions only (others score zero); a scheme or
            an array forbids transitions altogether.
        forbidden : sequence of pairs of classes
            Transitions that are not possible, whatever ``transitions`` says.
        classes : sequence
            Names of the labels, for the schemes.
        intercept, boundaries : bool
        """
        given = [data] if isinstance(data, Dataset) else data
        first = next(iter(given))
        parts = (augment(part, intercept, boundaries) for part in given)
        n_attributes = first.n_features + intercept + 2 * boundaries
        seen = None
        if isinstance(transitions, str) and transitions == "seen":
            seen = seen_transitions(given, n_labels)
        return cls.of_sizes(
            n_labels, n_attributes, 0 if first.edges is None else first.edges.n_features,
            label_pairs(parts, n_attributes, n_labels, feature_pairs), seen,
            transitions=transitions, forbidden=forbidden, classes=classes,
            intercept=intercept, boundaries=boundaries,
        )  # fmt: skip

    @classmethod
    def of_sizes(
        cls,
        n_labels: int,
        n_attributes: int,
        n_edge_attributes: int,
        pairs: tuple[Ints, NDArray[np.int32]],
        seen: Mask | None,
        *,
        transitions: str | NDArray[Any],
        forbidden: Sequence[tuple[Any, Any]],
        classes: Sequence[Any],
        intercept: bool,
        boundaries: bool,
    ) -> ChainModel:
        """The same from what the data show: sizes, (attribute, label) pairs, transitions."""
        from cliquewise.models.label_schemes import scheme_masks

        everything = np.ones(n_labels, dtype=bool)
        free = np.ones((n_labels, n_labels), dtype=bool)
        allowed = np.empty((0, n_labels), dtype=bool)
        begin, end = everything, everything
        if seen is not None:
            free = seen
        elif isinstance(transitions, str):
            if transitions != "all":
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
        if len(forbidden):
            possible = without_transitions(forbidden, classes)
            allowed = possible & allowed if len(allowed) else possible
            free = free & possible
        return cls(
            n_labels, n_attributes, *pairs, np.ascontiguousarray(free),
            np.ascontiguousarray(allowed), begin, end, intercept, boundaries, n_edge_attributes,
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

    def transitions(self, w: Floats) -> Floats:
        """The (K, K) transition weights, a view."""
        square = self.n_labels**2
        last = w[self.n_emissions : self.n_emissions + square]
        return last.reshape(self.n_labels, self.n_labels)

    def rows(self, w: Floats, attributes: Ints) -> Floats:
        """The emission weights of some attributes, (n, K)."""
        k = self.n_labels
        if not len(self.pair_start):
            return w[: self.n_emissions].reshape(-1, k)[attributes]
        begin = self.pair_start[attributes]
        counts = self.pair_start[attributes + 1] - begin
        ends = np.cumsum(counts)
        at = np.repeat(begin - ends + counts, counts) + np.arange(ends[-1] if len(ends) else 0)
        out = np.zeros((len(attributes), k))
        out[np.repeat(np.arange(len(attributes)), counts), self.pair_label[at]] = w[at]
        return out

    def emissions(self, w: Floats) -> Floats:
        """The (attributes, K) emission weights; zero where a pair has none."""
        if not len(self.pair_start):
            return w[: self.n_emissions].reshape(self.n_attributes, self.n_labels)
        dense = np.zeros((self.n_attributes, self.n_labels))
        rows = np.repeat(np.arange(self.n_attributes), np.diff(self.pair_start))
        dense[rows, self.pair_label] = w[: self.n_emissions]
        return dense

    def without_zeros(
        self, w: Floats, named: bool = True, named_pairs: bool = True
    ) -> tuple[ChainModel, Floats, Mask, Mask]:
        """The same scores from fewer weights: those that are not zero.

        Parameters
        ----------
        w : array (dimension,)
        named, named_pairs : bool
            Whether attributes, and those of token pairs, may go if they have no weight left.

        Returns
        -------
        model, w
            Lists of pairs where less than three quarters of the weights are left.
        tokens, pairs : bool arrays
            The attributes that stayed; without those of the intercept and the boundaries.
        """
        k, n, fixed = self.n_labels, self.n_emissions, self.intercept + 2 * self.boundaries
        there = np.flatnonzero(w[:n])
        pairs = w[n + k * k :].reshape(-1, k * k)
        kept_pairs = np.ones(len(pairs), dtype=bool)
        if named_pairs:
            kept_pairs[:] = pairs.any(axis=1)
        if len(there) == n and kept_pairs.all():
            return self, w, np.ones(self.n_attributes - fixed, dtype=bool), kept_pairs
        if len(self.pair_start):
            rows = np.repeat(np.arange(self.n_attributes), np.diff(self.pair_start))[there]
            labels = self.pair_label[there]
        else:
            rows, labels = there // k, (there % k).astype(np.int32)
        kept = np.full(self.n_attributes, not named)
        kept[rows] = True
        kept[self.n_attributes - fixed :] = True
        start, label = self.pair_start, self.pair_label
        if len(start) or len(there) < 0.75 * k * np.count_nonzero(kept):
            own = w[there]
            counts = np.bincount(rows, minlength=self.n_attributes)[kept]
            start, label = np.concatenate([[0], np.cumsum(counts)]), labels
        else:
            own = w[:n].reshape(-1, k)[kept].ravel()
        smaller = replace(
            self, n_attributes=int(np.count_nonzero(kept)), pair_start=start, pair_label=label,
            n_edge_attributes=int(np.count_nonzero(kept_pairs)),
        )  # fmt: skip
        weights = np.concatenate([own, w[n : n + k * k], pairs[kept_pairs].ravel()])
        return smaller, weights, kept[: self.n_attributes - fixed], kept_pairs

    # ---- potentials, and their adjoint

    def form(self, data: Dataset | None = None, *, learn: bool = True) -> ChainForm:
        """Weights and data in the form that suits the kernels best; see `ChainForm`.

        Forms to predict with (``learn=False``) may be faster than those to learn with.
        """
        cells = self.n_attributes * self.n_labels
        rows = bool(len(self.pair_start)) and cells <= DENSE_CELLS
        # The weights that are not free are told by the bits of one word.
        return ChainForm(self, rows and (self.n_labels <= 64 or not learn), learn, data)

    def potentials(self, w: Floats, data: Dataset) -> tuple[Floats, Floats]:
        """Scores of labels and of transitions, -inf where these are not possible.

        Returns
        -------
        nodes : array (tokens, K)
        edges : array (1, K, K), or (edges, K, K) where token pairs have attributes

        Examples
        --------
        >>> data = Dataset([0, 2], [0, 1, 2], [0, 1], None, 2, labels=[0, 1])
        >>> model = ChainModel.build(data, 2, intercept=False, boundaries=False)
        >>> nodes, edges = model.potentials(np.arange(8.0), data)
        >>> nodes.tolist(), edges.tolist()
        ([[0.0, 1.0], [2.0, 3.0]], [[[4.0, 5.0], [6.0, 7.0]]])
        """
        form = self.form(data, learn=False)
        return form.potentials(form.pack(w))

    def accumulate(self, mu: tuple[Floats, Floats], data: Dataset, out: Floats) -> None:
        """Add the features of marginals to ``out``: the adjoint of :meth:`potentials`.

        Parameters
        ----------
        mu : pair of arrays
            Of the shapes that :meth:`potentials` returns; with shared transitions, their sum
            over all edges.
        data : Dataset
        out : array (dimension,)
        """
        form = self.form(data)
        total = form.zeros()
        form.accumulate(mu, total)
        out += form.unpack(total)

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

    def graph(self, w: Floats, data: Dataset, i: int) -> FactorGraph:
        """Example ``i`` as a factor graph (for other methods, and for tests)."""
        nodes, edges = self.potentials(w, data.subset(np.array([i])))
        return FactorGraph.chain(nodes, edges[0] if data.edges is None else edges)


def without_transitions(forbidden: Sequence[tuple[Any, Any]], classes: Sequence[Any]) -> Mask:
    """(K, K) mask of the transitions that are not forbidden.

    Examples
    --------
    >>> without_transitions([("O", "I")], ["B", "I", "O"]).tolist()
    [[True, True, True], [True, True, True], [True, False, True]]
    """
    number = {c: i for i, c in enumerate(classes)}
    possible = np.ones((len(classes), len(classes)), dtype=bool)
    for pair in forbidden:
        if not isinstance(pair, list | tuple | np.ndarray) or len(pair) != 2:
            raise DataError(
                f"forbidden is a list of pairs (label, next label), not of {pair!r:.60}"
            )
        strange = [c for c in pair if c not in number]
        if strange:
            shown = ", ".join(map(repr, classes[:10]))
            raise DataError(f"forbidden names {strange[0]!r}; the labels are {shown}")
        possible[number[pair[0]], number[pair[1]]] = False
    return possible


@dataclass(frozen=True, eq=False)
class ChainForm:
    """A model's weights, and data, as the kernels take them. Nobody else knows the layout.

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
        """Where the transitions begin in a packed vector."""
        model = self.model
        return model.n_attributes * model.n_labels if self.rows else model.n_emissions

    @property
    def pair_start(self) -> int:
        """Where the weights of token pairs begin."""
        return self.edge_start + self.model.n_labels**2

    @property
    def size(self) -> int:
        """Length of a packed vector."""
        return self.edge_start + self.model.dimension - self.model.n_emissions + PADDING

    def zeros(self) -> Floats:
        """A packed vector of zeros."""
        return np.zeros(self.size)

    @cached_property
    def _cells(self) -> Ints:
        """Places of the seen pairs in rows of all labels."""
        model = self.model
        attributes = np.repeat(np.arange(model.n_attributes), np.diff(model.pair_start))
        return attributes * model.n_labels + model.pair_label

    def pack(self, w: Floats) -> Floats:
        """The model's weights, packed."""
        out, n = self.zeros(), self.model.n_emissions
        out[self._cells if self.rows else slice(n)] = w[:n]
        out[self.edge_start : self.size - PADDING] = w[n : self.model.dimension]
        return out

    def unpack(self, w: Floats) -> Floats:
        """Back from :meth:`pack`, as a copy."""
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
        return Chains(
            data.offsets, data.indptr, data.indices,
            np.empty(0) if data.values is None else data.values,
            np.full(data.n_tokens, -1, dtype=np.int32) if labels is None else labels,
            np.ones(len(data)) if data.weights is None else data.weights,
            model._allowed(data), *pairs, self._row_mask(), self.edge_start, model.edge_free,
            model.edge_allowed, 0.0, self._costs(data),
        )  # fmt: skip

    def _costs(self, data: Dataset) -> Floats:
        """What labels cost; empty where every wrong one costs 1."""
        n_labels = self.model.n_labels
        if data.costs is None:
            return np.empty((0, n_labels))
        if data.costs.shape[1] != n_labels:
            raise DataError(
                f"the costs are those of {data.costs.shape[1]} labels; the model has {n_labels}"
            )
        return data.costs

    def _row_mask(self) -> NDArray[np.uint64]:
        """For every attribute, the bits of the labels that it has a weight for."""
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
        return Chains(
            edges.offsets, edges.indptr, edges.indices,
            np.empty(0) if edges.values is None else edges.values,
            np.full(edges.n_tokens, -1, dtype=np.int32), np.ones(len(edges)),
            np.empty((0, square), dtype=bool), np.empty(0, dtype=np.int64),
            np.empty(0, dtype=np.int32), np.empty(0, dtype=np.uint64),
            model.n_edge_attributes * square, nothing, nothing, 0.0,
            np.empty((0, square)),
        )  # fmt: skip

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
