"""Training on a Dask cluster, with the certificates of one machine.

Needs the extra ``cliquewise[distributed]``. Names are imported on first use.
"""

from __future__ import annotations

from cliquewise._lazy import lazy_attributes
from cliquewise.errors import MissingDependencyError

try:
    import distributed as _distributed  # noqa: F401
except ImportError as error:
    raise MissingDependencyError(
        "cliquewise.distributed needs Dask; install it with: pip install 'cliquewise[distributed]'"
    ) from error

_MODULES = {
    "DaskSequenceTagger": "tagger",
    "DaskMultiLabelClassifier": "multilabel",
}

__all__ = [*_MODULES]

__getattr__, __dir__ = lazy_attributes("cliquewise.distributed", _MODULES)
