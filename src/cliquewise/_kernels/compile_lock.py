"""Turns: of several processes that need a kernel, one compiles it and the others wait for it.

Workers of a grid search or of a cluster start together and need the same kernels. A turn is a lock
on a file beside the kernel's own, which the system takes back when its process dies. Where there
are no such locks (Windows, some network disks) each process compiles for itself.
"""

from __future__ import annotations

import os
import threading
import time
from contextlib import suppress
from pathlib import Path

try:
    import fcntl
except ImportError:  # pragma: no cover
    fcntl = None  # type: ignore[assignment]

#: Seconds after which nobody waits for a kernel any longer.
LIMIT = 180.0
#: Seconds between two looks.
_PAUSE = 0.02


class CompileLock:
    """The right to compile one kernel."""

    def __init__(self) -> None:
        self._file: int | None = None
        self._ending = threading.Lock()  # of threads that needed the kernel at the same time

    def wait(self, path: Path) -> bool:
        """Take the turn, after those who have it; whether there was somebody to wait for."""
        if fcntl is None or self._file is not None:
            return False
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            file = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        except OSError:
            return False
        self._file = file
        waited, end = False, time.monotonic() + LIMIT
        while not self._locked(file):
            waited = True
            if time.monotonic() > end:
                break
            time.sleep(_PAUSE)
        return waited

    @staticmethod
    def _locked(file: int) -> bool:
        """Whether the lock is ours, or there are no locks here."""
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            return False
        except OSError:
            return True
        return True

    def end(self) -> None:
        """Let the next one compile."""
        with self._ending:
            file, self._file = self._file, None
        if file is not None:
            with suppress(OSError):
                fcntl.flock(file, fcntl.LOCK_UN)  # forked children hold the file, too
            os.close(file)
