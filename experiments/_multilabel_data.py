"""Multilabel data from a Markov random field with rare labels, and the papers' data."""

from __future__ import annotations

from typing import Any

import numpy as np
from scipy.sparse import csr_matrix

from cliquewise.data.formats.arff import MultiLabelData, read_arff
from cliquewise.data.formats.libsvm import read_libsvm
from cliquewise.data.loaders import data_folder


def markov_labels(n: int, n_labels: int, rng: np.random.Generator, sweeps: int = 150) -> Any:
    """Label sets drawn by Gibbs sampling from a pairwise model of on/off labels.

    Each label has about three neighbors whose presence makes it likelier by a factor of e^1.5
    to e^3. Biases are set so that frequencies fall off like Zipf's law and that about three
    labels are on, whatever the number of labels.
    """
    J = np.zeros((n_labels, n_labels))
    for k in range(1, n_labels):
        for j in rng.choice(k, size=min(k, 1 + int(rng.random() < 0.5)), replace=False):
            J[j, k] = J[k, j] = rng.uniform(1.5, 3.0)
    wanted = 1.0 / (np.arange(n_labels) + 5.0)
    wanted = rng.permutation(3.0 * wanted / wanted.sum())
    bias = np.log(wanted / (1 - wanted)) - J @ wanted
    Y = (rng.random((n, n_labels)) < wanted).astype(np.int8)
    near = [np.flatnonzero(J[:, k]) for k in range(n_labels)]
    for sweep in range(sweeps):
        for k in range(n_labels):
            score = bias[k] + Y[:, near[k]] @ J[near[k], k]
            Y[:, k] = rng.random(n) < 1 / (1 + np.exp(-score))
        # Biases follow the frequencies while the chains warm up, and are fixed from then on.
        if sweep < sweeps // 2:
            seen = np.clip(Y.mean(axis=0), 0.5 / n, 1 - 0.5 / n)
            bias -= 0.3 * (np.log(seen / (1 - seen)) - np.log(wanted / (1 - wanted)))
    return Y, J


def generated(n: int, n_labels: int, seed: int = 0, words: int = 40) -> tuple[Any, Any]:
    """Sparse documents: half of the words from those of the labels, half from all.

    A label has 12 words of its own; the vocabulary has 2,000 words at all sizes, so that the
    labels share them.
    """
    rng = np.random.default_rng(seed)
    Y, _ = markov_labels(n, n_labels, rng)
    vocabulary = 2000
    own = np.stack([rng.choice(vocabulary, 12, replace=False) for _ in range(n_labels)])
    rows, columns = [], []
    for i in range(n):
        on = np.flatnonzero(Y[i])
        drawn = rng.integers(0, vocabulary, words)
        if len(on):
            half = words // 2
            drawn[:half] = own[rng.choice(on, half), rng.integers(0, 12, half)]
        rows.append(np.full(words, i))
        columns.append(drawn)
    X = csr_matrix(
        (np.ones(n * words), (np.concatenate(rows), np.concatenate(columns))),
        shape=(n, vocabulary),
    )
    X.data[:] = 1.0
    norms = np.sqrt(np.asarray(X.multiply(X).sum(axis=1)).ravel())
    return csr_matrix(X.multiply(1.0 / norms[:, None])), Y


def bibtex() -> tuple[MultiLabelData, MultiLabelData]:
    """Mulan's split of bibtex: 4,880 + 2,515 rows, 1,836 words, 159 labels."""
    at = data_folder() / "mulan" / "bibtex"
    train, test = (
        read_arff(at / f"bibtex-{p}.arff.xz", at / "bibtex.xml") for p in ("train", "test")
    )
    return train, test


def rcv1_regions() -> MultiLabelData:
    """The 300 documents of RCV1-regions that remain; of its labels 88 are seen."""
    return read_libsvm(
        data_folder() / "gdmm" / "rcv1_regions_test.03k.xz", n_features=47236, zero_based=False
    )
