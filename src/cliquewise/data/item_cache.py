"""ItemCache: numbers of the items of tokens, computed once for each distinct item.

Feature functions return the same few items again and again: ``("word", "the")``, or
``("the", 1.0)``. An item is looked up as a tuple, whose strings cache their hashes. No string
``"key:value"`` is built for it, no Python function is called, and the loop over all items runs in
the C code of the interpreter.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable
from threading import Lock

import numpy as np
from numpy.typing import NDArray

from cliquewise.errors import DataError

#: Number of distinct items (some 100 MB) after which the cache is cleared.
LIMIT = 1 << 19

#: Returns the name and the value of an item; None as name of an item without an attribute.
Render = Callable[[Hashable], tuple["str | None", float]]
#: Returns the numbers of names, -1 for unknown ones.
NumberNames = Callable[[list[str]], NDArray[np.int32]]
#: Numbers of attributes, and their values; None if all values are 1.
Encoded = tuple[NDArray[np.int32], NDArray[np.float64] | None]


class NotOneAttribute(Exception):
    """An item makes no attribute, or several; its token must be flattened."""


class ItemCache(dict[Hashable, int]):
    """Codes of items: positions in two arrays, of attribute numbers and of values.

    Parameters
    ----------
    render : callable
        Name and value of an item. It must not refer to the owner of the cache: such a cycle keeps
        a model in memory until the garbage collector finds it.
    keep_zeros : bool, default=False
        Whether items with the value 0 are attributes; sums of weights do not need them.

    Examples
    --------
    >>> cache = ItemCache(lambda item: (f"{item[0]}:{item[1]}", 1.0))
    >>> cache.encode([("a", "x"), ("b", "y"), ("a", "x")], 3, lambda names: np.arange(2))
    (array([0, 1, 0], dtype=int32), None)
    """

    def __init__(self, render: Render, keep_zeros: bool = False):
        super().__init__()
        self._render = render
        self._keep_zeros = keep_zeros
        self._lock = Lock()
        self._reset()

    def _reset(self) -> None:
        self.clear()
        self._ids, self._values = np.full(1024, -1, dtype=np.int32), np.ones(1024)
        self._size = 1  # code 0 is that of items without an attribute
        self._all_ones = True
        self._new: list[tuple[str, float]] = []  # names and values of codes from _size on
        self._numeric: list[tuple[int, float]] = []  # codes and values of numbers in this call

    def __missing__(self, item: Hashable) -> int:
        """Return a new code; negative for a number other than 0 and 1, for this call only."""
        name, value = self._render(item)
        if name is None or (value == 0.0 and not self._keep_zeros):
            self[item] = 0
            return 0
        if value != 0.0 and value != 1.0:
            self._numeric.append((self[item[0], 1.0], value))  # type: ignore[index]
            return -len(self._numeric)
        self._new.append((name, value))
        code = self[item] = self._size + len(self._new) - 1
        return code

    def encode(self, items: Iterable[Hashable], count: int, number: NumberNames) -> Encoded | None:
        """Return the numbers and values of items; None if an item is not exactly one attribute."""
        with self._lock:
            if len(self) > LIMIT:
                self._reset()
            self._numeric.clear()
            try:
                codes = np.fromiter(map(self.__getitem__, items), np.int32, count)
            except (NotOneAttribute, DataError, TypeError):  # TypeError: not hashable
                return None  # new codes so far stay valid; the next call numbers them
            self._number_new(number)
            if not self._numeric:
                return self._ids.take(codes), None if self._all_ones else self._values.take(codes)
            at = np.flatnonzero(codes < 0)
            places, values = np.array(self._numeric).T[:, -1 - codes[at]]
            codes[at] = places
            out = self._values[codes]
            out[at] = values
            return self._ids[codes], out

    def _number_new(self, number: NumberNames) -> None:
        if not self._new:
            return
        first, last = self._size, self._size + len(self._new)
        if last > len(self._ids):
            self._ids = np.resize(self._ids, 2 * last)
            self._values = np.resize(self._values, 2 * last)
        names, values = zip(*self._new)
        self._ids[first:last] = number(list(names))
        self._values[first:last] = values
        self._all_ones = self._all_ones and min(values) == 1.0
        self._size = last
        self._new.clear()
