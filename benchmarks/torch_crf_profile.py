"""Where the time of ``ChainCRF`` on a GPU goes: ``python -m benchmarks.torch_crf_profile``.

For every size: the best wall time of forward + backward and of decoding, and the GPU time of
each kernel; then the same with other numbers of warps.
"""

from __future__ import annotations

import argparse
from typing import Any

import torch

from benchmarks.torch_crf import Case, Layer, timed
from cliquewise.torch import ChainCRF, _triton

SIZES = ((256, 30, 9), (64, 50, 128), (64, 50, 20), (16, 1000, 20), (32, 200, 50))


def best(function: Any, turns: int = 100) -> float:
    """Least milliseconds of many turns."""
    for _ in range(5):
        function()
    return 1e3 * min(timed(function, "cuda") for _ in range(turns))


def kernels(function: Any, turns: int = 20) -> str:
    """Mean microseconds of each kernel on the GPU."""
    from torch.profiler import ProfilerActivity, profile

    with profile(activities=[ProfilerActivity.CUDA, ProfilerActivity.CPU]) as result:
        for _ in range(turns):
            function()
        torch.cuda.synchronize()
    rows = [
        (event.device_time_total / turns, event.count / turns, event.key[:40])
        for event in result.key_averages()
        if event.device_time_total > 0 and str(event.device_type).endswith("CUDA")
    ]
    rows.sort(reverse=True)
    return "; ".join(f"{name} {time:.1f} us x{count:.1f}" for time, count, name in rows)


def report(label: str, size: tuple[int, int, int], with_kernels: bool) -> None:
    """One line of times, one of kernels."""
    layer = Layer(Case(size, "cuda"), ChainCRF)
    train, decode = best(layer.train), best(layer.decode, 50)
    print(f"{'x'.join(map(str, size))} {label}: train {train:.3f} ms, decode {decode:.3f} ms")
    if with_kernels:
        print("   ", kernels(layer.train), flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--variants", action="store_true", help="other numbers of warps too")
    given = parser.parse_args()
    for size in SIZES:
        report("usual", size, True)
    if not given.variants:
        return
    for size in SIZES:
        padded = max(16, 1 << (size[2] - 1).bit_length())
        for table, name in ((_triton._WARPS, "scan"), (_triton._FINISH_WARPS, "finish")):
            usual = table[padded]
            for warps in (1, 2, 4, 8, 16):
                elements = padded * padded // (32 * warps)
                if warps == usual or not 4 <= elements <= 128:
                    continue
                table[padded] = warps
                report(f"{name} warps={warps} (usual {usual})", size, True)
            table[padded] = usual


if __name__ == "__main__":
    main()
