"""What all Triton kernels share."""

from __future__ import annotations

import triton
import triton.language as tl

NOTHING = tl.constexpr(float("-inf"))
LEAST = tl.constexpr(-3.0e38)
IGNORED = tl.constexpr(-100)  # as in _scores

# Sizes and strides change from batch to batch; none is worth a compilation of its own.
_SIZES = (
    "B", "T", "K", "nodes_b", "nodes_t", "trans_b", "trans_t", "mask_b", "mask_t", "tags_b",
    "tags_t",
)  # fmt: skip


@triton.jit
def _row(base, place, stride_t, K, KP: tl.constexpr, F: tl.constexpr):
    """Scores at a place; -inf past the labels."""
    j = tl.arange(0, KP)
    return tl.load(base + place * stride_t + j, mask=j < K, other=NOTHING).to(F)


@triton.jit
def _vector(base, K, KP: tl.constexpr, F: tl.constexpr, PRESENT: tl.constexpr):
    """Begin or end scores; zeros where there are none."""
    j = tl.arange(0, KP)
    out = tl.zeros((KP,), F)
    if PRESENT:
        out = tl.load(base + j, mask=j < K, other=0.0).to(F)
    return out


@triton.jit
def _exists(
    mask, tags, t, T, mask_t, tags_t, HAS_MASK: tl.constexpr, HAS_TAGS: tl.constexpr
):  # fmt: skip
    """Which places have a position: by the mask, and by tags that are not -100."""
    on = t < T
    if HAS_MASK:
        on = on & (tl.load(mask + t * mask_t, mask=on, other=0) != 0)
    if HAS_TAGS:
        on = on & (tl.load(tags + t * tags_t, mask=on, other=IGNORED) != IGNORED)
    return on


@triton.jit
def _positions(
    mask, tags, order, ranks, T, mask_t, tags_t,
    HAS_MASK: tl.constexpr, HAS_TAGS: tl.constexpr, TB: tl.constexpr,
):  # fmt: skip
    """Number of positions of a row, and whether they are not its first ones: then, and only
    then, ``order`` takes their places, and ``ranks`` the position at every place (-1: none).
    """
    length = T
    gaps = T * 0
    if HAS_MASK or HAS_TAGS:
        length = T * 0
        last = T * 0
        for start in range(0, T, TB):
            t = start + tl.arange(0, TB)
            on = _exists(mask, tags, t, T, mask_t, tags_t, HAS_MASK, HAS_TAGS)
            length += tl.sum(on.to(tl.int32), 0)
            last = tl.maximum(last, tl.max(tl.where(on, t + 1, 0), 0))
        gaps = (last != length).to(tl.int32)
        if gaps != 0:
            count = T * 0
            for start in range(0, T, TB):
                t = start + tl.arange(0, TB)
                on = _exists(mask, tags, t, T, mask_t, tags_t, HAS_MASK, HAS_TAGS)
                n = count + tl.cumsum(on.to(tl.int32), 0) - 1
                tl.store(order + n, t, mask=on)
                tl.store(ranks + t, tl.where(on, n, -1), mask=t < T)
                count += tl.sum(on.to(tl.int32), 0)
            tl.debug_barrier()
    return length, gaps


@triton.jit
def _place(order, n, length, gaps, MAY_GAP: tl.constexpr):
    """Where positions stand in their row."""
    at = n
    if MAY_GAP:
        at = tl.load(order + n, mask=(gaps != 0) & (n >= 0) & (n < length), other=n)
    return at


@triton.jit
def _zeros(base, first, count, BLOCK: tl.constexpr):
    """Zeros from entry ``first`` up to entry ``count``."""
    for start in range(first, count, BLOCK):
        at = start + tl.arange(0, BLOCK)
        tl.store(base + at, tl.zeros((BLOCK,), tl.float32), mask=at < count)
