"""Compiled kernels on disk. A disk that fails costs time, never the program.

numba lets every trouble with its cache out: a full disk, a folder that became read-only, a file
cut short by a crash. Here each means that a kernel is compiled anew, and one warning.
"""

from __future__ import annotations

import hashlib
import logging
import os
import re
import sys
import tempfile
import time
import warnings
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any

import numba
import numba.core.config
from numba.core.caching import CompileResultCacheImpl, FunctionCache, _CacheLocator

from cliquewise._kernels.compile_lock import CompileLock
from cliquewise._kernels.compiler import PartLibrary

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


def _is_writable(folder: Path) -> bool:
    try:
        folder.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryFile(dir=folder):
            return True
    except OSError:
        return False


@cache
def cache_folder() -> Path | None:
    """Return the folder for compiled kernels, or None if it is not writable."""
    # numba sets the names of this module at run time, which a type checker cannot see.
    base: Any = getattr(numba.core.config, "CACHE_DIR", None)
    if not base and sys.platform == "win32":
        base = os.environ.get("LOCALAPPDATA", Path.home() / "AppData" / "Local")
    elif not base:
        base = os.environ.get("XDG_CACHE_HOME") or Path(os.path.expanduser("~")) / ".cache"
    folder = Path(base) / "cliquewise" / f"kernels-{numba.__version__}"
    if _is_writable(folder):
        return folder
    warn_once(f"{folder} cannot be written")
    return None


#: The folder of the kernel sources, and its imports of other kernel modules.
_SOURCES = Path(__file__).parent
_IMPORT = re.compile(r"^\s*from cliquewise\._kernels([\w.]*) import (\([^)]*\)|[^\n]*)", re.M)


@cache
def _sources() -> dict[str, str]:
    """Return the source of every kernel module by its dotted name below ``_kernels``."""
    names = {}
    for path in _SOURCES.rglob("*.py"):
        parts = path.relative_to(_SOURCES).with_suffix("").parts
        names[".".join(parts[:-1] if parts[-1] == "__init__" else parts)] = path.read_text("utf-8")
    return names


@cache
def _imports(module: str) -> frozenset[str]:
    """Return the kernel modules that a module imports directly."""
    found = set()
    for package, names in _IMPORT.findall(_sources()[module]):
        package = package.lstrip(".")
        for name in re.findall(r"(\w+)(?:\s+as\s+\w+)?\s*(?:,|\)|$)", names):
            inner = f"{package}.{name}" if package else name
            found.add(inner if inner in _sources() else package)
    return frozenset(found & _sources().keys())


@cache
def source_digest(module: str) -> str:
    """Return a hash of a kernel module and of all kernel modules that it depends on.

    Compiled code is reused as long as these sources are the same, wherever they are installed.
    """
    needed, new = set[str](), {module, ""}
    while new:
        needed |= new
        new = set().union(*map(_imports, new)) - needed
    digest = hashlib.sha256()
    for name in sorted(needed):
        digest.update(f"{name}\0{_sources()[name]}\0".encode())
    return digest.hexdigest()[:16]


class SourceLocator(_CacheLocator):
    """Finds the cached code of a kernel by the content of its source, not by its path or age."""

    def __init__(self, function: Callable[..., Any], file: str, folder: Path) -> None:
        self._py_file, self._line = file, function.__code__.co_firstlineno
        path = Path(file).resolve()
        if path.is_relative_to(_SOURCES):
            module = ".".join(path.relative_to(_SOURCES).with_suffix("").parts)
            self._path = folder / f"{module}-{source_digest(module)}"
        else:
            content = path.read_bytes() + "".join(map(source_digest, sorted(_sources()))).encode()
            self._path = folder / f"{path.stem}-{hashlib.sha256(content).hexdigest()[:16]}"

    def get_cache_path(self) -> str:
        """Return the folder of the module."""
        return str(self._path)

    def get_source_stamp(self) -> str:
        """Return the same stamp always: the path changes with the source."""
        return "source"

    def get_disambiguator(self) -> str:
        """Return the line of the function."""
        return str(self._line)

    @classmethod
    def from_function(cls, function: Callable[..., Any], file: str) -> SourceLocator | None:
        """Return a locator, or None if there is no folder to write to."""
        folder = cache_folder()
        return None if folder is None else cls(function, file, folder)


class _KernelFiles(CompileResultCacheImpl):
    """Files of kernels."""

    _locator_classes: Any = (SourceLocator,)


class KernelCache(FunctionCache):
    """numba's cache of one function, whose troubles are no errors."""

    _impl_class: Any = _KernelFiles

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


class _PartFiles(_KernelFiles):
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

    _impl_class = _PartFiles


class SharedCache(KernelCache):
    """The cache of a function that Python calls, which one process at a time compiles."""

    def __init__(self, function: Callable[..., Any]) -> None:
        super().__init__(function)
        self.turn = CompileLock()

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
    """Give a compiled function its cache, if there is a folder for it."""
    if cache_folder() is None:
        return dispatcher
    try:
        dispatcher._cache = kind(function)
    except (OSError, RuntimeError) as error:
        warn_once(str(error))
    return dispatcher
