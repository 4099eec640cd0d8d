"""GDMM beside full-oracle solvers: seconds and passes against labels (gdmm, Figures 2 and 3).

    python -m experiments.gdmm pos [--data DIR] [--out DIR] [--seconds S]
    python -m experiments.gdmm large_domain [--labels 100,400,1600,3039] [--files PREFIX]
                                            [--passes N] [--bcfw-passes P] [--memory] [--out DIR]
    python -m experiments.gdmm multilabel [...]

* ``pos``: WSJ part-of-speech ids, first 1,500 sequences for training, the rest held out, C = 1.
* ``large_domain``: generated chains (500 sequences of 15 tokens, 100 of 5,000 features per token,
  5 likely successors per label), cost of a pass against the number of labels K with the fitted
  exponent, and the time to the primal value that BCFW has after ``--bcfw-passes``. ``--memory``
  trains at the size of the Chinese OCR data, and on its test lines where they are there.

Seconds are of the processor (``time.process_time``), steps only; certificates are listed apart.
"""

from __future__ import annotations

import argparse
import lzma
import os
import resource
import time
from pathlib import Path
from typing import Any

import numpy as np

from cliquewise.data.dataset import Dataset
from cliquewise.models.chain import ChainModel
from cliquewise.problems.chain import ChainProblem
from cliquewise.solvers.bcfw import BCFW
from cliquewise.solvers.gdmm import GDMM
from cliquewise.solvers.sdca import SDCA
from cliquewise.solvers.subgradient import Subgradient

#: Seconds per pass of the authors' C++ on files of the same generator, K = 100, 400, 1600, 3000.
AUTHORS = {100: 0.085, 400: 0.21, 1600: 1.0, 3039: 1.4}


# ---- data


def read_sequences(path: Path) -> tuple[list[list[str]], list[list[dict[int, float]]]]:
    """Labels and features of "label j:value ..." lines; a blank line ends a sequence."""
    labels: list[list[str]] = [[]]
    tokens: list[list[dict[int, float]]] = [[]]
    opener: Any = lzma.open if path.suffix == ".xz" else open
    with opener(path, "rt") as lines:
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
    """Sequences as a data set; labels that are not among the classes are an error."""
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


def generated_chains(
    k: int, n: int = 500, length: int = 15, nnz: int = 100, n_features: int = 5000, seed: int = 0
) -> Dataset:
    """Chains with a Markov structure of 5 likely successors; 60 features are a label's own."""
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


def chain_problem(data: Dataset, k: int, C: float = 1.0, constants: bool = False) -> ChainProblem:
    """The structural SVM; generated chains have no intercept and no boundary weights."""
    model = ChainModel.build(data, k, intercept=constants, boundaries=constants)
    return ChainProblem(model, data, C, loss="hinge")


# ---- running


def compiled(problem: ChainProblem, solver: Any) -> None:
    """One step on a few examples, so that no clock counts compilation."""
    small = ChainProblem(problem.model, problem.data.subset([0, 1]), problem.C, loss="hinge")
    state, _ = solver.step(small, solver.init(small), np.random.default_rng(0))
    solver.certify(small, state)


def follow(
    problem: ChainProblem, solver: Any, *, passes: float, every: float = 1.0, tol: float = 0.0,
    below: float = -np.inf, seconds: float = np.inf,
) -> tuple[list[tuple[float, float, float, float]], Any]:  # fmt: skip
    """Rows of (seconds, passes, primal, dual), and the weights; the clock counts steps alone."""
    compiled(problem, solver)
    rng, spent, done, seen, best = np.random.default_rng(0), 0.0, 0.0, 0.0, -np.inf
    begin = time.process_time()
    state = solver.init(problem)
    spent += time.process_time() - begin
    rows: list[tuple[float, float, float, float]] = []
    while done < passes - 1e-9 and spent < seconds:
        begin = time.process_time()
        state, info = solver.step(problem, state, rng)
        spent += time.process_time() - begin
        done += info.epochs
        if done - seen >= every - 1e-9 or done >= passes - 1e-9 or spent >= seconds:
            seen, proof = done, solver.certify(problem, state)
            best = max(best, proof.dual)
            rows.append((spent, done, proof.primal, best))
            if proof.primal <= below or (proof.primal - best) <= tol * proof.primal:
                break
    return rows, solver.weights(problem, state)


def seconds_per_pass(problem: ChainProblem, solver: Any, passes: float) -> float:
    """Mean over the first passes, after compilation."""
    compiled(problem, solver)
    rng, state, done = np.random.default_rng(0), solver.init(problem), 0.0
    begin = time.process_time()
    while done < passes - 1e-9:
        state, info = solver.step(problem, state, rng)
        done += info.epochs
    return (time.process_time() - begin) / done


# ---- the experiments


def pos(options: argparse.Namespace) -> None:
    """45 labels: held-out accuracy, true gap, and seconds to a gap of 1e-2."""
    path = Path(options.data) / "gdmm" / "wsj.pos.crf.test.xz"
    labels, tokens = read_sequences(path)
    classes = {y: n for n, y in enumerate(sorted({y for s in labels for y in s}))}
    words = {j: n for n, j in enumerate(sorted({j for s in tokens[:1500] for t in s for j in t}))}
    known = [[{words[j]: v for j, v in t.items() if j in words} for t in s] for s in tokens]
    data = as_dataset(labels, known, classes, len(words))
    train, test = data.subset(np.arange(1500)), data.subset(np.arange(1500, len(data)))
    problem = chain_problem(train, len(classes), constants=True)
    solvers = {"gdmm": GDMM(), "bcfw": BCFW(), "subgradient": Subgradient(), "sdca": SDCA()}
    courses = {}
    for name, solver in solvers.items():
        rows, w = follow(problem, solver, passes=400, every=5 if name != "bcfw" else 1, tol=1e-2,
                         seconds=options.seconds)  # fmt: skip
        courses[name] = rows
        spent, done, primal, dual = rows[-1]
        gap = (primal - dual) / primal
        reached = f"{spent:.1f} s" if gap <= 1e-2 else f"not within {spent:.0f} s"
        print(f"{name}: {done:.0f} passes, primal {primal * 1500:.1f}, relative gap {gap:.2e}, "
              f"1e-2 {reached}, held-out accuracy {accuracy(problem.model, w, test):.4f}",
              flush=True)  # fmt: skip
    ours, full = courses["gdmm"][-1], [courses[n][-1] for n in solvers if n != "gdmm"]
    best = min((r[0] for r in full if (r[2] - r[3]) / r[2] <= 1e-2), default=np.inf)
    mine = ours[0] if (ours[2] - ours[3]) / ours[2] <= 1e-2 else np.inf
    verdict = "agrees" if mine <= 1.5 * best else "does not agree"
    if np.isinf(mine) and np.isinf(best):
        verdict = "nobody was there in time: raise --seconds"
    print(f"gdmm / best full-oracle solver to 1e-2: {mine:.1f} s / {best:.1f} s "
          f"({verdict}; at most 1.5)")  # fmt: skip
    draw({n: np.array(r) for n, r in courses.items()}, options.out, "gdmm_pos")


def accuracy(model: ChainModel, w: np.ndarray, data: Dataset) -> float:
    """Share of right labels by exact Viterbi."""
    from cliquewise._kernels.chain.decode import batch_viterbi

    nodes, edges = model.potentials(w, data)
    best = np.zeros(data.n_tokens, dtype=np.int64)
    batch_viterbi(nodes, data.offsets, edges, best, np.zeros(len(data)))
    assert data.labels is not None
    return float(np.mean(best == data.labels))


def exponent(sizes: list[int], costs: list[float]) -> float:
    """Slope of log cost against log size."""
    if len(sizes) < 2:
        return float("nan")
    return float(np.polyfit(np.log(sizes), np.log(costs), 1)[0])


def large_domain(options: argparse.Namespace) -> None:
    """Cost of a pass against K; time to the primal value of BCFW."""
    sizes = [int(k) for k in options.labels.split(",")]
    searches = {"sublinear": GDMM(), "sampled": GDMM(factor_search="sampled"),
                "full": GDMM(factor_search="full")}  # fmt: skip
    costs: dict[str, list[float]] = {name: [] for name in searches}
    for k in sizes:
        problem = load_or_generate(options.files, k)
        for name, solver in searches.items():
            if name == "full" and k > options.full_labels:
                continue
            passes = options.passes if name != "full" else min(options.passes, 2)
            costs[name].append(seconds_per_pass(problem, solver, passes))
            print(f"K = {k}: {name} {costs[name][-1]:.3f} s per pass (the authors' C++: "
                  f"{AUTHORS.get(k, float('nan'))})", flush=True)  # fmt: skip
    for name, cost in costs.items():
        fitted = exponent(sizes[: len(cost)], cost)
        print(f"{name}: exponent {fitted:.2f} over K = {sizes[: len(cost)]}")
    fitted = exponent(sizes, costs["sublinear"])
    print(f"growth at most 0.6: {'agrees' if fitted <= 0.6 else 'does not agree'}")
    if options.bcfw_passes > 0:
        beside_bcfw(load_or_generate(options.files, sizes[-1]), options)


def load_or_generate(prefix: str | None, k: int) -> ChainProblem:
    """Files ``PREFIX<K>.train`` of the reference generator, or our own chains."""
    if prefix is None:
        return chain_problem(generated_chains(k), k)
    labels, tokens = read_sequences(Path(f"{prefix}{k}.train"))
    classes = {f"L{y}": y for y in range(k)}
    shifted = [[{j - 1: v for j, v in t.items()} for t in s] for s in tokens]
    return chain_problem(as_dataset(labels, shifted, classes, 5000), k)


def beside_bcfw(problem: ChainProblem, options: argparse.Namespace) -> None:
    """How much sooner GDMM is at the primal value that BCFW ends with."""
    passes = options.bcfw_passes
    theirs, _ = follow(problem, BCFW(), passes=passes, every=passes)
    print(f"bcfw: {theirs[-1][1]:.1f} passes, {theirs[-1][0]:.1f} s, primal {theirs[-1][2]:.4f}",
          flush=True)  # fmt: skip
    ours, _ = follow(problem, GDMM(), passes=200, below=theirs[-1][2])
    print(f"gdmm: {ours[-1][1]:.0f} passes, {ours[-1][0]:.2f} s, primal {ours[-1][2]:.4f}")
    ratio = theirs[-1][0] / ours[-1][0]
    print(f"{ratio:.0f} times sooner ({'agrees' if ratio >= 50 else 'does not agree'}: 50)")
    courses = {"gdmm": np.array(ours), "bcfw": np.array(theirs)}
    draw(courses, options.out, "gdmm_large_domain")


def at_ocr_size(options: argparse.Namespace) -> None:
    """12,000 sequences, 174,000 tokens, 3,039 labels: memory; and the OCR test lines if there."""
    k = 3039
    data = generated_chains(k, n=options.sequences, length=15)
    problem = chain_problem(data, k)
    rows, _ = follow(problem, GDMM(), passes=options.passes, every=options.passes)
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**20
    print(f"{data.n_tokens} tokens, {k} labels: {rows[-1][0] / rows[-1][1]:.1f} s per pass, primal "
          f"{rows[-1][2]:.4f}, peak memory {peak:.2f} GiB "
          f"({'agrees' if peak <= 8 else 'does not agree'}: 8 GiB)")  # fmt: skip
    path = Path(options.data) / "gdmm" / "hitmw_chinese_ocr.data.fea.test.xz"
    if not path.exists():
        return
    labels, tokens = read_sequences(path)
    classes = {str(y): y for y in range(1, k + 1)}
    classes = {y: n for n, y in enumerate(sorted(classes, key=int))}
    classes |= {y: len(classes) for s in labels for y in s if y not in classes}
    lines = as_dataset(labels, tokens, classes, 1 + max(j for s in tokens for t in s for j in t))
    problem = chain_problem(lines, len(classes))
    rows, w = follow(problem, GDMM(), passes=30, every=10)
    right = accuracy(problem.model, w, lines)
    print(f"Chinese OCR test lines ({len(lines)} lines, {len(classes)} labels, trained on "
          f"themselves): primal {rows[-1][2]:.4f}, dual {rows[-1][3]:.4f}, "
          f"{rows[-1][0]:.1f} s, training accuracy {right:.4f}")  # fmt: skip


def draw(courses: dict[str, np.ndarray], out: str | None, name: str) -> None:
    """Primal against seconds, into ``out``."""
    if out is None:
        return
    from matplotlib.figure import Figure

    figure = Figure(figsize=(5, 3.5), layout="constrained")
    axes = figure.add_subplot()
    for label, rows in courses.items():
        axes.plot(rows[:, 0], rows[:, 2], marker=".", label=label)
    axes.set(xlabel="seconds", ylabel="primal objective per example", yscale="log")
    axes.legend()
    Path(out).mkdir(parents=True, exist_ok=True)
    figure.savefig(Path(out) / f"{name}.png", dpi=150)


def main() -> None:
    """Parse the command line and run one experiment."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("experiment", choices=["pos", "large_domain", "multilabel"])
    parser.add_argument("--data", default=os.environ.get("CLIQUEWISE_DATA", "data"))
    parser.add_argument("--out", default=None)
    parser.add_argument("--seconds", type=float, default=300.0)
    parser.add_argument("--labels", default="100,400,1600,3039")
    parser.add_argument("--full-labels", type=int, default=1600)
    parser.add_argument("--files", default=None)
    parser.add_argument("--passes", type=int, default=12)
    parser.add_argument("--bcfw-passes", type=float, default=0.0)
    parser.add_argument("--memory", action="store_true")
    parser.add_argument("--sequences", type=int, default=11_600)
    options, rest = parser.parse_known_args()
    if options.experiment == "multilabel":
        import importlib

        importlib.import_module("experiments.gdmm_multilabel").multilabel(options, rest)
        return
    if rest:
        parser.error(f"unknown arguments: {' '.join(rest)}")
    if options.experiment == "pos":
        pos(options)
    elif options.memory:
        at_ocr_size(options)
    else:
        large_domain(options)


if __name__ == "__main__":
    main()
