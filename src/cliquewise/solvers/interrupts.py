"""Ctrl-C, acted upon between steps: what a step has half done is no state."""

from __future__ import annotations

import signal
from types import FrameType
from typing import Any, Self


class BetweenSteps:
    """While it is entered, a first Ctrl-C is only noted; a second one interrupts if urgent.

    Nothing is changed outside the main thread, or where somebody else handles the signal.

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
        self.is_urgent = False  # whether a second one interrupts: somebody is there to catch it
        self._old: Any = None

    def _note(self, number: int, frame: FrameType | None) -> None:
        if self.asked and self.is_urgent:
            self.is_urgent = False  # before it is raised: a third one may come at any moment
            raise KeyboardInterrupt
        self.asked = True

    def __enter__(self) -> Self:
        if signal.getsignal(signal.SIGINT) is signal.default_int_handler:
            try:
                self._old = signal.signal(signal.SIGINT, self._note)
            except ValueError:  # not the main thread
                self._old = None
        return self

    def __exit__(self, *error: Any) -> None:
        if self._old is not None:
            signal.signal(signal.SIGINT, self._old)
