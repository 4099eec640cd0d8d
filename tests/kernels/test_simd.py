"""The vector building blocks equal numpy."""

import numba
import numpy as np
import pytest

from cliquewise._kernels import REASSOCIATE
from cliquewise._kernels.common import simd
from cliquewise._kernels.common.math import fast_exp, fast_log


@pytest.mark.parametrize(("n", "width"), [(1, 8), (7, 8), (8, 8), (9, 16), (16, 16), (45, 48)])
def test_padding_is_the_next_multiple_of_the_vector(n, width):
    assert simd.padded(n) == width


@pytest.mark.parametrize("dtype", [np.float64, np.float32])
@pytest.mark.parametrize("n", [1, 3, 8, 10, 23])
def test_products_equal_numpy(n, dtype):
    rng = np.random.default_rng(n)
    width = simd.padded(n)
    like = np.empty(0, dtype)
    tables = simd.aligned_zeros(2 * width * width, like).reshape(2, width, width)
    tables[1, :n, :n] = rng.normal(size=(n, n))
    vectors = simd.aligned_zeros(3 * width, like)
    vectors[width : width + n] = rng.normal(size=n)
    expected = vectors[width : 2 * width] @ tables[1]
    simd.vector_matrix(vectors, width, tables, 1, n, 2 * width)
    np.testing.assert_allclose(vectors[2 * width :], expected, rtol=1e-5, atol=1e-6)

    rows = simd.aligned_zeros(10 * width, like).reshape(10, width)
    rows[:, :n] = rng.normal(size=(10, n))
    expected = rows[1:4].T @ rows[6:9]
    simd.sum_outer_products(rows.reshape(-1), width, 6 * width, 3, n, tables, 1)
    np.testing.assert_allclose(tables[1, :n], expected[:n], rtol=1e-5, atol=1e-5)
    assert not tables[0].any()


def test_scratch_starts_on_a_cache_line():
    for _ in range(5):
        assert simd.aligned_zeros(100, np.empty(0)).ctypes.data % 64 == 0


@pytest.mark.parametrize("n", [0, 1, 8, 21])
def test_copies_stop_at_the_last_element(n):
    source, target = np.arange(1.0, n + 1), np.zeros(n + 9)
    simd.copy(source, target)
    np.testing.assert_array_equal(target, np.concatenate([source, np.zeros(9)]))


@numba.njit(fastmath=REASSOCIATE)
def exp_and_log_of_vectors(x, exps, logs):
    for at in range(0, x.size, simd.LANES):
        simd.store(exps, at, fast_exp(simd.load(x, at)))
        simd.store(logs, at, fast_log(simd.load(x, at)))


@pytest.mark.parametrize(("dtype", "bound"), [(np.float64, 1e-14), (np.float32, 1e-6)])
def test_a_licence_to_reorder_sums_does_not_spoil_exp_and_log(dtype, bound):
    x = np.concatenate([np.linspace(1e-3, 80, 1000), [np.inf, 0.0, 1.0, np.nan, 1e-42, 2, 3, 4]])
    x = x.astype(dtype)
    exps, logs = np.empty_like(x), np.empty_like(x)
    exp_and_log_of_vectors(x, exps, logs)
    wide = x.astype(np.longdouble)
    np.testing.assert_allclose(exps.astype(np.longdouble), np.exp(wide), rtol=bound)
    with np.errstate(divide="ignore"):
        expected = np.log(wide)
    np.testing.assert_allclose(logs.astype(np.longdouble), expected, rtol=bound)
