"""Model files beside CRFsuite's: bytes, seconds to the first answer, and F1, on CoNLL-2003.

    python -m benchmarks.model_files --data DIR [--iterations 1000] [--tol 1e-3] [--folder KEEP]

Both sides train on the same attributes, with weights for the (attribute, label) pairs seen in
training, for the same objective (c2 = 1, C = 1/2). "first answer" is loading and tagging one
sentence: processor time within a running process, the median of 31 in turn ("mapped": with
``mmap=True``). "process" is all of a new process that does this (ours with
``predict_only=True``): imports and compiled kernels from their cache included. A folder that is
given is looked for the models first, and keeps them.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from itertools import pairwise
from pathlib import Path

import numpy as np

from benchmarks.common import print_json, print_table
from benchmarks.tagging import load, strings

C2 = 1.0
VARIANTS = {
    "ours, float64": {},
    "ours, float32": {"dtype": "float32"},
    "ours, float16": {"dtype": "float16"},
}
PRUNED = (0.5, 0.2)
MAPPED = ", mapped"
READ = "import sys, pickle; x = pickle.load(open(sys.argv[2], 'rb')); path = sys.argv[1]; "
OURS = f"{READ} import cliquewise; cliquewise.load(path, predict_only=True).predict(x)"
THEIRS = f"{READ} import pycrfsuite; t = pycrfsuite.Tagger(); t.open(path); t.tag(x[0])"


def train_crfsuite(data, classes, names, path: Path, iterations: int) -> None:
    import pycrfsuite

    trainer = pycrfsuite.Trainer(verbose=False)
    trainer.select("lbfgs")
    offsets, truth = data.offsets.tolist(), [classes[i] for i in data.labels.tolist()]
    for i, x in enumerate(strings(data, names)):
        trainer.append(pycrfsuite.ItemSequence(x), truth[offsets[i] : offsets[i + 1]])
    options = {"feature.possible_transitions": True, "c1": 0.0, "c2": C2}
    for name, value in (options | {"max_iterations": iterations}).items():
        trainer.set(name, value)
    trainer.train(str(path))


def train_ours(X, y, folder: Path, tol: float) -> dict[str, str]:
    """Models by name, and what pruning cost."""
    import cliquewise as cw

    tagger = cw.SequenceTagger(
        C=1 / (2 * C2), feature_pairs="seen", intercept=False, boundary_weights=False, tol=tol,
        random_state=0,
    )  # fmt: skip
    tagger.fit(X, y)
    for name, options in VARIANTS.items():
        tagger.save(folder / name, **options)
    costs = {}
    for keep in PRUNED:
        smaller = cw.SequenceTagger().set_params(**tagger.get_params())
        smaller.__dict__.update(tagger.__dict__)
        smaller.prune(keep=keep)
        name = f"ours, float16, {keep:.0%} of the weights"
        smaller.save(folder / name, dtype="float16")
        costs[name] = f"{smaller.pruned_.loss:+.2%}"
    return costs


def in_turn(asks: dict[str, Callable[[], object]], times: int = 31) -> dict[str, float]:
    """Median processor seconds of each, asked in turn: all of them meet the same machine."""
    found: dict[str, list[float]] = {name: [] for name in asks}
    for _ in range(times):
        for name, ask in asks.items():
            begin = time.process_time()
            ask()
            found[name].append(time.process_time() - begin)
    return {name: float(np.median(seconds)) for name, seconds in found.items()}


def process(code: str, *arguments: str) -> float:
    """Processor seconds of a new process, the least of three."""
    found = []
    for _ in range(3):
        before = os.times()
        subprocess.run([sys.executable, "-c", code, *arguments], check=True)
        after = os.times()
        found.append(
            after.children_user - before.children_user + after.children_system
            - before.children_system
        )  # fmt: skip
    return min(found)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--data", type=Path, default=os.environ.get("CLIQUEWISE_DATA"))
    parser.add_argument("--iterations", type=int, default=1000)
    parser.add_argument("--tol", type=float, default=1e-3)
    parser.add_argument("--folder", type=Path, default=None)
    options = parser.parse_args()
    folder = options.folder or Path(tempfile.mkdtemp())
    folder.mkdir(exist_ok=True)
    measure(Path(options.data), options.iterations, options.tol, folder)


def measure(data_folder: Path, iterations: int, tol: float, folder: Path) -> None:
    import pickle

    import pycrfsuite

    import cliquewise as cw
    from cliquewise.metrics import span_f1

    data, test, y_test, classes, names = load("conll2003", data_folder)
    X = strings(data, names)
    offsets = data.offsets.tolist()
    truth = [classes[i] for i in data.labels.tolist()]
    y = [truth[a:b] for a, b in pairwise(offsets)]
    X_test = strings(test, names)
    one = folder / "one.pickle"
    one.write_bytes(pickle.dumps(X_test[:1]))
    theirs = folder / "CRFsuite"
    if not theirs.exists():
        train_crfsuite(data, classes, names, theirs, iterations)
    kept = (folder / next(iter(VARIANTS))).exists()
    costs = {} if kept else train_ours(X, y, folder, tol)
    del data, X

    def open_theirs():
        tagger = pycrfsuite.Tagger()
        tagger.open(str(theirs))
        tagger.tag(X_test[0])
        return tagger

    tagger = open_theirs()
    f1 = {"CRFsuite": span_f1(y_test, [tagger.tag(x) for x in X_test])}
    asks: dict[str, Callable[[], object]] = {"CRFsuite": open_theirs}
    alone = {"CRFsuite": process(THEIRS, str(theirs), str(one))}
    for path in sorted(folder.glob("ours*")):
        f1[path.name] = span_f1(y_test, cw.load(path).predict(X_test))
        alone[path.name] = process(OURS, str(path), str(one))
        asks[path.name] = lambda path=path: cw.load(path).predict(X_test[:1])
        asks[path.name + MAPPED] = lambda path=path: cw.load(path, mmap=True).predict(X_test[:1])
    seconds = in_turn(asks)
    found = [
        {"model": name, "MB": f"{(folder / name).stat().st_size / 1e6:.2f}",
         "F1": f"{f1[name]:.4f}", "objective": costs.get(name, ""),
         "first answer ms": round(1e3 * seconds[name], 2),
         "mapped": round(1e3 * seconds.get(name + MAPPED, np.nan), 2),
         "process s": round(alone[name], 2)}
        for name in f1
    ]  # fmt: skip
    print_table("model files", list(found[0]), [list(row.values()) for row in found])
    print_json({"model_files": found})


if __name__ == "__main__":
    main()
