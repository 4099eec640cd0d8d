"""Ctrl-C is handled between two steps, because a half-finished step leaves no valid state."""

from __future__ import annotations

import signal
from types import FrameType
from typing import Any, Self


class BetweenSteps:
    """A context in which the first Ctrl-C is only recorded, and a second one interrupts if urgent.

    It has no effect outside the main thread, or if the application handles the signal itself.

    Examples
    --------
    >>> _ = signal.signal(signal.SIGINT, signal.default_int_handler)
    >>> with BetweenSteps() as ctrl_c:
    ...     signal.raise_signal(signal.SIGINT)
    ...     ctrl_c.asked
    True
    """

    def __init__(self) -> None:
        self.asked = False
        self.is_urgent = False  # whether a second Ctrl-C raises: only while a caller catches it
        self._old: Any = None

    def _record(self, number: int, frame: FrameType | None) -> None:
        if self.asked and self.is_urgent:
            self.is_urgent = False  # before raising: a third Ctrl-C may come at any moment
            raise KeyboardInterrupt
        self.asked = True

    def __enter__(self) -> Self:
        if signal.getsignal(signal.SIGINT) is signal.default_int_handler:
            try:
                self._old = signal.signal(signal.SIGINT, self._record)
            except ValueError:  # not the main thread
                self._old = None
        return self

    def __exit__(self, *error: Any) -> None:
        if self._old is not None:
            signal.signal(signal.SIGINT, self._old)
