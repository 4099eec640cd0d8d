"""Checks of the hyperparameters of solvers."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import fields
from typing import TYPE_CHECKING

import numpy as np

from cliquewise.errors import DataError

if TYPE_CHECKING:
    from cliquewise.solvers.base import AnySolver


def _is_number(value: object, kind: tuple[type, ...]) -> bool:
    number = isinstance(value, kind) and not isinstance(value, bool | complex | np.complexfloating)
    return number and bool(np.isfinite(value))  # type: ignore[call-overload]


#: Types of hyperparameters by annotation: in words, and as tests.
_TYPES: dict[str, tuple[str, Callable[[object], bool]]] = {
    "bool": ("True or False", lambda v: isinstance(v, bool | np.bool_)),
    "int": ("a whole number", lambda v: _is_number(v, (int, np.integer))),
    "float": ("a finite number", lambda v: _is_number(v, (int, float, np.number))),
    "str": ("a word", lambda v: isinstance(v, str)),
    "None": ("None", lambda v: v is None),
}


def check_types(solver: AnySolver) -> None:
    """Raise an error if a hyperparameter does not have its annotated type; NaN is not a number."""
    for field in fields(solver):
        kinds = [kind.strip() for kind in str(field.type).split("|")]
        if not all(kind in _TYPES for kind in kinds):
            continue
        value = getattr(solver, field.name)
        if not any(_TYPES[kind][1](value) for kind in kinds):
            words = " or ".join(_TYPES[kind][0] for kind in kinds)
            raise DataError(f"{field.name} = {value!r}; it must be {words}")


def one_of(solver: AnySolver, name: str, *known: str | None) -> None:
    """Raise an error if a hyperparameter is not one of the known words."""
    value = getattr(solver, name)
    if value not in known:
        *most, last = map(str, known)
        words = f"{', '.join(most)} or {last}" if most else last
        raise DataError(f"{name} is {words}, not {value!r}")


def at_least(solver: AnySolver, least: float, *names: str) -> None:
    """Raise an error if a hyperparameter is not a finite number, or is below ``least``."""
    for name in names:
        value = getattr(solver, name)
        number = isinstance(value, int | float | np.number) and np.isfinite(value)
        if not number or value < least:
            raise DataError(f"{name} = {value!r}; it must be a number of at least {least:g}")


def share(solver: AnySolver, name: str) -> None:
    """Raise an error if a hyperparameter is outside [0, 1]."""
    if not 0 <= getattr(solver, name) <= 1:
        raise DataError(f"{name} = {getattr(solver, name)}; it must be in [0, 1]")


def positive(solver: AnySolver, name: str, *words: str | None) -> None:
    """Raise an error if a hyperparameter is neither a positive number nor one of the words."""
    value = getattr(solver, name)
    if any(value is word or (isinstance(word, str) and value == word) for word in words):
        return
    if not (isinstance(value, int | float | np.number) and np.isfinite(value) and value > 0):
        also = "".join(f" or {word!r}" for word in words)
        raise DataError(f"{name} = {value!r}; it must be a positive number{also}")
