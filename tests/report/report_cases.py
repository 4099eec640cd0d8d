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


#: Words whose letters are of all kinds that templates tell apart, and some they might confuse.
WORDS = [
    "Rome",
    "rome",
    "ROME",
    "U.S.",
    "3.5",
    "x2",
    "X-ray",
    "ﬁne",
    "ÉCOLE",
    "straße",
    "ΣΟΦΟΣ",
    "İstanbul",
    "ǅ",
    "H₂O",
    "x²",
    "①",
    "٣",
    "𝒳y",
    "👍🏽",
    "naïve",
    "日本",
    "(a)",
    "_b=c|d",
    "ſ",
    "ª",
    "Ⅷ",
    "<b>",
    "a\u200bb",
    "",
]


def template_tagger(template, loss="log", seed=0, n=60, n_test=500, **options):
    """A tagger of two columns by a template, and sentences to try it on."""
    rng = np.random.default_rng(seed)

    def sentence():
        size = int(rng.integers(1, 9))
        return [[WORDS[j], "NVD"[j % 3]] for j in rng.integers(0, len(WORDS), size)]

    X = [sentence() for _ in range(n)]
    label = {word: ["O", "B-X", "I-X"][i % 3] for i, word in enumerate(WORDS)}
    y = [[label[word] for word, _ in x] for x in X]
    for row in y:  # no I-X after O
        for t in range(1, len(row)):
            row[t] = "O" if row[t - 1] == "O" and row[t] == "I-X" else row[t]
    tagger = cw.SequenceTagger(loss, template=template, random_state=0, tol=0.1, **options)
    return tagger.fit(X, y), [sentence() for _ in range(n_test)]
