"""Dataset: ragged examples in flat, read-only arrays, which every model and kernel reads."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from cliquewise.data.matrices import checked_matrix, first_beyond, remedy
from cliquewise.errors import DataError
from cliquewise.ragged import freeze_arrays, gather, integers, offsets_of, owner_of, pointers

if TYPE_CHECKING:
    from scipy.sparse import csr_matrix

UNKNOWN = -1  # the label of a token whose label is not known
#: The largest cost of a label; scores of any size that is of use are far below.
MOST_COST = 1e9


@dataclass(frozen=True, eq=False)
class Dataset:
    """Examples that are sequences of tokens with sparse features.

    All arrays are read-only views; code that changes values works on copies.

    Parameters
    ----------
    offsets : int64 array (n_examples + 1)
        Tokens ``offsets[i]:offsets[i + 1]`` belong to example ``i``; an example may be empty.
    indptr : int64 array (n_tokens + 1)
        Entries ``indptr[t]:indptr[t + 1]`` of `indices` and `values` belong to token ``t``.
    indices : int32 array
        Feature numbers, without repetition inside a token.
    values : float64 array or None
        Feature values; None means that every value is 1.
    n_features : int
        Number of different features.
    labels : int32 array (n_tokens) or None
        Class numbers, -1 where the label is not known.
    allowed : bool array (n_tokens, n_classes) or None
        Labels that a token may take: the one mechanism behind forbidden labels, partial labels
        and clamped tokens. None allows everything.
    weights : float64 array (n_examples) or None
        Weight of each example; None means 1.
    edges : Dataset or None
        Attributes of pairs of neighboring tokens, at the later one, over the same offsets.
    costs : float64 array (n_tokens, n_classes) or None
        What each label costs a token in losses with a margin, 0 where it is true; None means 1
        for every wrong label.
    token_weights : float64 array (n_tokens) or None
        Weight of each token, for losses that are sums over tokens; None means 1.

    Examples
    --------
    >>> data = Dataset([0, 2, 3], [0, 1, 3, 4], [0, 0, 1, 1], None, 2, labels=[0, 1, 1])
    >>> len(data), data.n_tokens
    (2, 3)
    >>> data.subset([1]).labels
    array([1], dtype=int32)
    """

    offsets: NDArray[np.int64]
    indptr: NDArray[np.int64]
    indices: NDArray[np.int32]
    values: NDArray[np.float64] | None
    n_features: int
    labels: NDArray[np.int32] | None = None
    allowed: NDArray[np.bool_] | None = None
    weights: NDArray[np.float64] | None = None
    edges: Dataset | None = None
    costs: NDArray[np.float64] | None = None
    token_weights: NDArray[np.float64] | None = None

    def __post_init__(self) -> None:
        _set(self, "offsets", pointers(self.offsets, "offsets"))
        _set(self, "indptr", pointers(self.indptr, "indptr"))
        _set(self, "indices", integers(self.indices, np.int32, "indices"))
        _set(self, "n_features", int(self.n_features))
        if self.offsets[-1] != self.n_tokens:
            raise DataError(
                f"offsets end at {self.offsets[-1]} but indptr describes {self.n_tokens} tokens; "
                "the last offset must be the number of tokens"
            )
        if self.indptr[-1] != len(self.indices):
            raise DataError(f"indptr ends at {self.indptr[-1]}, indices has {len(self.indices)}")
        self._check_features()
        self._check_labels()
        self._check_weights()
        self._check_costs()
        if self.edges is not None and not np.array_equal(self.edges.offsets, self.offsets):
            raise DataError("edges must have the same offsets as the tokens")
        self.__dict__.update(freeze_arrays(self.__dict__))

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__.update(freeze_arrays(state))

    def _check_features(self) -> None:
        if len(self.indices):
            low, high = int(self.indices.min()), int(self.indices.max())
            if low < 0 or high >= self.n_features:
                wrong = low if low < 0 else high
                at = int(np.flatnonzero(self.indices == wrong)[0])
                raise DataError(
                    f"{self._entry(at)}: feature number {wrong} is not in 0..{self.n_features - 1}"
                )
        if self.values is None:
            return
        _set(self, "values", np.ascontiguousarray(self.values, dtype=np.float64))
        if self.values.shape != self.indices.shape:
            raise DataError(f"{len(self.values)} values for {len(self.indices)} indices")
        beyond = first_beyond(self.values)
        if beyond is not None:
            feature, value = self.indices[beyond], float(self.values[beyond])
            raise DataError(f"{self._entry(beyond)}: feature {feature} is {value}; {remedy(value)}")

    def _check_labels(self) -> None:
        if self.labels is not None:
            _set(self, "labels", integers(self.labels, np.int32, "labels"))
            if self.labels.shape != (self.n_tokens,):
                raise DataError(f"{self.labels.size} labels for {self.n_tokens} tokens")
            if len(self.labels) and self.labels.min() < UNKNOWN:
                token = int(self.labels.argmin())
                raise DataError(f"{self.place(token)}: label number {self.labels[token]} < -1")
        if self.allowed is None:
            return
        _set(self, "allowed", np.ascontiguousarray(self.allowed, dtype=np.bool_))
        if self.allowed.ndim != 2 or len(self.allowed) != self.n_tokens:
            raise DataError(
                f"allowed has shape {self.allowed.shape}; it needs one row for each of the "
                f"{self.n_tokens} tokens"
            )
        some = self.allowed.any(axis=1)
        if not some.all():
            raise DataError(f"{self.place(int(some.argmin()))}: no label is allowed")
        if self.labels is None:
            return
        known = np.flatnonzero(self.labels >= 0)
        fine = self.labels[known] < self.allowed.shape[1]
        fine[fine] = self.allowed[known[fine], self.labels[known[fine]]]
        if not fine.all():
            token = int(known[fine.argmin()])
            raise DataError(
                f"{self.place(token)}: its label {self.labels[token]} is not allowed there"
            )

    def _check_weights(self) -> None:
        by_example = "weights", self.n_examples, "examples"
        for name, count, what in (by_example, ("token_weights", self.n_tokens, "tokens")):
            given = self.weights if name == "weights" else self.token_weights
            if given is None:
                continue
            weights = np.ascontiguousarray(given, dtype=np.float64)
            _set(self, name, weights)
            if weights.shape != (count,):
                raise DataError(f"{weights.size} weights for {count} {what}")
            fine = np.isfinite(weights) & (weights >= 0)
            if not fine.all():
                i = int(fine.argmin())
                place = f"example {i}" if name == "weights" else self.place(i)
                raise DataError(f"{place}: weight {weights[i]}; weights are finite and >= 0")

    def _check_costs(self) -> None:
        if self.costs is None:
            return
        _set(self, "costs", np.ascontiguousarray(self.costs, dtype=np.float64))
        if self.labels is None or (self.labels < 0).any():
            raise DataError("costs are those of wrong labels: every label must be known")
        if self.costs.ndim != 2 or len(self.costs) != self.n_tokens:
            raise DataError(
                f"costs have shape {self.costs.shape}; they need one row for each of the "
                f"{self.n_tokens} tokens"
            )
        fine = (self.costs >= 0).all(axis=1) & (self.costs <= MOST_COST).all(axis=1)
        if not fine.all():
            raise DataError(
                f"{self.place(int(fine.argmin()))}: its costs {self.costs[fine.argmin()]} are not "
                f"all between 0 and {MOST_COST:g}"
            )
        fine = self.labels < self.costs.shape[1]
        fine[fine] = self.costs[np.flatnonzero(fine), self.labels[fine]] == 0
        if not fine.all():
            raise DataError(f"{self.place(int(fine.argmin()))}: its true label must cost nothing")

    @classmethod
    def from_matrix(cls, matrix: Any, offsets: ArrayLike, **fields: Any) -> Dataset:
        """Take the rows of a sparse or dense matrix as tokens.

        Parameters
        ----------
        matrix : scipy sparse matrix or 2-D array (n_tokens, n_features)
            One row for each token; repeated entries of a sparse matrix are added up.
        offsets : array of int (n_examples + 1)
            Where each example begins.
        **fields
            `labels`, `allowed`, `weights`, `costs`.

        Examples
        --------
        >>> import numpy as np
        >>> Dataset.from_matrix(np.eye(3), [0, 3]).indices
        array([0, 1, 2], dtype=int32)
        """
        from scipy.sparse import csr_matrix

        ends = pointers(offsets, "offsets")
        csr = csr_matrix(checked_matrix(matrix, "X", lambda row: token_place(ends, row)))
        values = None if (csr.data == 1.0).all() else csr.data
        return cls(ends, csr.indptr.astype(np.int64), csr.indices, values, csr.shape[1], **fields)

    @classmethod
    def trusted(cls, *fields: Any) -> Dataset:
        """The same from arrays of the right types that need no check: kernels made them.

        Fields are those of the constructor, in order; the last ones may be left out.
        """
        data = object.__new__(cls)
        data.__dict__.update(freeze_arrays(dict(zip(_FIELDS, fields, strict=False))))
        return data

    @property
    def n_examples(self) -> int:
        """Number of examples."""
        return len(self.offsets) - 1

    @property
    def n_tokens(self) -> int:
        """Number of tokens of all examples."""
        return len(self.indptr) - 1

    @property
    def lengths(self) -> NDArray[np.int64]:
        """Number of tokens of each example."""
        return np.diff(self.offsets)

    @property
    def followers(self) -> NDArray[np.int64]:
        """Positions of the tokens that have one before them in their example."""
        follows = np.ones(self.n_tokens, dtype=bool)
        follows[self.offsets[:-1][self.lengths > 0]] = False
        return np.flatnonzero(follows)

    def __len__(self) -> int:
        return self.n_examples

    def __repr__(self) -> str:
        return (
            f"Dataset({self.n_examples} examples, {self.n_tokens} tokens, "
            f"{self.n_features} features, {len(self.indices)} entries)"
        )

    def place(self, token: int) -> str:
        """Name a token for a message, such as ``"example 3, token 0"``."""
        return token_place(self.offsets, token)

    def _entry(self, at: int) -> str:
        return self.place(owner_of(self.indptr, at)[0])

    @property
    def memory_bytes(self) -> int:
        """Bytes of all arrays."""
        arrays = (self.offsets, self.indptr, self.indices, self.values)
        more = (self.labels, self.allowed, self.weights, self.costs, self.token_weights)
        return sum(a.nbytes for a in (*arrays, *more) if a is not None)

    def features(self) -> csr_matrix:
        """Return a copy of the features as a scipy CSR matrix (n_tokens, n_features)."""
        from scipy.sparse import csr_matrix

        values = np.ones(len(self.indices)) if self.values is None else self.values
        shape = (self.n_tokens, self.n_features)
        return csr_matrix((values, self.indices, self.indptr), shape=shape, copy=True)

    def with_labels(
        self,
        labels: ArrayLike | None,
        allowed: ArrayLike | None = None,
        weights: ArrayLike | None = None,
        costs: ArrayLike | None = None,
    ) -> Dataset:
        """Return the same features with other labels, allowed labels, weights and costs."""
        fields: dict[str, Any] = {"labels": labels, "allowed": allowed, "weights": weights}
        return replace(self, **fields, costs=costs)  # type: ignore[arg-type]

    def subset(self, indices: ArrayLike) -> Dataset:
        """Return some examples, in the order given (repetition is fine).

        Parameters
        ----------
        indices : array of int, or of bool (n_examples)
            Examples to take.
        """
        chosen = np.asarray(indices)
        if chosen.dtype == np.bool_:
            if chosen.shape != (self.n_examples,):
                raise DataError(f"{chosen.size} flags for {self.n_examples} examples")
            chosen = np.flatnonzero(chosen)
        chosen = chosen.astype(np.int64).ravel()
        if len(chosen) and not (-self.n_examples <= chosen.min() <= chosen.max() < self.n_examples):
            raise DataError(f"subset asks for an example outside 0..{self.n_examples - 1}")
        chosen = np.where(chosen < 0, chosen + self.n_examples, chosen)
        tokens, offsets = gather(self.offsets, chosen)
        entries, indptr = gather(self.indptr, tokens)
        return Dataset(
            offsets,
            indptr,
            self.indices[entries],
            None if self.values is None else self.values[entries],
            self.n_features,
            None if self.labels is None else self.labels[tokens],
            None if self.allowed is None else self.allowed[tokens],
            None if self.weights is None else self.weights[chosen],
            None if self.edges is None else self.edges.subset(chosen),
            None if self.costs is None else self.costs[tokens],
            None if self.token_weights is None else self.token_weights[tokens],
        )

    @staticmethod
    def concat(parts: Sequence[Dataset]) -> Dataset:
        """Put datasets over the same features one after the other.

        Labels must be in all parts or in none; where only some parts have `values`, `allowed`,
        `weights`, `costs` or `token_weights`, the others get their defaults.

        Examples
        --------
        >>> part = Dataset([0, 1], [0, 1], [0], None, 1, labels=[0])
        >>> len(Dataset.concat([part, part]))
        2
        """
        if not parts:
            raise DataError("concat needs at least one dataset")
        if len({part.n_features for part in parts}) > 1:
            raise DataError("the datasets have different numbers of features: use one encoder")
        if len({part.labels is None for part in parts}) > 1:
            raise DataError("some of the datasets have labels and some have none")
        if len({part.allowed.shape[1] for part in parts if part.allowed is not None}) > 1:
            raise DataError("the datasets' `allowed` have different numbers of labels")
        edges = [part.edges for part in parts if part.edges is not None]
        if edges and len(edges) < len(parts):
            raise DataError("some of the datasets have attributes of token pairs, some do not")
        return Dataset(
            offsets_of(np.concatenate([part.lengths for part in parts])),
            offsets_of(np.concatenate([np.diff(part.indptr) for part in parts])),
            np.concatenate([part.indices for part in parts]),
            _concat_or_ones([(part.values, (len(part.indices),)) for part in parts]),
            parts[0].n_features,
            _concat_or_ones([(part.labels, (part.n_tokens,)) for part in parts]),
            _concat_or_ones([(part.allowed, (part.n_tokens,)) for part in parts]),
            _concat_or_ones([(part.weights, (part.n_examples,)) for part in parts]),
            Dataset.concat(edges) if edges else None,
            _concat_costs(parts),
            _concat_or_ones([(part.token_weights, (part.n_tokens,)) for part in parts]),
        )


_FIELDS = tuple(Dataset.__dataclass_fields__)


def token_place(offsets: NDArray[np.int64], token: int) -> str:
    """Name the token with this number over all examples."""
    example, place = owner_of(offsets, token)
    return f"example {example}, token {place}"


def _set(data: Dataset, name: str, value: Any) -> None:
    object.__setattr__(data, name, value)


def _concat_costs(parts: Sequence[Dataset]) -> NDArray[np.float64] | None:
    """Costs of all parts; where they have none, a wrong label costs 1."""
    widths = {part.costs.shape[1] for part in parts if part.costs is not None}
    if not widths:
        return None
    if len(widths) > 1:
        raise DataError("the datasets' `costs` have different numbers of labels")
    return np.concatenate(
        [1.0 - np.eye(*widths)[part.labels] if part.costs is None else part.costs for part in parts]
    )


def _concat_or_ones(parts: list[tuple[Any, tuple[int, ...]]]) -> Any:
    given = next((array for array, _ in parts if array is not None), None)
    if given is None:
        return None
    tail = given.shape[1:]
    return np.concatenate(
        [np.ones(shape + tail, given.dtype) if a is None else a for a, shape in parts]
    )
