"""A spinner on the terminal for steps that take longer than two seconds."""

from __future__ import annotations

import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

#: Seconds until the spinner appears.
PATIENCE = 2.0


@contextmanager
def waiting(message: str, patience: float = PATIENCE) -> Iterator[None]:
    """Show ``message``, a spinner and the time, once the body has run for ``patience`` seconds.

    Nothing is written where the standard error stream is not a terminal.

    Examples
    --------
    >>> with waiting("adding"):
    ...     1 + 1
    2
    """
    if not sys.stderr.isatty():
        yield
        return
    shown: list[Any] = []
    lock = threading.Lock()
    done = threading.Event()

    def show() -> None:
        from rich.console import Console
        from rich.progress import Progress, SpinnerColumn, TextColumn, TimeElapsedColumn

        with lock:
            if done.is_set():
                return
            progress = Progress(
                SpinnerColumn(),
                TextColumn("{task.description}"),
                TimeElapsedColumn(),
                console=Console(stderr=True),
                transient=True,
            )
            progress.add_task(message, total=None)
            progress.start()
            shown.append(progress)

    timer = threading.Timer(patience, show)
    timer.daemon = True
    timer.start()
    try:
        yield
    finally:
        timer.cancel()
        done.set()
        with lock:
            for progress in shown:
                progress.stop()
