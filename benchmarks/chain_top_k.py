"""One pass of top-K oracle calls over CoNLL-2003, K = 5 beside K = 1, in CPU seconds.

    python -m benchmarks.chain_top_k --data DIR [--epochs 3] [--ks 1 2 5 10]

The weights are a structural SVM's after some epochs; scores include the costs, as in training.
"decode" is the search alone, "oracle" includes the scores of the tokens from the features.
"""

from __future__ import annotations

import argparse
import time
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.common import print_json, print_table
from benchmarks.tagging import load


def cpu_seconds(function: Callable[[], Any], repeats: int = 5) -> float:
    """Least CPU time of several calls, after one that is not counted."""
    function()
    best = float("inf")
    for _ in range(repeats):
        start = time.process_time()
        function()
        best = min(best, time.process_time() - start)
    return best


def main() -> None:
    """Train, then time a pass for every K."""
    from cliquewise._kernels.chain.decode import batch_viterbi
    from cliquewise._kernels.chain.features import node_scores
    from cliquewise._kernels.chain.top_k import batch_top_k
    from cliquewise.models.chain import ChainModel
    from cliquewise.problems.chain import ChainProblem
    from cliquewise.solvers.registry import get
    from cliquewise.solvers.run import run

    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--data", type=Path, required=True)
    parser.add_argument("--epochs", type=int, default=3)
    parser.add_argument("--ks", type=int, nargs="+", default=[1, 2, 5, 10])
    options = parser.parse_args()
    data = load("conll2003", options.data)[0]
    n_labels = int(data.labels.max()) + 1
    model = ChainModel.build(data, n_labels)
    problem = ChainProblem(model, data, C=1.0, loss="hinge")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        w = run(problem, get("subgradient"), max_epochs=options.epochs, random_state=0).weights
    packed, chains = problem.form.pack(w), problem.chains
    trans = np.ascontiguousarray(w[model.n_emissions :][: n_labels**2].reshape(1, n_labels, -1))
    nodes = np.empty((data.n_tokens, n_labels))

    def score() -> None:
        node_scores(chains, packed, 0, data.n_tokens, nodes)
        nodes[:] += 1.0
        nodes[np.arange(data.n_tokens), data.labels] -= 1.0

    scoring = cpu_seconds(score)
    n = len(data)
    one = np.empty(data.n_tokens, dtype=np.int64)
    best = np.empty(n)
    viterbi = cpu_seconds(lambda: batch_viterbi(nodes, data.offsets, trans, one, best))
    rows, first = [("viterbi", viterbi, viterbi + scoring, 1.0, 1.0)], (viterbi, viterbi + scoring)
    for k in options.ks:
        labels, counts = np.empty((k, data.n_tokens), np.int64), np.empty(n, np.int64)
        scores = np.empty((n, k))
        decode = cpu_seconds(
            lambda labels=labels, scores=scores, counts=counts: batch_top_k(
                nodes, data.offsets, trans, labels, scores, counts
            )
        )
        np.testing.assert_allclose(scores[:, 0], best)
        whole = decode + scoring
        rows.append((f"top {k}", decode, whole, decode / first[0], whole / first[1]))
    columns = ["pass", "decode", "oracle", "decode ratio", "oracle ratio"]
    print_table(f"{data.n_tokens} tokens, {n_labels} labels, CPU seconds", columns, rows)
    print_json({"chain_top_k": [dict(zip(columns, row, strict=True)) for row in rows]})


if __name__ == "__main__":
    main()
