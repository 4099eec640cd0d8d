"""A lock that lets one of several processes compile a kernel, while the others wait for its code.

Workers of a grid search or of a cluster start together and need the same kernels. The lock is a
lock on a file next to the cached kernel, which the system releases when the process dies. Without
such locks (Windows, some network file systems) each process compiles for itself.
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

#: Seconds to wait for another process. The slowest kernel takes 20 s on a slow machine.
MAX_WAIT = 180.0
#: Seconds between two attempts: short next to the second that a kernel takes to compile.
_INTERVAL = 0.02


class CompileLock:
    """The right to compile one kernel."""

    def __init__(self) -> None:
        self._file: int | None = None
        self._releasing = threading.Lock()  # threads may need the same kernel at the same time

    def acquire(self, path: Path) -> bool:
        """Wait for the lock, and return whether another process held it."""
        if fcntl is None or self._file is not None:
            return False
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            file = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        except OSError:
            return False
        self._file = file
        waited, end = False, time.monotonic() + MAX_WAIT
        while not self._is_locked(file):
            waited = True
            if time.monotonic() > end:
                break
            time.sleep(_INTERVAL)
        return waited

    @staticmethod
    def _is_locked(file: int) -> bool:
        """Try to lock, and return whether that succeeded or is not supported."""
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            return False
        except OSError:
            return True
        return True

    def release(self) -> None:
        """Let the next process continue; does nothing if the lock is not held."""
        with self._releasing:
            file, self._file = self._file, None
        if file is not None:
            with suppress(OSError):
                fcntl.flock(file, fcntl.LOCK_UN)  # forked children hold the file as well
            os.close(file)
