"""The polynomial exponential and logarithm keep their promised error bounds."""

import re

import numpy as np
import pytest

from cliquewise._kernels import STOCK_NUMBA, kernel
from cliquewise._kernels.common.math import exp, fast_exp, fast_log, log


@kernel
def exp_array(x, out):
    """Write ``exp(x)`` into ``out``."""
    for i in range(x.shape[0]):
        out[i] = fast_exp(x[i])


@kernel
def log_array(x, out):
    """Write ``log(x)`` into ``out``."""
    for i in range(x.shape[0]):
        out[i] = fast_log(x[i])


@kernel
def exp32(x):
    """Compute ``e**x`` in float32."""
    return fast_exp(np.float32(x))


@kernel
def log32(x):
    """Compute the natural logarithm in float32."""
    return fast_log(np.float32(x))


BOUND = {np.float64: 4.4e-16, np.float32: 1e-6}
REFERENCE = {np.float64: np.longdouble, np.float32: np.float64}
LOWEST = {np.float64: -708.0, np.float32: -86.9}
PRECISIONS = pytest.mark.parametrize("dtype", [np.float64, np.float32])


def relative_error(result, reference):
    zero = reference == 0
    assert np.all(result[zero] == 0)
    return float(np.max(np.abs(result[~zero] / reference[~zero] - 1)))


@PRECISIONS
def test_exp_keeps_its_bound_over_the_whole_range(dtype):
    rng = np.random.default_rng(0)
    highest = float(np.log(np.finfo(dtype).max)) * (1 - 1e-7)
    x = np.concatenate(
        [
            np.linspace(LOWEST[dtype], highest, 400_001),
            rng.uniform(-1, 1, 100_000),
            rng.normal(size=1000) * 1e-9,
            np.log(2) * (np.arange(-120, 120) + 0.5),
        ]
    ).astype(dtype)
    out = np.empty_like(x)
    exp_array(x, out)
    assert relative_error(out, np.exp(x.astype(REFERENCE[dtype]))) < BOUND[dtype]


@PRECISIONS
def test_log_keeps_its_bound_over_the_whole_range_and_next_to_one(dtype):
    rng = np.random.default_rng(1)
    info = np.finfo(dtype)
    x = np.concatenate(
        [
            np.exp(np.linspace(np.log(info.tiny), np.log(info.max) * (1 - 1e-7), 400_001)),
            1 + rng.uniform(-0.5, 1, 100_000),
            1 + rng.normal(size=100_000) * 1e-6,
            [1.0, info.tiny, info.max, np.sqrt(0.5), np.sqrt(2)],
        ]
    ).astype(dtype)
    x = np.concatenate([x, np.nextafter(np.ones(2, dtype), np.array([0, 2], dtype))])
    x = np.concatenate([x, np.array([1, 3, 1000], dtype) * info.smallest_subnormal])
    out = np.empty_like(x)
    log_array(x, out)
    assert relative_error(out, np.log(x.astype(REFERENCE[dtype]))) < BOUND[dtype]


@pytest.mark.parametrize(("function", "dtype"), [(exp, np.float64), (exp32, np.float32)])
def test_exp_at_its_ends(function, dtype):
    assert function(dtype(-np.inf)) == 0
    assert function(dtype(-1e30)) == 0
    # Subnormal results may be flushed to zero.
    assert 0 <= function(dtype(LOWEST[dtype] - 0.6)) < np.finfo(dtype).tiny
    assert function(dtype(LOWEST[dtype])) >= np.finfo(dtype).tiny
    assert function(dtype(0)) == 1
    assert function(dtype(1e30)) == np.inf
    assert function(dtype(np.inf)) == np.inf
    assert np.isnan(function(dtype(np.nan)))


@pytest.mark.parametrize(("function", "dtype"), [(log, np.float64), (log32, np.float32)])
def test_log_at_its_ends(function, dtype):
    assert function(dtype(0)) == -np.inf
    assert function(dtype(-0.0)) == -np.inf
    assert function(dtype(1)) == 0
    assert function(dtype(np.inf)) == np.inf
    assert np.isnan(function(dtype(-1)))
    assert np.isnan(function(dtype(np.nan)))


@pytest.mark.skipif(STOCK_NUMBA, reason="polynomials are used with our own intrinsics only")
@pytest.mark.parametrize("function", [exp_array, log_array])
def test_loops_are_compiled_to_vector_instructions(function):
    function(np.ones(16), np.ones(16))
    # Another test may have compiled it for float32 before.
    double = next(s for s in function.signatures if str(s[0].dtype) == "float64")
    assembly = function.inspect_asm(double)
    if "xmm" not in assembly:
        pytest.skip("not an x86 processor")
    packed = re.findall(r"v?(?:fmadd\d+pd|mulpd)\b", assembly)
    assert len(packed) >= 8
