"""The tasks of idal's experiments: grids that are drawn, photographs, and sets of labels.

* potts: Gaussian-mixture Potts model, 10 x 10 grid, 5 labels, samples from 1,000 half sweeps of
  checkerboard Gibbs sampling; lam = 10, rho = 1, gamma = 1.
* segmentation: blocks of 8 x 8 pixels of the photographs that ship with scikit-learn. The pixels
  are real, the labels are not: clusters of the blurred image, to be found from the blocks'
  own colors; lam = 10, rho = 1, gamma = 10.
* yeast: 14 labels, complete graph; lam = 1, rho = 0.1, gamma = 1.
* grids: 10 x 10, 3 labels that hold together, features of nodes and of edges; for the hinge loss.
* triples: rings whose labels are drawn from a factor of three variables.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
from scipy.sparse import csr_matrix
from sklearn.preprocessing import MaxAbsScaler

from cliquewise.data.formats.arff import read_arff
from cliquewise.data.graphs import GraphDataset
from cliquewise.models.label_sets import label_pairs, multilabel_data, multilabel_model
from cliquewise.models.pairwise import PairwiseModel
from cliquewise.problems.graph import GraphProblem


def grid_edges(height: int, width: int) -> np.ndarray:
    """Neighbors on a grid."""
    at = np.arange(height * width).reshape(height, width)
    across = np.stack([at[:, :-1].ravel(), at[:, 1:].ravel()], axis=1)
    down = np.stack([at[:-1].ravel(), at[1:].ravel()], axis=1)
    return np.concatenate([across, down])


def potts(seed: int, n: int = 100, size: int = 10, k: int = 5, coupling: float = 0.8,
          sweeps: int = 1000) -> Any:  # fmt: skip
    """Samples of a Potts model by Gibbs sampling, seen through unit Gaussians one apart."""
    rng = np.random.default_rng(seed)
    y = rng.integers(0, k, (n, size, size))
    row, column = np.mgrid[:size, :size]
    for sweep in range(sweeps):
        score = np.zeros((n, size, size, k))
        one = coupling * np.eye(k)[y]
        score[:, 1:] += one[:, :-1]
        score[:, :-1] += one[:, 1:]
        score[:, :, 1:] += one[:, :, :-1]
        score[:, :, :-1] += one[:, :, 1:]
        drawn = (score + rng.gumbel(size=score.shape)).argmax(axis=-1)
        y = np.where((row + column) % 2 == sweep % 2, drawn, y)
    x = y - (k - 1) / 2 + rng.normal(size=y.shape)
    edges = grid_edges(size, size)
    X = [(np.stack([v.ravel(), v.ravel() ** 2], axis=1), edges) for v in x]
    labels = [v.ravel() for v in y]
    half = n // 2
    train, test = (
        GraphDataset.from_examples(X[s], labels[s]) for s in (slice(half), slice(half, n))
    )
    model = PairwiseModel([k], 2, intercept=False)
    return GraphProblem(model, train, C=0.1, gamma=1.0), test, 1.0


def segmentation(seed: int, k: int = 5, block: int = 8, size: int = 10) -> Any:
    """Blocks of photographs; labels are clusters of the blurred colors."""
    from scipy.ndimage import gaussian_filter, uniform_filter
    from sklearn.cluster import KMeans
    from sklearn.datasets import load_sample_images

    rng = np.random.default_rng(seed)
    X, labels = [], []
    edges = grid_edges(size, size)
    for image in load_sample_images().images:
        pixels = image.astype(float) / 255
        blurred = np.stack([gaussian_filter(pixels[..., c], 2 * block) for c in range(3)], axis=-1)
        local = np.stack([uniform_filter(pixels[..., c], block) for c in range(3)], axis=-1)
        centers = (slice(block // 2, None, block),) * 2
        colors, smooth = local[centers], blurred[centers]
        found = KMeans(k, n_init=4, random_state=0).fit_predict(smooth.reshape(-1, 3))
        found = found.reshape(smooth.shape[:2])
        noisy = colors + 0.1 * rng.normal(size=colors.shape)
        noisy = 3.0 * (noisy - noisy.mean(axis=(0, 1))) / noisy.std(axis=(0, 1))
        for r in range(0, found.shape[0] - size + 1, size):
            for c in range(0, found.shape[1] - size + 1, size):
                tile = noisy[r : r + size, c : c + size].reshape(-1, 3)
                features = np.concatenate([tile, tile**2], axis=1)
                contrast = np.abs(tile[edges[:, 0]] - tile[edges[:, 1]]).mean(axis=1)
                X.append((features, edges, np.exp(-contrast / 3.0)[:, None]))
                labels.append(found[r : r + size, c : c + size].ravel())
    order = rng.permutation(len(X))
    half = len(X) // 2
    train, test = (
        GraphDataset.from_examples([X[i] for i in part], [labels[i] for i in part])
        for part in (order[:half], order[half:])
    )
    return GraphProblem(PairwiseModel([k], 6, 1), train, C=0.1, gamma=10.0), test, 1.0


def yeast(folder: Path, rows: int | None = None) -> Any:
    """Mulan's split of yeast (or its first rows) as graphs of all pairs of labels."""
    train, test = (_rows_of(folder, "yeast", part, rows) for part in ("train", "test"))
    pairs = label_pairs(14)
    graphs = [multilabel_data(X, 14, pairs, Y) for X, Y in (train, test)]
    return GraphProblem(multilabel_model(14, 103, pairs), graphs[0], C=1.0), graphs[1], 0.1


def _rows_of(folder: Path, name: str, part: str, rows: int | None) -> tuple[Any, Any]:
    found = read_arff(folder / name / f"{name}-{part}.arff.xz", folder / name / f"{name}.xml")
    return csr_matrix(found.X[:rows]), found.Y[:rows]


def bibtex(folder: Path, n_pairs: int, rows: int | None = None) -> GraphProblem:
    """Bibtex with the pairs of labels of largest mutual information, features at most 1."""
    X, Y = _rows_of(folder, "bibtex", "train", rows)
    X, n = csr_matrix(MaxAbsScaler().fit_transform(X)), Y.shape[1]
    pairs = label_pairs(n, n_pairs, Y)
    data = multilabel_data(X, n, pairs, Y)
    return GraphProblem(multilabel_model(n, X.shape[1], pairs), data, 1.0, "softmax_margin")


def grids(C: float, n: int = 20, size: int = 10, k: int = 3, seed: int = 0) -> GraphProblem:
    """Labels that copy their neighbors, noisy features of both; loss="hinge"."""
    rng = np.random.default_rng(seed)
    edges, X, labels = grid_edges(size, size), [], []
    steps = ((0, 1), (1, 0), (0, -1), (-1, 0))
    for _ in range(n):
        y = rng.integers(0, k, (size, size))
        for _ in range(3 * size * size):
            r, c = rng.integers(0, size, 2)
            dr, dc = steps[rng.integers(4)]
            y[r, c] = y[(r + dr) % size, (c + dc) % size]
        flat = y.ravel()
        nodes = np.concatenate(
            [np.eye(k)[flat] + 1.2 * rng.normal(size=(size**2, k)), rng.normal(size=(size**2, 2))],
            axis=1,
        )
        same = flat[edges[:, 0]] == flat[edges[:, 1]]
        X.append((nodes, edges, np.stack([same, np.zeros_like(same)], axis=1)
                  + rng.normal(size=(len(edges), 2))))  # fmt: skip
        labels.append(flat)
    data = GraphDataset.from_examples(X, labels)
    return GraphProblem(PairwiseModel([k], k + 2, 2), data, C, "hinge")


def as_hinge(problem: GraphProblem) -> GraphProblem:
    """The structural SVM of the same graphs."""
    return GraphProblem(problem.model, problem.data, problem.C, "hinge")
