"""Reading model files: from the kind in the header to the estimator that wrote it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np

from cliquewise.errors import CliquewiseError, FormatError
from cliquewise.estimators._base import Estimator
from cliquewise.estimators.candidates import CandidateRanker
from cliquewise.estimators.graph import GraphLabeler
from cliquewise.estimators.matcher import Matcher
from cliquewise.estimators.multiclass import MulticlassClassifier
from cliquewise.estimators.multilabel import MultiLabelClassifier
from cliquewise.estimators.sequence import SequenceTagger
from cliquewise.persistence import read_arrays

#: Estimators that can be loaded, by the ``kind`` in the header.
KINDS: dict[Any, type[Estimator]] = {
    estimator.__name__: estimator
    for estimator in (
        SequenceTagger,
        MulticlassClassifier,
        GraphLabeler,
        MultiLabelClassifier,
        Matcher,
        CandidateRanker,
    )
}


def load(path: str | Path, *, mmap: bool = False) -> Any:
    """Read a model that was written by ``save``. Runs no code from the file.

    Parameters
    ----------
    path : path
    mmap : bool, default=False
        Leave the weights and the names of a :class:`~cliquewise.SequenceTagger` in the file and
        map it into memory: processes that load the same file share it. Nobody may then change the
        file in place (``save`` does not: it replaces the file).

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
    if mmap and KINDS[kind] is not SequenceTagger:
        arrays = {name: np.array(array) for name, array in arrays.items()}
    try:
        return KINDS[kind]._restored(arrays, header)
    except CliquewiseError as error:
        raise FormatError(f"the model is damaged: {error}", path) from error
    except (KeyError, TypeError, ValueError, IndexError, AttributeError, OverflowError) as error:
        raise FormatError(f"the model is damaged ({error!r})", path) from error
