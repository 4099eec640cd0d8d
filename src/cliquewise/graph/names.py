"""Names of variables and states, and evidence in terms of them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from numbers import Integral, Real
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import ArrayLike

from cliquewise.errors import GraphError
from cliquewise.graph.structure import Structure
from cliquewise.ragged import Floats, Ints

#: A variable by its number or its name, and its state or how likely each of its states is.
Evidence = Mapping[Any, int | str | ArrayLike]
#: The number of every name.
Numbers = dict[str, int]


class Names(NamedTuple):
    """Names of the variables and of their states, both optional."""

    variables: Numbers | None = None
    states: tuple[Numbers, ...] | None = None

    @classmethod
    def of(cls, names: Sequence[str] | None, states: Any, cardinalities: Ints) -> Names:
        """Check names: one string per variable and per state, without duplicates."""
        n = len(cardinalities)
        known = None if names is None else _numbered(names, n, "variables")
        if states is None:
            return cls(known)
        if isinstance(states, Mapping):
            unknown = set(states) - set(known or range(n))
            if unknown:
                raise GraphError(f"states are given for {min(unknown, key=str)!r}, no variable")
            states = [states.get(v, ()) for v in known or range(n)]
        if isinstance(states, str) or len(states) != n:
            raise GraphError(f"states are {n} lists of names, one per variable")
        listed = []
        for v, (given, k) in enumerate(zip(states, cardinalities.tolist(), strict=True)):
            given = given if len(given) else [str(x) for x in range(k)]
            listed.append(_numbered(given, k, f"states of variable {v}"))
        return cls(known, tuple(listed))

    def variable(self, variable: Any, n: int, what: str = "evidence") -> int:
        """Return the number of a variable that is given by its number or its name.

        Examples
        --------
        >>> Names({"Sun": 0, "Rain": 1}).variable("Rain", 2), Names().variable(0, 2)
        (1, 0)
        """
        names = self.variables
        if isinstance(variable, str):
            if names is None:
                raise GraphError(
                    f"{what} names variable {variable!r}, but this graph has no names: use the "
                    f"numbers 0..{n - 1}, or give it some by FactorGraph(..., names=[...]) or "
                    "with_names"
                )
            if variable not in names:
                known = _shown(names)
                raise GraphError(f"{what} names variable {variable!r}; the variables are {known}")
            return names[variable]
        if not isinstance(variable, Integral) or not 0 <= int(variable) < n:
            raise GraphError(f"{what} names variable {variable}, but the variables are 0..{n - 1}")
        return int(variable)

    def state(self, variable: int, key: Any, value: Any, count: int) -> int:
        """Return the number of a state that is given by its number or its name.

        What could be either, the number of one state and the name of another, is refused.
        """
        known = None if self.states is None else self.states[variable]
        if known is not None and not isinstance(value, str):
            value = _said(value, known, key)
        if isinstance(value, str) and known is not None:
            if value not in known:
                raise GraphError(
                    f"evidence gives variable {key} state {value!r}; they are {_shown(known)}"
                )
            return known[value]
        number = float(value) if isinstance(value, Real | np.bool_) else -1.0
        if not number.is_integer() or not 0 <= number < count:
            raise GraphError(
                f"evidence gives variable {key} state {value!s}, but its states are "
                f"0..{count - 1}; if it is not certain, give the likelihoods of its states"
            )
        return int(number)


def _said(value: Any, known: Numbers, key: Any) -> Any:
    """Return a truth value as the name of a state; reject ambiguous numbers."""
    if isinstance(value, bool | np.bool_) and list(known) != ["0", "1"]:
        return next((name for name in known if name.lower() == str(value).lower()), str(value))
    if isinstance(value, Integral) and known.get(str(value), value) != value:
        raise GraphError(
            f"evidence gives variable {key} state {value}, which is the number of one state and "
            f"the name of another: for the one named so give {str(value)!r}"
        )
    return value


def _numbered(names: Sequence[str], n: int, what: str) -> Numbers:
    if isinstance(names, str) or not all(isinstance(name, str) for name in names):
        raise GraphError(f"names of {what} are a list of strings")
    if len(names) != n:
        raise GraphError(f"{len(names)} names for {n} {what}")
    numbers: Numbers = {}
    for v, name in enumerate(names):
        if numbers.setdefault(name, v) != v:
            raise GraphError(f"{what} {numbers[name]} and {v} have the same name, {name!r}")
    return numbers


def _shown(names: Numbers) -> str:
    return ", ".join(list(names)[:10]) + (", ..." if len(names) > 10 else "")


def read_evidence(
    evidence: Evidence, structure: Structure, names: Names, states: Ints
) -> dict[int, Floats]:
    """Enter the observed states into ``states``; return the log-likelihoods of the others."""
    if not isinstance(evidence, Mapping):
        raise GraphError(
            f"evidence is a dict from variables to states, not {type(evidence).__name__}"
        )
    soft: dict[int, Floats] = {}
    for key, value in evidence.items():
        variable = names.variable(key, structure.n_variables)
        count = int(structure.cardinalities[variable])
        if not isinstance(value, str) and np.ndim(value) > 0:
            soft[variable] = soft.get(variable, 0.0) + _likelihoods(value, key, count)
            continue
        state = names.state(variable, key, value, count)
        if states[variable] not in (-1, state):
            raise GraphError(
                f"evidence gives variable {key} two states, {states[variable]} and {state}"
            )
        states[variable] = state
    return soft


def _likelihoods(value: Any, key: Any, count: int) -> Floats:
    """Return the logarithms of the likelihoods of the states."""
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
    """Append a unary factor for each of some variables."""
    added = np.array(list(unary), dtype=np.int64)
    wider = Structure.from_arrays(
        structure.cardinalities,
        np.concatenate([structure.scopes, added]),
        np.concatenate(
            [structure.scope_offsets, structure.scope_offsets[-1] + np.arange(1, len(added) + 1)]
        ),
    )
    return wider, np.concatenate([tables, *unary.values()])
