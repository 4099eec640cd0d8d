"""Eight numbers at a time: the vector type that the hottest loops are written in.

The compiler vectorises long loops well and short ones (10 labels) badly: it tests for
aliasing, unrolls by 32 and leaves the rest to scalars. With `load`, `store` and `fma` a kernel
states the vector code itself, and every processor gets it in its own widest registers.

Arrays are 1-d or 2-d and C-contiguous, and their rows are padded to a multiple of `LANES`
(see `padded`); an offset counts elements from the start of the array.
"""

from typing import Any

import numba.extending
import numpy as np
from llvmlite import ir  # type: ignore[import-untyped]
from numba import types
from numba.core import cgutils
from numba.extending import models, register_model

from cliquewise._kernels import kernel

LANES = 8

# Callers do not pass the typing context, which a type checker cannot know.
intrinsic: Any = numba.extending.intrinsic


class Lanes(types.Type):
    """Numba's type of eight floats in registers."""

    def __init__(self, dtype):
        self.dtype = dtype
        super().__init__(name=f"Lanes({dtype})")


@register_model(Lanes)
class _LanesModel(models.PrimitiveModel):
    def __init__(self, manager, lanes):
        element = manager.lookup(lanes.dtype).get_value_type()
        super().__init__(manager, lanes, ir.VectorType(element, LANES))


def _address(context, builder, array_type, array, offset):
    data = context.make_array(array_type)(context, builder, array).data
    element = builder.gep(data, [offset])
    vector = ir.VectorType(element.type.pointee, LANES)
    return builder.bitcast(element, vector.as_pointer())


@intrinsic
def load(typing_context, array, offset):
    """Eight elements of ``array`` from ``offset`` on."""

    def generate(context, builder, signature, arguments):
        address = _address(context, builder, signature.args[0], *arguments)
        return builder.load(address, align=array.dtype.bitwidth // 8)

    return Lanes(array.dtype)(array, types.intp), generate


@intrinsic
def store(typing_context, array, offset, value):
    """Write eight elements to ``array`` from ``offset`` on."""

    def generate(context, builder, signature, arguments):
        address = _address(context, builder, signature.args[0], *arguments[:2])
        builder.store(arguments[2], address, align=array.dtype.bitwidth // 8)
        return context.get_dummy_value()

    return types.void(array, types.intp, value), generate


def _first(builder, count):
    """Mask of the lanes below ``count``."""
    integers = ir.VectorType(ir.IntType(64), LANES)
    undefined = ir.Constant(integers, ir.Undefined)
    first = builder.insert_element(undefined, count, cgutils.int32_t(0))
    spread = builder.shuffle_vector(
        first, undefined, ir.Constant(ir.VectorType(cgutils.int32_t, LANES), [0] * LANES)
    )
    return builder.icmp_signed("<", ir.Constant(integers, list(range(LANES))), spread)


@intrinsic
def load_first(typing_context, array, offset, count, fill):
    """``min(count, 8)`` elements of ``array`` from ``offset`` on, then ``fill`` (a vector)."""

    def generate(context, builder, signature, arguments):
        address = _address(context, builder, signature.args[0], *arguments[:2])
        vector, align = address.type.pointee, cgutils.int32_t(array.dtype.bitwidth // 8)
        mask = _first(builder, arguments[2])
        function = cgutils.get_or_insert_function(
            builder.module,
            ir.FunctionType(vector, [address.type, cgutils.int32_t, mask.type, vector]),
            f"llvm.masked.load.v{LANES}f{array.dtype.bitwidth}.p0",
        )
        return builder.call(function, [address, align, mask, arguments[3]])

    return Lanes(array.dtype)(array, types.intp, types.intp, fill), generate


@intrinsic
def store_first(typing_context, array, offset, count, value):
    """Write the first ``min(count, 8)`` lanes to ``array`` from ``offset`` on."""

    def generate(context, builder, signature, arguments):
        address = _address(context, builder, signature.args[0], *arguments[:2])
        align = cgutils.int32_t(array.dtype.bitwidth // 8)
        mask = _first(builder, arguments[2])
        function = cgutils.get_or_insert_function(
            builder.module,
            ir.FunctionType(
                ir.VoidType(), [arguments[3].type, address.type, cgutils.int32_t, mask.type]
            ),
            f"llvm.masked.store.v{LANES}f{array.dtype.bitwidth}.p0",
        )
        builder.call(function, [arguments[3], address, align, mask])
        return context.get_dummy_value()

    return types.void(array, types.intp, types.intp, value), generate


@intrinsic
def splat(typing_context, value):
    """The same number eight times."""

    def generate(context, builder, signature, arguments):
        vector = ir.VectorType(arguments[0].type, LANES)
        undefined = ir.Constant(vector, ir.Undefined)
        first = builder.insert_element(undefined, arguments[0], cgutils.int32_t(0))
        mask = ir.Constant(ir.VectorType(cgutils.int32_t, LANES), [0] * LANES)
        return builder.shuffle_vector(first, undefined, mask)

    return Lanes(value)(value), generate


def _operation(emit):
    def typer(typing_context, a, b):
        def generate(context, builder, signature, arguments):
            return emit(builder, *arguments)

        return a(a, b), generate

    return typer


@intrinsic
def add(typing_context, a, b):
    """Sum, lane by lane."""
    return _operation(lambda builder, x, y: builder.fadd(x, y))(typing_context, a, b)


@intrinsic
def mul(typing_context, a, b):
    """Product, lane by lane."""
    return _operation(lambda builder, x, y: builder.fmul(x, y))(typing_context, a, b)


@intrinsic
def maximum(typing_context, a, b):
    """The greater, lane by lane; ``b`` where ``a`` is NaN."""
    return _operation(lambda builder, x, y: builder.select(builder.fcmp_ordered(">", x, y), x, y))(
        typing_context, a, b
    )


@intrinsic
def keep_above(typing_context, a, limit):
    """``a`` where it exceeds ``limit``, else zero (NaN included: it becomes zero)."""
    return _operation(
        lambda builder, x, y: builder.select(
            builder.fcmp_ordered(">", x, y), x, ir.Constant(x.type, None)
        )
    )(typing_context, a, limit)


@intrinsic
def fma(typing_context, a, b, c):
    """``a * b + c``, in one rounding where the processor can."""

    def generate(context, builder, signature, arguments):
        x, y, z = arguments
        product = builder.fmul(x, y, flags=["contract"])
        return builder.fadd(product, z, flags=["contract"])

    return a(a, b, c), generate


@intrinsic
def lane_sum(typing_context, a):
    """Sum of the eight lanes."""
    return _reduction(a, lambda builder, x, y: builder.fadd(x, y))


@intrinsic
def lane_max(typing_context, a):
    """Greatest of the eight lanes."""
    return _reduction(a, lambda b, x, y: b.select(b.fcmp_ordered(">", x, y), x, y))


def _reduction(a, emit):
    def generate(context, builder, signature, arguments):
        (value,) = arguments
        width = LANES
        while width > 1:
            width //= 2
            halves = [
                builder.shuffle_vector(
                    value,
                    value,
                    ir.Constant(
                        ir.VectorType(cgutils.int32_t, width),
                        list(range(start, start + width)),
                    ),
                )
                for start in (0, width)
            ]
            value = emit(builder, *halves)
        return builder.extract_element(value, cgutils.int32_t(0))

    return a.dtype(a), generate


@kernel
def padded(n):
    """Smallest multiple of `LANES` that is at least ``n`` (and at least one vector)."""
    return max((n + LANES - 1) // LANES, 1) * LANES


@kernel
def vector_matrix(vector, start, matrix, n_rows, out, out_start):
    """``out = vector @ matrix`` for a padded, row-wise matrix.

    Parameters
    ----------
    vector : array, 1-d
        The vector is its elements ``start : start + n_rows``; rows up to the next
        multiple of four are read too, and must be finite (the matrix has zeros there).
    matrix : array of shape (padded, padded)
        Zero outside its first ``n_rows`` rows.
    out : array, 1-d
        Elements ``out_start : out_start + padded`` are written.
    """
    width = matrix.shape[1]
    zero = splat(matrix.dtype.type(0))
    for j in range(0, width, LANES):
        a = b = c = d = zero
        # Four sums: one alone would wait four cycles for its own last addition.
        for i in range(0, n_rows, 4):
            at = i * width + j
            a = fma(splat(vector[start + i]), load(matrix, at), a)
            b = fma(splat(vector[start + i + 1]), load(matrix, at + width), b)
            c = fma(splat(vector[start + i + 2]), load(matrix, at + 2 * width), c)
            d = fma(splat(vector[start + i + 3]), load(matrix, at + 3 * width), d)
        store(out, out_start + j, add(add(a, b), add(c, d)))


@kernel
def add_outer_products(left, right, n, n_rows, out):
    """``out += left[:n].T @ right[:n]`` for padded matrices; rows past ``n_rows`` are free."""
    width = out.shape[1]
    for i in range(0, n_rows, 4):
        for j in range(0, width, LANES):
            at = i * width + j
            a = load(out, at)
            b = load(out, at + width)
            c = load(out, at + 2 * width)
            d = load(out, at + 3 * width)
            for t in range(n):
                row = load(right, t * width + j)
                a = fma(splat(left[t, i]), row, a)
                b = fma(splat(left[t, i + 1]), row, b)
                c = fma(splat(left[t, i + 2]), row, c)
                d = fma(splat(left[t, i + 3]), row, d)
            store(out, at, a)
            store(out, at + width, b)
            store(out, at + 2 * width, c)
            store(out, at + 3 * width, d)


@kernel
def aligned_zeros(size, like):
    """Zeros of the type of ``like`` from a 64-byte line on, so that no vector straddles two."""
    buffer = np.zeros(size + 64 // like.itemsize, like.dtype)
    start = (-buffer.ctypes.data % 64) // like.itemsize
    return buffer[start : start + size]
