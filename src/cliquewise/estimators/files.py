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
from cliquewise.errors import CliquewiseError, FormatError
from cliquewise.estimators._training import pack_strings, plain_classes, unpack_strings
from cliquewise.models.chain import ChainModel
from cliquewise.persistence import read_arrays, write_arrays

#: Estimators that can be loaded, by the ``kind`` in the header.
KINDS = ("SequenceTagger", "MulticlassClassifier")
#: Parameters that do not belong into a file: they speak of one machine or one run.
_NOT_SAVED = {"checkpoint", "resume", "verbose", "n_jobs", "template", "transitions", "solver",
              "random_state", "class_weight"}  # fmt: skip
_ARRAYS = ("pair_start", "pair_label", "edge_free", "edge_allowed", "begin_allowed", "end_allowed")


def save_tagger(tagger: Any, path: str | Path) -> None:
    """Write a fitted estimator of the chain family."""
    encoder = tagger.encoder_.inner
    state = encoder.to_state()
    arrays = {"coef": tagger.coef_}
    arrays |= {f"model.{name}": getattr(tagger.model_, name) for name in _ARRAYS}
    for name in ("vocabulary", "edge_vocabulary"):
        words = state.pop(name, None)
        if words is not None:
            arrays |= pack_strings(name, words)
    params = {k: v for k, v in tagger.get_params(deep=False).items() if k not in _NOT_SAVED}
    header = {
        "kind": type(tagger).__name__,
        "classes": plain_classes(tagger.classes_),
        "params": params,
        "certificate": asdict(tagger.certificate_),
        "solver": tagger.solver_,
        "encoder": {"kind": type(encoder).__name__, "state": state},
        "n_attributes": tagger.model_.n_attributes,
    }
    write_arrays(path, arrays, header)


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
        return _restore(kind, arrays, header, path)
    except CliquewiseError:
        raise
    except (KeyError, TypeError, ValueError, IndexError) as error:
        raise FormatError(f"the model is damaged ({error!r})", path) from error


def _restore(kind: str, arrays: dict[str, Any], header: dict[str, Any], path: Any) -> Any:
    import cliquewise

    estimator = getattr(cliquewise, kind)(**header["params"])
    state = dict(header["encoder"]["state"])
    for name in ("vocabulary", "edge_vocabulary"):
        if f"{name}.bytes" in arrays:
            state[name] = unpack_strings(name, arrays, path)
        else:
            state.setdefault(name, None)
    encoder = SequenceEncoder.__new__(SequenceEncoder)
    types = {"FeatureEncoder": FeatureEncoder, "TemplateEncoder": TemplateEncoder}
    encoder.inner = types[header["encoder"]["kind"]].from_state(state)
    labels = Labels(header["classes"])
    fields = {name: arrays[f"model.{name}"] for name in _ARRAYS}
    model = ChainModel(
        n_labels=len(labels),
        n_attributes=int(header["n_attributes"]),
        intercept=bool(estimator.intercept),
        boundaries=bool(getattr(estimator, "boundaries", False)),
        **fields,
    )
    _check(model, encoder, arrays["coef"], path)
    estimator._set(encoder, labels, model, np.asarray(arrays["coef"], dtype=np.float64))
    estimator.certificate_ = Certificate(**header["certificate"])
    estimator.solver_ = header["solver"]
    return estimator


def _check(model: ChainModel, encoder: SequenceEncoder, coef: Any, path: Any) -> None:
    """Sizes that kernels trust must be right whatever the file says."""
    k, pairs, label = model.n_labels, model.pair_start, model.pair_label
    constant = int(model.intercept) + 2 * int(model.boundaries)
    sound = (
        model.n_attributes == encoder.n_features + constant
        and coef.shape == (model.dimension,)
        and model.edge_free.shape == (k, k)
        and model.edge_allowed.shape in ((k, k), (0, k))
        and model.begin_allowed.shape == model.end_allowed.shape == (k,)
        and np.all(np.isfinite(coef))
    )
    if sound and len(pairs):
        sound = bool(
            len(pairs) == model.n_attributes + 1
            and pairs[0] == 0
            and np.all(np.diff(pairs) >= 0)
            and pairs[-1] == len(label)
            and (not len(label) or (label.min() >= 0 and label.max() < k))
        )
    if not sound:
        raise FormatError("the model is damaged: its arrays do not fit together", path)

