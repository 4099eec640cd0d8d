"""Looking inside a fitted chain: marked-up answers, what speaks for a tag, the largest weights."""

from __future__ import annotations

from typing import Any

import numpy as np
from sklearn.utils.validation import check_is_fitted

from cliquewise.errors import DataError
from cliquewise.estimators.tagger.spans import SpanPrediction
from cliquewise.estimators.tagger.tables import one_sequence
from cliquewise.models.chain import ChainModel
from cliquewise.ragged import Floats
from cliquewise.report.notebook import MarkedText


class ChainInspection(SpanPrediction):
    """Names and sizes of the weights of a fitted tagger."""

    intercept: bool
    boundary_weights: bool

    def show(self, X: Any, *, tokens: Any = None) -> MarkedText:
        """Predictions as marked-up sentences: boxes in a notebook, brackets in a terminal.

        Parameters
        ----------
        X : sequences, as in :meth:`fit`
        tokens : list of lists of str, optional
            What to call the tokens; by default the first column, or a feature that names a word.

        Examples
        --------
        >>> from cliquewise import SequenceTagger
        >>> X = [[["w=Anna"], ["w=sees"], ["w=Rome"]]] * 3
        >>> tagger = SequenceTagger(random_state=0).fit(X, [["B-PER", "O", "B-LOC"]] * 3)
        >>> tagger.show(X[:1])
        [Anna]PER:0... sees [Rome]LOC:0...
        """
        from cliquewise.estimators.tagger.tagged_text import marked

        return marked(self, X, tokens)

    def explain(self, x: Any, n: int = 5) -> list[dict[str, Any]]:
        """Which features speak for the tags of one sequence.

        Returns
        -------
        list of dicts, one per token
            ``tag``, ``probability`` (None with the hinge loss), ``features`` (the ``n`` largest
            contributions for the tag, as (name, contribution)) and ``transition`` (from the tag
            before it, with what attributes of the pair add).
        """
        x = one_sequence(self, x)
        tags = self.predict([x])[0]
        likely = self.predict_marginals([x])[0] if self.has_probabilities else None
        model = self.model_
        data = self._encode([x])
        form = model.form(data, learn=False)
        chains, (_, trans) = form.chains, form.potentials(self._packed)
        if data.edges is None:
            trans = np.broadcast_to(trans, (len(tags), *model.edge_free.shape))
        names = self.feature_names()
        emissions = _Emissions(model, self.coef_)
        index = {c: i for i, c in enumerate(self.classes_)}
        out = []
        for t, tag in enumerate(tags):
            y = index[tag]
            span = slice(int(chains.indptr[t]), int(chains.indptr[t + 1]))
            ones = np.ones(span.stop - span.start)
            values = chains.values[span] if len(chains.values) else ones
            parts = [
                (names[a], float(v * emissions.weight(a, y)))
                for a, v in zip(chains.indices[span].tolist(), values.tolist(), strict=True)
            ]
            parts.sort(key=lambda item: -abs(item[1]))
            out.append(
                {
                    "tag": tag,
                    "probability": None if likely is None else float(likely[t, y]),
                    "features": parts[:n],
                    "transition": float(trans[t - 1, index[tags[t - 1]], y]) if t else 0.0,
                }
            )
        return out

    def top_features(
        self, label: Any = None, n: int = 20, *, sign: int = 0
    ) -> dict[Any, list[tuple[str, float]]]:
        """The features with the largest weights, for one label or for each.

        Parameters
        ----------
        label : optional
            One of ``classes_``.
        n : int, default=20
            How many per label.
        sign : {0, 1, -1}, default=0
            Only positive weights (1), only negative ones (-1), or both.

        Returns
        -------
        dict of label to list of (name, weight)
            By size; weights that are zero are left out.
        """
        check_is_fitted(self, "coef_")
        if label is not None and label not in self.classes_:
            known = ", ".join(map(repr, self.classes_[:10]))
            raise DataError(f"{label!r} is no class; the classes are {known}")
        names, model, w = self.feature_names(), self.model_, self.coef_
        out = {}
        for y, name in enumerate(self.classes_):
            if label is not None and name != label:
                continue
            attributes, weights = _column(model, w, y)
            best = _largest(weights, n, sign)
            out[name] = [(names[attributes[i]], float(weights[i])) for i in best if weights[i]]
        return out

    def top_transitions(
        self, n: int | None = None, *, sign: int = 0
    ) -> list[tuple[Any, Any, float]]:
        """The transitions with the largest weights, as (from, to, weight).

        Parameters
        ----------
        n : int, optional
            How many; by default all that are possible and carry a weight.
        sign : {0, 1, -1}, default=0
            Only likely ones, with a weight above zero (1), only unlikely ones (-1), or both.
        """
        pairs, weights = self._transitions()
        best = _largest(weights, n, sign)
        return [(*self._names(*pairs[i]), float(weights[i])) for i in best]

    @property
    def state_features_(self) -> dict[tuple[str, Any], float]:
        """Weight of every (attribute, label) whose weight is not zero."""
        check_is_fitted(self, "coef_")
        names = self.feature_names()
        out = {}
        for y, label in enumerate(self.classes_):
            attributes, weights = _column(self.model_, self.coef_, y)
            for i in np.flatnonzero(weights).tolist():
                out[names[attributes[i]], label] = float(weights[i])
        return out

    @property
    def transition_features_(self) -> dict[tuple[Any, Any], float]:
        """Weight of every (label, next label) that is possible and carries a weight."""
        pairs, weights = self._transitions()
        return {self._names(*p): w for p, w in zip(pairs, weights.tolist(), strict=True)}

    def _transitions(self) -> tuple[Any, Floats]:
        """The transitions that are possible and carry a weight, and the weights."""
        check_is_fitted(self, "coef_")
        model = self.model_
        free = model.edge_free & (model.edge_allowed if len(model.edge_allowed) else True)
        return np.argwhere(free), model.transitions(self.coef_)[free]

    def _names(self, a: int, b: int) -> tuple[Any, Any]:
        return self.classes_[a], self.classes_[b]

    def feature_names(self) -> list[str]:
        """Names of the attributes, in the order of the weights."""
        check_is_fitted(self, "coef_")
        names = self.encoder_.names()
        extra = (["(intercept)"] if self.intercept else []) + (
            ["(begin)", "(end)"] if self.boundary_weights else []
        )
        return names + extra


def _largest(weights: Floats, n: int | None, sign: int) -> Any:
    """Where the largest weights are, of both signs or of one."""
    if sign not in (0, 1, -1):
        raise DataError(f"sign is 1 (positive weights), -1 (negative ones) or 0, not {sign!r}")
    order = np.argsort(-np.abs(weights), kind="stable")
    return (order if sign == 0 else order[sign * weights[order] > 0])[:n]


def _column(model: ChainModel, w: Floats, label: int) -> tuple[Any, Floats]:
    """The attributes that have a weight for a label, and the weights."""
    if not len(model.pair_start):
        return np.arange(model.n_attributes), model.emissions(w)[:, label]
    at = np.flatnonzero(model.pair_label == label)
    return np.searchsorted(model.pair_start, at, side="right") - 1, w[at]


class _Emissions:
    """Look up one emission weight, whatever the layout."""

    def __init__(self, model: ChainModel, w: Floats):
        self.model, self.w = model, w

    def weight(self, attribute: int, label: int) -> float:
        m = self.model
        if not len(m.pair_start):
            return float(self.w[attribute * m.n_labels + label])
        begin, end = int(m.pair_start[attribute]), int(m.pair_start[attribute + 1])
        at = begin + int(np.searchsorted(m.pair_label[begin:end], label))
        return float(self.w[at]) if at < end and m.pair_label[at] == label else 0.0
