"""Are spans with probability p right in a share p of all cases, and what do they cost?

    python -m benchmarks.span_probabilities [--data DIR] [--C 1.0] [--test testa|testb]

A tagger with default options is trained on CoNLL-2003. The reliability tables are of the spans
that it predicts on the test file, and of all spans above 1 %: per bin of probability the number of
spans, their mean probability, the share that is in the truth, and over all bins the expected
calibration error, the mean distance of the two. Costs are CPU seconds on the same file, from text
to answers and (encoded) from attributes to answers, as multiples of the best labels by Viterbi.
"""

from __future__ import annotations

import argparse
import time
from typing import Any

import numpy as np

from benchmarks.common import print_json, print_table, seconds
from cliquewise import SequenceTagger
from cliquewise.data import read_spans
from cliquewise.data.loaders import load_conll2003
from cliquewise.metrics import span_f1

EDGES = np.linspace(0.0, 1.0, 11)


def reliability(found: list[list[Any]], truth: list[list[Any]]) -> tuple[list[Any], float]:
    """A row for every bin of probability, and the expected calibration error."""
    true = [set(spans) for spans in truth]
    pairs = [(s.probability, s[:3] in t) for spans, t in zip(found, true) for s in spans]
    p, right = np.array([a for a, _ in pairs]), np.array([b for _, b in pairs])
    bins = np.minimum(np.digitize(p, EDGES) - 1, len(EDGES) - 2)
    rows, error = [], 0.0
    for b in range(len(EDGES) - 1):
        own = bins == b
        if own.any():
            mean, share = float(p[own].mean()), float(right[own].mean())
            error += own.mean() * abs(mean - share)
            rows.append([f"{EDGES[b]:.1f}-{EDGES[b + 1]:.1f}", int(own.sum()), mean, share])
    return rows, float(error)


def main() -> None:
    """Train, compare, print."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--data", default=None)
    parser.add_argument("--C", type=float, default=1.0)
    parser.add_argument("--test", default="testb", choices=["testa", "testb"])
    options = parser.parse_args()
    split = load_conll2003(options.data, options.test)
    X, truth = split.X_test, read_spans(split.y_test)
    tagger = SequenceTagger(C=options.C, template=split.template, random_state=0)
    tagger.fit(split.X_train, split.y_train)

    result: dict[str, Any] = {"C": options.C, "test": options.test}
    result["f1"] = span_f1(split.y_test, tagger.predict(X))
    answers = {
        "predicted": tagger.predict_spans(X, proba=True),
        "above 1 %": tagger.predict_spans(X, candidates="all", threshold=0.01),
    }
    for name, found in answers.items():
        rows, error = reliability(found, truth)
        print_table(
            f"{name}: expected calibration error {error:.4f}",
            ["probability", "spans", "mean probability", "share right"],
            rows,
        )
        result[name] = {"rows": rows, "expected_calibration_error": error}

    data = tagger.encoder_.transform(X)
    ways = {
        "best labels": (lambda: tagger.predict(X), lambda: tagger.chain_.decode(data)),
        "marginals": (lambda: tagger.predict_marginals(X), None),
        "predicted spans": (
            lambda: tagger.predict_spans(X, proba=True),
            lambda: tagger._scored(data),
        ),
        "spans above 1 %": (
            lambda: tagger.predict_spans(X, candidates="all", threshold=0.01),
            lambda: tagger._searched(data, 0.01, None),
        ),
        "10 most probable": (
            lambda: tagger.predict_spans(X, candidates="all", k=10),
            lambda: tagger._searched(data, 0.0, 10),
        ),
    }
    clock = time.process_time
    costs = {
        name: [None if way is None else seconds(way, clock=clock) for way in both]
        for name, both in ways.items()
    }
    base = costs["best labels"]
    rows = [
        [name, whole, whole / base[0], *(["", ""] if own is None else [own, own / base[1]])]
        for name, (whole, own) in costs.items()
    ]
    columns = ["", "from text, CPU s", "times Viterbi", "encoded, CPU s", "times Viterbi"]
    print_table(f"{data.n_tokens} tokens", columns, rows)
    print_json(result | {"cpu_seconds": costs})


if __name__ == "__main__":
    main()
