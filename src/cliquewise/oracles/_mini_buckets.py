"""Weighted mini-buckets (Liu and Ihler 2011): bounds of log Z with tables of bounded size.

Eliminating a variable exactly needs the product of all tables that hold it. Where that would be
too large, they are dealt into mini-buckets, and each is summed by itself as a power sum,
``w log sum exp(f / w)``. With positive weights that sum to one this is an upper bound (Holder's
inequality); with one weight above one and the others negative, a lower one. Before, the
mini-buckets agree on what each says of the variable, which leaves their product as it is and
makes the bound tighter. Without any split the value is exact.

Some variables may be maximized instead, a power sum with a weight that vanishes: an upper bound of
a marginal MAP, also where they come before variables that are summed out.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from cliquewise._kernels import clock
from cliquewise.graph.factor_graph import FactorGraph
from cliquewise.graph.sizes import EPSILON, largest_finite
from cliquewise.ragged import Floats, Ints


class Function(NamedTuple):
    """A log-table over some variables, in elimination order."""

    scope: tuple[int, ...]
    table: Floats


class Bound(NamedTuple):
    """A bound of log Z, whether it is exact (no bucket was split), and the table entries filled."""

    value: float
    exact: bool
    operations: float


class TooLate(Exception):
    """The time is over before the last variable is eliminated."""


class Remains(NamedTuple):
    """The result of eliminating some variables, and a bound of its rounding error.

    Lower bounds shift large numbers from one mini-bucket to another, and these grow from bucket to
    bucket; upper bounds are averages, and round as sums of log-potentials do.
    """

    functions: list[Function]
    constant: float
    exact: bool
    rounding: float
    operations: float = 0.0


def mini_bucket_bound(
    graph: FactorGraph, order: Ints, max_entries: float, upper: bool, deadline: float
) -> Bound:
    """Eliminate all variables in ``order`` with tables of at most ``max_entries``.

    Tables of the graph that are larger themselves stay as they are.
    """
    left = eliminate(graph, order, len(order), max_entries, upper, deadline)
    return Bound(left.constant - left.rounding, left.exact, left.operations)


def eliminate(
    graph: FactorGraph,
    order: Ints,
    count: int,
    max_entries: float,
    upper: bool,
    deadline: float,
    maximized: NDArray[np.bool_] | None = None,
) -> Remains:
    """Eliminate the first ``count`` variables of ``order``; an upper bound may maximize some."""
    cards = graph.cardinalities
    place = np.empty(len(order), dtype=np.int64)
    place[order] = np.arange(len(order))
    buckets: list[list[Function]] = [[] for _ in order]
    total, exact, sizes, operations = 0.0, True, 0.0, 0.0
    for scope, table in graph.factors:
        axes = sorted(range(len(scope)), key=lambda a: place[scope[a]])
        ordered = tuple(scope[a] for a in axes)
        if not scope:
            total += float(table)
        else:
            buckets[place[ordered[0]]].append(Function(ordered, table.transpose(axes)))
    for at, v in enumerate(order[:count].tolist()):
        if clock.now() > deadline:
            raise TooLate
        is_maximum = maximized is not None and bool(maximized[v])
        if not buckets[at]:
            total += 0.0 if is_maximum else float(np.log(cards[v]))
            continue
        parts = _deal(buckets[at], cards, max_entries)
        buckets[at] = []
        joined = [_joined(part, place, cards) for part in parts]
        operations += sum(float(function.table.size) for function in joined)
        weights = [0.0] * len(joined) if is_maximum else _weights(len(joined), upper)
        if len(joined) > 1:
            exact = False
            joined = _matched(joined, weights)
        if not (upper or exact):
            sizes += _rounded(joined, weights)
        for function, weight in zip(joined, weights, strict=True):
            message = _power_sum(function.table, weight)
            scope = function.scope[1:]
            if scope:
                buckets[place[scope[0]]].append(Function(scope, message))
            else:
                total += float(message)
    left = [f for bucket in buckets[count:] for f in bucket]
    return Remains(left, total, exact, EPSILON * sizes, operations)


def _deal(functions: list[Function], cards: Ints, max_entries: float) -> list[list[Function]]:
    """Partition functions, largest first, each into the first part within the limit."""
    parts: list[list[Function]] = []
    scopes: list[set[int]] = []
    sizes: list[float] = []
    for function in sorted(functions, key=lambda f: -f.table.size):
        for p, scope in enumerate(scopes):
            more = 1.0
            if not scope.issuperset(function.scope):
                if 2.0 * sizes[p] > max_entries:
                    continue  # it is full
                for v in function.scope:
                    more *= 1.0 if v in scope else float(cards[v])
                if sizes[p] * more > max_entries and more > 1.0:
                    continue
            parts[p].append(function)
            scope.update(function.scope)
            sizes[p] *= more
            break
        else:
            parts.append([function])
            scopes.append(set(function.scope))
            sizes.append(float(function.table.size))
    return parts


def _joined(part: list[Function], place: Ints, cards: Ints) -> Function:
    """Return the product of some functions (a sum of logarithms)."""
    if len(part) == 1:
        return part[0]
    scope = sorted({v for f in part for v in f.scope}, key=lambda v: place[v])
    axis = {v: a for a, v in enumerate(scope)}
    total = np.zeros(tuple(int(cards[v]) for v in scope))
    for f in part:
        shape = [1] * len(scope)
        for v in f.scope:
            shape[axis[v]] = int(cards[v])
        total += f.table.reshape(shape)
    return Function(tuple(scope), total)


def _rounded(joined: list[Function], weights: list[float]) -> float:
    """Return the rounding error of one bucket, in units of machine precision."""
    total = 0.0
    for f, w in zip(joined, weights, strict=True):
        total += (8.0 + f.table.shape[0]) * (1.0 + abs(w)) * (1.0 + largest_finite(f.table))
    return total * (1.0 + len(joined))


def _weights(count: int, upper: bool) -> list[float]:
    """Return weights that sum to one: all equal, or one above one and the others negative."""
    if upper or count == 1:
        return [1.0 / count] * count
    return [float(count), *[-1.0] * (count - 1)]


def _power_sum(table: Floats, weight: float, over_first: bool = True) -> Floats:
    """Return ``w log sum exp(f / w)`` over the first axis or all others; the maximum if w = 0."""
    axes = (0,) if over_first else tuple(range(1, table.ndim))
    if weight == 0.0:
        return np.asarray(table.max(axis=axes))
    scaled = table / weight if weight != 1.0 else table
    top = scaled.max(axis=axes, keepdims=True)
    top = np.where(np.isfinite(top), top, 0.0)
    with np.errstate(divide="ignore"):
        value = np.log(np.exp(scaled - top).sum(axis=axes)) + np.squeeze(top, axis=axes)
    return np.asarray(weight * value)


def _matched(joined: list[Function], weights: list[float]) -> list[Function]:
    """Shift the functions so their marginals of the first variable agree."""
    said = np.stack(
        [
            _power_sum(f.table, w, over_first=False) / (w or 1.0)
            for f, w in zip(joined, weights, strict=True)
        ]
    )
    # A state that one of them forbids has probability zero, whatever the others say.
    possible = np.isfinite(said).all(axis=0)
    said = np.where(possible, said, 0.0)
    if not any(weights):  # maxima are matched as they are, with equal shares
        mean, weights = said.mean(axis=0), [1.0] * len(weights)
    else:
        mean = np.asarray(weights) @ said
    shifted = []
    for f, w, own in zip(joined, weights, said, strict=True):
        shift = np.where(possible, w * (mean - own), -np.inf)
        shifted.append(Function(f.scope, f.table + shift.reshape(-1, *[1] * (f.table.ndim - 1))))
    return shifted
