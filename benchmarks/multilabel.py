"""Multilabel classification beside independent logistic regressions and a classifier chain.

    CLIQUEWISE_DATA=... python -m benchmarks.multilabel [yeast scene bibtex] [--seconds 60]

Same standardized features, same split (Mulan's), same C for everybody; ours with the complete
label graph, and on bibtex, where 159 labels have 12,561 pairs, with the 300 of largest mutual
information and with a tree.
"""

from __future__ import annotations

import argparse
import sys
import time
import warnings
from typing import Any

import numpy as np
from sklearn.linear_model import LogisticRegression
from sklearn.metrics import f1_score, hamming_loss
from sklearn.multioutput import ClassifierChain
from sklearn.preprocessing import MaxAbsScaler

from benchmarks.common import print_json, print_table
from cliquewise import MultiLabelClassifier
from cliquewise.data.formats.arff import read_arff
from cliquewise.data.loaders import data_folder


def load(name: str) -> tuple[Any, ...]:
    """Training and test part, features scaled to at most 1."""
    folder = data_folder() / "mulan" / name
    train, test = (
        read_arff(folder / f"{name}-{part}.arff.xz", folder / f"{name}.xml")
        for part in ("train", "test")
    )
    scaler = MaxAbsScaler().fit(train.X)
    return scaler.transform(train.X), train.Y, scaler.transform(test.X), test.Y


class Independent:
    """One logistic regression per label; labels that never vary are predicted as they are."""

    def __init__(self, C: float):
        self.C = C

    def fit(self, X: Any, Y: np.ndarray) -> Independent:
        """Train."""
        self.models = [
            LogisticRegression(C=self.C, max_iter=1000).fit(X, y) if np.ptp(y) else int(y[0])
            for y in Y.T
        ]
        return self

    def predict(self, X: Any) -> np.ndarray:
        """Labels."""
        columns = [
            np.full(X.shape[0], m) if isinstance(m, int) else m.predict(X) for m in self.models
        ]
        return np.stack(columns, axis=1)


def contenders(Y: np.ndarray, C: float, seconds: float) -> dict[str, Any]:
    """Everybody who takes part."""
    n_labels = Y.shape[1]
    graph: Any = "complete" if n_labels <= 20 else 300
    ours = {"random_state": 0, "max_seconds": seconds, "tol": 1e-3, "label_graph": graph}
    return {
        "idal, log": MultiLabelClassifier("log", C, **ours),
        "idal, softmax_margin": MultiLabelClassifier("softmax_margin", C, **ours),
        "soft_bcfw, softmax_margin": MultiLabelClassifier(
            "softmax_margin", C, solver="soft_bcfw", **ours
        ),
        "idal, log, tree": MultiLabelClassifier("log", C, **(ours | {"label_graph": "tree"})),
        "idal, no label graph": MultiLabelClassifier("log", C, **(ours | {"label_graph": "none"})),
        "independent": Independent(C),
        "ClassifierChain": ClassifierChain(
            LogisticRegression(C=C, max_iter=1000), order="random", random_state=0
        ),
    }


def measure(name: str, C: float, seconds: float) -> list[dict[str, Any]]:
    """Fit and test everybody on one data set."""
    X, Y, X_test, Y_test = load(name)
    rows = []
    for who, model in contenders(Y, C, seconds).items():
        begin = time.perf_counter()
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            model.fit(X, Y)
            fitted = time.perf_counter()
            found = np.asarray(model.predict(X_test))
        gap = model.certificate_.gap if hasattr(model, "certificate_") else float("nan")
        rows.append(
            {
                "data": name,
                "method": who,
                "hamming": float(hamming_loss(Y_test, found)),
                "subset": float((found == Y_test).all(axis=1).mean()),
                "f1": float(f1_score(Y_test, found, average="micro", zero_division=0)),
                "fit_s": fitted - begin,
                "predict_s": time.perf_counter() - fitted,
                "gap": float(gap),
            }
        )
        print(f"{name}: {who} done after {time.perf_counter() - begin:.1f} s", file=sys.stderr)
    return rows


def main() -> None:
    """Print a table per data set and one line of JSON."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("data", nargs="*", default=["yeast", "scene", "bibtex"])
    parser.add_argument("--C", type=float, default=1.0)
    parser.add_argument("--seconds", type=float, default=60.0, help="limit for each fit of ours")
    given = parser.parse_args()
    # Compile before any clock runs.
    MultiLabelClassifier(max_epochs=1, tol=1e9).fit([[0.0], [1.0]], [[0, 1], [1, 0]])
    results = []
    for name in given.data:
        rows = measure(name, given.C, given.seconds)
        columns = ("method", "hamming", "subset", "f1", "fit_s", "predict_s", "gap")
        print_table(f"{name}, C = {given.C:g}", columns, [[r[c] for c in columns] for r in rows])
        results += rows
    print_json({"benchmark": "multilabel", "C": given.C, "rows": results})


if __name__ == "__main__":
    main()
