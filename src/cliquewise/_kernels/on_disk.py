"""Compiled kernels on disk. A disk that fails costs time, never the program.

numba lets every trouble with its cache out: a full disk, a folder that became read-only, a file
cut short by a crash. Here each means that a kernel is compiled anew, and one warning.
"""

from __future__ import annotations

import logging
import time
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

from numba.core.caching import CompileResultCacheImpl, FunctionCache

from cliquewise._kernels.parts import PartLibrary
from cliquewise._kernels.turns import Turn

#: The first trouble; there is one warning about the cache in a process.
_troubles: list[str] = []
#: When the first kernel was not found on disk, and whether that was said.
_missed: list[float] = []
_told: list[bool] = []
#: Seconds of compiling after which somebody may wonder.
PATIENCE = 1.0

#: Asked for a kernel that is not there; True where another process may have compiled it since.
wait_for: list[Callable[[str], bool]] = []


def warn_once(trouble: str) -> None:
    """Say that kernels are compiled without the cache; only the first trouble is told."""
    if _troubles:
        return
    _troubles.append(trouble)
    warnings.warn(
        f"compiled kernels cannot be kept: {trouble}. They are compiled anew when needed; "
        "free some space, or name another folder by NUMBA_CACHE_DIR",
        stacklevel=2,
    )


def _say_once(folder: Path) -> None:
    """Say that kernels are compiled, where it takes long."""
    now = time.monotonic()
    if not _missed:
        _missed.append(now)
    if not _told and now - _missed[0] > PATIENCE:
        _told.append(True)
        logging.getLogger("cliquewise").warning("compiling this part, once; kept in %s", folder)


def name_of(function: Callable[..., Any]) -> str:
    """The name of a kernel among processes."""
    return f"{function.__module__}.{function.__qualname__}"


class KernelCache(FunctionCache):
    """numba's cache of one function, whose troubles are no errors."""

    def load_overload(self, sig: Any, target_context: Any) -> Any:
        """The compiled function, or None if it has to be compiled."""
        return self._sound(sig, target_context)

    def _sound(self, sig: Any, target_context: Any) -> Any:
        try:
            return super().load_overload(sig, target_context)
        except Exception as error:  # unpickling what was cut short may raise anything
            warn_once(f"a file in {self.cache_path} is damaged ({error!r})")
            self._drop()
            return None

    def save_overload(self, sig: Any, data: Any) -> None:
        """Keep a compiled function, if the disk lets us."""
        try:
            super().save_overload(sig, data)
        except Exception as error:
            warn_once(f"{self.cache_path} cannot be written ({error})")

    @property
    def is_empty(self) -> bool:
        """Whether nothing of this kernel was ever kept."""
        return not Path(self._cache_file._index_path).exists()

    def _drop(self) -> None:
        """Forget the damaged index, so that the next save writes a sound one."""
        try:
            Path(self._cache_file._index_path).unlink(missing_ok=True)
        except OSError:
            self.disable()


class _PartFiles(CompileResultCacheImpl):
    """Files of parts, beside those of kernels."""

    def get_filename_base(self, fullname: str, abiflags: str) -> str:
        return f"part-{super().get_filename_base(fullname, abiflags)}"

    def rebuild(self, target_context: Any, payload: Any) -> Any:
        codegen = target_context.codegen()
        usual, codegen._library_class = codegen._library_class, PartLibrary
        try:
            return super().rebuild(target_context, payload)
        finally:
            codegen._library_class = usual


class PartCache(KernelCache):
    """The cache of a part: what a new caller of it need not compile again."""

    _impl_class: Any = _PartFiles


class SharedCache(KernelCache):
    """The cache of a function that Python calls, which one process at a time compiles."""

    def __init__(self, function: Callable[..., Any]) -> None:
        super().__init__(function)
        self.turn = Turn()

    def load_overload(self, sig: Any, target_context: Any) -> Any:
        """The compiled function, or None if it is our turn to compile it."""
        found = self._sound(sig, target_context)
        if found is not None:
            return found
        _say_once(Path(self.cache_path).parent)
        for wait in wait_for:
            if wait(name_of(self._py_func)):
                found = self._sound(sig, target_context)
        if found is None and self.turn.wait(
            Path(self._cache_file._index_path).with_suffix(".turn")
        ):
            found = self._sound(sig, target_context)
        return found


def attach(dispatcher: Any, function: Callable[..., Any], kind: type[KernelCache]) -> Any:
    """Give a compiled function its cache, where numba finds a place for one."""
    try:
        dispatcher._cache = kind(function)
    except (OSError, RuntimeError) as error:
        warn_once(str(error))
    return dispatcher
