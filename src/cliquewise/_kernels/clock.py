"""A clock that stops while kernels are compiled.

Time limits are for searching and training. Compilation happens once on a machine: a limit of five
seconds would leave nothing of a first call, and answers would depend on what was called before.
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
        """Return seconds since a fixed moment, without those of compilation; monotonic."""
        with self._lock:
            return (self._since if self._stopped else time.perf_counter()) - self._lost

    @contextmanager
    def stopped(self) -> Iterator[None]:
        """Stop the clock. Overlapping and nested uses subtract their time once."""
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
