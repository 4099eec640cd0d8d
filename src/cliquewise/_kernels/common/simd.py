"""Building blocks of kernels that are written with vectors of eight floats.

The vectors and their operations come from :mod:`cliquewise._kernels.llvm`, and can be imported from
here.
"""

import numpy as np

from cliquewise._kernels import kernel
from cliquewise._kernels.llvm import (
    LANES,
    add,
    any_above,
    clamp,
    fma,
    keep_above,
    keep_bits,
    lane_max,
    lane_sum,
    load,
    load_first,
    maximum,
    mul,
    no_unroll,
    prefetch,
    splat,
    spread,
    store,
    store_first,
    sub,
)

__all__ = [
    "LANES",
    "add",
    "aligned_zeros",
    "any_above",
    "clamp",
    "copy",
    "fma",
    "keep_above",
    "keep_bits",
    "lane_max",
    "lane_sum",
    "load",
    "load_first",
    "maximum",
    "mul",
    "no_unroll",
    "padded",
    "prefetch",
    "splat",
    "spread",
    "store",
    "store_first",
    "sub",
    "sum_outer_products",
    "vector_matrix",
]


@kernel(inline=True)
def padded(n):
    """Smallest multiple of `LANES` that is at least ``n`` (and at least one vector)."""
    return max((n + LANES - 1) // LANES, 1) * LANES


@kernel
def copy(source, target):
    """Copy all of ``source`` to the start of ``target``; both C-contiguous.

    An assignment ``target[:] = source`` costs two seconds of compiling, for the sake of the
    text of an error message about shapes.
    """
    no_unroll()
    zero = splat(source.dtype.type(0))
    for at in range(0, source.size, LANES):
        store_first(target, at, source.size - at, load_first(source, at, source.size - at, zero))


@kernel
def vector_matrix(vectors, start, tables, table, n_rows, out):
    """``vectors[out] = vectors[start] @ tables[table]`` for a padded, row-wise matrix.

    Parameters
    ----------
    vectors : array, 1-d
        The vector is its elements ``start : start + n_rows``; rows up to the next
        multiple of four are read too, and must be finite (the matrix has zeros there).
        Elements ``out : out + W`` are written.
    tables : array of shape (n, W, W)
        Of which ``table`` is the matrix, zero outside its first ``n_rows`` rows.
    """
    no_unroll()
    width = tables.shape[2]
    zero = splat(tables.dtype.type(0))
    for j in range(0, width, LANES):
        a = b = c = d = zero
        # Four sums: one alone would wait four cycles for its own last addition.
        for i in range(0, n_rows, 4):
            at, left = (table * width + i) * width + j, start + i
            a = fma(spread(vectors, left), load(tables, at), a)
            b = fma(spread(vectors, left + 1), load(tables, at + width), b)
            c = fma(spread(vectors, left + 2), load(tables, at + 2 * width), c)
            d = fma(spread(vectors, left + 3), load(tables, at + 3 * width), d)
        store(vectors, out + j, add(add(a, b), add(c, d)))


@kernel
def sum_outer_products(vectors, left, right, n, n_rows, tables, table):
    """``tables[table] = L.T @ R`` of two matrices of ``n`` padded rows each.

    Their rows begin at ``left`` and ``right`` in ``vectors``; rows past ``n_rows`` of the
    result are free.
    """
    no_unroll()
    width = tables.shape[2]
    for i in range(0, n_rows, 4):
        for j in range(0, width, LANES):
            a = b = c = d = splat(tables.dtype.type(0))
            for t in range(0, n * width, width):
                row, at = load(vectors, right + t + j), left + t + i
                a = fma(spread(vectors, at), row, a)
                b = fma(spread(vectors, at + 1), row, b)
                c = fma(spread(vectors, at + 2), row, c)
                d = fma(spread(vectors, at + 3), row, d)
            at = (table * width + i) * width + j
            store(tables, at, a)
            store(tables, at + width, b)
            store(tables, at + 2 * width, c)
            store(tables, at + 3 * width, d)


@kernel
def aligned_zeros(size, like):
    """Zeros of the type of ``like`` from a 64-byte line on, so that no vector straddles two."""
    buffer = np.zeros(size + 64 // like.itemsize, like.dtype)
    start = (-buffer.ctypes.data % 64) // like.itemsize
    return buffer[start : start + size]
