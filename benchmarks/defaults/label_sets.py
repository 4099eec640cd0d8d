"""Label sets: which pairs, which solver.

Rows are drawn like those that were met: few of 45 or 53 labels per row, which come in groups; words
of the labels and of a common background, as tf-idf. Micro-F1 on as many rows as were trained on.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from scipy.sparse import csr_matrix
from sklearn.feature_extraction.text import TfidfTransformer
from sklearn.linear_model import LogisticRegression
from sklearn.metrics import f1_score
from sklearn.multiclass import OneVsRestClassifier

from benchmarks.defaults.rows import Row


def documents(
    n_labels: int, n: int = 1000, n_words: int = 600, background: float = 0.5, seed: int = 0
) -> tuple[Any, ...]:
    """Training and test part: sparse features, 0 and 1."""
    rng = np.random.default_rng(seed)
    n_groups, total = n_labels // 5, 2 * n
    popular, single = rng.dirichlet(np.full(n_groups, 0.7)), rng.dirichlet(np.ones(n_labels))
    Y = np.zeros((total, n_labels), dtype=int)
    for row, group in zip(Y, rng.choice(n_groups, total, p=popular), strict=True):
        for _ in range(1 + rng.poisson(1.5)):
            near = np.arange(group, n_labels, n_groups)
            row[rng.choice(near) if rng.random() < 0.75 else rng.choice(n_labels, p=single)] = 1
    words = rng.dirichlet(np.full(n_words, 0.03), size=n_labels)
    common = rng.dirichlet(np.full(n_words, 0.3))
    shares = (1 - background) * (Y @ words) / Y.sum(axis=1, keepdims=True) + background * common
    counts = np.stack([rng.multinomial(3 + rng.poisson(30), p) for p in shares])
    X = TfidfTransformer().fit_transform(csr_matrix(counts.astype(float)))
    return X[:n], Y[:n], X[n:], Y[n:]


def ours(**parameters: Any) -> Callable[[Any], float]:
    """Fit, predict, micro-F1."""
    import cliquewise as cw

    return scored(lambda: cw.MultiLabelClassifier(random_state=0, **parameters))


def scored(make: Callable[[], Any]) -> Callable[[Any], float]:
    """Fit, predict, micro-F1 of any classifier."""

    def work(data: Any) -> float:
        X, Y, X_test, Y_test = data
        found = make().fit(X, Y).predict(X_test)
        return float(f1_score(Y_test, found, average="micro", zero_division=0))

    return work


def regressions(C: float = 1.0) -> Callable[[Any], float]:
    """One-vs-rest as scikit-learn has it."""
    return scored(lambda: OneVsRestClassifier(LogisticRegression(C=C)))


def warm(data: Any) -> None:
    """Compile what is used."""
    X, Y, *_ = data
    small = (X[:60], Y[:60, :8], X[:60], Y[:60, :8])
    for parameters in ({}, {"C": 1.0, "label_graph": "tree"}, *HANDS.values()):
        ours(**(parameters | {"max_seconds": 1.0}))(small)


HANDS: dict[str, dict[str, Any]] = {
    "60 pairs, C = 10": {"C": 10.0, "label_graph": 60, "solver": "idal", "max_seconds": 60.0},
    "60 pairs, C = 10, exact": {"C": 10.0, "label_graph": 60, "max_seconds": 60.0},
    "no pairs, C = 10": {"C": 10.0, "label_graph": "none"},
    "gdmm, co-occurrence": {
        "loss": "hinge", "C": 1.0, "pairs": "co-occurrence", "solver": "gdmm", "max_seconds": 60.0,
    },
}  # fmt: skip
CHOICES = {name: ours(**parameters) for name, parameters in HANDS.items()}
CHOICES["one-vs-rest"] = regressions()

ROWS: list[Row] = [
    Row(
        "45 sparse labels", "micro-F1", lambda: documents(45), ours(), CHOICES, warm=warm
    ),
    Row(
        "53 sparse labels", "micro-F1", lambda: documents(53, background=0.7, seed=3), ours(),
        CHOICES, warm=warm,
    ),
    Row(
        # The same objective but for the penalty of the intercept: on and off share the weights.
        "independent labels beside one-vs-rest", "micro-F1", lambda: documents(45, seed=1),
        ours(label_graph="none", C=5.0), {"one-vs-rest, C = 10": regressions(10.0)}, warm=warm,
        noise=0.01,
    ),
]  # fmt: skip
