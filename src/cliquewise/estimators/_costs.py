"""Costs of wrong labels, by label and by token or node."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from cliquewise.data.dataset import MOST_COST, token_place
from cliquewise.errors import DataError, UnsupportedError
from cliquewise.estimators._inputs import listed
from cliquewise.ragged import Floats

#: The name of the loss that is a sum over tokens.
PSEUDO = "pseudo_likelihood"


def cost_matrix(cost: Any, classes: Sequence[Any]) -> Floats:
    """Return the table ``cost[a, b]`` of predicting class ``b`` if ``a`` is true.

    Parameters
    ----------
    cost : None, dict or (K, K) array
        The keys of a dict are pairs (true, predicted), or true labels for all wrong predictions;
        all other costs are 1.
    classes : sequence

    Examples
    --------
    >>> cost_matrix({"B": 3, ("O", "B"): 0.5}, ["B", "I", "O"]).tolist()
    [[0.0, 3.0, 3.0], [1.0, 0.0, 1.0], [0.5, 1.0, 0.0]]
    """
    k = len(classes)
    if cost is None or isinstance(cost, dict):
        table = 1.0 - np.eye(k)
        pairs = [_pair(key, value, list(classes)) for key, value in (cost or {}).items()]
        for true, others, number in sorted(pairs, key=lambda pair: len(pair[1]), reverse=True):
            table[true, others] = number
    else:
        try:
            table = np.array(cost, dtype=np.float64)
        except (TypeError, ValueError) as error:
            raise DataError(f"cost must be a dict or a table of numbers ({error})") from None
        if table.shape != (k, k):
            raise DataError(
                f"cost has shape {table.shape}; with the classes {list(classes)!r:.60} it must be "
                f"{(k, k)}: a row per true class"
            )
    if not ((table >= 0) & (table <= MOST_COST)).all():
        raise DataError(f"cost must be numbers between 0 and {MOST_COST:g}")
    if np.diagonal(table).any():
        raise DataError("the diagonal of cost must be 0: predicting the true label costs nothing")
    return table


def _pair(key: Any, value: Any, classes: list[Any]) -> tuple[int, list[int], float]:
    """Return the true class, the predicted classes and the cost of an entry of a dict."""
    pair = (key,) if key in classes else key
    known = isinstance(pair, tuple) and 1 <= len(pair) <= 2 and all(c in classes for c in pair)
    if not known:
        raise DataError(
            f"cost names {key!r}; its keys are labels or pairs (true, predicted) of {classes!r:.60}"
        )
    try:
        number = float(value)
    except (TypeError, ValueError):
        raise DataError(f"cost of {key!r} is {value!r:.40}, which is not a number") from None
    true, others = classes.index(pair[0]), [classes.index(c) for c in pair[1:]]
    return true, others or [j for j in range(len(classes)) if j != true], number


def token_weights(given: Any, offsets: NDArray[Any], name: str = "token_weight") -> Floats:
    """Return one nonnegative number per token (or node) from a list per example."""
    try:
        parts = [np.asarray(part, dtype=np.float64) for part in listed(given, name)]
    except (TypeError, ValueError) as error:
        raise DataError(f"{name} must be a list of numbers per example ({error})") from None
    sizes = np.diff(offsets)
    if len(parts) != len(sizes):
        raise DataError(f"{name} has {len(parts)} lists for {len(sizes)} examples")
    for i, (part, size) in enumerate(zip(parts, sizes.tolist(), strict=True)):
        if part.shape != (size,):
            raise DataError(
                f"example {i} has {size} labels; its {name} must be as many numbers, not "
                f"{part.shape}"
            )
    flat = np.concatenate([np.empty(0), *parts])
    fine = (flat >= 0) & (flat <= MOST_COST)
    if not fine.all():
        at = int(fine.argmin())
        raise DataError(
            f"{token_place(np.asarray(offsets), at)}: {name} is {flat[at]}; it must be between 0 "
            f"and {MOST_COST:g}"
        )
    return flat


def saved_cost(cost: Any, classes: Sequence[Any]) -> dict[str, Any]:
    """Return the parameter in the form that files hold: a table."""
    return {"cost": cost_matrix(cost, classes).tolist()} if isinstance(cost, dict) else {}


def costs_of(
    loss: str, cost: Any, weights: Any, classes: Sequence[Any], labels: Any, offsets: Any,
    name: str = "token_weight",
) -> Floats | None:  # fmt: skip
    """Return the cost of each label at each token, (tokens, K); None if all wrong labels cost 1."""
    if cost is None and weights is None:
        return None
    if loss in ("log", PSEUDO):
        more = f', and loss="{PSEUDO}" supports token weights' if name == "token_weight" else ""
        raise UnsupportedError(
            f'loss="{loss}" has no {"cost" if weights is None else name}; loss="softmax_margin" is '
            f"the likelihood with costs added to the scores of wrong labels{more}"
        )
    if len(labels) and np.min(labels) < 0:
        raise DataError("costs need a label for every token; leave out cost and token weights")
    own: Floats = cost_matrix(cost, classes)[labels]
    if weights is not None:
        own = own * token_weights(weights, offsets, name)[:, None]
    return np.minimum(own, MOST_COST)
