"""Compiled kernels on disk. A disk that fails costs time, never the program.

numba raises for every problem with its cache: a full disk, a read-only folder, a file
truncated by a crash. Here each means that a kernel is compiled again, and one warning.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from pathlib import Path
from typing import Any

from numba.core.caching import CompileResultCacheImpl, FunctionCache, _CacheLocator

from cliquewise._kernels.cache_dir import (
    announce,
    cache_folder,
    is_writable,
    mark_used,
    remove_unused,
    warn_once,
)
from cliquewise._kernels.compile_lock import CompileLock
from cliquewise._kernels.compiler import BitcodeLibrary
from cliquewise._kernels.sources import ROOT, digest_of_all, source_digest


class SourceLocator(_CacheLocator):
    """Finds the cached code of a kernel by the content of its source, not by its path or age."""

    def __init__(self, function: Callable[..., Any], file: str, folder: Path) -> None:
        self._py_file, self._line = file, str(function.__code__.co_firstlineno)
        path = Path(file).resolve()
        if path.is_relative_to(ROOT):
            module = ".".join(path.relative_to(ROOT).with_suffix("").parts)
            self._path = folder / f"{module}-{source_digest(module, folder)}"
            self._line = ""  # names are unique here, and lines move when a comment is edited
        else:
            content = path.read_bytes() + digest_of_all(folder).encode()
            self._path = folder / f"{path.stem}-{hashlib.sha256(content).hexdigest()[:16]}"

    def get_cache_path(self) -> str:
        """Return the folder of the module."""
        return str(self._path)

    def get_source_stamp(self) -> str:
        """Return a constant: the path changes with the source."""
        return "source"

    def get_disambiguator(self) -> str:
        """Return what tells functions of the same name apart."""
        return self._line

    @classmethod
    def from_function(cls, function: Callable[..., Any], file: str) -> SourceLocator | None:
        """Return a locator, or None if there is no folder."""
        folder = cache_folder()
        return None if folder is None else cls(function, file, folder)


class _KernelFiles(CompileResultCacheImpl):
    """Files of kernels."""

    _locator_classes: Any = (SourceLocator,)


class KernelCache(FunctionCache):
    """numba's cache of one function, whose problems are no errors."""

    _impl_class: Any = _KernelFiles

    def load_overload(self, sig: Any, target_context: Any) -> Any:
        """Return the compiled function, or None if it has to be compiled."""
        return self._load(sig, target_context)

    def _load(self, sig: Any, target_context: Any) -> Any:
        try:
            found = super().load_overload(sig, target_context)
        except Exception as error:  # unpickling a truncated file may raise anything
            warn_once(
                f"compiling kernels again: a file in {self.cache_path} is damaged ({error!r})"
            )
            self._drop()
            return None
        if found is not None:
            mark_used(Path(self.cache_path))
        return found

    def save_overload(self, sig: Any, data: Any) -> None:
        """Keep a compiled function, if the disk permits."""
        path = Path(self.cache_path)
        if not is_writable(path.parent):
            warn_once(
                f"the kernel cache {path.parent} is read-only and lacks some kernels, which are "
                "compiled again in every process. Set NUMBA_CACHE_DIR to a writable folder, or run "
                "`cliquewise warmup` as a user who can write"
            )
            return
        try:
            super().save_overload(sig, data)
            mark_used(path)
            remove_unused(path.parent)
        except Exception as error:
            warn_once(
                f"cannot write the kernel cache {path}: {error}. Kernels are compiled again in "
                "every process; free some space, or set NUMBA_CACHE_DIR to another folder"
            )

    def _drop(self) -> None:
        """Remove the damaged index, so that the next save writes a sound one."""
        try:
            Path(self._cache_file._index_path).unlink(missing_ok=True)
        except OSError:
            self.disable()


class _HelperFiles(_KernelFiles):
    """Files of bitcode, next to those of kernels."""

    def get_filename_base(self, fullname: str, abiflags: str) -> str:
        return f"part-{super().get_filename_base(fullname, abiflags)}"

    def rebuild(self, target_context: Any, payload: Any) -> Any:
        codegen = target_context.codegen()
        usual, codegen._library_class = codegen._library_class, BitcodeLibrary
        try:
            return super().rebuild(target_context, payload)
        finally:
            codegen._library_class = usual


class HelperCache(KernelCache):
    """The cache of the bitcode that kernels are linked with."""

    _impl_class = _HelperFiles


class SharedCache(KernelCache):
    """The cache of a function that Python calls, which one process at a time compiles."""

    def __init__(self, function: Callable[..., Any]) -> None:
        super().__init__(function)
        self.lock = CompileLock()

    def load_overload(self, sig: Any, target_context: Any) -> Any:
        """Return the compiled function, or None if this process has to compile it."""
        found = self._load(sig, target_context)
        if found is not None:
            return found
        announce(Path(self.cache_path).parent)
        if self.lock.acquire(Path(self._cache_file._index_path).with_suffix(".lock")):
            found = self._load(sig, target_context)
        return found


def attach(dispatcher: Any, function: Callable[..., Any], kind: type[KernelCache]) -> Any:
    """Give a compiled function its cache, if there is a folder for it."""
    if cache_folder() is None:
        return dispatcher
    try:
        dispatcher._cache = kind(function)
    except (OSError, RuntimeError) as error:
        warn_once(f"cannot use the kernel cache: {error}")
    return dispatcher
