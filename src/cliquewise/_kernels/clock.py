"""A clock that stands still while kernels are compiled.

Limits of time are for searching and training. Compiling happens once on a machine: a limit of five
seconds would leave nothing of a first use, and its answers would depend on what was used before.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager


class _Clock:
    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._stopped, self._since, self._lost = 0, 0.0, 0.0

    def now(self) -> float:
        """Seconds since some moment, without those of compiling; never less than before."""
        with self._lock:
            return (self._since if self._stopped else time.perf_counter()) - self._lost

    @contextmanager
    def stopped(self) -> Iterator[None]:
        """Time that does not count; of several threads, and of compiling within compiling, once."""
        with self._lock:
            if not self._stopped:
                self._since = time.perf_counter()
            self._stopped += 1
        try:
            yield
        finally:
            with self._lock:
                self._stopped -= 1
                if not self._stopped:
                    self._lost += time.perf_counter() - self._since


_clock = _Clock()
now, stopped = _clock.now, _clock.stopped
