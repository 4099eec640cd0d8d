"""Partitions of labeled sequences: encoded on their workers, under one dictionary.

Every partition is encoded once, with its own attribute names. The names of all partitions are
then merged, and each partition receives the merged number of each of its names.
"""

from __future__ import annotations

import copy
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import partial
from itertools import chain
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from cliquewise.data.columns import Columns
from cliquewise.data.conversion import SequenceEncoder
from cliquewise.data.dataset import Dataset
from cliquewise.data.formats.conll import read_conll
from cliquewise.data.labels import Labels
from cliquewise.data.template_encoder import TemplateEncoder
from cliquewise.distributed.partition import Block, Part, Places
from cliquewise.errors import DataError, FormatError
from cliquewise.estimators._inputs import mean_by_example
from cliquewise.models.attributes import augment, label_pairs, seen_transitions
from cliquewise.models.chain import ChainModel
from cliquewise.problems.base import check_weights
from cliquewise.problems.chain import ChainProblem
from cliquewise.ragged import Floats, Ints, gather, offsets_of

Mask = NDArray[np.bool_]


class Names(NamedTuple):
    """The attributes of a partition: names, or numbers that all partitions share."""

    names: list[str] | None
    numbers: Ints
    counts: Ints
    n_features: int


class Found(NamedTuple):
    """Data of a partition from which dictionaries are merged."""

    n_examples: int
    tokens: Names
    pairs: Names | None
    classes: list[Any]
    label_counts: Ints
    state: dict[str, Any]  # of the encoder, without names
    encoder: type[Any]
    n_columns: int | None


@dataclass
class Encoded:
    """A partition encoded with its own names."""

    data: Dataset
    labels: NDArray[np.int32]
    partial: Mask | None  # allowed labels, by the classes of this partition
    unknown: Mask  # whether a label is unknown
    weights: Floats
    found: Found

    def __sizeof__(self) -> int:
        pairs = 0 if self.data.edges is None else self.data.edges.memory_bytes
        mask = 0 if self.partial is None else self.partial.nbytes
        names = sum(map(len, self.found.tokens.names or ())) + 60 * len(self.found.tokens.counts)
        return self.data.memory_bytes + pairs + self.labels.nbytes + mask + names


def encode(encoder: SequenceEncoder, X: Any, y: Any = None, weights: Any = None) -> Encoded:
    """Encode a partition independently; read it first if it is a path."""
    if isinstance(X, str):
        X, y = _read(X)
    encoder = copy.deepcopy(encoder)
    X, y = listed(X), listed(y)
    data = encoder.fit_transform(X)
    labels = Labels.fit(y)
    numbers, mask = labels.encode(y, data.offsets)
    unknown = np.array([value is None for value in chain.from_iterable(y)], dtype=bool)
    c = check_weights(weights, len(data))
    state = encoder.inner.to_state()
    own, edge = state.pop("vocabulary", None), state.pop("edge_vocabulary", None)
    data, tokens = _own_names(data, own)
    pairs = None
    if data.edges is not None:
        edges, pairs = _own_names(data.edges, edge)
        data = replace(data, edges=edges)
    counts = np.bincount(numbers[numbers >= 0], minlength=len(labels))
    found = Found(
        len(data), tokens, pairs, labels.classes, counts, state, type(encoder.inner),
        encoder.n_columns,
    )  # fmt: skip
    return Encoded(data, numbers, mask, unknown, c, found)


def _read(path: str) -> tuple[Columns, list[list[str]]]:
    """Read a column file with the labels in the last column."""
    text = read_conll(path)
    if text.n_columns < 2:
        raise FormatError("a training file needs the label in its last column", path)
    return text.split_labels()


def listed(values: Any) -> Any:
    """Return partitions of bags, which may be iterators, as lists."""
    return values if hasattr(values, "__len__") else list(values)


def _own_names(data: Dataset, names: list[str] | None) -> tuple[Dataset, Names]:
    """Number the attributes that occur in the partition and drop the others."""
    counts = np.bincount(data.indices, minlength=data.n_features)
    used = np.flatnonzero(counts)
    kept = None if names is None else [names[i] for i in used.tolist()]
    number = np.cumsum(counts > 0) - 1
    own = replace(data, indices=number[data.indices], n_features=len(used))
    return own, Names(kept, used, counts[used], data.n_features)


def found(encoded: Encoded) -> Found:
    """Return the data of a partition for merging."""
    return encoded.found


# ---- one dictionary


class Piece(NamedTuple):
    """Merged numbers of the attributes (-1: dropped) and classes of a partition."""

    rows: Ints
    pair_rows: Ints
    classes: Ints


@dataclass
class Dictionary:
    """The merged names of all partitions."""

    encoder: SequenceEncoder
    labels: Labels
    label_counts: Ints
    pieces: list[Piece]

    @property
    def n_pairs(self) -> int:
        """Number of attributes of token pairs."""
        inner = self.encoder.inner
        return inner.n_edge_features if isinstance(inner, TemplateEncoder) else 0


def merge(all_found: Sequence[Found], min_count: int) -> Dictionary:
    """Merge attributes and classes, in the order of the partitions."""
    filled = [f for f in all_found if f.n_examples]
    if not filled:
        raise DataError("X has no examples")
    first = filled[0]
    for f in filled:
        if f.encoder is not first.encoder or f.state.get("kind") != first.state.get("kind"):
            raise DataError(
                "some partitions hold named attributes and some hold numbers; use one kind"
            )
        if f.n_columns != first.n_columns:
            raise DataError(
                f"partitions have {first.n_columns} and {f.n_columns} columns; all need the same"
            )
    names, rows = _merged([f.tokens if f.n_examples else None for f in all_found], min_count)
    pair_names, pair_rows = _merged([f.pairs for f in all_found], min_count)
    state = {**first.state, "min_count": min_count, "vocabulary": names}
    if "n_features" in state:
        state["n_features"] = first.tokens.n_features if names is None else len(names)
    if "template" in state:
        state["edge_vocabulary"] = pair_names if first.pairs is not None else []
    labels = Labels.fit([[c for f in all_found for c in f.classes]])
    if not len(labels):
        raise DataError("y has no labels; training needs at least one labeled token")
    index = {c: i for i, c in enumerate(labels.classes)}
    counts = np.zeros(len(labels), dtype=np.int64)
    pieces = []
    for f, own, own_pairs in zip(all_found, rows, pair_rows, strict=True):
        classes = np.array([index[c] for c in f.classes], dtype=np.int64)
        counts[classes] += f.label_counts
        pieces.append(Piece(own, own_pairs, classes))
    encoder = SequenceEncoder.from_fitted(first.encoder.from_state(state), first.n_columns)
    return Dictionary(encoder, labels, counts, pieces)


def _merged(
    parts: Sequence[Names | None], min_count: int
) -> tuple[list[str] | None, list[Ints]]:  # fmt: skip
    """Merge names; return them and the merged numbers of each partition."""
    given = [p for p in parts if p is not None]
    if not given or given[0].names is None:
        if len({p.n_features for p in given}) > 1:
            sizes = sorted({p.n_features for p in given})
            raise DataError(
                f"partitions have {sizes[0]} and {sizes[-1]} features; all need as many"
            )
        return None, [np.empty(0, np.int64) if p is None else p.numbers for p in parts]
    index: dict[str, int] = {}
    numbers = []
    for part in parts:
        names = [] if part is None else part.names or []
        seen_before = [index.setdefault(name, len(index)) for name in names]
        numbers.append(np.array(seen_before, dtype=np.int64))
    names = list(index)
    if min_count > 1:
        totals = np.zeros(len(names), dtype=np.int64)
        for part, own in zip(parts, numbers, strict=True):
            totals[own] += 0 if part is None else part.counts
        keep = totals >= min_count
        new = np.where(keep, np.cumsum(keep) - 1, -1)
        numbers = [new[own] for own in numbers]
        names = [name for name, kept in zip(names, keep.tolist()) if kept]
    return names, numbers


def piece(dictionary: Dictionary, number: int) -> Piece:
    """Return the merged numbers of one partition."""
    return dictionary.pieces[number]


# ---- one model


class Seen(NamedTuple):
    """Codes of (merged attribute, label) pairs that occur, and transitions that occur."""

    codes: Ints
    transitions: Mask


@dataclass
class Labeled:
    """A partition encoded with the merged dictionary."""

    data: Dataset
    partial: Mask | None
    piece: Piece

    def __sizeof__(self) -> int:
        pairs = 0 if self.data.edges is None else self.data.edges.memory_bytes
        mask = 0 if self.partial is None else self.partial.nbytes
        return self.data.memory_bytes + pairs + mask


def label(encoded: Encoded, own: Piece, n_labels: int, class_weights: Floats | None) -> Labeled:
    """Apply merged label numbers and class weights, and drop rare attributes."""
    data = _without(encoded.data, own.rows >= 0)
    if data.edges is not None:
        data = replace(data, edges=_without(data.edges, own.pair_rows >= 0))
    renumber = np.append(own.classes, -1)
    labels = renumber[encoded.labels].astype(np.int32)
    weights = encoded.weights
    if class_weights is not None:
        per_token = np.where(labels >= 0, class_weights[labels], 1.0)
        weights = weights * mean_by_example(per_token, data.offsets)
    mask = None
    if np.any(labels < 0):
        mask = np.zeros((data.n_tokens, n_labels), dtype=bool)
        if encoded.partial is not None:
            mask[:, own.classes] = encoded.partial
        mask[encoded.unknown] = True
    return Labeled(data.with_labels(labels, None, weights), mask, kept(own))


def _without(data: Dataset, keep: Mask) -> Dataset:
    """Drop attributes and renumber the others."""
    if keep.all():
        return data
    stays = keep[data.indices]
    sizes = np.bincount(
        np.repeat(np.arange(data.n_tokens), np.diff(data.indptr))[stays], minlength=data.n_tokens
    )
    number = np.cumsum(keep) - 1
    return replace(
        data,
        indptr=offsets_of(sizes),
        indices=number[data.indices[stays]],
        values=None if data.values is None else data.values[stays],
        n_features=int(keep.sum()),
    )


def seen(labeled: Labeled, n_features: int, n_labels: int, constants: tuple[bool, bool]) -> Seen:
    """Find the (attribute, label) pairs and transitions of a partition."""
    data = augment(labeled.data, *constants)
    start, labels = label_pairs([data], data.n_features, n_labels, "seen")
    rows = _all_rows(labeled.piece.rows, n_features, sum(constants) + constants[1])
    codes = np.repeat(rows, np.diff(start)) * n_labels + labels
    return Seen(codes, seen_transitions([labeled.data], n_labels))


def _all_rows(rows: Ints, n_features: int, constants: int) -> Ints:
    """Return the rows of a partition's attributes, including constant ones."""
    return np.concatenate([rows, n_features + np.arange(constants)])


class Settings(NamedTuple):
    """Parameters of a tagger that decide which weights exist."""

    feature_pairs: str
    transitions: Any
    forbidden: Any
    intercept: bool
    boundaries: bool

    @property
    def by_transitions(self) -> bool:
        """Whether the weighted transitions depend on the data."""
        return isinstance(self.transitions, str) and self.transitions == "seen"

    @property
    def by_data(self) -> bool:
        """Whether the set of weights depends on the data."""
        return self.feature_pairs == "seen" or self.by_transitions


def model_of(dictionary: Dictionary, all_seen: Sequence[Seen], settings: Settings) -> ChainModel:
    """Create the model of all partitions from the pairs and transitions that occur in them."""
    n_labels = len(dictionary.labels)
    n_attributes = dictionary.encoder.n_features + settings.intercept + 2 * settings.boundaries
    start, labels = np.empty(0, dtype=np.int64), np.empty(0, dtype=np.int32)
    if settings.feature_pairs == "seen":
        codes = np.unique(np.concatenate([s.codes for s in all_seen]))
        start = offsets_of(np.bincount(codes // n_labels, minlength=n_attributes))
        labels = (codes % n_labels).astype(np.int32)
    elif settings.feature_pairs != "all":
        raise DataError(f'feature_pairs is "all" or "seen", not {settings.feature_pairs!r}')
    transitions = None
    if settings.by_transitions:
        transitions = np.any([s.transitions for s in all_seen], axis=0)
    return ChainModel.of_sizes(
        n_labels, n_attributes, dictionary.n_pairs, (start, labels), transitions,
        transitions=settings.transitions, classes=dictionary.labels.classes,
        forbidden=() if settings.forbidden is None else settings.forbidden,
        intercept=settings.intercept, boundaries=settings.boundaries,
    )  # fmt: skip


def placed(model: ChainModel, own: Piece) -> tuple[ChainModel, Places, Ints]:
    """Return the model of a partition's attributes, and the positions of its weights and rows."""
    constants = int(model.intercept) + 2 * int(model.boundaries)
    n, square = model.n_attributes, model.n_labels**2
    rows = _all_rows(own.rows, n - constants, constants)
    if len(model.pair_start):
        cells, start = gather(model.pair_start, rows)
        block, labels = Block(0, model.n_emissions, 1, cells), model.pair_label[cells]
    else:
        start, labels = model.pair_start, model.pair_label
        block = Block(0, n, model.n_labels, rows)
    mine = replace(
        model, n_attributes=len(rows), pair_start=start, pair_label=labels,
        n_edge_attributes=len(own.pair_rows) if model.n_edge_attributes else 0,
    )  # fmt: skip
    tables = Block(model.n_emissions, 1, square, np.zeros(1, dtype=np.int64))
    blocks, along = [block, tables], [rows, np.array([n])]
    if model.n_edge_attributes:
        pairs = Block(
            model.n_emissions + square, model.n_edge_attributes, square, own.pair_rows
        )  # fmt: skip
        blocks, along = [*blocks, pairs], [*along, n + 1 + own.pair_rows]
    return mine, Places(tuple(blocks)), np.concatenate(along)


def assemble(labeled: Labeled, model: ChainModel, *settings: Any) -> Part:
    """Create the problem of a partition; ``settings`` are C, loss, gamma and smoother."""
    mine, places, rows = placed(model, labeled.piece)
    C, loss, gamma, smoother = settings
    build = partial(ChainProblem, mine, labeled.data, C, labeled.partial, 1, loss, gamma, smoother)
    # The problem stores a second copy of the attributes, with the constant ones.
    return Part(build, places, rows, 2 * labeled.__sizeof__() + 8 * len(rows))


def without_examples(model: ChainModel, *settings: Any) -> ChainProblem:
    """The problem that knows the weights and has no examples."""
    nothing = np.zeros(1, dtype=np.int64)
    constants = int(model.intercept) + 2 * int(model.boundaries)
    none = np.empty(0, dtype=np.int32)
    edges = None
    if model.n_edge_attributes:
        edges = Dataset(nothing, nothing, none, None, model.n_edge_attributes)
    data = Dataset(
        nothing, nothing, none, None, model.n_attributes - constants, none, edges=edges
    )  # fmt: skip
    C, loss, gamma, smoother = settings
    return ChainProblem(model, data, C, None, 1, loss, gamma, smoother)


def kept(own: Piece) -> Piece:
    """Without the attributes that are left out."""
    return Piece(own.rows[own.rows >= 0], own.pair_rows[own.pair_rows >= 0], own.classes)


def unlabeled(path: str, model: Any) -> Columns:
    """The columns of a file that a tagger reads; one more, the labels, may follow them."""
    text = read_conll(path)
    return Columns(text.columns[: model.encoder_.n_columns], text.offsets)
