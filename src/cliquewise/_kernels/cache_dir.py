"""The folder of compiled kernels: ``cliquewise/kernels-<numba version>/<module>-<source digest>``.

A folder that can be read but not written is used, for example one that ``cliquewise warmup`` filled
while a container image was built.
"""

from __future__ import annotations

import logging
import os
import shutil
import sys
import tempfile
import time
import warnings
from contextlib import suppress
from functools import cache
from pathlib import Path
from typing import Any

import numba
import numba.core.config

#: Seconds of compilation after which it is announced.
ANNOUNCE_AFTER = 1.0
#: Seconds without use after which compiled code is removed: a month.
MAX_AGE = 30 * 86400.0
#: Seconds between two marks of use: a day, so that most loads write nothing.
MARK_EVERY = 86400.0

#: The first problem with the cache; there is one warning in a process.
_problems: list[str] = []
#: When the first kernel was not found on disk.
_first_miss: list[float] = []
#: Folders that this process has marked as used.
_marked: set[Path] = set()
_announced: list[bool] = []


def warn_once(problem: str) -> None:
    """Warn about the first problem with the cache in this process."""
    if not _problems:
        _problems.append(problem)
        warnings.warn(problem, stacklevel=2)


def announce(folder: Path) -> None:
    """Log that kernels are being compiled, if it takes long: visibly once per folder."""
    now = time.monotonic()
    if not _first_miss:
        _first_miss.append(now)
    if _announced or now - _first_miss[0] <= ANNOUNCE_AFTER:
        return
    _announced.append(True)
    level, marker = logging.WARNING, folder / "announced"
    if marker.exists():
        level = logging.INFO
    with suppress(OSError):
        marker.touch()
    logging.getLogger("cliquewise").log(
        level,
        "compiling kernels, which takes a while on first use; the code is cached in %s "
        "(`cliquewise warmup` compiles everything)", folder,
    )  # fmt: skip


@cache
def is_writable(folder: Path) -> bool:
    """Return whether files can be created in a folder; create it if need be."""
    try:
        folder.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryFile(dir=folder):
            return True
    except OSError:
        return False


@cache
def cache_folder() -> Path | None:
    """Return the folder for compiled kernels, or None if it can be neither read nor written."""
    # numba sets the names of this module at run time, which a type checker cannot see.
    base: Any = getattr(numba.core.config, "CACHE_DIR", None)
    if not base and sys.platform == "win32":
        base = os.environ.get("LOCALAPPDATA", Path.home() / "AppData" / "Local")
    elif not base:
        base = os.environ.get("XDG_CACHE_HOME") or Path(os.path.expanduser("~")) / ".cache"
    folder = Path(base) / "cliquewise" / f"kernels-{numba.__version__}"
    if is_writable(folder) or (folder.is_dir() and os.access(folder, os.R_OK | os.X_OK)):
        return folder
    warn_once(
        f"cannot write the kernel cache: {folder} cannot be created. Kernels are compiled again "
        "in every process; set NUMBA_CACHE_DIR to a writable folder"
    )
    return None


def mark_used(folder: Path) -> None:
    """Set the time of last use of a module's folder to now, at most once a day."""
    if folder in _marked:
        return
    _marked.add(folder)
    with suppress(OSError):
        if time.time() - folder.stat().st_mtime > MARK_EVERY:
            os.utime(folder)


@cache  # once per process
def remove_unused(folder: Path) -> None:
    """Remove code that was not used for a month: of other sources, and of other numba versions.

    Every process that loads or saves code of a module renews the time of its folder, at most once
    a day. So a folder in use is at most a day old.
    """
    mark_used(folder)
    for other in sorted(folder.parent.glob("kernels-*")):
        if other != folder and _age(other, *other.iterdir()) > MAX_AGE:
            _remove(other)
    for module in sorted(folder.iterdir()):
        if module.is_dir() and module not in _marked and _age(module) > MAX_AGE:
            _remove(module)


def _age(*paths: Path) -> float:
    """Return the seconds since the last change of any of these files and folders."""
    try:
        return time.time() - max(path.stat().st_mtime for path in paths)
    except OSError:
        return 0.0


def _remove(folder: Path) -> None:
    """Remove a folder; a process that looks for code in it finds all of it, or none."""
    with suppress(OSError):
        gone = folder.with_name(f".removed-{os.getpid()}-{folder.name}")
        folder.rename(gone)
        shutil.rmtree(gone, ignore_errors=True)
