"""Plots of the weights of a tagger and of the quality of its predictions."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray
from sklearn.utils.validation import check_is_fitted

from cliquewise.errors import DataError
from cliquewise.estimators._report_labels import confused_labels, shown_transitions
from cliquewise.estimators._report_measures import CORRECT
from cliquewise.estimators._report_measures import calibration as bins_of
from cliquewise.estimators.tagger.tagged_text import TaggedText
from cliquewise.metrics import Confusion
from cliquewise.metrics import confusion as confusion_of
from cliquewise.plot.style import COLORS, NEGATIVE, POSITIVE, axes, finish, look, matrix, short
from cliquewise.ragged import Floats


def transitions(tagger: Any, *, ax: Any = None) -> Any:
    """Plot the transition weights of a tagger, from a label (row) to the next one (column).

    Transitions that are impossible are crossed out; of many labels those with the largest
    weights are shown.

    Parameters
    ----------
    tagger : fitted SequenceTagger
    ax : matplotlib axes, optional

    Examples
    --------
    >>> from cliquewise import SequenceTagger, plot
    >>> tagger = SequenceTagger(random_state=0).fit([[["a"], ["b"]]] * 3, [["A", "B"]] * 3)
    >>> ax = plot.transitions(tagger)
    >>> [label.get_text() for label in ax.get_yticklabels()]
    ['A', 'B']
    """
    check_is_fitted(tagger, "coef_")
    used, values, note = shown_transitions(tagger)
    names = [tagger.classes_[c] for c in used]
    most = float(np.nanmax(np.abs(values), initial=0.0)) or 1.0
    ax = matrix(ax, values, names, (-most, most), "weight", "{:z.1f}", values)
    for row, column in np.argwhere(np.isnan(values)):
        ax.plot(column, row, marker="x", color="0.45", markersize=5, linestyle="none")
    ax.set(xlabel="to", ylabel="from", title=f"Transitions{note}" if note else "")
    return ax


def weights(tagger: Any, label: Any = None, n: int = 15, *, sign: int = 0, ax: Any = None) -> Any:
    """Plot the largest weights of one label, or of all labels, as bars.

    Parameters
    ----------
    tagger : fitted SequenceTagger
    label : optional
        One of ``classes_``; by default the largest of all labels, which are then named.
    n : int, default=15
        How many.
    sign : {0, 1, -1}, default=0
        Only positive weights (1), only negative ones (-1), or both.
    ax : matplotlib axes, optional

    Examples
    --------
    >>> from cliquewise import SequenceTagger, plot
    >>> tagger = SequenceTagger(random_state=0).fit([[["a"], ["b"]]] * 3, [["A", "B"]] * 3)
    >>> len(plot.weights(tagger, "A", n=2).patches)
    2
    """
    found = tagger.top_features(label, n, sign=sign)
    items = [
        (short(name) if label is not None else f"{short(own)}: {short(name)}", weight)
        for own, listed in found.items()
        for name, weight in listed
    ]
    items = sorted(items, key=lambda item: -abs(item[1]))[:n]
    ax = axes(ax, 5.6, 0.9 + 0.26 * max(len(items), 3))
    values = [weight for _, weight in items]
    colors = [POSITIVE if weight > 0 else NEGATIVE for weight in values]
    hatches = ["" if weight > 0 else "///" for weight in values]
    places = range(len(items))
    ax.barh(places, values, 0.72, color=colors, edgecolor="white", hatch=hatches, linewidth=0)
    ax.set_yticks(places, [name for name, _ in items])
    ax.invert_yaxis()
    ax.axvline(0, color="0.2", linewidth=0.8)
    finish(ax, "weight" if label is None else f"weight for {short(label)}", "")
    ax.grid(visible=False, axis="y")
    return ax


def confusion(y_true: Any, y_pred: Any = None, *, ax: Any = None) -> Any:
    """Plot a confusion matrix: colors are shares of a row, numbers are counts.

    Parameters
    ----------
    y_true : list of sequences of labels, or Confusion
    y_pred : list of sequences of labels
        Not needed with a :class:`~cliquewise.metrics.Confusion`.
    ax : matplotlib axes, optional

    Examples
    --------
    >>> from cliquewise import plot
    >>> ax = plot.confusion([["A", "B", "B"]], [["A", "A", "B"]])
    >>> [text.get_text() for text in ax.texts]
    ['1', '0', '1', '1']
    """
    found = y_true if isinstance(y_true, Confusion) else confusion_of(y_true, y_pred)
    used, note = confused_labels(found.matrix)
    counts = found.matrix[np.ix_(used, used)]
    totals = np.maximum(found.matrix[used].sum(axis=1, keepdims=True), 1)
    names = [found.classes[c] for c in used]
    what = "share of the true label"
    ax = matrix(ax, counts / totals, names, (0.0, 1.0), what, "{:,.0f}", counts)
    ax.set(xlabel="predicted", ylabel="true", title=f"Confusions{note}" if note else "")
    return ax


def calibration(
    tagger: Any, X: Any, y: Any = None, *, spans: bool = False, n_bins: int = 10, ax: Any = None
) -> Any:
    """Plot a reliability diagram: the accuracy of predictions by their probability.

    Parameters
    ----------
    tagger : fitted SequenceTagger with probabilities
        Or, without ``y``, an array of probabilities of any predictions.
    X, y
        The sequences and their labels; or, without ``y``, which of those predictions are right.
    spans : bool, default=False
        Of predicted spans rather than of tokens.
    n_bins : int, default=10
    ax : matplotlib axes, optional

    Examples
    --------
    >>> import numpy as np
    >>> from cliquewise import plot
    >>> ax = plot.calibration(np.array([0.75, 0.75, 0.25]), np.array([True, False, False]))
    >>> ax.get_title()
    'expected calibration error 0.250, 3 predictions'
    """
    if y is None:
        what, p, right = "predictions", np.asarray(tagger, dtype=np.float64), np.asarray(X, bool)
        if p.ndim != 1 or p.shape != right.shape or not ((p >= 0) & (p <= 1)).all():
            raise DataError(
                "give a tagger with X and y, or one probability and one truth per prediction"
            )
    else:
        what, p, right = _predictions(TaggedText(tagger.chain_, X, y), spans)
    bins, error = bins_of(p, right, n_bins)
    means, shares, counts = np.array(bins).reshape(-1, 3).T
    ax = axes(ax, 4.2, 4.2)
    ax.plot([0, 1], [0, 1], color="0.5", linewidth=1, linestyle=(0, (4, 3)), label="calibrated")
    ax.plot(means, shares, **look(0) | {"marker": None}, label="observed")
    sizes = 20 + 180 * counts / max(counts.max(initial=1), 1)
    ax.scatter(means, shares, s=sizes, color=COLORS[0], edgecolor="white", zorder=3, clip_on=False)
    ax.set(xlim=(0, 1), ylim=(0, 1), aspect="equal")
    ax.set_title(f"expected calibration error {error:.3f}, {len(p):,} {what}", fontsize="medium")
    ax.legend(frameon=False, fontsize="small", loc="upper left")
    return finish(ax, "probability", "share that is right")


def _predictions(text: TaggedText, spans: bool) -> tuple[str, Floats, NDArray[np.bool_]]:
    """Return the probabilities of tokens or spans, and which of them are correct."""
    if not text.has_probabilities:
        raise DataError("this loss gives scores, not probabilities: there is nothing to check")
    if not spans:
        known = text.is_known
        return "tokens", text.probability[known], ~text.is_wrong[known]
    if text.spans is None:
        raise DataError("the labels name no spans (B-X, I-X, O): leave spans out")
    at = np.isfinite(text.span_probability)
    return "spans", text.span_probability[at], text.spans.own[at, 3] == CORRECT
