"""Data larger than memory: training on disk beside training in memory, in one run.

    python -m benchmarks.shards [--tokens 5000000] [--labels 20] [--max-memory 1] [--tol 1e-3]

Sentences are drawn from a hidden Markov model and written to column files. One process encodes them
and trains with ``max_memory`` as given, so that data and dual variables stay on disk; another has
memory enough. Printed are the seconds of encoding and of training, the gap, the largest resident
set (the interpreter and the compiler included), and how far the two taggers are apart on new
sentences.
"""

from __future__ import annotations

import argparse
import json
import resource
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.common import print_json, print_table

TEMPLATE = "U0:%x[0,0]\nU1:%x[-1,0]\nU2:%x[1,0]\nU3:%x[0,1]\nU4:%x[-1,1]/%x[0,1]\nB\n"


def write_sentences(path: Path, tokens: int, labels: int, seed: int) -> None:
    """Words and a second column that both tell something of a hidden label, and the label."""
    # The language is the same for all files; the sentences are not.
    language, rng = np.random.default_rng(0), np.random.default_rng(seed)
    moves = np.cumsum(language.dirichlet(np.full(labels, 0.3), size=labels), axis=1)
    words = language.integers(0, 30_000, size=(labels, 3000))
    shapes = language.integers(0, 50, size=(labels, 12))
    label, left = 0, 0
    with open(path, "w", encoding="ascii") as file:
        for _ in range(-(-tokens // 100_000)):
            uniform, popular = rng.random(100_000), rng.zipf(1.3, 100_000) % 3000
            noise, shape = rng.random(100_000), rng.integers(0, 12, 100_000)
            lines = []
            for u, p, z, s in zip(uniform, popular, noise, shape):
                label = int(np.searchsorted(moves[label], u))
                seen = label if z < 0.85 else int(z * 1e6) % labels
                lines.append(f"w{words[seen, p]} s{shapes[label, s]} L{label}")
                left -= 1
                if left <= 0:
                    lines.append("")
                    left = int(5 + 35 * u)
            file.write("\n".join(lines) + "\n")


def child(arguments: argparse.Namespace) -> None:
    """Train in this process and print what it took, as JSON."""
    import cliquewise as cw
    from cliquewise.data import Shards, Template, read_conll

    folder = Path(arguments.folder)
    shards = Shards(sorted(folder.glob("train*.conll")), folder / "cache")
    tagger = cw.SequenceTagger(
        template=Template.parse(TEMPLATE), tol=arguments.tol, max_memory=arguments.max_memory,
        n_jobs=arguments.jobs, random_state=0, C=0.1,
    )  # fmt: skip
    start = time.perf_counter()
    tagger.fit(shards)
    total = time.perf_counter() - start
    X, y = read_conll(folder / "test.conll").split_labels()
    marginals = np.concatenate([m[:, 0] for m in tagger.predict_marginals(X)])
    np.save(folder / f"{arguments.child}.npy", marginals)
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**20
    row = tagger.trace_[-1]
    result = {
        "seconds": total, "training": row["seconds"], "epochs": row["epochs"], "gap": row["gap"],
        "objective": row["primal"], "GiB": peak, "F": tagger.score(X, y),
        "weights": tagger.model_.dimension,
    }  # fmt: skip
    print(json.dumps(result))


def run(name: str, folder: Path, memory: float, arguments: argparse.Namespace) -> dict[str, Any]:
    """One of the two ways in a process of its own."""
    command = [
        sys.executable, "-m", "benchmarks.shards", "--child", name, "--folder", str(folder),
        "--max-memory", str(memory), "--tol", str(arguments.tol), "--jobs", str(arguments.jobs),
    ]  # fmt: skip
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        raise SystemExit(done.stderr)
    return json.loads(done.stdout.splitlines()[-1])  # type: ignore[no-any-return]


def main() -> None:
    """Run from the command line."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    parser.add_argument("--tokens", type=int, default=5_000_000)
    parser.add_argument("--labels", type=int, default=20)
    parser.add_argument("--max-memory", type=float, default=1.0)
    parser.add_argument("--tol", type=float, default=1e-3)
    parser.add_argument("--jobs", type=int, default=1)
    parser.add_argument("--child")
    parser.add_argument("--folder")
    arguments = parser.parse_args()
    if arguments.child:
        child(arguments)
        return
    with tempfile.TemporaryDirectory() as temporary:
        folder = Path(temporary)
        each = -(-arguments.tokens // 5)
        for part in range(5):
            write_sentences(folder / f"train{part}.conll", each, arguments.labels, part + 1)
        write_sentences(folder / "test.conll", 50_000, arguments.labels, 99)
        disk = run("disk", folder, arguments.max_memory, arguments)
        memory = run("memory", folder, 64.0, arguments)  # finds the data encoded
        apart = np.abs(np.load(folder / "disk.npy") - np.load(folder / "memory.npy")).max()
    columns = list(disk)
    rows = [["on disk", *disk.values()], ["in memory", *memory.values()]]
    print_table(f"{arguments.tokens} tokens, {arguments.labels} labels", ["", *columns], rows)
    ratio = disk["training"] / memory["training"]
    print(f"training on disk takes {ratio:.2f} times as long; marginals differ by {apart:.1e}")
    print_json({"disk": disk, "memory": memory, "ratio": ratio, "apart": float(apart)})


if __name__ == "__main__":
    main()
