"""One chain in the log domain, by one Triton program: slow, and right for any scores."""

from __future__ import annotations

import triton
import triton.language as tl

from cliquewise.torch._triton_common import LEAST, NOTHING, _place, _row, _vector


@triton.jit
def _log_rows(x, axis: tl.constexpr):
    """logsumexp along an axis; -inf of -inf alone."""
    high = tl.maximum(tl.max(x, axis), LEAST)
    wide = high[None, :] if axis == 0 else high[:, None]
    return tl.log(tl.sum(tl.exp(x - wide), axis)) + high


@triton.jit
def _log_pass(
    nodes, trans, begin, end, order, alphas, marginals, edges, length, gaps, K, stride_t, trans_t,
    KP: tl.constexpr, F: tl.constexpr, HAS_BEGIN: tl.constexpr, HAS_END: tl.constexpr,
    SHARED: tl.constexpr, GRADIENT: tl.constexpr, MAY_GAP: tl.constexpr,
):  # fmt: skip
    """The same in the log domain, for any scores and for one table per position."""
    j = tl.arange(0, KP)
    i = j[:, None]
    inside = (i < K) & (j[None, :] < K)
    valid = j < K
    x = _row(nodes, _place(order, 0, length, gaps, MAY_GAP), stride_t, K, KP, F)
    finish = _vector(end, K, KP, F, HAS_END)
    alpha = x + _vector(begin, K, KP, F, HAS_BEGIN) + tl.where(length == 1, finish, 0.0)
    high = tl.maximum(tl.max(alpha, 0), LEAST)
    alpha -= high
    total = high.to(tl.float64)
    tl.store(alphas + j, alpha, mask=valid)
    for t in range(1, length):
        place = _place(order, t, length, gaps, MAY_GAP)
        at = trans + (place - 1) * trans_t
        table = tl.load(at + i * K + j[None, :], mask=inside, other=NOTHING).to(F)
        x = _row(nodes, place, stride_t, K, KP, F)
        x += tl.where(t == length - 1, finish, 0.0)
        alpha = _log_rows(alpha[:, None] + table, 0) + x
        high = tl.maximum(tl.max(alpha, 0), LEAST)
        alpha -= high
        tl.store(alphas + t * K + j, alpha, mask=valid)
        total += high.to(tl.float64)
    rest = tl.sum(tl.exp(alpha), 0)
    total += tl.log(rest).to(tl.float64)
    tl.debug_barrier()
    if GRADIENT:
        # An infeasible sequence has marginals 0, not NaN; one with a NaN has nothing else.
        some = tl.where(rest == 0, 0.0, 1.0 + 0.0 * rest).to(F)
        node = tl.exp(alpha) * some / tl.maximum(rest, 1e-30)
        tl.store(marginals + (length - 1) * K + j, node, mask=valid)
        beta = tl.where(valid, 0.0, NOTHING).to(F)
        sums = tl.zeros((KP, KP), F)
        for u in range(length - 1):
            t = length - 1 - u
            place = _place(order, t, length, gaps, MAY_GAP)
            at = trans + (place - 1) * trans_t
            table = tl.load(at + i * K + j[None, :], mask=inside, other=NOTHING).to(F)
            x = _row(nodes, place, stride_t, K, KP, F)
            x += tl.where(t == length - 1, finish, 0.0)
            joint = table + (x + beta)[None, :]
            beta = _log_rows(joint, 1)
            beta -= tl.maximum(tl.max(beta, 0), LEAST)
            left = tl.load(alphas + (t - 1) * K + j, mask=valid, other=NOTHING)
            joint += left[:, None]
            share = tl.exp(joint - tl.maximum(tl.max(tl.max(joint, 1), 0), LEAST))
            share = share * some / tl.maximum(tl.sum(tl.sum(share, 1), 0), 1e-30)
            if SHARED:
                sums += share
            else:
                tl.store(edges + (place - 1) * K * K + i * K + j[None, :], share, mask=inside)
            node = tl.exp(left + beta - tl.maximum(tl.max(left + beta, 0), LEAST))
            node = node * some / tl.maximum(tl.sum(node, 0), 1e-30)
            tl.store(marginals + (t - 1) * K + j, node, mask=valid)
        if SHARED:
            tl.store(edges + i * K + j[None, :], sums, mask=inside)
    return tl.where(rest == 0, NOTHING, total)
