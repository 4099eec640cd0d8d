"""Oracles: answers about one graph. One file per oracle; see :mod:`cliquewise.oracles.base`.

Outputs that are no graphs have modules of plain functions: ``matching``, ``subwindow``,
``branch_and_bound``, ``candidates``.
"""

import importlib
from types import ModuleType

from cliquewise.oracles.base import Oracle, get, register, registered
from cliquewise.oracles.choice import choose
from cliquewise.oracles.results import MapResult, MarginalResult, MaxMarginalResult

__all__ = [
    "MapResult",
    "MarginalResult",
    "MaxMarginalResult",
    "Oracle",
    "choose",
    "get",
    "register",
    "registered",
]


def __getattr__(name: str) -> ModuleType:
    """The modules of plain functions, loaded when first used."""
    if name in ("matching", "subwindow", "branch_and_bound", "candidates"):
        return importlib.import_module(f"{__name__}.{name}")
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
