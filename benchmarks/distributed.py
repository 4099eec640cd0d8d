"""A cluster of worker processes on this machine: rounds, traffic, seconds, and workers that die.

    python -m benchmarks.distributed [--sequences N] [--parts P] [--kills 10] [--only rounds|...]

Sequences are drawn, with attributes as frequent as words are. Four tables:

* rounds: L-BFGS from zero and from starts that partitions find by themselves, in passes over the
  data and bytes;
* workers: the same fit with 1, 2 and 4 processes, seconds per round and what a round costs beside;
* kills: a worker killed (kill -9) in each of ten rounds;
* memory: workers with too little of it.
"""

from __future__ import annotations

import argparse
import os
import signal
import tempfile
import threading
import time
import warnings
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.common import print_json, print_table

#: Few attributes per token, so that runs are short.
RULES = "U0:%x[0,0]\nU1:%x[-1,0]\nU2:%x[1,0]\nU3:%x[0,1]"


def template() -> Any:
    """What the attributes are."""
    from cliquewise.data import Template

    return Template.parse(RULES)


def write_parts(folder: Path, n: int, parts: int, seed: int = 0) -> list[Path]:
    """Column files of drawn sentences: words by Zipf's law, tags by the word or the tag before."""
    rng = np.random.default_rng(seed)
    tags, words = 12, 30_000
    moves = rng.dirichlet(np.full(tags, 0.3), tags)
    home = rng.integers(tags, size=words)
    paths = []
    for p in range(parts):
        lines = []
        for _ in range(n // parts):
            tag = int(rng.integers(tags))
            for _ in range(int(rng.integers(5, 40))):
                word = int(rng.zipf(1.3)) % words
                tag = int(home[word]) if rng.random() < 0.5 else int(rng.choice(tags, p=moves[tag]))
                lines.append(f"w{word} s{word % 997} T{tag}")
            lines.append("")
        path = folder / f"part{p}.conll"
        path.write_text("\n".join(lines))
        paths.append(path)
    return paths


def cluster_of(workers: int, **options: Any) -> Any:
    """A client of worker processes with a thread each."""
    from distributed import Client, LocalCluster

    cluster = LocalCluster(workers, threads_per_worker=1, dashboard_address=":0", **options)
    return Client(cluster)


def close(client: Any) -> None:
    """End the workers."""
    cluster = client.cluster
    client.close()
    cluster.close(timeout=30)


# ---- rounds, on one process: what counts is passes


def local_parts(paths: list[Path], C: float) -> tuple[Any, list[Any]]:
    """The whole problem, and the parts as a cluster would have them."""
    from cliquewise.data.conversion import SequenceEncoder
    from cliquewise.distributed import chains

    encoded = [chains.encode(SequenceEncoder(template()), False, str(path)) for path in paths]
    merged = chains.merge([e.found for e in encoded], 1)
    settings = chains.Settings("all", "all", None, True, True)
    model = chains.model_of(merged, [], settings)
    n_labels = len(merged.labels)
    parts = [
        chains.assemble(chains.label(e, own, n_labels, None), model, C, "log", 1.0, "l2")
        for e, own in zip(encoded, merged.pieces, strict=True)
    ]
    return chains.without_examples(model, C, "log", 1.0, "l2"), parts


class OneProcess:
    """Stands in for a cluster: the parts are here."""

    def __init__(self, parts: list[Any]):
        self.parts, self.baseline = parts, {"here": 0, "there": 0}
        self.sent = self.received = 0
        self.client = self

    def scheduler_info(self, **_: Any) -> dict[str, Any]:
        return {"workers": {}}

    def each(self, function: Any, parts: list[Any], *more: Any) -> list[Any]:
        return [function(part, *more) for part in parts]

    def each_with(self, function: Any, parts: list[Any], whole: Any, own: Any) -> list[Any]:
        sizes = [len(whole) if own is None else part.places.size for part in parts]
        self.sent += 8 * sum(sizes)
        return [function(part, whole, True) for part in parts]


def rounds(paths: list[Path], C: float, tol: float) -> list[dict[str, Any]]:
    """Passes and bytes to ``tol`` from several starts."""
    from cliquewise.distributed.partition import local_solution
    from cliquewise.distributed.problem import ClusterProblem
    from cliquewise.solvers.base import Start
    from cliquewise.solvers.registry import get
    from cliquewise.solvers.run import run

    like, parts = local_parts(paths, C)
    cluster: Any = OneProcess(parts)
    problem = ClusterProblem(
        cluster, parts, [p.places for p in parts], [p.rows for p in parts], like
    )
    total, having = np.zeros(problem.dimension), np.zeros(problem.dimension)
    found = []
    for part in parts:
        own = local_solution(part, 1e-2, 10)
        found.append(own)
        part.places.add(own, total)
        part.places.add(np.ones(part.places.size), having)
    one = np.zeros(problem.dimension)
    parts[0].places.add(found[0], one)
    starts = {
        "zero": np.zeros(problem.dimension),
        "one partition's": one,
        "mean": total / len(parts),
        "mean by weight": total / np.maximum(having, 1.0),
    }
    rows = []
    for name, w in starts.items():
        cluster.sent = cluster.received = problem.rounds = 0
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            fit = run(problem, get("lbfgs", "chain"), tol=tol, max_epochs=400, warm=Start(w))
        gaps, epochs = fit.trace["gap"], fit.trace["epochs"]
        rows.append(
            {
                "start": name,
                "to 1e-2": float(epochs[np.argmax(gaps <= 1e-2)]),
                f"to {tol:g}": float(epochs[-1]),
                "MB per round": (cluster.sent + cluster.received) / problem.rounds / 1e6,
                "primal": fit.certificate.primal,
            }
        )
    share = sum(p.places.size for p in parts) / problem.dimension
    for row in rows:
        row["weights in parts / all"] = share
    return rows


# ---- worker processes


def workers(paths: list[Path], C: float, tol: float, counts: list[int]) -> list[dict[str, Any]]:
    """The same fit by several numbers of processes."""
    from cliquewise.distributed import DaskSequenceTagger

    rows = []
    for count in counts:
        client = cluster_of(count)
        DaskSequenceTagger(client=client, template=template(), C=C, max_epochs=3, tol=0.5).fit(
            paths
        )  # kernels
        begin = time.perf_counter()
        tagger = DaskSequenceTagger(client=client, template=template(), C=C, tol=tol).fit(paths)
        seconds = time.perf_counter() - begin
        t, traced = tagger.traffic_, tagger.trace_
        rounds = float(traced["epochs"][-1])
        rows.append(
            {
                "workers": count,
                "seconds": seconds,
                "rounds": t["rounds"],
                "s per round": float(traced["seconds"][-1]) / rounds,
                "MB sent per round": t["bytes_sent"] / t["rounds"] / 1e6,
                "MB received per round": t["bytes_received"] / t["rounds"] / 1e6,
                "primal": tagger.certificate_.primal,
                "gap": tagger.certificate_.gap,
            }
        )
        close(client)
    return rows


def overhead(count: int = 2, parts: int = 8) -> float:
    """Seconds of a round on next to no data: what Dask takes."""
    import dask.bag

    from cliquewise.distributed import DaskSequenceTagger

    client = cluster_of(count)
    X = dask.bag.from_sequence([[["a"], ["b"]]] * parts, npartitions=parts)
    y = dask.bag.from_sequence([["A", "B"]] * parts, npartitions=parts)
    DaskSequenceTagger(client=client, tol=1e-3).fit(X, y)
    tagger = DaskSequenceTagger(client=client, tol=1e-9).fit(X, y)
    close(client)
    return float(tagger.trace_["seconds"][-1] / tagger.trace_["epochs"][-1])


def living(client: Any) -> list[int]:
    """Processes of the workers that are there; one may just have been killed."""
    found = client.run(os.getpid, on_error="return").values()
    return [process for process in found if isinstance(process, int)]


def kills(paths: list[Path], C: float, tol: float, number: int) -> dict[str, Any]:
    """A worker killed in each of so many rounds, against none."""
    from cliquewise.distributed import DaskSequenceTagger

    client = cluster_of(4)
    quiet = DaskSequenceTagger(client=client, template=template(), C=C, tol=tol).fit(paths)
    rng, killed = np.random.default_rng(0), []

    def kill(row: dict[str, float]) -> None:
        if len(killed) < number:
            while not (there := sorted(living(client))):  # all are being started again
                client.wait_for_workers(1)
            process = int(rng.choice(there))
            killed.append(process)
            threading.Timer(float(rng.random()) * 0.2, os.kill, (process, signal.SIGKILL)).start()

    begin = time.perf_counter()
    tagger = DaskSequenceTagger(client=client, template=template(), C=C, tol=tol).fit(
        paths, callback=kill
    )
    seconds = time.perf_counter() - begin
    close(client)
    return {
        "kills": len(killed),
        "seconds": seconds,
        "seconds without": float(quiet.trace_["seconds"][-1]),
        "same bits": bool(np.array_equal(tagger.coef_, quiet.coef_)),
        "gap": tagger.certificate_.gap,
    }


def memory(paths: list[Path], C: float) -> str:
    """What a worker with too little memory says."""
    from cliquewise.distributed import DaskSequenceTagger
    from cliquewise.errors import TooLargeError

    client = cluster_of(1, memory_limit="200 MiB")
    try:
        DaskSequenceTagger(client=client, template=template(), C=C).fit(paths)
    except TooLargeError as error:
        return str(error)
    finally:
        close(client)
    return "no error"


def main() -> None:
    """Run what is asked for."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--sequences", type=int, default=4000)
    parser.add_argument("--parts", type=int, default=8)
    parser.add_argument("--workers", type=int, nargs="+", default=[1, 2, 4])
    parser.add_argument("--kills", type=int, default=10)
    parser.add_argument("--C", type=float, default=0.5)
    parser.add_argument("--tol", type=float, default=1e-3)
    parser.add_argument("--only", choices=["rounds", "workers", "kills", "memory"])
    options = parser.parse_args()
    result: dict[str, Any] = {}
    with tempfile.TemporaryDirectory() as folder:
        paths = write_parts(Path(folder), options.sequences, options.parts)
        wanted = [options.only] if options.only else ["rounds", "workers", "kills", "memory"]
        if "rounds" in wanted:
            result["rounds"] = rounds(paths, options.C, options.tol)
        if "workers" in wanted:
            result["workers"] = workers(paths, options.C, options.tol, options.workers)
            result["overhead"] = [{"seconds of a round on next to no data": overhead()}]
        if "kills" in wanted:
            result["kills"] = [kills(paths, options.C, options.tol, options.kills)]
        if "memory" in wanted:
            result["memory"] = [{"says": memory(paths, options.C)}]
    for name, rows in result.items():
        print_table(name, list(rows[0]), [list(row.values()) for row in rows])
    print_json(result)


if __name__ == "__main__":
    main()
