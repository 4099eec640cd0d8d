"""Tagging beside python-crfsuite, form of input by form: the same Python objects to tags.

    python -m benchmarks.input_forms --data DIR [--form strings|dicts|pairs|arrays|columns ...]

Both are trained on CoNLL-2000 and tag its test set, all at once and sentence by sentence (the
latter from one call each, as a service would). Each side gets the form that it takes as it is; what
it has to make of the others counts: for python-crfsuite pairs become dicts, arrays dicts of
numbers, and columns the dicts of a feature function with the same attributes.
"""

from __future__ import annotations

import argparse
import os
import tempfile
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.common import geometric_mean, print_json, print_table, seconds

Rows = list[tuple[str, ...]]
#: Sentences of the test set in one measurement of the latency; every one is tagged once.
SINGLE = 200


@dataclass
class Form:
    """What users have (``given``), and what python-crfsuite needs of it (``theirs``)."""

    given: Callable[[Rows], Any]
    theirs: Callable[[Any], Any] = lambda sentence: sentence
    template: str | None = None


def window(rows: Rows) -> list[dict[str, Any]]:
    """Feature dicts as in the tutorials of sklearn-crfsuite: strings and bools, three tokens."""
    out = []
    for t, (word, pos) in enumerate(rows):
        token: dict[str, Any] = {
            "bias": 1.0, "word.lower()": word.lower(),
            "word[-3:]": word[-3:], "word[-2:]": word[-2:],
            "word.isupper()": word.isupper(), "word.istitle()": word.istitle(),
            "word.isdigit()": word.isdigit(), "postag": pos, "postag[:2]": pos[:2],
        }  # fmt: skip
        for step, sign in ((-1, "-1"), (1, "+1")):
            if not 0 <= t + step < len(rows):
                token["BOS" if step < 0 else "EOS"] = True
                continue
            other, tag = rows[t + step]
            token[f"{sign}:word.lower()"] = other.lower()
            token[f"{sign}:word.istitle()"] = other.istitle()
            token[f"{sign}:word.isupper()"] = other.isupper()
            token[f"{sign}:postag"] = tag
            token[f"{sign}:postag[:2]"] = tag[:2]
        out.append(token)
    return out


def strings(rows: Rows) -> list[list[str]]:
    """The same attributes as strings; those that are 0 left out."""
    return [
        [f"{key}={value}" if isinstance(value, str) else key for key, value in d.items() if value]
        for d in window(rows)
    ]


def pairs(rows: Rows) -> list[list[tuple[str, float]]]:
    """The same attributes with values."""
    return [
        [
            (f"{key}={value}", 1.0) if isinstance(value, str) else (key, float(value))
            for key, value in d.items()
        ]
        for d in window(rows)
    ]


def arrays(rows: Rows) -> Any:
    """Thirty numbers per token that say something of it: lengths, cases, codes of the tag."""
    codes = [
        [len(word), word.istitle(), word.isupper(), word.isdigit()]
        + [float((hash_of(pos) >> k) % 3) for k in range(26)]
        for word, pos in rows
    ]
    return np.array(codes, dtype=np.float64) - 1.0


def hash_of(text: str) -> int:
    """A number that is the same in every process."""
    return int.from_bytes(text.encode(), "little") * 0x9E3779B97F4A7C15 % (1 << 61)


def numbers(matrix: Any) -> list[dict[str, float]]:
    """An array as python-crfsuite takes it."""
    names = [f"x{k}" for k in range(matrix.shape[1])]
    return [dict(zip(names, row)) for row in matrix.tolist()]


def chunk_features(rows: Sequence[Sequence[str]]) -> list[list[str]]:
    """The attributes of the template ``chunking``, by a plain feature function."""
    words, tags = [row[0] for row in rows], [row[1] for row in rows]
    n, out = len(rows), []
    for t in range(n):
        near = [k for k in range(-2, 3) if 0 <= t + k < n]
        token = [f"w[{k}]={words[t + k]}" for k in near]
        token += [f"pos[{k}]={tags[t + k]}" for k in near]
        for k in near:
            if k < 2 and t + k + 1 < n:
                pair = f"pos[{k}]|pos[{k + 1}]={tags[t + k]}|{tags[t + k + 1]}"
                token.append(pair)
                if k in (-1, 0):
                    token.append(f"w[{k}]|w[{k + 1}]={words[t + k]}|{words[t + k + 1]}")
            if k < 1 and t + k + 2 < n:
                three = "|".join(tags[t + k : t + k + 3])
                token.append(f"pos[{k}]|pos[{k + 1}]|pos[{k + 2}]={three}")
        if t == 0:
            token.append("__BOS__")
        if t == n - 1:
            token.append("__EOS__")
        out.append(token)
    return out


FORMS = {
    "strings": Form(strings),
    "dicts": Form(window),
    "pairs": Form(pairs, lambda sentence: [dict(token) for token in sentence]),
    "arrays": Form(arrays, numbers),
    "columns": Form(lambda rows: rows, chunk_features, "chunking"),
}


def load(folder: Path, name: str) -> tuple[list[Rows], list[list[str]]]:
    """Sentences as rows of word and part of speech, and their chunks."""
    from cliquewise.data import read_conll

    text, y = read_conll(folder / "conll2000" / f"{name}.txt.gz").split_labels()
    rows = list(zip(*text.columns, strict=True))
    marks = text.offsets.tolist()
    return [rows[a:b] for a, b in pairwise(marks)], y


def fit_theirs(form: Form, X: list[Any], y: list[list[str]]) -> Any:
    """python-crfsuite's tagger after some iterations, enough for the speed of tagging."""
    import pycrfsuite

    trainer = pycrfsuite.Trainer(verbose=False)
    trainer.set_params({"max_iterations": 15, "feature.possible_transitions": True})
    for sentence, labels in zip(X, y, strict=True):
        trainer.append(form.theirs(sentence), labels)
    with tempfile.NamedTemporaryFile(suffix=".crfsuite", delete=False) as file:
        path = file.name
    trainer.train(path)
    tagger = pycrfsuite.Tagger()
    tagger.open(path)
    os.unlink(path)
    return tagger


def latencies(taggers: list[Callable[[Any], Any]], sentences: list[Any]) -> list[float]:
    """Milliseconds per sentence, turn by turn: the least of the means of several stretches."""
    means: list[list[float]] = [[] for _ in taggers]
    for tag in taggers:
        tag(sentences[0])
    for start in range(0, len(sentences) - SINGLE, SINGLE):
        for tag, own in zip(taggers, means, strict=True):
            begin = time.process_time()
            for sentence in sentences[start : start + SINGLE]:
                tag(sentence)
            own.append((time.process_time() - begin) / SINGLE * 1e3)
    return [min(own) for own in means]


def study(name: str, folder: Path, sentences: int, repeats: int) -> dict[str, Any]:
    """Seconds of both sides for all sentences, and milliseconds for one."""
    from cliquewise import SequenceTagger
    from cliquewise.metrics import token_accuracy

    form = FORMS[name]
    train, y = load(folder, "train")
    test, y_test = load(folder, "test")
    X = [form.given(rows) for rows in train[:sentences]]
    mine = SequenceTagger(template=form.template, max_epochs=5, tol=0.1, random_state=0)
    mine.fit(X, y[:sentences])
    peer = fit_theirs(form, X, y[:sentences])
    X_test = [form.given(rows) for rows in test]

    def theirs(examples: Any) -> list[Any]:
        return [peer.tag(form.theirs(sentence)) for sentence in examples]

    # Before anything else is tagged: the sentences are new, as in a service.
    single = latencies([lambda x: mine.predict([x]), lambda x: theirs([x])], X_test)
    return {
        "form": name,
        "accuracy": token_accuracy(y_test, mine.predict(X_test)),
        "peer_accuracy": token_accuracy(y_test, theirs(X_test)),
        "seconds": seconds(lambda: mine.predict(X_test), repeats, clock=time.process_time),
        "peer_seconds": seconds(lambda: theirs(X_test), repeats, clock=time.process_time),
        "single_ms": single[0],
        "peer_single_ms": single[1],
    }


def main() -> None:
    """Run the forms and print a table."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("--data", default=os.environ.get("CLIQUEWISE_DATA"))
    parser.add_argument("--form", nargs="*", default=list(FORMS), choices=list(FORMS))
    parser.add_argument("--sentences", type=int, default=8936, help="of the training set")
    parser.add_argument("--repeats", type=int, default=5)
    args = parser.parse_args()
    if not args.data:
        parser.error("give --data or set CLIQUEWISE_DATA")
    results = [study(name, Path(args.data), args.sentences, args.repeats) for name in args.form]
    rows = []
    for r in results:
        r["ratio"] = r["peer_seconds"] / r["seconds"]
        r["single_ratio"] = r["peer_single_ms"] / r["single_ms"]
        shown = ("form", "accuracy", "peer_accuracy", "seconds", "peer_seconds", "ratio",
                 "single_ms", "peer_single_ms", "single_ratio")  # fmt: skip
        rows.append([r[name] for name in shown])
    columns = ["form", "accuracy", "theirs", "seconds", "theirs", "ratio",
               "one sentence, ms", "theirs", "ratio"]  # fmt: skip
    print_table("tagging CoNLL-2000 beside python-crfsuite", columns, rows)
    mean = geometric_mean(r["ratio"] for r in results)
    print_json({"forms": results, "mean_ratio": mean})


if __name__ == "__main__":
    main()
