"""Arrays of a checkpoint, checked before a kernel sees them.

A checkpoint may be of another problem, damaged, or altered. Kernels test no index, so that every
index, size and number is tested here, once; what an array says must also be possible.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from cliquewise.ragged import Floats, Ints
from cliquewise.solvers.base import Arrays, other_data

#: By how much sums that are one, or marginals that are recomputed, may be off.
ROUNDING = 1e-9
#: Greatest number that is believed: its square is finite.
LARGEST = 1e150
#: Greatest count that is believed.
MOST = 2**53


def checked(
    arrays: Arrays, name: str, shape: tuple[int | None, ...], dtype: Any = np.float64,
    low: float = -LARGEST, high: float = LARGEST,
) -> np.ndarray[Any, Any]:  # fmt: skip
    """A copy of a named array, if it has this shape (None: any) and type, and numbers in range.

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
    # As Python's numbers: float32 has no 1e150 to compare with.
    ordered = bool(array.size) and array.dtype.kind != "b"
    if ordered and (array.min().item() < low or array.max().item() > high):
        raise other_data(f"its {name!r} are not in range")
    return np.array(array)


def count_of(arrays: Arrays, name: str) -> int:
    """The one count in an array."""
    return int(checked(arrays, name, (1,), np.int64, 0, MOST)[0])


def number_of(arrays: Arrays, name: str) -> float:
    """The one positive number in an array."""
    return float(checked(arrays, name, (1,), low=1e-300, high=1e300)[0])


def check(possible: Any, what: str) -> None:
    """Refuse arrays of which something that must hold does not."""
    if not np.all(possible):
        raise other_data(what)


def check_order(order: Ints, n: int) -> None:
    """The order of a pass has every example once, or there is none."""
    check(len(order) in (0, n), "its order is of other examples")
    check(np.array_equal(np.sort(order), np.arange(len(order))), "its order is of other examples")


def check_offsets(offsets: Ints, end: int) -> None:
    """Offsets begin at 0, end at ``end`` and never fall."""
    rising = len(offsets) > 0 and offsets[0] == 0 and offsets[-1] == end
    check(rising and np.all(np.diff(offsets) >= 0), "its offsets do not fit")


def owners(head: Ints, following: Ints) -> Ints:
    """Whose list each entry of linked lists is in, -1 for none; refuse lists that meet or turn."""
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
    """Runs of ``values`` of these lengths sum to ``totals``."""
    sums = np.bincount(np.repeat(np.arange(len(counts)), counts), values, minlength=len(counts))
    apart = np.abs(sums - totals)
    check(apart <= ROUNDING * np.maximum(totals, 1e-300), "its shares do not sum to what they must")
