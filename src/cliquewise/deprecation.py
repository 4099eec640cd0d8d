"""Old names of keyword arguments: they keep working, with a FutureWarning."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping
from functools import wraps
from typing import Any, TypeVar

from cliquewise.errors import ArgumentNameError, warn_user

Class = TypeVar("Class", bound=type)


def translate_keywords(
    owner: str, keywords: Mapping[str, Any], new_names: Mapping[str, str]
) -> dict[str, Any]:
    """Return keyword arguments with old names replaced by new ones.

    Parameters
    ----------
    owner : str
        The class or function that takes the arguments, for the messages.
    keywords : dict
    new_names : dict
        The new name of each renamed keyword.

    Examples
    --------
    >>> import warnings
    >>> with warnings.catch_warnings(record=True) as caught:
    ...     warnings.simplefilter("always")
    ...     translate_keywords("GDMM", {"quiet": 0.2}, {"quiet": "shrink_below"})
    {'shrink_below': 0.2}
    >>> str(caught[0].message)
    'GDMM: the parameter quiet was renamed to shrink_below; the old name will be removed'
    """
    translated = {}
    for name, value in keywords.items():
        new = new_names.get(name, name)
        if new != name:
            if new in keywords:
                raise ArgumentNameError(f"{owner}: {name} is the old name of {new}; pass only one")
            warn_renamed(owner, name, new)
        translated[new] = value
    return translated


def warn_renamed(owner: str, old: str, new: str) -> None:
    """Warn that a parameter has a new name."""
    warn_user(
        f"{owner}: the parameter {old} was renamed to {new}; the old name will be removed",
        FutureWarning,
    )


def renamed_keywords(**new_names: str) -> Callable[[Class], Class]:
    """Return a class decorator whose constructor also accepts old keyword names.

    The signature of the constructor does not change.

    Parameters
    ----------
    **new_names : str
        ``old_name="new_name"``.

    Examples
    --------
    >>> from cliquewise.solvers.gdmm import GDMM
    >>> import warnings
    >>> with warnings.catch_warnings():
    ...     warnings.simplefilter("ignore", FutureWarning)
    ...     GDMM(quiet=0.2).shrink_below
    0.2
    """

    def decorate(cls: Class) -> Class:
        init = cls.__init__  # type: ignore[misc]

        @wraps(init)
        def translated(self: Any, *args: Any, **keywords: Any) -> None:
            if not new_names.keys().isdisjoint(keywords):
                keywords = translate_keywords(cls.__name__, keywords, new_names)
            init(self, *args, **keywords)

        # for help(), and for scikit-learn, which reads parameter names from it
        translated.__signature__ = inspect.signature(init)  # type: ignore[attr-defined]
        cls.__init__ = translated  # type: ignore[misc]
        return cls

    return decorate
