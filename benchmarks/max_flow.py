"""Our max-flow beside PyMaxflow (if it is installed) on a 4-connected grid.

    python benchmarks/max_flow.py [side] [repeats]

Capacities of the edges are drawn from [0, 1), those of the terminals from [-strength,
strength); several strengths are tried, since weak terminals make the long searches.
"""

from __future__ import annotations

import sys
import time

import numpy as np

from cliquewise._kernels.graphs.maxflow import arcs_of, max_flow


def problem(side: int, strength: float, seed: int = 0):
    """Terminal capacities (side, side), and vertical and horizontal edge capacities."""
    rng = np.random.default_rng(seed)
    smooth = rng.standard_normal((side, side))
    for axis in (0, 1):
        smooth = sum(np.roll(smooth, k, axis) for k in range(-2, 3)) / 5
    terminal = strength * (smooth + 0.5 * rng.standard_normal((side, side)))
    return terminal, rng.random((side - 1, side)), rng.random((side, side - 1))


def ours(terminal, vertical, horizontal):
    """Flow and the seconds for building and for the flow."""
    side = len(terminal)
    index = np.arange(side * side).reshape(side, side)
    left = np.concatenate([index[:-1].ravel(), index[:, :-1].ravel()])
    right = np.concatenate([index[1:].ravel(), index[:, 1:].ravel()])
    start = time.perf_counter()
    first, head, sister, arc = arcs_of(side * side, left, right)
    residual = np.empty(len(head))
    capacity = np.concatenate([vertical.ravel(), horizontal.ravel()])
    residual[arc[0::2]] = capacity
    residual[arc[1::2]] = capacity
    built = time.perf_counter()
    in_source = np.empty(side * side, dtype=bool)
    flow = max_flow(first, head, sister, residual, terminal.ravel().copy(), in_source)
    done = time.perf_counter()
    return flow, built - start, done - built


def theirs(terminal, vertical, horizontal):
    """The same with PyMaxflow."""
    import maxflow

    side = len(terminal)
    start = time.perf_counter()
    graph = maxflow.Graph[float](side * side, 2 * side * side)
    nodes = graph.add_grid_nodes((side, side))
    padded = np.zeros((side, side))
    padded[:-1] = vertical
    down = np.array([[0, 0, 0], [0, 0, 0], [0, 1, 0]])
    graph.add_grid_edges(nodes, weights=padded, structure=down, symmetric=True)
    padded = np.zeros((side, side))
    padded[:, :-1] = horizontal
    graph.add_grid_edges(nodes, weights=padded, structure=down.T, symmetric=True)
    graph.add_grid_tedges(nodes, np.maximum(terminal, 0), np.maximum(-terminal, 0))
    built = time.perf_counter()
    flow = graph.maxflow()
    done = time.perf_counter()
    return flow, built - start, done - built


def main() -> None:
    """Print one line per strength: flows, seconds, ratio."""
    side = int(sys.argv[1]) if len(sys.argv) > 1 else 300
    repeats = int(sys.argv[2]) if len(sys.argv) > 2 else 3
    try:
        import maxflow  # noqa: F401

        has_peer = True
    except ImportError:
        has_peer = False
        print("PyMaxflow is not installed: ours alone")
    ours(*problem(8, 1.0))
    print(f"{side} x {side} grid, best of {repeats}")
    for strength in (0.3, 1.0, 3.0):
        data = problem(side, strength)
        mine = min((ours(*data) for _ in range(repeats)), key=lambda r: r[2])
        line = (
            f"strength {strength:4}: flow {mine[0]:.6f}, {mine[1]:.3f} s to build, {mine[2]:.3f} s"
        )
        if has_peer:
            peer = min((theirs(*data) for _ in range(repeats)), key=lambda r: r[2])
            line += f"; PyMaxflow {peer[0]:.6f}, {peer[1]:.3f} s, {peer[2]:.3f} s"
            line += f"; ratio of flow time {mine[2] / peer[2]:.2f}"
        print(line)


if __name__ == "__main__":
    main()
