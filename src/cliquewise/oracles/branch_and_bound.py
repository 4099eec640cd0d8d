"""Best-first branch and bound with a bound from the caller (Algorithm 13 of casimir)."""

from __future__ import annotations

import heapq
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any

import numpy as np

from cliquewise.errors import BoundError, DataError, InfeasibleError, TooLargeError
from cliquewise.oracles.matching import check_k
from cliquewise.oracles.results import Proved

#: What rounding may add to a bound.
SLACK = 1e-9


@dataclass(frozen=True)
class Found(Proved):
    """An output found by a search, proved optimal if the bound is valid.

    Attributes
    ----------
    output : object
        The set with this output only, as ``split`` made it.
    score : float
    visited : int
        Sets that had been bounded when it was proved best (or k-th best).
    """

    output: Any
    score: float
    visited: int


def branch_and_bound(
    root: Any,
    split: Callable[[Any], Iterable[Any]],
    bound: Callable[[Any], float],
    k: int = 1,
    max_sets: float = 1e6,
) -> list[Found]:
    """Return the k best outputs of a set, best first.

    Parameters
    ----------
    root : object
        The set of all outputs; any object that ``split`` and ``bound`` understand.
    split : callable
        Parts of a set that share nothing and leave nothing out; none for a single output.
    bound : callable
        A number that no output of the set exceeds; of a single output, its score.
    k : int, default=1
        Fewer are returned if there are fewer.
    max_sets : float, default=1e6
        Give up after so many sets.

    Raises
    ------
    BoundError
        If a part has a greater bound than its whole: then the bound is none, and what was
        found might not be best.

    Examples
    --------
    The greatest value of a function over numbers 0..7, by halving ranges:

    >>> values = [3, 1, 4, 1, 5, 9, 2, 6]
    >>> def split(r):
    ...     middle = (r[0] + r[1]) // 2
    ...     return [(r[0], middle), (middle, r[1])] if r[1] - r[0] > 1 else []
    >>> best = branch_and_bound((0, 8), split, lambda r: max(values[r[0]:r[1]]), k=2)
    >>> [(found.output, found.score) for found in best]
    [((5, 6), 9.0), ((7, 8), 6.0)]
    """
    check_k(k)
    if not max_sets >= 1:
        raise DataError(f"max_sets = {max_sets!r}; it must be at least 1")
    found: list[Found] = []
    visited = 1
    # The number breaks ties, so that sets are never compared.
    heap = [(-_number(bound(root), root), 0, root)]
    while heap and len(found) < k:
        negative, _, one = heapq.heappop(heap)
        high = -negative
        if high == -np.inf:
            break
        parts = list(split(one))
        if not parts:
            found.append(Found(one, high, visited))
            continue
        if visited + len(parts) > max_sets:
            raise TooLargeError(
                f"{len(found)} of {k} outputs were found when {visited} sets had been bounded; "
                f"the best is at most {high:.6g}: raise max_sets (= {max_sets:g}), or give a "
                "tighter bound",
                float(len(heap)),
                float(visited),
            )
        for part in parts:
            value = _number(bound(part), part)
            if value > high + SLACK * (1.0 + abs(high)):
                raise BoundError(
                    f"the bound is not a bound: {part!r} has {value:.9g}, but it is a part of "
                    f"{one!r}, which has {high:.9g}"
                )
            visited += 1
            heapq.heappush(heap, (-min(value, high), visited, part))
    if not found:
        raise InfeasibleError("no output has a finite score")
    return found


def _number(value: Any, one: Any) -> float:
    number = float(value)
    if np.isnan(number) or number == np.inf:
        raise BoundError(f"the bound of {one!r} is {number}; it must be a number, or -inf")
    return number
