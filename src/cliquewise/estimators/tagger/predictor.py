"""Predictor: what predicts in a tagger's file, and nothing else.

A tagger is an estimator of scikit-learn, whose import takes longer than all that is needed to tag
some sentences. Here is no estimator: ``cliquewise predict`` starts in a third of the time.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from cliquewise.data.conversion import SequenceEncoder
from cliquewise.data.labels import Labels
from cliquewise.estimators._stored import Arrays, Header, restored_weights
from cliquewise.estimators.parameters import SequenceTaggerParameters, check_file_parameters
from cliquewise.estimators.tagger.files import restored_chain
from cliquewise.estimators.tagger.spans import SpanPrediction
from cliquewise.models.chain import ChainModel
from cliquewise.ragged import Floats


@dataclass
class Predictor(SpanPrediction):
    """A fitted tagger that only predicts: see the methods of :class:`~cliquewise.SequenceTagger`.

    Parameters
    ----------
    encoder_, labels_, model_, coef_
        What a tagger has after training.
    loss : str
    sequence_column : str, optional
    n_jobs : int, default=1
    max_memory : float, default=8.0
    """

    encoder_: SequenceEncoder
    labels_: Labels
    model_: ChainModel
    coef_: Floats
    loss: str = "log"
    sequence_column: str | None = None
    n_jobs: int | None = 1
    max_memory: float = 8.0
    device: str | None = None

    def __post_init__(self) -> None:
        self.classes_: list[Any] = self.labels_.classes


def restored_predictor(arrays: Arrays, header: Header) -> Predictor:
    """What predicts in a tagger's file (``cliquewise.load(path, predict_only=True)``)."""
    given = check_file_parameters(SequenceTaggerParameters, header["params"])
    header = {**header, "params": given}
    parts = restored_chain({**arrays, "coef": restored_weights(arrays, header)}, header)
    own = {name: given[name] for name in ("loss", "sequence_column", "max_memory") if name in given}
    return Predictor(*parts, **own)
