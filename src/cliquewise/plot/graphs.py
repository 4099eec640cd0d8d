"""Plots of factor graphs."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from cliquewise.errors import DataError
from cliquewise.graph.factor_graph import FactorGraph
from cliquewise.graph.html import (
    MOST_DRAWN,
    MOST_PICTURED,
    drawn,
    lines_of,
    names_of,
    quick_chances,
)
from cliquewise.plot.style import COLORS, axes, short


def graph(factor_graph: FactorGraph, marginals: Any = "auto", *, ax: Any = None) -> Any:
    """Plot a graphical model: variables are bars divided among their states, factors are squares.

    Parameters
    ----------
    factor_graph : FactorGraph
        With at most 600 variables; observed ones have a thick frame, and names are written if
        there are at most 60.
    marginals : MarginalResult, list of arrays, None or "auto"
        Whose probabilities to show; ``auto`` asks the graph if that takes about a second, None
        draws none.
    ax : matplotlib axes, optional

    Examples
    --------
    >>> from cliquewise import FactorGraph, plot
    >>> wet = FactorGraph.from_cpts({"Rain": [0.8, 0.2], "Wet": (["Rain"], [[0.9, 0.1], [0, 1]])})
    >>> [text.get_text() for text in plot.graph(wet).texts]
    ['Rain', 'Wet']
    """
    n = factor_graph.n_variables
    if n > MOST_DRAWN:
        raise DataError(f"{n:,} variables are too many to draw; {MOST_DRAWN} are the most")
    chances = _chances(factor_graph, marginals)
    found = drawn(factor_graph)
    places, large = found.places, found.scopes
    wide, high = (places.max(axis=0) - places.min(axis=0)) if len(places) else (0.0, 0.0)
    ax = axes(ax, *(float(np.clip(1.2 + 0.75 * s, 2.5, 14)) for s in (wide, high)))
    from matplotlib.collections import LineCollection, PatchCollection
    from matplotlib.patches import Rectangle

    spokes = [(v, n + f) for f, scope in enumerate(large) for v in scope]
    whole, ends = lines_of(found)
    lines = [*whole, *((places[a], places[b]) for a, b in spokes), *ends]
    styles = ["-"] * (len(lines) - len(ends)) + [":"] * len(ends)
    ax.add_collection(
        LineCollection(lines, colors="0.65", linewidths=0.9, linestyles=styles, zorder=1)
    )
    ax.scatter(*places[n:].T, marker="s", s=22, color="0.4", zorder=2)
    boxes, colors, frames, widths = [], [], [], []
    for v in range(n):
        left, bottom = places[v, 0] - 0.3, places[v, 1] - 0.11
        for state, p in enumerate(chances[v]):
            boxes.append(Rectangle((left, bottom), 0.6 * p, 0.22))
            colors.append(COLORS[state % len(COLORS)])
            left += 0.6 * p
        frames.append(Rectangle((places[v, 0] - 0.3, bottom), 0.6, 0.22))
        widths.append(2.2 if v in factor_graph.evidence else 0.7)
    back = PatchCollection(frames, facecolor="0.85", edgecolor="none", zorder=2.5)
    ax.add_collection(back)
    ax.add_collection(PatchCollection(boxes, facecolor=colors, edgecolor="none", zorder=3))
    ax.add_collection(
        PatchCollection(frames, facecolor="none", edgecolor="0.15", linewidth=widths, zorder=4)
    )
    for v, name in enumerate(names_of(factor_graph) if n <= MOST_PICTURED else []):
        paper = {"facecolor": ax.get_facecolor(), "edgecolor": "none", "pad": 0.4, "alpha": 0.8}
        at = {"ha": "center", "va": "top", "fontsize": "x-small", "bbox": paper, "zorder": 2.2}
        ax.text(places[v, 0], places[v, 1] + 0.17, short(name), **at)
    ax.set_aspect("equal")
    ax.margins(0.06)
    ax.autoscale_view()
    ax.invert_yaxis()
    ax.set_axis_off()
    return ax


def _chances(factor_graph: FactorGraph, marginals: Any) -> Sequence[Any]:
    """Return the probabilities of the states of each variable; empty if there are none."""
    if isinstance(marginals, str):
        return quick_chances(factor_graph)[0]
    if marginals is None:
        return [[] for _ in range(factor_graph.n_variables)]
    found: Sequence[Any] = getattr(marginals, "nodes", marginals)
    if [len(p) for p in found] != factor_graph.cardinalities.tolist():
        raise DataError("marginals need one array per variable, with a number for each state")
    return found
