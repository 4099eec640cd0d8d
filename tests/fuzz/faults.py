"""``python -m tests.fuzz.faults``: plant faults in a copy of the library, and time their detection.

Each fault is a replacement of one piece of a source file: a sign, a missing rounding term, a shared
array, an unchecked entry. The fuzzer runs on the copy, with the part that should find the fault,
until its first finding. The tests check that every piece still occurs once (tests/test_fuzz.py).
"""

from __future__ import annotations

import argparse
import os
import shutil
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).parents[2]
SOURCE = ROOT / "src" / "cliquewise"


class Fault(NamedTuple):
    """A replacement in one source file, and the part of the fuzzer that should notice it."""

    name: str
    file: str
    old: str
    new: str
    part: str


FAULTS = [
    # kernels of chains
    Fault("sdca: weights of transitions move the wrong way", "_kernels/chain/sdca.py",
          "own[k] -= pull * room.delta_edges[k]", "own[k] += pull * room.delta_edges[k]",
          "certificates"),
    Fault("sdca: the margin has the wrong sign", "_kernels/chain/sdca.py",
          "scores[t, chains.labels[first + t]] -= margin",
          "scores[t, chains.labels[first + t]] += margin", "certificates"),
    Fault("sdca: expected costs count twice", "_kernels/chain/sdca.py",
          "                    wrong += mu[t, j]", "                    wrong += 2.0 * mu[t, j]",
          "certificates"),
    Fault("bcfw: a step may leave the polytope", "_kernels/chain/bcfw.py",
          "        most = pool.alpha[a]\n", "        most = 2.0 * pool.alpha[a]\n", "certificates"),
    Fault("gradient: a token's label is subtracted twice", "_kernels/chain/gradient.py",
          "                p[t, y] -= 1.0", "                p[t, y] -= 2.0", "certificates"),
    Fault("gradient: weights of examples are ignored", "_kernels/chain/gradient.py",
          "        weight = chains.weights[i]", "        weight = 1.0", "certificates"),
    Fault("losses: the last token is left out", "_kernels/chain/gradient.py",
          "        truth = truth_score(chains, first, last, s, trans)\n        nodes = s",
          "        truth = truth_score(chains, first, last - 1, s, trans)\n        nodes = s",
          "certificates"),
    Fault("sums: the shift of transitions is lost", "_kernels/chain/sums.py",
          "            shift += tables[NUMBERS, 0, SHIFT]", "            shift += 0.0",
          "operations"),
    Fault("top-k: the list drops its best deviation", "_kernels/chain/top_k.py",
          "        if not gap < gaps[k - 1]:", "        if not gap > gaps[k - 1]:", "operations"),
    Fault("viterbi: an odd last label is never a predecessor", "_kernels/chain/decode.py",
          "        if n_labels % 2 == 1:\n            i = n_labels - 1",
          "        if n_labels % 2 == 2:\n            i = n_labels - 1", "operations"),
    # kernels of graphs
    Fault("label sets: underflow is not noticed", "_kernels/label_sets/rows.py",
          "            least[r] = min(least[r], table[r])",
          "            least[r] = max(least[r], table[r])", "rows"),
    Fault("label sets: the log domain forgets a bucket's maximum", "_kernels/label_sets/rows.py",
          "        log_z += top\n        if not", "        log_z = top\n        if not", "rows"),
    Fault("junction tree: log Z of the last component only", "_kernels/graphs/junction_tree.py",
          "            total += messages[m]\n", "            total = messages[m]\n", "inference"),
    Fault("junction tree: max-marginals keep the last block", "_kernels/graphs/junction_tree.py",
          "nodes[node + v] = max(nodes[node + v], high)", "nodes[node + v] = high * 0.5",
          "inference"),
    Fault("buckets: maxima are minima", "_kernels/graphs/buckets.py",
          "        out[i] = x if x > y else y", "        out[i] = x if x < y else y", "inference"),
    Fault("sparse tables: a sum is a tenth too large", "_kernels/graphs/sparse_joins.py",
          "        mass += exp(scores[i] - top)\n", "        mass += 1.1 * exp(scores[i] - top)\n",
          "inference"),
    Fault("forests: log Z of the last tree only", "_kernels/graphs/forest.py",
          "            total += _normalize(mu, own, 1, k)",
          "            total = _normalize(mu, own, 1, k)", "certificates"),
    Fault("simplex: the radius is counted twice", "_kernels/common/simplex.py",
          "tau = max((total - values.dtype.type(radius)) /",
          "tau = max((total - values.dtype.type(2 * radius)) /", "certificates"),
    # problems, solvers and certificates
    Fault("rounding: the dual is not lowered", "problems/rounding.py",
          "return Bound(linear - penalty - rounding, rounding)",
          "return Bound(linear - penalty, rounding)", "certificates"),
    Fault("rounding: the penalty counts half", "problems/rounding.py",
          "return Bound(linear - penalty - rounding, rounding)",
          "return Bound(linear - 0.5 * penalty - rounding, rounding)", "certificates"),
    Fault("sdca: the better weights are the worse ones", "solvers/sdca.py",
          "if other < primal:", "if other > primal:",
          "certificates"),
    Fault("label graphs: log Z is not scaled by gamma", "problems/label_graph.py",
          "self.gamma * log_z - (on * Y)", "log_z - (on * Y)", "certificates"),
    Fault("label graphs: true pairs are left out of the gradient", "problems/label_graph.py",
          "for part in found], axis=0) - self._paired", "for part in found], axis=0)",
          "certificates"),
    # data, estimators and files
    Fault("warm start: keys share the arrays of the data", "estimators/tagger/incremental.py",
          "shape=shape, copy=True)", "shape=shape)", "operations"),
    Fault("matrices: duplicates of a user's matrix are summed in place", "data/matrices.py",
          "        csr = csr.copy()  # the caller's matrix stays as it is\n", "", "operations"),
    Fault("estimators: a failed fit is not undone", "estimators/_base.py",
          "            self.__dict__.clear()\n            self.__dict__.update(before)\n", "",
          "operations"),
    Fault("pruning: the weights of the tagger itself change", "estimators/tagger/pruning.py",
          "    weights, model = chain.coef_.copy(), chain.model_",
          "    weights, model = -chain.coef_, chain.model_", "operations"),
    Fault("model files: arrays that do not fit are not noticed", "estimators/tagger/files.py",
          '        raise DataError("its arrays do not fit together")', "        pass", "files"),
    Fault("uai: an empty evidence file is read", "data/formats/uai.py",
          '        raise FormatError("the evidence file is empty; write 0 for no evidence", name)',
          "        pass", "files"),
    Fault("libsvm: a field that is no number is not caught", "data/formats/libsvm.py",
          '        raise FormatError(f"{field!r:.60} is not index:value") from None',
          "        raise", "files"),
]  # fmt: skip


def plant(fault: Fault, folder: Path) -> None:
    """Copy the library into a folder, with the fault."""
    shutil.copytree(SOURCE, folder / "cliquewise", ignore=shutil.ignore_patterns("__pycache__"))
    path = folder / "cliquewise" / fault.file
    path.write_text(path.read_text("utf-8").replace(fault.old, fault.new), "utf-8")


def seconds_to_detection(fault: Fault, minutes: float, seed: int) -> float | None:
    """Return the seconds until the fuzzer finds a fault, or None; compilation is included."""
    with tempfile.TemporaryDirectory() as folder:
        plant(fault, Path(folder))
        begin = time.monotonic()
        done = subprocess.run(
            [sys.executable, "-m", "tests.fuzz", "--minutes", str(minutes), "--seed", str(seed),
             "--only", fault.part, "--until-finding"],
            cwd=ROOT, env=os.environ | {"PYTHONPATH": folder}, capture_output=True, text=True,
        )  # fmt: skip
    if done.returncode not in (0, 1):
        raise RuntimeError(done.stderr)
    return time.monotonic() - begin if done.returncode else None


def main(arguments: list[str] | None = None) -> int:
    """Plant the faults one after the other; return 1 if fewer than 28 are found."""
    parser = argparse.ArgumentParser(prog="python -m tests.fuzz.faults")
    parser.add_argument("--minutes", type=float, default=10.0, help="at most, for each fault")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--only", type=int, action="append", help="numbers of faults, from 0")
    given = parser.parse_args(arguments)
    found = 0
    chosen = range(len(FAULTS)) if given.only is None else given.only
    for number in chosen:
        fault = FAULTS[number]
        seconds = seconds_to_detection(fault, given.minutes, given.seed)
        found += seconds is not None
        said = "not found" if seconds is None else f"{seconds:.0f} s"
        print(f"{number:2} {said:>9}  {fault.part:12} {fault.name}", flush=True)
    print(f"{found} of {len(chosen)} faults found")
    return int(found < len(chosen) - 2)


if __name__ == "__main__":
    sys.exit(main())
