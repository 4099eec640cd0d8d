"""Elastic nets beside CRFsuite's OWL-QN: same features, same objective, one thread, CPU seconds.

    python -m benchmarks.elastic_net --data DIR [--dataset conll2000|conll2003] [--c1 0.1]
                                     [--c2 0.1] [--sentences N] [--iterations 1000] [--tol 1e-4]
                                     [--delta 1e-5]

Both sides get the same attributes, have weights for the pairs seen in training and for all
transitions, and minimize ``sum of losses + c1 ||w||_1 + c2 ||w||^2``, our ``C = 1 / (c1 + 2 c2)``
and ``l1_ratio = c1 C``. CRFsuite stops by its own rule, once ten iterations gain less than
``--delta`` of the objective; with its default it stops well above the optimum. Its curve is what it
logs at each iteration; ours is that of its checks, whose time counts. Both clocks are CPU time, and
begin when the attributes are encoded.
"""

from __future__ import annotations

import argparse
import os
import re
import tempfile
import time
from pathlib import Path

import numpy as np

from benchmarks.common import print_json, print_table
from benchmarks.tagging import load, quality, strings, time_to

LEVELS = (1e-2, 1e-3, 1e-4)


def train_crfsuite(data, classes, names, options, path):
    """Curve of CRFsuite's objective, and the number of weights that are not zero."""
    import pycrfsuite

    class Recorder(pycrfsuite.BaseTrainer):
        curve: list[tuple[float, float]] = []  # noqa: RUF012
        active, started = 0, 0.0

        def message(self, message):
            found = re.match(r"Loss: ([-+.\deinf]+)", message)
            if found:
                self.curve.append((time.process_time() - self.started, float(found.group(1))))
            found = re.match(r"Active features: (\d+)", message)
            if found:
                self.active = int(found.group(1))

    trainer = Recorder()
    trainer.select("lbfgs")
    offsets, truth = data.offsets.tolist(), [str(classes[i]) for i in data.labels.tolist()]
    for i, sentence in enumerate(strings(data, names)):
        trainer.append(pycrfsuite.ItemSequence(sentence), truth[offsets[i] : offsets[i + 1]])
    trainer.set("feature.possible_transitions", True)
    for name, value in options.items():
        trainer.set(name, value)
    trainer.started = time.process_time()
    trainer.train(path)
    return trainer.curve, trainer.active


def train_ours(data, classes, c1, c2, tol):
    """Curve of our objective, weights and certificate."""
    from cliquewise.models.chain import ChainModel
    from cliquewise.problems.chain import ChainProblem
    from cliquewise.solvers.planner import choose
    from cliquewise.solvers.run import run

    def problem_of(part):
        return ChainProblem(model, part, 1 / (c1 + 2 * c2)).elastic(c1 / (c1 + 2 * c2))

    def solved(problem, **options):
        choice = choose(problem)
        return run(problem, choice.solver, random_state=0, fallback=choice.fallback, **options)

    model = ChainModel.build(
        data, len(classes), feature_pairs="seen", intercept=False, boundaries=False
    )
    solved(problem_of(data.subset(np.arange(3))), max_epochs=2)  # compiles
    curve, started = [], time.process_time()
    problem = problem_of(data)

    def look(row):
        now = time.process_time() - started
        curve.append((now, row["primal"] * problem.n_examples, row["epochs"], row["gap"]))

    return curve, model, solved(problem, tol=tol, max_epochs=200, callback=look)


def study(name, folder, c1, c2, sentences, tol, stopping):
    import pycrfsuite

    data, data_test, y_test, classes, names = load(name, folder)
    if sentences:
        data, used = (
            data.subset(np.arange(sentences)),
            np.unique(data.labels[: data.offsets[sentences]]),
        )
        data = data.with_labels(np.searchsorted(used, data.labels))
        classes = [classes[i] for i in used]
    curve, model, fit = train_ours(data, classes, c1, c2, tol)
    print(f"ours: {curve[-1][0]:.1f} s to a gap of {fit.certificate.gap:.2e}", flush=True)
    with tempfile.TemporaryDirectory() as scratch:
        path = os.path.join(scratch, "peer.crfsuite")
        options = {"c1": c1, "c2": c2, **stopping}
        theirs, active = train_crfsuite(data, classes, names, options, path)
        peer = pycrfsuite.Tagger()
        peer.open(path)
        tagged = [peer.tag(s) for s in strings(data_test, names)]
    own = _tagged(model, classes, names, data_test, fit.weights)
    low, n = fit.certificate.dual * len(data), int(np.count_nonzero(fit.weights))
    mine, best = curve[-1][1], theirs[-1][1]
    level = max(mine, best)
    reached = [next(t for t, value, *_ in c if value <= level) for c in (curve, theirs)]
    rows = [
        ["cliquewise", *(f"{time_to(curve, min(mine, best), x)[0]:.1f}" for x in LEVELS),
         f"{curve[-1][0]:.1f}", f"{mine:.3f}", n, f"{quality(name, y_test, own):.4f}"],
        ["CRFsuite", *(f"{time_to(theirs, min(mine, best), x)[0]:.1f}" for x in LEVELS),
         f"{theirs[-1][0]:.1f}", f"{best:.3f}", active, f"{quality(name, y_test, tagged):.4f}"],
    ]  # fmt: skip
    columns = ["", *(f"s to {x:g}" for x in LEVELS), "total s", "objective", "weights", "F1"]
    print_table(f"{name}, c1 = {c1:g}, c2 = {c2:g}, {len(data)} sentences", columns, rows)
    print(f"no weights reach less than {low:.3f}: our gap is {fit.certificate.gap:.2e}")
    print("both are at {:.3f} after {:.1f} and {:.1f} s: ".format(level, *reached), end="")
    print(f"{reached[1] / reached[0]:.1f} times as fast, by {fit.solver}, {fit.epochs:g} epochs")
    return {"objectives": (mine, best), "weights": (n, active), "reached": reached,
            "gap": fit.certificate.gap}  # fmt: skip


def _tagged(model, classes, names, data, weights):
    """Best labels of all sentences."""
    from cliquewise import SequenceTagger
    from cliquewise.data import FeatureEncoder, Labels
    from cliquewise.data.conversion import SequenceEncoder

    tagger, encoder = SequenceTagger(intercept=False, boundary_weights=False), SequenceEncoder()
    encoder.inner = FeatureEncoder.from_state(
        {"kind": "attributes", "vocabulary": list(names), "n_features": len(names),
         "n_hash": None, "min_count": 1}
    )  # fmt: skip
    tagger._chain = tagger._make_chain(encoder, Labels(classes), model, weights)
    return tagger.predict(data)


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--data", type=Path, required=True)
    parser.add_argument("--dataset", default="conll2000", choices=["conll2000", "conll2003"])
    parser.add_argument("--c1", type=float, default=0.1)
    parser.add_argument("--c2", type=float, default=0.1)
    parser.add_argument("--sentences", type=int)
    parser.add_argument("--iterations", type=int, default=1000)
    parser.add_argument("--delta", type=float, default=1e-5)
    parser.add_argument("--tol", type=float, default=1e-4)
    a = parser.parse_args()
    stopping = {"max_iterations": a.iterations, "delta": a.delta, "epsilon": a.delta}
    print_json(study(a.dataset, a.data, a.c1, a.c2, a.sentences, a.tol, stopping))


if __name__ == "__main__":
    main()
