"""Eight numbers at a time: the vector type that the hottest loops are written in.

The compiler vectorizes long loops well and short ones (10 labels) badly: it tests for
aliasing, unrolls by 32 and leaves the rest to scalars. With `load`, `store` and `fma` a kernel
states the vector code itself, and every processor gets it in its own widest registers.

Arrays are C-contiguous, of any dimension; an offset counts elements from their start. Passing
one array and offsets, instead of slices, halves the time to compile. Where whole vectors are
read or written, rows are padded to a multiple of `LANES` (see `padded`).
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
    data = context.data_model_manager[array_type].get(builder, array, "data")
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
def prefetch(typing_context, array, offset):
    """Have the line of memory with element ``offset`` of ``array`` fetched, to be read soon."""

    def generate(context, builder, signature, arguments):
        data = context.data_model_manager[signature.args[0]].get(builder, arguments[0], "data")
        address = builder.bitcast(builder.gep(data, [arguments[1]]), cgutils.voidptr_t)
        function = cgutils.get_or_insert_function(
            builder.module,
            ir.FunctionType(ir.VoidType(), [address.type, *3 * [cgutils.int32_t]]),
            "llvm.prefetch.p0",
        )
        builder.call(function, [address, *(cgutils.int32_t(k) for k in (0, 3, 1))])
        return context.get_dummy_value()

    return types.void(array, types.intp), generate


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
    numbers = ir.Constant(ir.VectorType(count.type, LANES), list(range(LANES)))
    return builder.icmp_signed("<", numbers, _splat(builder, count))


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


def _splat(builder, value):
    undefined = ir.Constant(ir.VectorType(value.type, LANES), ir.Undefined)
    first = builder.insert_element(undefined, value, cgutils.int32_t(0))
    mask = ir.Constant(ir.VectorType(cgutils.int32_t, LANES), [0] * LANES)
    return builder.shuffle_vector(first, undefined, mask)


@intrinsic
def splat(typing_context, value):
    """The same number eight times."""

    def generate(context, builder, signature, arguments):
        return _splat(builder, arguments[0])

    return Lanes(value)(value), generate


@intrinsic
def spread(typing_context, array, offset):
    """Element ``offset`` of ``array``, eight times."""

    def generate(context, builder, signature, arguments):
        data = context.data_model_manager[signature.args[0]].get(builder, arguments[0], "data")
        return _splat(builder, builder.load(builder.gep(data, [arguments[1]])))

    return Lanes(array.dtype)(array, types.intp), generate


@intrinsic
def no_unroll(typing_context):
    """Ask that the loops of the function around this call be not unrolled further.

    They are vectorized by hand, and the compiler would unroll them at every level of calls
    again: code that is four times as long, slower to compile, and no faster.
    """

    def generate(context, builder, signature, arguments):
        builder.function.attributes.add("optsize")
        return context.get_dummy_value()

    return types.void(), generate


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
def sub(typing_context, a, b):
    """Difference, lane by lane."""
    return _operation(lambda builder, x, y: builder.fsub(x, y))(typing_context, a, b)


@intrinsic
def clamp(typing_context, a, limit):
    """What lies nearest to ``a`` between ``-limit`` and ``limit``, lane by lane."""

    def emit(builder, x, high):
        low = builder.fsub(ir.Constant(high.type, [-0.0] * LANES), high)
        x = builder.select(builder.fcmp_ordered(">", low, x), low, x)
        return builder.select(builder.fcmp_ordered("<", high, x), high, x)

    return _operation(emit)(typing_context, a, limit)


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
def any_above(typing_context, a, limit):
    """Whether one lane exceeds that of ``limit`` or is NaN."""

    def generate(context, builder, signature, arguments):
        mask = builder.fcmp_unordered(">", *arguments)
        bits = builder.bitcast(mask, ir.IntType(LANES))
        return builder.icmp_unsigned("!=", bits, ir.Constant(bits.type, 0))

    return types.boolean(a, limit), generate


@intrinsic
def keep_above(typing_context, a, limit):
    """``a`` where it exceeds ``limit``, else zero (NaN included: it becomes zero)."""
    return _operation(
        lambda builder, x, y: builder.select(
            builder.fcmp_ordered(">", x, y), x, ir.Constant(x.type, None)
        )
    )(typing_context, a, limit)


@intrinsic
def keep_bits(typing_context, a, bits):
    """Lanes of ``a`` whose bit is set in the lowest eight of ``bits``, zero elsewhere."""

    def generate(context, builder, signature, arguments):
        byte = builder.trunc(arguments[1], ir.IntType(8))
        mask = builder.bitcast(byte, ir.VectorType(ir.IntType(1), LANES))
        vector = arguments[0]
        return builder.select(mask, vector, ir.Constant(vector.type, None))

    return a(a, types.uint64), generate


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
