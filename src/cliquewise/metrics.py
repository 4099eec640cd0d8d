"""How good predictions are: tokens, sequences, spans; and scorers.

Truth and prediction are lists of sequences of labels, if nothing else is said. Tokens whose
true label is None (not known) do not count. Those of boxes, rankings and matchings are made in
``output_metrics.py``.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import chain
from typing import Any

import numpy as np
from numpy.typing import NDArray

from cliquewise.data.column_values import plain_cells
from cliquewise.data.frames import Table, grouped
from cliquewise.data.spans import Places, Scheme, SpanLabels, check_scheme
from cliquewise.data.value_index import ValueIndex
from cliquewise.errors import DataError
from cliquewise.output_metrics import average_precision, corloc, iou, pair_f1
from cliquewise.ragged import offsets_of
from cliquewise.tables import frame, text_table

__all__ = [
    "Confusion",
    "SpanScores",
    "average_precision",
    "confusion",
    "corloc",
    "exact_match_accuracy",
    "exact_match_scorer",
    "flat_accuracy_score",
    "flat_classification_report",
    "flat_f1_score",
    "flat_fbeta_score",
    "flat_precision_score",
    "flat_recall_score",
    "hamming_loss",
    "iou",
    "pair_f1",
    "sequence_accuracy_score",
    "span_f1",
    "span_f1_scorer",
    "span_scores",
    "token_accuracy",
    "token_accuracy_scorer",
]

_SPAN_COLUMNS = ("precision", "recall", "f1", "n_true", "n_predicted", "n_correct")


@dataclass(frozen=True)
class SpanScores:
    """Counts of spans, and the measures made of them.

    Parameters
    ----------
    n_true, n_predicted, n_correct : int
        Spans in the truth, in the prediction, and in both.
    by_type : dict of str to SpanScores
        The same for each type of span.
    """

    n_true: int
    n_predicted: int
    n_correct: int
    by_type: dict[str, SpanScores]

    @property
    def precision(self) -> float:
        """Share of the predicted spans that are right (0 if there are none)."""
        return self.n_correct / self.n_predicted if self.n_predicted else 0.0

    @property
    def recall(self) -> float:
        """Share of the true spans that were found (0 if there are none)."""
        return self.n_correct / self.n_true if self.n_true else 0.0

    @property
    def f1(self) -> float:
        """Harmonic mean of precision and recall."""
        total = self.n_true + self.n_predicted
        return 2.0 * self.n_correct / total if total else 0.0

    def _rows(self) -> list[tuple[str, SpanScores]]:
        """The scores of every type, and of all together."""
        return [*self.by_type.items(), ("all", self)]

    def to_frame(self) -> Any:
        """A pandas DataFrame with a row for every type, and one for all."""
        names, rows = zip(*self._rows(), strict=True)
        return frame({c: [getattr(row, c) for row in rows] for c in _SPAN_COLUMNS}, names)

    def _repr_html_(self) -> str:
        from cliquewise.report.notebook import table

        rows = [[n, *(_rounded(getattr(s, c)) for c in _SPAN_COLUMNS)] for n, s in self._rows()]
        return table(["type", *_SPAN_COLUMNS], rows)

    def __str__(self) -> str:
        rows = [
            [name, *(_rounded(getattr(scores, column)) for column in _SPAN_COLUMNS)]
            for name, scores in self._rows()
        ]
        return text_table(["type", *_SPAN_COLUMNS], rows)


@dataclass(frozen=True, eq=False)
class Confusion:
    """Which labels are taken for which: ``matrix[i, j]`` tokens of class i were called j."""

    classes: list[Any]
    matrix: NDArray[np.int64]

    def most_confused(self, k: int = 10) -> list[tuple[Any, Any, int]]:
        """Return the k most frequent errors as (true, predicted, count)."""
        errors = self.matrix - np.diag(np.diag(self.matrix))
        order = np.argsort(-errors, axis=None, kind="stable")[:k]
        pairs = [(int(at) // len(errors), int(at) % len(errors)) for at in order]
        return [
            (self.classes[i], self.classes[j], int(errors[i, j])) for i, j in pairs if errors[i, j]
        ]

    def to_frame(self) -> Any:
        """A pandas DataFrame: a row for every true class, a column for every predicted one."""
        columns = dict(zip(self.classes, self.matrix.T, strict=True))
        return frame(columns, self.classes)

    def _repr_html_(self) -> str:
        from cliquewise.report.notebook import matrix

        return matrix(self.classes, self.matrix.tolist())

    def __str__(self) -> str:
        rows = [[name, *counts] for name, counts in zip(self.classes, self.matrix.tolist())]
        return text_table(["true \\ predicted", *self.classes], rows)


def token_accuracy(y_true: Any, y_pred: Any, sample_weight: Any = None) -> float:
    """Share of the tokens whose label is right, each with the weight of its sequence.

    Examples
    --------
    >>> token_accuracy([["A", "B"], ["A", "A"]], [["A", "A"], ["A", "A"]])
    0.75
    """
    equal, known, offsets = _compare(y_true, y_pred)
    weights = known.astype(np.float64)
    if sample_weight is not None:
        weights *= np.repeat(np.asarray(sample_weight, dtype=np.float64), np.diff(offsets))
    return float(np.average(equal, weights=weights)) if weights.any() else 0.0


def hamming_loss(y_true: Any, y_pred: Any) -> float:
    """Share of the tokens whose label is wrong.

    Examples
    --------
    >>> hamming_loss([["A", "B"]], [["A", "A"]])
    0.5
    """
    equal, known, _ = _compare(y_true, y_pred)
    return float(1.0 - equal[known].mean()) if known.any() else 0.0


def exact_match_accuracy(y_true: Any, y_pred: Any) -> float:
    """Share of the sequences without any wrong label; empty sequences count as right.

    Examples
    --------
    >>> exact_match_accuracy([["A", "B"], ["A"]], [["A", "A"], ["A"]])
    0.5
    """
    equal, known, offsets = _compare(y_true, y_pred)
    if len(offsets) == 1:
        return 0.0
    wrong = offsets_of(~equal & known)
    return float((wrong[offsets[1:]] == wrong[offsets[:-1]]).mean())


def span_scores(y_true: Any, y_pred: Any, scheme: Scheme = "auto", *, by: Any = None) -> SpanScores:
    """Count the spans (chunks, entities) as the CoNLL evaluation script does.

    A span begins at ``B-`` or ``S-``, wherever the type changes, and at an ``I-`` or ``E-``
    that follows ``O``, an ``E-`` or an ``S-``; it is right if its first token, its last
    token and its type are.

    Parameters
    ----------
    y_true, y_pred : list of sequences of str
        Labels such as ``B-NP``; ``O`` is outside of all spans.
    scheme : {"auto", "IOB1", "IOB2", "BIOES"}
        Which prefixes may occur: B and I, or also E and S. ``auto`` takes all of them, and
        BILOU's L and U. The counting is the same.
    by : column, optional
        For labels that are columns of a table, with a row per token: the column that tells the
        sequences apart.

    Examples
    --------
    >>> scores = span_scores([["B-NP", "I-NP", "O"]], [["I-NP", "I-NP", "B-NP"]])
    >>> scores.precision, scores.recall
    (0.5, 1.0)
    """
    check_scheme(scheme)
    if by is not None:
        y_true, y_pred = grouped(by, y_true, y_pred)
    true, pred, offsets = _flatten(y_true, y_pred)
    types: dict[str, int] = {}
    spans = [_spans(labels, offsets, types, scheme) for labels in (true, pred)]
    keys = [
        (start * (len(true) + 1) + end) * max(len(types), 1) + kind for start, end, kind in spans
    ]
    both = np.intersect1d(keys[0], keys[1], assume_unique=True) % max(len(types), 1)
    counts = np.array(
        [np.bincount(k, minlength=len(types)) for k in (spans[0][2], spans[1][2], both)]
    )
    by_type = {
        name: _scores(counts[:, number], {})
        for name, number in sorted(types.items())
        if counts[:, number].any()
    }
    return _scores(counts.sum(axis=1), by_type)


def _scores(counts: NDArray[np.int64], by_type: dict[str, SpanScores]) -> SpanScores:
    n_true, n_predicted, n_correct = counts.tolist()
    return SpanScores(n_true, n_predicted, n_correct, by_type)


def span_f1(y_true: Any, y_pred: Any, scheme: Scheme = "auto", *, by: Any = None) -> float:
    """F1 of the spans; see `span_scores`.

    Examples
    --------
    >>> span_f1([["B-NP", "O", "B-VP"]], [["B-NP", "O", "B-NP"]])
    0.5
    """
    return span_scores(y_true, y_pred, scheme, by=by).f1


def confusion(y_true: Any, y_pred: Any, classes: Sequence[Any] | None = None) -> Confusion:
    """Count which labels are taken for which.

    Parameters
    ----------
    y_true, y_pred : list of sequences of labels
        Truth and prediction.
    classes : sequence, optional
        Order of the rows and columns; by default all labels, sorted.

    Examples
    --------
    >>> confusion([["A", "B", "B"]], [["A", "A", "B"]]).most_confused()
    [('B', 'A', 1)]
    """
    true, pred, _ = _flatten(y_true, y_pred)
    if classes is None:
        found = [label for label in dict.fromkeys(chain(true, pred)) if label is not None]
        try:
            found.sort()
        except TypeError:
            found.sort(key=repr)
        classes = found
    index = {label: number for number, label in enumerate(classes)}
    index[None] = -1
    try:
        a, b = (np.array([index[label] for label in y], dtype=np.int64) for y in (true, pred))
    except KeyError as error:
        raise DataError(f"the label {error.args[0]!r} is not among the classes given") from None
    keep = (a >= 0) & (b >= 0)
    k = len(classes)
    matrix = np.bincount(a[keep] * k + b[keep], minlength=k * k).reshape(k, k)
    return Confusion(list(classes), matrix)


def flat_classification_report(
    y_true: Any, y_pred: Any, labels: Sequence[Any] | None = None, **options: Any
) -> Any:
    """scikit-learn's report of precision, recall and F1 of every label, over all tokens.

    Parameters
    ----------
    y_true, y_pred : list of sequences of labels
        Truth and prediction.
    labels : sequence, optional
        The labels to report, in this order.
    **options
        Those of ``sklearn.metrics.classification_report`` (``digits``, ``output_dict``, ...).

    Examples
    --------
    >>> report = flat_classification_report([["A", "B"]], [["A", "A"]], output_dict=True)
    >>> report["A"]["precision"]
    0.5
    """
    from sklearn.metrics import classification_report

    options = {"zero_division": 0.0, **options}
    return classification_report(*_labeled(y_true, y_pred), labels=labels, **options)


def flat_f1_score(
    y_true: Any, y_pred: Any, labels: Sequence[Any] | None = None, **options: Any
) -> Any:
    """scikit-learn's F1 of labels, over all tokens.

    Parameters
    ----------
    y_true, y_pred : list of sequences of labels
        Truth and prediction.
    labels : sequence, optional
        The labels that count, such as all but ``"O"``.
    **options
        Those of ``sklearn.metrics.f1_score`` (``average``: with more than two labels ``"micro"``,
        ``"macro"``, ``"weighted"`` or None, for one F1 per label).

    See Also
    --------
    span_f1 : of whole spans, as names and chunks are usually scored

    Examples
    --------
    >>> flat_f1_score([["A", "B"], ["O"]], [["A", "A"], ["O"]], labels=["A", "B"], average="micro")
    0.5
    """
    from sklearn.metrics import f1_score

    options = {"zero_division": 0.0, **options}
    return f1_score(*_labeled(y_true, y_pred), labels=labels, **options)


def flat_accuracy_score(y_true: Any, y_pred: Any) -> float:
    """Return the share of tokens with the right label; the same as ``token_accuracy``.

    Provided under the name that sklearn-crfsuite uses.

    Examples
    --------
    >>> flat_accuracy_score([["A", "B"], ["O"]], [["A", "A"], ["O"]])
    0.66...
    """
    return token_accuracy(y_true, y_pred)


def sequence_accuracy_score(y_true: Any, y_pred: Any) -> float:
    """Return the share of sequences whose labels are all right.

    The same as :func:`exact_match_accuracy`, under the name that sklearn-crfsuite uses.

    Examples
    --------
    >>> sequence_accuracy_score([["A", "B"], ["O"]], [["A", "A"], ["O"]])
    0.5
    """
    return exact_match_accuracy(y_true, y_pred)


def flat_precision_score(
    y_true: Any, y_pred: Any, labels: Sequence[Any] | None = None, **options: Any
) -> Any:
    """Return scikit-learn's precision of labels over all tokens.

    Parameters
    ----------
    y_true, y_pred : list of sequences of labels
        Gold and predicted labels; tokens whose gold label is None do not count.
    labels : sequence, optional
        The labels to include, such as all except ``"O"``.
    **options
        Options of ``sklearn.metrics.precision_score``, such as ``average``.

    Examples
    --------
    >>> y_true, y_pred = [["A", "B"], ["O"]], [["A", "A"], ["O"]]
    >>> float(flat_precision_score(y_true, y_pred, labels=["A", "B"], average="micro"))
    0.5
    """
    from sklearn.metrics import precision_score

    options = {"zero_division": 0.0, **options}
    return precision_score(*_labeled(y_true, y_pred), labels=labels, **options)


def flat_recall_score(
    y_true: Any, y_pred: Any, labels: Sequence[Any] | None = None, **options: Any
) -> Any:
    """Return scikit-learn's recall of labels over all tokens.

    Parameters
    ----------
    y_true, y_pred, labels
        As in :func:`flat_precision_score`.
    **options
        Options of ``sklearn.metrics.recall_score``, such as ``average``.

    Examples
    --------
    >>> y_true, y_pred = [["A", "B"], ["O"]], [["A", "A"], ["O"]]
    >>> flat_recall_score(y_true, y_pred, labels=["A", "B"], average=None).tolist()
    [1.0, 0.0]
    """
    from sklearn.metrics import recall_score

    options = {"zero_division": 0.0, **options}
    return recall_score(*_labeled(y_true, y_pred), labels=labels, **options)


def flat_fbeta_score(
    y_true: Any, y_pred: Any, beta: float, labels: Sequence[Any] | None = None, **options: Any
) -> Any:
    """Return scikit-learn's F-beta of labels over all tokens.

    Parameters
    ----------
    y_true, y_pred, labels
        As in :func:`flat_precision_score`.
    beta : float
        Weight of the recall relative to the precision.
    **options
        Options of ``sklearn.metrics.fbeta_score``, such as ``average``.

    Examples
    --------
    >>> y_true, y_pred = [["A", "B"], ["O"]], [["A", "A"], ["O"]]
    >>> float(flat_fbeta_score(y_true, y_pred, beta=2.0, labels=["A"], average="macro"))
    0.83...
    """
    from sklearn.metrics import fbeta_score

    options = {"zero_division": 0.0, **options}
    return fbeta_score(*_labeled(y_true, y_pred), beta=beta, labels=labels, **options)


def _labeled(y_true: Any, y_pred: Any) -> list[tuple[Any, ...]]:
    """Truth and prediction of all tokens whose label is known."""
    true, pred, _ = _flatten(y_true, y_pred)
    known = [(a, b) for a, b in zip(true, pred) if a is not None]
    if not known:
        raise DataError("there are no tokens with a label: there is nothing to report")
    return list(zip(*known))


def token_accuracy_scorer(estimator: Any, X: Any, y: Any) -> float:
    """Scorer for ``cross_val_score`` and ``GridSearchCV``: share of right tokens.

    Examples
    --------
    >>> class Constant:
    ...     def predict(self, X):
    ...         return [["A"] * len(x) for x in X]
    >>> token_accuracy_scorer(Constant(), [[0, 0]], [["A", "B"]])
    0.5
    """
    return token_accuracy(*_both(estimator, X, y))


def exact_match_scorer(estimator: Any, X: Any, y: Any) -> float:
    """Scorer for scikit-learn: share of sequences that are all right.

    Examples
    --------
    >>> class Constant:
    ...     def predict(self, X):
    ...         return [["A"] * len(x) for x in X]
    >>> exact_match_scorer(Constant(), [[0, 0], [0]], [["A", "B"], ["A"]])
    0.5
    """
    return exact_match_accuracy(*_both(estimator, X, y))


def span_f1_scorer(estimator: Any, X: Any, y: Any) -> float:
    """Scorer for scikit-learn: F1 of the spans.

    Examples
    --------
    >>> class Constant:
    ...     def predict(self, X):
    ...         return [["B-X"] * len(x) for x in X]
    >>> span_f1_scorer(Constant(), [[0, 0]], [["B-X", "B-X"]])
    1.0
    """
    return span_f1(*_both(estimator, X, y))


def _both(estimator: Any, X: Any, y: Any) -> tuple[Any, Any]:
    """Truth and prediction, by sequence; of a table, too."""
    predicted, table = estimator.predict(X), Table.of(X)
    if table is None:
        return y, predicted
    y = table.cells(y) if isinstance(y, str) else y
    if estimator.sequence_column is None:
        return plain_cells(y), plain_cells(predicted)
    truth, own = grouped(table.cells(estimator.sequence_column), y, predicted)
    return truth, own


def _flatten(y_true: Any, y_pred: Any) -> tuple[list[Any], list[Any], NDArray[np.int64]]:
    sides = [[s.tolist() if isinstance(s, np.ndarray) else s for s in y] for y in (y_true, y_pred)]
    if len(sides[0]) != len(sides[1]):
        raise DataError(f"{len(sides[0])} true sequences, {len(sides[1])} predicted ones")
    try:
        lengths = [np.fromiter(map(len, y), np.int64, len(y)) for y in sides]
        if any(isinstance(s, str) for s in sides[0]):
            raise TypeError
    except TypeError:
        raise DataError(
            "labels must be a list of sequences; wrap a single sequence: [y] (for columns of a "
            "table: span_scores(y_true, y_pred, by=table[...]), or a scorer)"
        ) from None
    different = np.flatnonzero(lengths[0] != lengths[1])
    if len(different):
        i = int(different[0])
        raise DataError(
            f"example {i} has {lengths[0][i]} true labels but {lengths[1][i]} predicted ones"
        )
    offsets = offsets_of(lengths[0])
    return list(chain.from_iterable(sides[0])), list(chain.from_iterable(sides[1])), offsets


def _compare(
    y_true: Any, y_pred: Any
) -> tuple[NDArray[np.bool_], NDArray[np.bool_], NDArray[np.int64]]:
    """For each token: are the labels equal, is the true one known."""
    true, pred, offsets = _flatten(y_true, y_pred)
    index = ValueIndex()
    a, b = index.numbers(true), index.numbers(pred)
    return a == b, a != index.get(None, -1), offsets


def _spans(
    labels: list[Any], offsets: NDArray[np.int64], types: dict[str, int], scheme: str
) -> Places:
    """All spans of the labels; `types` is extended."""
    index = ValueIndex()
    ids = index.numbers(labels)
    return SpanLabels.of(list(index), scheme, types).read(ids, offsets)


def _rounded(cell: float) -> str:
    return f"{cell:.4f}" if isinstance(cell, float) else str(cell)


def __dir__() -> list[str]:
    return __all__
