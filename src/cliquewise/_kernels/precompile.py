"""Kernels compiled by a second process, while the first one reads data and compiles others.

A plan is a module with ``PLAN``, kernels and the types they are called with. Each process claims
a kernel before it compiles it: the second one goes through the plan from its beginning, and the
first one, as soon as it needs any of it, from its end. Nothing depends on the second process:
where it cannot start, dies or is slow, the first one compiles alone.
"""

from __future__ import annotations

import atexit
import importlib
import os
import shutil
import subprocess
import sys
import threading
import time
from contextlib import suppress
from pathlib import Path
from typing import Any

from cliquewise._kernels import cache_folder
from cliquewise._kernels.cache import name_of, wait_for
from cliquewise._kernels.compile_lock import LIMIT  # after which claims are nobody's, too

#: Kernels and the types of their arguments.
Work = list[tuple[Any, tuple[Any, ...]]]
#: Kernels that this process has claimed.
_mine: set[str] = set()


def claim(claims: Path, name: str) -> bool:
    """Whether this process is the one that compiles a kernel, from now on."""
    try:
        (claims / name).touch(exist_ok=False)
    except OSError:
        return False
    _mine.add(name)
    return True


def start(plan: str) -> None:
    """Compile a plan in a second process, if nothing of it was compiled before.

    Parameters
    ----------
    plan : str
        A module below ``_kernels``.
    """
    folder = cache_folder()
    if folder is None or wait_for or not _can_start():
        return
    work, claims = _work(plan), folder / "claims"
    if not work[0][0]._cache.is_empty or not _take(claims):
        return
    atexit.register(shutil.rmtree, claims, ignore_errors=True)
    source = str(Path(__file__).parents[2])
    path = os.pathsep.join(filter(None, [source, os.environ.get("PYTHONPATH")]))
    try:
        process = subprocess.Popen(
            [sys.executable, "-P", "-m", "cliquewise._kernels.precompile", plan, str(claims)],
            env=os.environ | {"PYTHONPATH": path}, stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
        )  # fmt: skip
    except OSError:
        return
    threading.Thread(target=process.wait, daemon=True).start()  # no zombie is left
    wait_for.append(lambda name: _wait(process, claims, name, work))


def _can_start() -> bool:
    """Whether there is an interpreter to start, and a processor for it."""
    has_affinity = sys.platform == "linux"
    cores = len(os.sched_getaffinity(0)) if has_affinity else (os.cpu_count() or 1)
    # Programs that embed Python call themselves the executable.
    return cores > 1 and "python" in Path(sys.executable or "").name.lower()


def _take(claims: Path) -> bool:
    """Whether the folder of claims is ours; one process at a time compiles with a second one."""
    with suppress(OSError):
        if time.time() - claims.stat().st_mtime > LIMIT:
            shutil.rmtree(claims, ignore_errors=True)
    try:
        claims.mkdir()
    except OSError:
        return False
    return True


def _wait(process: subprocess.Popen[bytes], claims: Path, name: str, work: Work) -> bool:
    """Work on the plan until a kernel is compiled, or must be here; whether it may be there now."""
    rest = work.copy()
    if name in _mine or all(name_of(kernel.py_func) != name for kernel, _ in rest):
        return False
    end = time.monotonic() + LIMIT
    while time.monotonic() < end and process.poll() is None:
        if (claims / f"{name}.done").exists():
            break
        if not rest:
            time.sleep(0.01)
            continue
        kernel, types = rest.pop()
        if name_of(kernel.py_func) != name:
            _compile(kernel, types, claims)
        elif claim(claims, name):
            return False
    return True


def _work(plan: str) -> Work:
    work: Work = importlib.import_module(f"cliquewise._kernels.{plan}").PLAN
    return work


def _compile(kernel: Any, types: tuple[Any, ...], claims: Path) -> None:
    """Compile a kernel unless somebody else does."""
    name = name_of(kernel.py_func)
    if claim(claims, name):
        kernel.compile(types)
        with suppress(OSError):  # the folder is gone where the first process has ended
            (claims / f"{name}.done").touch()


def main(plan: str, folder: str) -> None:
    """The second process: compile what nobody has claimed."""
    for kernel, types in _work(plan):
        _compile(kernel, types, Path(folder))


if __name__ == "__main__":
    main(*sys.argv[1:])
