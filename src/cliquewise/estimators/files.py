"""Reading model files: from the kind in the header to the estimator that wrote it."""

from __future__ import annotations

from importlib import import_module
from pathlib import Path
from typing import Any

import numpy as np

from cliquewise.errors import FormatError
from cliquewise.estimators._stored import damaged
from cliquewise.persistence import read_arrays

#: Modules of the estimators that can be loaded, by the ``kind`` in the header; each is imported
#: for its own files alone.
KINDS = {
    "SequenceTagger": "tagger.sequence_tagger",
    "MulticlassClassifier": "multiclass",
    "GraphLabeler": "graph",
    "MultiLabelClassifier": "multilabel",
    "Matcher": "matcher",
    "CandidateRanker": "candidates",
}


def load(path: str | Path, *, mmap: bool = False, predict_only: bool = False) -> Any:
    """Read a model that was written by ``save``. Runs no code from the file.

    Parameters
    ----------
    path : path
    mmap : bool, default=False
        Leave the weights and the names of a :class:`~cliquewise.SequenceTagger` in the file and
        map it into memory: processes that load the same file share it. Nobody may then change the
        file in place (``save`` does not: it replaces the file).
    predict_only : bool, default=False
        Load only the part of a :class:`~cliquewise.SequenceTagger` that predicts. This does not
        import scikit-learn, which takes most of the start-up time of a new process. Other models
        are loaded completely.

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
    arrays, header = read_arrays(path, mapped=mmap)
    kind = header.get("kind")
    if not isinstance(kind, str) or kind not in KINDS:
        raise FormatError(f"the file holds {kind!r}, not a model ({', '.join(KINDS)})", path)
    if predict_only and kind == "SequenceTagger":
        from cliquewise.estimators.tagger.files import read_chain

        with damaged(path):
            return read_chain(arrays, header)
    if mmap and kind != "SequenceTagger":
        arrays = {name: np.array(array) for name, array in arrays.items()}
    estimator = getattr(import_module(f"{__package__}.{KINDS[kind]}"), kind)
    with damaged(path):
        return estimator._restored(arrays, header)
