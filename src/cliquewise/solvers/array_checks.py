"""Checks of the arrays of a checkpoint, before kernels use them.

A checkpoint may be of another problem, damaged, or altered. Kernels do not check indices, so every
index, size and number is checked here; arrays must also be consistent with each other.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from cliquewise.ragged import Floats, Ints
from cliquewise.solvers.base import Arrays, other_data

#: Tolerance of sums that must be one.
ROUNDING = 1e-9
#: Largest number that is accepted: its square is finite.
MAX_NUMBER = 1e150
#: Largest count that is accepted.
MAX_COUNT = 2**53


def checked(
    arrays: Arrays, name: str, shape: tuple[int | None, ...], dtype: Any = np.float64,
    low: float = -MAX_NUMBER, high: float = MAX_NUMBER,
) -> np.ndarray[Any, Any]:  # fmt: skip
    """Return a copy of a named array after checking its shape (None: any), type and range.

    Examples
    --------
    >>> checked({"w": np.zeros(2)}, "w", (2,))
    array([0., 0.])
    """
    array = arrays.get(name)
    if array is None:
        raise other_data(f"it has no {name!r}")
    fits = array.dtype == dtype and array.ndim == len(shape)
    if not fits or any(want not in (None, have) for want, have in zip(shape, array.shape)):
        raise other_data(f"its arrays have other shapes ({name!r} among them)")
    if array.dtype.kind == "f" and not np.all(np.isfinite(array)):
        raise other_data(f"its {name!r} are not finite")
    # As Python numbers: float32 cannot represent 1e150.
    ordered = bool(array.size) and array.dtype.kind != "b"
    if ordered and (array.min().item() < low or array.max().item() > high):
        raise other_data(f"its {name!r} are not in range")
    return np.array(array)


def count_of(arrays: Arrays, name: str) -> int:
    """Return the single count in an array."""
    return int(checked(arrays, name, (1,), np.int64, 0, MAX_COUNT)[0])


def number_of(arrays: Arrays, name: str) -> float:
    """Return the single positive number in an array."""
    return float(checked(arrays, name, (1,), low=1e-300, high=1e300)[0])


def pack_gaps(gaps: Floats) -> Floats:
    """Return gaps for a checkpoint, with -1 for examples that were not visited."""
    return np.where(np.isfinite(gaps), gaps, -1.0)


def unpack_gaps(arrays: Arrays, like: Floats) -> Floats:
    """Return the gaps of a checkpoint, infinite where examples were not visited."""
    if "gaps" not in arrays:  # older checkpoints have none
        return like
    gaps = checked(arrays, "gaps", like.shape, low=-1.0)
    return np.where(gaps < 0, np.inf, gaps)


def check(possible: object, what: str) -> None:
    """Raise an error if the condition does not hold everywhere."""
    if not np.all(np.asarray(possible)):
        raise other_data(what)


def check_order(order: Ints, n: int) -> None:
    """Check that an order is empty or has every example once."""
    check(len(order) in (0, n), "its order is of other examples")
    check(np.array_equal(np.sort(order), np.arange(len(order))), "its order is of other examples")


def check_offsets(offsets: Ints, end: int) -> None:
    """Check that offsets begin at 0, end at ``end`` and never decrease."""
    rising = len(offsets) > 0 and offsets[0] == 0 and offsets[-1] == end
    check(rising and np.all(np.diff(offsets) >= 0), "its offsets do not fit")


def owners(head: Ints, following: Ints) -> Ints:
    """Return the list of each entry of linked lists, or -1; reject shared entries and cycles."""
    size = len(following)
    owner = np.full(size, -1)
    for links in (head, following):
        check((links >= -1) & (links < size), "its lists point outside")
    at, whose = head, np.arange(len(head))
    while True:
        whose, at = whose[at >= 0], at[at >= 0]
        if not len(at):
            return owner
        check(owner[at] < 0, "its lists meet")
        owner[at] = whose
        check(owner[at] == whose, "its lists meet")
        at = following[at]


def check_sums(values: Floats, counts: Ints, totals: Floats) -> None:
    """Check that runs of ``values`` of these lengths sum to ``totals``."""
    sums = np.bincount(np.repeat(np.arange(len(counts)), counts), values, minlength=len(counts))
    apart = np.abs(sums - totals)
    check(apart <= ROUNDING * np.maximum(totals, 1e-300), "its shares do not sum to what they must")
