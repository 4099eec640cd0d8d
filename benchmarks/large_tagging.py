"""Training on a million tokens: memory, and time per epoch against the number of tokens.

    python -m benchmarks.large_tagging [--tokens 1000000] [--labels 50] [--attributes 1000000]

Generated sequences of 10 to 30 tokens, 20 attributes per token drawn by a power law (half of
them tell the label), labels from a Markov chain. The peak is that of this process, data
generation included; the last line is JSON.
"""

from __future__ import annotations

import argparse
import resource
import time

import numpy as np

from benchmarks.common import print_json, print_table


def generate(n_tokens: int, n_labels: int, n_attributes: int, seed: int = 0):
    """A labeled Dataset with a real Markov structure."""
    from cliquewise.data import Dataset

    rng = np.random.default_rng(seed)
    lengths = []
    while sum(lengths) < n_tokens:
        lengths.append(int(rng.integers(10, 31)))
    lengths[-1] -= sum(lengths) - n_tokens
    offsets = np.concatenate(([0], np.cumsum(lengths)))
    successors = rng.integers(0, n_labels, (n_labels, 4))
    labels = np.empty(n_tokens, dtype=np.int32)
    jump, pick, fresh = (
        rng.random(n_tokens),
        rng.integers(0, 4, n_tokens),
        rng.integers(0, n_labels, n_tokens),
    )
    starts = np.zeros(n_tokens, dtype=bool)
    starts[offsets[:-1]] = True
    for t in range(n_tokens):
        stay = not starts[t] and jump[t] < 0.8
        labels[t] = successors[labels[t - 1], pick[t]] if stay else fresh[t]
    per_token = 20
    rank = (n_attributes ** rng.random((n_tokens, per_token))).astype(np.int64) - 1
    told = rng.random((n_tokens, per_token)) < 0.3
    # An attribute that tells the label is congruent to it, so that it can be learned.
    rank[told] = (rank - rank % n_labels + labels[:, None])[told] % n_attributes
    rank.sort(axis=1)
    keep = np.ones_like(rank, dtype=bool)
    keep[:, 1:] = rank[:, 1:] != rank[:, :-1]
    indptr = np.concatenate(([0], np.cumsum(keep.sum(axis=1))))
    return Dataset(offsets, indptr, rank[keep].astype(np.int32), None, n_attributes, labels)


def main() -> None:
    from cliquewise.models.chain import ChainModel
    from cliquewise.problems.chain import ChainProblem
    from cliquewise.solvers.planner import choose
    from cliquewise.solvers.run import run

    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("--tokens", type=int, default=1_000_000)
    parser.add_argument("--labels", type=int, default=50)
    parser.add_argument("--attributes", type=int, default=1_000_000)
    parser.add_argument("--tol", type=float, default=1e-2)
    args = parser.parse_args()
    rows = []
    for tokens in (args.tokens // 4, args.tokens // 2, args.tokens):
        data = generate(tokens, args.labels, args.attributes)
        model = ChainModel.build(data, args.labels)
        problem = ChainProblem(model, data, C=1.0)
        solver = choose(problem)
        run(ChainProblem(model, data.subset(np.arange(2)), 1.0), solver, max_epochs=1)
        begin = time.perf_counter()
        fit = run(problem, solver, tol=args.tol, random_state=0, max_epochs=30)
        seconds = time.perf_counter() - begin
        peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**20
        pace = seconds / fit.epochs
        state = solver.memory(problem) / 2**30
        gap = fit.certificate.gap
        row = (tokens, solver.name, state, peak, fit.epochs, pace, 1e6 * pace / tokens, gap)
        rows.append(row)
    print_table(
        "Training on generated sequences",
        ["tokens", "solver", "state GiB", "peak GiB", "epochs", "s/epoch", "us/token", "gap"],
        [[str(r[0]), r[1], *(f"{x:.3g}" for x in r[2:])] for r in rows],
    )
    small, large = rows[0], rows[-1]
    exponent = np.log(large[5] / small[5]) / np.log(large[0] / small[0])
    print_json({"peak_gib": large[3], "exponent": exponent, "gap": large[7]})


if __name__ == "__main__":
    main()
