"""Oracles: inference on one graph, one module per method; see :mod:`cliquewise.oracles.base`.

Outputs other than graphs have modules of functions: ``matching``, ``subwindow``,
``branch_and_bound``, ``candidates``.
"""

import importlib
from types import ModuleType

from cliquewise.oracles.base import Oracle
from cliquewise.oracles.planner import choose
from cliquewise.oracles.registry import get, register, registered
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
    """Import the modules of functions when first used."""
    if name in ("matching", "subwindow", "branch_and_bound", "candidates"):
        return importlib.import_module(f"{__name__}.{name}")
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
