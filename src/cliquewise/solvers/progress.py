"""What ``verbose`` shows of a training run: one bar that renews itself, or a line now and then."""

from __future__ import annotations

import html
import math
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np

#: Seconds between two renewals on a terminal or in a notebook, and between lines on a pipe.
REFRESH, PATIENCE = 0.2, 5.0
#: Characters of the bar.
WIDTH = 24


class TrainingLine:
    """The progress of one run; ``run`` calls it with every row of the trace, and between them.

    Parameters
    ----------
    show : callable or None
        Takes a text and how much is done, from 0 to 1.
    every : float
        Seconds between two calls of ``show``.
    tol : float
        The gap to reach.
    callback : callable, optional
        Is called with every row as well.
    """

    def __init__(
        self,
        show: Callable[[str, float], None] | None,
        every: float,
        tol: float,
        callback: Callable[[dict[str, float]], Any] | None = None,
    ):
        self.show, self.every, self.tol, self.callback = show, every, tol, callback
        self.rows: list[tuple[float, float]] = []
        self.shown, self.last = -math.inf, ("", 0.0)
        self.proved = self.first = math.inf

    def __call__(self, row: dict[str, float]) -> None:
        """A row of the trace: something was proved."""
        self.rows.append((row["seconds"], row["gap"]))
        self.proved = row["gap"]
        self._renew(row["epochs"], row["seconds"], row["gap"])
        if self.callback is not None:
            self.callback(row)

    def step(self, epochs: float, seconds: float, estimate: float) -> None:
        """A step: nothing is proved, but the solver has an estimate of the gap."""
        if self.show is not None:
            self._renew(epochs, seconds, estimate)

    def _renew(self, epochs: float, seconds: float, gap: float) -> None:
        if self.show is None:
            return
        if math.isfinite(gap) and gap > 0 and not math.isfinite(self.first):
            self.first = gap
        # of a loss that is never negative a gap of one says nothing
        proved = f"gap {self.proved:.2e}" if self.proved < 1 else "gap not yet proved"
        target = f" (target {self.tol:.0e})" if self.tol else ""
        text = f"pass {epochs:.3g}  {proved}{target}  {seconds:.0f} s{_left(self.rows, self.tol)}"
        self.last = text, self._done(gap)
        if time.perf_counter() - self.shown >= self.every:
            self.shown = time.perf_counter()
            self.show(*self.last)

    def _done(self, gap: float) -> float:
        """How far the logarithm of the gap has come from where it began to where it shall be."""
        if not (0 < gap < math.inf and 0 < self.tol < self.first < math.inf):
            return 0.0
        return min(max(math.log(self.first / gap) / math.log(self.first / self.tol), 0.0), 1.0)

    def finish(self) -> None:
        """Show how it ended."""
        if self.show is not None and self.last[0]:
            self.show(*self.last)


@contextmanager
def training_line(
    verbose: int, tol: float, callback: Callable[[dict[str, float]], Any] | None = None
) -> Iterator[TrainingLine]:
    """Show a run: a live bar on a terminal or in a notebook, a line every few seconds elsewhere."""
    if not verbose:
        yield TrainingLine(None, 0.0, tol, callback)
        return
    display = _notebook()
    terminal = display is None and sys.stderr.isatty()
    if display is not None:
        line = TrainingLine(_NotebookBar(display).show, REFRESH, tol, callback)
    elif terminal:
        line = TrainingLine(_renew_line, REFRESH, tol, callback)
    else:
        line = TrainingLine(_write_line, PATIENCE, tol, callback)
    try:
        yield line
    finally:
        line.finish()
        if terminal:
            sys.stderr.write("\n" if line.last[0] else "\r\x1b[2K")


def _bar(done: float) -> str:
    full = round(WIDTH * done)
    return "█" * full + "░" * (WIDTH - full)


def _renew_line(text: str, done: float) -> None:
    sys.stderr.write(f"\r\x1b[2K{_bar(done)}  {text}")
    sys.stderr.flush()


def _write_line(text: str, done: float) -> None:
    sys.stderr.write(f"{text}\n")
    sys.stderr.flush()


def _notebook() -> Any:
    """IPython's display module inside of a notebook's kernel; None elsewhere."""
    shell = sys.modules.get("IPython")
    if shell is None or "ipykernel" not in sys.modules:
        return None
    import importlib

    running = shell.get_ipython()
    return importlib.import_module("IPython.display") if hasattr(running, "kernel") else None


class _NotebookBar:
    """One output that is written anew."""

    def __init__(self, display: Any):
        self.display = display
        self.handle: Any = None

    def show(self, text: str, done: float) -> None:
        bar = (
            f'<progress max="1" value="{done:.3f}" style="width:16em;vertical-align:middle">'
            f"</progress> <code>{html.escape(text)}</code>"
        )
        shown = self.display.HTML(bar)
        if self.handle is None:
            self.handle = self.display.display(shown, display_id=True)
        else:
            self.handle.update(shown)


def _left(rows: list[tuple[float, float]], tol: float) -> str:
    """Time left, from the slope of the logarithm of the gap over the last checks."""
    usable = [(s, g) for s, g in rows[-5:] if 0 < g < np.inf]
    if len(usable) < 2 or usable[-1][1] <= tol or tol <= 0:
        return ""
    seconds, gaps = np.array(usable).T
    slope = np.polyfit(seconds, np.log(gaps), 1)[0] if np.ptp(seconds) > 0 else 0.0
    if not slope < 0:
        return ""
    return f"  about {np.log(tol / gaps[-1]) / slope:.0f} s left"
