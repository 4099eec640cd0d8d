"""Training on a Dask cluster, with the certificates of one machine.

Needs the extra ``cliquewise[distributed]``. Names are loaded when they are first used.
"""

from __future__ import annotations

import importlib
from typing import Any

from cliquewise.errors import MissingDependencyError

try:
    import distributed as _distributed  # noqa: F401
except ImportError as error:
    raise MissingDependencyError(
        "cliquewise.distributed needs Dask; install it with: pip install 'cliquewise[distributed]'"
    ) from error

_WHERE = {
    "DaskSequenceTagger": "tagger",
    "DaskMultiLabelClassifier": "multilabel",
}

__all__ = [*_WHERE]


def __getattr__(name: str) -> Any:
    if name not in _WHERE:
        raise AttributeError(f"module 'cliquewise.distributed' has no attribute {name!r}")
    value = getattr(importlib.import_module(f"cliquewise.distributed.{_WHERE[name]}"), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted(__all__)
