"""Max-marginals of matchings, all at once, beside one assignment per pair; and the K best.

    python -m benchmarks.matching [--sizes 20 50 100] [--pairs 400]

The repeated assignments are scipy's, each with one pair forced; ``--pairs`` of them are timed and
the time of all p^2 follows. Times are CPU seconds in one run.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable
from typing import Any

import numpy as np
from scipy.optimize import linear_sum_assignment

from benchmarks.common import print_json, print_table
from cliquewise.oracles.matching import matching_max_marginals, max_matching, top_k_matchings


def cpu_seconds(function: Callable[[], Any], repeats: int = 5) -> float:
    """Least CPU time of several calls, after one that is not counted."""
    function()
    best = float("inf")
    for _ in range(repeats):
        start = time.process_time()
        function()
        best = min(best, time.process_time() - start)
    return best


def repeated(scores: np.ndarray, pairs: np.ndarray) -> np.ndarray:
    """The best total with each of the pairs forced, by an assignment each."""
    totals = np.empty(len(pairs))
    table = scores.copy()
    for n, (i, j) in enumerate(pairs):
        table[i] = -np.inf
        table[i, j] = scores[i, j]
        rows, columns = linear_sum_assignment(table, maximize=True)
        totals[n] = table[rows, columns].sum()
        table[i] = scores[i]
    return totals


def measure(p: int, n_pairs: int) -> dict[str, float]:
    """Times for one random table, and how far the answers are apart."""
    rng = np.random.default_rng(p)
    scores = rng.normal(size=(p, p))
    pairs = rng.integers(0, p, (n_pairs, 2))
    one = matching_max_marginals(scores).pairs[pairs[:, 0], pairs[:, 1]]
    difference = float(np.abs(one - repeated(scores, pairs)).max())
    at_once = cpu_seconds(lambda: matching_max_marginals(scores))
    by_pair = cpu_seconds(lambda: repeated(scores, pairs), 2) / n_pairs
    return {
        "p": p,
        "at_once": at_once,
        "repeated": by_pair * p * p,
        "ratio": by_pair * p * p / at_once,
        "best": cpu_seconds(lambda: max_matching(scores)),
        "top_5": cpu_seconds(lambda: top_k_matchings(scores, 5)),
        "difference": difference,
    }


def main() -> None:
    """Print one line per size."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--sizes", type=int, nargs="+", default=[20, 50, 100])
    parser.add_argument("--pairs", type=int, default=400)
    options = parser.parse_args()
    rows = [measure(p, options.pairs) for p in options.sizes]
    columns = list(rows[0])
    print_table(
        "max-marginals of matchings, CPU seconds", columns, [list(r.values()) for r in rows]
    )
    print_json({"matching": rows})


if __name__ == "__main__":
    main()
