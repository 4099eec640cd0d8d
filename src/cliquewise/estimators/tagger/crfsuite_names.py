"""Errors that translate the parameter names of CRFsuite and sklearn-crfsuite."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Sequence
from difflib import get_close_matches
from functools import wraps
from typing import Any, TypeVar

from cliquewise.errors import ArgumentNameError, ParameterError

Class = TypeVar("Class", bound=type)

_ALGORITHMS = {
    "lbfgs": 'solver="lbfgs" (or leave the choice to solver="auto")',
    "l2sgd": 'solver="sag", or "sdca" (the choice of "auto")',
    "ap": 'loss="hinge" with solver="auto": a structural SVM instead of a perceptron',
    "pa": 'loss="hinge" with solver="auto": a structural SVM instead of passive-aggressive steps',
    "arow": 'loss="hinge" with solver="auto": a structural SVM instead of AROW',
}
_TABLE: dict[str, Callable[[Any], str]] = {
    "algorithm": lambda v: _ALGORITHMS.get(
        v, f"solver=...; CRFsuite's algorithms are {', '.join(_ALGORITHMS)}"
    ),
    "max_iterations": lambda v: f"max_epochs={v!r}" if v else "max_epochs=100",
    "all_possible_transitions": lambda v: f'transitions="{"all" if v else "seen"}"',
    "all_possible_states": lambda v: f'feature_pairs="{"all" if v else "seen"}"',
    "min_freq": lambda v: f"min_count={max(1, round(v)) if isinstance(v, int | float) else v!r}",
    "epsilon": lambda _: "tol=..., a relative duality gap: the default is 1e-3",
    "delta": lambda _: "tol=..., a relative duality gap: the default is 1e-3",
    "period": lambda _: "nothing: training stops by the duality gap",
    "num_memories": lambda v: f"solver=cw.solvers.LBFGS(history={v!r})",
    "linesearch": lambda _: "nothing: solvers choose their step sizes",
    "max_linesearch": lambda _: "nothing: solvers choose their step sizes",
    "model_filename": lambda v: f"tagger.save({v!r}) after fit, and cw.load({v!r})",
    "keep_tempfiles": lambda _: "nothing: there are no temporary files",
}


def penalty(c1: Any, c2: Any) -> str:
    """Return a text with the ``C`` and ``l1_ratio`` of the penalty ``c1 ||w||_1 + c2 ||w||^2``."""
    is_known = all(isinstance(c, int | float) and c >= 0 for c in (c1, c2))
    if not is_known or c1 + 2 * c2 <= 0:
        formula = "C=1 / (c1 + 2 c2) and l1_ratio=c1 C" if c1 else "C=1 / (2 c2)"
        return f"{formula}; a model without a penalty is a large C, such as 1e6"
    C = 1 / (c1 + 2 * c2)
    if c1 == 0:
        return f"C={C:.6g}, which is 1 / (2 c2)"
    return f"C={C:.6g}, l1_ratio={c1 * C:.6g}, which are 1 / (c1 + 2 c2) and c1 C"


def _translate(name: str, parameters: dict[str, Any]) -> str:
    """Return the equivalent of a CRFsuite parameter; if only c1 is given, c2 is 1 as there."""
    if name in ("c1", "c2"):
        return penalty(parameters.get("c1", 0), parameters.get("c2", 1.0))
    return _TABLE[name](parameters[name])


def translates_crfsuite(cls: Class) -> Class:
    """Make the constructor and ``set_params`` translate CRFsuite's parameters in their errors.

    The signature, from which scikit-learn reads the parameters, does not change.

    Examples
    --------
    >>> from cliquewise import SequenceTagger
    >>> SequenceTagger(c2=0.1)
    Traceback (most recent call last):
    ...
    cliquewise.errors.ArgumentNameError: SequenceTagger has no parameter c2: that is CRFsuite's...
    """
    init = cls.__init__  # type: ignore[misc]

    change = cls.set_params  # type: ignore[attr-defined]
    known = list(inspect.signature(cls).parameters)

    @wraps(init)
    def checked(self: Any, *args: Any, **parameters: Any) -> None:
        _check_names(cls.__name__, parameters, known)
        init(self, *args, **parameters)

    @wraps(change)
    def changed(self: Any, **parameters: Any) -> Any:  # used by parameter searches
        _check_names(cls.__name__, parameters, known)
        return change(self, **parameters)

    cls.__init__ = checked  # type: ignore[misc]
    cls.set_params = changed  # type: ignore[attr-defined]
    return cls


def _check_names(owner: str, parameters: dict[str, Any], known: list[str]) -> None:
    """Raise an error that translates CRFsuite's names and corrects misspelled ones."""
    foreign = [name for name in parameters if name in _TABLE or name in ("c1", "c2")]
    if foreign:
        lines = [f"\n  {name} -> {_translate(name, parameters)}" for name in foreign]
        those = "that is CRFsuite's name" if len(foreign) == 1 else "those are CRFsuite's names"
        raise ArgumentNameError(
            f"{owner} has no parameter {', '.join(foreign)}: {those}. Here:" + "".join(lines)
        )
    for name in parameters:
        close = get_close_matches(name, known, n=1, cutoff=0.75) if name not in known else []
        if close:
            raise ArgumentNameError(f"{owner} has no parameter {name}; did you mean {close[0]}?")


def check_loss(loss: object, losses: Sequence[str]) -> None:
    """Raise an error that suggests ``solver=`` if the loss is the name of a solver or algorithm.

    The loss is the first positional parameter, so ``SequenceTagger("lbfgs")`` sets it.
    """
    if not isinstance(loss, str) or loss in losses:
        return
    from cliquewise.solvers.registry import registered

    if loss in _ALGORITHMS:
        raise ParameterError(
            "loss", f"{_listed(losses)}; for CRFsuite's {loss!r} use {_ALGORITHMS[loss]}", loss
        )
    if loss in {solver.name for solver in registered("chain")}:
        raise ParameterError("loss", f'{_listed(losses)}; for the solver use solver="{loss}"', loss)


def _listed(words: Sequence[str]) -> str:
    return f"{', '.join(words[:-1])} or {words[-1]}"
