"""cliquewise: structured prediction with certificates.

Names are loaded when they are first used (PEP 562), so that ``import cliquewise`` and
``cliquewise --help`` are quick.
"""

from __future__ import annotations

import importlib
from typing import Any

__version__ = "0.1.0"

_WHERE = {
    "FactorGraph": "cliquewise.graph",
    "Structure": "cliquewise.structure",
    "read_uai": "cliquewise.data.formats.uai",
    "write_uai": "cliquewise.data.formats.uai",
    "random_graph": "cliquewise.builders",
    "to_networkx": "cliquewise.builders",
    "from_networkx": "cliquewise.builders",
    "SequenceTagger": "cliquewise.estimators.sequence",
    "MulticlassClassifier": "cliquewise.estimators.multiclass",
    "GraphLabeler": "cliquewise.estimators.graph",
    "MultiLabelClassifier": "cliquewise.estimators.multilabel",
    "Matcher": "cliquewise.estimators.matcher",
    "CandidateRanker": "cliquewise.estimators.candidates",
    "regularization_path": "cliquewise.estimators.path",
    "load": "cliquewise.estimators.files",
    "Certificate": "cliquewise.certificate",
    "Trace": "cliquewise.trace",
}
_MODULES = ("builders", "data", "errors", "metrics", "oracles", "solvers")

__all__ = [*_WHERE, *_MODULES, "__version__"]


def __getattr__(name: str) -> Any:
    if name in _WHERE:
        value = getattr(importlib.import_module(_WHERE[name]), name)
    elif name in _MODULES:
        value = importlib.import_module(f"cliquewise.{name}")
    else:
        raise AttributeError(f"module 'cliquewise' has no attribute {name!r}")
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted(__all__)
