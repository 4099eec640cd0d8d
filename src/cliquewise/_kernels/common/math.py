"""Exponential and logarithm that run eight numbers at a time.

Calls into the C library cost 4 to 5 ns and stop a loop from being vectorized. These are
straight-line polynomials: `fast_exp` and `fast_log` take a float64, a float32, or the vectors
of `simd`, and a plain loop over an array of scalars is vectorized by the compiler.

==========  ==========================  =================================================
function    relative error              outside the normal range
==========  ==========================  =================================================
``exp``     below 4.4e-16               0 for x < -708, inf for x > 709.78
``log``     below 4.4e-16, also near 1  -inf at 0, NaN below 0, subnormals are right
``exp32``   below 1e-6                  0 for x < -86.9, inf for x > 88.72
``log32``   below 1e-6, also near 1     -inf at 0, NaN below 0, subnormals are right
==========  ==========================  =================================================

NaN stays NaN, and ``log(inf) = inf``. The relative error of ``log`` holds next to 1 as
well (its absolute error there is far below 1e-15), so that sums of ``x * log(x)`` are right.
"""

import numpy as np

from cliquewise._kernels import kernel
from cliquewise._kernels.llvm import fast_exp, fast_log

__all__ = ["exp", "fast_exp", "fast_log", "log"]


@kernel
def exp(x):
    """``e**x`` in float64."""
    return fast_exp(np.float64(x))


@kernel
def log(x):
    """Natural logarithm in float64."""
    return fast_log(np.float64(x))
