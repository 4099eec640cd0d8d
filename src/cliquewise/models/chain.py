"""Linear chains: emission weights per attribute and label, transitions per label pair.

The weight vector is ``[emissions, transitions]``. An intercept, a begin and an end weight
per label are attributes like any other, present on every, the first and the last token.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from cliquewise.data.dataset import Dataset
from cliquewise.errors import DataError
from cliquewise.graph.factor_graph import FactorGraph
from cliquewise.models.attributes import augment, label_pairs, seen_transitions
from cliquewise.models.chain_form import ChainForm
from cliquewise.ragged import Floats, Ints, freeze_arrays

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

    def __post_init__(self) -> None:
        self.__dict__.update(freeze_arrays(self.__dict__))

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__.update(freeze_arrays(state))

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
        """Build the model for a data set: its weights and its possible transitions.

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
        """Build a model from sizes, (attribute, label) pairs and transitions."""
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
        """Return a view of the (K, K) transition weights."""
        square = self.n_labels**2
        last = w[self.n_emissions : self.n_emissions + square]
        return last.reshape(self.n_labels, self.n_labels)

    def rows(self, w: Floats, attributes: Ints) -> Floats:
        """Return the emission weights (n, K) of some attributes."""
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
        """Return the (attributes, K) emission weights; zero for pairs without a weight."""
        if not len(self.pair_start):
            return w[: self.n_emissions].reshape(self.n_attributes, self.n_labels)
        dense = np.zeros((self.n_attributes, self.n_labels))
        rows = np.repeat(np.arange(self.n_attributes), np.diff(self.pair_start))
        dense[rows, self.pair_label] = w[: self.n_emissions]
        return dense

    def without_zeros(
        self, w: Floats, named: bool = True, named_pairs: bool = True
    ) -> tuple[ChainModel, Floats, Mask, Mask]:
        """Return a model of the nonzero weights, with the same scores.

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
        """Return weights and data in the fastest layout for kernels; see `ChainForm`.

        Forms to predict with (``learn=False``) may be faster than those to learn with.
        """
        cells = self.n_attributes * self.n_labels
        rows = bool(len(self.pair_start)) and cells <= DENSE_CELLS
        # The weights that are not free are told by the bits of one word.
        return ChainForm(self, rows and (self.n_labels <= 64 or not learn), learn, data)

    def potentials(self, w: Floats, data: Dataset) -> tuple[Floats, Floats]:
        """Compute the scores of labels and transitions, -inf for impossible ones.

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
        """Return a mask of the labels allowed at each token; empty if all are."""
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
        """Return example ``i`` as a factor graph."""
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
