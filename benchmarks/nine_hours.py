"""CRFsuite's nine-hour case at a tenth of its size: ``python -m benchmarks.nine_hours [--jobs 2]``.

A user trained python-crfsuite for nine hours on 66,436 sentences of 57 tokens. Here are 6,644 such
sentences, drawn: 20 labels from a Markov chain, 20 attributes a token by a power law, half of which
tell the label. Both tools get the same strings and the same objective (seen pairs of attribute and
label, all transitions, c2 = 1, C = 1/2). Ours trains to a certified gap of 1e-3, reading the
strings included; then CRFsuite's L-BFGS runs until its objective is as low, or for
``--iterations``. The last line is JSON.
"""

from __future__ import annotations

import argparse
import contextlib
import re
import time

import numpy as np

from benchmarks.common import print_json, print_table


def sentences(n: int, length: int, labels: int, attributes: int, per_token: int):
    """Attributes of tokens and labels."""
    rng = np.random.default_rng(0)
    moves = np.cumsum(rng.dirichlet(np.full(labels, 0.3), size=labels), axis=1)
    X, y = [], []
    for _ in range(n):
        tags = [int(rng.integers(labels))]
        for u in rng.random(length - 1):
            tags.append(int(np.searchsorted(moves[tags[-1]], u)))
        rank = (float(attributes) ** rng.random((length, per_token))).astype(int) - 1
        half = per_token // 2
        told = np.array(tags)[:, None]
        rank[:, :half] = rank[:, :half] - rank[:, :half] % labels + told
        X.append([[f"a{a}" for a in set(row.tolist())] for row in rank])
        y.append([f"L{tag}" for tag in tags])
    return X, y


def crfsuite(X, y, target: float, iterations: int) -> tuple[list[float], list[float]]:
    """Seconds and objectives of L-BFGS, iteration by iteration, until the target is reached."""
    import pycrfsuite

    times, losses = [], []

    class Reached(Exception):
        """The objective is as low as wanted."""

    class Recorder(pycrfsuite.BaseTrainer):
        def message(self, message):
            found = re.match(r"Loss: ([-+.\deinf]+)", message)
            if found:
                times.append(time.perf_counter() - start)
                losses.append(float(found.group(1)))
                if losses[-1] <= target:
                    raise Reached

    trainer = Recorder()
    trainer.select("lbfgs")
    start = time.perf_counter()
    for x, labels in zip(X, y):
        trainer.append(pycrfsuite.ItemSequence(x), labels)
    options = {"feature.possible_transitions": True, "c1": 0.0, "c2": 1.0, "epsilon": 1e-9}
    for name, value in {**options, "delta": 1e-9, "max_iterations": iterations}.items():
        trainer.set(name, value)
    with contextlib.suppress(Reached):
        trainer.train("")
    return times, losses


def main() -> None:
    """Run from the command line."""
    import cliquewise as cw

    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    parser.add_argument("--sentences", type=int, default=6644)
    parser.add_argument("--length", type=int, default=57)
    parser.add_argument("--labels", type=int, default=20)
    parser.add_argument("--attributes", type=int, default=200_000)
    parser.add_argument("--iterations", type=int, default=200)
    parser.add_argument("--jobs", type=int, default=1)
    arguments = parser.parse_args()
    X, y = sentences(
        arguments.sentences, arguments.length, arguments.labels, arguments.attributes, 20
    )
    settings = {
        "C": 0.5, "feature_pairs": "seen", "intercept": False, "boundary_weights": False,
        "random_state": 0, "n_jobs": arguments.jobs,
    }  # fmt: skip
    cw.SequenceTagger(**settings, max_epochs=1, tol=1.0).fit(X[:50], y[:50])  # compiles
    start = time.perf_counter()
    tagger = cw.SequenceTagger(**settings).fit(X, y)
    ours = time.perf_counter() - start
    target = tagger.certificate_.primal * len(X)
    times, losses = crfsuite(X, y, target, arguments.iterations)
    reached = losses[-1] <= target
    rows = [
        [
            "cliquewise",
            ours,
            tagger.n_iter_,
            target,
            f"certified gap {tagger.certificate_.gap:.1e}",
        ],
        ["CRFsuite", times[-1], len(times), losses[-1], "as low" if reached else "not yet as low"],
    ]
    tokens = arguments.sentences * arguments.length
    columns = ["", "seconds", "passes", "objective", ""]
    print_table(f"{tokens} tokens, {arguments.labels} labels", columns, rows)
    ratio = times[-1] / ours
    print(f"{'' if reached else 'more than '}{ratio:.1f} times as fast")
    print_json({"ours": ours, "theirs": times[-1], "ratio": ratio, "reached": reached})


if __name__ == "__main__":
    main()
