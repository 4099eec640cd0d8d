"""Triton kernels for chains that lie one after the other, without padding: no groups, one launch.

The bodies are those of `_triton_kernels`; what differs is where a chain begins.
"""

from __future__ import annotations

import triton
import triton.language as tl

from cliquewise.torch._triton_kernels import _finish, _scaled_pass

_SIZES = ("N", "B", "K")


@triton.jit
def _place(offsets, order):
    """Number, first token and length of the chain of this program: the longest come first."""
    b = tl.load(order + tl.program_id(0)).to(tl.int64)
    first = tl.load(offsets + b)
    length = (tl.load(offsets + b + 1) - first).to(tl.int32)
    return b, first, length


@triton.jit(do_not_specialize=_SIZES)
def ragged_scan(
    nodes, trans, offsets, order, fault, tags, values, trusts, room, N, B, K,
    KP: tl.constexpr, TB: tl.constexpr, F: tl.constexpr, LIMIT: tl.constexpr,
    ROWS: tl.constexpr, MERGED: tl.constexpr,
):  # fmt: skip
    """The scaled passes of one chain.

    ``room`` holds, for all N tokens, two kinds of scratch rows, then the marginals (N, K), then
    one table of edge marginals per chain. ``values`` takes log Z or, at the end, the
    log-likelihood of the tags; ``trusts`` whether to believe the pass.
    """
    b, first, length = _place(offsets, order)
    rows = N.to(tl.int64) * K
    alphas = room + first * K
    edges = room + 3 * rows + b * K * K
    nodes += first * K
    value = tl.zeros((), tl.float64)
    trust = length <= 0
    if length > 0:
        value, trust = _scaled_pass(
            nodes, trans, nodes, nodes, alphas, alphas + rows, alphas + 2 * rows, edges,
            length, K, K, KP, F, False, False, LIMIT, ROWS, True,
        )  # fmt: skip
    if MERGED:
        tl.debug_barrier()
        _finish(
            nodes, trans, nodes, nodes, fault, tags + first, values, alphas, edges, value,
            trust.to(tl.int32), b, rows, length, length, K, K, 0, 0, 1, KP, TB, F, ROWS,
            False, False, True, True, True,
        )  # fmt: skip
    else:
        tl.store(values + b, value)
        tl.store(trusts + b, trust.to(tl.int32))


@triton.jit(do_not_specialize=_SIZES)
def ragged_finish(
    nodes, trans, offsets, order, fault, tags, values, trusts, room, N, B, K,
    KP: tl.constexpr, TB: tl.constexpr, F: tl.constexpr, LIMIT: tl.constexpr,
    ROWS: tl.constexpr, MERGED: tl.constexpr,
):  # fmt: skip
    """What is left after `ragged_scan`: edge marginals, the tags, and chains not to be trusted."""
    b, first, length = _place(offsets, order)
    rows = N.to(tl.int64) * K
    alphas = room + first * K
    edges = room + 3 * rows + b * K * K
    _finish(
        nodes + first * K, trans, nodes, nodes, fault, tags + first, values, alphas, edges,
        tl.load(values + b), tl.load(trusts + b), b, rows, length, length, K, K, 0, 0, 1, KP, TB,
        F, ROWS, False, False, True, True, True,
    )  # fmt: skip


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
