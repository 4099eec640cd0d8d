"""Kernels as Python sees them: they are loaded or compiled when they are first called."""

from __future__ import annotations

from typing import Any

from numba import types
from numba.core.registry import CPUDispatcher

from cliquewise._kernels.clock import stopped


class Kernel(CPUDispatcher):
    """A function that Python calls. Kernels that call it are linked with ``part``, its bitcode."""

    _cache: Any  # numba's own, which has no types

    def __init__(self, function: Any, options: dict[str, Any], part: Any) -> None:
        super().__init__(function, targetoptions={"nopython": True, "boundscheck": None} | options)
        self.part = part

    def compile(self, sig: Any) -> Any:
        """Load or compile; release the compile lock, if it was taken, once the code is on disk."""
        try:
            with stopped():
                address = super().compile(sig)
        finally:
            if self._cache.cache_path is not None:  # there is a folder for it
                self._cache.lock.release()
        overloads: Any = self.overloads
        if any(_has_arrays(one.signature.return_type) for one in overloads.values()):
            self.__class__ = ArrayKernel
        return address

    @property
    def is_compiling(self) -> Any:
        return self.part.is_compiling

    def get_call_template(self, args: Any, kws: Any) -> Any:
        return self.part.get_call_template(args, kws)

    def get_overload(self, sig: Any) -> Any:
        return self.part.get_overload(sig)

    def __reduce__(self) -> Any:
        return self.py_func.__qualname__  # functions are pickled by name


class ArrayKernel(Kernel):
    """A kernel that returns arrays, from which Ctrl-C raises KeyboardInterrupt.

    To make an array, numba calls Python code, where a signal handler may run and raise. numba does
    not notice, and the interpreter raises a SystemError that the kernel "returned a result with an
    exception set", with the handler's exception as its cause.
    """

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        try:
            return super().__call__(*args, **kwargs)
        except SystemError as error:
            cause: BaseException = error
            while isinstance(cause, SystemError) and cause.__cause__ is not None:
                cause = cause.__cause__  # one for each array that follows
            raise cause from None


def _has_arrays(result: Any) -> bool:
    if isinstance(result, types.BaseTuple):
        parts: Any = result
        return any(_has_arrays(part) for part in parts)
    return isinstance(result, types.Array)
