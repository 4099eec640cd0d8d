"""What a case showed, and how it is made small: delta debugging on plain data.

A case is made of dicts, lists, strings, numbers, booleans and None. Smaller is a case with fewer
entries, shorter strings and rounder numbers. Nothing is known of its meaning: a smaller case that
makes no sense shows another trouble, or none, and is dropped.
"""

from __future__ import annotations

import json
import math
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any, NamedTuple


class Trouble(NamedTuple):
    """What is wrong: in words that are the same for all cases of it, and in detail."""

    what: str
    detail: str = ""


class Report(NamedTuple):
    """What checking a case gave."""

    checks: int
    trouble: Trouble | None = None


@dataclass(frozen=True)
class Finding:
    """A trouble, the small case that shows it, and the number that draws the first one."""

    part: str
    number: int
    trouble: Trouble
    case: Any

    def __str__(self) -> str:
        head = f"{self.part}, case {self.number}: {self.trouble.what}"
        about = "\n".join(f"# {line}" for line in f"{head}\n{self.trouble.detail}".splitlines())
        return f"{about}\n{json.dumps({'part': self.part, 'case': self.case})}\n"


def shrink(case: Any, fails: Callable[[Any], bool], seconds: float) -> Any:
    """The smallest case found in the given time that still fails."""
    end = time.monotonic() + seconds
    progress = True
    while progress:
        progress = False
        for smaller in _smaller(case):
            if time.monotonic() > end:
                return case
            if fails(smaller):
                case, progress = smaller, True
                break
    return case


def _smaller(value: Any) -> Iterator[Any]:
    """Cases that are simpler in one place, bold ones first."""
    if isinstance(value, dict):
        yield from _without_keys(value)
        yield from _within(value, value.items(), lambda copy: copy)
    elif isinstance(value, list):
        yield from _without_chunks(value)
        yield from _within(value, enumerate(value), lambda copy: copy)
    elif isinstance(value, str):
        yield from _without_chunks(value)
    elif isinstance(value, float):
        yield from _rounder(value)
    elif isinstance(value, bool):
        if value:
            yield False
    elif isinstance(value, int):
        yield from (n for n in (0, 1, value // 2, value - 1) if abs(n) < abs(value))


def _within(value: Any, items: Any, keep: Callable[[Any], Any]) -> Iterator[Any]:
    for key, inner in items:
        for smaller in _smaller(inner):
            copy = value.copy()
            copy[key] = smaller
            yield keep(copy)


def _without_keys(value: dict[Any, Any]) -> Iterator[dict[Any, Any]]:
    for key in value:
        yield {k: v for k, v in value.items() if k != key}


def _without_chunks(value: Any) -> Iterator[Any]:
    """Without a half, a quarter, ... of the entries."""
    size = len(value)
    while size > 0:
        for first in range(0, len(value), size):
            yield value[:first] + value[first + size :]
        size //= 2


def _rounder(value: float) -> Iterator[float]:
    if value != value or math.isinf(value):
        yield from (0.0, 1.0)
        return
    seen = {value}
    for simple in (0.0, 1.0, float(f"{value:.0e}"), float(f"{value:.1e}"), float(f"{value:.2e}")):
        plain = len(repr(simple)) < len(repr(value)) or simple in (0.0, 1.0)
        if simple not in seen and plain and value not in (0.0, 1.0):
            seen.add(simple)
            yield simple
