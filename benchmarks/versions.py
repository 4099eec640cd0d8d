"""Is this version slower than another one? The same work on two source trees, taking turns.

    git worktree add ../old COMMIT
    python -m benchmarks.versions --old ../old/src [--rounds 3] [--data DIR] [--only tagging ...]

Every turn is a process of its own that uses public names alone, warms up (compiles), and reports
the least CPU seconds of several repetitions. Printed: seconds of both and the ratio new / old of
the least seconds of all turns, for what the benchmarks tagging, forward_backward, exact_inference,
max_margin, cliquewise_pass and multilabel measure. Noise alone makes ratios of 0.95 to 1.05.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import time
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np


def least(work: Callable[[], Any], repeats: int = 3) -> float:
    """CPU seconds of the quickest of several repetitions, after one that compiles."""
    work()
    times = []
    for _ in range(repeats):
        begin = time.process_time()
        work()
        times.append(time.process_time() - begin)
    return min(times)


def chunks(data: Path) -> tuple[Any, Any]:
    """Two thousand sentences of CoNLL-2000, as columns, and their labels."""
    from cliquewise.data import read_conll

    X, y = read_conll(data / "conll2000" / "train.txt.gz").split_labels()
    rows = list(zip(*(X.sentences(j)[:2000] for j in range(X.n_columns)), strict=True))
    return X.from_rows([list(zip(*sentence, strict=True)) for sentence in rows]), y[:2000]


def tagging(data: Path) -> dict[str, float]:
    """Fits of ten passes, prediction and marginals."""
    import cliquewise as cw

    X, y = chunks(data)
    given: dict[str, Any] = {"template": "chunking", "C": 0.5, "tol": 0.0, "random_state": 0}
    out = {}
    for pairs in ("all", "seen"):
        fit = cw.SequenceTagger(max_epochs=10, feature_pairs=pairs, solver="sdca", **given)
        out[f"sdca, {pairs} pairs, 10 passes"] = least(lambda f=fit: f.fit(X, y))
    lbfgs = cw.SequenceTagger(max_epochs=10, solver="lbfgs", **given)
    out["lbfgs, 10 passes"] = least(lambda: lbfgs.fit(X, y))
    out["predict"] = least(lambda: lbfgs.predict(X))
    out["predict_marginals"] = least(lambda: lbfgs.predict_marginals(X))
    return out


def max_margin(data: Path) -> dict[str, float]:
    """Fits of a few passes by the solvers of the hinge loss."""
    import cliquewise as cw

    X, y = chunks(data)
    out = {}
    for solver in ("sdca", "bcfw", "subgradient", "casimir", "gdmm"):
        fit = cw.SequenceTagger(
            "hinge", C=0.1, template="chunking", tol=0.0, max_epochs=6, solver=solver,
            random_state=0,
        )  # fmt: skip
        out[f"{solver}, 6 passes"] = least(lambda f=fit: f.fit(X, y))
    return out


def inference(data: Path) -> dict[str, float]:
    """Exact answers on chains, grids and a competition's network; bounds on a grid."""
    import cliquewise as cw

    rng = np.random.default_rng(0)

    def grid(rows: int, columns: int, k: int, size: float = 1.0) -> Any:
        return cw.FactorGraph.grid(
            rng.normal(size=(rows, columns, k)), size * rng.normal(size=(k, k)),
            size * rng.normal(size=(k, k)),
        )  # fmt: skip

    long = cw.FactorGraph.chain(rng.normal(size=(20000, 9)), rng.normal(size=(9, 9)))
    wide, small, loopy = grid(12, 30, 2), grid(8, 8, 3), grid(10, 10, 3, 0.5)
    out = {
        "chain of 20,000, marginals": least(long.marginals),
        "grid 12 x 30, marginals": least(lambda: wide.marginals("junction-tree")),
        "grid 12 x 30, MAP": least(lambda: wide.map("junction-tree")),
        "grid 8 x 8 x 3, marginals": least(lambda: small.marginals("junction-tree")),
        "grid 10 x 10 x 3, trw-s": least(lambda: loopy.map("trw-s")),
        "grid 10 x 10 x 3, trw-bp": least(lambda: loopy.marginals("trw-bp")),
        "grid 6 x 6, barrier-fw": least(lambda: grid(6, 6, 2).marginals("barrier-fw"), 1),
    }
    trees = [cw.FactorGraph.chain(rng.normal(size=(6, 3)), rng.normal(size=(3, 3)))
             for _ in range(300)]  # fmt: skip
    out["300 small chains, MAP"] = least(lambda: [tree.map() for tree in trees])
    return out


def graphs(data: Path) -> dict[str, float]:
    """Passes over cliques, and prediction by the relaxation."""
    import cliquewise as cw

    rng, size, k = np.random.default_rng(0), 10, 4
    at = np.arange(size**2).reshape(size, size)
    edges = np.concatenate([np.stack([at[:, :-1].ravel(), at[:, 1:].ravel()], 1),
                            np.stack([at[:-1].ravel(), at[1:].ravel()], 1)])  # fmt: skip
    y = [rng.integers(0, k, size**2) for _ in range(60)]
    X = [(np.eye(k)[labels] + rng.normal(size=(size**2, k)), edges) for labels in y]
    out = {}
    for solver in ("idal", "soft_bcfw", "gdmm"):
        fit = cw.GraphLabeler(tol=0.0, max_epochs=20, solver=solver, random_state=0)
        out[f"{solver}, 20 passes"] = least(lambda f=fit: f.fit(X, y))
        out[f"{solver}, relaxed prediction"] = least(lambda f=fit: f.predict(X))
    hinge = cw.GraphLabeler(
        "hinge", C=0.1, tol=0.0, max_epochs=4, solver="bcfw", random_state=0, inference="trw-s"
    )
    rings = [(x[:8], np.array([(i, (i + 1) % 8) for i in range(8)])) for x, _ in X]
    out["bcfw on rings, 4 passes"] = least(lambda: hinge.fit(rings, [labels[:8] for labels in y]))
    return out


def multilabel(data: Path) -> dict[str, float]:
    """Label sets: listed pairs, and pairs that are never listed."""
    import cliquewise as cw

    rng = np.random.default_rng(0)
    X = rng.normal(size=(300, 20))
    Y = (X @ rng.normal(size=(20, 30)) + rng.normal(size=(300, 30)) > 1.5).astype(int)
    listed = cw.MultiLabelClassifier(
        C=1.0, tol=0.0, max_epochs=20, label_graph=60, solver="idal", random_state=0
    )
    sparse = cw.MultiLabelClassifier(
        "hinge", C=0.3, pairs="co-occurrence", tol=0.0, max_epochs=20, solver="gdmm",
        random_state=0,
    )  # fmt: skip
    return {
        "idal, 60 pairs, 20 passes": least(lambda: listed.fit(X, Y)),
        "gdmm, all pairs, 20 passes": least(lambda: sparse.fit(X, Y)),
        "gdmm, prediction": least(lambda: sparse.predict(X)),
    }


WORK = {w.__name__: w for w in (tagging, max_margin, inference, graphs, multilabel)}


def turn(source: Path, name: str, data: Path) -> dict[str, float]:
    """One kind of work on one source tree, in a process of its own."""
    environment = os.environ | {"PYTHONPATH": f"{source}{os.pathsep}{Path(__file__).parents[1]}"}
    done = subprocess.run(
        [sys.executable, "-m", "benchmarks.versions", "--work", name, "--data", str(data)],
        env=environment, check=True, capture_output=True, text=True,
    )  # fmt: skip
    return json.loads(done.stdout.splitlines()[-1])  # type: ignore[no-any-return]


def main() -> None:
    """Both trees by turns, or (``--work``) one kind of work."""
    from benchmarks.common import print_table
    from cliquewise.data.loaders import data_folder

    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--old", type=Path, help="src folder of the other version")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--data", help="folder of data sets (default: CLIQUEWISE_DATA)")
    parser.add_argument("--only", nargs="*", choices=list(WORK), default=list(WORK))
    parser.add_argument("--work", choices=list(WORK))
    options = parser.parse_args()
    data = data_folder(options.data)
    if options.work:
        warnings.simplefilter("ignore")
        print(json.dumps(WORK[options.work](data)))
        return
    here, rows = Path(__file__).parents[1] / "src", []
    for name in options.only:
        seconds: dict[str, list[list[float]]] = {}
        for _ in range(options.rounds):
            for which, source in enumerate((options.old.resolve(), here)):
                for what, value in turn(source, name, data).items():
                    seconds.setdefault(what, [[], []])[which].append(value)
        for what, (old, new) in seconds.items():
            ratio = min(new) / max(min(old), 1e-9)
            rows.append([name, what, f"{min(old):.4f}", f"{min(new):.4f}", f"{ratio:.2f}"])
    print_table(
        "this version beside the other", ["benchmark", "work", "old s", "new s", "new / old"], rows
    )


if __name__ == "__main__":
    main()
