"""What a token costs, and what a billion would: ``python -m benchmarks.scale [--tokens 400000]``.

Constants are measured here: seconds per token and bytes per token of encoding, of a pass of `sdca`
(one thread and all cores), of a gradient, with dual variables in memory and on disk. Sequences are
those of ``benchmarks/shards.py``: 22 tokens, 5 attributes a token. Those of a GPU come from
``benchmarks.gpu_linear`` (``--gpu-pass`` nanoseconds per token of a pass, ``--gpu-bytes`` per
token), those of a cluster's network from the arguments. The second table is computed from these.
"""

from __future__ import annotations

import argparse
import os
import tempfile
import time
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.common import print_json, print_table, seconds
from benchmarks.shards import TEMPLATE, write_sentences

#: Passes to a gap of 1e-3: of dual ascent, and of L-BFGS from averaged local solutions.
SDCA_PASSES, LBFGS_PASSES = 10, 110


def constants(tokens: int, labels: int) -> dict[str, Any]:
    """Seconds and bytes per token on this machine."""
    from cliquewise.data import Shards, Template, read_conll
    from cliquewise.data.conversion import SequenceEncoder
    from cliquewise.data.labels import Labels
    from cliquewise.data.shard_cache import open_cache
    from cliquewise.models.chain import ChainModel
    from cliquewise.problems.chain import ChainProblem
    from cliquewise.problems.shards import ShardedChainProblem
    from cliquewise.solvers.sdca import SDCA

    template, out = Template.parse(TEMPLATE), {}
    with tempfile.TemporaryDirectory() as temporary:
        path = Path(temporary) / "train.conll"
        write_sentences(path, tokens, labels, 1)
        start = time.perf_counter()
        X, y = read_conll(path).split_labels()
        data = SequenceEncoder(template).fit_transform(X)
        out["read and encode"] = time.perf_counter() - start
        start = time.perf_counter()
        cache = open_cache(Shards(path, Path(temporary) / "cache"), template, None, 1, 1e12)
        out["encode into a folder"] = time.perf_counter() - start
        known = Labels.fit(y)
        data = data.with_labels(known.encode(y, data.offsets)[0])
        model = ChainModel.build(data, len(known))
        rng, w = np.random.default_rng(0), np.zeros(model.dimension)
        for jobs in (1, os.cpu_count() or 1):
            problem = ChainProblem(model, data, 0.1, n_jobs=jobs)
            problem.primal_and_gradient(w)
            state = SDCA().init(problem)
            name = "1 thread" if jobs == 1 else f"{jobs} threads"
            step = partial(SDCA().step, problem, state, rng)
            out[f"sdca, a pass, {name}"] = seconds(step, 3)
            out[f"gradient, {name}"] = seconds(partial(problem.primal_and_gradient, w), 3)
            bytes_in_memory = SDCA().memory(problem) + data.memory_bytes
        sharded = ShardedChainProblem(model, cache, 0.1, max_bytes=2.0**28)
        state = SDCA().init(sharded)

        def one_pass() -> None:
            for _ in range(len(sharded)):
                SDCA().step(sharded, state, rng)

        out["sdca, a pass, on disk"] = seconds(one_pass, 2)
        n = data.n_tokens
        result: dict[str, Any] = {name: 1e6 * value / n for name, value in out.items()}
        result["bytes in memory"] = (bytes_in_memory - 8.0 * model.dimension) / n
        result["bytes on disk"] = (cache.memory_bytes + sharded.dual_bytes) / n
        result["weights"] = model.dimension
    return result


def hours(found: dict[str, Any], tokens: float, arguments: argparse.Namespace) -> list[list[Any]]:
    """What so many tokens take to a gap of 1e-3, by way and number of workers."""
    rows: list[list[Any]] = []
    threads = max(os.cpu_count() or 1, 1)
    ways = {
        "sdca, memory, 1 thread": ("sdca, a pass, 1 thread", "bytes in memory"),
        f"sdca, memory, {threads} threads": (f"sdca, a pass, {threads} threads", "bytes in memory"),
        "sdca, disk": ("sdca, a pass, on disk", "bytes on disk"),
    }
    for name, (a_pass, size) in ways.items():
        seconds_of = 1e-6 * found[a_pass] * tokens * SDCA_PASSES
        rows.append([name, 1, seconds_of / 3600, found[size] * tokens / 2**30, 0.0])
    for workers in (16, 256):
        work = 1e-6 * found["gradient, 1 thread"] * tokens / workers
        traffic = 2 * 8.0 * arguments.weights * workers / (arguments.network * 2**30)
        total = LBFGS_PASSES * (work + traffic + arguments.round)
        size = found["bytes in memory"] * tokens / workers / 2**30
        rows.append(
            ["L-BFGS, a cluster", workers, total / 3600, size, LBFGS_PASSES * traffic / total]
        )
    total = 1e-9 * arguments.gpu_pass * tokens * 200
    rows.append(["L-BFGS, a GPU", 1, total / 3600, arguments.gpu_bytes * tokens / 2**30, 0.0])
    return rows


def main() -> None:
    """Run from the command line."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    parser.add_argument("--tokens", type=int, default=400_000)
    parser.add_argument("--labels", type=int, default=20)
    parser.add_argument("--weights", type=float, default=2e7)
    parser.add_argument("--network", type=float, default=1.0, help="GiB per second, of the client")
    parser.add_argument("--round", type=float, default=0.1, help="seconds beside work, per round")
    parser.add_argument("--gpu-pass", type=float, default=2.4, help="ns per token and pass")
    parser.add_argument("--gpu-bytes", type=float, default=1200.0)
    arguments = parser.parse_args()
    found = constants(arguments.tokens, arguments.labels)
    rows = [[name, value] for name, value in found.items()]
    print_table("microseconds (or bytes) per token", ["", "value"], rows)
    table = {}
    for tokens in (1e6, 1e8, 1e9):
        rows = hours(found, tokens, arguments)
        table[f"{tokens:g}"] = rows
        columns = ["way", "workers", "hours", "GiB per worker", "share of traffic"]
        print_table(f"{tokens:g} tokens, to 1e-3, computed", columns, rows)
    print_json({"constants": found, "computed": table})


if __name__ == "__main__":
    main()
