"""Every error that cliquewise raises on purpose, and the one way to warn.

All are ``ValueError``s, so that code which guards against bad input needs no import
of ours; each message says where the trouble is and what to do about it.
"""

from __future__ import annotations

import sys
import warnings
from collections.abc import Sequence
from pathlib import Path

#: Code that users did not write: ours, and what calls it on their behalf.
_NOT_THE_USER = ("cliquewise", "sklearn", "joblib")


class CliquewiseError(ValueError):
    """Base of all errors of this library."""


class GraphError(CliquewiseError):
    """A graph that cannot be built: wrong shapes, scopes, cardinalities or values."""


class DataError(CliquewiseError):
    """Examples that cannot be used: unequal lengths, NaN features, unknown labels."""


class ForbiddenLabelError(DataError):
    """A true label that the transitions, or the allowed labels, make impossible.

    Parameters
    ----------
    place : str
        Where it is.
    label, before : int
        The numbers of the label and, if it may not follow that one, of the label before it.
    """

    def __init__(self, place: str, label: int, before: int | None = None):
        super().__init__(self._text(place, f"label number {label}", before))
        self.place, self.label, self.before = place, label, before

    def named(self, classes: Sequence[object]) -> DataError:
        """The same with the names of the labels."""
        before = None if self.before is None else repr(classes[self.before])
        return DataError(self._text(self.place, f"label {classes[self.label]!r}", before))

    def _text(self, place: str, label: str, before: object) -> str:
        why = (
            "is not allowed there by the transition scheme or the allowed labels"
            if before is None
            else f"follows {before}, which the transition scheme forbids"
        )
        return (
            f"{place}: {label} {why}; convert the labels (cliquewise.data.to_scheme does it for "
            'spans) or use transitions="all"'
        )


class FormatError(CliquewiseError):
    """A file that cannot be read; the message names the file, the place and the remedy."""

    def __init__(self, message: str, path: str | Path | None = None, line: int | None = None):
        where = "" if path is None else str(path)
        if line is not None:
            where += f", line {line}" if where else f"line {line}"
        super().__init__(f"{where}: {message}" if where else message)
        self.path = None if path is None else str(path)
        self.line = line


class TooLargeError(CliquewiseError):
    """A computation refused before anything was allocated; states what it would need."""

    def __init__(self, message: str, memory_bytes: float, operations: float = float("nan")):
        super().__init__(message)
        self.memory_bytes = memory_bytes
        self.operations = operations


class InfeasibleError(CliquewiseError):
    """No labeling has positive probability (Z = 0)."""


class BoundError(CliquewiseError):
    """A bound that the user gave, and that a part of the bounded set exceeds."""


class CertificateError(CliquewiseError):
    """A proof that contradicts itself: a defect, or numbers beyond double precision."""


class PrecisionError(CliquewiseError):
    """Numbers whose differences double precision cannot hold, where the answer depends on them."""


class UnsupportedError(CliquewiseError):
    """A pair that does not fit (a method and a graph, a solver and a loss)."""


class ArgumentNameError(CliquewiseError, TypeError):
    """A parameter by the name that another library has for it; the message translates."""


class MissingDependencyError(CliquewiseError, ImportError):
    """An optional package is needed; the message names the extra to install."""


def warn_user(message: str, category: type[Warning] = UserWarning) -> None:
    """Warn, and point at the line of the user that led here, however deep we are.

    Examples
    --------
    >>> import warnings
    >>> with warnings.catch_warnings(record=True) as caught:
    ...     warn_user("slow")
    >>> str(caught[0].message)
    'slow'
    """
    level, frame = 2, sys._getframe(1)
    while frame.f_back is not None and _package(frame.f_globals) in _NOT_THE_USER:
        level, frame = level + 1, frame.f_back
    warnings.warn(message, category, stacklevel=level)


def _package(names: dict[str, object]) -> str:
    return str(names.get("__name__", "")).partition(".")[0]
