"""cliquewise: structured prediction with certificates.

Names are loaded when they are first used (PEP 562), so that ``import cliquewise`` and
``cliquewise --help`` are quick.
"""

from __future__ import annotations

import importlib
from typing import Any

__version__ = "0.1.0"

_WHERE = {
    "FactorGraph": "cliquewise.graph.factor_graph",
    "Structure": "cliquewise.graph.structure",
    "read_uai": "cliquewise.data.formats.uai",
    "write_uai": "cliquewise.data.formats.uai",
    "read_bif": "cliquewise.data.formats.bif",
    "write_bif": "cliquewise.data.formats.bif",
    "random_graph": "cliquewise.graph.builders",
    "to_networkx": "cliquewise.graph.builders",
    "from_networkx": "cliquewise.graph.builders",
    "SequenceTagger": "cliquewise.estimators.tagger.sequence_tagger",
    "MulticlassClassifier": "cliquewise.estimators.multiclass",
    "GraphLabeler": "cliquewise.estimators.graph",
    "MultiLabelClassifier": "cliquewise.estimators.multilabel",
    "Matcher": "cliquewise.estimators.matcher",
    "CandidateRanker": "cliquewise.estimators.candidates",
    "regularization_path": "cliquewise.estimators.tagger.regularization_path",
    "load": "cliquewise.estimators.files",
    "Certificate": "cliquewise.certificate",
    "Trace": "cliquewise.trace",
}
_MODULES = {"builders": "cliquewise.graph.builders"} | {
    name: f"cliquewise.{name}"
    for name in ("data", "errors", "metrics", "oracles", "plot", "solvers")
}
#: Needs an extra, and so does not count among the names that are always there.
_EXTRAS = ("torch", "distributed", "spacy")

__all__ = [*_WHERE, *_MODULES, "__version__"]


def __getattr__(name: str) -> Any:
    if name in _WHERE:
        value = getattr(importlib.import_module(_WHERE[name]), name)
    elif name in _MODULES or name in _EXTRAS:
        value = importlib.import_module(_MODULES.get(name, f"cliquewise.{name}"))
    else:
        raise AttributeError(f"module 'cliquewise' has no attribute {name!r}")
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted(__all__)
