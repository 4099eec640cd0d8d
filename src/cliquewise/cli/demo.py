"""``cliquewise demo``: restore a noisy picture, and say how sure every pixel is."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from cliquewise.cli import debug_option
from cliquewise.cli.progress import waiting

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

PICTURE = """
........................
...#######....###.......
..########....###.......
.####.........###.......
.###..........###.......
.###..........###.......
.####.........###.......
..########....########..
...#######....########..
........................
"""
#: Chance that a pixel is flipped, and how much neighbours like to be equal.
NOISE, COUPLING = 0.13, 1.0
SHADES = " ░▒▓█"


@click.command()
@click.option("--seed", default=3, show_default=True, help="Of the noise.")
@debug_option
def command(seed: int) -> None:
    """Restore a noisy picture with exact inference on a grid of 240 variables."""
    import numpy as np
    from rich.columns import Columns
    from rich.console import Console
    from rich.panel import Panel

    from cliquewise.builders import grid

    rows = PICTURE.split()
    true = np.array([[c == "#" for c in row] for row in rows], dtype=np.int64)
    rng = np.random.default_rng(seed)
    seen = true ^ (rng.random(true.shape) < NOISE)
    weight = np.log((1 - NOISE) / NOISE)
    nodes = np.stack([weight * (seen == 0), weight * (seen == 1)], axis=-1)
    graph = grid(nodes, COUPLING * np.eye(2), COUPLING * np.eye(2))
    with waiting("compiling, once, and solving"):
        best = graph.map()
        marginals = graph.marginals()
    lit = np.array([node[1] for node in marginals.nodes]).reshape(true.shape)
    labels = best.labels.reshape(true.shape)
    console = Console(highlight=False)
    console.print(
        Columns(
            [
                Panel.fit(_draw(seen), padding=0, title="seen"),
                Panel.fit(_draw(labels), padding=0, title="most probable"),
                Panel.fit(_draw(lit), padding=0, title="probability"),
            ]
        )
    )
    console.print(
        f"{graph.n_variables} variables, {graph.n_factors} factors, solved by {best.method}\n"
        f"wrong pixels: {int((seen != true).sum())} seen, {int((labels != true).sum())} restored\n"
        f"score {best.score:.6f}, no labeling scores above {best.upper_bound:.6f} "
        f"(gap {best.gap:g})\n"
        f"ln Z  {marginals.log_z:.6f}"
    )


def _draw(values: NDArray[np.float64] | NDArray[np.int64]) -> str:
    last = len(SHADES) - 1
    return "\n".join("".join(SHADES[round(float(v) * last)] for v in row) for row in values)
