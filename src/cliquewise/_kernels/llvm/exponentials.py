"""Exponential and logarithm of scalars and vectors, as straight-line polynomials.

Calls into the C library cost 4 to 5 ns and stop a loop from being vectorized. The instructions are
emitted one by one, which compiles faster than numba's way through Python. It also protects them: an
instruction with flags (here "contract") does not take the fast-math flags of its caller, which
would allow LLVM to undo the rounding trick below.
"""

from typing import Any, NamedTuple

import numba.extending
import numpy as np
from llvmlite import ir  # type: ignore[import-untyped]

# Callers do not pass the typing context, which a type checker cannot see.
intrinsic: Any = numba.extending.intrinsic


class _Format(NamedTuple):
    """A floating point format, and the polynomials that suit it."""

    mantissa: int
    bias: int
    # Adding 1.5 * 2**mantissa rounds to the nearest integer, and leaves it in the lowest bits.
    shifter: float
    shifter_bits: int
    # ln 2 in two parts: the first has zeros at its end, so its multiples are exact.
    ln2_high: float
    ln2_low: float
    lowest: float
    highest: float
    tiny: float
    lift: int
    sqrt_half_bits: int
    # Chebyshev interpolants of (exp(r) - 1 - r) / r^2 and of (2 artanh(s) - 2 s) / s^3.
    exp: tuple[float, ...]
    log: tuple[float, ...]


_FORMATS = {
    64: _Format(
        mantissa=52,
        bias=1023,
        shifter=6755399441055744.0,
        shifter_bits=0x4338000000000000,
        ln2_high=0.6931471803691238,
        ln2_low=1.9082149292705877e-10,
        lowest=-708.0,
        highest=709.782712893384,
        tiny=2.2250738585072014e-308,
        lift=54,
        sqrt_half_bits=0x3FE6A09E00000000,
        exp=(
            0.5, 0.16666666666666669, 0.04166666666662064, 0.008333333333329793,
            0.0013888888918939168, 0.00019841269864380513, 2.4801518641395993e-05,
            2.75572664186123e-06, 2.7621338669142925e-07, 2.5101346928350342e-08,
        ),
        log=(
            0.666666666666667, 0.39999999999886543, 0.28571428631794477, 0.22222210194440614,
            0.18182956952603577, 0.15329489526677165, 0.14643764652976946,
        ),
    ),
    32: _Format(
        mantissa=23,
        bias=127,
        shifter=12582912.0,
        shifter_bits=0x4B400000,
        ln2_high=0.693145751953125,
        ln2_low=1.4286068203094173e-06,
        lowest=-86.9,
        highest=88.72284,
        tiny=1.1754944e-38,
        lift=25,
        sqrt_half_bits=0x3F3504F3,
        exp=(
            0.5, 0.16666573381900845, 0.04166655011030512, 0.008363773874405574, 0.00139269266,
        ),
        log=(0.6666668618433949, 0.3998831667174709, 0.29600794836214195),
    ),
}  # fmt: skip


class _Emitter:
    """Arithmetic on one scalar or vector type, with constants spelled as Python numbers."""

    def __init__(self, builder, like):
        self.builder, self.type = builder, like.type
        lanes = like.type.count if isinstance(like.type, ir.VectorType) else 0
        element = like.type.element if lanes else like.type
        self.bits = 64 if isinstance(element, ir.DoubleType) else 32
        integer = ir.IntType(self.bits)
        self.integer = ir.VectorType(integer, lanes) if lanes else integer
        self.lanes = lanes
        self.format = _FORMATS[self.bits]

    def _value(self, x, kind):
        if isinstance(x, ir.Value):
            return x
        return ir.Constant(kind, [x] * self.lanes if self.lanes else x)

    def add(self, a, b):
        a, b = self._value(a, self.type), self._value(b, self.type)
        return self.builder.fadd(a, b, flags=("contract",))

    def sub(self, a, b):
        a, b = self._value(a, self.type), self._value(b, self.type)
        return self.builder.fsub(a, b, flags=("contract",))

    def mul(self, a, b):
        a, b = self._value(a, self.type), self._value(b, self.type)
        return self.builder.fmul(a, b, flags=("contract",))

    def div(self, a, b):
        return self.builder.fdiv(a, b, flags=("contract",))

    def polynomial(self, x, coefficients):
        total: Any = coefficients[-1]
        for c in coefficients[-2::-1]:
            total = self.add(c, self.mul(x, total))
        return total

    def choose(self, a, comparison, b, yes, no, kind=None):
        """Yes where ``a comparison b``, else no (so also where ``a`` is NaN)."""
        kind = kind or self.type
        test = self.builder.fcmp_ordered(comparison, a, self._value(b, self.type))
        return self.builder.select(test, self._value(yes, kind), self._value(no, kind))

    def integers(self, operation, a, b):
        return getattr(self.builder, operation)(a, self._value(b, self.integer))

    def to_bits(self, a):
        return self.builder.bitcast(a, self.integer)

    def from_bits(self, a):
        return self.builder.bitcast(a, self.type)


def _emit_exp(e, x):
    """x = n ln 2 + r with |r| <= ln(2) / 2, and a polynomial in r."""
    f = e.format
    shifted = e.add(e.mul(x, 1.4426950408889634), f.shifter)
    n = e.sub(shifted, f.shifter)
    r = e.sub(e.sub(x, e.mul(n, f.ln2_high)), e.mul(n, f.ln2_low))
    p = e.add(1.0, e.add(r, e.mul(e.mul(r, r), e.polynomial(r, f.exp))))
    # Half the scale, applied twice over, so that results next to the overflow survive.
    exponent = e.integers("sub", e.to_bits(shifted), f.shifter_bits - (f.bias - 1))
    half = e.from_bits(e.integers("shl", exponent, f.mantissa))
    result = e.mul(e.mul(p, half), 2.0)
    result = e.choose(x, "<", f.lowest, 0.0, result)
    return e.choose(x, ">", f.highest, np.inf, result)


def _emit_log(e, x):
    """x = 2^k m, and 2 artanh((m - 1) / (m + 1))."""
    f = e.format
    scaled = e.choose(x, "<", f.tiny, e.mul(x, 2.0**f.lift), x)
    lift = e.choose(x, "<", f.tiny, -f.lift, 0, e.integer)
    bits = e.integers("add", e.to_bits(scaled), (f.bias << f.mantissa) - f.sqrt_half_bits)
    exponent = e.integers("add", e.integers("ashr", bits, f.mantissa), lift)
    # An integer becomes a float by the rounding trick backwards: AVX2 has no other way.
    k = e.sub(e.from_bits(e.integers("add", exponent, f.shifter_bits - f.bias)), f.shifter)
    bits = e.integers("and_", bits, (1 << f.mantissa) - 1)
    m = e.from_bits(e.integers("add", bits, f.sqrt_half_bits))
    d = e.sub(m, 1.0)
    s = e.div(d, e.add(2.0, d))
    z = e.mul(s, s)
    # 2 s = d - s d keeps the exact d in front (as in fdlibm's e_log.c).
    inner = e.mul(s, e.sub(e.mul(z, e.polynomial(z, f.log)), d))
    result = e.add(e.mul(k, f.ln2_high), e.add(d, e.add(inner, e.mul(k, f.ln2_low))))
    result = e.choose(x, "<", np.inf, result, x)
    result = e.choose(x, ">", 0.0, result, np.nan)
    return e.choose(x, "==", 0.0, -np.inf, result)


def _function(emit, x):
    def generate(context, builder, signature, arguments):
        return emit(_Emitter(builder, arguments[0]), arguments[0])

    return x(x), generate


@intrinsic
def fast_exp(typing_context, x):
    """``e**x`` of a float64, a float32 or a vector of either (inside kernels only)."""
    return _function(_emit_exp, x)


@intrinsic
def fast_log(typing_context, x):
    """Natural logarithm of a float64, a float32 or a vector (inside kernels only)."""
    return _function(_emit_log, x)
