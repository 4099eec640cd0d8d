"""The display of ``verbose``: one bar that is updated in place, or a line every few seconds."""

from __future__ import annotations

import html
import math
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np

#: Seconds between two updates on a terminal or in a notebook, and between two lines on a pipe.
REFRESH_SECONDS, PIPE_SECONDS = 0.2, 5.0
#: Width of the bar in characters.
WIDTH = 24


class TrainingLine:
    """The progress of one run as a line of text; see `run.Progress`.

    Parameters
    ----------
    show : callable or None
        Displays a text and a fraction done, from 0 to 1.
    every : float
        Seconds between two calls of ``show``.
    tol : float
        The gap to reach.
    """

    def __init__(self, show: Callable[[str, float], None] | None, every: float, tol: float):
        self.display, self.every, self.tol = show, every, tol
        self.rows: list[tuple[float, float]] = []
        self.shown, self.last = -math.inf, ("", 0.0)
        self.proven = self.first = math.inf

    def row(self, row: dict[str, float]) -> None:
        """Show a row of the trace, which has a proven gap."""
        self.rows.append((row["seconds"], row["gap"]))
        self.proven = row["gap"]
        self._update(row["epochs"], row["seconds"], row["gap"])

    def step(self, epochs: float, seconds: float, estimate: float) -> None:
        """Show a step; the gap is the solver's estimate."""
        self._update(epochs, seconds, estimate)

    def _update(self, epochs: float, seconds: float, gap: float) -> None:
        if self.display is None:
            return
        if math.isfinite(gap) and gap > 0 and not math.isfinite(self.first):
            self.first = gap
        # A gap of one says nothing about a loss that is never negative.
        proven = f"gap {self.proven:.2e}" if self.proven < 1 else "gap not yet proved"
        target = f" (target {self.tol:.0e})" if self.tol else ""
        left = _time_left(self.rows, self.tol)
        text = f"pass {epochs:.3g}  {proven}{target}  {seconds:.0f} s{left}"
        self.last = text, self._fraction_done(gap)
        if time.perf_counter() - self.shown >= self.every:
            self.shown = time.perf_counter()
            self.display(*self.last)

    def _fraction_done(self, gap: float) -> float:
        """Return how far the logarithm of the gap is on its way from the first to the target."""
        if not (0 < gap < math.inf and 0 < self.tol < self.first < math.inf):
            return 0.0
        return min(max(math.log(self.first / gap) / math.log(self.first / self.tol), 0.0), 1.0)

    def finish(self) -> None:
        """Show the last text."""
        if self.display is not None and self.last[0]:
            self.display(*self.last)


@contextmanager
def training_line(verbose: int, tol: float) -> Iterator[TrainingLine]:
    """Show a run: a live bar on a terminal or in a notebook, a line every few seconds elsewhere."""
    if not verbose:
        yield TrainingLine(None, 0.0, tol)
        return
    notebook = _notebook_display()
    terminal = notebook is None and sys.stderr.isatty()
    if notebook is not None:
        line = TrainingLine(_NotebookBar(notebook).show, REFRESH_SECONDS, tol)
    elif terminal:
        line = TrainingLine(_rewrite_line, REFRESH_SECONDS, tol)
    else:
        line = TrainingLine(_write_line, PIPE_SECONDS, tol)
    try:
        yield line
    finally:
        line.finish()
        if terminal:
            sys.stderr.write("\n" if line.last[0] else "\r\x1b[2K")


def _bar(done: float) -> str:
    full = round(WIDTH * done)
    return "█" * full + "░" * (WIDTH - full)


def _rewrite_line(text: str, done: float) -> None:
    sys.stderr.write(f"\r\x1b[2K{_bar(done)}  {text}")
    sys.stderr.flush()


def _write_line(text: str, done: float) -> None:
    sys.stderr.write(f"{text}\n")
    sys.stderr.flush()


def _notebook_display() -> Any:
    """Return IPython's display module in a notebook; None elsewhere."""
    shell = sys.modules.get("IPython")
    if shell is None or "ipykernel" not in sys.modules:
        return None
    import importlib

    running = shell.get_ipython()
    return importlib.import_module("IPython.display") if hasattr(running, "kernel") else None


class _NotebookBar:
    """One output cell that is updated in place."""

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


def _time_left(rows: list[tuple[float, float]], tol: float) -> str:
    """Return the time left, from the slope of the logarithm of the gap over the last rows."""
    usable = [(s, g) for s, g in rows[-5:] if 0 < g < np.inf]
    if len(usable) < 2 or usable[-1][1] <= tol or tol <= 0:
        return ""
    seconds, gaps = np.array(usable).T
    slope = np.polyfit(seconds, np.log(gaps), 1)[0] if np.ptp(seconds) > 0 else 0.0
    if not slope < 0:
        return ""
    return f"  about {np.log(tol / gaps[-1]) / slope:.0f} s left"
