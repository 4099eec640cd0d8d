"""Compiled kernels on disk. A disk that fails costs time, never the program.

numba lets every trouble with its cache out: a full disk, a folder that became read-only, a file
cut short by a crash. Here each means that a kernel is compiled anew, and one warning.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

from numba.core.caching import FunctionCache

#: The first trouble; there is one warning about the cache in a process.
_troubles: list[str] = []


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


class KernelCache(FunctionCache):
    """numba's cache of one function, whose troubles are no errors."""

    def load_overload(self, sig: Any, target_context: Any) -> Any:
        """The compiled function, or None if it has to be compiled."""
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

    def _drop(self) -> None:
        """Forget the damaged index, so that the next save writes a sound one."""
        try:
            Path(self._cache_file._index_path).unlink(missing_ok=True)
        except OSError:
            self.disable()


def attach(dispatcher: Any, function: Callable[..., Any]) -> Any:
    """Give a compiled function its cache, where numba finds a place for one."""
    try:
        dispatcher._cache = KernelCache(function)
    except (OSError, RuntimeError) as error:
        warn_once(str(error))
    return dispatcher
