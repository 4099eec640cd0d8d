"""Early stopping: end training when the score on held-out sequences no longer improves."""

from __future__ import annotations

from functools import cached_property
from typing import Any

import numpy as np

from cliquewise.data.dataset import Dataset
from cliquewise.data.raw_features import RawFeatures
from cliquewise.errors import DataError
from cliquewise.estimators.tagger.chain_tagger import ChainTagger
from cliquewise.estimators.tagger.tables import read_labeled_table
from cliquewise.metrics import span_f1, token_accuracy
from cliquewise.ragged import Floats


class EarlyStopping:
    """Scores the weights on held-out sequences after every epoch, and keeps the best ones.

    Parameters
    ----------
    chain : ChainTagger
        Predicts with the current weights; its own weights are not used.
    validation : (X, y)
        Held-out sequences and labels, as ``fit`` takes them.
    patience : int
        Number of epochs without an improvement after which training ends.
    """

    def __init__(self, chain: ChainTagger, validation: Any, patience: int):
        if not isinstance(validation, tuple | list) or len(validation) != 2:
            raise DataError("validation must be a pair (X, y) of sequences and their labels")
        if not isinstance(patience, int | np.integer) or patience < 1:
            raise DataError(f"patience = {patience!r}; it must be an integer of at least 1")
        self.chain, self.patience = chain, int(patience)
        self.X, self.y = _checked(chain, *validation)
        self.scores: list[tuple[float, float]] = []
        self.best: Floats | None = None
        self.stopped = False
        self.measure = span_f1 if has_span_labels(chain.classes_) else token_accuracy

    def __call__(self, epochs: float, weights: Floats) -> bool:
        """Score the weights after this number of epochs; return whether to stop."""
        if self.scores and int(epochs) == int(self.scores[-1][0]):
            return False  # within an epoch
        predicted = self._predict(self.chain.with_weights(weights))
        score = float(self.measure(self.y, predicted))
        self.scores.append((epochs, score))
        values = [s for _, s in self.scores]
        if score >= max(values):
            self.best = weights
        n_worse = len(values) - 1 - int(np.argmax(values))
        self.stopped = n_worse >= self.patience
        return self.stopped

    @cached_property
    def _features(self) -> RawFeatures:
        return self.chain.encoder_.entries(self.X)

    @cached_property
    def _data(self) -> Dataset:
        return self.chain.encode(self.X)

    def _predict(self, chain: ChainTagger) -> list[list[Any]]:
        """Return the predicted labels; like ``chain.predict``, but encodes the input only once."""
        tables = chain.fast_tables()
        return (
            chain.decode(self._data)
            if tables is None
            else chain.decode_features(self._features, tables)
        )


def has_span_labels(classes: list[Any]) -> bool:
    """Return whether the labels look like BIO labels, whose score is the F1 of the spans."""
    return all(isinstance(c, str) for c in classes) and any(c.startswith("B-") for c in classes)


def _checked(chain: ChainTagger, X: Any, y: Any) -> tuple[Any, Any]:
    """Return sequences and labels, of a table as well, after comparing their lengths."""
    X, y = read_labeled_table(chain, X, y)
    if len(X) != len(y):
        raise DataError(f"validation has {len(X)} sequences but {len(y)} lists of labels")
    if not len(X):
        raise DataError("validation has no sequences")
    return X, y
