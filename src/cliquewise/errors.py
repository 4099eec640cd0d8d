"""The exceptions of cliquewise, and a function that warns.

All exceptions are ``ValueError``s, so code can catch them without importing this module. Each
message describes the problem, its place, and what to do.
"""

from __future__ import annotations

import sys
import warnings
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Self

#: Packages whose frames a warning skips: this one, and those that call it for the user.
_NOT_THE_USER = ("cliquewise", "sklearn", "joblib")


class CliquewiseError(ValueError):
    """Base of all errors of this library.

    Attributes
    ----------
    parameters : tuple of str
        Parameters that the message is about; the command line adds their flags.
    suggestion : tuple of str, str and object, optional
        The end of the message: an introduction, a parameter, and a value that may help.
    """

    parameters: tuple[str, ...] = ()
    suggestion: tuple[str, str, object] | None = None

    def __str__(self) -> str:
        return self.render(lambda name, value: f"{name}={value!r}")

    def render(self, setting: Callable[[str, object], str]) -> str:
        """Return the message; ``setting`` writes a suggested parameter and its value.

        Examples
        --------
        >>> error = DataError("it is not UTF-8").suggesting("try", "encoding", "latin-1")
        >>> error.render(lambda name, value: f"--{name} {value}")
        'it is not UTF-8; try --encoding latin-1'
        """
        text = super().__str__()
        if self.suggestion is not None:
            introduction, name, value = self.suggestion
            text += f"; {introduction} {setting(name, value)}"
        return text

    def suggesting(self, introduction: str, parameter: str, value: object) -> Self:
        """Set the suggestion, and return the error.

        Examples
        --------
        >>> print(DataError("it is not UTF-8").suggesting("try", "encoding", "latin-1"))
        it is not UTF-8; try encoding='latin-1'
        """
        self.suggestion = introduction, parameter, value
        return self

    def concerning(self, *parameters: str) -> Self:
        """Set the parameters that the message is about, and return the error.

        Examples
        --------
        >>> DataError("tol and C are too small").concerning("tol", "C").parameters
        ('tol', 'C')
        """
        self.parameters = parameters
        return self


class GraphError(CliquewiseError):
    """An invalid graph: wrong shapes, scopes, cardinalities or values."""


class DataError(CliquewiseError):
    """Invalid examples or arguments: unequal lengths, NaN features, unknown labels."""


class ClusterError(CliquewiseError, RuntimeError):
    """The workers or the scheduler of a cluster are gone.

    Examples
    --------
    >>> raise ClusterError("the cluster has no workers")
    Traceback (most recent call last):
    cliquewise.errors.ClusterError: the cluster has no workers
    """


class UnsupportedError(CliquewiseError):
    """A combination that is not supported: a method and a graph, or a solver and a loss."""


class ParameterError(DataError, UnsupportedError):
    """A parameter whose value cannot be used.

    Parameters
    ----------
    parameter : str
        Its name.
    expected : str
        What the value must be.
    value : object
        The value.
    """

    def __init__(self, parameter: str, expected: str, value: object):
        super().__init__(parameter, expected, value)
        self.parameter, self.expected, self.value = parameter, expected, value
        self.parameters = (parameter,)

    def render(self, setting: Callable[[str, object], str]) -> str:
        """Return the message with the Python name of the parameter."""
        return self.message_for(self.parameter)

    def message_for(self, name: str) -> str:
        """Return the message with another name for the parameter, such as a flag.

        Examples
        --------
        >>> ParameterError("n_jobs", "an integer other than 0", 0).message_for("--jobs")
        '--jobs must be an integer other than 0, not 0'
        """
        is_short = self.value is None or isinstance(
            self.value, str | bool | int | float | list | tuple | dict
        )
        shown = f"{self.value!r:.60}" if is_short else f"a {type(self.value).__name__}"
        return f"{name} must be {self.expected}, not {shown}"


class ForbiddenLabelError(DataError):
    """A gold label that the transitions or the allowed labels forbid.

    Parameters
    ----------
    place : str
        The example and the token.
    label, before : int
        The number of the label, and that of the previous label if the transition is forbidden.
    """

    _REMEDY = ("or use", "transitions", "all")

    def __init__(self, place: str, label: int, before: int | None = None):
        super().__init__(self._text(place, f"label number {label}", before))
        self.place, self.label, self.before = place, label, before
        self.suggesting(*self._REMEDY)

    def named(self, classes: Sequence[object]) -> DataError:
        """Return the error with the names of the labels."""
        before = None if self.before is None else repr(classes[self.before])
        text = self._text(self.place, f"label {classes[self.label]!r}", before)
        return DataError(text).suggesting(*self._REMEDY)

    def _text(self, place: str, label: str, before: object) -> str:
        why = (
            "is not allowed there by the transition scheme or the allowed labels"
            if before is None
            else f"follows {before}, which the transition scheme forbids"
        )
        return (
            f"{place}: {label} {why}; convert the labels (cliquewise.data.to_scheme converts spans)"
        )


class FormatError(CliquewiseError):
    """A file that cannot be read; the message names the file, the line and a remedy."""

    def __init__(self, message: str, path: str | Path | None = None, line: int | None = None):
        where = "" if path is None else str(path)
        if line is not None:
            where += f", line {line}" if where else f"line {line}"
        super().__init__(f"{where}: {message}" if where else message)
        self.path = None if path is None else str(path)
        self.line = line


class SaveError(FormatError, OSError):
    """A file that cannot be written; the message says where its content was saved, if it was."""

    def __init__(
        self, message: str, path: str | Path | None = None, errno: int | None = None
    ) -> None:
        super().__init__(message, path)
        self.errno = errno


class TooLargeError(CliquewiseError):
    """A computation that needs too much memory or time; raised before anything is allocated."""

    parameters = ("max_memory",)

    def __init__(self, message: str, memory_bytes: float, operations: float = float("nan")):
        super().__init__(message)
        self.memory_bytes = memory_bytes
        self.operations = operations


class InfeasibleError(CliquewiseError):
    """No labeling has a positive probability (Z = 0)."""


class BoundError(CliquewiseError):
    """A bound given by the user that is not valid."""


class CertificateError(CliquewiseError):
    """A dual value above the primal value: a defect, or numbers beyond double precision."""


class PrecisionError(CliquewiseError):
    """Double precision is not sufficient for a correct result."""


class ArgumentNameError(CliquewiseError, TypeError):
    """A parameter name of another library; the message names the equivalent."""


class MissingDependencyError(CliquewiseError, ImportError):
    """An optional package is needed; the message names the extra to install."""


class InexactWarning(UserWarning):
    """Approximate numbers are returned where exact ones are out of reach."""


def warn_user(message: str, category: type[Warning] = UserWarning) -> None:
    """Warn with the line of the user's code that led to the warning.

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
