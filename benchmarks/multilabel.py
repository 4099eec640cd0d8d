"""Multilabel classification beside independent logistic regressions and a classifier chain.

    CLIQUEWISE_DATA=... python -m benchmarks.multilabel [emotions yeast scene bibtex] [--all]

Same scaled features, same split (Mulan's). The default chooses its C; the others have
scikit-learn's (1), and one-vs-rest also the one that the default chose (ours counts being on and
off: twice the C of one vector of weights). Each measure is compared with one-vs-rest, with the
standard error of the difference over the test rows (of F1: by drawing rows again). ``--all`` adds
pairs chosen by hand.
"""

from __future__ import annotations

import argparse
import sys
import time
import warnings
from typing import Any

import numpy as np
from scipy.sparse import csr_matrix
from sklearn.linear_model import LogisticRegression
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


#: What others are compared with, and the same under the default's penalty.
REFERENCE, TUNED = "one-vs-rest", "one-vs-rest, the default's C"


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


def contenders(C: float, seconds: float, everybody: bool) -> dict[str, Any]:
    """Everybody who takes part."""
    ours: dict[str, Any] = {"random_state": 0, "max_seconds": seconds}
    chain = ClassifierChain(LogisticRegression(C=C, max_iter=1000), order="random", random_state=0)
    found = {
        "default": MultiLabelClassifier(**ours),
        "no pairs": MultiLabelClassifier(C=C, label_graph="none", **ours),
        REFERENCE: Independent(C),
        "ClassifierChain": chain,
    }
    if everybody:
        for name, graph in (("tree", "tree"), ("60 pairs", 60)):
            found[name] = MultiLabelClassifier(C=C, label_graph=graph, **ours)
        found["60 pairs, softmax_margin, idal"] = MultiLabelClassifier(
            "softmax_margin", C, label_graph=60, solver="idal", **ours
        )
    return found


def measures(Y: np.ndarray, found: np.ndarray) -> np.ndarray:
    """Hamming loss, subset accuracy, micro-F1."""
    both, either = (Y * found).sum(), Y.sum() + found.sum()
    return np.array([(found != Y).mean(), (found == Y).all(axis=1).mean(), 2 * both / either])


def compared(Y: np.ndarray, found: np.ndarray, reference: np.ndarray) -> dict[str, str]:
    """By how many standard errors each measure is better than the reference's."""
    rng, signs = np.random.default_rng(0), np.array([-1, 1, 1])
    drawn = [rng.integers(0, len(Y), len(Y)) for _ in range(200)]
    many = [measures(Y[at], found[at]) - measures(Y[at], reference[at]) for at in drawn]
    errors = np.maximum(np.std(many, axis=0), 1e-12)
    z = signs * (measures(Y, found) - measures(Y, reference)) / errors
    return {name: f"{value:+.1f}" for name, value in zip(("dH", "dS", "dF"), z, strict=True)}


def measure(name: str, C: float, seconds: float, everybody: bool) -> list[dict[str, Any]]:
    """Fit and test everybody on one data set."""
    X, Y, X_test, Y_test = load(name)
    rows, answers = [], {}
    models = contenders(C, seconds, everybody)
    for who in [*models, TUNED]:
        if who == TUNED:
            models[TUNED] = Independent(2.0 * models["default"].C_)
        model, begin = models[who], time.perf_counter()
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            model.fit(X, Y)
            fitted = time.perf_counter()
            answers[who] = np.asarray(model.predict(X_test))
        hamming, subset, f1 = measures(Y_test, answers[who]).tolist()
        gap = model.certificate_.gap if isinstance(model, MultiLabelClassifier) else np.nan
        rows.append(
            {
                "data": name, "method": who, "hamming": hamming, "subset": subset, "f1": f1,
                "fit_s": fitted - begin, "predict_s": time.perf_counter() - fitted,
                "gap": float(gap),
            }
        )  # fmt: skip
        print(f"{name}: {who} done after {time.perf_counter() - begin:.1f} s", file=sys.stderr)
    print(f"{name}: {models['default'].selection_.description}", file=sys.stderr)
    for row in rows:
        row |= compared(Y_test, answers[row["method"]], answers[REFERENCE])
    return rows


def main() -> None:
    """Print a table per data set and one line of JSON."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("data", nargs="*", default=["emotions", "yeast", "scene", "bibtex"])
    parser.add_argument("--C", type=float, default=1.0)
    parser.add_argument("--seconds", type=float, default=60.0, help="limit for each fit of ours")
    parser.add_argument("--all", action="store_true", help="pairs chosen by hand, too")
    given = parser.parse_args()
    # Compile before any clock runs.
    rng = np.random.default_rng(0)
    labels = np.repeat(rng.integers(0, 2, (200, 1)), 3, axis=1)
    for X in (rng.normal(size=(200, 2)), csr_matrix(rng.normal(size=(200, 2)))):
        MultiLabelClassifier().fit(X, labels).predict(X)
    results = []
    for name in given.data:
        rows = measure(name, given.C, given.seconds, given.all)
        columns = (
            "method", "hamming", "dH", "subset", "dS", "f1", "dF", "fit_s", "predict_s", "gap",
        )  # fmt: skip
        print_table(f"{name}, C = {given.C:g}", columns, [[r[c] for c in columns] for r in rows])
        results += rows
    print_json({"benchmark": "multilabel", "C": given.C, "rows": results})


if __name__ == "__main__":
    main()
