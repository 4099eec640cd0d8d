"""Triton kernel for the best labeling: forward maxima and the way back in one launch."""

from __future__ import annotations

import triton
import triton.language as tl

from cliquewise.torch._triton_common import (
    _SIZES,
    LEAST,
    NOTHING,
    _place,
    _positions,
    _row,
    _vector,
)
from cliquewise.torch._triton_kernels import _tile


@triton.jit(do_not_specialize=[size for size in _SIZES if size[:4] != "tags"])
def viterbi(
    nodes, trans, begin, end, mask, values, labels, bests, orders,
    B, T, K, nodes_b, nodes_t, trans_b, trans_t, mask_b, mask_t,
    KP: tl.constexpr, TB: tl.constexpr, F: tl.constexpr, HAS_BEGIN: tl.constexpr,
    HAS_END: tl.constexpr, HAS_MASK: tl.constexpr, SHARED: tl.constexpr, PLACED: tl.constexpr,
):  # fmt: skip
    """Best labeling of sequence ``program_id(0)`` and its score.

    ``bests`` (B, T, K) takes the forward maxima, each row shifted to maximum 0. Predecessors
    are searched again on the way back: K steps per position, not K^2 pointers. Labels are
    ``PLACED`` where their positions stand, or else without gaps; zeros elsewhere.
    """
    b = tl.program_id(0).to(tl.int64)
    order = orders + b * T
    ranks = order + B.to(tl.int64) * T
    length, gaps = _positions(
        mask + b * mask_b, mask, order, ranks, T, mask_t, 0, HAS_MASK, False, TB
    )
    nodes += b * nodes_b
    trans += b * trans_b
    bests += b * T * K
    labels += b * T
    j = tl.arange(0, KP)
    i = j[:, None]
    valid = j < K
    inside = (i < K) & (j[None, :] < K)
    value = tl.zeros((), tl.float64)
    if HAS_MASK:
        for start in range(0, T, TB):
            t = start + tl.arange(0, TB)
            outside = (t < T) & ((t >= length) | (gaps != 0))
            tl.store(labels + t, tl.zeros((TB,), tl.int64), mask=outside)
        tl.debug_barrier()
    if length > 0:
        finish = _vector(end, K, KP, F, HAS_END)
        best = _row(nodes, _place(order, 0, length, gaps, HAS_MASK), nodes_t, K, KP, F)
        best += _vector(begin, K, KP, F, HAS_BEGIN) + tl.where(length == 1, finish, 0.0)
        tl.store(bests + j, best, mask=valid)
        # Maxima ignore NaN, so NaNs are counted separately.
        wrong = tl.zeros((KP,), tl.int32)
        if SHARED:
            table = _tile(trans, K, KP, F)
            if length > 1:
                wrong += tl.sum((table != table).to(tl.int32), 0)
            for t in range(1, length):
                x = _row(nodes, _place(order, t, length, gaps, HAS_MASK), nodes_t, K, KP, F)
                x += tl.where(t == length - 1, finish, 0.0)
                high = tl.maximum(tl.max(best, 0), LEAST)
                value += high.to(tl.float64)
                # The shift of the previous row is computed together with the maxima of this row.
                best = tl.max(best[:, None] + table, 0) + (x - high)
                tl.store(bests + t * K + j, best, mask=valid)
        else:
            for t in range(1, length):
                place = _place(order, t, length, gaps, HAS_MASK)
                at = trans + (place - 1) * trans_t
                table = tl.load(at + i * K + j[None, :], mask=inside, other=NOTHING)
                wrong += tl.sum((table != table).to(tl.int32), 0)
                x = _row(nodes, place, nodes_t, K, KP, F)
                x += tl.where(t == length - 1, finish, 0.0)
                high = tl.maximum(tl.max(best, 0), LEAST)
                value += high.to(tl.float64)
                best = tl.max(best[:, None] + table, 0) + (x - high)
                tl.store(bests + t * K + j, best, mask=valid)
        tl.debug_barrier()
        row = tl.load(bests + (length - 1) * K + j, mask=valid, other=NOTHING)
        value += tl.max(row, 0).to(tl.float64)
        wrong += (row != row).to(tl.int32)
        y = tl.minimum(tl.argmax(row, 0), K - 1)
        place = _place(order, length - 1, length, gaps, HAS_MASK)
        tl.store(labels + (place if PLACED else length - 1), y.to(tl.int64))
        before = tl.load(bests + (length - 2) * K + j, mask=valid & (length > 1), other=NOTHING)
        for u in range(1, length):
            t = length - 1 - u
            row = before
            wrong += (row != row).to(tl.int32)
            before = tl.load(bests + (t - 1) * K + j, mask=valid & (t > 0), other=NOTHING)
            at = trans + (place - 1) * trans_t  # the table into the position after this one
            column = tl.load(at + j * K + y, mask=valid, other=NOTHING)
            y = tl.minimum(tl.argmax(row + column, 0), K - 1)
            place = _place(order, t, length, gaps, HAS_MASK)
            tl.store(labels + (place if PLACED else t), y.to(tl.int64))
        if tl.sum(wrong, 0) > 0:
            value = value * float("nan")
    tl.store(values + b, value.to(values.dtype.element_ty))
