"""Items of tokens (pairs of a dict, entries of a list) to numbers, each distinct one rendered once.

Feature functions give the same few items again and again. So an item is looked up as it is, a
tuple whose strings know their hashes; no ``"key:value"`` is built for it, no function called, and
the loop over all items runs inside the interpreter's own C code.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from threading import Lock
from typing import Any

import numpy as np
from numpy.typing import NDArray

#: Distinct items that are kept; with more, all are forgotten (a service runs for months).
LIMIT = 1 << 19

Render = Callable[[Any], tuple["str | None", float]]
Number = Callable[[list[str]], NDArray[np.int32]]


class Items(dict[Any, int]):
    """Codes of items seen so far: places in two arrays, of attribute numbers and of values.

    Parameters
    ----------
    render : callable
        Name and value of one item; None for a name that no attribute has.
    number : callable
        The numbers of a list of names, -1 where one is not known.
    zeros : bool, default=False
        Whether an attribute that is 0 counts as one; whoever only adds up weights needs none.

    Examples
    --------
    >>> items = Items(lambda item: (f"{item[0]}:{item[1]}", 1.0), lambda names: np.arange(2))
    >>> items.encode([("a", "x"), ("b", "y"), ("a", "x")], 3)
    (array([0, 1, 0], dtype=int32), None)
    """

    def __init__(self, render: Render, number: Number, zeros: bool = False):
        super().__init__()
        self._zeros = zeros
        self._render, self._number = render, number
        self._lock = Lock()
        self._forget()

    def _forget(self) -> None:
        self.clear()
        self._ids, self._values = np.full(1024, -1, dtype=np.int32), np.ones(1024)
        self._numbered = 1  # the first code is that of items without a name
        self._ones = True
        self._new: list[tuple[str, float]] = []  # items that have a code, but no number yet
        self._loose: list[tuple[int, float]] = []  # codes and values of numbers in this call

    def __missing__(self, item: Any) -> int:
        """A new code; a number other than 0 and 1 gets one for this call alone, below zero."""
        name, value = self._render(item)
        if name is None or (value == 0.0 and not self._zeros):
            self[item] = 0
            return 0
        if value != 0.0 and value != 1.0:
            self._loose.append((self[item[0], 1.0], value))
            return -len(self._loose)
        self._new.append((name, value))
        code = self[item] = self._numbered + len(self._new) - 1
        return code

    def encode(
        self, items: Iterable[Any], count: int
    ) -> tuple[NDArray[np.int32], NDArray[np.float64] | None]:
        """Numbers and values of all items; None if every value is 1.

        `TypeError` or `DataError` if an item is not one attribute.
        """
        with self._lock:
            if len(self) > LIMIT:
                self._forget()
            self._loose.clear()
            codes = np.fromiter(map(self.__getitem__, items), np.int32, count)
            self._number_new()
            if not self._loose:
                return self._ids.take(codes), None if self._ones else self._values.take(codes)
            at = np.flatnonzero(codes < 0)
            places, values = np.array(self._loose).T[:, -1 - codes[at]]
            codes[at] = places
            out = self._values[codes]
            out[at] = values
            return self._ids[codes], out

    def _number_new(self) -> None:
        if not self._new:
            return
        first, last = self._numbered, self._numbered + len(self._new)
        if last > len(self._ids):
            self._ids = np.resize(self._ids, 2 * last)
            self._values = np.resize(self._values, 2 * last)
        names, values = zip(*self._new)
        self._ids[first:last] = self._number(list(names))
        self._values[first:last] = values
        self._ones = self._ones and min(values) == 1.0
        self._numbered = last
        self._new.clear()
