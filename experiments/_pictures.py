"""Pictures of results: a few panels of lines, as small files that do not change without reason."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from cliquewise.plot.style import COLORS, finish, look


@dataclass
class Panel:
    """Lines in one pair of axes.

    ``lines`` are names and (x, y); ``log`` is "", "x", "y" or "xy"; names in ``dashed`` are drawn
    so (what is not ours). With ``areas``, a square of numbers over [-4, 4] x [-4, 4], the lines are
    points upon it.
    """

    title: str
    xlabel: str
    ylabel: str
    lines: dict[str, tuple[Any, Any]]
    log: str = ""
    dashed: set[str] = field(default_factory=set)
    areas: Any = None


def panels(path: Path, drawn: list[Panel], across: int = 3) -> None:
    """Draw the panels in rows of ``across``; the ending of the path says the format."""
    import matplotlib
    from matplotlib.figure import Figure

    across = min(across, len(drawn))
    down = -(-len(drawn) // across)
    shared = len({tuple(panel.lines) for panel in drawn}) == 1
    # A fixed salt and no date: the same numbers make the same file.
    with matplotlib.rc_context(
        {"svg.hashsalt": "cliquewise", "svg.fonttype": "none", "font.size": 8}
    ):
        figure = Figure(figsize=(3.6 * across + 1.4 * shared, 2.8 * down), layout="constrained")
        for at, panel in enumerate(drawn):
            axes = figure.add_subplot(down, across, at + 1)
            if panel.areas is not None:
                side = np.linspace(-4, 4, len(panel.areas))
                levels = np.arange(len(panel.lines) + 1) - 0.5
                axes.contourf(side, side, panel.areas, levels, colors=COLORS, alpha=0.3)
            for i, (name, (x, y)) in enumerate(panel.lines.items()):
                style = {**look(i, len(x), style=0), "markersize": 3, "linewidth": 1.2}
                if name in panel.dashed:
                    style["linestyle"] = "--"
                if panel.areas is not None:
                    style |= {"linestyle": "", "marker": ".", "markevery": 1}
                axes.plot(x, y, label=name, **style)
            axes.set_xscale("log" if "x" in panel.log else "linear")
            axes.set_yscale("log" if "y" in panel.log else "linear")
            finish(axes, panel.xlabel, panel.ylabel).set_title(panel.title)
            if not shared:
                axes.legend(fontsize=6)
        if shared:
            figure.legend(*axes.get_legend_handles_labels(), loc="outside right upper", fontsize=7)
        path.parent.mkdir(parents=True, exist_ok=True)
        figure.savefig(path, metadata={"Date": None} if path.suffix == ".svg" else None)
