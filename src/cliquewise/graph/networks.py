"""Bayesian networks: conditional probability tables become factors."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from cliquewise.errors import GraphError
from cliquewise.ragged import Floats

#: Rows may miss one by this much, as rounded figures in files do; they are scaled to sum to one.
TOLERANCE = 1e-2

#: Parents and table of a child, or the table of one without parents.
Conditional = tuple[Sequence[str], ArrayLike] | ArrayLike


def factors_of(
    cpts: Mapping[str, Conditional],
) -> tuple[list[int], list[tuple[tuple[int, ...], Floats]]]:
    """Return cardinalities and log tables of a network, each with its parents first."""
    number = {name: v for v, name in enumerate(cpts)}
    split = {name: _split(name, given, number) for name, given in cpts.items()}
    cards = [int(table.shape[-1]) for _, table in split.values()]
    _check_acyclic({name: parents for name, (parents, _) in split.items()})
    factors = []
    for name, (parents, table) in split.items():
        wanted = tuple(cards[number[p]] for p in parents)
        if table.shape[:-1] != wanted:
            raise GraphError(
                f"the table of {name!r} has shape {table.shape}, but its parents "
                f"{list(parents)} have {wanted} states: it needs shape {(*wanted, table.shape[-1])}"
            )
        with np.errstate(divide="ignore"):
            factors.append(((*(number[p] for p in parents), number[name]), np.log(table)))
    return cards, factors


def sums_to_one(factors: Iterable[tuple[Any, Floats]], tables: Floats) -> bool:
    """Return whether all tables are probabilities that sum to one, along an axis or in total.

    Tables of zeros and ones alone are common among log-potentials, and do not count.
    """
    if not tables.size or tables.min() < 0 or tables.max() > 1 or not (tables % 1).any():
        return False
    return all(
        t.ndim > 0
        and (abs(t.sum() - 1.0) < 1e-6
             or any((abs(t.sum(axis=a) - 1.0) < 1e-6).all() for a in (0, -1)))
        for _, t in factors
    )  # fmt: skip


def _split(name: str, given: Any, number: Mapping[str, int]) -> tuple[tuple[str, ...], Floats]:
    """Return the parents and the checked probabilities of one variable."""
    parents: tuple[str, ...] = ()
    if (
        isinstance(given, tuple)
        and len(given) == 2
        and not isinstance(given[0], str)
        and all(isinstance(p, str) for p in given[0])
    ):
        parents, given = tuple(given[0]), given[1]
    try:
        table = np.array(given, dtype=np.float64)
    except (TypeError, ValueError) as error:
        raise GraphError(
            f"the table of {name!r} is no array of numbers; give probabilities, or "
            "(parents, probabilities) with the parents' names"
        ) from error
    for p in parents:
        if p not in number:
            raise GraphError(f"{name!r} has a parent {p!r}, which has no table itself")
    if name in parents or len(set(parents)) < len(parents):
        raise GraphError(f"the parents of {name!r} are {list(parents)}: itself, or one twice")
    if table.ndim != len(parents) + 1 or not table.size:
        raise GraphError(
            f"the table of {name!r} has {table.ndim} axes; it needs one per parent "
            f"({len(parents)}) and a last one for its own states"
        )
    if not np.isfinite(table).all() or (table < 0).any():
        logs = " They look like logarithms: pass their exponentials." if (table <= 0).all() else ""
        raise GraphError(f"the table of {name!r} has entries that are no probabilities.{logs}")
    sums = table.sum(axis=-1, keepdims=True)
    wrong = np.abs(sums[..., 0] - 1.0) > TOLERANCE
    if wrong.any():
        row = tuple(int(x) for x in np.argwhere(wrong)[0])
        place = f"row {row} of the table" if row else "the table"
        raise GraphError(
            f"{place} of {name!r} sums to {float(sums[(*row, 0)]):.6g}, not to one; its last axis "
            "is that of the variable's own states, parents come first"
        )
    return parents, table / sums


def _check_acyclic(parents: Mapping[str, Sequence[str]]) -> None:
    from graphlib import CycleError, TopologicalSorter

    try:
        TopologicalSorter(parents).prepare()
    except CycleError as error:
        shown = " -> ".join(reversed(error.args[1]))
        raise GraphError(f"the parents form a circle: {shown}") from error
