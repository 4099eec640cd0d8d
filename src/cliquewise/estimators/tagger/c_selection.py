"""Choose ``C`` by a warm-started regularization path that is scored on held-out sequences."""

from __future__ import annotations

import math
import warnings
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from sklearn.base import clone
from sklearn.exceptions import ConvergenceWarning

from cliquewise.data.dataset import Dataset
from cliquewise.errors import DataError
from cliquewise.estimators._report_measures import Spans, span_counts
from cliquewise.estimators._stored import Header
from cliquewise.estimators.parameters import check_integer
from cliquewise.estimators.tagger.chain_tagger import ChainTagger
from cliquewise.estimators.tagger.early_stopping import has_span_labels
from cliquewise.estimators.tagger.incremental import WarmStart, partial_warm_start
from cliquewise.estimators.tagger.training_record import Examples, TrainingRecord
from cliquewise.ragged import Floats, Ints

if TYPE_CHECKING:
    from cliquewise.estimators.tagger.sequence_tagger import SequenceTagger

#: Values of ``C``, in the order of the path: about two per factor of ten.
VALUES = (0.03, 0.1, 0.3, 1.0, 3.0, 10.0, 30.0, 100.0)
#: Share of the sequences that is held out.
HELD_OUT = 0.2
#: Fewest sequences of which a share can be held out and compared.
LEAST_SEQUENCES = 10
#: The path ends after this number of values without a better score.
PATIENCE = 2


class PathPoint(NamedTuple):
    """One value of ``C``, trained on part of the sequences and scored on the others.

    Attributes
    ----------
    C : float
    score : float
        F1 of the spans, or token accuracy, on the held-out sequences.
    standard_error : float
        Of the score.
    difference_error : float
        Standard error of the difference to the best score, from the same sequences.
    gap : float
        The relative duality gap of the training; NaN if it has no certificate.
    n_nonzero : int
        Number of nonzero weights.
    epochs : int
    """

    C: float
    score: float
    standard_error: float
    difference_error: float
    gap: float
    n_nonzero: int
    epochs: int


@dataclass(frozen=True)
class CSelection:
    """The chosen ``C``, the measure that was compared, and the path."""

    C: float
    measure: str
    path: list[PathPoint]

    def to_header(self) -> Header:
        """Return the selection in the form that files hold."""
        path = [[v if math.isfinite(v) else None for v in point] for point in self.path]
        return {"C": self.C, "measure": self.measure, "path": path}

    @classmethod
    def from_header(cls, given: Any) -> CSelection:
        """Return the selection in a file; raise a DataError if it is damaged."""
        path = []
        for C, score, error, difference, gap, n_nonzero, epochs in given["path"]:
            count = "a count on its path of C"
            path.append(
                PathPoint(
                    _number(C), _number(score), _number(error), _number(difference),
                    math.nan if gap is None else _number(gap),
                    check_integer(n_nonzero, count), check_integer(epochs, count),
                )
            )  # fmt: skip
        if given["measure"] not in ("span F1", "token accuracy"):
            raise DataError("its measure for the choice of C is unknown")
        chosen = _number(given["C"])
        if chosen not in [point.C for point in path] or not 0 < chosen < math.inf:
            raise DataError("its chosen C is not on its path")
        return cls(chosen, given["measure"], path)


def select_C(tagger: SequenceTagger, examples: Examples) -> tuple[CSelection, WarmStart]:
    """Choose ``C`` by the one-standard-error rule; also return a start for the final training.

    A fifth of the sequences, chosen at random by ``random_state``, is held out. The tagger is
    trained on the others with increasing ``C``, each time from the previous state, until the score
    on the held-out sequences stops improving. The choice is the smallest ``C`` (the strongest
    regularization) whose score is within one standard error of the best one. That is the standard
    error of the difference between both scores, because they are of the same sequences.
    """
    data = examples.data
    assert isinstance(data, Dataset)
    if len(data) < LEAST_SEQUENCES:
        raise DataError(
            f'C="auto" holds out sequences, and {len(data)} are too few (at least '
            f"{LEAST_SEQUENCES}): set C to a number"
        )
    order = np.random.default_rng(tagger.random_state).permutation(len(data))
    n_held = max(2, round(HELD_OUT * len(data)))
    held, kept = np.sort(order[:n_held]), np.sort(order[n_held:])
    part = replace(examples, data=data.subset(kept), partial=_rows(examples, kept))
    use_spans = examples.partial is None and has_span_labels(examples.labels.classes)
    points: list[PathPoint] = []
    counts: list[Floats] = []
    start: WarmStart = None
    best_state: Any = None
    best = 0
    for C in VALUES:
        point = _train(tagger, C, part, start)
        assert isinstance(point._record, TrainingRecord)
        start = point._record.state
        counts.append(_held_out_counts(point.chain_, data.subset(held), use_spans))
        points.append(_path_point(C, point, counts[-1]))
        if points[-1].score > points[best].score or len(points) == 1:
            best, best_state = len(points) - 1, start
        if len(points) - 1 - best >= PATIENCE:
            break
    residuals = [_residuals(c) for c in counts]
    points = [
        p._replace(difference_error=_standard_error(r - residuals[best]))
        for p, r in zip(points, residuals, strict=True)
    ]
    chosen = next(p for p in points if points[best].score - p.score <= p.difference_error)
    selection = CSelection(chosen.C, "span F1" if use_spans else "token accuracy", points)
    return selection, partial_warm_start(best_state, kept, np.arange(len(kept)))


def _train(tagger: SequenceTagger, C: float, part: Examples, start: WarmStart) -> SequenceTagger:
    """Return a copy of the tagger that is trained with ``C`` on part of the examples."""
    point: SequenceTagger = clone(tagger)
    point.set_params(C=C, checkpoint=None, resume=False, verbose=0)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)  # the path records every gap
        point._fit_examples(part, start)
    if point.stop_reason_ == "interrupted":
        raise KeyboardInterrupt
    return point


def _path_point(C: float, tagger: SequenceTagger, counts: Floats) -> PathPoint:
    certificate = tagger.certificate_
    gap = math.nan if certificate.status == "none" else certificate.gap
    error = _standard_error(_residuals(counts))
    return PathPoint(C, _score(counts), error, 0.0, gap, tagger.n_nonzero_, tagger.n_iter_)


def _rows(examples: Examples, chosen: Ints) -> Any:
    """Return the mask of partial labels of some sequences."""
    if examples.partial is None:
        return None
    starts, ends = examples.data.offsets[chosen], examples.data.offsets[chosen + 1]
    return np.concatenate([examples.partial[a:b] for a, b in zip(starts, ends, strict=True)])


def _held_out_counts(chain: ChainTagger, data: Dataset, use_spans: bool) -> Floats:
    """Return numerator and denominator of the score for every sequence, (n, 2)."""
    assert data.labels is not None
    n, classes = len(data), chain.classes_
    predicted = [label for labels in chain.decode(data) for label in labels]
    if use_spans:
        truth = [classes[i] for i in data.labels.tolist()]
        spans = Spans.of(truth, predicted, data.offsets)
        assert spans is not None
        true, own, right = span_counts(spans, data.offsets).sum(axis=1).T
        return np.stack([2.0 * right, 1.0 * (true + own)], axis=1)
    index = {c: i for i, c in enumerate(classes)}
    numbers = np.array([index[label] for label in predicted], dtype=np.int64)
    sequence = np.repeat(np.arange(n), data.lengths)
    known = data.labels >= 0
    right = np.bincount(sequence, known & (numbers == data.labels), n)
    return np.stack([right, np.bincount(sequence, known, n)], axis=1)


def _score(counts: Floats) -> float:
    """Return the ratio of the sums."""
    return float(counts[:, 0].sum() / max(counts[:, 1].sum(), 1.0))


def _residuals(counts: Floats) -> Floats:
    """Return the contribution of every sequence to the error of the ratio (delta method)."""
    residuals: Floats = (counts[:, 0] - _score(counts) * counts[:, 1]) / max(
        counts[:, 1].mean(), 1e-300
    )
    return residuals


def _standard_error(residuals: Floats) -> float:
    """Return the standard error of a mean."""
    return float(residuals.std(ddof=1) / math.sqrt(len(residuals)))


def _number(value: Any) -> float:
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise DataError("its path of C holds values that are not numbers")
    return float(value)
