"""Model files: an estimator as named arrays and a JSON header, and back."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path
from typing import Any

import numpy as np

from cliquewise.certificate import Certificate
from cliquewise.data.conversion import SequenceEncoder
from cliquewise.data.encode import FeatureEncoder
from cliquewise.data.labels import Labels
from cliquewise.data.template_encoder import TemplateEncoder
from cliquewise.errors import FormatError
from cliquewise.estimators._training import pack_strings, plain_classes, unpack_strings
from cliquewise.models.chain import ChainModel
from cliquewise.persistence import read_arrays, write_arrays

#: Estimators that can be loaded, by the ``kind`` in the header.
KINDS = ("SequenceTagger", "MulticlassClassifier", "GraphLabeler", "MultiLabelClassifier",
         "Matcher", "CandidateRanker")  # fmt: skip
#: Parameters that do not belong into a file: they speak of one machine or one run.
_NOT_SAVED = {"checkpoint", "checkpoint_seconds", "resume", "verbose", "n_jobs", "template",
              "transitions", "solver", "random_state", "class_weight"}  # fmt: skip
#: The model's arrays, and what the kernels need them to be.
_ARRAYS = {
    "pair_start": np.int64, "pair_label": np.int32, "edge_free": np.bool_,
    "edge_allowed": np.bool_, "begin_allowed": np.bool_, "end_allowed": np.bool_,
}  # fmt: skip


def save_tagger(tagger: Any, path: str | Path) -> None:
    """Write a fitted tagger."""
    _save(tagger, path, "SequenceTagger", tagger.classes_, tagger)


def save_classifier(classifier: Any, path: str | Path) -> None:
    """Write a fitted classifier: its inner chain, under its own classes."""
    classes = classifier.classes_.tolist()
    _save(classifier, path, "MulticlassClassifier", classes, classifier.tagger_)


def _save(estimator: Any, path: str | Path, kind: str, classes: list[Any], tagger: Any) -> None:
    encoder = tagger.encoder_.inner
    state = encoder.to_state()
    arrays = {"coef": tagger.coef_}
    arrays |= {f"model.{name}": getattr(tagger.model_, name) for name in _ARRAYS}
    for name in ("vocabulary", "edge_vocabulary"):
        words = state.pop(name, None)
        if words is not None:
            arrays |= pack_strings(name, words)
    params = estimator.get_params(deep=False)
    header = {
        "kind": kind,
        "classes": plain_classes(classes),
        "params": {k: _plain(v) for k, v in params.items() if k not in _NOT_SAVED},
        "certificate": asdict(tagger.certificate_),
        "solver": tagger.solver_,
        "encoder": {"kind": type(encoder).__name__, "state": state,
                    "n_columns": tagger.encoder_.n_columns},
        "n_attributes": tagger.model_.n_attributes,
        "n_edge_attributes": tagger.model_.n_edge_attributes,
    }  # fmt: skip
    write_arrays(path, arrays, header)


def _plain(value: Any) -> Any:
    return value.item() if isinstance(value, np.generic) else value


def load(path: str | Path) -> Any:
    """Read a model that was written by ``save``. Runs no code from the file.

    Raises
    ------
    FormatError
        If the file is damaged or foreign.

    Examples
    --------
    >>> import cliquewise as cw, tempfile, os
    >>> tagger = cw.SequenceTagger().fit([[["a"], ["b"]]], [["A", "B"]])
    >>> path = os.path.join(tempfile.mkdtemp(), "model.cw")
    >>> tagger.save(path)
    >>> cw.load(path).predict([[["b"]]])
    [['B']]
    """
    arrays, header = read_arrays(path)
    kind = header.get("kind")
    if kind not in KINDS:
        raise FormatError(f"the file holds {kind!r}, not a model ({', '.join(KINDS)})", path)
    try:
        if kind in ("GraphLabeler", "MultiLabelClassifier"):
            import cliquewise
            from cliquewise.estimators._graphs import restore

            return restore(getattr(cliquewise, kind), arrays, header, path)
        if kind in ("Matcher", "CandidateRanker"):
            import cliquewise
            from cliquewise.estimators import _examples

            return _examples.restore(getattr(cliquewise, kind), arrays, header, path)
        tagger = _restore(kind, arrays, header, path)
        if kind == "SequenceTagger":
            return tagger
        return _classifier(tagger, header)
    except FormatError:
        raise
    except (KeyError, TypeError, ValueError, IndexError, AttributeError, OverflowError) as error:
        raise FormatError(f"the model is damaged ({error!r})", path) from error


def _restore(kind: str, arrays: dict[str, Any], header: dict[str, Any], path: Any) -> Any:
    """The tagger; of a classifier, the one inside it."""
    from cliquewise.estimators.sequence import SequenceTagger

    params = dict(header["params"])
    labels = Labels(header["classes"])
    if kind == "MulticlassClassifier":
        params["boundaries"] = False
        labels = Labels(range(len(labels)))
    estimator = SequenceTagger(**params)
    encoder = _encoder(arrays, header["encoder"], path)
    model = ChainModel(
        n_labels=len(labels),
        n_attributes=int(header["n_attributes"]),
        n_edge_attributes=int(header["n_edge_attributes"]),
        intercept=bool(estimator.intercept),
        boundaries=bool(estimator.boundaries),
        **{name: arrays[f"model.{name}"] for name in _ARRAYS},
    )
    _check(model, encoder, arrays["coef"], path)
    estimator._set(encoder, labels, model, np.array(arrays["coef"]))
    estimator.certificate_ = Certificate(**header["certificate"])
    estimator.solver_ = header["solver"]
    return estimator


def _classifier(tagger: Any, header: dict[str, Any]) -> Any:
    from cliquewise.estimators.multiclass import MulticlassClassifier

    classifier = MulticlassClassifier(**header["params"])
    classifier.classes_ = np.array(header["classes"])
    classifier.n_features_in_ = tagger.encoder_.n_features
    classifier._take(tagger)
    return classifier


def _encoder(arrays: dict[str, Any], about: dict[str, Any], path: Any) -> SequenceEncoder:
    state = dict(about["state"])
    for name in ("vocabulary", "edge_vocabulary"):
        known = f"{name}.bytes" in arrays
        state[name] = unpack_strings(name, arrays, path) if known else None
    types: dict[str, Any] = {"FeatureEncoder": FeatureEncoder, "TemplateEncoder": TemplateEncoder}
    inner = types[about["kind"]].from_state(state)
    size = inner.n_hash if inner.vocabulary is None else len(inner.vocabulary)
    form = inner.kind if isinstance(inner, FeatureEncoder) else "attributes"
    if form not in ("attributes", "numbers"):
        raise FormatError(f"the model is damaged: its input is {form!r}", path)
    if form == "attributes" and size != inner.n_features:
        raise FormatError("the model is damaged: its names do not fit its number of names", path)
    return SequenceEncoder.of(inner, about["n_columns"])


def _check(model: ChainModel, encoder: SequenceEncoder, coef: Any, path: Any) -> None:
    """Sizes and types that kernels trust must be right whatever the file says."""
    k, pairs, label = model.n_labels, model.pair_start, model.pair_label
    constant = int(model.intercept) + 2 * int(model.boundaries)
    sound = (
        k > 0
        and all(getattr(model, name).dtype == kind for name, kind in _ARRAYS.items())
        and coef.dtype == np.float64
        and pairs.ndim == label.ndim == 1
        and model.n_attributes == encoder.n_features + constant
        and model.edge_free.shape == (k, k)
        and model.edge_allowed.shape in ((k, k), (0, k))
        and model.begin_allowed.shape == model.end_allowed.shape == (k,)
    )
    if sound and len(pairs):
        sound = bool(
            len(pairs) == model.n_attributes + 1
            and pairs[0] == 0
            and np.all(np.diff(pairs) >= 0)
            and pairs[-1] == len(label)
            and (not len(label) or (label.min() >= 0 and label.max() < k))
        )
    if not sound or coef.shape != (model.dimension,) or not np.all(np.isfinite(coef)):
        raise FormatError("the model is damaged: its arrays do not fit together", path)
