"""Chain CRF layers: ``python -m benchmarks.torch_crf [--device cuda] [--check]``.

Ours beside pytorch-crf and torch-struct in one run: log-likelihood, forward and backward, and
decoding, for batches of B sequences of T positions with K labels. The layers take turns, and
the best turn of each counts. Before times are believed, all must give the same log-likelihood
and gradients. A peer that is not installed is left out, with a sentence. On a GPU the clock
stops after a synchronization; on the CPU it is that of the process. Peak memory is what the
allocator of the GPU saw, and on the CPU the growth of the resident set in a process of its own
(Linux). On the CPU torch-struct is left out where it would need minutes.

``--check`` first compares every oracle on the device with plain PyTorch. ``--masks
none,whole,prefix,gaps,ignored`` measures what masks cost ours instead (`torch_crf_masks`).
"""

from __future__ import annotations

import argparse
import subprocess
import sys
import time
import warnings
from collections.abc import Callable
from typing import Any

import torch

from benchmarks.common import geometric_mean, print_json, print_table
from cliquewise.torch import ChainCRF

SIZES = ((64, 50, 20), (32, 200, 50), (256, 30, 9), (16, 1000, 20), (64, 50, 128))


class Case:
    """Random emissions, tags and CRF weights of one size."""

    def __init__(self, size: tuple[int, int, int], device: str) -> None:
        b, t, k = size
        generator = torch.Generator().manual_seed(0)
        self.size, self.device = size, device
        self.emissions = torch.randn(b, t, k, generator=generator).to(device).requires_grad_()
        self.tags = torch.randint(0, k, (b, t), generator=generator).to(device)
        self.weights = {
            "start_transitions": torch.randn(k, generator=generator),
            "end_transitions": torch.randn(k, generator=generator),
            "transitions": torch.randn(k, k, generator=generator),
        }

    def layer(self, cls: Any) -> Any:
        """A layer with these weights."""
        layer = cls(self.size[2], batch_first=True)
        layer.load_state_dict(self.weights)
        return layer.to(self.device)


class Layer:
    """pytorch-crf's CRF, or ours: they have the same face."""

    def __init__(self, case: Case, cls: Any) -> None:
        self.case, self.crf = case, case.layer(cls)

    def train(self) -> torch.Tensor:
        self.case.emissions.grad = None
        self.crf.zero_grad(set_to_none=True)
        value = self.crf(self.case.emissions, self.case.tags, reduction="mean")
        value.backward()
        return value.detach()

    def gradients(self) -> list[torch.Tensor]:
        assert self.case.emissions.grad is not None
        return [self.case.emissions.grad.clone(), self.crf.transitions.grad.clone()]

    def decode(self) -> list[list[int]]:
        with torch.no_grad():
            return self.crf.decode(self.case.emissions)


class Struct:
    """torch-struct's LinearChainCRF, from the same weights."""

    def __init__(self, case: Case, cls: Any) -> None:
        self.case, self.cls = case, cls
        self.crf = case.layer(ChainCRF)

    def potentials(self) -> torch.Tensor:
        """Log-potentials (B, T - 1, K, K) of (next label, label), as torch-struct wants them."""
        emissions, crf = self.case.emissions, self.crf
        table = crf.transitions.t()[None, None] + emissions[:, 1:, :, None]
        first = (emissions[:, 0] + crf.start_transitions)[:, None, None, :]
        last = crf.end_transitions[None, None, :, None]
        n = table.shape[1]
        at = torch.arange(n, device=table.device)[None, :, None, None]
        table = table + torch.where(at == 0, first, 0.0) + torch.where(at == n - 1, last, 0.0)
        return table.contiguous()

    def train(self) -> torch.Tensor:
        self.case.emissions.grad = None
        self.crf.zero_grad(set_to_none=True)
        chain = self.cls(self.potentials())
        value = chain.log_prob(self.parts()).mean()
        value.backward()
        return value.detach()

    def parts(self) -> torch.Tensor:
        """The gold edges as indicators; made once."""
        if not hasattr(self, "_parts"):
            tags, k = self.case.tags, self.case.size[2]
            right, left = (torch.nn.functional.one_hot(x, k) for x in (tags[:, 1:], tags[:, :-1]))
            self._parts = (right[:, :, :, None] * left[:, :, None, :]).float()
        return self._parts

    gradients = Layer.gradients

    def decode(self) -> torch.Tensor:
        return self.cls(self.potentials().detach()).argmax


def peers() -> dict[str, tuple[Any, Any]]:
    """Name -> (wrapper, class) of what is installed."""
    found: dict[str, tuple[Any, Any]] = {"cliquewise": (Layer, ChainCRF)}
    try:
        from torchcrf import CRF

        found["pytorch-crf"] = (Layer, CRF)
    except ImportError:
        print("pytorch-crf is not installed: left out (pip install pytorch-crf)")
    try:
        from torch_struct import LinearChainCRF

        found["torch-struct"] = (Struct, LinearChainCRF)
    except ImportError as error:
        print(f"torch-struct is not installed: left out (pip install torch-struct): {error}")
    return found


def timed(function: Callable[[], Any], device: str) -> float:
    """Seconds of one call."""
    if device == "cuda":
        torch.cuda.synchronize()
        start = time.perf_counter()
        function()
        torch.cuda.synchronize()
        return time.perf_counter() - start
    start = time.process_time()
    function()
    return time.process_time() - start


def best_of_turns(functions: dict[str, Callable[[], Any]], device: str, budget: float = 2.0):
    """Least seconds of each function, all in turn, for about ``budget`` seconds each."""
    best = {name: float("inf") for name in functions}
    spent = dict.fromkeys(functions, 0.0)
    # The first calls compile.
    for function in functions.values():
        for _ in range(3 if device == "cuda" else 1):
            function()
    for _ in range(400):
        if all(s > budget for s in spent.values()):
            break
        for name, function in functions.items():
            if spent[name] < budget:
                seconds = timed(function, device)
                best[name] = min(best[name], seconds)
                spent[name] += seconds
    return best


def check_agreement(layers: dict[str, Any]) -> None:
    """All peers must compute the same thing."""
    value = layers["cliquewise"].train()
    gradients = layers["cliquewise"].gradients()
    for name, layer in layers.items():
        other = layer.train()
        close = torch.allclose(value, other, rtol=1e-4, atol=1e-4)
        for mine, theirs in zip(gradients, layer.gradients(), strict=True):
            close &= torch.allclose(mine, theirs, rtol=1e-3, atol=1e-3)
        if not close:
            raise SystemExit(f"{name} does not agree: {value.item()} and {other.item()}")


def gpu_memory(function: Callable[[], Any]) -> float:
    """Peak bytes allocated beyond what was there before."""
    torch.cuda.synchronize()
    torch.cuda.reset_peak_memory_stats()
    before = torch.cuda.memory_allocated()
    function()
    torch.cuda.synchronize()
    return float(torch.cuda.max_memory_allocated() - before)


_CHILD = """
import sys, torch
torch.set_num_threads(1)
from benchmarks.torch_crf import Case, peers
name, size = sys.argv[1], tuple(map(int, sys.argv[2].split("x")))
wrapper, cls = peers()[name]
small = wrapper(Case((2, 4, size[2]), "cpu"), cls)
small.train()
layer = wrapper(Case(size, "cpu"), cls)
def status(key):
    return int(open("/proc/self/status").read().split(key + ":")[1].split()[0])
open("/proc/self/clear_refs", "w").write("5")  # the peak starts anew
before = status("VmRSS")
layer.train()
print(status("VmHWM") - before)
"""


def cpu_memory(name: str, size: tuple[int, int, int]) -> float:
    """Growth of the peak resident set in one training call, in a process of its own."""
    command = [sys.executable, "-c", _CHILD, name, "x".join(map(str, size))]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    return 1024.0 * float(done.stdout.split()[-1])


def compare(size: tuple[int, int, int], device: str, memory: bool) -> dict[str, Any]:
    """Times and memory of all layers at one size."""
    case = Case(size, device)
    layers = {name: wrapper(case, cls) for name, (wrapper, cls) in peers().items()}
    b, t, k = size
    if device == "cpu" and b * t * k**2 > 5_000_000:
        layers.pop("torch-struct", None)
    check_agreement(layers)
    budget = 1.0 if device == "cuda" else 1.5
    train = best_of_turns({n: layer.train for n, layer in layers.items()}, device, budget)
    decode = best_of_turns({n: layer.decode for n, layer in layers.items()}, device, budget)
    row: dict[str, Any] = {"size": "x".join(map(str, size)), "train": train, "decode": decode}
    if memory:
        row["memory"] = {
            n: gpu_memory(layer.train) if device == "cuda" else cpu_memory(n, size)
            for n, layer in layers.items()
        }
    return row


def print_rows(rows: list[dict[str, Any]], what: str, unit: str, scale: float) -> None:
    """A table with one column per layer and the ratios to ours."""
    names = list(dict.fromkeys(name for row in rows for name in row[what]))
    others = [n for n in names if n != "cliquewise"]
    columns = ["B x T x K", *(f"{n}, {unit}" for n in names), *(f"{n} / ours" for n in others)]
    table = []
    for row in rows:
        own = max(row[what]["cliquewise"], 1e-12)
        known = {name: row[what].get(name, float("nan")) for name in names}
        cells = [scale * known[n] for n in names] + [known[n] / own for n in others]
        table.append([row["size"], *map(float, cells)])
    try:
        print_table(what, columns, table)
    except ImportError:
        print("no tables without rich; the rows are above")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--device", default="cpu", choices=["cpu", "cuda"])
    parser.add_argument(
        "--check", nargs="?", const="all", choices=["all", "quick"], help="compare oracles first"
    )
    parser.add_argument("--threads", type=int, default=1, help="of the CPU")
    parser.add_argument("--no-memory", action="store_true")
    parser.add_argument(
        "--same-thread", action="store_true",
        help="backward passes (of all) in the calling thread, not in autograd's own",
    )  # fmt: skip
    parser.add_argument("--sizes", nargs="*", default=["x".join(map(str, s)) for s in SIZES])
    parser.add_argument("--masks", help="what these cost ours, instead: none,prefix,gaps, ...")
    arguments = parser.parse_args()
    torch.set_num_threads(arguments.threads)
    torch.autograd.set_multithreading_enabled(not arguments.same_thread)
    warnings.filterwarnings("ignore", category=UserWarning)  # those of the peers
    if arguments.check:
        from benchmarks.torch_crf_check import check_oracles

        check_oracles(arguments.device, quick=arguments.check == "quick")
    sizes = [(b, t, k) for b, t, k in (map(int, text.split("x")) for text in arguments.sizes)]
    if arguments.masks:
        from benchmarks.torch_crf_masks import MASKS, compare_masks

        kinds = arguments.masks.split(",")
        if not set(kinds) <= set(MASKS):
            parser.error(f"--masks are some of {','.join(MASKS)}")
        print_json(compare_masks(sizes, arguments.device, kinds))
        return
    rows = []
    for size in sizes:
        rows.append(compare(size, arguments.device, not arguments.no_memory))
        print(rows[-1], flush=True)
    print_rows(rows, "train", "ms", 1e3)
    print_rows(rows, "decode", "ms", 1e3)
    if "memory" in rows[0]:
        print_rows(rows, "memory", "MB", 1e-6)
    ratios = {
        f"{what} {name}": geometric_mean(
            r[what][name] / r[what]["cliquewise"] for r in rows if name in r[what]
        )
        for what in ("train", "decode")
        for name in rows[0][what]
        if name != "cliquewise"
    }
    print_json({"device": arguments.device, "rows": rows, "geometric_means": ratios})


if __name__ == "__main__":
    main()
