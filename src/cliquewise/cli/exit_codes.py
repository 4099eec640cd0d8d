"""Exit codes of the command line. They are part of the public interface."""

from __future__ import annotations

#: The command succeeded; training converged.
SUCCESS = 0
#: An unexpected error, with a traceback: a defect.
DEFECT = 1
#: Wrong or unsupported options or arguments.
USAGE = 2
#: Input that cannot be used: a damaged file, wrong columns, unknown labels.
DATA = 3
#: An error of the system: a full disk, too little memory, a missing package.
SYSTEM = 4
#: Training stopped before it reached its tolerance; the model was written.
NOT_CONVERGED = 5
#: Ctrl-C or SIGTERM. After training had begun, the model so far was written.
INTERRUPTED = 130

SUMMARY = (
    "Exit codes: 0 success, 2 usage, 3 data, 4 system, 5 training did not reach its tolerance "
    "(the model is written), 130 interrupted (the model so far is written)."
)


def exit_code_of(error: BaseException) -> int:
    """Return the exit code for an error.

    Examples
    --------
    >>> from cliquewise.errors import FormatError, ParameterError
    >>> exit_code_of(ParameterError("tol", "a number >= 0", -1)), exit_code_of(FormatError("bad"))
    (2, 3)
    >>> exit_code_of(OSError("disk full")), exit_code_of(MemoryError())
    (4, 4)
    """
    from cliquewise.errors import CliquewiseError, TooLargeError, UnsupportedError

    if isinstance(error, UnsupportedError):  # such as a ParameterError
        return USAGE
    if isinstance(error, OSError | MemoryError | ImportError | TooLargeError):
        return SYSTEM
    return DATA if isinstance(error, CliquewiseError) else DEFECT
