"""Passes of max-margin training beside CRFsuite's averaged perceptron: same features, one run.

    python -m benchmarks.max_margin --data DIR [--hash 65536] [--repeats 5]

CoNLL-2003 with the word, part of speech and chunk of five positions. CRFsuite gets the same
attributes as strings, all state and transition features, and its time for one epoch is the
difference between trainings of 6 and of 1 iterations, divided by 5. All times are CPU seconds,
the least of several; ours are taken near the end of training, where passes are as fast as they
get for everybody (few mistakes), and at the beginning.

Printed: a ``subgradient`` pass against a CRFsuite epoch (asked: at least 2 times faster), a
``casimir`` outer step, full gradient included, against a ``subgradient`` pass (asked: below 4),
and a pass of calls for 5 labelings against one of 1 (asked: below 3).
"""

from __future__ import annotations

import argparse
import os
import tempfile
import time
from pathlib import Path

import numpy as np

from benchmarks.common import print_json, print_table, seconds
from cliquewise.data.loaders import data_folder

#: Word, part of speech and chunk of the tokens from two before to two after.
TEMPLATE = "\n".join(f"U{c}{i}:%x[{i},{c}]" for c in range(3) for i in range(-2, 3)) + "\nB\n"


def load(folder: Path, n_hash: int):
    """Training data, and the attributes as strings for the peer."""
    from cliquewise.data import Labels, Template, TemplateEncoder, read_conll

    train, y = read_conll(folder / "conll2003" / "eng.train.gz").split_labels()
    data = TemplateEncoder(Template.parse(TEMPLATE), n_hash).fit_transform(train)
    labels = Labels.fit(y)
    numbers, _ = labels.encode(y, data.offsets)
    return data.with_labels(numbers), labels


def cpu_seconds(function, repeats: int) -> float:
    """Least CPU time of several calls."""
    return seconds(function, repeats, warm=False, clock=time.process_time)


def crfsuite_epoch(data, labels, repeats: int) -> float:
    """CPU seconds of an epoch of CRFsuite's averaged perceptron."""
    import pycrfsuite

    trainer = pycrfsuite.Trainer(verbose=False)
    trainer.select("ap")
    names = [str(c) for c in labels.classes]
    for i in range(len(data)):
        first, last = data.offsets[i], data.offsets[i + 1]
        items = [
            [str(a) for a in data.indices[data.indptr[t] : data.indptr[t + 1]].tolist()]
            for t in range(first, last)
        ]
        trainer.append(pycrfsuite.ItemSequence(items), [names[j] for j in data.labels[first:last]])
    trainer.set("feature.possible_transitions", True)
    trainer.set("feature.possible_states", True)
    trainer.set("epsilon", 0.0)

    def train(iterations: int) -> float:
        trainer.set("max_iterations", iterations)
        with tempfile.TemporaryDirectory() as scratch:
            begin = time.process_time()
            trainer.train(os.path.join(scratch, "m.crfsuite"))
            return time.process_time() - begin

    many, one = (min(train(n) for _ in range(min(repeats, 2))) for n in (6, 1))
    return (many - one) / 5


def our_passes(data, labels, repeats: int) -> dict[str, float]:
    """CPU seconds of our passes, after training for a while."""
    from cliquewise.models.chain import ChainModel
    from cliquewise.problems.chain import ChainProblem
    from cliquewise.solvers.backends.base import SmoothingSettings
    from cliquewise.solvers.backends.chain.smooth import ChainSmoothing
    from cliquewise.solvers.casimir import Casimir
    from cliquewise.solvers.subgradient import Subgradient

    model = ChainModel.build(data, len(labels), intercept=False, boundaries=False)
    problem = ChainProblem(model, data, 10.0, loss="hinge")
    rng, times = np.random.default_rng(0), {}
    for solver in (Subgradient(delay=256), Casimir()):
        state = solver.init(problem)
        solver.step(problem, state, rng)

        def step(solver=solver, state=state):
            solver.step(problem, state, rng)

        times[f"{solver.name}, early"] = cpu_seconds(step, 2)
        for _ in range(8):
            step()
        times[solver.name] = cpu_seconds(step, repeats)
        weights = solver.weights(problem, state)
    for k in (1, 5):
        backend = ChainSmoothing(problem, SmoothingSettings("l2", k))
        w = backend.packed(weights)
        backend.full_gradient(w, 1.0)

        def ask(backend=backend, w=w):
            backend.full_gradient(w, 1.0)

        times[f"calls for {k}"] = cpu_seconds(ask, repeats)
        start = backend.zeros()
        times[f"calls for {k}, early"] = cpu_seconds(
            lambda backend=backend, start=start: backend.full_gradient(start, 1.0), 2
        )
    return times


def main() -> None:
    """Run and print."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("--data", help="folder of data sets (default: CLIQUEWISE_DATA)")
    parser.add_argument("--hash", type=int, default=2**16)
    parser.add_argument("--repeats", type=int, default=5)
    options = parser.parse_args()
    data, labels = load(data_folder(options.data), options.hash)
    times = our_passes(data, labels, options.repeats)
    times["CRFsuite ap"] = crfsuite_epoch(data, labels, options.repeats)
    print_table("CPU seconds of a pass", ["pass", "seconds"], times.items())
    ratios = {
        "crfsuite_over_subgradient": times["CRFsuite ap"] / times["subgradient"],
        "crfsuite_over_subgradient_early": times["CRFsuite ap"] / times["subgradient, early"],
        "casimir_over_subgradient": times["casimir"] / times["subgradient"],
        "casimir_over_subgradient_early": times["casimir, early"] / times["subgradient, early"],
        "five_over_one": times["calls for 5"] / times["calls for 1"],
        "five_over_one_early": times["calls for 5, early"] / times["calls for 1, early"],
    }
    print_json({name: round(value, 3) for name, value in ratios.items()})


if __name__ == "__main__":
    main()
