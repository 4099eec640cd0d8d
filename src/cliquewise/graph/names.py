"""Names of variables, and what users say they observed, by name or number, certain or not."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from numbers import Integral, Real
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from cliquewise.errors import GraphError
from cliquewise.graph.structure import Structure
from cliquewise.ragged import Floats, Ints

#: A variable by its number or its name, and its state or how likely each of its states is.
Evidence = Mapping[Any, int | ArrayLike]
#: The number of every name; None where variables have none.
Names = dict[str, int] | None


def checked_names(names: Sequence[str] | None, n: int) -> Names:
    """One string per variable, none twice."""
    if names is None:
        return None
    if isinstance(names, str) or not all(isinstance(name, str) for name in names):
        raise GraphError("names of variables are a list of strings")
    if len(names) != n:
        raise GraphError(f"{len(names)} names for {n} variables")
    numbers: dict[str, int] = {}
    for v, name in enumerate(names):
        if numbers.setdefault(name, v) != v:
            raise GraphError(f"variables {numbers[name]} and {v} have the same name, {name!r}")
    return numbers


def variable_number(variable: Any, names: Names, n: int, what: str = "evidence") -> int:
    """The number of a variable that is given by its number or its name.

    Examples
    --------
    >>> variable_number("Rain", {"Sun": 0, "Rain": 1}, 2), variable_number(0, None, 2)
    (1, 0)
    """
    if isinstance(variable, str):
        if names is None:
            raise GraphError(
                f"{what} names variable {variable!r}, but this graph has no names: use the numbers "
                f"0..{n - 1}, or give it some by FactorGraph(..., names=[...]) or with_names"
            )
        if variable not in names:
            shown = ", ".join(list(names)[:10]) + (", ..." if n > 10 else "")
            raise GraphError(f"{what} names variable {variable!r}; the variables are {shown}")
        return names[variable]
    if not isinstance(variable, Integral) or not 0 <= int(variable) < n:
        raise GraphError(f"{what} names variable {variable}, but the variables are 0..{n - 1}")
    return int(variable)


def read_evidence(
    evidence: Evidence, structure: Structure, names: Names, states: Ints
) -> dict[int, Floats]:
    """Enter the observed states into ``states``; return the log-likelihoods of the others."""
    soft: dict[int, Floats] = {}
    for key, value in evidence.items():
        variable = variable_number(key, names, structure.n_variables)
        count = int(structure.cardinalities[variable])
        if not isinstance(value, str) and np.ndim(value) > 0:
            soft[variable] = soft.get(variable, 0.0) + _likelihoods(value, key, count)
            continue
        number = float(value) if isinstance(value, Real | np.bool_) else -1.0
        if not number.is_integer() or not 0 <= number < count:
            raise GraphError(
                f"evidence gives variable {key} state {value!s}, but its states are "
                f"0..{count - 1}; if it is not certain, give the likelihoods of its states"
            )
        state = int(number)
        if states[variable] not in (-1, state):
            raise GraphError(
                f"evidence gives variable {key} two states, {states[variable]} and {state}"
            )
        states[variable] = state
    return soft


def _likelihoods(value: Any, key: Any, count: int) -> Floats:
    """Logarithms of numbers that say how likely the evidence is under each state."""
    try:
        array = np.asarray(value, dtype=np.float64)
    except (TypeError, ValueError):
        array = np.empty(0)
    if array.shape != (count,) or not np.all((array >= 0) & (array < np.inf)) or not array.any():
        raise GraphError(
            f"evidence gives variable {key} {value!r:.60}; its likelihoods are {count} numbers, "
            "one per state, none negative and not all zero"
        )
    with np.errstate(divide="ignore"):
        return np.log(array)


def with_unary_factors(
    structure: Structure, tables: Floats, unary: Mapping[int, Floats]
) -> tuple[Structure, Floats]:
    """The same factors, followed by one for each of some variables."""
    added = np.array(list(unary), dtype=np.int64)
    wider = Structure.from_arrays(
        structure.cardinalities,
        np.concatenate([structure.scopes, added]),
        np.concatenate(
            [structure.scope_offsets, structure.scope_offsets[-1] + np.arange(1, len(added) + 1)]
        ),
    )
    return wider, np.concatenate([tables, *unary.values()])
