"""Numba functions on plain arrays, and nothing else.

Everything here is compiled by the one decorator below. Compiled code is cached on disk,
in a folder whose name holds a hash of *all* kernel sources: numba itself notices a change
of a kernel's own file only, and would go on running a stale copy of a callee that lives
in another file.
"""

from __future__ import annotations

import hashlib
import os
import sys
import tempfile
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any, TypeVar

import numba
import numba.core.config

from cliquewise._kernels.on_disk import KernelCache, PartCache, SharedCache, attach, warn_once
from cliquewise._kernels.parts import Kernel, PartCompiler

# numba sets the names of this module at run time, which a type checker cannot see.
config: Any = numba.core.config

F = TypeVar("F", bound=Callable[..., Any])


def _is_writable(folder: Path) -> bool:
    try:
        folder.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryFile(dir=folder):
            return True
    except OSError:
        return False


@cache
def cache_folder() -> Path | None:
    """Folder for compiled kernels, or None where nothing can be written."""
    digest = hashlib.sha256(numba.__version__.encode())
    for source in sorted(Path(__file__).parent.rglob("*.py")):
        digest.update(source.read_bytes())
    name = f"kernels-{digest.hexdigest()[:16]}"
    if config.CACHE_DIR:
        base = Path(config.CACHE_DIR)
    elif sys.platform == "win32":
        base = Path(os.environ.get("LOCALAPPDATA", Path.home() / "AppData" / "Local"))
    else:
        base = Path(os.environ.get("XDG_CACHE_HOME") or Path(os.path.expanduser("~")) / ".cache")
    folder = base / "cliquewise" / name
    if _is_writable(folder):
        return folder
    warn_once(f"{folder} cannot be written")
    return None


def kernel(
    function: F | None = None,
    *,
    inline: bool = False,
    helper: bool = False,
    fastmath: bool | set[str] = False,
) -> Any:
    """Compile a function: cached, without the GIL, with numpy's rules for division.

    Parameters
    ----------
    function : callable
        A function on plain arrays and scalars.
    inline : bool, default=False
        Inline into every caller (for functions of one or two lines in hot loops).
    helper : bool, default=False
        For functions that only other kernels call: saves the time to compile what Python
        would need to call them. Python must not: the process would crash.
    fastmath : bool or set of str, default=False
        Let sums be reordered (``{"reassoc", "contract"}``), so that reductions vectorize.
        Never ``True`` where infinities may occur: it licenses wrong results on them.
    """
    options: dict[str, Any] = {"nogil": True, "error_model": "numpy", "fastmath": fastmath}
    options["no_cfunc_wrapper"] = True
    as_part = options | {"no_cpython_wrapper": True, "pipeline_class": PartCompiler}

    def compile_(f: F) -> Any:
        if inline:
            return _cached(numba.njit(inline="always", **options)(f), f, KernelCache)
        part = _cached(numba.njit(**as_part)(f), f, PartCache)
        return part if helper else _cached(Kernel(f, options, part), f, SharedCache)

    return compile_ if function is None else compile_(function)


def _cached(compiled: Any, function: Callable[..., Any], kind: type[KernelCache]) -> Any:
    """Give a function its cache in our folder."""
    folder = cache_folder()
    if folder is None:
        return compiled
    previous, config.CACHE_DIR = config.CACHE_DIR, str(folder)
    try:
        return attach(compiled, function, kind)
    finally:
        config.CACHE_DIR = previous


#: Sums may be reordered and products fused; infinities and NaN keep their meaning.
REASSOCIATE = {"reassoc", "contract", "nsz", "arcp"}
