"""Sequences: templates, solvers, input kinds."""

from __future__ import annotations

import os
import warnings
from collections.abc import Callable
from itertools import pairwise
from pathlib import Path
from typing import Any

from sklearn.exceptions import ConvergenceWarning

from benchmarks.defaults.rows import Row

#: Sentences to train on and to test on: a row takes less than a minute.
TRAIN, TEST = 3000, 1500
#: A rule for pairs of tokens of one attribute, beside the tokens' own.
PAIR_RULES = "U1:%x[0,0]\nU2:%x[-1,0]\nU3:%x[1,0]\nU4:%x[0,1]\nU5:%x[-1,1]/%x[0,1]\nB\nB1:%x[0,1]\n"

Sentences = tuple[list[Any], list[list[str]]]


def sentences(name: str, count: int, columns: list[int]) -> Sentences:
    """The first sentences of a file with only these columns, the label last."""
    from cliquewise.data import read_conll

    path = Path(os.environ["CLIQUEWISE_DATA"]) / name
    text, y = read_conll(path).select(columns).split_labels()
    rows = list(zip(*text.columns, strict=True))
    marks = text.offsets.tolist()
    return [rows[a:b] for a, b in pairwise(marks[: count + 1])], y[:count]


def chunks() -> tuple[Sentences, Sentences]:
    """CoNLL-2000: word, part of speech, chunk."""
    names = ("conll2000/train.txt.gz", TRAIN), ("conll2000/test.txt.gz", TEST)
    train, test = (sentences(name, count, [0, 1, 2]) for name, count in names)
    return train, test


def names() -> tuple[Sentences, Sentences]:
    """CoNLL-2003: word, part of speech, name."""
    files = ("conll2003/eng.train.gz", TRAIN), ("conll2003/eng.testa.gz", TEST)
    train, test = (sentences(name, count, [0, 1, 3]) for name, count in files)
    return train, test


def columns_of(rows: list[Any]) -> Any:
    """As `read_conll` gives them."""
    from cliquewise.data import Columns

    return Columns.from_rows(rows)


def span_f1_with(**options: Any) -> Callable[[Any], float]:
    """Train with these options and score the spans of the test set."""

    def run(given: tuple[Sentences, Sentences]) -> float:
        from cliquewise import SequenceTagger
        from cliquewise.metrics import span_f1

        (X, y), (X_test, y_test) = given
        tagger = SequenceTagger(random_state=0, **options).fit(columns_of(X), y)
        return span_f1(y_test, tagger.predict(columns_of(X_test)))

    return run


def certainty_with(**options: Any) -> Callable[[Any], float]:
    """Train with these options; what is proved, as minus the gap (0 if that is below tol)."""

    def run(given: tuple[Sentences, Sentences]) -> float:
        from cliquewise import SequenceTagger

        X, y = given[0]
        tagger = SequenceTagger(random_state=0, **options).fit(columns_of(X), y)
        gap = tagger.certificate_.gap
        return 0.0 if gap <= tagger.tol else -float(gap)

    return run


def pair_template() -> Any:
    from cliquewise.data import Template

    return Template.parse(PAIR_RULES)


def warm(given: tuple[Sentences, Sentences]) -> None:
    """Compile."""
    warnings.simplefilter("ignore", ConvergenceWarning)
    few = tuple((X[:20], y[:20]) for X, y in given)
    for template in ("columns", pair_template()):
        for solver in ("sdca", "lbfgs"):
            span_f1_with(template=template, max_epochs=2, solver=solver)(few)


def pairs_with(**options: Any) -> Callable[[Any], float]:
    """:func:`certainty_with` the pair rules, on a third of the sentences: lbfgs is slow here."""

    def run(given: tuple[Sentences, Sentences]) -> float:
        (X, y), test = given
        few = (X[: TRAIN // 3], y[: TRAIN // 3]), test
        return certainty_with(template=pair_template(), **options)(few)

    return run


def dicts() -> Any:
    """A tagger, the feature dicts of the test set, and python-crfsuite's tagger of the same."""
    from benchmarks.input_forms import FORMS, fit_theirs, window
    from cliquewise import SequenceTagger

    (X, y), (X_test, _) = chunks()
    train = [window(rows) for rows in X]
    mine = SequenceTagger(max_epochs=5, tol=0.1, random_state=0).fit(train, y)
    return mine, fit_theirs(FORMS["dicts"], train, y), [window(rows) for rows in X_test]


def tag_twice(tag: Callable[[Any], Any]) -> float:
    """Quality is equal by construction: only the time counts."""
    for _ in range(5):
        tag(None)
    return 1.0


WEAK = {"C": 5.0, "feature_pairs": "seen"}

ROWS: list[Row] = [
    Row(
        "template, names of word and part of speech", "span F1", names,
        span_f1_with(),
        {name: span_f1_with(template=name) for name in ("chunking", "ner")}, warm=warm,
    ),
    Row(
        "template, chunks of word and part of speech", "span F1", chunks,
        span_f1_with(),
        {name: span_f1_with(template=name) for name in ("chunking", "ner")}, warm=warm,
    ),
    Row(
        'C=5, feature_pairs="seen"', "minus gap", chunks,
        certainty_with(**WEAK), {"sdca": certainty_with(**WEAK, solver="sdca")},
        noise=1e-4, warm=warm,
    ),
    Row(
        "pair rules", "minus gap", chunks,
        pairs_with(),
        {name: pairs_with(solver=name) for name in ("sdca", "lbfgs")}, noise=1e-4, warm=warm,
    ),
    Row(
        "predicting from feature dicts", "(time)", dicts,
        lambda given: tag_twice(lambda _: given[0].predict(given[2])),
        {"python-crfsuite": lambda given: tag_twice(lambda _: [given[1].tag(x) for x in given[2]])},
    ),
]  # fmt: skip
