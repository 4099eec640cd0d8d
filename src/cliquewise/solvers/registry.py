"""The registry of solvers: every module of this package registers its solvers here."""

from __future__ import annotations

import importlib
import pkgutil
from functools import cache
from pathlib import Path
from typing import TypeVar

from cliquewise.errors import UnsupportedError
from cliquewise.solvers.base import AnySolver, Solver

_registry: dict[tuple[str, str], type[AnySolver]] = {}
SolverClass = TypeVar("SolverClass", bound=type[AnySolver])


def register(cls: SolverClass) -> SolverClass:
    """Add a solver class to the registry, under its name, for every kind of problem it supports."""
    for kind in cls.capabilities.losses:
        if _registry.setdefault((cls.name, kind), cls).__qualname__ != cls.__qualname__:
            raise UnsupportedError(f"two solvers are called {cls.name!r} on {kind} problems")
    return cls


@cache
def _load_all() -> None:
    for module in pkgutil.iter_modules([str(Path(__file__).parent)]):
        importlib.import_module(f"{__package__}.{module.name}")


def registered(kind: str | None = None) -> list[type[AnySolver]]:
    """Return all solver classes, or those for one kind of problem, by rank and then by name.

    Examples
    --------
    >>> "sdca" in [solver.name for solver in registered("chain")]
    True
    """
    _load_all()
    found = {cls for (_, k), cls in _registry.items() if kind in (None, k)}
    return sorted(found, key=lambda cls: (cls.capabilities.rank, cls.name))


def get(solver: str | AnySolver, kind: str | None = None) -> AnySolver:
    """Return a solver by its name (and the kind of problem, if names are shared), or itself.

    Examples
    --------
    >>> get("sdca").name
    'sdca'
    """
    if isinstance(solver, Solver):
        return solver
    for cls in registered(kind):
        if cls.name == solver:
            return cls()
    known = ", ".join(sorted({cls.name for cls in registered(kind)}))
    if any(cls.name == solver for cls in registered()):
        raise UnsupportedError(
            f"solver {solver!r} does not work on a {kind} problem; these do: {known}"
        )
    where = "" if kind is None else f" of {kind} problems"
    raise UnsupportedError(f"unknown solver {solver!r}; the solvers{where} are: auto, {known}")
