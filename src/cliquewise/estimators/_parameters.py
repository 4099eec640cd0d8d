"""The parameters that a model file may set: which, of what type, and in what range.

A file comes from a stranger. It sets nothing that acts (a path, a callback, a template's file) and
nothing that speaks of one machine or one run; what it sets is what `fit` would have taken.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any, NamedTuple

import numpy as np

from cliquewise.data.dataset import MOST_COST
from cliquewise.errors import DataError
from cliquewise.graph.oriented_trees import ENTROPIES
from cliquewise.models.pairwise import PAIRWISE

#: Parameters that stay out of files. (A template is a part of the encoder, and comes back with it.)
NOT_SAVED = {
    "n_jobs",
    "device",
    "verbose",
    "checkpoint",
    "checkpoint_seconds",
    "resume",
    "template",
}


class Rule(NamedTuple):
    """What a value may be, as a test and in words."""

    fits: Callable[[Any], bool]
    words: str

    def __or__(self, other: Rule) -> Rule:
        return Rule(lambda v: self.fits(v) or other.fits(v), f"{self.words} or {other.words}")


def _word(*words: str) -> Rule:
    return Rule(lambda v: isinstance(v, str) and v in words, ", ".join(words))


def _number(least: float, most: float = np.inf) -> Rule:
    def fits(v: Any) -> bool:
        return isinstance(v, int | float) and not isinstance(v, bool) and least <= v <= most

    return Rule(fits, f"a number in {least:g}..{most:g}")


def _whole(least: int, most: int) -> Rule:
    return Rule(lambda v: is_whole(v, least, most), f"a whole number in {least}..{most}")


def _list_of(one: Rule) -> Rule:
    return Rule(
        lambda v: isinstance(v, list | tuple) and all(map(one.fits, v)), f"a list of ({one.words})"
    )


_NONE = Rule(lambda v: v is None, "None")
_FLAG = Rule(lambda v: isinstance(v, bool | int | float) and v in (0, 1), "True or False")
_LABELS = _list_of(Rule(lambda v: isinstance(v, str | int | float), "label"))
_PAIR = Rule(lambda v: _LABELS.fits(v) and len(v) == 2, "pairs: label, next label")
_POSITIVE = _number(1e-300, 1e100)
_WEIGHTS = _NONE | _word("balanced") | Rule(lambda v: False, "a dict of label to weight")

#: Of every estimator that has a parameter of this name.
RULES: dict[str, Rule] = {
    "C": _POSITIVE | _word("auto"),
    "l1_ratio": _number(0, 1),
    "tol": _number(0),
    "max_epochs": _number(0),
    "max_seconds": _NONE | _number(0),
    "max_memory": _number(0),
    "random_state": _NONE | _whole(0, 2**128) | _list_of(_whole(0, 2**128)),
    "gamma": _number(0, 1e300),
    "dtype": _word("float64", "float32"),
    "smoother": _word("l2", "entropy"),
    "feature_pairs": _word("all", "seen"),
    "transitions": _word("all", "seen", "BIO", "BIOES") | _list_of(_list_of(_FLAG)),
    "forbidden": _NONE | _list_of(_PAIR),
    "intercept": _FLAG,
    "boundaries": _FLAG,
    "by": _NONE | Rule(lambda v: isinstance(v, str), "the name of a column, as a string"),
    "n_hash": _NONE | _whole(1, 2**31 - 1),
    "min_count": _whole(1, 2**31 - 1),
    "class_weight": _WEIGHTS,
    "cost": _NONE | _list_of(_list_of(_number(0, MOST_COST))),
    "pairwise": _word(*PAIRWISE),
    "entropy": _word(*ENTROPIES),
    "epsilon": _number(0, 1),
    "label_graph": _word("auto", "complete", "none", "tree")
    | _whole(0, 2**31)
    | _list_of(_list_of(_whole(0, 2**31) | Rule(lambda v: isinstance(v, str), "a name"))),
    "pairs": _word("table", "co-occurrence"),
    "partial": _FLAG,
    "cost_missing": _number(0, 1e100),
    "cost_wrong": _number(0, 1e100),
}


def is_whole(value: Any, least: int, most: int) -> bool:
    """Whether a value is an integer, and no boolean, within limits.

    Examples
    --------
    >>> is_whole(3, 0, 5), is_whole(True, 0, 5), is_whole(3.0, 0, 5)
    (True, False, False)
    """
    return isinstance(value, int) and not isinstance(value, bool) and least <= value <= most


def whole(value: Any, what: str, least: int = 0, most: int = 2**31) -> int:
    """An integer of a file; an error that names it if it is something else."""
    if not is_whole(value, least, most):
        raise DataError(f"{what} is {value!r:.40}, not a whole number in {least}..{most}")
    return int(value)


def check_parameters(parameters: Any, known: Iterable[str], losses: Iterable[str]) -> None:
    """Refuse parameters that a file may not set, and values that no `fit` would take.

    Parameters
    ----------
    parameters : dict
    known : iterable of str
        The parameters of the estimator.
    losses : iterable of str
        The losses that it knows.
    """
    if not isinstance(parameters, dict):
        raise DataError("its parameters are no names with values")
    # Names are looked up where there is one: that imports all solvers, or all oracles.
    auto = _word("auto")
    rules = {
        **RULES,
        "loss": _word(*losses),
        "solver": auto if parameters.get("solver") == "auto" else _solvers(),
        "inference": auto if parameters.get("inference", "auto") == "auto" else _methods(),
    }
    for name in parameters:
        if name not in known or name not in rules:
            raise DataError(f"a file may not set the parameter {name!r:.40}")
    check_ranges(parameters, rules)


def check_ranges(parameters: dict[str, Any], rules: dict[str, Rule] = RULES) -> None:
    """Refuse values out of range: before training, so that what was trained can be saved."""
    for name, value in parameters.items():
        if name in rules and not rules[name].fits(value):
            raise DataError(f"{name} is {rules[name].words}, not {value!r:.60}")


def _solvers() -> Rule:
    from cliquewise.solvers.base import registered

    # Those of networks are registered too, once PyTorch is imported.
    names = {solver.name for solver in registered() if set(solver.works_on) != {"deep"}}
    return _word("auto", *sorted(names))


def _methods() -> Rule:
    from cliquewise.oracles.base import registered

    return _word("auto", *(oracle.name for oracle in registered()))
