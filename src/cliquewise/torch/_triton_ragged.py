"""Triton kernels for chains that lie one after the other, without padding: no groups, one launch.

The bodies are those of `_triton_kernels`; what differs is where a chain begins.
"""

from __future__ import annotations

import triton
import triton.language as tl

from cliquewise.torch._triton_common import _zeros
from cliquewise.torch._triton_kernels import _scaled_pass
from cliquewise.torch._triton_log import _log_pass

_SIZES = ("N", "B", "K")


@triton.jit
def _place(offsets, b):
    """First token and length of a chain."""
    first = tl.load(offsets + b)
    return first, (tl.load(offsets + b + 1) - first).to(tl.int32)


@triton.jit(do_not_specialize=_SIZES)
def ragged_scan(
    nodes, trans, offsets, order, values, trusts, room, tables, N, B, K,
    KP: tl.constexpr, TB: tl.constexpr, F: tl.constexpr, LIMIT: tl.constexpr,
    ROWS: tl.constexpr, SLOTS: tl.constexpr,
):  # fmt: skip
    """The scaled passes of one chain; the longest come first.

    ``room`` holds, for all N tokens, two kinds of scratch rows, then the marginals (N, K).
    ``values`` takes log Z, ``trusts`` whether to believe it, and ``tables`` transitions.
    """
    b = tl.load(order + tl.program_id(0)).to(tl.int64)
    first, length = _place(offsets, b)
    rows = N.to(tl.int64) * K
    alphas = room + first * K
    # All programs with the same slot write the same numbers.
    table = tables + (tl.program_id(0) % SLOTS) * K * K
    value = tl.zeros((), tl.float64)
    trust = length <= 0
    if length > 0:
        value, trust = _scaled_pass(
            nodes + first * K, trans, nodes, nodes, nodes, alphas, alphas + rows,
            alphas + 2 * rows, table, length, 0, K, K, KP, F, False, False, LIMIT, ROWS, True,
            False,
        )  # fmt: skip
    tl.store(values + b, value)
    tl.store(trusts + b, trust.to(tl.int32))


@triton.jit(do_not_specialize=_SIZES)
def ragged_logs(
    nodes, trans, offsets, weights, values, trusts, room, tables, N, B, K,
    KP: tl.constexpr, TB: tl.constexpr, F: tl.constexpr, HAS_WEIGHTS: tl.constexpr,
):  # fmt: skip
    """Repeat unreliable chains, among TB of them, in the log domain.

    A kernel of its own: there are hardly any, and the registers that it needs would keep the
    others from running side by side. ``tables`` holds two per program: the second takes the edge
    marginals of these chains, whose scratch rows become zeros, so that nobody counts them again.
    """
    start = tl.program_id(0) * TB
    every = start + tl.arange(0, TB)
    wrong = (tl.load(trusts + every, mask=every < B, other=1) == 0).to(tl.int32)
    j = tl.arange(0, KP)
    at = j[:, None] * K + j[None, :]
    inside = (j[:, None] < K) & (j[None, :] < K)
    own = tables + tl.program_id(0).to(tl.int64) * 2 * K * K
    sums = tl.zeros((KP, KP), F)
    if tl.sum(wrong, 0) > 0:
        rows = N.to(tl.int64) * K
        for number in range(start, tl.minimum(start + TB, B)):
            b = tl.cast(number, tl.int64)
            if tl.load(trusts + b) == 0:
                first, length = _place(offsets, b)
                alphas = room + first * K
                value = _log_pass(
                    nodes + first * K, trans, nodes, nodes, nodes, alphas, alphas + 2 * rows,
                    own, length, 0, K, K, 0, KP, F, False, False, True, True, False,
                )  # fmt: skip
                tl.store(values + b, value)
                tl.debug_barrier()
                table = tl.load(own + at, mask=inside, other=0.0)
                if HAS_WEIGHTS:
                    table *= tl.load(weights + b).to(F)
                sums += table
                _zeros(alphas, 0, length * K, TB)
                _zeros(alphas + rows, 0, length * K, TB)
                tl.debug_barrier()
    tl.store(own + K * K + at, sums, mask=inside)


@triton.jit(do_not_specialize=("N", "K"))
def token_sums(
    nodes, tags, follows, weights, room, tables, scores, N, K,
    KP: tl.constexpr, F: tl.constexpr, ROWS: tl.constexpr, STEPS: tl.constexpr,
    HAS_WEIGHTS: tl.constexpr,
):  # fmt: skip
    """Over ROWS * STEPS tokens: marginals less the tags, sums over edges, scores of the tags.

    ``follows`` tells tokens that have one before them. ``tables`` takes the sum of the products of
    both kinds of scratch rows: with the transitions they are the edge marginals.
    """
    pid = tl.program_id(0)
    rows = N.to(tl.int64) * K
    j = tl.arange(0, KP)[None, :]
    sums = tl.zeros((KP, KP), F)
    score = tl.zeros((ROWS,), tl.float64)
    for step in range(STEPS):
        t = (pid * STEPS + step) * ROWS + tl.arange(0, ROWS)
        on = t < N
        at = t.to(tl.int64) * K
        y = tl.load(tags + t, mask=on, other=0)
        own = tl.load(nodes + at + y, mask=on, other=0.0).to(tl.float64)
        marginals = room + 2 * rows + at
        if HAS_WEIGHTS:
            c = tl.load(weights + t, mask=on, other=0.0)
            score += c * own
            here = on[:, None] & (j < K)
            m = tl.load(marginals[:, None] + j, mask=here, other=0.0)
            m = tl.where(j == y[:, None], m - 1.0, m) * c.to(F)[:, None]
            tl.store(marginals[:, None] + j, m, mask=here)
        else:
            score += own
            m = tl.load(marginals + y, mask=on, other=0.0)
            tl.store(marginals + y, m - 1.0, mask=on)
        if tl.float64 != F:
            joined = on & (tl.load(follows + t, mask=on, other=0) != 0)
            here = joined[:, None] & (j < K)
            left = tl.load(room + (at - K)[:, None] + j, mask=here, other=0.0)
            right = tl.load(room + rows + at[:, None] + j, mask=here, other=0.0)
            if HAS_WEIGHTS:
                right *= c.to(F)[:, None]
            sums = tl.dot(tl.trans(left), right, sums, input_precision="tf32x3")
    i = tl.arange(0, KP)
    if tl.float64 == F:
        first = pid * STEPS * ROWS
        for t in range(first, tl.minimum(first + STEPS * ROWS, N)):
            at = tl.cast(t, tl.int64) * K
            if tl.load(follows + t) != 0:
                left = tl.load(room + at - K + i, mask=i < K, other=0.0)
                right = tl.load(room + rows + at + i, mask=i < K, other=0.0)
                if HAS_WEIGHTS:
                    right *= tl.load(weights + t).to(F)
                sums += left[:, None] * right[None, :]
    inside = (i[:, None] < K) & (j < K)
    tl.store(tables + pid.to(tl.int64) * K * K + i[:, None] * K + j, sums, mask=inside)
    tl.store(scores + pid, tl.sum(score, 0))


@triton.jit(do_not_specialize=["n_rows", "K"])
def gather_sums(
    starts, lengths, targets, ids, values, source, out, n_rows, K,
    KP: tl.constexpr, ROWS: tl.constexpr, F: tl.constexpr, UNROLL: tl.constexpr,
    HAS_IDS: tl.constexpr, HAS_VALUES: tl.constexpr,
):  # fmt: skip
    """Row ``targets[r]`` of ``out`` = the sum of the rows ``ids[starts[r] : + lengths[r]]``.

    A product with a sparse matrix, by rows; every sum has one order, always.
    """
    r = tl.program_id(0) * ROWS + tl.arange(0, ROWS)
    on = r < n_rows
    start = tl.load(starts + r, mask=on, other=0)
    length = tl.load(lengths + r, mask=on, other=0)
    longest = tl.max(length, 0)
    j = tl.arange(0, KP)[None, :]
    total = tl.zeros((ROWS, KP), F)
    for i in range(0, longest, UNROLL):
        for u in tl.static_range(UNROLL):
            here = i + u < length
            at = start + i + u
            row = at
            if HAS_IDS:
                row = tl.load(ids + at, mask=here, other=0).to(tl.int64)
            x = tl.load(source + row[:, None] * K + j, mask=here[:, None] & (j < K), other=0.0)
            if HAS_VALUES:
                x = x.to(F) * tl.load(values + at, mask=here, other=0.0).to(F)[:, None]
            total += x.to(F)
    target = tl.load(targets + r, mask=on, other=0).to(tl.int64)
    tl.store(out + target[:, None] * K + j, total, mask=on[:, None] & (j < K))
