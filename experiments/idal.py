"""Figure 1 of idal: IDAL, SoftSDCA, SoftBCFW and GDMM on three tasks, one core, one run.

    python -m experiments.idal potts|segmentation|yeast|scaled_yeast
                               [--seconds 20] [--seeds 3] [--out folder]
    python -m experiments.idal chains

Prints for each method when it reaches which level of four criteria: the true relative gap, the
distance of ``D_rho(mu, xi*)`` from its optimum, ``||A mu||^2``, and the held-out accuracy; in
seconds of the processor (measuring not counted) and in passes, as the median and the range over
the seeds; then who is how many times sooner than whom. ``--compare variants`` compares adaptive
rho and momentum, ``--compare hinge`` the methods on the problem without entropy.

* potts: Gaussian-mixture Potts model, 10 x 10 grid, 5 labels, 50 + 50 samples from 500 sweeps of
  checkerboard Gibbs sampling; lam = 10, rho = 1, gamma = 1.
* segmentation: blocks of 8 x 8 pixels of the photographs that ship with scikit-learn. The pixels
  are real, the labels are not: clusters of the blurred image, to be found from the blocks'
  own colors; lam = 10, rho = 1, gamma = 10.
* yeast: 14 labels, complete graph; lam = 1, rho = 0.1, gamma = 1; needs CLIQUEWISE_DATA.
  scaled_yeast: the same with features divided by their largest values, as in the benchmark.
* chains: as gamma goes to zero the relaxed optimum becomes that of the exact structural SVM,
  which BCFW finds with Viterbi as its oracle.
"""

from __future__ import annotations

import argparse
import time
from pathlib import Path
from typing import Any

import numpy as np
from scipy.sparse import csr_matrix
from sklearn.preprocessing import MaxAbsScaler

from cliquewise._kernels.cliques.ascent import Point, multipliers
from cliquewise.data.formats.arff import read_arff
from cliquewise.data.graphs import GraphDataset
from cliquewise.data.loaders import data_folder
from cliquewise.models.label_sets import label_pairs, multilabel_data, multilabel_model
from cliquewise.models.pairwise import PairwiseModel
from cliquewise.oracles.relaxed import relaxed_beliefs
from cliquewise.problems.graph import GraphProblem
from cliquewise.solvers.backends.graph.cliques import CliqueAscent, dual_value
from cliquewise.solvers.backends.graph.factors import GraphFactors
from cliquewise.solvers.bcfw import BCFW
from cliquewise.solvers.gdmm import GDMM
from cliquewise.solvers.idal import IDAL
from cliquewise.solvers.run import run
from cliquewise.solvers.soft_bcfw import SoftBCFW
from cliquewise.solvers.soft_sdca import SoftSDCA

LEVELS = (1e-1, 1e-2, 1e-3, 1e-4, 1e-5)


def grid_edges(height: int, width: int) -> np.ndarray:
    """Neighbors on a grid."""
    at = np.arange(height * width).reshape(height, width)
    across = np.stack([at[:, :-1].ravel(), at[:, 1:].ravel()], axis=1)
    down = np.stack([at[:-1].ravel(), at[1:].ravel()], axis=1)
    return np.concatenate([across, down])


def potts(seed: int, n: int = 100, size: int = 10, k: int = 5, coupling: float = 0.8) -> Any:
    """Samples of a Potts model by Gibbs sampling, seen through unit Gaussians one apart."""
    rng = np.random.default_rng(seed)
    y = rng.integers(0, k, (n, size, size))
    row, column = np.mgrid[:size, :size]
    for sweep in range(1000):
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


def yeast(seed: int, scaled: bool = False) -> Any:
    """Mulan's split of yeast; ``scaled`` divides each feature by its largest absolute value."""
    folder = data_folder() / "mulan" / "yeast"
    parts = [
        read_arff(folder / f"yeast-{p}.arff.xz", folder / "yeast.xml") for p in ("train", "test")
    ]
    pairs = label_pairs(14)
    matrices = [p.X for p in parts]
    if scaled:
        scaler = MaxAbsScaler().fit(matrices[0])
        matrices = [csr_matrix(scaler.transform(X)) for X in matrices]
    train, test = (multilabel_data(X, 14, pairs, p.Y) for X, p in zip(matrices, parts, strict=True))
    return GraphProblem(multilabel_model(14, 103, pairs), train, C=1.0, gamma=1.0), test, 0.1


def scaled_yeast(seed: int) -> Any:
    """As yeast, with scaled features."""
    return yeast(seed, scaled=True)


TASKS = {
    "potts": potts,
    "segmentation": segmentation,
    "yeast": yeast,
    "scaled_yeast": scaled_yeast,
}


def methods(rho: float, kind: str) -> dict[str, Any]:
    """Solvers to compare."""
    if kind == "variants":
        return {
            "idal": IDAL(),
            "not adaptive": IDAL(adaptive=False),
            "momentum": IDAL(accelerated=True),
            "rho of the paper": IDAL(rho=rho),
            "rho and T of it": IDAL(rho=rho, inner=0.5),
            "all of it": IDAL(rho=rho, inner=0.5, adaptive=False),
            "one graph": IDAL(sampling="permuted"),
            "gap sampling": IDAL(sampling="gap", inner=1.0),
        }
    chosen: dict[str, Any] = {
        "idal": IDAL(),
        "soft_sdca": SoftSDCA(rho=rho),
        "soft_bcfw": SoftBCFW(rho=rho),
    }
    return chosen | {"gdmm": GDMM()}


def without_edges(data: GraphDataset) -> GraphDataset:
    """The same nodes and no edges: what an independent model sees."""
    return GraphDataset(
        data.node_offsets, np.zeros_like(data.edge_offsets), np.empty((0, 2), dtype=np.int64),
        data.features, None, data.types, data.rows, data.labels,
    )  # fmt: skip


def independent_accuracy(problem: GraphProblem, test: GraphDataset) -> float:
    """Held-out accuracy of the model without edges, trained to a gap of 1e-3."""
    alone = GraphProblem(
        problem.model, without_edges(problem.data), C=problem.C, loss=problem.loss,
        gamma=max(problem.gamma, 1e-3),
    )  # fmt: skip
    fit = run(alone, IDAL(), tol=1e-3, max_epochs=500, random_state=0)
    return accuracy(alone, without_edges(test), fit.weights)


def accuracy(problem: GraphProblem, test: GraphDataset, w: np.ndarray) -> float:
    """Share of right labels on held-out graphs, by the same relaxation."""
    model, (edges, _) = problem.model, problem.model.oriented(test)
    beliefs = relaxed_beliefs(
        model.potentials(w, test), model.states(test), edges, test.node_offsets, test.edge_offsets,
        gamma=problem.gamma, max_sweeps=48,
    ).nodes  # fmt: skip
    return float(np.mean(beliefs.reshape(test.n_nodes, -1).argmax(axis=1) == test.labels))


def beliefs_of(state: Any) -> CliqueAscent:
    """What all cliquewise solvers have; gdmm keeps it inside its factors."""
    return state.ascent if isinstance(state, GraphFactors) else state


def augmented(problem: GraphProblem, state: Any, xi: np.ndarray, rho: float) -> float:
    """``D_rho(mu, xi)`` per example."""
    x = beliefs_of(state).point
    copy = Point(x.mu, np.zeros_like(x.xi), np.zeros_like(x.inflow), x.w)
    apart, _ = multipliers(problem.cliques, copy, rho, 1.0, 0.0, np.empty(0))
    inner = float(xi @ -copy.xi) - apart / (2 * rho)
    return dual_value(problem, x.mu).value + inner / problem.n_examples


def course(problem: Any, test: Any, solver: Any, seconds: float, best: Any, seed: int) -> Any:
    """Rows (seconds, passes, gap, distance, disagreement, accuracy) at growing intervals."""
    rng = np.random.default_rng(seed)
    state = solver.init(problem)
    spent = passes = 0.0
    mark, rows, dual, checks = 1.0, [], -np.inf, 0
    while spent < seconds:
        begin = time.process_time()
        state, info = solver.step(problem, state, rng)
        spent += time.process_time() - begin
        passes += info.epochs
        if passes < mark:
            continue
        mark = max(passes + 1, 1.15 * passes)
        proof = solver.certify(problem, state)
        dual = max(dual, proof.dual)
        value, xi, rho = best
        distance = abs(augmented(problem, state, xi, rho) - value) / abs(value)
        checks += 1
        held_out = accuracy(problem, test, beliefs_of(state).point.w) if checks % 5 == 1 else np.nan
        gap = (proof.primal - dual) / abs(proof.primal)
        rows.append((spent, passes, gap, distance, beliefs_of(state).disagreement, held_out))
        if gap < LEVELS[-1]:
            break
    held_out = accuracy(problem, test, beliefs_of(state).point.w)
    rows.append((*rows[-1][:-1], held_out))
    return np.array(rows)


def optimum(problem: Any, seconds: float, rho: float) -> Any:
    """``D*``, the multipliers there and the rho that the figures are drawn with."""
    solver, rng = IDAL(adaptive=True, accelerated=True), np.random.default_rng(0)
    state = solver.init(problem)
    begin = time.process_time()
    while time.process_time() - begin < seconds:
        for _ in range(20):
            state, _ = solver.step(problem, state, rng)
        proof = solver.certify(problem, state)
        if proof.gap < 1e-6:
            break
    return 0.5 * (proof.primal + proof.dual), state.point.xi.copy(), rho


def first(rows: np.ndarray, column: int, level: float, by: int) -> float:
    """When a criterion first is at or below a level."""
    hit = np.flatnonzero(rows[:, column] <= level)
    return float(rows[hit[0], by]) if len(hit) else np.inf


def report(courses: dict[str, list[np.ndarray]]) -> None:
    """Who reaches which level when."""
    for column, name in (
        (2, "true relative gap"),
        (3, "distance of D_rho(mu, xi*)"),
        (4, "||A mu||^2"),
    ):
        print(f"\n{name}: seconds (passes) to reach, median [range] over seeds")
        for method, runs in courses.items():
            cells = []
            for level in LEVELS:
                times = [first(r, column, level, 0) for r in runs]
                passes = np.median([first(r, column, level, 1) for r in runs])
                if np.isinf(np.median(times)):
                    cells.append(
                        f"{level:.0e}: never (best {min(r[:, column].min() for r in runs):.1e})"
                    )
                    break
                low, high = min(times), max(times)
                cells.append(
                    f"{level:.0e}: {np.median(times):.2f} [{low:.2f}-{high:.2f}] ({passes:.0f})"
                )
            print(f"  {method:18s} " + "  ".join(cells))
    print("\nheld-out accuracy at the end, median [range]")
    for method, runs in courses.items():
        ends = [r[-1, 5] for r in runs]
        print(f"  {method:18s} {np.median(ends):.4f} [{min(ends):.4f}-{max(ends):.4f}]")


def sooner(courses: dict[str, list[np.ndarray]]) -> None:
    """How many times sooner idal is than each other method, by the distance from the optimum."""
    ours = courses["idal"]
    for level in (1e-2, 1e-3):
        mine = float(np.median([first(r, 3, level, 0) for r in ours]))
        for method, runs in courses.items():
            if method == "idal":
                continue
            other = float(np.median([first(r, 3, level, 0) for r in runs]))
            if np.isinf(other):
                spent = float(np.median([r[-1, 0] for r in runs]))
                word = f">= {spent / mine:.1f} times sooner: {method} never, in {spent:.1f} s"
            else:
                word = f"{other / mine:.1f} times sooner than {method}"
            print(f"distance {level:.0e}: idal in {mine:.2f} s, {word}")


def chains(gammas: tuple[float, ...] = (1e-1, 1e-2, 1e-3, 1e-4)) -> None:
    """The optimum of idal on chains as gamma shrinks, beside that of BCFW on the exact SVM."""
    import cliquewise as cw

    rng = np.random.default_rng(0)
    X, y = [], []
    for _ in range(20):
        labels = np.cumsum(rng.random(12) < 0.3) % 3
        X.append((np.eye(3)[labels] + rng.normal(size=(12, 3)), [(i, i + 1) for i in range(11)]))
        y.append(labels)
    C, model, data = 0.1, PairwiseModel([3], 3), GraphDataset.from_examples(X, y)
    tagger = cw.SequenceTagger(
        loss="hinge", C=C, solver="bcfw", boundaries=False, tol=1e-6, max_epochs=5000,
        random_state=0,
    ).fit([x for x, _ in X], [labels.tolist() for labels in y])  # fmt: skip
    exact = tagger.certificate_.primal
    print(f"BCFW on chains {exact:.6f}, gap {tagger.certificate_.gap:.1e}")
    hinge = GraphProblem(model, data, C=C, loss="hinge")
    found = run(hinge, BCFW(), tol=1e-6, max_epochs=1000, random_state=0).certificate
    print(f"BCFW on graphs {found.primal:.6f}, gap {found.gap:.1e}")
    for gamma in gammas:
        problem = GraphProblem(model, data, C=C, loss="softmax_margin", gamma=gamma)
        proof = run(problem, IDAL(), tol=2e-4, max_epochs=4000, random_state=0).certificate
        off = abs(proof.primal - exact) / exact
        print(f"idal, gamma {gamma:.0e}: {proof.primal:.6f}, gap {proof.gap:.1e}, off by {off:.1e}")


def plot(courses: dict[str, list[np.ndarray]], path: Path, title: str) -> None:
    """Four criteria against seconds and against passes, with bands over the seeds."""
    import matplotlib

    matplotlib.use("Agg")
    import matplotlib.pyplot as plt

    figure, axes = plt.subplots(2, 4, figsize=(18, 8), layout="constrained")
    names = {2: "true relative gap", 3: "distance of D_rho", 4: "||A mu||^2", 5: "accuracy"}
    for r, by in enumerate((0, 1)):
        for axis, (column, name) in zip(axes[r], names.items(), strict=True):
            for method, runs in courses.items():
                grid = np.linspace(0, min(run[-1, by] for run in runs), 60)
                known = [run[np.isfinite(run[:, column])] for run in runs]
                lines = np.array([np.interp(grid, k[:, by], k[:, column]) for k in known])
                axis.plot(grid, np.median(lines, axis=0), label=method)
                axis.fill_between(grid, lines.min(axis=0), lines.max(axis=0), alpha=0.2)
            axis.set(xlabel=("seconds", "passes")[by], title=name)
            if column != 5:
                axis.set_yscale("log")
    axes[0, 0].legend()
    figure.suptitle(title)
    figure.savefig(path, dpi=120)


def main() -> None:
    """Run one task."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("task", choices=[*TASKS, "chains"])
    parser.add_argument("--seconds", type=float, default=20.0)
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--compare", choices=("methods", "variants", "hinge"), default="methods")
    parser.add_argument("--out", type=Path, help="folder for the picture")
    given = parser.parse_args()
    if given.task == "chains":
        chains()
        return
    courses: dict[str, list[np.ndarray]] = {}
    alone: list[float] = []
    for seed in range(given.seeds):
        problem, test, rho = TASKS[given.task](seed)
        if given.compare == "hinge":
            problem = GraphProblem(problem.model, problem.data, C=problem.C, loss="hinge")
        if seed == 0:
            print(f"{given.task}: {problem.n_cliques} cliques, {problem.dimension} weights")
            for solver in methods(rho, given.compare).values():  # compile before any clock runs
                solver.certify(
                    problem, solver.step(problem, solver.init(problem), np.random.default_rng(0))[0]
                )
        best = optimum(problem, 2 * given.seconds, rho)
        alone.append(independent_accuracy(problem, test))
        for name, solver in methods(rho, given.compare).items():
            rows = course(problem, test, solver, given.seconds, best, seed)
            courses.setdefault(name, []).append(rows)
    report(courses)
    print(f"  {'independent':18s} {np.median(alone):.4f} [{min(alone):.4f}-{max(alone):.4f}]\n")
    sooner(courses)
    if given.out is not None:
        given.out.mkdir(parents=True, exist_ok=True)
        plot(courses, given.out / f"idal_{given.task}_{given.compare}.png", given.task)


if __name__ == "__main__":
    main()
