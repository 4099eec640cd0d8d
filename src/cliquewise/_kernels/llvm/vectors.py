"""Intrinsics for vectors of eight floats.

LLVM vectorizes long loops well and short ones (10 labels) badly: it tests for aliasing, unrolls by
32 and leaves the rest to scalar code. With `load`, `store` and `fma` a kernel contains the vector
code itself, and LLVM maps it to the widest registers of the processor.

Arrays are C-contiguous, of any dimension; an offset counts elements from their start. One array
and offsets, in place of slices, halve the time to compile. Where whole vectors are read or written,
rows are padded to a multiple of `LANES`.
"""

from typing import Any

import numba.extending
from llvmlite import ir  # type: ignore[import-untyped]
from numba import types
from numba.core import cgutils
from numba.extending import models, register_model

#: Floats in a vector: one AVX-512 register of float64, two of AVX2, four of NEON.
LANES = 8

# Callers do not pass the typing context, which a type checker cannot see.
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


def _element(context, builder, array_type, array, offset):
    """Return address and type of one element, without relying on typed pointers."""
    data = context.data_model_manager[array_type].get(builder, array, "data")
    element = context.get_data_type(array_type.dtype)
    return builder.gep(data, [offset], source_etype=element), element


def _vector(context, builder, array_type, array, offset):
    """Return address and type of eight elements."""
    address, element = _element(context, builder, array_type, array, offset)
    vector = ir.VectorType(element, LANES)
    return builder.bitcast(address, vector.as_pointer()), vector


@intrinsic
def load(typing_context, array, offset):
    """Read eight elements of ``array`` from ``offset`` on."""

    def generate(context, builder, signature, arguments):
        address, vector = _vector(context, builder, signature.args[0], *arguments)
        return builder.load(address, align=array.dtype.bitwidth // 8, typ=vector)

    return Lanes(array.dtype)(array, types.intp), generate


@intrinsic
def prefetch(typing_context, array, offset):
    """Prefetch the cache line with element ``offset`` of ``array``."""

    def generate(context, builder, signature, arguments):
        element, _ = _element(context, builder, signature.args[0], *arguments)
        address = builder.bitcast(element, cgutils.voidptr_t)
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
        address, _ = _vector(context, builder, signature.args[0], *arguments[:2])
        builder.store(arguments[2], address, align=array.dtype.bitwidth // 8)
        return context.get_dummy_value()

    return types.void(array, types.intp, value), generate


def _first(builder, count):
    """Mask of the lanes below ``count``."""
    numbers = ir.Constant(ir.VectorType(count.type, LANES), list(range(LANES)))
    return builder.icmp_signed("<", numbers, _splat(builder, count))


@intrinsic
def load_first(typing_context, array, offset, count, fill):
    """Read ``min(count, 8)`` elements from ``offset`` on; the other lanes are those of ``fill``."""

    def generate(context, builder, signature, arguments):
        address, vector = _vector(context, builder, signature.args[0], *arguments[:2])
        align = cgutils.int32_t(array.dtype.bitwidth // 8)
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
        address, _ = _vector(context, builder, signature.args[0], *arguments[:2])
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
    """Return a vector of eight equal numbers."""

    def generate(context, builder, signature, arguments):
        return _splat(builder, arguments[0])

    return Lanes(value)(value), generate


@intrinsic
def spread(typing_context, array, offset):
    """Return a vector of eight copies of element ``offset`` of ``array``."""

    def generate(context, builder, signature, arguments):
        address, element = _element(context, builder, signature.args[0], *arguments)
        return _splat(builder, builder.load(address, typ=element))

    return Lanes(array.dtype)(array, types.intp), generate


@intrinsic
def no_unroll(typing_context):
    """Keep LLVM from unrolling the loops of the calling function.

    They are vectorized by hand. LLVM would unroll them again at every level of calls, which makes
    code longer and slower to compile, but not faster.
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
    """Add lane by lane."""
    return _operation(lambda builder, x, y: builder.fadd(x, y))(typing_context, a, b)


@intrinsic
def sub(typing_context, a, b):
    """Subtract lane by lane."""
    return _operation(lambda builder, x, y: builder.fsub(x, y))(typing_context, a, b)


@intrinsic
def clamp(typing_context, a, limit):
    """Clip ``a`` to the range from ``-limit`` to ``limit``, lane by lane."""

    def emit(builder, x, high):
        low = builder.fsub(ir.Constant(high.type, [-0.0] * LANES), high)
        x = builder.select(builder.fcmp_ordered(">", low, x), low, x)
        return builder.select(builder.fcmp_ordered("<", high, x), high, x)

    return _operation(emit)(typing_context, a, limit)


@intrinsic
def mul(typing_context, a, b):
    """Multiply lane by lane."""
    return _operation(lambda builder, x, y: builder.fmul(x, y))(typing_context, a, b)


@intrinsic
def maximum(typing_context, a, b):
    """Return the maximum lane by lane; ``b`` where ``a`` is NaN."""
    return _operation(lambda builder, x, y: builder.select(builder.fcmp_ordered(">", x, y), x, y))(
        typing_context, a, b
    )


@intrinsic
def any_above(typing_context, a, limit):
    """Return whether a lane exceeds that of ``limit`` or is NaN."""

    def generate(context, builder, signature, arguments):
        mask = builder.fcmp_unordered(">", *arguments)
        bits = builder.bitcast(mask, ir.IntType(LANES))
        return builder.icmp_unsigned("!=", bits, ir.Constant(bits.type, 0))

    return types.boolean(a, limit), generate


@intrinsic
def keep_above(typing_context, a, limit):
    """Return ``a`` where it exceeds ``limit``, and zero elsewhere (also where it is NaN)."""
    return _operation(
        lambda builder, x, y: builder.select(
            builder.fcmp_ordered(">", x, y), x, ir.Constant(x.type, None)
        )
    )(typing_context, a, limit)


@intrinsic
def keep_bits(typing_context, a, bits):
    """Return the lanes of ``a`` whose bit in ``bits`` is set, and zero elsewhere."""

    def generate(context, builder, signature, arguments):
        byte = builder.trunc(arguments[1], ir.IntType(8))
        mask = builder.bitcast(byte, ir.VectorType(ir.IntType(1), LANES))
        vector = arguments[0]
        return builder.select(mask, vector, ir.Constant(vector.type, None))

    return a(a, types.uint64), generate


@intrinsic
def fma(typing_context, a, b, c):
    """Compute ``a * b + c``, in one rounding where the processor can."""

    def generate(context, builder, signature, arguments):
        x, y, z = arguments
        product = builder.fmul(x, y, flags=["contract"])
        return builder.fadd(product, z, flags=["contract"])

    return a(a, b, c), generate


@intrinsic
def lane_sum(typing_context, a):
    """Add the eight lanes."""
    return _reduction(a, lambda builder, x, y: builder.fadd(x, y))


@intrinsic
def lane_max(typing_context, a):
    """Return the maximum of the eight lanes."""
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
