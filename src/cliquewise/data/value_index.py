"""Numbers of values in the order in which they first occur."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable
from itertools import count
from typing import Any

import numpy as np
from numpy.typing import NDArray


class ValueIndex(defaultdict[Any, int]):
    """Numbers of values; a new value gets the next number.

    Examples
    --------
    >>> index = ValueIndex()
    >>> index.numbers(["b", "a", "b"]), list(index)
    (array([0, 1, 0], dtype=int32), ['b', 'a'])
    """

    def __init__(self) -> None:
        super().__init__(count().__next__)

    def numbers(self, values: Iterable[Any]) -> NDArray[np.int32]:
        """Return the number of each value."""
        return np.fromiter(map(self.__getitem__, values), np.int32)


def drop_rare(
    ids: NDArray[np.int32],
    names: list[str],
    min_count: int,
    lengths: NDArray[np.int64] | None = None,
) -> tuple[NDArray[np.int32], list[str]]:
    """Drop the names that fewer than `min_count` tokens have; their numbers become -1.

    Parameters
    ----------
    ids : int32 array
        Numbers of names, token by token; -1 for none.
    names : list of str
    min_count : int
    lengths : int64 array, optional
        How many of the numbers belong to each token; needed if a token may repeat a name.

    Examples
    --------
    >>> drop_rare(np.array([0, 1, 1, -1]), ["a", "b"], 2)
    (array([-1,  0,  0, -1], dtype=int32), ['b'])
    """
    if min_count <= 1:
        return ids, names
    counted = ids
    if lengths is not None:
        tokens = np.repeat(np.arange(len(lengths)), lengths)
        counted = ids[np.unique(tokens * (len(names) + 1) + ids, return_index=True)[1]]
    keep = np.bincount(counted[counted >= 0], minlength=len(names)) >= min_count
    new = np.append(np.where(keep, np.cumsum(keep) - 1, -1), -1).astype(np.int32)
    return new[ids], [name for name, is_kept in zip(names, keep.tolist()) if is_kept]
