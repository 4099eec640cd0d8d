"""Exact log Z and marginals beside the stored answers of other programs.

    python -m benchmarks.reference_answers --data DIR

Models of the UAI 2014 competition (answers: `.PR`, `.MAR`) and of the Barrier Frank-Wolfe
paper (answers of libDAI's junction tree). One row per family; then every model that is
off, with the reason if one is found; then a line of JSON. The exit status is 1 if a
disagreement stays unexplained. The archives are read in place; nothing is unpacked to disk.
"""

from __future__ import annotations

import argparse
import io
import json
import math
import os
import re
import sys
import tarfile
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np

from cliquewise.data.formats.uai import read_uai
from cliquewise.data.formats.uai_results import read_uai_mar, read_uai_pr
from cliquewise.errors import CliquewiseError, TooLargeError

LN10 = math.log(10.0)
#: The programs printed this many significant digits (the default of C++ streams).
DIGITS = 6
UAI = ("Alchemy", "CSP", "DBN", "Grids", "ObjectDetection", "Segmentation")
LIBDAI = ("Synthetic", "SyntheticGrids_5x5", "SyntheticGrids_10x10", "RBM")


@dataclass(frozen=True)
class Family:
    """An archive of models, and how close the answers have to be."""

    name: str
    archive: str
    log_base: float
    log_z_tolerance: float
    marginal_tolerance: float


FAMILIES = [
    *(Family(f"MAR_{n}", f"uai2014/MAR_{n}.tar.xz", LN10, 1e-6, 1e-5) for n in UAI),
    Family("PR_extra", "uai2014/PR_extra.tar.xz", LN10, 1e-6, 1e-5),
    *(Family(n, f"fw_inference/{n}.tar.xz", 1.0, 1e-6, 1e-6) for n in LIBDAI),
]


@dataclass(frozen=True)
class Case:
    """One model with its stored answers: log Z in the family's base, node marginals flat."""

    name: str
    model: bytes
    evidence: bytes | None
    log_z: float
    marginals: np.ndarray | None


@dataclass
class Row:
    """What came out for one family."""

    family: Family
    models: int = 0
    solved: int = 0
    refused: list[tuple[str, float, float]] = field(default_factory=list)
    log_z_error: float = 0.0
    marginal_error: float | None = None
    seconds: float = 0.0
    explained: dict[str, list[str]] = field(default_factory=dict)
    unexplained: list[str] = field(default_factory=list)


def cases(family: Family, data: Path) -> Iterator[Case]:
    """Read the models of a family out of its archive, in the order of their numbers."""
    with tarfile.open(data / family.archive, "r:xz") as archive:
        files = {
            m.name: archive.extractfile(m).read()
            for m in archive.getmembers()
            if m.isfile() and "/TRWBP" not in m.name
        }
    models = [name for name in files if name.endswith(".uai")]
    for name in sorted(models, key=lambda n: [int(d) for d in re.findall(r"\d+", n)]):
        stem = Path(name).name
        if family.archive.startswith("uai2014"):
            folder = str(Path(name).parent.parent)
            prefix = "" if folder == "." else f"{folder}/"
            log_z = read_uai_pr(io.BytesIO(files[f"{prefix}PR/{stem}.PR"])) / LN10
            stored = files.get(f"{name}.MAR")
            rows = None if stored is None else np.concatenate(read_uai_mar(io.BytesIO(stored)))
        else:
            log_z, rows = libdai_answer(files, name)
        yield Case(stem.removesuffix(".uai"), files[name], files.get(f"{name}.evid"), log_z, rows)


def libdai_answer(files: dict[str, bytes], name: str) -> tuple[float, np.ndarray]:
    """ln Z (only in ``mat_out``) and node marginals (in ``exact_out`` as printed)."""
    from scipy.io import loadmat

    top, stem = Path(name).parent.parent, Path(name).stem
    stored = loadmat(io.BytesIO(files[f"{top}/mat_out/{stem}.mat"]))
    printed = files[f"{top}/exact_out/{stem}.out"].decode()
    part = printed.split("Exact variable marginals:")[1]
    rows = re.findall(r"^\(\{x\d+\}, \(([^)]*)\)\)$", part, re.MULTILINE)
    marginals = np.array([float(p) for row in rows for p in row.split(",")])
    in_mat = stored["exact_node_marginals"].ravel()
    if marginals.shape != in_mat.shape:
        marginals = in_mat
    return float(stored["log_partition"].item()), marginals


def half_unit(value: np.ndarray | float) -> np.ndarray:
    """Half a unit of the last printed digit, with room for the rounding of exact halves."""
    size = np.maximum(np.abs(np.asarray(value, dtype=float)), 1e-300)
    return 0.5 * 10.0 ** (np.floor(np.log10(size)) - (DIGITS - 1)) * (1 + 1e-6)


def check(family: Family, case: Case, method: str, max_memory: float, row: Row) -> None:
    """Solve one model and enter it in the row."""
    row.models += 1
    start = time.perf_counter()
    evidence = None if case.evidence is None else io.BytesIO(case.evidence)
    graph = read_uai(io.BytesIO(case.model), evidence)
    try:
        answer = graph.marginals(method, max_memory=max_memory)
    except TooLargeError as error:
        row.refused.append((case.name, error.memory_bytes, error.operations))
        return
    except CliquewiseError as error:
        row.unexplained.append(f"{case.name}: {error}")
        return
    finally:
        row.seconds += time.perf_counter() - start
    row.solved += 1
    compare(family, case, answer.log_z / family.log_base, answer.nodes.flat, row)


def compare(family: Family, case: Case, log_z: float, nodes: np.ndarray, row: Row) -> None:
    """Errors of one model, and why they are as large as they are."""
    difference = abs(log_z - case.log_z)
    error = difference / max(abs(case.log_z), 1.0)
    row.log_z_error = max(row.log_z_error, error)
    if error > family.log_z_tolerance:
        if difference <= half_unit(case.log_z):
            why = f"log Z equals the stored one in all its {DIGITS} printed digits"
            row.explained.setdefault(why, []).append(case.name)
        else:
            row.unexplained.append(f"{case.name}: log Z is {log_z:.9g}, stored is {case.log_z:.9g}")
    if case.marginals is None:
        return
    if len(nodes) != len(case.marginals):
        row.unexplained.append(
            f"{case.name}: {len(nodes)} states, stored are {len(case.marginals)}"
        )
        return
    errors = np.abs(nodes - case.marginals)
    row.marginal_error = max(row.marginal_error or 0.0, float(errors.max(initial=0.0)))
    bad = errors > family.marginal_tolerance
    if bad.any():
        if np.all(errors[bad] <= half_unit(case.marginals[bad])):
            why = f"marginals equal the stored ones in all their {DIGITS} printed digits"
            row.explained.setdefault(why, []).append(case.name)
        else:
            i = int(np.argmax(errors))
            row.unexplained.append(
                f"{case.name}: {int(bad.sum())} of {len(bad)} marginals differ, most by "
                f"{errors[i]:.3g} ({nodes[i]:.6g}, stored is {case.marginals[i]:.6g})"
            )


def print_row(row: Row | None) -> None:
    """A line of the table; its head for None."""
    if row is None:
        head = f"{'family':22}{'models':>7}{'solved':>7}{'refused':>8}"
        print(f"{head}{'log Z error':>13}{'marginal error':>16}{'seconds':>9}", flush=True)
        return
    marginal = "none stored" if row.marginal_error is None else f"{row.marginal_error:.2e}"
    print(
        f"{row.family.name:22}{row.models:7}{row.solved:7}{len(row.refused):8}"
        f"{row.log_z_error:13.2e}{marginal:>16}{row.seconds:9.1f}",
        flush=True,
    )


def report(rows: list[Row], shown: int) -> None:
    """The refusals, and what is off."""
    print("\n(log Z error: relative; marginal error: largest absolute difference)")
    for row in rows:
        for name, memory, operations in row.refused:
            print(f"refused {name}: needs {memory / 2**30:.3g} GiB, {operations:.3g} operations")
    for row in rows:
        for why, names in row.explained.items():
            more = f", ... {len(names) - shown} more" if len(names) > shown else ""
            print(
                f"explained {row.family.name}: beyond the tolerance in {len(names)} models, but "
                f"{why}: {', '.join(names[:shown])}{more}"
            )
        for line in row.unexplained:
            print(f"UNEXPLAINED {row.family.name} {line}")


def summary(rows: list[Row]) -> str:
    """One line of JSON."""
    families = {
        row.family.name: {
            "models": row.models,
            "solved": row.solved,
            "refused": [
                {"model": n, "gib": round(m / 2**30, 3), "operations": float(f"{o:.4g}")}
                for n, m, o in row.refused
            ],
            "max_log_z_error": row.log_z_error,
            "max_marginal_error": row.marginal_error,
            "explained_by_printed_digits": len({n for ns in row.explained.values() for n in ns}),
            "unexplained": len(row.unexplained),
            "seconds": round(row.seconds, 2),
        }
        for row in rows
    }
    return json.dumps({"families": families, "unexplained": sum(len(r.unexplained) for r in rows)})


def run(
    data: Path, families: list[Family], method: str, max_memory: float, limit: int | None
) -> Iterator[Row]:
    """Solve the models of the families, the first ``limit`` of each; one row per family."""
    warm_up = read_uai(io.BytesIO(b"MARKOV 3  2 2 2  3  2 0 1  2 1 2  2 0 2" + b" 4 1 2 2 1" * 3))
    warm_up.marginals(method)  # compiles
    for family in families:
        row = Row(family)
        for i, case in enumerate(cases(family, data)):
            if limit is not None and i >= limit:
                break
            check(family, case, method, max_memory, row)
            if sys.stderr.isatty():
                print(f"\r{family.name}: {i + 1} models", end="\x1b[K", file=sys.stderr)
        if sys.stderr.isatty():
            print(end="\r\x1b[K", file=sys.stderr, flush=True)
        yield row


def main(arguments: list[str] | None = None) -> int:
    """Parse the command line, run, print."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--data", default=os.environ.get("CLIQUEWISE_DATA"))
    names = [f.name for f in FAMILIES]
    parser.add_argument("--family", action="append", choices=names, help="only this one")
    parser.add_argument("--limit", type=int, help="only the first models of each family")
    parser.add_argument("--method", default="junction-tree")
    parser.add_argument("--max-memory", type=float, default=4.0, metavar="GIB")
    parser.add_argument("--all", action="store_true", help="name every explained model")
    options = parser.parse_args(arguments)
    if options.data is None:
        parser.error("name the folder of the data with --data or CLIQUEWISE_DATA")
    families = [f for f in FAMILIES if options.family is None or f.name in options.family]
    limit = options.max_memory * 2**30
    rows = []
    print_row(None)
    for row in run(Path(options.data), families, options.method, limit, options.limit):
        rows.append(row)
        print_row(row)
    report(rows, sys.maxsize if options.all else 6)
    print(summary(rows))
    return int(any(row.unexplained for row in rows))


if __name__ == "__main__":
    sys.exit(main())
