"""What all Triton kernels share."""

from __future__ import annotations

import triton
import triton.language as tl

NOTHING = tl.constexpr(float("-inf"))
LEAST = tl.constexpr(-3.0e38)

# Sizes and strides change from batch to batch; none is worth a compilation of its own.
_SIZES = (
    "B", "T", "K", "nodes_b", "nodes_t", "trans_b", "trans_t", "mask_b", "mask_t", "tags_b",
    "tags_t",
)  # fmt: skip


@triton.jit
def _row(base, t, stride_t, length, K, KP: tl.constexpr, F: tl.constexpr):
    """Scores of position t; -inf past the labels or outside the sequence."""
    j = tl.arange(0, KP)
    here = (j < K) & (t < length) & (t >= 0)
    return tl.load(base + t * stride_t + j, mask=here, other=NOTHING).to(F)


@triton.jit
def _vector(base, K, KP: tl.constexpr, F: tl.constexpr, PRESENT: tl.constexpr):
    """Begin or end scores; zeros where there are none."""
    j = tl.arange(0, KP)
    out = tl.zeros((KP,), F)
    if PRESENT:
        out = tl.load(base + j, mask=j < K, other=0.0).to(F)
    return out


@triton.jit
def _length(mask, fault, b, T, stride_b, stride_t, HAS_MASK: tl.constexpr, TB: tl.constexpr):
    """Number of positions of sequence b; -1, and a word in ``fault``, where the mask has a gap."""
    length = T
    if HAS_MASK:
        length = 0
        last = 0
        for start in range(0, T, TB):
            t = start + tl.arange(0, TB)
            on = tl.load(mask + b * stride_b + t * stride_t, mask=t < T, other=0) != 0
            length += tl.sum(on.to(tl.int32), 0)
            last = tl.maximum(last, tl.max(tl.where(on, t + 1, 0), 0))
        if last != length:
            length = -1
            tl.store(fault, 1)
    return length


@triton.jit
def _zeros(base, first, count, BLOCK: tl.constexpr):
    """Zeros from entry ``first`` up to entry ``count``."""
    for start in range(first, count, BLOCK):
        at = start + tl.arange(0, BLOCK)
        tl.store(base + at, tl.zeros((BLOCK,), tl.float32), mask=at < count)
