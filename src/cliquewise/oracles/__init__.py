"""Oracles: answers about one graph. One file per oracle; see :mod:`cliquewise.oracles.base`."""

from cliquewise.oracles.base import (
    MapResult,
    MarginalResult,
    MaxMarginalResult,
    Oracle,
    choose,
    get,
    register,
    registered,
)

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
