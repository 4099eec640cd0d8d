"""Triton kernel for gradients: weighted sums of the marginals of all chains."""

from __future__ import annotations

import triton
import triton.language as tl


@triton.jit(do_not_specialize=["B", "T", "K", "weights_b", "n_node_programs", "scale"])
def weighted_sums(
    weights, lengths, room, out_nodes, out_trans, out_begin, out_end,
    B, T, K, weights_b, n_node_programs, scale,
    HAS_BEGIN: tl.constexpr, HAS_END: tl.constexpr, SHARED: tl.constexpr,
    BLOCK: tl.constexpr, ROWS: tl.constexpr, COLUMNS: tl.constexpr, MAY_GAP: tl.constexpr,
):  # fmt: skip
    """Marginals times the weights of their sequences, and the sums of these over sequences.

    The first programs scale the node marginals; the others each sum one block of columns of
    the transitions (scale them, if there is one table per position), begin and end scores.
    """
    pid = tl.program_id(0)
    rows_size = B.to(tl.int64) * T * K
    marginals = room + 2 * rows_size
    edges = room + 3 * rows_size
    if pid < n_node_programs:
        at = pid.to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
        on = at < rows_size
        b = at // (T * K)
        g = tl.load(weights + b * weights_b, mask=on, other=0.0)
        g *= scale
        source, known = at, on
        if MAY_GAP:
            # Marginals have no gaps; those of masked positions are 0.
            gaps = tl.load(lengths + 2 * B + b, mask=on, other=0)
            t = (at - b * T * K).to(tl.int32) // K
            ranks = lengths + (3 + T).to(tl.int64) * B
            rank = tl.load(ranks + b * T + t, mask=on & (gaps != 0), other=t)
            source = at + (rank - t) * K
            known = on & (rank >= 0)
        tl.store(out_nodes + at, g * tl.load(marginals + source, mask=known, other=0.0), mask=on)
    else:
        size = K * K
        c = (pid - n_node_programs) * COLUMNS + tl.arange(0, COLUMNS)
        total = tl.zeros((COLUMNS,), out_trans.dtype.element_ty)
        for start in range(0, B, ROWS):
            rows = (start + tl.arange(0, ROWS)).to(tl.int64)
            here = rows < B
            g = tl.load(weights + rows * weights_b, mask=here, other=0.0)[:, None]
            if SHARED:
                on = here[:, None] & (c < size)[None, :]
                e = tl.load(edges + rows[:, None] * size + c[None, :], mask=on, other=0.0)
                total += tl.sum(g * e, 0)
            if HAS_BEGIN:
                on = here[:, None] & ((c >= size) & (c < size + K))[None, :]
                at = rows[:, None] * T * K + (c - size)[None, :]
                total += tl.sum(g * tl.load(marginals + at, mask=on, other=0.0), 0)
            if HAS_END:
                n = tl.load(lengths + rows, mask=here, other=0)
                on = (here & (n > 0))[:, None] & ((c >= size + K) & (c < size + 2 * K))[None, :]
                at = (rows * T + n - 1)[:, None] * K + (c - size - K)[None, :]
                total += tl.sum(g * tl.load(marginals + at, mask=on, other=0.0), 0)
        total *= scale
        if SHARED:
            tl.store(out_trans + c, total, mask=c < size)
        if HAS_BEGIN:
            tl.store(out_begin + c - size, total, mask=(c >= size) & (c < size + K))
        if HAS_END:
            tl.store(out_end + c - size - K, total, mask=(c >= size + K) & (c < size + 2 * K))
