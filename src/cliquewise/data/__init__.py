"""Data: files, encoders and the `Dataset` that models read.

Names are loaded when they are first used.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from cliquewise.data import images
    from cliquewise.data.dataset import Dataset
    from cliquewise.data.encode import FeatureEncoder
    from cliquewise.data.formats.conll import Columns, iter_conll, read_conll, write_conll
    from cliquewise.data.formats.crfsuite import (
        LabeledSequences,
        read_crfsuite,
        write_crfsuite,
    )
    from cliquewise.data.frames import split_table
    from cliquewise.data.labels import Labels
    from cliquewise.data.shards import Shards
    from cliquewise.data.spans import read_spans, to_scheme
    from cliquewise.data.template_encoder import TemplateEncoder
    from cliquewise.data.templates import Template

__all__ = [
    "Columns",
    "Dataset",
    "FeatureEncoder",
    "LabeledSequences",
    "Labels",
    "Shards",
    "Template",
    "TemplateEncoder",
    "images",
    "iter_conll",
    "read_conll",
    "read_crfsuite",
    "read_spans",
    "split_table",
    "to_scheme",
    "write_conll",
    "write_crfsuite",
]

_WHERE = {
    "Columns": "formats.conll",
    "Dataset": "dataset",
    "FeatureEncoder": "encode",
    "LabeledSequences": "formats.crfsuite",
    "Labels": "labels",
    "Shards": "shards",
    "Template": "templates",
    "TemplateEncoder": "template_encoder",
    "iter_conll": "formats.conll",
    "read_conll": "formats.conll",
    "read_crfsuite": "formats.crfsuite",
    "read_spans": "spans",
    "split_table": "frames",
    "to_scheme": "spans",
    "write_conll": "formats.conll",
    "write_crfsuite": "formats.crfsuite",
}


def __getattr__(name: str) -> Any:
    if name == "images":
        return importlib.import_module("cliquewise.data.images")
    if name not in _WHERE:
        raise AttributeError(f"module 'cliquewise.data' has no attribute {name!r}")
    value = getattr(importlib.import_module(f"cliquewise.data.{_WHERE[name]}"), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted(__all__)
