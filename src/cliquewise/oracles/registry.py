"""The registry of oracles: every module in this folder may register one or more."""

from __future__ import annotations

import importlib
import pkgutil
from difflib import get_close_matches
from functools import cache
from pathlib import Path
from typing import TypeVar

from cliquewise.errors import UnsupportedError
from cliquewise.oracles.base import QUESTIONS, Oracle

#: Names of other tools for our methods.
ALIASES = {
    "bp": "trw-bp", "lbp": "trw-bp", "loopy-bp": "anytime", "belief-propagation": "trw-bp",
    "trbp": "trw-bp", "trws": "trw-s", "viterbi": "chain", "forward-backward": "chain",
    "jt": "junction-tree", "variable-elimination": "junction-tree", "ve": "junction-tree",
    "mbe": "mini-buckets", "alpha-expansion": "expansion", "ilp": "milp", "lp": "relaxed",
    "qpbo": "graph-cut", "mcmc": "gibbs", "ad3": "relaxed", "exhaustive": "brute-force",
}  # fmt: skip

_registry: dict[str, Oracle] = {}
O = TypeVar("O", bound=type[Oracle])  # noqa: E741


def register(cls: O) -> O:
    """Add an oracle class to the registry (a class decorator)."""
    unknown = cls.provides - set(QUESTIONS)
    if unknown:
        raise UnsupportedError(f"oracle {cls.name!r} provides unknown questions {sorted(unknown)}")
    missing = sorted(question for question in cls.provides if not hasattr(cls, question))
    if missing:
        raise UnsupportedError(f"oracle {cls.name!r} has no method {missing[0]!r}")
    _registry[cls.name] = cls()
    registered.cache_clear()
    return cls


@cache
def _import_all() -> None:
    for module in pkgutil.iter_modules([str(Path(__file__).parent)]):
        importlib.import_module(f"{__package__}.{module.name}")


@cache
def registered() -> tuple[Oracle, ...]:
    """Return all oracles, special methods before general ones.

    Examples
    --------
    >>> "junction-tree" in [oracle.name for oracle in registered()]
    True
    """
    _import_all()
    return tuple(sorted(_registry.values(), key=lambda oracle: (oracle.rank, oracle.name)))


def get(name: str) -> Oracle:
    """Return the oracle with this name.

    Examples
    --------
    >>> get("chain").name
    'chain'
    """
    _import_all()
    if name not in _registry:
        raise unknown_method(name, [oracle.name for oracle in registered()])
    return _registry[name]


def unknown_method(name: str, names: list[str]) -> UnsupportedError:
    """Return the error for an unknown method, with a suggestion where one of ``names`` is close."""
    plain = str(name).lower().replace("_", "-").replace(" ", "-")
    close = get_close_matches(plain, names, n=1, cutoff=0.75)
    suggestion = ALIASES.get(plain, close[0] if close else None)
    hint = "" if suggestion is None else f", did you mean {suggestion!r}?"
    return UnsupportedError(
        f"unknown method {name!r}{hint}; the methods are: auto, {', '.join(names)}"
    )
