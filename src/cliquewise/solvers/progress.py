"""A live line for a training run: epoch, primal, dual, gap and time left."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import numpy as np

Show = Callable[[dict[str, float]], None]


@contextmanager
def training_line(verbose: int, tol: float) -> Iterator[Show]:
    """Show rows of a trace: a line that renews itself on a terminal, plain lines elsewhere."""
    if not verbose:
        yield lambda row: None
        return
    terminal = sys.stderr.isatty()
    rows: list[tuple[float, float]] = []

    def show(row: dict[str, float]) -> None:
        rows.append((row["seconds"], row["gap"]))
        text = (
            f"epoch {row['epochs']:6.1f}  primal {row['primal']:.6f}  dual {row['dual']:.6f}  "
            f"gap {row['gap']:.2e}  {row['seconds']:.1f} s{_left(rows, tol)}"
        )
        sys.stderr.write(f"\r\x1b[2K{text}" if terminal else f"{text}\n")
        sys.stderr.flush()

    try:
        yield show
    finally:
        if terminal:
            sys.stderr.write("\n" if rows else "\r\x1b[2K")


@contextmanager
def encoding_line(verbose: int) -> Iterator[Callable[[int], None] | None]:
    """Show how many tokens are encoded, every two seconds."""
    if not verbose:
        yield None
        return
    started = shown = time.perf_counter()
    terminal = sys.stderr.isatty()

    def show(tokens: int) -> None:
        nonlocal shown
        now = time.perf_counter()
        if now - shown >= 2.0:
            shown = now
            text = f"encoded {tokens} tokens  {now - started:.0f} s"
            sys.stderr.write(f"\r\x1b[2K{text}" if terminal else f"{text}\n")
            sys.stderr.flush()

    try:
        yield show
    finally:
        if terminal:
            sys.stderr.write("\r\x1b[2K")


def _left(rows: list[tuple[float, float]], tol: float) -> str:
    """Time left, from the slope of the logarithm of the gap over the last checks."""
    usable = [(s, g) for s, g in rows[-5:] if 0 < g < np.inf]
    if len(usable) < 2 or usable[-1][1] <= tol:
        return ""
    seconds, gaps = np.array(usable).T
    slope = np.polyfit(seconds, np.log(gaps), 1)[0] if np.ptp(seconds) > 0 else 0.0
    if not slope < 0:
        return ""
    return f"  about {np.log(tol / gaps[-1]) / slope:.0f} s left"
