"""FeatureEncoder: convert dicts, strings, arrays and CSR matrices to a Dataset."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import accumulate, chain
from numbers import Real
from typing import Any

import numpy as np
from numpy.typing import NDArray

from cliquewise.data.attribute_table import AttributeTable, check_counts
from cliquewise.data.dataset import Dataset
from cliquewise.data.frames import frame_rows, is_table
from cliquewise.data.labels import Labels
from cliquewise.data.matrices import check_pointers, check_width, checked_matrix, first_beyond
from cliquewise.data.names import listed_names
from cliquewise.data.raw_features import RawFeatures
from cliquewise.data.token_encoder import KnownAttributes, encode_tokens, learn_tokens
from cliquewise.errors import DataError
from cliquewise.ragged import offsets_of

__all__ = ["FeatureEncoder", "Labels"]

#: Arrays with up to so many numbers (100 MB) are encoded including their zeros.
MANY = 8_000_000

ATTRIBUTES, NUMBERS = "attributes", "numbers"
_KINDS = {
    ATTRIBUTES: "named attributes (dicts or lists of strings)",
    NUMBERS: "numbers (2-D arrays or CSR matrices)",
}


class FeatureEncoder:
    """Turn sequences into a `Dataset`.

    An encoder accepts the kind of sequences that it was fitted on, one of these:

    * named attributes: a list of tokens, each a dict, a list or set of strings, or a list of
      (string, number) pairs; see `cliquewise.data.token_encoder`. A data frame is such
      a list: its rows are dicts of column to value;
    * numbers: a 2-D array or a scipy sparse matrix with one row for each token; or all
      sequences at once as a 3-D array (n, T, d).

    A `Dataset` over the same features is accepted too and passed on without its labels.

    Parameters
    ----------
    n_hash : int, optional
        Number the attributes by hashing into this many features instead of by a vocabulary.
    min_count : int, default=1
        Leave out attributes seen fewer times than this in fitting.

    Attributes
    ----------
    vocabulary : list of str or None
        Names of the features; None with `n_hash` or numbers.
    n_features : int
        Number of features.
    kind : {"attributes", "numbers"} or None
        What it was fitted on.

    Examples
    --------
    >>> encoder = FeatureEncoder()
    >>> data = encoder.fit_transform([[["the"], ["cat", "noun"]], [["noun"]]])
    >>> encoder.vocabulary, data.indices
    (['the', 'cat', 'noun'], array([0, 1, 2, 2], dtype=int32))
    >>> encoder.transform([[{"noun": 0.5, "never seen": 1}]]).values
    array([0.5])
    """

    def __init__(self, n_hash: int | None = None, min_count: int = 1):
        check_counts(n_hash, min_count)
        self.n_hash = n_hash
        self.min_count = min_count
        self.kind: str | None = None
        self.vocabulary: list[str] | None = None
        self.n_features = 0
        self._known: KnownAttributes | None = None

    def fit(self, X: Any) -> FeatureEncoder:
        """Learn the features of `X`."""
        self.fit_transform(X)
        return self

    def fit_transform(self, X: Any) -> Dataset:
        """Learn the features of `X` and encode it, in one pass."""
        self._known, self.vocabulary = None, None
        if isinstance(X, Dataset):
            self.kind, self.n_features = NUMBERS, X.n_features
            return X.with_labels(None)
        X = _as_sequences(X)
        self.kind = _kind(X)
        if self.kind == NUMBERS:
            data = _encode_numbers(X)
        elif self.n_hash is not None:
            data = encode_tokens(*_tokens(X), self._known_attributes()).compact()
        else:
            data, self.vocabulary = learn_tokens(*_tokens(X), self.min_count)
        self.n_features = data.n_features
        return data

    def transform(self, X: Any) -> Dataset:
        """Encode `X` with the features seen in fitting; drop attributes that are new."""
        X = self._checked(X)
        if self.kind == ATTRIBUTES and not isinstance(X, Dataset):
            return encode_tokens(*_tokens(X), self._known_attributes()).compact()
        return self._numbers(X)

    def entries(self, X: Any) -> RawFeatures:
        """:meth:`transform` without putting the attributes in order."""
        X = self._checked(X)
        if self.kind == ATTRIBUTES and not isinstance(X, Dataset):
            return encode_tokens(*_tokens(X), self._known_attributes())
        return _dense_entries(X, self.n_features) or RawFeatures.of(self._numbers(X))

    def _checked(self, X: Any) -> Any:
        """Return the sequences, which must be of the kind that the encoder was fitted on."""
        if self.kind is None:
            raise DataError("this FeatureEncoder is not fitted: call fit or fit_transform first")
        if isinstance(X, Dataset):
            return X
        X = _as_sequences(X)
        kind = _kind(X, default=self.kind)
        if kind != self.kind:
            raise DataError(
                f"the sequences are {_KINDS[kind]}, but fitting saw {_KINDS[self.kind]}; "
                "use the same kind in both"
            )
        return X

    def _numbers(self, X: Any) -> Dataset:
        data = (
            X.with_labels(None) if isinstance(X, Dataset) else _encode_numbers(X, self.n_features)
        )
        self._check_n_features(data.n_features)
        return data

    def _known_attributes(self) -> KnownAttributes:
        if self._known is None:
            self._known = KnownAttributes(AttributeTable(self.vocabulary, self.n_hash or 0))
        return self._known

    def _check_n_features(self, n_features: int) -> None:
        if n_features != self.n_features:
            raise DataError(f"{n_features} features, but fitting saw {self.n_features}")

    def to_state(self) -> dict[str, Any]:
        """Return the fitted encoder as a dict of plain values (JSON can hold it)."""
        names = ("kind", "vocabulary", "n_features", "n_hash", "min_count")
        state = {name: getattr(self, name) for name in names}
        return {**state, "vocabulary": listed_names(self.vocabulary)}

    @classmethod
    def from_state(cls, state: dict[str, Any]) -> FeatureEncoder:
        """Build a fitted encoder from `to_state`'s dict."""
        encoder = cls(state["n_hash"], state["min_count"])
        encoder.kind, encoder.n_features = state["kind"], state["n_features"]
        encoder.vocabulary = state["vocabulary"]
        return encoder

    def __getstate__(self) -> dict[str, Any]:
        return self.to_state()

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__.update(state, _known=None)

    def __repr__(self) -> str:
        fitted = "not fitted" if self.kind is None else f"{self.n_features} features"
        return f"FeatureEncoder(n_hash={self.n_hash}, min_count={self.min_count}): {fitted}"


def _is_matrix(x: Any) -> bool:
    return isinstance(x, np.ndarray) or hasattr(x, "tocsr")


def _as_sequences(X: Any) -> Any:
    """Check the outermost level: a list of sequences, or a 3-D array."""
    if isinstance(X, np.ndarray) and X.dtype.kind not in "OUS":
        if X.ndim != 3:
            raise DataError(
                f"X is an array of shape {X.shape}; give a list of 2-D arrays, one for each "
                "sequence, or one 3-D array (sequences, tokens, features)"
            )
        return X
    if hasattr(X, "tocsr"):
        raise DataError(
            "X is one sparse matrix; give a list of them, one for each sequence, "
            "or Dataset.from_matrix(matrix, offsets)"
        )
    if is_table(X):
        raise DataError(
            "X is one data frame; give a list of them, one for each sequence. From one long table, "
            'cliquewise.data.split_table(X, by="sentence", label="tag") makes X and y'
        )
    if isinstance(X, (str, bytes, dict, set)) or not hasattr(X, "__iter__"):
        raise DataError(f"X must be a list of sequences, not {type(X).__name__}")
    sequences = X if isinstance(X, (list, tuple)) else list(X)
    if all(type(x) is list for x in sequences):
        return sequences
    return [_plain_sequence(x) for x in sequences]


def _plain_sequence(x: Any) -> Any:
    """Convert frames and object arrays to lists of tokens or to numbers."""
    if is_table(x):
        return frame_rows(x)
    if not isinstance(x, np.ndarray):
        return x.tolist() if hasattr(x, "tolist") and getattr(x, "ndim", 0) == 1 else x  # a Series
    if x.dtype.kind == "O" and x.ndim == 2 and all(isinstance(v, Real | np.bool_) for v in x.flat):
        return x.astype(np.float64)
    return x.tolist() if x.dtype.kind in "OUS" else x


def _kind(X: Any, default: str = ATTRIBUTES) -> str:
    if isinstance(X, np.ndarray):
        return NUMBERS
    matrices = [_is_matrix(x) for x in X]
    if not matrices:
        return default
    if any(matrices) and not all(matrices):
        odd = matrices.index(not matrices[0])
        raise DataError(
            f"example {odd} is {_KINDS[NUMBERS if matrices[odd] else ATTRIBUTES]}, the examples "
            f"before it are {_KINDS[NUMBERS if matrices[0] else ATTRIBUTES]}; use one kind"
        )
    return NUMBERS if matrices[0] else ATTRIBUTES


def _tokens(X: Sequence[Any]) -> tuple[list[Any], NDArray[np.int64]]:
    """Return all tokens of all sequences in one list, and the offsets."""
    for i, x in enumerate(X):
        if not isinstance(x, (list, tuple)):
            raise DataError(
                f"example {i}: a sequence is a list of tokens, a 2-D array or a sparse matrix, "
                f"not {type(x).__name__}; one sequence alone is given as [sequence]"
            )
    offsets = np.fromiter(accumulate(map(len, X), initial=0), np.int64, len(X) + 1)
    return list(chain.from_iterable(X)), offsets


def _encode_numbers(X: Any, n_features: int | None = None) -> Dataset:
    if isinstance(X, np.ndarray):
        n, length, width = X.shape
        return Dataset.from_matrix(X.reshape(n * length, width), np.arange(n + 1) * length)
    width = n_features
    for i, x in enumerate(X):
        if x.ndim != 2 or x.dtype.kind not in "fiub":
            raise DataError(
                f"example {i} has shape {x.shape} of {x.dtype}; a sequence of numbers has two "
                "dimensions, tokens and features"
            )
        check_width(x, f"example {i}")
        width = x.shape[1] if width is None else width
        if x.shape[1] != width:
            raise DataError(f"example {i} has {x.shape[1]} features; {width} were expected")
    offsets = offsets_of([x.shape[0] for x in X])
    width = width or 0
    if all(isinstance(x, np.ndarray) for x in X):
        stacked = np.concatenate([np.empty((0, width)), *X])
        return Dataset.from_matrix(stacked, offsets)
    return Dataset.from_matrix(_stack_sparse(X, width), offsets)


def _dense_entries(X: Any, width: int) -> RawFeatures | None:
    """Return all numbers of arrays, including zeros; None for other input or odd values."""
    parts = X if isinstance(X, list) else list(X) if isinstance(X, np.ndarray) else None
    if not parts or not all(
        isinstance(x, np.ndarray) and x.ndim == 2 and x.shape[1] == width and x.dtype.kind in "fiub"
        for x in parts
    ):
        return None
    values = np.concatenate(parts, dtype=np.float64).ravel()
    if len(values) > MANY or first_beyond(values) is not None:
        return None
    n = len(values) // width if width else 0
    indices = np.tile(np.arange(width, dtype=np.int32), n)
    offsets = offsets_of([len(x) for x in parts])
    return RawFeatures(offsets, np.full(n, width), indices, values, width) if width else None


def _stack_sparse(X: Sequence[Any], width: int) -> Any:
    """Stack CSR matrices like scipy's vstack, without its overhead per matrix."""
    from scipy.sparse import csr_matrix

    parts = [
        x if getattr(x, "format", "") == "csr" else csr_matrix(checked_matrix(x, f"example {i}"))
        for i, x in enumerate(X)
    ]
    # Check here what stacking would hide; Dataset checks the rest.
    for i, x in enumerate(parts):
        ends = x.indptr[0], x.indptr[-1], len(x.indptr)
        if ends != (0, len(x.indices), x.shape[0] + 1) or len(x.data) != len(x.indices):
            check_pointers(x, f"example {i}")
    rows = np.array([len(x.indptr) for x in parts])
    steps = np.diff(np.concatenate([x.indptr for x in parts]), prepend=0)
    steps[np.cumsum(rows) - rows] = 0  # from the end of one matrix to the start of the next
    starts = np.delete(np.cumsum(steps), np.cumsum(rows)[:-1])
    indices = np.concatenate([x.indices for x in parts])
    values = np.concatenate([x.data for x in parts]).astype(np.float64, copy=False)
    return csr_matrix((values, indices, starts), shape=(len(starts) - 1, width))
