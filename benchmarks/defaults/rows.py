"""A row: the default and one or more choices by hand on the same data, in the same process."""

from __future__ import annotations

import time
import warnings
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any

#: What the default may cost, relative to the best choice, and how much quality may differ by noise.
TIME, NOISE = 1.5, 0.005
#: Differences below a hundredth of a second are nobody's.
BLINK = 0.01


@dataclass
class Row:
    """One line of the table.

    ``default`` and each of ``choices`` do the whole work and return its quality (more is better);
    what they need is made by ``prepare``, which is not timed. ``warm`` runs each once before it
    is timed, so that nobody pays for compiling.
    """

    name: str
    measure: str
    prepare: Callable[[], Any]
    default: Callable[[Any], float]
    choices: dict[str, Callable[[Any], float]]
    noise: float = NOISE
    warm: Callable[[Any], Any] | None = None

    def run(self) -> Iterable[dict[str, Any]]:
        """Timed results, the default first."""
        given = self.prepare()
        if self.warm is not None:
            self.warm(given)
        for name, function in {"default": self.default, **self.choices}.items():
            begin = time.perf_counter()
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")
                quality = float(function(given))
            seconds = time.perf_counter() - begin
            yield {"row": self.name, "choice": name, "quality": quality, "seconds": seconds}


def verdict(results: list[dict[str, Any]], noise: float) -> str:
    """Whether the default is as good as the best, and as fast as the fastest that is as good."""
    default, *others = results
    best = max(r["quality"] for r in others)
    if default["quality"] < best - noise:
        return f"worse by {best - default['quality']:.3g}"
    equal = [r["seconds"] for r in others if r["quality"] >= best - noise]
    ratio = (default["seconds"] + BLINK) / (min(equal) + BLINK)
    return "ok" if ratio <= TIME else f"slower: {ratio:.1f}x"
