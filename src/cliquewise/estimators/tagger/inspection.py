"""Look inside a fitted chain: marked-up predictions, explanations, and the largest weights.

The public functions take a :class:`ChainTagger`; they are methods of
:class:`~cliquewise.SequenceTagger`.
"""

from __future__ import annotations

from typing import Any, TypedDict

import numpy as np
from numpy.typing import NDArray

from cliquewise.errors import DataError
from cliquewise.estimators.tagger.chain_tagger import ChainTagger
from cliquewise.estimators.tagger.tables import one_sequence
from cliquewise.models.chain import ChainModel
from cliquewise.ragged import Floats, Ints


class Explanation(TypedDict):
    """Why a token has its tag; see :func:`explain`."""

    tag: Any
    probability: float | None
    features: list[tuple[str, float]]
    transition: float


def explain(chain: ChainTagger, x: Any, n: int = 5) -> list[Explanation]:
    """Return the features that contribute most to the predicted tags of one sequence.

    Parameters
    ----------
    x : sequence
    n : int, default=5
        Number of features per token.

    Returns
    -------
    list of dicts, one per token
        ``tag``, ``probability`` (None with a hinge loss), ``features`` (the ``n`` largest
        contributions to the tag's score, as (name, contribution)) and ``transition`` (the score of
        the transition from the previous tag, including attributes of the token pair).

    Examples
    --------
    >>> from cliquewise import SequenceTagger
    >>> X, y = [[["w=the"], ["w=dog"]], [["w=a"], ["w=cat"]]], [["D", "N"], ["D", "N"]]
    >>> first, _ = SequenceTagger(random_state=0).fit(X, y).explain(X[0], n=2)
    >>> first["tag"], [name for name, _ in first["features"]]
    ('D', ['(begin)', 'w=the'])
    """
    x = one_sequence(chain, x)
    tags = chain.predict([x])[0]
    marginals = chain.predict_marginals([x])[0] if chain.has_probabilities else None
    model = chain.model_
    data = chain.encode([x])
    form = model.form(data, learn=False)
    chains, (_, trans) = form.chains, form.potentials(chain.prepared.packed)
    if data.edges is None:
        trans = np.broadcast_to(trans, (len(tags), *model.edge_free.shape))
    names = feature_names(chain)
    index = {c: i for i, c in enumerate(chain.classes_)}
    out: list[Explanation] = []
    for t, tag in enumerate(tags):
        y = index[tag]
        span = slice(int(chains.indptr[t]), int(chains.indptr[t + 1]))
        ones = np.ones(span.stop - span.start)
        values = chains.values[span] if len(chains.values) else ones
        parts = [
            (names[a], float(v * emission_weight(model, chain.coef_, a, y)))
            for a, v in zip(chains.indices[span].tolist(), values.tolist(), strict=True)
        ]
        parts.sort(key=lambda item: -abs(item[1]))
        out.append(
            {
                "tag": tag,
                "probability": None if marginals is None else float(marginals[t, y]),
                "features": parts[:n],
                "transition": float(trans[t - 1, index[tags[t - 1]], y]) if t else 0.0,
            }
        )
    return out


def top_features(
    chain: ChainTagger, label: Any = None, n: int = 20, *, sign: int = 0
) -> dict[Any, list[tuple[str, float]]]:
    """Return the features with the largest absolute weights, for one label or for each.

    Parameters
    ----------
    label : optional
        One of ``classes_``; by default all.
    n : int, default=20
        Number of features per label.
    sign : {0, 1, -1}, default=0
        Only positive weights (1), only negative weights (-1), or both.

    Returns
    -------
    dict of label to list of (name, weight)
        In decreasing order of the absolute weight; zero weights are left out.

    Examples
    --------
    >>> from cliquewise import SequenceTagger
    >>> X, y = [[["w=the"], ["w=dog"]], [["w=a"], ["w=cat"]]], [["D", "N"], ["D", "N"]]
    >>> tagger = SequenceTagger(random_state=0).fit(X, y)
    >>> [name for name, _ in tagger.top_features("N", 1)["N"]]
    ['(end)']
    """
    if label is not None and label not in chain.classes_:
        known = ", ".join(map(repr, chain.classes_[:10]))
        raise DataError(f"{label!r} is not a class; the classes are {known}")
    names, out = feature_names(chain), {}
    for y, name in enumerate(chain.classes_):
        if label is not None and name != label:
            continue
        attributes, weights = _column(chain.model_, chain.coef_, y)
        best = _largest(weights, n, sign)
        out[name] = [(names[attributes[i]], float(weights[i])) for i in best if weights[i]]
    return out


def top_transitions(
    chain: ChainTagger, n: int | None = None, *, sign: int = 0
) -> list[tuple[Any, Any, float]]:
    """Return the transitions with the largest absolute weights, as (from, to, weight).

    Parameters
    ----------
    n : int, optional
        Number of transitions; by default all that are allowed and have a weight.
    sign : {0, 1, -1}, default=0
        Only positive weights (1), only negative weights (-1), or both.

    Examples
    --------
    >>> from cliquewise import SequenceTagger
    >>> X, y = [[["w=the"], ["w=dog"]], [["w=a"], ["w=cat"]]], [["D", "N"], ["D", "N"]]
    >>> SequenceTagger(random_state=0).fit(X, y).top_transitions(1, sign=1)
    [('D', 'N', 0...)]
    """
    pairs, weights = _transitions(chain)
    best = _largest(weights, n, sign)
    classes = chain.classes_
    return [(classes[pairs[i, 0]], classes[pairs[i, 1]], float(weights[i])) for i in best]


def state_features(chain: ChainTagger) -> dict[tuple[str, Any], float]:
    """Return the weight of every (attribute, label) whose weight is not zero."""
    names = feature_names(chain)
    out = {}
    for y, label in enumerate(chain.classes_):
        attributes, weights = _column(chain.model_, chain.coef_, y)
        for i in np.flatnonzero(weights).tolist():
            out[names[attributes[i]], label] = float(weights[i])
    return out


def transition_features(chain: ChainTagger) -> dict[tuple[Any, Any], float]:
    """Return the weight of every (label, next label) that is allowed and has a weight."""
    pairs, weights = _transitions(chain)
    classes = chain.classes_
    return {
        (classes[a], classes[b]): w
        for (a, b), w in zip(pairs.tolist(), weights.tolist(), strict=True)
    }


def feature_names(chain: ChainTagger) -> list[str]:
    """Return the names of the attributes, in the order of the weights.

    The constant attributes ``(intercept)``, ``(begin)`` and ``(end)`` come last.
    """
    model = chain.model_
    constants = ["(intercept)"] * model.intercept + ["(begin)", "(end)"] * model.boundaries
    return chain.encoder_.names() + constants


def emission_weight(model: ChainModel, weights: Floats, attribute: int, label: int) -> float:
    """Return the weight of an (attribute, label) pair; 0.0 for a pair without a weight."""
    if not len(model.pair_start):
        return float(weights[attribute * model.n_labels + label])
    begin, end = int(model.pair_start[attribute]), int(model.pair_start[attribute + 1])
    at = begin + int(np.searchsorted(model.pair_label[begin:end], label))
    return float(weights[at]) if at < end and model.pair_label[at] == label else 0.0


def _transitions(chain: ChainTagger) -> tuple[Ints, Floats]:
    """Return the transitions that are allowed and have a weight, (n, 2), and the weights."""
    model = chain.model_
    free = model.edge_free & (model.edge_allowed if len(model.edge_allowed) else True)
    return np.argwhere(free), model.transitions(chain.coef_)[free]


def _largest(weights: Floats, n: int | None, sign: int) -> Ints:
    """Return the indices of the largest absolute weights, of both signs or of one."""
    if sign not in (0, 1, -1):
        raise DataError(f"sign must be 1 (positive), -1 (negative) or 0 (both), not {sign!r}")
    order = np.argsort(-np.abs(weights), kind="stable")
    largest: NDArray[np.int64] = (order if sign == 0 else order[sign * weights[order] > 0])[:n]
    return largest


def _column(model: ChainModel, weights: Floats, label: int) -> tuple[Ints, Floats]:
    """Return the attributes that have a weight for a label, and the weights."""
    if not len(model.pair_start):
        return np.arange(model.n_attributes), model.emissions(weights)[:, label]
    at = np.flatnonzero(model.pair_label == label)
    return np.searchsorted(model.pair_start, at, side="right") - 1, weights[at]
