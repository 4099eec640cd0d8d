"""A small tagger, and text that would like to be more than text."""

from __future__ import annotations

import numpy as np

import cliquewise as cw

HOSTILE = [
    "<script>window.hacked = 1</script>",
    "</script><script>window.hacked = 2</script>",
    "<img src=x onerror='window.hacked = 3'>",
    "\"'`${window.hacked = 4}{{data}}",
    "\u202eright to left\u2066\u200f",
    "\u2028\u2029\x00\ud800",
    "long" * 2500,
    "<!--", "]]>", "&lt;b&gt;", "javascript:window.hacked=5",
]  # fmt: skip


def spans_tagger(seed=0, n=30, loss="log", words=None):
    """A tagger of random spans of two types, and sentences to try it on."""
    rng = np.random.default_rng(seed)
    labels = ["O", "B-X", "I-X", "B-Y", "I-Y"]
    words = [f"w{i}" for i in range(8)] if words is None else words
    X = [
        [[f"w={words[j]}"] for j in rng.integers(0, len(words), rng.integers(1, 7))]
        for _ in range(n)
    ]
    y = []
    for x in X:
        row: list[str] = []
        for _ in x:
            choice = labels[rng.integers(0, 5)]
            allowed = not choice.startswith("I-") or (row and row[-1][2:] == choice[2:])
            row.append(choice if allowed else "O")
        y.append(row)
    tagger = cw.SequenceTagger(
        loss, C=0.5, transitions="BIO", random_state=0, max_epochs=20, tol=0.5
    )
    return tagger.fit(X, y), X, y
