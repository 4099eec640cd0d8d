"""Early stopping: training ends when held-out sequences are labeled no better any more."""

from __future__ import annotations

from functools import cached_property
from typing import Any

import numpy as np

from cliquewise.data.dataset import Dataset
from cliquewise.data.raw_features import RawFeatures
from cliquewise.errors import DataError
from cliquewise.estimators.tagger.tables import labeled
from cliquewise.metrics import span_f1, token_accuracy
from cliquewise.ragged import Floats


class EarlyStopping:
    """Scores weights on held-out sequences after every pass, and keeps the best ones.

    Parameters
    ----------
    tagger : SequenceTagger
        That labels them: fitted but for its weights, which are replaced.
    validation : (X, y)
        As `fit` takes them; read and encoded once.
    patience : int
        Passes without a better score after which training ends.
    """

    def __init__(self, tagger: Any, validation: Any, patience: Any):
        if not isinstance(validation, tuple | list) or len(validation) != 2:
            raise DataError("validation is a pair (X, y) of sequences and their labels")
        if not isinstance(patience, int | np.integer) or patience < 1:
            raise DataError(f"patience = {patience!r}; it must be a whole number, at least 1")
        self.tagger, self.patience = tagger, int(patience)
        self.X, self.y = _checked(tagger, *validation)
        self.scores: list[tuple[float, float]] = []
        self.best: Floats | None = None
        self.stopped = False
        named = [c for c in tagger.classes_ if isinstance(c, str)]
        spans = len(named) == len(tagger.classes_) and any(c.startswith("B-") for c in named)
        self.measure = span_f1 if spans else token_accuracy

    def __call__(self, epochs: float, weights: Floats) -> bool:
        """Score the weights after so many passes; whether to stop."""
        if self.scores and int(epochs) == int(self.scores[-1][0]):
            return False  # within a pass
        self.tagger._set(self.tagger.encoder_, self.tagger.labels_, self.tagger.model_, weights)
        score = float(self.measure(self.y, self._predicted()))
        self.scores.append((epochs, score))
        values = [s for _, s in self.scores]
        if score >= max(values):
            self.best = weights
        since = len(values) - 1 - int(np.argmax(values))
        self.stopped = since >= self.patience
        return self.stopped

    @cached_property
    def _entries(self) -> RawFeatures:
        return self.tagger.encoder_.entries(self.X)  # type: ignore[no-any-return]

    @cached_property
    def _data(self) -> Dataset:
        return self.tagger._encode(self.X)  # type: ignore[no-any-return]

    def _predicted(self) -> Any:
        """As ``predict``, but for what does not change from pass to pass."""
        tagger = self.tagger
        if tagger.device is None and tagger._tables is not None:
            return tagger._tag(self._entries, tagger._tables)
        return tagger._best(self._data)


def _checked(tagger: Any, X: Any, y: Any) -> tuple[Any, Any]:
    """Sequences and their labels, of a table, too; as many of one as of the other."""
    X, y = labeled(tagger, X, y)
    if len(X) != len(y):
        raise DataError(f"validation has {len(X)} sequences and {len(y)} lists of labels")
    if not len(X):
        raise DataError("validation has no sequences: give some, or leave it out")
    return X, y
