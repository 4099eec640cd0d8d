"""Models of the Barrier Frank-Wolfe experiments: archives, pictures, frustrated grids."""

from __future__ import annotations

import io
import tarfile
from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from cliquewise.data.formats.uai import read_uai
from cliquewise.graph.builders import grid
from cliquewise.graph.factor_graph import FactorGraph

COUPLINGS = (0.5, 1, 2, 3, 4, 5, 6, 7, 8)


@dataclass
class Model:
    """A graph, its exact answer, and what the archive stores about other methods."""

    name: str
    graph: FactorGraph
    log_z: float
    marginals: np.ndarray
    stored: dict[str, tuple[float, np.ndarray]] = field(default_factory=dict)

    def marginal_error(self, nodes: Any) -> float:
        """Mean over the variables of |P(x = 1) - exact|."""
        return float(np.abs(np.asarray(nodes).ravel()[1::2] - self.marginals[1::2]).mean())


def solved(name: str, graph: FactorGraph) -> Model:
    """A graph with its exact answer, by elimination."""
    answer = graph.marginals("junction-tree")
    return Model(name, graph, answer.log_z, answer.nodes.flat)


def load(folder: Path, archive: str, names: list[str], exact: bool = True) -> Iterator[Model]:
    """Models of one archive with their exact and stored answers.

    The exact answer is recomputed by elimination (the stored one has six digits), unless
    ``exact`` is false.
    """
    from scipy.io import loadmat

    wanted = set(names)
    files: dict[str, dict[str, bytes]] = defaultdict(dict)
    with tarfile.open(folder / f"{archive}.tar.xz") as tar:
        for member in tar:
            parts = member.name.split("/")
            name = parts[-1].split(".")[0].split("_rho_its")[0]
            kind = {"models": ".uai"}.get(parts[1], ".mat")
            if name in wanted and member.name.endswith(kind):
                files[name][parts[1]] = tar.extractfile(member).read()  # type: ignore[union-attr]
    for name in names:
        raw = files[name]
        graph = read_uai(io.BytesIO(raw["models"]))
        out = loadmat(io.BytesIO(raw["mat_out"]))
        log_z, nodes = float(out["log_partition"].item()), out["exact_node_marginals"].ravel()
        model = solved(name, graph) if exact else Model(name, graph, log_z, nodes)
        assert abs(model.log_z - log_z) < 1e-3 * abs(log_z), "stored ln Z is another's"
        for key, label in (("TRWBP", "trwbp"), ("TRWBP_opt", "trwbp_opt")):
            if key in raw:
                mat = loadmat(io.BytesIO(raw[key]))
                model.stored[key] = mat[f"{label}_logz"].item(), mat[f"{label}_marg"].ravel()
        if "perturbMAP_log_partition_ub" in out:
            model.stored["perturb-and-MAP"] = (
                out["perturbMAP_log_partition_ub"].item(),
                out["perturbMAP_node_marginals_ub"].ravel(),
            )
        yield model


def grids(folder: Path, count: int) -> Iterator[Model]:
    """The authors' 5 x 5 grids."""
    return load(folder, "SyntheticGrids_5x5", [f"gridWi5Tr{k}" for k in range(1, count + 1)])


def cliques(folder: Path, count: int, every: int = 1) -> Iterator[tuple[float, Model]]:
    """The authors' cliques of ten variables: so many of every so many-th coupling, with it."""
    chosen = range(0, len(COUPLINGS), every)
    names = [str(100 * c + k + 1) for c in chosen for k in range(count)]
    for model in load(folder, "Synthetic", names):
        yield COUPLINGS[(int(model.name) - 1) // 100], model


def frustrated(side: int, seed: int) -> FactorGraph:
    """A grid with skip edges whose ties attract or repel: like the models of characters."""
    rng = np.random.default_rng(seed)
    at = np.arange(side * side).reshape(side, side)
    factors: list[Any] = []
    for v in at.ravel().tolist():
        s = rng.normal()
        factors.append(((v,), np.array([-s, s]) / 2))
    for down, across in ((0, 1), (1, 0), (1, 1), (2, 0)):
        for a, b in zip(at[: side - down, : side - across].flat, at[down:, across:].flat):
            t = rng.uniform(-2.0, 2.0)
            factors.append(((int(a), int(b)), np.array([[t, -t], [-t, t]])))
    return FactorGraph(np.full(side * side, 2), factors)


def photograph(block: int) -> FactorGraph:
    """Two-color segmentation of a photograph that ships with scikit-learn, a variable per block."""
    from scipy.ndimage import uniform_filter
    from sklearn.datasets import load_sample_image

    gray = load_sample_image("flower.jpg").astype(float).mean(axis=2)
    gray = uniform_filter(gray, block)[block // 2 :: block, block // 2 :: block]
    score = 1.5 * (gray - np.median(gray)) / gray.std()
    score += np.random.default_rng(0).normal(size=score.shape)

    def ties(a: np.ndarray, b: np.ndarray) -> np.ndarray:
        c = 0.1 + 0.6 * np.exp(-np.abs(a - b) / gray.std())
        return np.stack([np.stack([c, -c], -1), np.stack([-c, c], -1)], -2)

    nodes = np.stack([-score / 2, score / 2], -1)
    return grid(nodes, ties(gray[:-1], gray[1:]), ties(gray[:, :-1], gray[:, 1:]))


def large(folder: Path) -> FactorGraph:
    """The largest test case of the authors' repository: 11,532 variables."""
    with tarfile.open(folder / "opengm_testcases.tar.xz") as tar:
        return read_uai(io.BytesIO(tar.extractfile("tc4/large.uai").read()))  # type: ignore[union-attr]
