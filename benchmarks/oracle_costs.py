"""Estimated seconds of inference beside the clock's: what ``auto`` goes by.

python -m benchmarks.oracle_costs
"""

from __future__ import annotations

import time

import numpy as np

from benchmarks.common import print_json, print_table
from benchmarks.defaults.inference import drawn, strip
from cliquewise.oracles import get
from cliquewise.oracles.base import Limits

CASES = [
    (*question, height, width, k)
    for question in (("junction-tree", "map"), ("junction-tree", "marginals"), ("trw-s", "map"),
                     ("trw-bp", "marginals"), ("icm", "map"))
    for height, width, k in ((4, 10, 2), (10, 60, 2), (5, 40, 5), (14, 30, 2))
]  # fmt: skip


def main() -> None:
    """Ask each method twice and time the second answer."""
    rows, ratios = [], []
    for name, want, height, width, k in CASES:
        rng = np.random.default_rng(0)
        graph = drawn(height * width, strip(height, width), k, rng, 1.0, 1.0)
        oracle = get(name)
        answer = getattr(oracle, want)
        answer(graph)
        begin = time.perf_counter()
        answer(graph)
        took = time.perf_counter() - begin
        expected = oracle.consider(graph, want, Limits()).seconds
        rows.append((name, want, f"{height} x {width} x {k}", expected, took, took / expected))
        ratios.append(took / expected)
    columns = ["method", "question", "grid", "estimate", "seconds", "ratio"]
    print_table("estimated and real seconds", columns, rows)
    print_json({"median_ratio": float(np.median(ratios)), "largest": max(ratios)})


if __name__ == "__main__":
    main()
