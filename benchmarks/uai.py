"""Every instance of the UAI competitions at hand, as a user would ask it, within a time limit.

    python -m benchmarks.uai --seconds 20 --data DIR/uai2014 [part of a name ...]

One row per instance and task: the method that answered, seconds, exact or the width of the
certified bounds, and the error against the stored answer: mean Hellinger distance of the marginals
(MAR), difference of log10 Z beyond the digits that are stored (PR), score above the stored
labeling's (MAP, natural logarithms; the stored ones are not all optimal). Kernels are compiled
before the clock runs. The archives are read in place. A line of JSON at the end.
"""

from __future__ import annotations

import argparse
import io
import math
import tarfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.common import print_json, print_table
from cliquewise.data.formats.uai import read_uai
from cliquewise.data.formats.uai_results import read_uai_map, read_uai_mar, read_uai_pr
from cliquewise.errors import CliquewiseError
from cliquewise.graph.builders import random_graph

LN10 = math.log(10.0)


def instances(data: Path) -> Iterator[tuple[str, str, dict[str, bytes]]]:
    """Task, name and files (``uai``, ``evid``, ``MAR``, ``PR``, ``MAP``) of every model."""
    for archive in sorted(data.glob("*.tar.xz")):
        task = archive.name.split("_")[0]
        found: dict[str, dict[str, bytes]] = {}
        with tarfile.open(archive) as tar:
            for member in tar:
                if member.isfile():
                    name, _, kind = Path(member.name).name.partition(".uai")
                    content = tar.extractfile(member)
                    assert content is not None
                    if member.name.split("/")[0] != "MAR2":
                        found.setdefault(name, {})[kind.lstrip(".") or "uai"] = content.read()
        for name in sorted(found):
            yield task, name, found[name]


def hellinger(ours: Any, theirs: Any) -> float:
    """Mean over the variables."""
    distances = [
        math.sqrt(max(0.0, 0.5 * float(((np.sqrt(p) - np.sqrt(q)) ** 2).sum())))
        for p, q in zip(ours, theirs, strict=True)
    ]
    return float(np.mean(distances))


def half_digit(stored: bytes) -> float:
    """Half of the last digit of a file's last number: what rounding it may have changed."""
    _, _, decimals = stored.split()[-1].partition(b".")
    return 0.5 * 10.0 ** -len(decimals)


def answer(task: str, files: dict[str, bytes], seconds: float) -> list[dict[str, Any]]:
    """What the default says, and how far it is from what is stored."""
    evidence = io.BytesIO(files["evid"]) if "evid" in files else None
    graph = read_uai(io.BytesIO(files["uai"]), evidence)
    begin = time.perf_counter()
    if task == "MAP":
        best = graph.map(seconds=seconds)
        spent = time.perf_counter() - begin
        stored = read_uai_map(io.BytesIO(files["MAP"]))
        gain = best.score - float(graph.score(stored[0]))
        return [{"task": "MAP", "method": best.method, "seconds": spent, "exact": best.exact,
                 "width": best.gap, "error": gain}]  # fmt: skip
    found = graph.marginals(seconds=seconds)
    spent = time.perf_counter() - begin
    low, high = found.log_z_bounds
    common = {"method": found.method, "seconds": spent, "exact": found.exact, "width": high - low}
    rows = []
    if "MAR" in files:
        stored = read_uai_mar(io.BytesIO(files["MAR"]))
        rows.append({"task": "MAR", **common, "error": hellinger(found.nodes, stored)})
    if "PR" in files:
        apart = (found.log_z - read_uai_pr(io.BytesIO(files["PR"]))) / LN10
        rows.append(
            {"task": "PR", **common, "error": max(abs(apart) - half_digit(files["PR"]), 0.0)}
        )
    return rows


def warm() -> None:
    """Compile what the questions need: once in the life of an installation, tens of seconds."""
    for order in (2, 3):
        graph = random_graph(12, 20, max_order=order, random_state=0)
        for method, limits in (("junction-tree", {}), ("anytime", {"max_operations": 0})):
            graph.marginals(method, **limits)
            graph.map(method, **limits)


def main() -> None:
    """Ask all of them."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--data", type=Path, required=True)
    parser.add_argument("--seconds", type=float, default=20.0)
    parser.add_argument("wanted", nargs="*", help="parts of names")
    options = parser.parse_args()
    warm()
    record: list[dict[str, Any]] = []
    for task, name, files in instances(options.data):
        if options.wanted and not any(part in name for part in options.wanted):
            continue
        try:
            rows = answer(task, files, options.seconds)
        except CliquewiseError as error:
            first = str(error).splitlines()[0]
            rows = [{"task": task, "method": f"none: {first}", "seconds": math.nan,
                     "exact": False, "width": math.inf, "error": math.nan}]  # fmt: skip
        for row in rows:
            record.append({"name": name, **row})
            proved = "exact" if row["exact"] else format(row["width"], ".3g")
            print(f"{name:22s} {row['task']:4s} {row['seconds']:6.1f} s  error {row['error']:9.2g}"
                  f"  {proved:>8s}  {row['method']}", flush=True)  # fmt: skip
    table = []
    for task in ("MAR", "PR", "MAP"):
        rows = [r for r in record if r["task"] == task]
        if rows:
            answered = [r for r in rows if not r["method"].startswith("none")]
            late = max((r["seconds"] for r in answered), default=math.nan)
            exact = [r for r in answered if r["exact"]]
            worst = max((abs(r["error"]) for r in exact), default=math.nan) if task != "MAP" else (
                min((r["error"] for r in exact), default=math.nan))  # fmt: skip
            rough = [abs(r["error"]) for r in answered if not r["exact"]]
            table.append((task, len(rows), len(answered), len(exact), worst,
                          float(np.mean(rough)) if rough else math.nan, late))  # fmt: skip
    columns = ["task", "instances", "answered", "exact", "worst error of exact",
               "mean error of others", "longest"]  # fmt: skip
    print_table(f"within {options.seconds:g} s each", columns, table)
    print_json({"seconds": options.seconds, "rows": record})


if __name__ == "__main__":
    main()
