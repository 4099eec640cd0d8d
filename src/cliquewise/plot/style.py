"""Colors, line styles and helpers that all plots share."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from cliquewise.errors import MissingDependencyError
from cliquewise.ragged import Floats

#: The colors of Okabe and Ito without yellow, which is too pale in print, and a dark gray.
COLORS = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#56B4E9", "#E69F00", "#404040")
STYLES = ("-", "--", "-.", (0, (1, 1.2)), (0, (7, 1.5, 1, 1.5, 1, 1.5)))
MARKERS = ("o", "s", "^", "D", "v", "P", "X", "<", ">")
#: Positive weights have this color in every plot and report, negative ones the other.
POSITIVE, NEGATIVE = COLORS[0], COLORS[1]
#: From white to dark blue in perceptually equal steps (CIELAB).
BLUES = (
    "#ffffff", "#dde7f3", "#bacde4", "#98b2d1", "#7696bb", "#567aa2", "#395d87", "#1e426a",
    "#06294d",
)  # fmt: skip
#: Largest number of labels of a matrix that shows its numbers; longest name, in characters.
MOST_NUMBERS, MOST_LETTERS = 14, 28


def axes(ax: Any, width: float = 5.6, height: float = 3.8) -> Any:
    """Return the given axes, or new ones."""
    try:
        from matplotlib import pyplot
    except ImportError as error:
        raise MissingDependencyError(
            "cliquewise.plot draws with matplotlib: pip install 'cliquewise[report]'"
        ) from error
    if ax is not None:
        return ax
    return pyplot.subplots(figsize=(width, height), layout="constrained")[1]


def look(i: int, n_points: int = 0, style: int | None = None) -> dict[str, Any]:
    """Return color, line style and marker of line ``i``, with about eight markers."""
    return {
        "color": COLORS[i % len(COLORS)],
        "linestyle": STYLES[(i if style is None else style) % len(STYLES)],
        "marker": MARKERS[i % len(MARKERS)],
        "markevery": max(n_points // 8, 1),
        "markersize": 4.5,
        "linewidth": 1.6,
    }


def short(name: Any) -> str:
    """Return a name cut to the length of a label, with dollar signs escaped."""
    text = str(name)
    text = text if len(text) <= MOST_LETTERS else text[: MOST_LETTERS - 1] + "…"
    return text.replace("$", r"\$")


def finish(ax: Any, x: str, y: str) -> Any:
    """Set the names of both axes, a faint grid below the data, and remove the frame."""
    ax.set_xlabel(x)
    ax.set_ylabel(y)
    ax.grid(alpha=0.25, linewidth=0.6)
    ax.set_axisbelow(True)
    for side in ("top", "right"):
        ax.spines[side].set_visible(False)
    return ax


def matrix(
    ax: Any,
    colors: Floats,
    names: Sequence[Any],
    limits: tuple[float, float],
    what: str,
    form: str,
    figures: NDArray[Any],
) -> Any:
    """Draw a square matrix of colors with names, and with numbers if it is small."""
    n = len(names)
    side = 2.2 + 0.3 * min(max(n, 4), 30)
    ax = axes(ax, side + 0.8, side)
    from matplotlib.colors import LinearSegmentedColormap

    low, high = limits
    shades = (NEGATIVE, "#ffffff", POSITIVE) if low < 0 else BLUES
    colormap = LinearSegmentedColormap.from_list("cliquewise", shades)
    image = ax.imshow(colors, cmap=colormap, vmin=low, vmax=high, interpolation="nearest")
    shown, slanted = list(map(short, names)), max((len(str(c)) for c in names), default=0) > 2
    ax.set_xticks(range(n), shown, rotation=90 if slanted else 0)
    ax.set_yticks(range(n), shown)
    ax.tick_params(length=0, labelsize="small" if n <= 20 else "x-small")
    ax.spines[:].set_visible(False)
    if n:
        ax.figure.colorbar(image, ax=ax, label=what, shrink=0.8)
    for row, column in np.ndindex(*figures.shape if n <= MOST_NUMBERS else (0, 0)):
        if np.isfinite(figures[row, column]):
            shade = image.cmap(image.norm(colors[row, column]))
            dark = 0.3 * shade[0] + 0.59 * shade[1] + 0.11 * shade[2] < 0.5
            at = {"ha": "center", "va": "center", "fontsize": "small"}
            text = form.format(figures[row, column])
            ax.text(column, row, text, color="white" if dark else "black", **at)
    return ax
