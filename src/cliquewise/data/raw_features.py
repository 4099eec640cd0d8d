"""RawFeatures: attributes of tokens before sorting and merging."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from cliquewise.data.dataset import Dataset
from cliquewise.ragged import kernel_view


@dataclass(slots=True)
class RawFeatures:
    """Numbers of attributes, token by token: -1 for unknown attributes; duplicates are kept.

    Sums of weights need no more; :meth:`compact` makes a `Dataset`.

    Attributes
    ----------
    offsets : int64 array (n_examples + 1)
    lengths : int64 array (n_tokens)
        Number of attributes of each token.
    indices : int32 array
    values : float64 array or None
        None means that every value is 1.
    n_features : int

    Examples
    --------
    >>> indices = np.array([2, -1, 2], np.int32)
    >>> data = RawFeatures(np.array([0, 1]), np.array([3]), indices, None, 3).compact()
    >>> data.indices, data.values
    (array([2], dtype=int32), array([2.]))
    """

    offsets: NDArray[np.int64]
    lengths: NDArray[np.int64]
    indices: NDArray[np.int32]
    values: NDArray[np.float64] | None
    n_features: int

    @classmethod
    def of(cls, data: Dataset) -> RawFeatures:
        """Return the features of a dataset, as arrays for kernels."""
        values = None if data.values is None else kernel_view(data.values)
        offsets, indices = kernel_view(data.offsets), kernel_view(data.indices)
        return cls(offsets, np.diff(data.indptr), indices, values, data.n_features)

    def __len__(self) -> int:
        return len(self.offsets) - 1

    def compact(self) -> Dataset:
        """Return a Dataset without unknown attributes, with the values of duplicates added."""
        from cliquewise._kernels.common.attributes import compact

        ids, lengths, values, none = self.indices, self.lengths, self.values, np.empty(0)
        indptr = np.empty(len(lengths) + 1, dtype=np.int64)
        indices = np.empty(len(ids), dtype=np.int32)
        sums = none if values is None else np.empty(len(ids))
        size = 1 << (2 * int(lengths.max(initial=1)) + 1).bit_length()
        args = (ids, lengths, none if values is None else values, indptr, indices)
        n = compact(*args, sums, np.zeros((size, 3), dtype=np.int64))
        if n < 0:
            sums = np.empty(len(ids))
            n = compact(*args, sums, np.zeros((size, 3), dtype=np.int64))
        kept = None if len(sums) == 0 or (sums[:n] == 1.0).all() else sums[:n]
        return Dataset.trusted(self.offsets, indptr, indices[:n], kept, self.n_features)
