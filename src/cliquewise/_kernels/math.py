"""Exponential and logarithm that the compiler can vectorise.

Calls into the C library cost 4 to 5 ns and stop a loop from being vectorised. These are
straight-line polynomials, so a plain loop over an array runs 4 to 8 numbers at a time.

==========  ==========================  =================================================
function    relative error              outside the normal range
==========  ==========================  =================================================
``exp``     below 1e-14                 0 for x < -708, inf for x > 709.78
``log``     below 1e-14, also near 1    -inf at 0, NaN below 0, subnormals are right
``exp32``   below 1e-6                  0 for x < -86.9, inf for x > 88.72
``log32``   below 1e-6, also near 1     -inf at 0, NaN below 0, subnormals are right
==========  ==========================  =================================================

NaN stays NaN, and ``log(inf) = inf``. The relative error of ``log`` holds next to 1 as
well (its absolute error there is far below 1e-15), so that sums of ``x * log(x)`` are right.

``fast_exp`` and ``fast_log`` choose by the type of their argument; they are for kernels
that serve both precisions. Never compile the scalar functions with ``inline=True``: the
caller's licence to reorder sums would undo the rounding trick below.
"""

from typing import Any

import numpy as np
from numba import types
from numba.extending import overload

from cliquewise._kernels import kernel

# Adding 1.5 * 2**52 rounds to the nearest integer and leaves it in the lowest bits.
_ROUND = 6755399441055744.0
_ROUND_BITS = 0x4338000000000000
_ROUND32 = np.float32(12582912.0)
_ROUND32_BITS = np.int32(0x4B400000)
_LOG2E = 1.4426950408889634
# ln 2 in two parts: the first has zeros at its end, so its multiples are exact.
_LN2_HIGH = 0.6931471803691238
_LN2_LOW = 1.9082149292705877e-10
_LOG2E32 = np.float32(_LOG2E)
_LN2_HIGH32 = np.float32(0.693145751953125)
_LN2_LOW32 = np.float32(1.4286068203094173e-06)
_SQRT_HALF_BITS = 0x3FE6A09E00000000
_SQRT_HALF32_BITS = np.int32(0x3F3504F3)
_F1, _F2 = np.float32(1.0), np.float32(2.0)
# Chebyshev interpolants of (exp(r) - 1 - r) / r^2 and of (2 artanh(s) - 2 s) / s^3.
_E32 = tuple(
    np.float32(c)
    for c in (0.5, 0.16666573381900845, 0.04166655011030512, 0.008363773874405574, 0.00139269266)
)
_L32 = tuple(np.float32(c) for c in (0.6666668618433949, 0.3998831667174709, 0.29600794836214195))
_TINY32 = np.float32(1.1754944e-38)
_INF32 = np.float32(np.inf)
_NAN32 = np.float32(np.nan)
_LOWEST32, _HIGHEST32 = np.float32(-86.9), np.float32(88.72284)
_UP32 = np.float32(33554432.0)


@kernel(fastmath={"contract"})
def exp(x):
    """``e**x`` in float64: x = n ln 2 + r with |r| <= ln(2) / 2, and a polynomial in r."""
    shifted = x * _LOG2E + _ROUND
    n = shifted - _ROUND
    r = (x - n * _LN2_HIGH) - n * _LN2_LOW
    p = 2.7621338669142925e-07 + r * 2.5101346928350342e-08
    p = 2.75572664186123e-06 + r * p
    p = 2.4801518641395993e-05 + r * p
    p = 0.00019841269864380513 + r * p
    p = 0.0013888888918939168 + r * p
    p = 0.008333333333329793 + r * p
    p = 0.04166666666662064 + r * p
    p = 0.16666666666666669 + r * p
    p = 0.5 + r * p
    p = 1.0 + (r + r * r * p)
    # Half the scale, applied twice over, so that results next to the overflow survive.
    exponent = np.float64(shifted).view(np.int64) - _ROUND_BITS
    half = np.int64((exponent + 1022) << 52).view(np.float64)
    result = (p * half) * 2.0
    result = 0.0 if x < -708.0 else result
    return np.inf if x > 709.782712893384 else result


@kernel(fastmath={"contract"})
def log(x):
    """Natural logarithm in float64: x = 2^k m, and 2 artanh((m - 1) / (m + 1))."""
    small = x < 2.2250738585072014e-308
    scaled = x * 18014398509481984.0 if small else x
    lift = -54 if small else 0
    bits = np.float64(scaled).view(np.int64) + (0x3FF0000000000000 - _SQRT_HALF_BITS)
    exponent = (bits >> 52) - 1023 + lift
    # An integer becomes a float by the rounding trick backwards: AVX2 has no other way.
    k = np.int64(exponent + _ROUND_BITS).view(np.float64) - _ROUND
    m = np.int64((bits & 0x000FFFFFFFFFFFFF) + _SQRT_HALF_BITS).view(np.float64)
    f = m - 1.0
    s = f / (2.0 + f)
    z = s * s
    p = 0.15329489526677165 + z * 0.14643764652976946
    p = 0.18182956952603577 + z * p
    p = 0.22222210194440614 + z * p
    p = 0.28571428631794477 + z * p
    p = 0.39999999999886543 + z * p
    p = 0.666666666666667 + z * p
    # 2 s = f - s f keeps the exact f in front (as in fdlibm's e_log.c).
    result: Any = k * _LN2_HIGH + (f + (s * (z * p - f) + k * _LN2_LOW))
    result = result if x < np.inf else x
    result = result if x > 0.0 else np.nan
    result = -np.inf if x == 0.0 else result
    return result


@kernel(fastmath={"contract"})
def exp32(x):
    """``e**x`` in float32; see `exp`."""
    shifted = x * _LOG2E32 + _ROUND32
    n = shifted - _ROUND32
    r = (x - n * _LN2_HIGH32) - n * _LN2_LOW32
    p = _E32[3] + r * _E32[4]
    p = _E32[2] + r * p
    p = _E32[1] + r * p
    p = _E32[0] + r * p
    p = _F1 + (r + r * r * p)
    exponent = np.float32(shifted).view(np.int32) - _ROUND32_BITS
    half = np.int32((exponent + 126) << 23).view(np.float32)
    result = (p * half) * _F2
    result = np.float32(0.0) if x < _LOWEST32 else result
    return _INF32 if x > _HIGHEST32 else result


@kernel(fastmath={"contract"})
def log32(x):
    """Natural logarithm in float32; see `log`."""
    small = x < _TINY32
    scaled = x * _UP32 if small else x
    lift = np.int32(-25) if small else np.int32(0)
    bits = np.int32(np.float32(scaled).view(np.int32) + (0x3F800000 - _SQRT_HALF32_BITS))
    exponent = np.int32((bits >> np.int32(23)) - np.int32(127) + lift)
    k = np.float32(exponent)
    m = np.int32((bits & np.int32(0x007FFFFF)) + _SQRT_HALF32_BITS).view(np.float32)
    f = m - _F1
    s = f / (_F2 + f)
    z = s * s
    p = _L32[1] + z * _L32[2]
    p = _L32[0] + z * p
    result = k * _LN2_HIGH32 + (f + (s * (z * p - f) + k * _LN2_LOW32))
    result = result if x < _INF32 else x
    result = result if x > np.float32(0.0) else _NAN32
    result = -_INF32 if x == np.float32(0.0) else result
    return result


def fast_exp(x):
    """`exp` or `exp32`, by the type of the argument (inside kernels only)."""
    raise NotImplementedError("fast_exp is for compiled code; use numpy.exp outside kernels")


def fast_log(x):
    """`log` or `log32`, by the type of the argument (inside kernels only)."""
    raise NotImplementedError("fast_log is for compiled code; use numpy.log outside kernels")


@overload(fast_exp)
def _fast_exp(x):
    if x == types.float32:
        return lambda x: exp32(x)
    return lambda x: exp(x)


@overload(fast_log)
def _fast_log(x):
    if x == types.float32:
        return lambda x: log32(x)
    return lambda x: log(x)


@kernel
def exp_array(x, out):
    """Write ``exp(x)`` of a 1-d array, float64 or float32, into ``out``."""
    for i in range(x.shape[0]):
        out[i] = fast_exp(x[i])


@kernel
def log_array(x, out):
    """Write ``log(x)`` of a 1-d array, float64 or float32, into ``out``."""
    for i in range(x.shape[0]):
        out[i] = fast_log(x[i])


# Not exp_array(x, x): a loop that finds its two arrays overlapping runs one by one.
@kernel
def exp_in_place(x):
    """Replace a 1-d array by its exponential."""
    for i in range(x.shape[0]):
        x[i] = fast_exp(x[i])


@kernel
def log_in_place(x):
    """Replace a 1-d array by its logarithm."""
    for i in range(x.shape[0]):
        x[i] = fast_log(x[i])
