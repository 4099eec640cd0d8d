"""Small tagging problems, and what brute force says about them."""

from __future__ import annotations

import itertools

import numpy as np

from cliquewise import SequenceTagger

LABELS = ["A", "B", "C"]


def problem(n=8, seed=0, longest=4, labels=LABELS):
    """Random sequences of lists of strings whose labels depend on them and on each other."""
    rng = np.random.default_rng(seed)
    X, y = [], []
    for _ in range(n):
        length = int(rng.integers(1, longest + 1))
        state, x, tags = int(rng.integers(len(labels))), [], []
        for _ in range(length):
            state = (state + int(rng.integers(2))) % len(labels)
            seen = state if rng.random() < 0.7 else int(rng.integers(len(labels)))
            x.append([f"w={seen}", f"noise={int(rng.integers(4))}"])
            tags.append(labels[state])
        X.append(x)
        y.append(tags)
    for c, tags in zip(labels, y, strict=False):  # every label occurs
        tags[0] = c
    return X, y


def tight(**parameters):
    """A tagger that is trained until nothing is left to gain."""
    return SequenceTagger(**{"tol": 1e-9, "max_epochs": 5000, "random_state": 0, **parameters})


def graph_of(tagger, x):
    """The factor graph of one sequence under a fitted tagger."""
    data = tagger.encoder_.transform([x])
    return tagger.model_.graph(tagger.coef_, data, 0)


def all_labelings(tagger, length):
    """Every labeling, as lists of classes."""
    return [list(c) for c in itertools.product(tagger.classes_, repeat=length)]


def same_predictions(a, b, X, Z=None, atol=1e-4):
    """Whether two taggers give the same probabilities (each on its own form of the data)."""
    for p, q in zip(
        a.predict_marginals(X), b.predict_marginals(X if Z is None else Z), strict=True
    ):
        np.testing.assert_allclose(p, q, atol=atol)
