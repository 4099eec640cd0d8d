"""Load model files: the header names the estimator."""

from __future__ import annotations

from importlib import import_module
from pathlib import Path
from typing import Any

import numpy as np

from cliquewise.errors import FormatError
from cliquewise.estimators._stored import damaged
from cliquewise.persistence import read_arrays

#: The module of each estimator, by the ``kind`` in the header; imported only when needed.
KINDS = {
    "SequenceTagger": "tagger.sequence_tagger",
    "MulticlassClassifier": "multiclass",
    "GraphLabeler": "graph",
    "MultiLabelClassifier": "multilabel",
    "Matcher": "matcher",
    "CandidateRanker": "candidates",
}


def load(path: str | Path, *, mmap: bool = False, predict_only: bool = False) -> Any:
    """Load a model that ``save`` wrote. This runs no code from the file.

    Parameters
    ----------
    path : path
    mmap : bool, default=False
        Map the weights and the names of a :class:`~cliquewise.SequenceTagger` into memory instead
        of reading them; processes that load the same file share the memory. The file must then not
        be modified in place (``save`` replaces it).
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
        return estimator._from_content(arrays, header)
