"""Read files, encode them, and hold them as a `Dataset`.

Names are imported when they are first used.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from cliquewise._lazy import lazy_attributes

if TYPE_CHECKING:
    from cliquewise.data import images
    from cliquewise.data.columns import Columns
    from cliquewise.data.dataset import Dataset
    from cliquewise.data.encode import FeatureEncoder
    from cliquewise.data.formats.column_format import ColumnFormat
    from cliquewise.data.formats.conll import iter_conll, read_conll, write_conll
    from cliquewise.data.formats.conllu import (
        ConlluDocument,
        iter_conllu,
        read_conllu,
        write_conllu,
    )
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
    "ColumnFormat",
    "Columns",
    "ConlluDocument",
    "Dataset",
    "FeatureEncoder",
    "LabeledSequences",
    "Labels",
    "Shards",
    "Template",
    "TemplateEncoder",
    "images",
    "iter_conll",
    "iter_conllu",
    "read_conll",
    "read_conllu",
    "read_crfsuite",
    "read_spans",
    "split_table",
    "to_scheme",
    "write_conll",
    "write_conllu",
    "write_crfsuite",
]

_MODULES = {
    "ColumnFormat": "formats.column_format",
    "Columns": "columns",
    "ConlluDocument": "formats.conllu",
    "Dataset": "dataset",
    "FeatureEncoder": "encode",
    "LabeledSequences": "formats.crfsuite",
    "Labels": "labels",
    "Shards": "shards",
    "Template": "templates",
    "TemplateEncoder": "template_encoder",
    "iter_conll": "formats.conll",
    "iter_conllu": "formats.conllu",
    "read_conll": "formats.conll",
    "read_conllu": "formats.conllu",
    "read_crfsuite": "formats.crfsuite",
    "read_spans": "spans",
    "split_table": "frames",
    "to_scheme": "spans",
    "write_conll": "formats.conll",
    "write_conllu": "formats.conllu",
    "write_crfsuite": "formats.crfsuite",
}

__getattr__, __dir__ = lazy_attributes("cliquewise.data", _MODULES, {"images": "images"})
