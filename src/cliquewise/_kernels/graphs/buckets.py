"""The table of one bucket: built from its operands, and summed back into them.

See :mod:`cliquewise._kernels.graphs.elimination` for the layout. A row of the table is grown
from its fastest axes to its slowest, one operand after the other; `spread_sums` and
`spread_maxima` run that backwards. All long loops are over contiguous entries.
"""

from __future__ import annotations

import numpy as np

from cliquewise._kernels import REASSOCIATE, kernel

#: More merged axes than this no table has: each has two states or more.
MAX_AXES = 64
#: Entries of an operand whose offsets are listed.
BLOCK = 512
#: Fewer entries than this are not worth a loop of their own, nor (in the second case) one that has
#: to look up its axes.
SHORT, SHORT_UNEVEN = 8, 128


# The loops below run over slices from 0 on: an index like ``at + i`` might be negative for all
# the compiler knows, and numba's test for that costs a factor of seven.


@kernel
def _shift(out, x):
    for i in range(out.shape[0]):
        out[i] += x


@kernel
def _plus(out, src):
    for i in range(out.shape[0]):
        out[i] += src[i]


@kernel
def _copy_shifted(out, src, x):
    for i in range(out.shape[0]):
        out[i] = src[i] + x


@kernel
def raise_to(out, src):
    for i in range(out.shape[0]):
        x, y = out[i], src[i]
        out[i] = x if x > y else y


@kernel(fastmath=REASSOCIATE)
def total_of(src):
    x = 0.0
    for i in range(src.shape[0]):
        x += src[i]
    return x


@kernel
def _plus_each_twice(out, src):
    for j in range(src.shape[0]):
        x = src[j]
        out[2 * j] += x
        out[2 * j + 1] += x


@kernel
def _plus_pairs(out, src):
    for j in range(out.shape[0]):
        out[j] += src[2 * j] + src[2 * j + 1]


@kernel
def _plus_at(out, src, index):
    for i in range(out.shape[0]):
        out[i] += src[index[i]]


@kernel
def _plus_to(out, index, src):
    for i in range(src.shape[0]):
        out[index[i]] += src[i]


@kernel
def _block(lengths, strides, first, last, index):
    """Where an operand with short innermost axes has its first entries.

    Fills ``index`` with the offsets for as many axes as fit. Returns how many axes (0 where the
    innermost loops are long enough, or all so short that a list would not pay) and entries.
    """
    n = last - first
    if n < 3 or lengths[first] >= 8:
        return 0, 1
    if lengths[first] == 2 and strides[first] == 0 and lengths[first + 1] >= 32:
        return 0, 1
    axes, size = 1, lengths[first]
    while axes < n and size * lengths[first + axes] <= index.shape[0]:
        size *= lengths[first + axes]
        axes += 1
    rest = 1
    for d in range(first + axes, last):
        rest *= lengths[d]
    if rest < 4 or axes < 2:
        return 0, 1
    index[0] = 0
    size = 1
    for d in range(first, first + axes):
        for j in range(1, lengths[d]):
            for i in range(size):
                index[j * size + i] = index[i] + np.uint64(j * strides[d])
        size *= lengths[d]
    return axes, size


@kernel(helper=True)
def _innermost(lengths, strides, first, last, counter):
    """Axes first..last: how many, length and stride of the two innermost. Clears the counter."""
    n = last - first
    for d in range(n):
        counter[d] = 0
    inner, s0 = (lengths[first], strides[first]) if n > 0 else (1, 0)
    middle, s1 = (lengths[first + 1], strides[first + 1]) if n > 1 else (1, 0)
    return n, inner, s0, middle, s1


@kernel
def _add(out, base, src, start, lengths, strides, first, last, counter):
    """out[base + i] += src[start + offset(i)] for all entries i of the axes first..last."""
    n, inner, s0, middle, s1 = _innermost(lengths, strides, first, last, counter)
    at, origin = base, start
    index = counter[2 * MAX_AXES :].view(np.uint64)
    axes, size = _block(lengths, strides, first, last, index)
    while True:
        if axes > 0:
            # Short innermost axes: a list of offsets beats loops over two or three.
            _plus_at(out[at : at + size], src[origin:], index[:size])
            at += size
        elif inner == 2 and s0 == 0 and s1 == 1:
            # Binary variables: one loop over the pairs instead of many loops over two.
            _plus_each_twice(out[at : at + 2 * middle], src[origin : origin + middle])
            at += 2 * middle
        elif inner < 8 or s0 > 1:
            for j in range(middle):
                o = origin + j * s1
                for i in range(inner):
                    out[at + i] += src[o + i * s0]
                at += inner
        else:
            for j in range(middle):
                o = origin + j * s1
                if s0 == 0:
                    _shift(out[at : at + inner], src[o])
                else:
                    _plus(out[at : at + inner], src[o : o + inner])
                at += inner
        d = axes if axes > 0 else 2
        while d < n:
            counter[d] += 1
            origin += strides[first + d]
            if counter[d] < lengths[first + d]:
                break
            origin -= counter[d] * strides[first + d]
            counter[d] = 0
            d += 1
        if d >= n:
            return


@kernel
def _grow(out, base, size, src, start, lengths, strides, first, split, last, counter):
    """Copy the first ``size`` entries along the axes split..last, and add an operand to all."""
    groups = 1
    origin = start
    for d in range(split, last):
        groups *= lengths[d]
        origin += (lengths[d] - 1) * strides[d]
    even = split == first or (split == first + 1 and strides[first] == 0)
    if size < (SHORT if even else SHORT_UNEVEN):
        # All copies first, each as long as what is there, then one addition to all.
        filled, whole = size, size * groups
        while filled < whole:
            more = min(filled, whole - filled)
            _copy_shifted(out[base + filled : base + filled + more], out[base : base + more], 0.0)
            filled += more
        _add(out, base, src, start, lengths, strides, first, last, counter)
        return
    outer = counter[MAX_AXES:]
    for d in range(split, last):
        outer[d - split] = lengths[d] - 1
    # From the last copy to the first, which is the original and changes last.
    for j in range(groups - 1, -1, -1):
        block = base + j * size
        if even and j > 0:
            _copy_shifted(out[block : block + size], out[base : base + size], src[origin])
        elif even:
            _shift(out[base : base + size], src[origin])
        else:
            if j > 0:
                for k in range(size):
                    out[block + k] = out[base + k]
            _add(out, block, src, origin, lengths, strides, first, split, counter)
        d = split
        while d < last:
            outer[d - split] -= 1
            origin -= strides[d]
            if outer[d - split] >= 0:
                break
            outer[d - split] = lengths[d] - 1
            origin += lengths[d] * strides[d]
            d += 1


@kernel
def new_counter():
    """Scratch for the functions below."""
    return np.empty(2 * MAX_AXES + BLOCK, dtype=np.int64)


@kernel
def build(plan, b, tables, messages, out, base, counter):
    """The table of bucket b from ``out[base]`` on: the sum of its factors and messages."""
    width = plan.sep_sizes[b]
    for v in range(plan.cards[b]):
        row = base + v * width
        size = 1
        out[row] = 0.0
        for o in range(plan.op_offsets[b], plan.op_offsets[b + 1]):
            src = tables if plan.op_factor[o] >= 0 else messages
            start = plan.op_start[o] + v * plan.op_step[o]
            first, split, last = plan.dim_offsets[o], plan.dim_split[o], plan.dim_offsets[o + 1]
            if plan.op_size[o] > size:
                _grow(
                    out, row, size, src, start, plan.lengths, plan.strides, first, split, last,
                    counter,
                )  # fmt: skip
                size = plan.op_size[o]
            elif size == 1:
                out[row] += src[start]
            else:
                _add(out, row, src, start, plan.lengths, plan.strides, first, last, counter)


@kernel
def _sum_into(dst, start, src, base, lengths, strides, first, last, counter):
    """The adjoint of ``_add``: dst[start + offset(i)] += src[base + i]."""
    n, inner, s0, middle, s1 = _innermost(lengths, strides, first, last, counter)
    at, origin = base, start
    index = counter[2 * MAX_AXES :].view(np.uint64)
    axes, size = _block(lengths, strides, first, last, index)
    while True:
        if axes > 0:
            # Short innermost axes: a list of offsets beats loops over two or three.
            _plus_to(dst[origin:], index[:size], src[at : at + size])
            at += size
        elif inner == 2 and s0 == 0 and s1 == 1:
            _plus_pairs(dst[origin : origin + middle], src[at : at + 2 * middle])
            at += 2 * middle
        elif inner < 8 or s0 > 1:
            for j in range(middle):
                o = origin + j * s1
                if s0 == 0:
                    x = 0.0
                    for i in range(inner):
                        x += src[at + i]
                    dst[o] += x
                else:
                    for i in range(inner):
                        dst[o + i * s0] += src[at + i]
                at += inner
        else:
            for j in range(middle):
                o = origin + j * s1
                if s0 == 0:
                    dst[o] += total_of(src[at : at + inner])
                else:
                    _plus(dst[o : o + inner], src[at : at + inner])
                at += inner
        d = axes if axes > 0 else 2
        while d < n:
            counter[d] += 1
            origin += strides[first + d]
            if counter[d] < lengths[first + d]:
                break
            origin -= counter[d] * strides[first + d]
            counter[d] = 0
            d += 1
        if d >= n:
            return


@kernel
def _max_into(dst, start, src, base, lengths, strides, first, last, counter):
    """Like ``_sum_into`` with a maximum."""
    n, inner, s0, _, _ = _innermost(lengths, strides, first, last, counter)
    at, origin = base, start
    while True:
        if s0 == 1:
            raise_to(dst[origin : origin + inner], src[at : at + inner])
        else:
            for i in range(inner):
                o = origin + i * s0
                dst[o] = max(dst[o], src[at + i])
        at += inner
        d = 1
        while d < n:
            counter[d] += 1
            origin += strides[first + d]
            if counter[d] < lengths[first + d]:
                break
            origin -= counter[d] * strides[first + d]
            counter[d] = 0
            d += 1
        if d >= n:
            return


@kernel
def forget(plan, b, messages, value):
    """Set the messages of bucket b's children to a value, to collect sums or maxima in."""
    for o in range(plan.op_offsets[b], plan.op_offsets[b + 1]):
        c = plan.op_child[o]
        if c >= 0:
            m = plan.message_offsets[c]
            messages[m : m + plan.sep_sizes[c]] = value


@kernel
def _fold(table, row, size, needed):
    """Add up the first ``size`` entries of a row in groups, into its first ``needed`` ones."""
    if needed == 1:
        table[row] = total_of(table[row : row + size])
        return
    while size > needed:
        # Few long additions instead of many short ones; long ones go block by block.
        parts = size // needed
        if needed < SHORT_UNEVEN:
            parts = 2
            while size // needed % parts != 0:
                parts += 1
        size //= parts
        for block in range(row + size, row + parts * size, size):
            _plus(table[row : row + size], table[block : block + size])


@kernel
def spread_sums(plan, b, table, base, factors, separators, counter):
    """Add the sums of bucket b's table to its factors' and children's tables; destroys it."""
    width = plan.sep_sizes[b]
    for v in range(plan.cards[b]):
        row = base + v * width
        size = width
        for o in range(plan.op_offsets[b + 1] - 1, plan.op_offsets[b] - 1, -1):
            needed = plan.op_size[o]
            if needed < size:
                _fold(table, row, size, needed)
                size = needed
            dst = factors if plan.op_factor[o] >= 0 else separators
            start = plan.op_start[o] + v * plan.op_step[o]
            if size == 1:
                dst[start] += table[row]
            else:
                _sum_into(
                    dst, start, table, row, plan.lengths, plan.strides,
                    plan.dim_offsets[o], plan.dim_offsets[o + 1], counter,
                )  # fmt: skip


@kernel
def spread_maxima(plan, b, table, base, best, counter):
    """Raise the children's tables to the maxima of bucket b's table; destroys it."""
    width = plan.sep_sizes[b]
    for v in range(plan.cards[b]):
        row = base + v * width
        size = width
        for o in range(plan.op_offsets[b + 1] - 1, plan.op_offsets[b] - 1, -1):
            if plan.op_factor[o] >= 0:
                continue
            needed = plan.op_size[o]
            if needed < size:
                for block in range(row + needed, row + size, needed):
                    raise_to(table[row : row + needed], table[block : block + needed])
                size = needed
            start = plan.op_start[o] + v * plan.op_step[o]
            _max_into(
                best, start, table, row, plan.lengths, plan.strides,
                plan.dim_offsets[o], plan.dim_offsets[o + 1], counter,
            )  # fmt: skip
