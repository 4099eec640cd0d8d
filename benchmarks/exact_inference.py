"""Exact marginals beside pyagrum's Shafer-Shenoy, on grids and on competition models.

    python -m benchmarks.exact_inference [--data DIR] [--seconds LIMIT]

Both programs get the same tables (pyagrum's in the linear scale, built outside of the
timing) and one thread, and both return the marginals of all variables.

first   triangulation (elimination order) and inference
again   inference after one unary table changed: both keep their triangulation, and
        pyagrum also those messages that the change leaves valid

Ours computes the marginals of all factors as well, which are not asked of pyagrum.
The last line is JSON.
"""

from __future__ import annotations

import argparse
import io
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.common import geometric_mean, print_json, print_table, seconds
from benchmarks.reference_answers import FAMILIES, cases
from cliquewise.data.formats.uai import read_uai
from cliquewise.graph.builders import grid
from cliquewise.graph.factor_graph import FactorGraph
from cliquewise.graph.structure import Structure
from cliquewise.oracles import get

#: Families with stored models, and how many of each.
STORED = {
    "SyntheticGrids_10x10": 4,
    "MAR_Alchemy": 2,
    "MAR_CSP": 2,
    "MAR_Grids": 2,
    "MAR_Segmentation": 4,
    "MAR_ObjectDetection": 2,
}
#: Models with more table entries than this take pyagrum minutes.
MAX_ENTRIES = 2e7


def generated() -> Iterator[tuple[str, FactorGraph]]:
    """Grids with normal log-potentials."""
    rng = np.random.default_rng(0)
    for side, states in [(8, 2), (10, 2), (12, 2), (14, 2), (6, 3), (8, 3), (9, 3)]:
        nodes = rng.standard_normal((side, side, states))
        vertical = rng.standard_normal((side - 1, side, states, states))
        horizontal = rng.standard_normal((side, side - 1, states, states))
        yield f"grid {side}x{side}, {states} states", grid(nodes, vertical, horizontal)


def stored(data: Path) -> Iterator[tuple[str, FactorGraph]]:
    """Models of the competition and of the Barrier Frank-Wolfe paper, evidence sliced out."""
    for family in FAMILIES:
        left = STORED.get(family.name, 0)
        for case in cases(family, data) if left else ():
            evidence = None if case.evidence is None else io.BytesIO(case.evidence)
            graph = read_uai(io.BytesIO(case.model), evidence).core.graph
            if get("junction-tree").best_order(graph.structure).operations > MAX_ENTRIES:
                continue
            yield case.name, graph
            left -= 1
            if left == 0:
                break


def merged(graph: FactorGraph) -> dict[tuple[int, ...], np.ndarray]:
    """One table per set of variables, with its axes sorted: pyagrum takes no two on one set."""
    tables: dict[tuple[int, ...], np.ndarray] = {}
    for scope, table in graph.factors:
        axes = np.argsort(scope)
        key = tuple(sorted(scope))
        tables[key] = tables.get(key, 0.0) + table.transpose(axes)
    return tables


def as_markov_field(graph: FactorGraph) -> Any:
    """The same graph as pyagrum's MarkovRandomField."""
    import pyagrum as gum

    field = gum.MarkovRandomField()
    for v, states in enumerate(graph.cardinalities.tolist()):
        field.add(gum.LabelizedVariable(f"x{v}", "", states))
    for scope, table in merged(graph).items():
        factor = field.addFactor([f"x{v}" for v in scope])
        # pyagrum's first variable is its fastest.
        factor.fillWith(np.exp(table - table.max()).ravel(order="F").tolist())
    return field


class Pyagrum:
    """Shafer-Shenoy on one thread."""

    def __init__(self, graph: FactorGraph):
        import pyagrum as gum

        gum.setNumberOfThreads(1)
        self.field = as_markov_field(graph)
        self.names = [f"x{v}" for v in range(graph.n_variables)]
        degree = np.bincount(graph.structure.edges.ravel(), minlength=graph.n_variables)
        self.changing = self.names[int(np.argmax(degree))]
        self.states = int(graph.cardinalities[np.argmax(degree)])
        self.flip = False

    def _posteriors(self, inference: Any) -> np.ndarray:
        inference.makeInference()
        return np.concatenate([inference.posterior(name).toarray() for name in self.names])

    def first(self) -> np.ndarray:
        """A new inference object."""
        import pyagrum as gum

        return self._posteriors(gum.ShaferShenoyMRFInference(self.field))

    def prepare(self) -> None:
        """An object whose best connected variable has a likelihood that `again` changes."""
        import pyagrum as gum

        self.kept = gum.ShaferShenoyMRFInference(self.field)
        self.kept.addEvidence(self.changing, self._likelihood())
        self._posteriors(self.kept)

    def _likelihood(self) -> list[float]:
        self.flip = not self.flip
        return [0.5 + 0.25 * self.flip, 1.0, *[0.5] * self.states][: self.states]

    def again(self) -> np.ndarray:
        """The kept object with another likelihood of that variable."""
        self.kept.chgEvidence(self.changing, self._likelihood())
        return self._posteriors(self.kept)


class Ours:
    """The junction tree oracle."""

    def __init__(self, graph: FactorGraph):
        self.graph = graph

    def first(self) -> np.ndarray:
        """A structure that nothing is known of."""
        s = self.graph.structure
        fresh = Structure.from_arrays(s.cardinalities, s.scopes, s.scope_offsets)
        graph = FactorGraph.from_structure(fresh, self.graph.tables)
        return graph.marginals("junction-tree").nodes.flat

    def again(self) -> np.ndarray:
        """New tables on a known structure."""
        graph = FactorGraph.from_structure(self.graph.structure, self.graph.tables)
        return graph.marginals("junction-tree").nodes.flat


def compare(name: str, graph: FactorGraph, limit: float) -> list[Any] | None:
    """A row of the table; None where pyagrum takes longer than the limit."""
    ours, peer = Ours(graph), Pyagrum(graph)
    slow = seconds(peer.first, repeats=1, warm=False)
    if slow > limit:
        return None
    repeats = int(np.clip(1.0 / max(slow, 1e-3), 1, 5))
    error = float(np.abs(ours.first() - peer.first()).max())
    peer.prepare()
    ours.again()
    timings = [
        seconds(peer.first, repeats, warm=False),
        seconds(ours.first, repeats, warm=False),
        seconds(peer.again, repeats, warm=False),
        seconds(ours.again, repeats, warm=False),
    ]
    entries = get("junction-tree").best_order(graph.structure).operations
    milliseconds = [1e3 * t for t in timings]
    first, again = timings[0] / timings[1], timings[2] / timings[3]
    return [name, entries, *milliseconds[:2], first, *milliseconds[2:], again, error]


def main(arguments: list[str] | None = None) -> None:
    """Parse the command line, run, print."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--data", default=os.environ.get("CLIQUEWISE_DATA"))
    parser.add_argument("--seconds", type=float, default=10.0, help="longest run of pyagrum")
    options = parser.parse_args(arguments)
    models = list(generated())
    if options.data is not None:
        models += stored(Path(options.data))
    Ours(models[0][1]).first()  # compiles
    rows = [row for name, g in models if (row := compare(name, g, options.seconds)) is not None]
    columns = ["model", "entries", "pyagrum first, ms", "ours", "ratio"]
    columns += ["pyagrum again, ms", "ours", "ratio", "difference"]
    print_table("Exact marginals, one thread", columns, rows)
    first = geometric_mean(row[4] for row in rows)
    again = geometric_mean(row[7] for row in rows)
    print(f"geometric mean of the ratios: first {first:.2f}, again {again:.2f}")
    print_json(
        {
            "models": len(rows),
            "ratio_first": first,
            "ratio_again": again,
            "least_ratio_first": min(row[4] for row in rows),
            "least_ratio_again": min(row[7] for row in rows),
            "largest_difference": max(row[8] for row in rows),
        }
    )


if __name__ == "__main__":
    main()
