"""Triton kernels for chains: one program per sequence, the whole scan in one launch.

The scan works in the linear domain, rescaled at every position, with the transitions in
registers. All exponentials are taken before it, many positions at once. Where the scaled
numbers could have lost mass (see `cliquewise._kernels.chain.sums`), the sequence is done again in
the log domain by the same program.

`rows` arguments: ``stride_b`` and ``stride_t`` are the strides over sequences and positions;
labels are contiguous. ``KP`` is K rounded up to a power of two.
"""

from __future__ import annotations

import triton
import triton.language as tl

from cliquewise.torch._triton_common import _SIZES, LEAST, NOTHING, _place, _positions, _zeros
from cliquewise.torch._triton_log import _log_pass


@triton.jit
def _tile(trans, K, KP: tl.constexpr, F: tl.constexpr):
    """Transitions; -inf past the labels."""
    i = tl.arange(0, KP)[:, None]
    j = tl.arange(0, KP)[None, :]
    return tl.load(trans + i * K + j, mask=(i < K) & (j < K), other=NOTHING).to(F)


@triton.jit
def _exponentiate(
    nodes, begin, end, order, psis, length, gaps, K, stride_t,
    KP: tl.constexpr, F: tl.constexpr, HAS_BEGIN: tl.constexpr, HAS_END: tl.constexpr,
    ROWS: tl.constexpr, MAY_GAP: tl.constexpr,
):  # fmt: skip
    """psis = exp(scores - their maximum) at every position; the sum of the maxima."""
    j = tl.arange(0, KP)[None, :]
    total = tl.zeros((ROWS,), tl.float64)
    for start in range(0, length, ROWS):
        t = start + tl.arange(0, ROWS)
        here = (t < length)[:, None] & (j < K)
        at = _place(order, t, length, gaps, MAY_GAP)
        x = tl.load(nodes + at[:, None] * stride_t + j, mask=here, other=NOTHING).to(F)
        if HAS_BEGIN:
            first = here & (t == 0)[:, None]
            x += tl.load(begin + j + tl.zeros_like(t)[:, None], mask=first, other=0.0).to(F)
        if HAS_END:
            last = here & (t == length - 1)[:, None]
            x += tl.load(end + j + tl.zeros_like(t)[:, None], mask=last, other=0.0).to(F)
        high = tl.maximum(tl.max(x, 1), LEAST)
        tl.store(psis + t[:, None] * K + j, tl.exp(x - high[:, None]), mask=here)
        total += tl.where(t < length, high, 0.0).to(tl.float64)
    return tl.sum(total, 0)


@triton.jit
def _kept(base, t, length, K, KP: tl.constexpr):
    """A row of scratch; zeros outside the sequence."""
    j = tl.arange(0, KP)
    return tl.load(base + t * K + j, mask=(j < K) & (t >= 0) & (t < length), other=0.0)


@triton.jit
def _scaled_pass(
    nodes, trans, begin, end, order, alphas, rights, marginals, edges, length, gaps, K, stride_t,
    KP: tl.constexpr, F: tl.constexpr, HAS_BEGIN: tl.constexpr, HAS_END: tl.constexpr,
    LIMIT: tl.constexpr, ROWS: tl.constexpr, GRADIENT: tl.constexpr, MAY_GAP: tl.constexpr,
):  # fmt: skip
    """Compute log Z of one sequence and whether it is reliable; marginals, and rows for edges.

    Every vector is rescaled one step late, so that the sum for the scale is taken while the
    product with the transitions is; and what a step loads is used after its product.
    """
    i = tl.arange(0, KP)[:, None]
    j = tl.arange(0, KP)
    valid = j < K
    inside = (i < K) & valid[None, :]
    total = _exponentiate(
        nodes, begin, end, order, rights, length, gaps, K, stride_t, KP, F, HAS_BEGIN, HAS_END,
        ROWS, MAY_GAP,
    )  # fmt: skip
    table = _tile(trans, K, KP, F)
    shift = tl.maximum(tl.max(tl.max(table, 1), 0), LEAST)
    table = tl.exp(table - shift)
    # Transpose through memory, so both tiles have the same layout.
    tl.store(edges + j[None, :] * K + i, table, mask=inside)
    total += shift.to(tl.float64) * (length - 1)
    tl.debug_barrier()
    alpha = _kept(rights, 0, length, K, KP)
    tl.store(alphas + j, alpha, mask=valid)
    least = tl.full((), 1.0, F)
    for t in range(1, length):
        psi = _kept(rights, t, length, K, KP)
        s = tl.sum(alpha, 0)
        alpha = tl.sum(alpha[:, None] * table, 0) * (psi * (1.0 / s))
        tl.store(alphas + t * K + j, alpha, mask=valid)
        total += tl.log(s).to(tl.float64)
        least = tl.minimum(least, s)
    s = tl.sum(alpha, 0)
    total += tl.log(s).to(tl.float64)
    least = tl.minimum(least, s)

    # Backward: beta * r is scaled so that sum alpha beta r = 1.
    table = tl.load(edges + i * K + j[None, :], mask=inside, other=0.0)
    last = length - 1
    r = 1.0 / s
    if GRADIENT:
        tl.store(marginals + last * K + j, alpha * r, mask=valid)
    bound = tl.where(valid, r, 0.0)
    right = _kept(rights, last, length, K, KP)
    tl.debug_barrier()
    for u in range(1, length):
        t = last - u
        a = _kept(alphas, t, length, K, KP)
        psi = _kept(rights, t, length, K, KP)
        beta = tl.sum(right[:, None] * table, 0) * r
        joint = a * beta
        z = tl.sum(joint, 0)
        scale = 1.0 / z
        bound = tl.maximum(bound, beta * scale)
        # Minima and maxima ignore NaN; comparisons do not.
        least = tl.minimum(least, tl.where(z > 0, 1.0, 0.0))
        if GRADIENT:
            tl.store(marginals + t * K + j, joint * scale, mask=valid)
            tl.store(rights + (t + 1) * K + j, right * (r * scale), mask=valid)
        right = psi * beta
        r = scale
    trust = (tl.max(bound, 0) < LIMIT) & (least > 0) & (total > LEAST) & (total < -LEAST)
    return total, trust


@triton.jit
def _edge_sums(
    alphas, rights, trans, edges, length, K,
    KP: tl.constexpr, F: tl.constexpr, ROWS: tl.constexpr,
):  # fmt: skip
    """edges = sum over t of alpha_{t-1} (outer) right_t, times the transitions."""
    j = tl.arange(0, KP)
    sums = tl.zeros((KP, KP), F)
    if tl.float64 == F:
        for t in range(1, length):
            left = _kept(alphas, t - 1, length, K, KP)
            sums += left[:, None] * _kept(rights, t, length, K, KP)[None, :]
    else:
        for start in range(1, length, ROWS):
            t = start + tl.arange(0, ROWS)
            here = (t < length)[:, None] & (j < K)[None, :]
            left = tl.load(alphas + (t - 1)[:, None] * K + j[None, :], mask=here, other=0.0)
            right = tl.load(rights + t[:, None] * K + j[None, :], mask=here, other=0.0)
            sums = tl.dot(tl.trans(left), right, sums, input_precision="tf32x3")
    table = _tile(trans, K, KP, F)
    shift = tl.maximum(tl.max(tl.max(table, 1), 0), LEAST)
    inside = (j[:, None] < K) & (j[None, :] < K)
    tl.store(edges + j[:, None] * K + j[None, :], sums * tl.exp(table - shift), mask=inside)


@triton.jit
def _gold(
    nodes, trans, begin, end, fault, tags, order, marginals, edges, length, gaps, K, stride_t,
    trans_t, tags_t,
    HAS_BEGIN: tl.constexpr, HAS_END: tl.constexpr, SHARED: tl.constexpr,
    GRADIENT: tl.constexpr, TB: tl.constexpr, MAY_GAP: tl.constexpr,
):  # fmt: skip
    """Return the score of the tags and subtract them from the marginals; NaN for invalid tags."""
    score = tl.zeros((TB,), tl.float64)
    wrong = tl.zeros((TB,), tl.int32)
    for start in range(0, length, TB):
        t = start + tl.arange(0, TB)
        on = t < length
        place = _place(order, t, length, gaps, MAY_GAP)
        y = tl.load(tags + place * tags_t, mask=on, other=0)
        known = (y >= 0) & (y < K)
        wrong += (on & (known == 0)).to(tl.int32)
        y = tl.where(known, y, 0)
        score += tl.load(nodes + place * stride_t + y, mask=on, other=0.0).to(tl.float64)
        joined = on & (t > 0)
        left = _place(order, t - 1, length, gaps, MAY_GAP)
        before = tl.load(tags + left * tags_t, mask=joined, other=0)
        before = tl.where((before >= 0) & (before < K), before, 0)
        pair = before * K + y
        step = trans + (place - 1) * trans_t + pair
        score += tl.load(step, mask=joined, other=0.0).to(tl.float64)
        if HAS_BEGIN:
            score += tl.load(begin + y, mask=t == 0, other=0.0).to(tl.float64)
        if HAS_END:
            score += tl.load(end + y, mask=t == length - 1, other=0.0).to(tl.float64)
        if GRADIENT:
            own = tl.load(marginals + t * K + y, mask=on, other=0.0)
            tl.store(marginals + t * K + y, own - 1.0, mask=on)
            # Every addend is -1, so the order of the additions does not matter.
            minus = tl.full((TB,), -1.0, edges.dtype.element_ty)
            if SHARED:
                tl.atomic_add(edges + pair, minus, mask=joined)
            else:
                tl.atomic_add(edges + (place - 1) * K * K + pair, minus, mask=joined)
    total = tl.sum(score, 0)
    if tl.sum(wrong, 0) > 0:
        tl.store(fault, 2)
        total = total * float("nan")
    return total


@triton.jit
def _finish(
    nodes, trans, begin, end, fault, tags, order, values, alphas, edges, value, trust, b, rows,
    length, gaps, T, K, nodes_t, trans_t, tags_t,
    KP: tl.constexpr, TB: tl.constexpr, F: tl.constexpr, ROWS: tl.constexpr,
    HAS_BEGIN: tl.constexpr, HAS_END: tl.constexpr, HAS_TAGS: tl.constexpr,
    SHARED: tl.constexpr, GRADIENT: tl.constexpr, MAY_GAP: tl.constexpr,
):  # fmt: skip
    """Edge marginals, or the log domain, and the tags, of one sequence."""
    marginals = alphas + 2 * rows
    if GRADIENT:
        _zeros(marginals, length * K, T * K, TB)
        if SHARED:
            _zeros(edges, tl.where(length > 0, K * K, 0), K * K, TB)
        else:
            # Tables stay at their original positions, with gaps in between.
            first = tl.where(gaps != 0, 0, tl.maximum(length - 1, 0) * K * K)
            _zeros(edges, first, (T - 1) * K * K, TB)
            tl.debug_barrier()
    if length > 0:
        if trust == 0:
            value = _log_pass(
                nodes, trans, begin, end, order, alphas, marginals, edges, length, gaps, K,
                nodes_t, trans_t, KP, F, HAS_BEGIN, HAS_END, SHARED, GRADIENT, MAY_GAP,
            )  # fmt: skip
        elif GRADIENT:
            _edge_sums(alphas, alphas + rows, trans, edges, length, K, KP, F, ROWS)
    if GRADIENT:
        tl.debug_barrier()
    if HAS_TAGS:
        score = _gold(
            nodes, trans, begin, end, fault, tags, order, marginals, edges, length, gaps, K,
            nodes_t, trans_t, tags_t, HAS_BEGIN, HAS_END, SHARED, GRADIENT, TB, MAY_GAP,
        )  # fmt: skip
        value = score - value
    tl.store(values + b, value)


@triton.jit(do_not_specialize=_SIZES)
def scan(
    nodes, trans, begin, end, mask, fault, tags, values, exact, lengths, room,
    B, T, K, nodes_b, nodes_t, trans_b, trans_t, mask_b, mask_t, tags_b, tags_t,
    KP: tl.constexpr, TB: tl.constexpr, F: tl.constexpr, LIMIT: tl.constexpr,
    ROWS: tl.constexpr, HAS_BEGIN: tl.constexpr, HAS_END: tl.constexpr,
    HAS_MASK: tl.constexpr, HAS_TAGS: tl.constexpr, SHARED: tl.constexpr,
    GRADIENT: tl.constexpr, MERGED: tl.constexpr, MAY_GAP: tl.constexpr,
):  # fmt: skip
    """The scaled passes of sequence ``program_id(0)``.

    ``room`` holds, for all sequences, two kinds of scratch rows, then the marginals (B, T, K)
    and the edge marginals; ``exact`` takes log Z, and ``lengths`` the lengths, whether to trust
    the pass, whether there are gaps, and of rows with gaps what `_positions` finds. In ``room``
    there are none (but the tables of pairs are where they were given).
    """
    b = tl.program_id(0).to(tl.int64)
    tags += b * tags_b
    order = lengths + 3 * B + b * T
    ranks = order + B.to(tl.int64) * T
    length, gaps = _positions(
        mask + b * mask_b, tags, order, ranks, T, mask_t, tags_t, HAS_MASK, HAS_TAGS, TB
    )
    rows = B.to(tl.int64) * T * K
    alphas = room + b * T * K
    tl.store(lengths + b, length)
    tl.store(lengths + 2 * B + b, gaps)
    nodes += b * nodes_b
    edges = room + 3 * rows + b * K * K
    value = tl.zeros((), tl.float64)
    trust = length <= 0
    if length > 0:
        value, trust = _scaled_pass(
            nodes, trans, begin, end, order, alphas, alphas + rows, alphas + 2 * rows, edges,
            length, gaps, K, nodes_t, KP, F, HAS_BEGIN, HAS_END, LIMIT, ROWS, GRADIENT, MAY_GAP,
        )  # fmt: skip
    if MERGED:
        tl.debug_barrier()
        _finish(
            nodes, trans, begin, end, fault, tags, order, values, alphas, edges, value,
            trust.to(tl.int32), b, rows, length, gaps, T, K, nodes_t, trans_t, tags_t, KP, TB, F,
            ROWS, HAS_BEGIN, HAS_END, HAS_TAGS, SHARED, GRADIENT, MAY_GAP,
        )  # fmt: skip
    else:
        tl.store(exact + b, value)
        tl.store(lengths + B + b, trust.to(tl.int32))


@triton.jit(do_not_specialize=_SIZES)
def finish(
    nodes, trans, begin, end, mask, fault, tags, values, exact, lengths, room,
    B, T, K, nodes_b, nodes_t, trans_b, trans_t, mask_b, mask_t, tags_b, tags_t,
    KP: tl.constexpr, TB: tl.constexpr, F: tl.constexpr, LIMIT: tl.constexpr,
    ROWS: tl.constexpr, HAS_BEGIN: tl.constexpr, HAS_END: tl.constexpr,
    HAS_MASK: tl.constexpr, HAS_TAGS: tl.constexpr, SHARED: tl.constexpr,
    GRADIENT: tl.constexpr, MERGED: tl.constexpr, MAY_GAP: tl.constexpr,
):  # fmt: skip
    """Finish after `scan`: edge marginals, tags, and sequences that need the log domain.

    These, and all with one table per position, are done in the log domain. Without tags
    ``values`` is log Z; with tags it is their log-likelihood, and the marginals and edges are
    those of the model minus those of the tags.
    """
    b = tl.program_id(0).to(tl.int64)
    rows = B.to(tl.int64) * T * K
    alphas = room + b * T * K
    nodes += b * nodes_b
    trans += b * trans_b
    tags += b * tags_b
    order = lengths + 3 * B + b * T
    ranks = order + B.to(tl.int64) * T
    if SHARED:
        edges = room + 3 * rows + b * K * K
        length = tl.load(lengths + b)
        gaps = tl.load(lengths + 2 * B + b)
        value = tl.load(exact + b)
        trust = tl.load(lengths + B + b)
    else:
        edges = room + 3 * rows + b * (T - 1) * K * K
        length, gaps = _positions(
            mask + b * mask_b, tags, order, ranks, T, mask_t, tags_t, HAS_MASK, HAS_TAGS, TB
        )
        tl.store(lengths + b, length)
        tl.store(lengths + 2 * B + b, gaps)
        value = tl.zeros((), tl.float64)
        trust = 0
    _finish(
        nodes, trans, begin, end, fault, tags, order, values, alphas, edges, value, trust, b, rows,
        length, gaps, T, K, nodes_t, trans_t, tags_t, KP, TB, F, ROWS, HAS_BEGIN, HAS_END, HAS_TAGS,
        SHARED, GRADIENT, MAY_GAP,
    )  # fmt: skip
