"""Convert a fitted chain to arrays and a header for a model file, and back.

Files store only the nonzero weights, the attributes that have one, and integers in the smallest
type that holds them.
"""

from __future__ import annotations

from dataclasses import asdict
from typing import Any

import numpy as np
from numpy.typing import NDArray

from cliquewise.data.attribute_table import hash_table_of
from cliquewise.data.conversion import SequenceEncoder
from cliquewise.data.encode import FeatureEncoder
from cliquewise.data.formats.column_format import ColumnFormat
from cliquewise.data.frames import TableSchema
from cliquewise.data.names import pack_names, unpack_names
from cliquewise.data.template_encoder import TemplateEncoder
from cliquewise.errors import DataError
from cliquewise.estimators._stored import (
    Arrays,
    Header,
    checked_weights,
    listed_classes,
    restored_weights,
)
from cliquewise.estimators.parameters import (
    SequenceTaggerParameters,
    check_file_parameters,
    check_integer,
)
from cliquewise.estimators.tagger.chain_tagger import ChainTagger
from cliquewise.estimators.tagger.pruning import without_zeros
from cliquewise.models.chain import ChainModel
from cliquewise.persistence import unpack_strings

#: The model's arrays, and the types that the kernels need.
_MASKS = ("edge_free", "edge_allowed", "begin_allowed", "end_allowed")
_ARRAYS = {"pair_start": np.int64, "pair_label": np.int32} | dict.fromkeys(_MASKS, np.bool_)
_VOCABULARIES = ("vocabulary", "edge_vocabulary")
_ENCODERS: dict[str, Any] = {e.__name__: e for e in (FeatureEncoder, TemplateEncoder)}
#: Types in which files store integers.
_WHOLE = ("uint8", "uint16", "uint32")


def pack_chain(chain: ChainTagger, whole: bool = False) -> tuple[Arrays, Header]:
    """Return the arrays and the header of a chain; the weights are the array ``coef``.

    Weights that are zero are left out unless ``whole`` is True.
    """
    if not whole:
        chain = without_zeros(chain)
    model, encoder = chain.model_, chain.encoder_
    state = encoder.inner.to_state()
    arrays = {f"model.{name}": getattr(model, name) for name in _MASKS}
    if len(model.pair_start):
        arrays["pairs.counts"] = _narrow(np.diff(model.pair_start))
        arrays["pairs.labels"] = _narrow(model.pair_label)
    for name in _VOCABULARIES:
        words = vars(encoder.inner)[name] if name in state else None
        state.pop(name, None)
        if words is not None:
            arrays |= pack_names(name, words, hash_table_of(words))
    kind = type(encoder.inner).__name__
    return {"coef": chain.coef_, **arrays}, {
        "encoder": {
            "kind": kind,
            "state": state,
            "n_columns": encoder.n_columns,
            "file_format": encoder.file_format and encoder.file_format.to_dict(),
            "table": encoder.table and asdict(encoder.table),
        },
        "n_attributes": model.n_attributes,
        "n_edge_attributes": model.n_edge_attributes,
    }


def _narrow(numbers: NDArray[Any]) -> NDArray[Any]:
    """Return the integers in the smallest type."""
    most = numbers.max(initial=0)
    return numbers.astype(next(kind for kind in _WHOLE if most <= np.iinfo(kind).max))


def read_chain(arrays: Arrays, header: Header) -> ChainTagger:
    """Read a predict-only chain tagger from a model file."""
    header = {**header, "params": check_file_parameters(SequenceTaggerParameters, header["params"])}
    return unpack_chain({**arrays, "coef": restored_weights(arrays, header)}, header)


def unpack_chain(arrays: Arrays, header: Header) -> ChainTagger:
    """Return the chain that :func:`pack_chain` packed, from a file with checked parameters.

    All sizes and types that the kernels rely on are checked.
    """
    labels, parameters = listed_classes(header["classes"]), header["params"]
    mask = parameters.get("transitions", "all")
    if isinstance(mask, list) and {len(mask), *map(len, mask)} != {len(labels)}:
        raise DataError("its mask of transitions does not fit its classes")
    intercept = bool(parameters.get("intercept", True))
    boundaries = bool(parameters.get("boundary_weights", True))
    model, encoder = _unpack_model(arrays, header, len(labels), intercept, boundaries)
    weights = checked_weights(arrays, model.dimension)
    settings = {
        n: parameters[n] for n in ("loss", "sequence_column", "max_memory") if n in parameters
    }
    return ChainTagger(encoder, labels, model, weights, **settings)


def _unpack_model(
    arrays: Arrays, header: Header, n_labels: int, intercept: bool, boundaries: bool
) -> tuple[ChainModel, SequenceEncoder]:
    if header["version"] >= 3:
        arrays = {**arrays, **_pairs(arrays)}
    encoder = _encoder(arrays, header["encoder"])
    most = arrays["coef"].size
    model = ChainModel(
        n_labels=n_labels,
        n_attributes=check_integer(header["n_attributes"], "its number of attributes"),
        n_edge_attributes=check_integer(
            header["n_edge_attributes"], "its pair attributes", 0, most
        ),
        intercept=intercept,
        boundaries=boundaries,
        **{name: arrays[f"model.{name}"] for name in _ARRAYS},
    )
    if not _is_sound(model, encoder):
        raise DataError("its arrays do not fit together")
    return model, encoder


def _pairs(arrays: Arrays) -> Arrays:
    """Return the labels that each attribute has weights for, in the types of the kernels."""
    counts, labels = (arrays.get(f"pairs.{name}") for name in ("counts", "labels"))
    if (counts is None) != (labels is None):
        raise DataError("its pairs of attributes and labels are incomplete")
    if counts is None or labels is None:
        empty = np.empty(0, dtype=np.int64)
        return {"model.pair_start": empty, "model.pair_label": empty.astype(np.int32)}
    if counts.dtype.name not in _WHOLE or labels.dtype.name not in _WHOLE or counts.ndim != 1:
        raise DataError("its pairs of attributes and labels are not integers")
    starts = np.zeros(len(counts) + 1, dtype=np.int64)
    np.cumsum(counts, out=starts[1:])
    # A value that does not fit into 32 bits becomes negative, and fails the checks of the model.
    return {"model.pair_start": starts, "model.pair_label": labels.astype(np.int32)}


def _encoder(arrays: Arrays, about: dict[str, Any]) -> SequenceEncoder:
    state = dict(about["state"])
    for name in _VOCABULARIES:
        state[name] = _names(name, arrays)
    inner = _ENCODERS[about["kind"]].from_state(state)
    form = inner.kind if isinstance(inner, FeatureEncoder) else "attributes"
    if form not in ("attributes", "numbers"):
        raise DataError(f"its input is {form!r}")
    check_integer(inner.n_features, "its number of features")
    if form == "attributes":
        size = inner.n_hash if inner.vocabulary is None else len(inner.vocabulary)
        if size != inner.n_features or None not in (inner.n_hash, inner.vocabulary):
            raise DataError("its names do not fit its number of names")
    written = about.get("file_format", about.get("writing"))  # version 3 has "writing"
    return SequenceEncoder.from_fitted(
        inner,
        _n_columns(about["n_columns"], inner),
        ColumnFormat.from_dict(written) if written else None,
        _table_schema(about.get("table")),
    )


def _names(name: str, arrays: Arrays) -> Any:
    """Return the names of the attributes; None if they have no names."""
    if f"{name}.names" in arrays:
        return unpack_names(name, arrays)
    words = unpack_strings(name, arrays) if f"{name}.bytes" in arrays else None  # version 2
    if words is not None and len(set(words)) < len(words):
        raise DataError("it names an attribute twice")
    return words


def _table_schema(given: Any) -> TableSchema | None:
    """Return the description of the table that a model was trained on; None without one."""
    if given is not None and not isinstance(given, dict):
        given = {"columns": given}  # version 2
    if not given or given.get("columns") is None:
        return None
    columns, label, kinds = given["columns"], given.get("label"), given.get("kinds") or {}
    if (
        not isinstance(columns, list)
        or not all(isinstance(name, str) for name in columns)
        or not (label is None or isinstance(label, str))
        or not isinstance(kinds, dict)
    ):
        raise DataError("the description of its training table is damaged")
    return TableSchema(columns, label, kinds)


def _n_columns(given: Any, inner: Any) -> int | None:
    """Return the number of columns that a template reads; None without a template."""
    if isinstance(inner, TemplateEncoder):
        return check_integer(given, "its number of columns", max(inner.template.n_columns, 1))
    if given is not None:
        raise DataError("it has columns but no template")
    return None


def _n_edge_features(encoder: SequenceEncoder) -> int | None:
    """Return the number of token-pair attributes; None if the data provide them."""
    inner = encoder.inner
    if isinstance(inner, FeatureEncoder) and inner.kind == "numbers":
        return None
    return inner.n_edge_features if isinstance(inner, TemplateEncoder) else 0


def _is_sound(model: ChainModel, encoder: SequenceEncoder) -> bool:
    """Return whether the arrays have the types and sizes that the kernels rely on."""
    k, pairs, label = model.n_labels, model.pair_start, model.pair_label
    constant = int(model.intercept) + 2 * int(model.boundaries)
    sound = (
        k > 0
        and all(getattr(model, name).dtype == kind for name, kind in _ARRAYS.items())
        and pairs.ndim == label.ndim == 1
        and model.n_attributes == encoder.n_features + constant
        and _n_edge_features(encoder) in (None, model.n_edge_attributes)
        and model.edge_free.shape == (k, k)
        and model.edge_allowed.shape in ((k, k), (0, k))
        and model.begin_allowed.shape == model.end_allowed.shape == (k,)
    )
    if not sound or not len(pairs):
        return sound
    return bool(
        len(pairs) == model.n_attributes + 1
        and pairs[0] == 0
        and np.all(pairs[1:] >= pairs[:-1])
        and pairs[-1] == len(label)
        and (not len(label) or (label.min() >= 0 and label.max() < k))
    )
