"""Chains for the experiments on large label domains: WSJ tags, Chinese lines, generated ones."""

from __future__ import annotations

import lzma
from pathlib import Path
from typing import Any

import numpy as np

from cliquewise.data.dataset import Dataset
from cliquewise.models.chain import ChainModel
from cliquewise.problems.chain import ChainProblem

#: Labels of the Chinese characters in all; few of them are seen in what remains of the data.
CHARACTERS = 3039

Sequences = tuple[list[list[str]], list[list[dict[int, float]]]]


def read_sequences(path: Path) -> Sequences:
    """Labels and features of "label j:value ..." lines; a blank line ends a sequence."""
    labels: list[list[str]] = [[]]
    tokens: list[list[dict[int, float]]] = [[]]
    with lzma.open(path, "rt") as lines:
        for line in lines:
            parts = line.split()
            if not parts:
                labels.append([])
                tokens.append([])
                continue
            labels[-1].append(parts[0])
            pairs = (p.split(":") for p in parts[1:])
            tokens[-1].append({int(j): float(v) for j, v in pairs})
    kept = [n for n, own in enumerate(labels) if own]
    return [labels[n] for n in kept], [tokens[n] for n in kept]


def as_dataset(labels: Any, tokens: Any, classes: dict[str, int], n_features: int) -> Dataset:
    """Sequences as a data set."""
    flat = [t for sequence in tokens for t in sequence]
    offsets = np.concatenate(([0], np.cumsum([len(s) for s in labels])))
    indptr = np.concatenate(([0], np.cumsum([len(t) for t in flat])))
    indices = np.fromiter((j for t in flat for j in t), dtype=np.int32, count=int(indptr[-1]))
    values = np.fromiter((v for t in flat for v in t.values()), dtype=float, count=int(indptr[-1]))
    numbers = [classes[y] for sequence in labels for y in sequence]
    return Dataset(
        offsets, indptr, indices, None if np.all(values == 1) else values, n_features,
        labels=numbers,
    )  # fmt: skip


def wsj(folder: Path, train: int, test: int) -> tuple[Dataset, Dataset, int]:
    """WSJ tags: the first sequences, as many of the last ones, and the number of labels.

    A token has its word as its one feature; words that are not in training have none.
    """
    labels, tokens = read_sequences(folder / "wsj.pos.crf.test.xz")
    classes = {y: n for n, y in enumerate(sorted({y for s in labels for y in s}))}
    known = sorted({j for s in tokens[:train] for t in s for j in t})
    words = {j: n for n, j in enumerate(known)}
    own = [[{words[j]: v for j, v in t.items() if j in words} for t in s] for s in tokens]
    parts = (slice(0, train), slice(len(labels) - test, None))
    first, last = (as_dataset(labels[p], own[p], classes, len(words)) for p in parts)
    return first, last, len(classes)


def characters(folder: Path, lines: int, few: bool = False) -> tuple[Dataset, Dataset, int]:
    """Handwritten Chinese lines: the first ones, the rest, and the number of labels.

    ``few``: twice as many lines in all, and only labels that occur in them.
    """
    labels, tokens = read_sequences(folder / "hitmw_chinese_ocr.data.fea.test.xz")
    classes = {str(y + 1): y for y in range(CHARACTERS)}
    if few:
        labels, tokens, classes = labels[: 2 * lines], tokens[: 2 * lines], {}
    for y in sorted({y for s in labels for y in s if y not in classes}):
        classes[y] = len(classes)
    n_features = 1 + max(j for s in tokens for t in s for j in t)
    data = as_dataset(labels, tokens, classes, n_features)
    every = np.arange(len(data))
    return data.subset(every[:lines]), data.subset(every[lines:]), len(classes)


def generated_chains(
    k: int, n: int = 500, length: int = 15, nnz: int = 100, n_features: int = 5000, seed: int = 0
) -> Dataset:
    """Chains with a Markov structure of 5 likely successors; 60 features are a label's own.

    Every label occurs.
    """
    rng = np.random.default_rng(seed)
    successors = rng.integers(0, k, (k, 5))
    own = np.argpartition(rng.random((k, n_features)), 60, axis=1)[:, :60]
    labels = np.empty((n, length), dtype=np.int64)
    labels[:, 0] = rng.integers(0, k, n)
    for t in range(1, length):
        likely = successors[labels[:, t - 1], rng.integers(0, 5, n)]
        labels[:, t] = np.where(rng.random(n) < 0.9, likely, rng.integers(0, k, n))
    flat = labels.ravel()
    missing, counts = np.setdiff1d(np.arange(k), flat).tolist(), np.bincount(flat, minlength=k)
    for place in rng.permutation(flat.size):
        if missing and counts[flat[place]] > 1:
            counts[flat[place]] -= 1
            flat[place] = missing.pop()
    indices = np.empty((flat.size, nnz), dtype=np.int32)
    for t, y in enumerate(flat):
        keep = own[y][rng.random(60) < 0.5]
        rest = np.setdiff1d(rng.choice(n_features, nnz + 80, replace=False), keep)
        indices[t] = np.sort(np.concatenate([keep, rng.permutation(rest)[: nnz - len(keep)]]))
    return Dataset(
        length * np.arange(n + 1), nnz * np.arange(flat.size + 1), indices.ravel(), None,
        n_features, labels=flat,
    )  # fmt: skip


def chain_problem(data: Dataset, k: int, intercept: bool = False) -> ChainProblem:
    """The structural SVM of Eq. (1) with C = 1."""
    model = ChainModel.build(data, k, intercept=intercept, boundaries=False)
    return ChainProblem(model, data, 1.0, loss="hinge")


def error(model: ChainModel, w: np.ndarray, data: Dataset) -> float:
    """Share of wrong labels by exact Viterbi, in percent."""
    from cliquewise._kernels.chain.decode import batch_viterbi
    from cliquewise._kernels.chain.sparse import batch_sparse_viterbi
    from cliquewise.models.sparse_transitions import is_sparse, may_be_sparse, transition_lists

    nodes, edges = model.potentials(w, data)
    best, scores = np.zeros(data.n_tokens, dtype=np.int64), np.zeros(len(data))
    if may_be_sparse(model) and is_sparse(edges[0]):
        batch_sparse_viterbi(nodes, data.offsets, *transition_lists(edges[0]), best, scores)
    else:
        batch_viterbi(nodes, data.offsets, edges, best, scores)
    assert data.labels is not None
    return 100.0 * float(np.mean(best != data.labels))
