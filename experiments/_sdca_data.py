"""Problems of the SDCA experiments: a mixture, trees, and the four data sets of the later paper."""

from __future__ import annotations

from itertools import chain
from pathlib import Path
from typing import Any

import numpy as np

from cliquewise.data.dataset import Dataset
from cliquewise.data.graphs import GraphDataset
from cliquewise.models.chain import ChainModel
from cliquewise.models.pairwise import PairwiseModel
from cliquewise.problems.chain import ChainProblem
from cliquewise.problems.graph import GraphProblem


def mixture(n: int, k: int = 10, d: int = 20, seed: int = 0) -> ChainProblem:
    """Points of k Gaussians with random means, as chains of one node."""
    rng = np.random.default_rng(seed)
    y = rng.integers(0, k, n).astype(np.int32)
    x = rng.normal(size=(k, d))[y] + rng.normal(size=(n, d))
    data = Dataset.from_matrix(x, np.arange(n + 1), labels=y)
    return ChainProblem(ChainModel.build(data, k, boundaries=False), data, C=1.0)


def trees(n: int, nodes: int = 12, k: int = 4, seed: int = 0) -> GraphProblem:
    """Random trees whose labels mostly pass from a node to the next, seen through noise."""
    rng = np.random.default_rng(seed)
    X, y = [], []
    for _ in range(n):
        parents = [int(rng.integers(0, v)) for v in range(1, nodes)]
        labels = rng.integers(0, k, nodes)
        for v, parent in enumerate(parents, 1):
            if rng.random() < 0.7:
                labels[v] = labels[parent]
        X.append((np.eye(k)[labels] + rng.normal(size=(nodes, k)),
                  [(parent, v) for v, parent in enumerate(parents, 1)]))  # fmt: skip
        y.append(labels)
    return GraphProblem(PairwiseModel([k], k), GraphDataset.from_examples(X, y), C=1.0)


def ocr(folder: Path, every: int) -> tuple[ChainProblem, Dataset]:
    """Handwritten words as the pixels of their letters: training words, and those of the test."""
    from cliquewise.data.loaders import load_ocr

    split = load_ocr(folder.parent)
    names = sorted({label for y in split.y_train for label in y})
    train = _pictures(split.X_train[::every], split.y_train[::every], names)
    test = _pictures(split.X_test, split.y_test, names)
    return ChainProblem(ChainModel.build(train, len(names)), train, C=1.0), test


def _pictures(x: Any, y: Any, names: list[str]) -> Dataset:
    number = {name: i for i, name in enumerate(names)}
    offsets = np.concatenate(([0], np.cumsum([len(word) for word in y])))
    labels = [number[letter] for word in y for letter in word]
    return Dataset.from_matrix(np.vstack(x), offsets, labels=np.array(labels, dtype=np.int32))


def chunking(folder: Path, every: int) -> ChainProblem:
    """CoNLL-2000 with CRFsuite's template, and weights for the pairs that were seen."""
    from cliquewise.data import Labels, Template, TemplateEncoder
    from cliquewise.data.columns import Columns
    from cliquewise.data.loaders import load_conll2000

    split = load_conll2000(folder.parent)
    chosen = [split.X_train.sentences(j)[::every] for j in range(split.X_train.n_columns)]
    offsets = np.concatenate(([0], np.cumsum([len(sentence) for sentence in chosen[0]])))
    columns = Columns([list(chain.from_iterable(column)) for column in chosen], offsets)
    encoder = TemplateEncoder(Template.builtin("chunking", n_columns=columns.n_columns))
    labels = Labels.fit(split.y_train)
    data = encoder.fit_transform(columns)
    data = data.with_labels(labels.encode(split.y_train[::every], data.offsets)[0])
    model = ChainModel.build(
        data, len(labels), feature_pairs="seen", intercept=False, boundaries=False
    )
    return ChainProblem(model, data, C=1.0)


def matrix(path: Path, every: int) -> ChainProblem:
    """A matrix of the authors: a row per token, a column per attribute; 0 is none, or an end."""
    from scipy.io import loadmat

    raw = loadmat(path)
    X, y = np.asarray(raw["X"], dtype=np.int64), raw["y"].ravel().astype(np.int64)
    inside = y > 0
    ends = np.flatnonzero(~inside)
    lengths = np.diff(np.concatenate(([-1], ends))) - 1
    X, y = X[inside], y[inside]
    # Numbers of different columns are different attributes; numbers of none are left out.
    first = np.concatenate(([0], np.cumsum(X.max(axis=0))[:-1]))
    present = X > 0
    indices = (X - 1 + first)[present]
    indptr = np.concatenate(([0], np.cumsum(present.sum(axis=1))))
    used, indices = np.unique(indices, return_inverse=True)
    offsets = np.concatenate(([0], np.cumsum(lengths[lengths > 0])))
    data = Dataset(offsets, indptr, indices.astype(np.int32), None, len(used), labels=y - 1)
    data = data.subset(np.arange(0, len(data), every))
    model = ChainModel.build(data, int(y.max()), feature_pairs="seen")
    return ChainProblem(model, data, C=1.0)
