"""Triton kernels of L-BFGS: all that an iteration does to vectors, in two launches.

Vectors are long (a weight per attribute and label), so that only their traffic counts: each is
read once per launch. ``control`` holds what the host decides, so that launches can be replayed.
"""

from __future__ import annotations

import triton
import triton.language as tl

from cliquewise.torch._lbfgs_messages import (
    ACCEPT,
    COEFFICIENTS,
    GRADIENT,
    LAM,
    LAST,
    SHARE,
    SLOT,
    STEP,
)

_ACCEPT, _LAST, _STEP = tl.constexpr(ACCEPT), tl.constexpr(LAST), tl.constexpr(STEP)
_SLOT, _GRADIENT = tl.constexpr(SLOT), tl.constexpr(GRADIENT)
_COEFFICIENTS = tl.constexpr(COEFFICIENTS)
# Scalar arguments would be rounded to float32.
_SHARE, _LAM = tl.constexpr(SHARE), tl.constexpr(LAM)


@triton.jit(do_not_specialize=["size"])
def advance(
    control, point, direction, before, gradient, basis, scale, weights, size,
    HISTORY: tl.constexpr, F: tl.constexpr, BLOCK: tl.constexpr,
):  # fmt: skip
    """Move to the accepted point, compute the next direction and the next weights."""
    at = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    on = at < size
    p = tl.load(point + at, mask=on, other=0.0)
    d = tl.load(direction + at, mask=on, other=0.0)
    if tl.load(control + _ACCEPT) > 0:
        last = tl.load(control + _LAST).to(F)
        slot = tl.load(control + _SLOT).to(tl.int32)
        g = tl.load(gradient + at, mask=on, other=0.0)
        change = g - tl.load(before + at, mask=on, other=0.0)
        moved = last * d
        p += moved
        tl.store(point + at, p, mask=on)
        tl.store(before + at, g, mask=on)
        if slot >= 0:
            tl.store(basis + slot.to(tl.int64) * size + at, moved, mask=on)
            tl.store(basis + (HISTORY + slot).to(tl.int64) * size + at, change, mask=on)
        d = tl.load(control + _GRADIENT).to(F) * g
        for row in range(2 * HISTORY):
            c = tl.load(control + _COEFFICIENTS + row).to(F)
            b = tl.load(basis + tl.cast(row, tl.int64) * size + at, mask=on, other=0.0)
            # Recent stores may not have completed.
            b = tl.where(row == slot, moved, b)
            b = tl.where(row == HISTORY + slot, change, b)
            d += c * b
        tl.store(direction + at, d, mask=on)
    step = tl.load(control + _STEP).to(F)
    s = tl.load(scale + at, mask=on, other=0.0)
    tl.store(weights + at, s * (p + step * d), mask=on)


@triton.jit(do_not_specialize=["size", "per_program"])
def measure(
    control, sums, weights, direction, before, gradient, basis, scale, out, size, per_program,
    HISTORY: tl.constexpr, RP: tl.constexpr, F: tl.constexpr, COLUMNS: tl.constexpr,
):  # fmt: skip
    """Compute the gradient at the new weights, and this program's part of all dot products."""
    pid = tl.program_id(0)
    share = tl.load(control + _SHARE).to(F)
    lam = tl.load(control + _LAM).to(F)
    r = tl.arange(0, RP)[:, None]
    with_gradient = tl.zeros((RP, COLUMNS), F)
    with_change = tl.zeros((RP, COLUMNS), F)
    ww = tl.zeros((COLUMNS,), F)
    raw = tl.zeros((COLUMNS,), F)
    gg = tl.zeros((COLUMNS,), F)
    gd = tl.zeros((COLUMNS,), F)
    yd = tl.zeros((COLUMNS,), F)
    yy = tl.zeros((COLUMNS,), F)
    yg = tl.zeros((COLUMNS,), F)
    first = pid.to(tl.int64) * per_program
    last = tl.minimum(first + per_program, size)
    for start in range(0, per_program, COLUMNS):
        at = first + start + tl.arange(0, COLUMNS)
        on = at < last
        w = tl.load(weights + at, mask=on, other=0.0)
        s = tl.load(scale + at, mask=on, other=0.0)
        d = tl.load(direction + at, mask=on, other=0.0)
        own = tl.load(sums + at, mask=on, other=0.0) * share + lam * w
        own = tl.where(s > 0, own, 0.0)
        g = s * own
        y = g - tl.load(before + at, mask=on, other=0.0)
        tl.store(gradient + at, g, mask=on)
        ww += w * w
        raw += own * own
        gg += g * g
        gd += g * d
        yd += y * d
        yy += y * y
        yg += y * g
        b = tl.load(
            basis + r.to(tl.int64) * size + at[None, :],
            mask=(r < 2 * HISTORY) & on[None, :], other=0.0,
        )  # fmt: skip
        with_gradient += b * g[None, :]
        with_change += b * y[None, :]
    out += pid.to(tl.int64) * (7 + 2 * RP)
    tl.store(out, tl.sum(ww, 0).to(tl.float64))
    tl.store(out + 1, tl.sum(raw, 0).to(tl.float64))
    tl.store(out + 2, tl.sum(gg, 0).to(tl.float64))
    tl.store(out + 3, tl.sum(gd, 0).to(tl.float64))
    tl.store(out + 4, tl.sum(yd, 0).to(tl.float64))
    tl.store(out + 5, tl.sum(yy, 0).to(tl.float64))
    tl.store(out + 6, tl.sum(yg, 0).to(tl.float64))
    j = tl.arange(0, RP)
    tl.store(out + 7 + j, tl.sum(with_gradient, 1).to(tl.float64))
    tl.store(out + 7 + RP + j, tl.sum(with_change, 1).to(tl.float64))
