"""The operations of `vectors` on tuples of eight numbers: slower, with the same results.

It serves as a reference for the intrinsics, and as a fallback for versions of numba or llvmlite
that they do not work with.
"""

import numpy as np
from numba import njit, types
from numba.extending import overload

#: Numbers in a vector.
LANES = 8


def _zero(x):
    """Return zero of the type of ``x`` (inside kernels only)."""
    raise NotImplementedError


@overload(_zero)
def _typed_zero(x):
    number = x
    return lambda x: number(0)


@njit(inline="always")
def _pick(condition, x, y):
    return x if condition else y


@njit
def load(array, offset):
    """Read eight elements of ``array`` from ``offset`` on."""
    flat = array.reshape(-1)
    return (
        flat[offset + 0],
        flat[offset + 1],
        flat[offset + 2],
        flat[offset + 3],
        flat[offset + 4],
        flat[offset + 5],
        flat[offset + 6],
        flat[offset + 7],
    )


@njit
def load_first(array, offset, count, fill):
    """Read ``min(count, 8)`` elements from ``offset`` on; the other lanes are those of ``fill``."""
    flat = array.reshape(-1)
    return (
        flat[offset + 0] if count > 0 else fill[0],
        flat[offset + 1] if count > 1 else fill[1],
        flat[offset + 2] if count > 2 else fill[2],
        flat[offset + 3] if count > 3 else fill[3],
        flat[offset + 4] if count > 4 else fill[4],
        flat[offset + 5] if count > 5 else fill[5],
        flat[offset + 6] if count > 6 else fill[6],
        flat[offset + 7] if count > 7 else fill[7],
    )


@njit
def store(array, offset, value):
    """Write eight elements to ``array`` from ``offset`` on."""
    flat = array.reshape(-1)
    for lane in range(LANES):
        flat[offset + lane] = value[lane]


@njit
def store_first(array, offset, count, value):
    """Write the first ``min(count, 8)`` lanes to ``array`` from ``offset`` on."""
    flat = array.reshape(-1)
    for lane in range(min(count, LANES)):
        flat[offset + lane] = value[lane]


@njit
def prefetch(array, offset):
    """Do nothing."""


@njit
def no_unroll():
    """Do nothing."""


@njit
def splat(value):
    """Return a vector of eight equal numbers."""
    return (value, value, value, value, value, value, value, value)


@njit
def spread(array, offset):
    """Return a vector of eight copies of element ``offset`` of ``array``."""
    return splat(array.reshape(-1)[offset])


@njit
def add(a, b):
    """Add lane by lane."""
    return (
        a[0] + b[0],
        a[1] + b[1],
        a[2] + b[2],
        a[3] + b[3],
        a[4] + b[4],
        a[5] + b[5],
        a[6] + b[6],
        a[7] + b[7],
    )


@njit
def sub(a, b):
    """Subtract lane by lane."""
    return (
        a[0] - b[0],
        a[1] - b[1],
        a[2] - b[2],
        a[3] - b[3],
        a[4] - b[4],
        a[5] - b[5],
        a[6] - b[6],
        a[7] - b[7],
    )


@njit
def mul(a, b):
    """Multiply lane by lane."""
    return (
        a[0] * b[0],
        a[1] * b[1],
        a[2] * b[2],
        a[3] * b[3],
        a[4] * b[4],
        a[5] * b[5],
        a[6] * b[6],
        a[7] * b[7],
    )


@njit
def fma(a, b, c):
    """Compute ``a * b + c``."""
    return (
        a[0] * b[0] + c[0],
        a[1] * b[1] + c[1],
        a[2] * b[2] + c[2],
        a[3] * b[3] + c[3],
        a[4] * b[4] + c[4],
        a[5] * b[5] + c[5],
        a[6] * b[6] + c[6],
        a[7] * b[7] + c[7],
    )


@njit
def maximum(a, b):
    """Return the maximum lane by lane; ``b`` where ``a`` is NaN."""
    return (
        _pick(a[0] > b[0], a[0], b[0]),
        _pick(a[1] > b[1], a[1], b[1]),
        _pick(a[2] > b[2], a[2], b[2]),
        _pick(a[3] > b[3], a[3], b[3]),
        _pick(a[4] > b[4], a[4], b[4]),
        _pick(a[5] > b[5], a[5], b[5]),
        _pick(a[6] > b[6], a[6], b[6]),
        _pick(a[7] > b[7], a[7], b[7]),
    )


@njit
def keep_above(a, limit):
    """Return ``a`` where it exceeds ``limit``, and zero elsewhere (also where it is NaN)."""
    zero = _zero(a[0])
    return (
        _pick(a[0] > limit[0], a[0], zero),
        _pick(a[1] > limit[1], a[1], zero),
        _pick(a[2] > limit[2], a[2], zero),
        _pick(a[3] > limit[3], a[3], zero),
        _pick(a[4] > limit[4], a[4], zero),
        _pick(a[5] > limit[5], a[5], zero),
        _pick(a[6] > limit[6], a[6], zero),
        _pick(a[7] > limit[7], a[7], zero),
    )


@njit
def keep_bits(a, bits):
    """Return the lanes of ``a`` whose bit in ``bits`` is set, and zero elsewhere."""
    zero, number = _zero(a[0]), np.int64(bits)
    return (
        _pick((number >> 0) & 1 == 1, a[0], zero),
        _pick((number >> 1) & 1 == 1, a[1], zero),
        _pick((number >> 2) & 1 == 1, a[2], zero),
        _pick((number >> 3) & 1 == 1, a[3], zero),
        _pick((number >> 4) & 1 == 1, a[4], zero),
        _pick((number >> 5) & 1 == 1, a[5], zero),
        _pick((number >> 6) & 1 == 1, a[6], zero),
        _pick((number >> 7) & 1 == 1, a[7], zero),
    )


@njit
def _clip(x, limit):
    if -limit > x:
        return -limit
    return limit if limit < x else x


@njit
def clamp(a, limit):
    """Clip ``a`` to the range from ``-limit`` to ``limit``, lane by lane."""
    return (
        _clip(a[0], limit[0]),
        _clip(a[1], limit[1]),
        _clip(a[2], limit[2]),
        _clip(a[3], limit[3]),
        _clip(a[4], limit[4]),
        _clip(a[5], limit[5]),
        _clip(a[6], limit[6]),
        _clip(a[7], limit[7]),
    )


@njit
def any_above(a, limit):
    """Return whether a lane exceeds that of ``limit`` or is NaN."""
    found = False
    for lane in range(LANES):
        found = found or not a[lane] <= limit[lane]
    return found


@njit
def lane_sum(a):
    """Add the eight lanes."""
    return ((a[0] + a[4]) + (a[2] + a[6])) + ((a[1] + a[5]) + (a[3] + a[7]))


@njit
def lane_max(a):
    """Return the maximum of the eight lanes."""
    top = a[0]
    for lane in range(1, LANES):
        top = _pick(top > a[lane], top, a[lane])
    return top


def fast_exp(x):
    """Compute ``e**x`` of a float64, a float32 or a vector of either (inside kernels only)."""
    raise NotImplementedError


def fast_log(x):
    """Compute the natural logarithm of a float64, a float32 or a vector (inside kernels only)."""
    raise NotImplementedError


def _lane_by_lane(function):
    def choose(x):
        if not isinstance(x, types.UniTuple):
            return lambda x: function(x)
        return lambda x: (
            function(x[0]), function(x[1]), function(x[2]), function(x[3]),
            function(x[4]), function(x[5]), function(x[6]), function(x[7]),
        )  # fmt: skip

    return choose


overload(fast_exp)(_lane_by_lane(np.exp))
overload(fast_log)(_lane_by_lane(np.log))
