"""Arrays of different sizes kept in one flat array: their offsets, and a list of views."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any, overload

import numpy as np
from numpy.typing import ArrayLike, NDArray

from cliquewise.errors import DataError

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]


class Ragged(Sequence[NDArray[np.float64]]):
    """Read-only sequence of arrays, each a view of one flat array.

    Parameters
    ----------
    flat : ndarray
        All entries, one array after the other.
    offsets : ndarray of int, shape (n + 1,)
        Array ``i`` is ``flat[offsets[i]:offsets[i + 1]]``.
    shape_of : callable, optional
        Gives the shape of array ``i``; one-dimensional without it.

    Examples
    --------
    >>> import numpy as np
    >>> r = Ragged(np.arange(5.0), np.array([0, 2, 5]))
    >>> len(r), r[1]
    (2, array([2., 3., 4.]))
    """

    __slots__ = ("_shape_of", "flat", "offsets")

    def __init__(
        self,
        flat: NDArray[Any],
        offsets: NDArray[np.int64],
        shape_of: Callable[[int], tuple[int, ...]] | None = None,
    ):
        self.flat = flat
        self.offsets = offsets
        self._shape_of = shape_of

    def __len__(self) -> int:
        return len(self.offsets) - 1

    @overload
    def __getitem__(self, index: int) -> NDArray[np.float64]: ...
    @overload
    def __getitem__(self, index: slice) -> list[NDArray[np.float64]]: ...
    def __getitem__(self, index: Any) -> Any:
        if isinstance(index, slice):
            return [self[i] for i in range(*index.indices(len(self)))]
        if isinstance(index, str):
            raise TypeError(
                f"these arrays are numbered, not named: take [graph.variable({index!r})], or "
                f"graph.query({index!r})"
            )
        i = index + len(self) if index < 0 else index
        if not 0 <= i < len(self):
            raise IndexError(f"index {index} is out of range for {len(self)} arrays")
        view = self.flat[self.offsets[i] : self.offsets[i + 1]]
        return view if self._shape_of is None else view.reshape(self._shape_of(i))

    def __iter__(self) -> Iterator[NDArray[np.float64]]:
        return (self[i] for i in range(len(self)))

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> NDArray[Any]:
        """Stack into one array; every array must have the same shape."""
        sizes = np.diff(self.offsets)
        if len(self) == 0 or np.any(sizes != sizes[0]):
            raise ValueError("arrays of different sizes cannot be stacked; iterate instead")
        return np.stack(list(self)).astype(dtype or self.flat.dtype)

    def __repr__(self) -> str:
        shown = ", ".join(np.array2string(a, precision=4, threshold=8) for a in self[:6])
        more = f", ... {len(self) - 6} more" if len(self) > 6 else ""
        return f"[{shown}{more}]"


def read_only(array: NDArray[Any]) -> NDArray[Any]:
    """Return a view that cannot be written to; the array itself stays as it is.

    Examples
    --------
    >>> read_only(np.zeros(2))[0] = 1.0
    Traceback (most recent call last):
    ValueError: assignment destination is read-only
    """
    if not array.flags.writeable:
        return array
    view = array.view()
    view.flags.writeable = False
    return view


def kernel_view(array: NDArray[Any]) -> NDArray[Any]:
    """Return a view of the type that kernels are compiled for: that of a writable array.

    numba has another type for read-only arrays, and would compile every kernel once more. Kernels
    do not write to their data. An array that owns read-only memory is returned as it is.
    """
    if array.flags.writeable:
        return array
    view = array.view()
    try:
        view.flags.writeable = True
    except ValueError:  # a file that is mapped into memory, or an array that its owner protects
        return array
    return view


def freeze_arrays(fields: dict[str, Any]) -> dict[str, Any]:
    """Return the fields of an object with read-only views of its arrays.

    Examples
    --------
    >>> freeze_arrays({"a": np.zeros(1), "n": 3})["a"].flags.writeable
    False
    """
    return {
        name: read_only(value) if isinstance(value, np.ndarray) else value
        for name, value in fields.items()
    }


def offsets_of(sizes: ArrayLike) -> Ints:
    """Return the offsets of consecutive ranges of these sizes, including the last end.

    Examples
    --------
    >>> offsets_of([2, 0, 3])
    array([0, 2, 2, 5])
    """
    sizes = np.asarray(sizes)
    out = np.zeros(len(sizes) + 1, dtype=np.int64)
    np.cumsum(sizes, out=out[1:], dtype=np.int64)
    return out


def integers(array: Any, dtype: type, name: str) -> NDArray[Any]:
    """Return a 1-D array of integers as ``dtype``; ``name`` is its name in errors."""
    array = np.asarray(array)
    if array.ndim != 1 or (array.size and array.dtype.kind not in "iu"):
        raise DataError(f"{name} must be a 1-D array of integers, not {array.dtype}{array.shape}")
    limit = np.iinfo(dtype)
    for extreme in (array.min(), array.max()) if array.size else ():
        if not limit.min <= int(extreme) <= limit.max:
            raise DataError(f"{name} holds {extreme}, outside {limit.min}..{limit.max}")
    return np.ascontiguousarray(array, dtype=dtype)


def pointers(array: Any, name: str) -> Ints:
    """Return checked offsets: integers that start at 0 and never decrease.

    Examples
    --------
    >>> pointers([0, 2, 2], "offsets")
    array([0, 2, 2])
    """
    offsets = integers(array, np.int64, name)
    if len(offsets) == 0 or offsets[0] != 0 or (np.diff(offsets) < 0).any():
        raise DataError(f"{name} must start at 0 and never decrease")
    return offsets


def owner_of(offsets: NDArray[Any], at: int) -> tuple[int, int]:
    """Return the range that holds entry ``at``, and the position in it.

    Examples
    --------
    >>> owner_of(np.array([0, 2, 2, 5]), 3)
    (2, 1)
    """
    i = int(np.searchsorted(offsets, at, side="right")) - 1
    return i, at - int(offsets[i])


def stretches(start: Ints, lengths: Ints) -> Ints:
    """Return the entries of ranges with any starts, one after the other.

    Examples
    --------
    >>> stretches(np.array([5, 0]), np.array([2, 3]))
    array([5, 6, 0, 1, 2])
    """
    ends = np.cumsum(lengths)
    total = int(ends[-1]) if len(ends) else 0
    return np.arange(total) + np.repeat(start - ends + lengths, lengths)


def gather(offsets: Ints, chosen: Ints) -> tuple[Ints, Ints]:
    """Return the entries of the chosen ranges, and the offsets of the result.

    Examples
    --------
    >>> gather(np.array([0, 2, 2, 5]), np.array([2, 0]))
    (array([2, 3, 4, 0, 1]), array([0, 3, 5]))
    """
    lengths = offsets[chosen + 1] - offsets[chosen]
    return stretches(offsets[chosen], lengths), offsets_of(lengths)


def first_best(flat: NDArray[Any], offsets: Ints) -> Ints:
    """Return the position of the first maximum in each range; no range is empty.

    Examples
    --------
    >>> first_best(np.array([1.0, 3.0, 3.0, 2.0]), np.array([0, 3, 4]))
    array([1, 0])
    """
    if len(offsets) == 1:
        return np.empty(0, dtype=np.int64)
    sizes = np.diff(offsets)
    at = np.flatnonzero(flat == np.repeat(np.maximum.reduceat(flat, offsets[:-1]), sizes))
    return at[np.searchsorted(at, offsets[:-1])] - offsets[:-1]
