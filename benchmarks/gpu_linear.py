"""Linear chains on a GPU beside the CPU: ``python -m benchmarks.gpu_linear [--data DIR]``.

For CoNLL-2000 and CoNLL-2003 (all pairs, C = 0.5): seconds until a gap of 1e-3 and 1e-4 is
certified, by ``SequenceTagger(device="cuda")``'s solver and by ``sdca`` with all cores, on the same
problem in one run. What comes before training (compiling, upload) is apart. Then where an
evaluation's time goes: kernel by kernel, the replay of its CUDA graph, what the host adds, a proof
in float64; and the same with other sizes of launches. At last 10 million generated tokens:
seconds per pass, the gap over time, memory. The last line is JSON.

    --data DIR      default: CLIQUEWISE_DATA      --tokens N    of the generated set
    --device cpu    plain PyTorch, to try it       --parts conll2000,conll2003,generated,variants
"""

from __future__ import annotations

import argparse
import os
import time
import traceback
from pathlib import Path
from typing import Any

import numpy as np
import torch

from benchmarks.common import print_json
from cliquewise.models.chain import ChainModel
from cliquewise.problems.chain import ChainProblem
from cliquewise.solvers import get
from cliquewise.solvers.run import Run
from cliquewise.torch._lbfgs_messages import ACCEPT
from cliquewise.torch.device import DeviceLBFGS

TOLERANCES = (1e-3, 1e-4)


def sync(device: str) -> None:
    if device != "cpu":
        torch.cuda.synchronize()


def clock(function: Any, device: str) -> tuple[float, Any]:
    """Seconds of one call, and its answer."""
    sync(device)
    begin = time.perf_counter()
    result = function()
    sync(device)
    return time.perf_counter() - begin, result


def drive(problem: Any, solver: Any, state: Any, tol: float, seconds: float = np.inf) -> Any:
    """A run from a state that is there: only training is timed."""
    run = Run(
        problem=problem, solver=solver, tol=tol, max_epochs=3000, max_seconds=seconds,
        rng=np.random.default_rng(0), callback=None, checkpoint=None, checkpoint_seconds=60.0,
    )  # fmt: skip
    return run.train(state)


# ---- one problem, both ways


def on_device(problem: Any, device: str, **options: Any) -> dict[str, Any]:
    """Setup, training to every tolerance, memory."""
    solver = DeviceLBFGS(device, **options)
    cold, _ = clock(lambda: solver.init(problem), device)
    row: dict[str, Any] = {"first setup, s (compiles)": cold}
    if device != "cpu":
        torch.cuda.empty_cache()
        torch.cuda.reset_peak_memory_stats()
    for tol in TOLERANCES:
        best: dict[str, Any] = {}
        for _ in range(2):  # the first one still compiles the proof
            setup, state = clock(lambda: solver.init(problem), device)
            wall, fit = clock(lambda s=state, t=tol: drive(problem, solver, s, t), device)
            spent = fit.trace["seconds"][-1]
            if not best or spent < best["train"]:
                best = {
                    "setup": setup, "train": spent, "with download and fingerprint": wall,
                    "evaluations": fit.epochs, "checks": len(fit.trace),
                    "ms per evaluation": 1e3 * spent / max(fit.epochs, 1),
                    "gap": fit.certificate.gap, "primal": fit.certificate.primal,
                    "dual": fit.certificate.dual, "rounding": fit.certificate.rounding,
                    "type": str(state.descent.evaluator.dtype),
                }  # fmt: skip
        row[f"to {tol:g}"] = best
        print(f"  device, tol {tol:g}: {shown(best)}", flush=True)
    if device != "cpu":
        row["peak GB"] = torch.cuda.max_memory_allocated() / 1e9
    return row


def on_cpu(problem: Any, jobs: int) -> dict[str, Any]:
    """sdca with all cores."""
    small = ChainProblem(problem.model, problem.data.subset(np.arange(8)), problem.C)
    small.n_jobs = problem.n_jobs = jobs
    solver = get("sdca")
    warm = drive(small, solver, solver.init(small), 1e-3)
    row: dict[str, Any] = {"threads": jobs, "warm": warm.certificate.gap}
    for tol in TOLERANCES:
        setup, state = clock(lambda: solver.init(problem), "cpu")
        fit = drive(problem, solver, state, tol)
        row[f"to {tol:g}"] = best = {
            "setup": setup, "train": fit.trace["seconds"][-1], "epochs": fit.epochs,
            "gap": fit.certificate.gap, "primal": fit.certificate.primal,
            "dual": fit.certificate.dual,
        }  # fmt: skip
        print(f"  sdca, {jobs} threads, tol {tol:g}: {shown(best)}", flush=True)
    return row


def shown(row: dict[str, Any]) -> str:
    return ", ".join(f"{k} {v:.6g}" if isinstance(v, float) else f"{k} {v}" for k, v in row.items())


# ---- where the time goes


def kernels(function: Any, turns: int = 20) -> dict[str, tuple[float, float]]:
    """Mean microseconds and launches of each kernel in one call, largest first."""
    from torch.profiler import ProfilerActivity, profile

    function()
    torch.cuda.synchronize()
    with profile(activities=[ProfilerActivity.CUDA, ProfilerActivity.CPU]) as result:
        for _ in range(turns):
            function()
        torch.cuda.synchronize()
    found = {
        event.key[:60]: (event.self_device_time_total / turns, event.count / turns)
        for event in result.key_averages()
        if event.self_device_time_total > 0 and str(event.device_type).endswith("CUDA")
    }
    return dict(sorted(found.items(), key=lambda item: -item[1][0]))


def events(function: Any, turns: int = 30) -> float:
    """Milliseconds of one of many calls in a row, by the clock of the GPU."""
    for _ in range(3):
        function()
    begin, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
    begin.record()
    for _ in range(turns):
        function()
    end.record()
    torch.cuda.synchronize()
    return float(begin.elapsed_time(end) / turns)


def profile_evaluation(problem: Any, device: str) -> dict[str, Any]:
    """An evaluation taken apart."""
    solver = DeviceLBFGS(device)
    state = solver.init(problem)
    for _ in range(12):
        state.descent.step()
    descent, data = state.descent, state.data
    before, begin = descent.evaluations, time.perf_counter()
    for _ in range(20):
        descent.step()
    count = descent.evaluations - before
    spent = 1e3 * (time.perf_counter() - begin) / count
    print(f"  {spent:.3f} ms per evaluation of L-BFGS ({count} in 20 steps), with the host's part")
    # From here on launches are repeated as they are, and the descent is of no use any more.
    descent.vectors.control[ACCEPT] = 1.0
    chains, vectors = descent.evaluator, descent.vectors
    batch = chains.batches[0]
    n, k = batch.n_tokens, data.k
    row: dict[str, Any] = {
        "ms in a descent": spent, "tokens": n,
        "chains": batch.n_chains, "labels": k, "weights": len(chains.weights),
        "entries": len(batch.entries.ids), "spare rows": batch.adjoint.spare,
        "launches of the adjoint": len(batch.adjoint.launches),
        "ms graph replay": events(descent.graph.replay) if descent.graph else float("nan"),
        "ms launched one by one": events(descent._enqueue),
        "ms evaluator": events(chains), "ms advance": events(vectors.advance),
        "ms measure": events(vectors.measure),
    }  # fmt: skip
    table, scores = chains.weights.view(-1, k), chains.room[: n * k].view(n, k)
    row["ms product"] = events(lambda: batch.product(table, scores))
    marginals = chains.room[3 * n * k : 4 * n * k].view(n, k)
    row["ms adjoint"] = events(lambda: batch.adjoint(marginals, chains.part))
    row["ms proof in float64"] = events(lambda: data.prove(chains.weights), 5)
    print(f"  {shown(row)}")
    row["kernels"] = found = kernels(descent._enqueue)
    for name, (us, count) in list(found.items())[:16]:
        print(f"    {us:9.1f} us  x{count:.0f}  {name}")
    print(f"    {sum(us for us, _ in found.values()):9.1f} us  all kernels of an evaluation")
    print("  a proof:")
    for name, (us, count) in list(kernels(lambda: data.prove(chains.weights), 3).items())[:8]:
        print(f"    {us:9.1f} us  x{count:.0f}  {name}")
    return row


def variants(problem: Any, device: str) -> dict[str, float]:
    """Milliseconds of the parts of an evaluation with launches of other sizes."""
    from cliquewise.torch import _device_chains, _products, _vectors

    solver, out = DeviceLBFGS(device, graph=False), {}
    state = solver.init(problem)
    for _ in range(12):
        state.descent.step()
    chains, vectors = state.descent.evaluator, state.descent.vectors
    batch, k = chains.batches[0], state.data.k
    n = batch.n_tokens
    table, scores = chains.weights.view(-1, k), chains.room[: n * k].view(n, k)
    marginals = chains.room[3 * n * k : 4 * n * k].view(n, k)
    usual = _products._TILE
    for tile in (128, 256, 512, 1024):
        _products._TILE = tile
        out[f"product, tile {tile}"] = events(lambda: batch.product(table, scores))
        out[f"adjoint, tile {tile}"] = events(lambda: batch.adjoint(marginals, chains.part))
    _products._TILE = usual
    piece = _products.PIECE
    for size in (32, 128, 256):
        _products.PIECE = size
        first = chains.n_attributes + k
        adjoint = _products.Product(batch.adjoint.entries, first)
        into = torch.zeros((first + adjoint.spare, k), device=table.device)
        out[f"adjoint, pieces of {size}"] = events(lambda a=adjoint, i=into: a(marginals, i))
    _products.PIECE = piece
    padded = max(16, 1 << (k - 1).bit_length())

    def of_chains(name: str) -> None:
        trans = table[chains.n_attributes :]
        try:
            out[f"chains, {name}"] = events(lambda: chains._chains(batch, table, trans))
        except Exception as error:  # a size that does not compile is an answer, too
            print(f"    {name}: {type(error).__name__}: {str(error)[:80]}")

    of_chains("as they are")
    started = time.perf_counter()
    own = _device_chains
    for name, sizes, tried in (
        ("scan warps", own._SCAN_WARPS, (2, 4)), ("sum warps", own._SUM_WARPS, (1, 2, 8)),
        ("scan rows", own._ROWS, (8, 16, 32)), ("registers", own._REGISTERS, (64, 96, 168, None)),
        ("stages", own._SUM_STAGES, (1, 2)),
    ):  # fmt: skip
        usual = sizes[padded]
        for number in tried:
            if time.perf_counter() - started > 60:  # each of them is compiled
                break
            sizes[padded] = number
            of_chains(f"{name} {number}")
        sizes[padded] = usual
    for steps in (4, 16):
        own._STEPS, usual = steps, own._STEPS
        of_chains(f"{steps} steps of a sum")
        own._STEPS = usual
    usual = _vectors._BLOCK
    for block in (512, 2048, 4096):
        _vectors._BLOCK = block
        out[f"advance, block {block}"] = events(vectors.advance)
    _vectors._BLOCK = usual
    for name, ms in out.items():
        print(f"    {ms:8.4f} ms  {name}", flush=True)
    return out


def histories(problem: Any, device: str) -> dict[str, Any]:
    """Seconds and evaluations to the tolerances with other numbers of corrections."""
    out: dict[str, Any] = {}
    for history in (5, 10, 16, 24):
        solver = DeviceLBFGS(device, history=history)
        for tol in TOLERANCES:
            fits = [drive(problem, solver, solver.init(problem), tol) for _ in range(2)]
            spent = min(f.trace["seconds"][-1] for f in fits)
            out[f"history {history}, {tol:g}"] = spent, fits[0].epochs
            print(f"    history {history:2d}, tol {tol:g}: {spent:.3f} s, {fits[0].epochs:.0f}")
    return out


# ---- data


def conll(name: str, folder: Path) -> Any:
    """The problem of a set: the model of a tagger as it comes."""
    from benchmarks.tagging import load

    data, _, _, classes, _ = load(name, folder)
    return ChainProblem(ChainModel.build(data, len(classes)), data, C=0.5)


def generated(n_tokens: int, k: int, n_attributes: int, device: str) -> Any:
    """Sequences of 10 to 30 tokens, labels from a Markov chain, 20 attributes by a power law."""
    from cliquewise.data import Dataset

    rng = np.random.default_rng(0)
    torch.manual_seed(0)
    lengths = rng.integers(10, 31, n_tokens // 20)
    offsets = np.concatenate([[0], np.cumsum(lengths)])
    n = int(offsets[-1])
    successors = rng.integers(0, k, (k, 4))
    labels = np.empty(n, dtype=np.int32)
    before = rng.integers(0, k, len(lengths))
    for t in range(30):
        on = lengths > t
        count = int(on.sum())
        follow = successors[before[on], rng.integers(0, 4, count)]
        fresh = rng.integers(0, k, count)
        before[on] = fresh if t == 0 else np.where(rng.random(count) < 0.8, follow, fresh)
        labels[offsets[:-1][on] + t] = before[on]
    counts, indices = [], []
    for first in range(0, n, 1 << 21):  # a part at a time: it is made where there is most room
        own = torch.from_numpy(labels[first : first + (1 << 21)]).to(device)
        shape = (len(own), 20)
        rank = (float(n_attributes) ** torch.rand(shape, device=device)).long() - 1
        told = torch.rand(shape, device=device) < 0.3
        aimed = (rank - rank % k + own[:, None]) % n_attributes
        rank = torch.where(told, aimed, rank).sort(1).values
        keep = torch.ones_like(rank, dtype=torch.bool)
        keep[:, 1:] = rank[:, 1:] != rank[:, :-1]
        counts.append(keep.sum(1).cpu().numpy())
        indices.append(rank[keep].int().cpu().numpy())
    indptr = np.concatenate([[0], np.cumsum(np.concatenate(counts))])
    data = Dataset.trusted(
        offsets, indptr, np.concatenate(indices), None, n_attributes, labels, None, None, None
    )
    # Without constant attributes: to add them takes longer than to train.
    model = ChainModel.build(data, k, intercept=False, boundaries=False)
    return ChainProblem(model, data, C=0.5)


def large(n_tokens: int, device: str, seconds: float) -> dict[str, Any]:
    """Seconds per pass and the gap over time of a large set."""
    made, problem = clock(lambda: generated(n_tokens, 20, 1_000_000, device), device)
    print(f"  {problem.data.n_tokens} tokens, {problem.dimension} weights: made in {made:.1f} s")
    solver = DeviceLBFGS(device)
    if device != "cpu":
        torch.cuda.empty_cache()
        torch.cuda.reset_peak_memory_stats()
    setup, state = clock(lambda: solver.init(problem), device)
    data = state.data
    print(f"  upload and first evaluation {setup:.1f} s; {data.plan}", flush=True)
    fit = drive(problem, solver, state, 1e-3, seconds)
    row = {
        "tokens": problem.data.n_tokens, "made": made, "setup": setup,
        "seconds": fit.trace["seconds"][-1], "passes": fit.epochs, "gap": fit.certificate.gap,
        "seconds per pass": fit.trace["seconds"][-1] / max(fit.epochs, 1),
        "estimated GB": sum(data.estimate) / 1e9,
        "peak GB": torch.cuda.max_memory_allocated() / 1e9 if device != "cpu" else float("nan"),
    }  # fmt: skip
    print(f"  {shown(row)}")
    for one in fit.trace:
        print(f"    {one['seconds']:7.2f} s {one['epochs']:5.0f} passes: gap {one['gap']:.3g}")
    if device != "cpu":
        for name, (us, count) in list(kernels(state.descent._enqueue, 3).items())[:10]:
            print(f"    {us:9.1f} us  x{count:.0f}  {name}")
    return row


def attempt(name: str, result: dict[str, Any], part: Any, *arguments: Any) -> None:
    """One part; an error in it is printed, and the others go on."""
    print(f"{name}:", flush=True)
    try:
        result[name] = part(*arguments)
    except Exception:
        traceback.print_exc()
        print(f"{name}: failed", flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("--data", default=os.environ.get("CLIQUEWISE_DATA", "."))
    parser.add_argument("--tokens", type=int, default=10_000_000)
    parser.add_argument("--device", default="cuda")
    parser.add_argument("--parts", default="conll2000,conll2003,variants,generated")
    parser.add_argument("--no-cpu", action="store_true", help="leave sdca out")
    parser.add_argument("--seconds", type=float, default=20.0, help="of training on generated data")
    args = parser.parse_args()
    parts, result = args.parts.split(","), {}
    if args.device != "cpu":
        print(torch.cuda.get_device_name(), torch.__version__, flush=True)
    for name in ("conll2000", "conll2003"):
        if name not in parts:
            continue
        problem = conll(name, Path(args.data))
        shape = f"{problem.data.n_tokens} tokens, {problem.model.n_labels} labels"
        print(f"{name}: {shape}, {problem.dimension} weights", flush=True)
        attempt(name, result, on_device, problem, args.device)
        if name not in result and args.device != "cpu":
            attempt(f"{name}, without a graph", result, lambda p: on_device(p, "cuda", graph=False),
                    problem)  # fmt: skip
        if args.device != "cpu":
            attempt(f"{name}, an evaluation", result, profile_evaluation, problem, args.device)
        if not args.no_cpu:
            attempt(f"{name}, sdca", result, on_cpu, problem, os.cpu_count() or 1)
    if "generated" in parts:
        attempt("generated", result, large, args.tokens, args.device, args.seconds)
    if "variants" in parts and args.device != "cpu":
        problem = conll("conll2000", Path(args.data))
        attempt("corrections", result, histories, problem, args.device)
        attempt("sizes of launches", result, variants, problem, args.device)
    print_json({"device": args.device, **result})


if __name__ == "__main__":
    main()
