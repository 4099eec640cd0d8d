"""Scores of our MAP labelings beside the stored ones of the UAI 2014 competition.

    python -m benchmarks.map_scores --data DIR [--seconds 20] [--family Grids]

One row per model: our score, how far it is above the stored labeling's, the upper bound,
whether the two meet, seconds. The stored labelings are the best known to the competition,
not optima. Then a line of JSON; the exit status is 1 if a score is below the stored one by
more than 1e-6 of its size. The archives are read in place; nothing is unpacked to disk.
"""

from __future__ import annotations

import argparse
import io
import json
import os
import re
import sys
import tarfile
import time
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from pathlib import Path

import numpy as np

from cliquewise.data.formats.uai import read_uai
from cliquewise.data.formats.uai_results import read_uai_map
from cliquewise.graph.builders import complete
from cliquewise.graph.factor_graph import FactorGraph

FAMILIES = ("Grids", "ObjectDetection", "ProteinFolding", "Segmentation")
#: Scores that differ by less than this part of their size count as equal.
TOLERANCE = 1e-6


@dataclass(frozen=True)
class Row:
    """What came out for one model."""

    model: str
    variables: int
    score: float
    stored: float
    bound: float
    exact: bool
    seconds: float

    @property
    def difference(self) -> float:
        """Our score less the stored one; positive is better."""
        return self.score - self.stored

    @property
    def verdict(self) -> str:
        """``below``, ``equal`` or ``above`` the stored score."""
        if abs(self.difference) <= TOLERANCE * max(1.0, abs(self.stored)):
            return "equal"
        return "above" if self.difference > 0.0 else "below"


def models(data: Path, family: str) -> Iterator[tuple[str, FactorGraph, np.ndarray]]:
    """Name, graph and stored labeling of each model of a family, by number."""
    with tarfile.open(data / "uai2014" / f"MAP_{family}.tar.xz", "r:xz") as archive:
        files = {m.name: archive.extractfile(m).read() for m in archive.getmembers() if m.isfile()}
    names = [name for name in files if name.endswith(".uai")]
    for name in sorted(names, key=lambda n: [int(d) for d in re.findall(r"\d+", n)]):
        evidence = files.get(f"{name}.evid")
        graph = read_uai(
            io.BytesIO(files[name]), None if evidence is None else io.BytesIO(evidence)
        )
        yield Path(name).stem, graph, read_uai_map(io.BytesIO(files[f"{name}.MAP"]))[0]


def warm_up(method: str) -> None:
    """Compile, on graphs whose bound is not met: k + 1 variables that all want to differ."""
    for k in (2, 3):
        complete(np.zeros((k + 1, k)), 1.0 - np.eye(k)).map(method)


def solve(
    name: str, graph: FactorGraph, stored: np.ndarray, method: str, options: dict[str, float]
) -> Row:
    """Find a labeling and compare its score with the stored labeling's."""
    started = time.perf_counter()
    found = graph.map(method, **options)
    seconds = time.perf_counter() - started
    return Row(
        name,
        graph.n_variables,
        float(graph.score(found.labels)),
        float(graph.score(stored)),
        float(found.upper_bound),
        bool(found.exact),
        seconds,
    )


def print_row(row: Row | None) -> None:
    """A line of the table; its head for None."""
    if row is None:
        head = f"{'model':20}{'variables':>10}{'score':>16}{'stored':>16}{'difference':>12}"
        print(f"{head}{'bound':>16}{'exact':>7}{'seconds':>9}  verdict", flush=True)
        return
    print(
        f"{row.model:20}{row.variables:10}{row.score:16.6f}{row.stored:16.6f}"
        f"{row.difference:12.6f}{row.bound:16.6f}{'yes' if row.exact else 'no':>7}"
        f"{row.seconds:9.1f}  {row.verdict}",
        flush=True,
    )


def summary(rows: list[Row]) -> str:
    """One line of JSON: counts, and the rows."""
    counts = {v: sum(row.verdict == v for row in rows) for v in ("below", "equal", "above")}
    figures = [asdict(row) | {"difference": row.difference} for row in rows]
    return json.dumps(
        {"models": len(rows), **counts, "exact": sum(row.exact for row in rows), "rows": figures}
    )


def main(arguments: list[str] | None = None) -> int:
    """Parse the command line, run, print."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--data", default=os.environ.get("CLIQUEWISE_DATA"))
    parser.add_argument("--family", action="append", choices=FAMILIES, help="only this one")
    parser.add_argument("--model", action="append", help="only this one, Grids_22 say")
    parser.add_argument("--method", default="portfolio")
    parser.add_argument("--seconds", type=float, default=20.0, help="of each model")
    parser.add_argument("--seed", type=int, default=0, help="of the portfolio")
    choice = parser.parse_args(arguments)
    if choice.data is None:
        parser.error("name the folder of the data with --data or CLIQUEWISE_DATA")
    options = {"seconds": choice.seconds}
    if choice.method == "portfolio":
        options["random_state"] = choice.seed
    warm_up(choice.method)
    rows = []
    print_row(None)
    for family in choice.family or FAMILIES:
        for name, graph, stored in models(Path(choice.data), family):
            if choice.model is None or name in choice.model:
                rows.append(solve(name, graph, stored, choice.method, options))
                print_row(rows[-1])
    print(summary(rows))
    return int(any(row.verdict == "below" for row in rows))


if __name__ == "__main__":
    sys.exit(main())
