"""cliquewise: structured prediction with certificates.

Names are imported on first use, which keeps ``import cliquewise`` and ``cliquewise --help`` fast.
"""

from __future__ import annotations

from cliquewise._lazy import lazy_attributes

__version__ = "0.1.0"

_NAMES = {
    "FactorGraph": "graph.factor_graph",
    "Structure": "graph.structure",
    "read_uai": "data.formats.uai",
    "write_uai": "data.formats.uai",
    "read_bif": "data.formats.bif",
    "write_bif": "data.formats.bif",
    "random_graph": "graph.builders",
    "to_networkx": "graph.builders",
    "from_networkx": "graph.builders",
    "SequenceTagger": "estimators.tagger.sequence_tagger",
    "MulticlassClassifier": "estimators.multiclass",
    "GraphLabeler": "estimators.graph",
    "MultiLabelClassifier": "estimators.multilabel",
    "Matcher": "estimators.matcher",
    "CandidateRanker": "estimators.candidates",
    "regularization_path": "estimators.tagger.regularization_path",
    "load": "estimators.files",
    "Certificate": "certificate",
    "Trace": "trace",
}
_MODULES = {"builders": "graph.builders"} | {
    name: name for name in ("data", "errors", "hypergraph", "metrics", "oracles", "plot", "solvers")
}
#: Packages that need an extra; not in __all__, because they may be missing.
_EXTRAS = {name: name for name in ("torch", "distributed", "spacy")}

__all__ = [*_NAMES, *_MODULES, "__version__"]
__getattr__, __dir__ = lazy_attributes("cliquewise", _NAMES, _MODULES | _EXTRAS)
