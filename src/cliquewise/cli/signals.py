"""SIGTERM acts like Ctrl-C: training ends with a model, and no partial files are left."""

from __future__ import annotations

import signal
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType


@contextmanager
def sigterm_interrupts() -> Iterator[None]:
    """Handle SIGTERM as SIGINT inside the block.

    A handler of SIGINT that is installed at the time of the signal is called, such as that of
    training, which ends between two steps. Otherwise a KeyboardInterrupt is raised.
    """

    def interrupt(number: int, frame: FrameType | None) -> None:
        handler = signal.getsignal(signal.SIGINT)
        if callable(handler):
            handler(signal.SIGINT, frame)
        else:  # SIGINT is ignored in background jobs of some shells
            raise KeyboardInterrupt

    try:
        before = signal.signal(signal.SIGTERM, interrupt)
    except ValueError:  # not the main thread
        yield
        return
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)
