"""SDCA in threads beside itself in one: passes, wall time, processor time and the optimum.

    python -m benchmarks.threads --data DIR [--dataset conll2000|conll2003|both] [--repeats 3]
                                 [--jobs 2,4,8] [--drawn 1000 [--first 0]]

Runs to a certified gap of 1e-3, one thread and each number of ``--jobs`` in turn, ``--repeats``
times, with a seed of its own for each turn; all times are the least. ``wall`` is the ratio of wall
times, which says something only on that many quiet processors; ``cpu`` is the ratio of processor
times per pass, what threads lose to each other's caches: with k processors a pass is about
``k / cpu`` times as fast. Optima of different runs must agree within their gaps. ``at most`` is
what two processes that share nothing reach at the same time, each with all the data and one thread:
twice their work in the time of the slower one. It is less than 2 where memory is the bottleneck.

Then float32 beside float64, both to 1e-4 in one thread: MiB of the state, processor seconds,
passes and the F1 of chunks on the test data.

``--drawn N`` tries certificates on N small problems with 2, 4 and 8 threads: both values of every
row of every trace against what L-BFGS, in one thread, brackets to 1e-9.
"""

from __future__ import annotations

import argparse
import multiprocessing
import os
import time
from pathlib import Path

import numpy as np

from benchmarks.common import print_json, print_table
from benchmarks.tagging import load


def problem_of(loaded):
    from cliquewise.models.chain import ChainModel
    from cliquewise.problems.chain import ChainProblem

    data, _, _, classes, _ = loaded
    model = ChainModel.build(data, len(classes), intercept=False, boundaries=False)
    return lambda jobs: ChainProblem(model, data, C=0.5, n_jobs=jobs)


def precisions(name: str, loaded, repeats: int) -> list:
    """float32 beside float64."""
    from cliquewise.solvers.run import run
    from cliquewise.solvers.sdca import SDCA

    rows, problem = [], problem_of(loaded)(1)
    for dtype in ("float64", "float32"):
        solver, cpu = SDCA(dtype=dtype), np.inf
        run(problem, solver, max_epochs=1)  # compiles
        for _ in range(repeats):
            start = time.process_time()
            fit = run(problem, solver, tol=1e-4, random_state=0)
            cpu = min(cpu, time.process_time() - start)
        size = solver.memory(problem) / 2**20
        rows.append((dtype, size, cpu, fit.epochs, fit.certificate.gap, f1(problem, loaded, fit)))
    print_table(
        f"{name} to 1e-4", ("type", "MiB", "cpu seconds", "passes", "gap", "F1"), rows
    )  # fmt: skip
    return rows


def f1(problem, loaded, fit) -> float:
    """F1 of chunks on the test data."""
    from cliquewise._kernels.chain.decode import batch_viterbi
    from cliquewise.metrics import span_f1

    _, test, truth, classes, _ = loaded
    nodes, edges = problem.model.potentials(fit.weights, test)
    labels, scores = np.empty(test.n_tokens, dtype=np.int64), np.empty(len(test))
    batch_viterbi(nodes, test.offsets, edges, labels, scores)
    parts = np.split(labels, test.offsets[1:-1])
    return span_f1(truth, [[classes[i] for i in part] for part in parts])


def at_once(build) -> float:
    """Seconds of the slower of two processes that solve the whole problem in one thread each."""
    from cliquewise.solvers import get
    from cliquewise.solvers.run import run

    forks = multiprocessing.get_context("fork")
    both, seconds = forks.Barrier(2), forks.Array("d", 2)

    def one(at: int) -> None:
        problem = build(1)
        both.wait()
        begin = time.perf_counter()
        run(problem, get("sdca"), tol=1e-3, random_state=0)
        seconds[at] = time.perf_counter() - begin

    workers = [forks.Process(target=one, args=(at,)) for at in range(2)]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join()
    return max(seconds)


def compare(name: str, loaded, numbers: list[int], repeats: int) -> dict:
    """One thread and others in turn; the least times of each."""
    from cliquewise.solvers import get
    from cliquewise.solvers.backends.chain import parallel
    from cliquewise.solvers.run import run

    parallel.MAX_THREADS = max(numbers)
    build, best, apart = problem_of(loaded), {}, np.inf
    run(build(2), get("sdca"), max_epochs=1)  # compiles
    for seed in range(repeats):
        for jobs in [1, *numbers]:
            problem = build(jobs)
            wall, cpu = time.perf_counter(), time.process_time()
            fit = run(problem, get("sdca"), tol=1e-3, random_state=seed)
            wall, cpu = time.perf_counter() - wall, time.process_time() - cpu
            row = best.setdefault(jobs, {"wall": np.inf, "cpu": np.inf, "passes": [], "ends": []})
            row["wall"], row["cpu"] = min(row["wall"], wall), min(row["cpu"], cpu / fit.epochs)
            row["passes"].append(fit.epochs)
            row["ends"].append((fit.certificate.dual, fit.certificate.primal))
        apart = min(apart, at_once(build))
    low = max(end[0] for row in best.values() for end in row["ends"])
    high = min(end[1] for row in best.values() for end in row["ends"])
    one = best[1]
    rows = [
        (
            jobs, row["wall"], one["wall"] / row["wall"], row["cpu"] / one["cpu"],
            float(np.mean(row["passes"])), float(np.mean([end[1] for end in row["ends"]])),
        )
        for jobs, row in best.items()
    ]  # fmt: skip
    print_table(
        f"{name} to 1e-3, {os.cpu_count()} processors; duals below objectives: {low <= high}",
        ("threads", "seconds", "wall", "cpu", "passes", "objective"), rows,
    )  # fmt: skip
    most = 2 * one["wall"] / apart
    print(f"two processes that share nothing: {apart:.3g} seconds, at most {most:.3g}")
    return {"rows": rows, "agree": bool(low <= high), "at_most": most}


def drawn(first: int, count: int) -> dict:
    """Certificates of small problems under threads."""
    from cliquewise.problems.chain import ChainProblem
    from cliquewise.solvers import get
    from cliquewise.solvers.backends.chain import parallel
    from cliquewise.solvers.run import run

    parallel.MIN_SEQUENCES = parallel.MIN_WORK = 1  # however small
    parallel.MAX_THREADS = 8
    false = rows = 0
    slow = []  # passes of one thread where several were not done
    for seed in range(first, first + count):
        rng = np.random.default_rng((1, seed))
        model, data, C = draw(rng)
        alone = ChainProblem(model, data, C)
        exact = run(alone, get("lbfgs"), tol=1e-9, max_epochs=2000).certificate
        jobs = (2, 4, 8)[seed % 3]
        fit = run(
            ChainProblem(model, data, C, n_jobs=jobs), get("sdca"), tol=1e-4, max_epochs=300,
            random_state=seed,
        )  # fmt: skip
        slack = 1e-12 * (1 + abs(exact.primal))
        false += any(
            row["dual"] > exact.primal + slack or row["primal"] < exact.dual - slack
            for row in fit.trace
        )
        if not fit.converged:
            one = run(alone, get("sdca"), tol=1e-4, max_epochs=300, random_state=seed)
            slow.append((seed, jobs, fit.certificate.gap, one.epochs))
        rows += len(fit.trace)
    print(
        f"{count} problems, {rows} certificates: {false} false; {len(slow)} not at 1e-4 in 300 "
        f"passes (problem, threads, gap, passes of one thread): {slow}"
    )
    return {"problems": count, "certificates": rows, "false": false, "slow": slow}


def draw(rng: np.random.Generator):
    """A chain model, data and C: sparse or dense attributes, few or many, weights, empty chains."""
    from cliquewise.data.dataset import Dataset
    from cliquewise.models.chain import ChainModel

    n, k, width = int(rng.integers(8, 60)), int(rng.integers(2, 9)), int(rng.integers(1, 30))
    lengths = rng.integers(0, 9, n)
    lengths[0] = 3
    tokens = int(lengths.sum())
    values = (rng.random((tokens, width)) < rng.choice([0.1, 0.5, 1.0])).astype(float)
    if rng.random() < 0.5:
        values *= rng.normal(size=values.shape)
    data = Dataset.from_matrix(
        values, np.append(0, np.cumsum(lengths)), labels=rng.integers(0, k, tokens),
        weights=rng.choice([0.0, 0.5, 1.0, 3.0], n) if rng.random() < 0.3 else None,
    )  # fmt: skip
    model = ChainModel.build(data, k, feature_pairs=str(rng.choice(["all", "seen"])))
    return model, data, float(10 ** rng.uniform(-3, 0.5))


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--data", type=Path, default=os.environ.get("CLIQUEWISE_DATA"))
    parser.add_argument("--dataset", default="both", choices=["conll2000", "conll2003", "both"])
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--jobs", default="2,4,8")
    parser.add_argument("--drawn", type=int, default=0)
    parser.add_argument("--first", type=int, default=0, help="number of the first drawn problem")
    given = parser.parse_args()
    if given.drawn:
        print_json(drawn(given.first, given.drawn))
        return
    names = ["conll2000", "conll2003"] if given.dataset == "both" else [given.dataset]
    numbers = [int(number) for number in given.jobs.split(",")]
    results = {}
    for name in names:
        loaded = load(name, Path(given.data))
        results[name] = compare(name, loaded, numbers, given.repeats)
        results[name]["precisions"] = precisions(name, loaded, given.repeats)
    print_json(results)


if __name__ == "__main__":
    main()
