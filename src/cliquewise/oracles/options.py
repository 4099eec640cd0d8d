"""Options of questions: which an oracle takes, and which are resource limits."""

from __future__ import annotations

import inspect
from collections.abc import Mapping
from functools import cache
from numbers import Real
from typing import Any

from cliquewise.errors import UnsupportedError
from cliquewise.oracles.base import Limits, Oracle, Question

#: Options that are resource limits.
LIMIT_OPTIONS = ("max_memory", "max_operations")


@cache
def options_of(kind: type[Oracle], question: Question) -> frozenset[str]:
    """Return the names of the options that an oracle class takes for a question."""
    parameters = list(inspect.signature(getattr(kind, question)).parameters)
    return frozenset(parameters[2:]) - {"k", "n", "rng"}


def takes(oracle: Oracle, question: Question, option: str) -> bool:
    """Return whether an oracle takes an option for a question."""
    return option in options_of(type(oracle), question)


def limits_of(options: Mapping[str, Any]) -> Limits:
    """Return the limits among the options.

    Examples
    --------
    >>> limits_of({"max_operations": 1e6}).max_operations
    1000000.0
    """
    given = {k: float(options[k]) for k in LIMIT_OPTIONS if options.get(k) is not None}
    return Limits(**given, k=int(options.get("k", 1)))


def check_options(options: Mapping[str, Any]) -> None:
    """Raise an error for evidence among the options, and for limits that are not numbers."""
    if "evidence" in options:
        raise TypeError("evidence is given before the question: graph.condition(evidence).map()")
    for name in (*LIMIT_OPTIONS, "seconds"):
        check_number(name, options.get(name))


def check_number(name: str, value: object) -> None:
    """Raise an error for a limit that is neither None nor a number."""
    if value is not None and not (isinstance(value, Real) and float(value) >= 0):
        raise UnsupportedError(f"{name} = {value!r}; it must be a number, not negative")
